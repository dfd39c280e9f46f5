"""From a user's arrays to what the solver sees and back, networks with drawn gates, and fitted models as files.

Rows are put in one order and equal rows become one, with the sum of their weights: a weight of two is a row that is
there twice, to the last bit, the order of the rows does not matter, and no row is held out while its twin is trained
on. Inputs are then of mean zero and unit variance in as many directions as they span, targets column by column.

A network whose gates are drawn and not trained is one linear problem, solved to the last digit. Smooth gates that are
nearly lines across the data span, in few dimensions, nearly the polynomials: a smooth target is then reproduced to
eight digits by a wide network that needs no descent. In many dimensions trained gates win by far. The columns are
dependent to all digits, so the problem is solved by QR with pivots and what is below 1e-15 left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lstsq
from sklearn.utils import check_array, check_random_state

from gatelab import tensors
from gatelab.arrays import Array
from gatelab.display import counted, one_line, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.estimators.columns import TableColumn, TableColumns, rows_of, warn_of_levels
from gatelab.estimators.members import Committee
from gatelab.estimators.steps import StepNetwork
from gatelab.feedforward import Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.interrupts import apart
from gatelab.solve import Status
from gatelab.solve.features import ProductModel
from gatelab.solve.files import DAMAGED, damaged, described, restored_network, restored_unit

if TYPE_CHECKING:
    from gatelab.estimators.regressor import GatedRegressor

KIND, _FORMAT = "GatedRegressor", 3
_BEND = ("centre", "spread")
_COMMITTEE = ("parts", "candidate", "weight")
# The format of files that know of no columns but numbers, which are read as well.
_PLAIN_FORMAT = 2
_GIVE = "give a file that GatedRegressor.save wrote"
_PLAIN = ("unit_", "width_", "ridge_", "gates_", "n_iter_", "validation_", "members_", "n_features_in_", "_vector")
# Columns that vary by less than this beside their size are constant, directions that vary less beside others are none.
_CONSTANT, _FLAT = 1e-14, 1e-10
# Tails are heavy where 99 % of a column span more than this many times what its middle half does (of a normal law 4);
# bent targets are held nearer to those seen, by this share of their range; and averaged over so many residuals.
_HEAVY, _BENT_REACH, _SMEARS = 6.0, 0.1, 20
# Parts of the rows that mean targets of levels are taken without.
_FOLDS = 5
# The linear problem of drawn gates is solved to this rank.
_RANK = 1e-15


@dataclass(frozen=True, eq=False)
class TableRows:
    """Distinct rows with weights of mean one."""

    x: Array
    y: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.intp]) -> TableRows:
        """Some of the rows, their weights again of mean one."""
        return TableRows(self.x[index], self.y[index], self.weight[index] / self.weight[index].mean())


def distinct(x: Array, y: Array, weight: Array) -> TableRows:
    """The rows in lexicographic order, each once, those without weight left out.

    >>> rows = distinct(np.array([[3.0], [1.0], [3.0]]), np.array([[4.0], [2.0], [4.0]]), np.ones(3))
    >>> rows.x.tolist(), rows.weight.round(3).tolist()
    ([[1.0], [3.0]], [0.667, 1.333])
    """
    if not weight.max(initial=0.0) > 0:
        raise GatelabError("every sample_weight is zero, so there is no row to fit; give some rows a positive weight")
    weighty = weight > 0
    both = np.concatenate([x, y], axis=1)[weighty] + 0.0  # -0.0 and 0.0 are the same number in different bits
    rows, first = np.unique(both, axis=0, return_inverse=True)
    # By a power of two, which rounds nothing, before anything is added up: huge weights have no sum.
    total = np.bincount(first.ravel(), np.ldexp(weight[weighty], -np.frexp(weight.max())[1]))
    return TableRows(rows[:, : x.shape[1]], rows[:, x.shape[1] :], total / total.mean())


@dataclass(frozen=True, eq=False)
class Bend:
    """a -> asinh((a - centre) / spread) of every column that has a spread: nearly a line within it, a logarithm beyond.

    Columns with heavy tails are bent so that a few far values do not stretch all others into a point.
    """

    centre: Array
    spread: Array

    @classmethod
    def none(cls, columns: int) -> Bend:
        """Every column as it is."""
        return cls(np.zeros(columns), np.zeros(columns))

    @classmethod
    def of(cls, a: Array) -> Bend:
        """Of columns whose tails reach far beyond their quartiles; none of the others.

        >>> x = np.random.default_rng(0).normal(size=(500, 1))
        >>> [bool(Bend.of(a).spread[0]) for a in (x, np.exp(2 * x))]
        [False, True]
        """
        low, first, middle, third, high = np.quantile(a, [0.005, 0.25, 0.5, 0.75, 0.995], axis=0)
        heavy = (high - low > _HEAVY * (third - first)) & (third > first)
        # Of columns without a negative value the small ones are told apart as well.
        positive = (a.min(axis=0) >= 0) & (first > 0)
        spread = np.where(positive, first / 2, (third - first) / 1.35)
        return cls(np.where(heavy & ~positive, middle, 0.0), np.where(heavy, spread, 0.0))

    @property
    def bends(self) -> bool:
        """Whether any column is bent."""
        return bool(self.spread.any())

    def __call__(self, a: Array) -> Array:
        """The columns bent."""
        if not self.bends:
            return a
        bent = self.spread > 0
        return np.where(bent, np.arcsinh((a - self.centre) / np.where(bent, self.spread, 1.0)), a)

    def back(self, a: Array) -> Array:
        """The columns as they were."""
        if not self.bends:
            return a
        bent = self.spread > 0
        return np.where(bent, self.centre + self.spread * np.sinh(np.where(bent, a, 0.0)), a)


@dataclass(frozen=True, eq=False)
class Frame:
    """x -> (x / x_unit - x_mean) x_map, and z -> y_unit (y_mean + y_scale z) with z held between z_low and z_high.

    The units are powers of two near the greatest values, so that no square overflows and nothing is rounded. Where
    `x_bend` or `y_bend` bend a column, that comes right after its unit. A mean of bent targets bent back is no mean of
    targets: so the values are, with each of the residuals `y_smear` in turn added to z.
    """

    x_unit: Array
    x_mean: Array
    x_map: Array
    y_unit: Array
    y_mean: Array
    y_scale: Array
    z_low: Array
    z_high: Array
    x_bend: Bend
    y_bend: Bend
    y_smear: Array

    def __repr__(self) -> str:
        return one_line(self, f"{counted(self.directions, 'direction')} to {counted(len(self.y_mean), 'output')}")

    @classmethod
    def of(cls, rows: TableRows, *, bend_inputs: bool = False, bend_targets: bool = False) -> Frame:
        """The frame in which these rows have mean zero and unit variance, columns with heavy tails bent if asked."""
        x_unit, y_unit = _unit(rows.x), _unit(rows.y)
        x, y = rows.x / x_unit, rows.y / y_unit
        x_bend, y_bend = Bend.none(x.shape[1]), Bend.none(y.shape[1])
        if bend_inputs:
            x_bend = Bend.of(x)
        if bend_targets:
            y_bend = Bend.of(y)
        x, y = x_bend(x), y_bend(y)
        x_mean, x_scale = _moments(x, rows.weight)
        y_mean, y_scale = _moments(y, rows.weight)
        varies = np.flatnonzero(x_scale)
        x_map = np.zeros((len(x_scale), len(varies)))
        x_map[varies, np.arange(len(varies))] = 1 / x_scale[varies]
        if len(varies):
            z = ((x - x_mean) @ x_map) * np.sqrt(rows.weight)[:, None]
            s, v = _singular(z)
            spanned = s > _FLAT * s[0]
            # Collinear inputs, or more of them than rows: the directions that they span are enough, and fewer.
            if spanned.sum() < len(varies):
                x_map = x_map @ v[spanned].T
        z_low, z_high = reach((y - y_mean) / np.where(y_scale > 0, y_scale, 1.0), _BENT_REACH if y_bend.bends else 0.5)
        return cls(
            x_unit=x_unit,
            x_mean=x_mean,
            x_map=x_map,
            y_unit=y_unit,
            y_mean=y_mean,
            y_scale=y_scale,
            z_low=z_low,
            z_high=z_high,
            x_bend=x_bend,
            y_bend=y_bend,
            y_smear=np.zeros((1, y.shape[1])),
        )

    @property
    def directions(self) -> int:
        """How many dimensions the network's input has."""
        return self.x_map.shape[1]

    @property
    def z_range(self) -> tuple[Array, Array]:
        """Between which a network's values are held."""
        return self.z_low, self.z_high

    def inputs(self, x: Array) -> Array:
        """Raw inputs as the network takes them."""
        # Far outside the data a network may overflow; where its value is then undefined, the prediction is NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            return (self.x_bend(x / self.x_unit) - self.x_mean) @ self.x_map

    def targets(self, y: Array) -> Array:
        """Raw targets as the network is fitted to them."""
        return (self.y_bend(y / self.y_unit) - self.y_mean) / np.where(self.y_scale > 0, self.y_scale, 1.0)

    def outputs(self, z: Array) -> Array:
        """The network's values as raw predictions."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.y_mean + self.y_scale * np.clip(z, self.z_low, self.z_high)
            if not self.y_bend.bends:
                return self.y_unit * values
            smeared = [self.y_bend.back(values + self.y_scale * residual) for residual in self.y_smear]
            return self.y_unit * np.mean(smeared, axis=0)

    def deviations(self, z: Array, deviation: Array) -> Array:
        """What a deviation of the network's values is in raw predictions: half of what two of them span."""
        if not self.y_bend.bends:
            return self.y_unit * self.y_scale * deviation
        low, high = (self.y_mean + self.y_scale * (z + sign * deviation) for sign in (-1, 1))
        with np.errstate(over="ignore", invalid="ignore"):
            return self.y_unit * (self.y_bend.back(high) - self.y_bend.back(low)) / 2

    def smeared(self, residual: Array) -> Frame:
        """The frame with the residuals (rows, outputs) that predictions of bent targets are averaged over."""
        return replace(self, y_smear=np.quantile(residual, (np.arange(_SMEARS) + 0.5) / _SMEARS, axis=0))

    def standard(self, rows: TableRows) -> TableRows:
        """The rows in this frame."""
        return TableRows(self.inputs(rows.x), self.targets(rows.y), rows.weight)

    def arrays(self) -> dict[str, Array]:
        """Its arrays by name."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.endswith("_bend")}
        bends = {"x_bend": self.x_bend, "y_bend": self.y_bend}
        return plain | {f"{name}.{part}": getattr(bend, part) for name, bend in bends.items() for part in _BEND}

    @classmethod
    def restored(cls, arrays: dict[str, Array]) -> Frame:
        """From arrays, as `arrays` gives them."""
        plain: dict[str, Any] = {name: array for name, array in arrays.items() if "_bend." not in name}
        for name in ("x_bend", "y_bend"):
            plain[name] = Bend(**{part: arrays[f"{name}.{part}"] for part in _BEND})
        return cls(**plain)


def reach(y: Array, beyond: float = 0.5) -> tuple[Array, Array]:
    """How far predictions may go: half the range of the targets beyond their extremes.

    A gated network is a polynomial of its inputs outside the data. One row that is far out would otherwise cost more
    than all others together.
    """
    low, high = y.min(axis=0), y.max(axis=0)
    return low - (high - low) * beyond, high + (high - low) * beyond


def _unit(a: Array) -> Array:
    """A power of two near the greatest value of every column."""
    largest = np.abs(a).max(axis=0)
    # 2^1024 does not exist, and below 2^-1021 its inverse would not.
    exponent = np.clip(np.frexp(largest)[1], -1000, 1023)
    return np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)


def _moments(a: Array, weight: Array) -> tuple[Array, Array]:
    """The mean and the standard deviation of every column; zero where it is constant."""
    mean = weight @ a / weight.sum()
    scale = np.sqrt(weight @ np.square(a - mean) / weight.sum())
    return mean, np.where(scale > _CONSTANT * np.abs(a).max(axis=0), scale, 0.0)


def _singular(z: Array) -> tuple[Array, Array]:
    """Singular values and right vectors; of many rows by a factor that is as tall as it is wide."""
    if len(z) > 4 * z.shape[1]:
        z = np.asarray(np.linalg.qr(z, mode="r"))
    _, s, v = np.linalg.svd(z, full_matrices=False)
    return s, v


def neuron_columns(unit: Unit, rows: TableRows) -> int:
    """How many columns of the linear problem a neuron brings; zero where gates have no gentle form."""
    model = _model(unit, rows, 1)
    if model.homogeneous[0]:
        return 0
    if model.lines:
        return model.x.shape[1]
    return 1


def drawn(unit: Unit, rows: TableRows, width: int, steepness: float, seed: int) -> Network:
    """A network of gates with slopes up to `steepness`, each centred at a row, fitted to rows of unit variance.

    >>> from gatelab.feedforward import unit
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> y = np.sin(2 * x[:, :1] * x[:, 1:])
    >>> net = drawn(unit("geglu"), TableRows(x, y, np.ones(500)), 64, 2.0, seed=0)
    >>> bool(np.abs(net(torch.tensor(x)).detach().numpy() - y).max() < 1e-6)
    True
    """
    model = _model(unit, rows, width)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(model.maps, width, model.x.shape[1], generator=generator, dtype=torch.float64)
    gate = theta[0]
    slope = 0.5 * steepness * (1 + torch.rand(width, 1, generator=generator, dtype=torch.float64))
    gate[:, :-1] *= slope / gate[:, :-1].norm(dim=-1, keepdim=True)
    through = model.x[torch.randint(len(rows), (width,), generator=generator), :-1]
    gate[:, -1] = -(gate[:, :-1] * through).sum(-1)
    theta = model.normalised(theta[None])
    F = model.columns(theta)[0].numpy()
    length = np.linalg.norm(F, axis=0)
    length[length == 0] = 1.0
    weighted = rows.y * np.sqrt(rows.weight)[:, None]
    solved: Any = apart(lstsq, F / length, weighted, cond=_RANK, lapack_driver="gelsy", check_finite=False)
    c = solved[0]
    return model.network(theta, torch.tensor(c / length[:, None])[None], 0, width)


def _model(unit: Unit, rows: TableRows, width: int) -> ProductModel:
    x = torch.tensor(np.concatenate([rows.x, np.ones((len(rows), 1))], axis=1))
    present = torch.ones(1, width, dtype=torch.bool)
    root = torch.tensor(np.sqrt(rows.weight))[None]
    return ProductModel(unit, x, torch.tensor(rows.y), present, torch.zeros(1, dtype=torch.float64), root)


@dataclass(frozen=True)
class NetworkTerms:
    """Units, width and ridge that an estimator was given, each of which can be used; None is to be chosen."""

    units: list[Unit]
    width: int | None
    ridge: float | None


def checked_terms(model: Any, unit: Any) -> NetworkTerms:
    """What an estimator's parameters and its unit or units say of its networks, if all of them can be used."""
    name, units = type(model).__name__, []
    for one in map(as_unit, units_of(unit)):
        if not isinstance(one, Unit):
            raise GatelabError(
                f"{one.name!r} is a class; {name} takes product units and functions, gl.fit takes classes"
            )
        units.append(one)
    if not units:
        raise GatelabError("unit is empty; give one or more units, for example ('glu', 'swiglu')")
    width, ridge, budget = model.width, model.ridge, model.time_budget
    if ridge is not None and not (isinstance(ridge, Real) and 0 <= float(ridge) < np.inf):
        raise GatelabError(f"ridge is {ridge!r}; give a finite number, 0 or more, or None to have it chosen")
    if budget is not None and not (isinstance(budget, Real) and 0 < float(budget) < np.inf):
        raise GatelabError(f"time_budget is {budget!r}; give seconds, more than 0, or None for no limit")
    whole_number("members", model.members, 1)
    if width is not None:
        width = check_width(width)
    if ridge is not None:
        ridge = float(ridge)
    return NetworkTerms(units, width, ridge)


