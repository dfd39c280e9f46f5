"""The base of both estimators: checks of parameters, encoding of tables, progress, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from gatelab import tensors
from gatelab.arrays import Array, refuse_masked
from gatelab.display import reporting
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.estimators.columns import TableColumns, warn_of_levels
from gatelab.estimators.frames import Frame, TableRows, distinct
from gatelab.estimators.reading import read_table, rows_of
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.memory import check_device
from gatelab.solve.files import DAMAGED, damaged, describe_unit, restored_unit

UnitLike = str | AnyUnit | Callable[..., object]
Arrays = dict[str, Any]
# Folds of the rows for mean targets of levels.
_FOLDS = 5


class GatedEstimator(BaseEstimator):
    """The base class of `GatedRegressor` and `GatedClassifier`."""

    KIND: ClassVar[str]
    FORMAT: ClassVar[int]
    PLAIN: ClassVar[tuple[str, ...]]
    frame_: Frame
    columns_: TableColumns
    unit_: str
    width_: int
    ridge_: float
    n_features_in_: int
    validation_: list[dict[str, Any]]

    def save(self, path: str | Path) -> Path:
        """Write the fitted model as safetensors: arrays and plain values, without executable code.

        A `RandomState` is saved as None. Units are stored by gate and factors: your own functions are refused, and so
        are classes that are neither text nor numbers nor booleans.
        """
        check_is_fitted(self, "frame_")
        model: Any = self
        parameters = self.get_params(deep=False)
        # "steps", which a classifier takes, is not a unit.
        parameters["unit"] = [u if u == "steps" else describe_unit(u) for u in units_of(model.unit) if u is not None]
        if isinstance(parameters["random_state"], np.random.RandomState):
            parameters["random_state"] = None
        facts = {
            "format": self.FORMAT,
            "several": isinstance(model.unit, list | tuple),
            "parameters": parameters,
            "attributes": {name: getattr(self, name) for name in self.PLAIN},
            "columns": self.columns_.facts(),
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
        }
        more, arrays = model._content(parameters)
        arrays |= prefixed("frame", self.frame_.arrays())
        return tensors.write_packed(path, tensors.pack(arrays, self.KIND, facts | more))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The saved model; its predictions are equal bit by bit."""
        give = f"give a file that {cls.KIND}.save wrote"
        kind = tensors.kind_of(path, give)
        if kind != cls.KIND:
            hint = "gl.load(path) reads it, and predicts as well" if kind == "Fit" else give
            raise GatelabError(f"{path} holds {f'a {kind}' if kind else 'arrays'}, not a {cls.KIND}; {hint}")
        content = tensors.read(path, give)
        tensors.check_format(path, content.facts, cls.FORMAT)
        tensors.check_finite(path, content.arrays, "the file is damaged: save the model again")
        try:
            return cls._restored_model(content.facts, content.arrays)
        except DAMAGED as error:
            raise damaged(path, error) from error

    @classmethod
    def _restored_model(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """The model of plain values and arrays; an error of `DAMAGED` if they are inconsistent."""
        kind: Any = cls
        parameters = facts["parameters"]
        units = tuple(u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"])
        parameters["unit"] = units if facts["several"] else next(iter(units), None)
        attributes = {name: facts["attributes"][name] for name in cls.PLAIN}
        frame, columns = Frame.restored(part_of("frame", arrays)), TableColumns.restored(facts["columns"])
        if frame.x_map.shape[0] != columns.width or len(columns.columns) != attributes["n_features_in_"]:
            raise ValueError(f"{frame.x_map.shape[0]} inputs are scaled, of {columns.width} numbers")
        attributes |= {"frame_": frame, "columns_": columns}
        if facts["feature_names"]:
            attributes["feature_names_in_"] = np.array(facts["feature_names"], dtype=object)
        attributes |= kind._restored(facts, arrays, attributes)
        model = kind(**parameters)
        vars(model).update(attributes)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _checked(self, unit: Any, **given: Any) -> list[Unit]:
        """The units; raises an error if they, other parameters, or what `fit` was given are invalid."""
        model: Any = self
        check_device(model.device)
        units = []
        for one in map(as_unit, units_of(unit)):
            if not isinstance(one, Unit):
                raise GatelabError(f"{one.name!r} is a class; give a product unit or a function, or use gl.fit")
            units.append(one)
        if not units:
            raise GatelabError("unit is empty; give one or more units, for example ('glu', 'swiglu')")
        if model.ridge is not None:
            real_number("ridge", model.ridge, least=0)
        if model.time_budget is not None:
            real_number("time_budget", model.time_budget, above=0)
        if model.width is not None:
            check_width(model.width)
        whole_number("members", model.members, 1)
        for what, values in given.items():
            refuse_masked(values, what)
        return units

    def _rows(self, table: Any, y: Array, weight: Array, seed: int) -> TableRows:
        """The distinct rows of a table with positive weight, as numbers; sets `columns_`."""
        weighty = np.flatnonzero(weight)
        if 0 < len(weighty) < len(weight):
            table, y, weight = rows_of(table, weighty), y[weighty], weight[weighty]
        columns = TableColumns.of(table, y, weight)
        names = getattr(self, "feature_names_in_", [column.name for column in columns.columns])
        columns = TableColumns(tuple(replace(c, name=name) for c, name in zip(columns.columns, names, strict=True)))
        warn_of_levels(columns)
        self.columns_ = columns
        if not columns.averaged:
            return distinct(columns.encode(table), y, weight)
        fold = columns.fold(table, y, weight, _FOLDS, seed)
        return distinct(columns.training(table, y, weight, fold), y, weight)

    def _table(self, X: Any) -> Any:
        """A table to predict, as input of `columns_`."""
        check_is_fitted(self, "frame_")
        refuse_masked(X, "X")
        return read_table(self, X, reset=False)

    def _become(self, model: GatedEstimator) -> Self:
        """Take the state of a fitted copy: an interrupted fit leaves the estimator unchanged."""
        vars(self).clear()
        vars(self).update(vars(model))
        return self


@contextmanager
def showing(verbose: int, title: str, usual: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that shows each candidate of a search, which usually tries `usual` of them."""
    tried = 0
    with reporting(bool(verbose) or None, title) as report:

        def show(row: dict[str, Any]) -> None:
            nonlocal tried
            tried += 1
            if report is not None:
                report(tried, max(usual, tried + 1))
            if verbose:
                print("  ".join(f"{n} {v:.3g}" if isinstance(v, float) else f"{n} {v}" for n, v in row.items()))

        yield show


def row_weights(sample_weight: Any, n: int) -> Array:
    """The weights of n rows from scikit-learn's `sample_weight`: None, a number, or one number per row."""
    if sample_weight is None:
        return np.ones(n)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, float(sample_weight))
    weight: np.ndarray = check_array(sample_weight, ensure_2d=False, dtype="float64", input_name="sample_weight")
    if weight.shape != (n,):
        raise GatelabError(f"sample_weight has the shape {weight.shape}; give one number for each of the {n} rows")
    if (weight < 0).any():
        raise GatelabError(f"sample_weight has the negative value {weight.min():g}; give numbers that are 0 or more")
    return weight


def seed_of(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: None, an int or a `RandomState`."""
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        random_state = whole_number("random_state", random_state, 0, 2**32 - 1)
    return int(check_random_state(random_state).randint(2**31 - 1))


def units_of(unit: Any) -> list[Any]:
    """The one or several units of an estimator, as a list."""
    return list(unit) if isinstance(unit, list | tuple) else [unit]


def prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def part_of(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays with this prefix, without it."""
    return {n.removeprefix(f"{prefix}."): array for n, array in arrays.items() if n.startswith(f"{prefix}.")}
