"""What both estimators have: parameters that are checked, tables as rows, progress, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from gatelab.solve.files import DAMAGED, damaged, described, restored_unit

UnitLike = str | AnyUnit | Callable[..., object]
Arrays = dict[str, Any]
# Parts of the rows that mean targets of levels are taken without.
_FOLDS = 5


class GatedEstimator(BaseEstimator):
    """What `GatedRegressor` and `GatedClassifier` share."""

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
        """Write the fitted model as safetensors: arrays and plain values, nothing that could be executed.

        A `RandomState` is saved as None. Units are kept by gate and factors: functions of your own are refused, and so
        are classes that are neither text nor numbers nor truth values.
        """
        check_is_fitted(self, "frame_")
        return write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model that was saved; its predictions are the same to the last bit."""
        return read(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _checked(self, unit: Any) -> list[Unit]:
        """The units, if these and all other parameters can be used."""
        model: Any = self
        check_device(model.device)
        units = []
        for one in map(as_unit, units_of(unit)):
            if not isinstance(one, Unit):
                raise GatelabError(
                    f"{one.name!r} is a class; {self.KIND} takes product units and functions, gl.fit takes classes"
                )
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
        return units

    def _rows(self, table: Any, y: Array, weight: Array, seed: int) -> TableRows:
        """The distinct rows of a table as numbers, those without weight left out; its columns are noted."""
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
        """A table to predict, as `columns_` takes it."""
        check_is_fitted(self, "frame_")
        refuse_masked(X, "X")
        return read_table(self, X, reset=False)

    def _take_over(self, model: GatedEstimator) -> Self:
        """Become the model, a fitted copy: a fit that is interrupted leaves no trace."""
        vars(self).clear()
        vars(self).update(vars(model))
        return self


@contextmanager
def showing(verbose: int, title: str, usual: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What shows each candidate, as plain values, of a search that tries `usual` of them as a rule."""
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
    """A weight for each of n rows, from what scikit-learn calls `sample_weight`: None, a number, or one a row."""
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
    """A seed, from what scikit-learn calls `random_state`: None, an int or a `RandomState`."""
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        random_state = whole_number("random_state", random_state, 0, 2**32 - 1)
    return int(check_random_state(random_state).randint(2**31 - 1))


def write(model: Any, path: str | Path) -> Path:
    """Save a fitted model: what both estimators have, and what each adds by `_content`."""
    parameters = model.get_params(deep=False)
    # Names stay names: what a classifier calls steps is no unit.
    parameters["unit"] = [u if u == "steps" else described(u) for u in units_of(model.unit) if u is not None]
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    facts = {
        "format": model.FORMAT,
        "several": isinstance(model.unit, list | tuple),
        "parameters": parameters,
        "attributes": {name: getattr(model, name) for name in model.PLAIN},
        "columns": model.columns_.facts(),
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
    }
    more, arrays = model._content(parameters)
    arrays |= nested("frame", model.frame_.arrays())
    return tensors.write_packed(path, tensors.pack(arrays, model.KIND, facts | more))


def read(kind: Any, path: str | Path) -> Any:
    """The model that was saved."""
    give = f"give a file that {kind.KIND}.save wrote"
    holds = tensors.kind_of(path, give)
    if holds != kind.KIND:
        hint = "gl.load(path) reads it, and predicts as well" if holds == "Fit" else give
        raise GatelabError(f"{path} holds {f'a {holds}' if holds else 'arrays'}, no {kind.KIND}; {hint}")
    content = tensors.read(path, give)
    tensors.check_format(path, content.facts, kind.FORMAT)
    tensors.check_finite(path, content.arrays, "the file is damaged: save the model again")
    try:
        return restored(kind, content.facts, content.arrays)
    except DAMAGED as error:
        raise damaged(path, error) from error


def restored(kind: Any, facts: dict[str, Any], arrays: Arrays) -> Any:
    """The model of plain values and arrays; an error of `DAMAGED` where they do not fit each other."""
    parameters = facts["parameters"]
    units = tuple(u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"])
    parameters["unit"] = units if facts["several"] else next(iter(units), None)
    attributes = {name: facts["attributes"][name] for name in kind.PLAIN}
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


def units_of(unit: Any) -> list[Any]:
    """What an estimator was given as its unit, one or several, as a list."""
    return list(unit) if isinstance(unit, list | tuple) else [unit]


def nested(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays with names that begin so."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def numbered(prefix: str, parts: Iterable[Arrays]) -> Arrays:
    """The arrays of several things, by their number."""
    return {name: a for i, part in enumerate(parts) for name, a in nested(f"{prefix}.{i}", part).items()}


def part_of(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin so, by what follows."""
    return {n.removeprefix(f"{prefix}."): array for n, array in arrays.items() if n.startswith(f"{prefix}.")}