def encoded_rows(model: Any, table: Any, y: Array, weight: Array, seed: int) -> tuple[TableColumns, TableRows]:
    """How the columns of a table become numbers, and its distinct rows as numbers, those without weight left out."""
    weighty = np.flatnonzero(weight)
    if 0 < len(weighty) < len(weight):
        table, y, weight = rows_of(table, weighty), y[weighty], weight[weighty]
    columns = TableColumns.of(table, y, weight)
    names = getattr(model, "feature_names_in_", [column.name for column in columns.columns])
    columns = TableColumns(tuple(replace(c, name=name) for c, name in zip(columns.columns, names, strict=True)))
    warn_of_levels(columns)
    if not columns.averaged:
        return columns, distinct(columns.encode(table), y, weight)
    fold = columns.fold(table, y, weight, _FOLDS, seed)
    return columns, distinct(columns.training(table, y, weight, fold), y, weight)


@contextmanager
def showing(verbose: int, title: str, usual: int) -> Iterator[Callable[[Any], None]]:
    """What shows each candidate of a search that tries `usual` of them as a rule."""
    tried = 0
    with reporting(bool(verbose) or None, title) as report:

        def show(candidate: Any) -> None:
            nonlocal tried
            tried += 1
            if report is not None:
                report(tried, max(usual, tried + 1))
            if verbose:
                row = {n: f"{v:.3g}" if isinstance(v, float) else v for n, v in candidate.row().items()}
                print("  ".join(f"{name} {value}" for name, value in row.items()))

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


def units_of(unit: Any) -> list[Any]:
    """What a regressor was given as its unit, one or several, as a list."""
    if isinstance(unit, list | tuple):
        return list(unit)
    return [unit]


def plain_facts(model: Any, attributes: Sequence[str]) -> dict[str, Any]:
    """What both estimators write of themselves: parameters, some attributes, and the columns."""
    parameters = model.get_params(deep=False)
    # Names stay names: what a classifier calls steps is no unit.
    parameters["unit"] = [u if u == "steps" else described(u) for u in units_of(model.unit) if u is not None]
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    return {
        "several": isinstance(model.unit, list | tuple),
        "parameters": parameters,
        "attributes": {name: getattr(model, name) for name in attributes},
        "columns": model.columns_.facts(),
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
    }


def write(model: GatedRegressor, path: str | Path) -> Path:
    """Save a fitted model."""
    network = model.network_
    facts = plain_facts(model, _PLAIN) | {
        "format": _FORMAT,
        "network": described(network.unit),
        "status": model.status_.value,
    }
    arrays = {f"network.{name}": value.numpy() for name, value in network.state_dict().items()}
    arrays |= {f"frame.{name}": value for name, value in model.frame_.arrays().items()}
    committee = model.committee_
    facts["networks"] = [{"unit": described(n.unit), "width": n.width} for n in committee.networks]
    facts["steps"] = len(committee.steps)
    arrays |= {f"committee.{name}": getattr(committee, name) for name in _COMMITTEE}
    for i, member in enumerate(committee.networks):
        arrays |= {f"networks.{i}.{name}": value.numpy() for name, value in member.state_dict().items()}
    for i, member in enumerate(committee.steps):
        arrays |= {f"steps.{i}.{name}": value for name, value in member.arrays().items()}
    if model.deviation_ is not None:
        arrays["deviation"] = model.deviation_
    return tensors.write_packed(path, tensors.pack(arrays, KIND, facts))


def read(kind: type[GatedRegressor], path: str | Path) -> GatedRegressor:
    """The model that was saved."""
    holds = tensors.kind_of(path, _GIVE)
    if holds == "Fit":
        raise GatelabError(f"{path} holds a Fit, no GatedRegressor; gl.load(path) reads it, and predicts as well")
    if holds != KIND:
        raise GatelabError(f"{path} holds arrays but no GatedRegressor; {_GIVE}")
    content = tensors.read(path, _GIVE)
    facts, arrays = content.facts, dict(content.arrays)
    if facts.get("format") == _PLAIN_FORMAT:
        facts = with_columns(facts)
        single = Committee.of([[(None, None)]], [1.0])
        arrays |= {f"committee.{name}": getattr(single, name) for name in _COMMITTEE}
        arrays |= {f"networks.0.{name}": array for name, array in part_of("network.", arrays).items()}
        arrays["committee.parts"] = np.array([[0, -1]])
        bends = {"x_bend": len(arrays["frame.x_unit"]), "y_bend": len(arrays["frame.y_unit"])}
        arrays |= {f"frame.{name}.{part}": np.zeros(count) for name, count in bends.items() for part in _BEND}
        arrays["frame.y_smear"] = np.zeros((1, bends["y_bend"]))
    tensors.check_format(path, facts, _FORMAT)
    tensors.check_finite(path, content.arrays, "the file is damaged: save the model again")
    try:
        parameters, attributes = _restored(facts, arrays)
        model = kind(**parameters)
    except DAMAGED as error:
        raise damaged(path, error) from error
    vars(model).update(attributes)
    return model


def with_columns(facts: dict[str, Any]) -> dict[str, Any]:
    """What a file of the format before this one says, as this one says it: columns were numbers, networks one."""
    attributes = facts.get("attributes", {})
    columns = TableColumns(tuple(TableColumn(str(i), "number") for i in range(attributes.get("n_features_in_", 0))))
    networks = [{"unit": facts.get("network"), "width": attributes.get("width_")}]
    member = {name: attributes.get(f"{name}_") for name in ("unit", "width", "ridge", "gates")}
    return facts | {
        "format": _FORMAT,
        "columns": columns.facts(),
        "networks": networks,
        "steps": 0,
        "attributes": attributes | {"members_": [member | {"weight": 1.0}]},
    }


def part_of(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays whose names begin so, by what follows."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _network(unit: Any, width: int, sizes: tuple[int, int], arrays: dict[str, Any]) -> Network:
    state = {name: torch.tensor(array) for name, array in arrays.items()}
    return restored_network(restored_unit(unit), width, *sizes, state)


def _restored(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters = facts["parameters"]
    units = tuple(u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"])
    parameters["unit"] = units
    if not facts["several"]:
        parameters["unit"] = units[0] if units else None
    frame = Frame.restored(part_of("frame.", arrays))
    attributes = {name: facts["attributes"][name] for name in _PLAIN}
    sizes = frame.directions, len(frame.y_mean)
    network = _network(facts["network"], attributes["width_"], sizes, part_of("network.", arrays))
    committee = Committee(
        tuple(
            _network(fact["unit"], fact["width"], sizes, part_of(f"networks.{i}.", arrays))
            for i, fact in enumerate(facts["networks"])
        ),
        tuple(StepNetwork(**part_of(f"steps.{i}.", arrays)) for i in range(facts["steps"])),
        **part_of("committee.", arrays),
    )
    attributes |= {"committee_": committee, "deviation_": arrays.get("deviation")}
    columns = TableColumns.restored(facts["columns"])
    if frame.x_map.shape[0] != columns.width or len(columns.columns) != attributes["n_features_in_"]:
        raise ValueError(
            f"{frame.x_map.shape[0]} inputs are scaled, of {columns.width} numbers and {attributes['n_features_in_']} "
            "declared columns"
        )
    attributes |= {"network_": network, "frame_": frame, "columns_": columns, "status_": Status(facts["status"])}
    if facts["feature_names"]:
        attributes["feature_names_in_"] = np.array(facts["feature_names"], dtype=object)
    return parameters, attributes
