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

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lstsq

from gatelab import tensors
from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError
from gatelab.estimators.columns import TableColumn, TableColumns
from gatelab.feedforward import Network, Unit
from gatelab.linalg.interruptible import apart
from gatelab.solve import Status
from gatelab.solve.features import ProductModel
from gatelab.solve.files import DAMAGED, damaged, described, restored_network, restored_unit

if TYPE_CHECKING:
    from gatelab.estimators.regressor import GatedRegressor

KIND, _FORMAT = "GatedRegressor", 3
# The format of files that know of no columns but numbers, which are read as well.
_PLAIN_FORMAT = 2
_GIVE = "give a file that GatedRegressor.save wrote"
_PLAIN = ("unit_", "width_", "ridge_", "gates_", "n_iter_", "validation_", "n_features_in_", "_vector")
# Columns that vary by less than this beside their size are constant, directions that vary less beside others are none.
_CONSTANT, _FLAT = 1e-14, 1e-10
# The linear problem of drawn gates is solved to this rank.
_RANK = 1e-15


@dataclass(frozen=True, eq=False)
class TableRows:
    """Distinct rows with weights of mean one."""

    x: Array
    y: Array
    weight: Array

    def __repr__(self) -> str:
        return one_line(
            self, f"{len(self)} rows, {counted(self.x.shape[1], 'input')}, {counted(self.y.shape[1], 'output')}"
        )

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
    # The greatest weight is one before anything is added up: huge weights have no sum.
    total = np.bincount(first.ravel(), weight[weighty] / weight.max())
    return TableRows(rows[:, : x.shape[1]], rows[:, x.shape[1] :], total / total.mean())


@dataclass(frozen=True, eq=False)
class Frame:
    """x -> (x / x_unit - x_mean) x_map, and z -> y_unit (y_mean + y_scale z) with z held between z_low and z_high.

    The units are powers of two near the greatest values, so that no square overflows and nothing is rounded.
    """

    x_unit: Array
    x_mean: Array
    x_map: Array
    y_unit: Array
    y_mean: Array
    y_scale: Array
    z_low: Array
    z_high: Array

    def __repr__(self) -> str:
        return one_line(self, f"{counted(self.directions, 'direction')} to {counted(len(self.y_mean), 'output')}")

    @classmethod
    def of(cls, rows: TableRows) -> Frame:
        """The frame in which these rows have mean zero and unit variance."""
        x_unit, x_mean, x_scale = _spread(rows.x, rows.weight)
        y_unit, y_mean, y_scale = _spread(rows.y, rows.weight)
        varies = np.flatnonzero(x_scale)
        x_map = np.zeros((len(x_scale), len(varies)))
        x_map[varies, np.arange(len(varies))] = 1 / x_scale[varies]
        if len(varies):
            z = (rows.x / x_unit - x_mean) @ x_map
            _, s, v = np.linalg.svd(z * np.sqrt(rows.weight)[:, None], full_matrices=False)
            spanned = s > _FLAT * s[0]
            # Collinear inputs, or more of them than rows: the directions that they span are enough, and fewer.
            if spanned.sum() < len(varies):
                x_map = x_map @ v[spanned].T
        z = (rows.y / y_unit - y_mean) / np.where(y_scale > 0, y_scale, 1.0)
        z_low, z_high = reach(z)
        return cls(
            x_unit=x_unit,
            x_mean=x_mean,
            x_map=x_map,
            y_unit=y_unit,
            y_mean=y_mean,
            y_scale=y_scale,
            z_low=z_low,
            z_high=z_high,
        )

    @property
    def directions(self) -> int:
        """How many dimensions the network's input has."""
        return self.x_map.shape[1]

    def inputs(self, x: Array) -> Array:
        """Raw inputs as the network takes them."""
        # Far outside the data a network may overflow; where its value is then undefined, the prediction is NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            return (x / self.x_unit - self.x_mean) @ self.x_map

    def targets(self, y: Array) -> Array:
        """Raw targets as the network is fitted to them."""
        return (y / self.y_unit - self.y_mean) / np.where(self.y_scale > 0, self.y_scale, 1.0)

    def outputs(self, z: Array) -> Array:
        """The network's values as raw predictions."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.y_unit * (self.y_mean + self.y_scale * np.clip(z, self.z_low, self.z_high))

    def standard(self, rows: TableRows) -> TableRows:
        """The rows in this frame."""
        return TableRows(self.inputs(rows.x), self.targets(rows.y), rows.weight)

    def arrays(self) -> dict[str, Array]:
        """Its arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def reach(y: Array) -> tuple[Array, Array]:
    """How far predictions may go: half the range of the targets beyond their extremes.

    A gated network is a polynomial of its inputs outside the data. One row that is far out would otherwise cost more
    than all others together.
    """
    low, high = y.min(axis=0), y.max(axis=0)
    return low - (high - low) / 2, high + (high - low) / 2


def _spread(a: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The unit, the mean in units and the standard deviation in units of every column; zero where it is constant."""
    largest = np.abs(a).max(axis=0)
    # 2^1024 does not exist, and below 2^-1021 its inverse would not.
    exponent = np.clip(np.frexp(largest)[1], -1000, 1023)
    unit = np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)
    scaled = a / unit
    mean = weight @ scaled / weight.sum()
    scale = np.sqrt(weight @ np.square(scaled - mean) / weight.sum())
    return unit, mean, np.where(scale > _CONSTANT * np.abs(scaled).max(axis=0), scale, 0.0)


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


def units_of(unit: Any) -> list[Any]:
    """What a regressor was given as its unit, one or several, as a list."""
    if isinstance(unit, list | tuple):
        return list(unit)
    return [unit]


def write(model: GatedRegressor, path: str | Path) -> Path:
    """Save a fitted model."""
    network = model.network_
    parameters = model.get_params(deep=False)
    several = isinstance(model.unit, list | tuple)
    parameters["unit"] = [described(u) for u in units_of(model.unit)]
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    facts = {
        "format": _FORMAT,
        "several": several,
        "parameters": parameters,
        "network": described(network.unit),
        "status": model.status_.value,
        "attributes": {name: getattr(model, name) for name in _PLAIN},
        "columns": model.columns_.facts(),
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
    }
    arrays = {f"network.{name}": value.numpy() for name, value in network.state_dict().items()}
    arrays |= {f"frame.{name}": value for name, value in model.frame_.arrays().items()}
    return tensors.write_packed(path, tensors.pack(arrays, KIND, facts))


def read(kind: type[GatedRegressor], path: str | Path) -> GatedRegressor:
    """The model that was saved."""
    holds = tensors.kind_of(path, _GIVE)
    if holds == "Fit":
        raise GatelabError(f"{path} holds a Fit, no GatedRegressor; gl.load(path) reads it, and predicts as well")
    if holds != KIND:
        raise GatelabError(f"{path} holds arrays but no GatedRegressor; {_GIVE}")
    content = tensors.read(path, _GIVE)
    facts = content.facts
    if facts.get("format") == _PLAIN_FORMAT:
        facts = with_columns(facts)
    tensors.check_format(path, facts, _FORMAT)
    tensors.check_finite(path, content.arrays, "the file is damaged: save the model again")
    try:
        parameters, attributes = _restored(facts, content.arrays)
        model = kind(**parameters)
    except DAMAGED as error:
        raise damaged(path, error) from error
    vars(model).update(attributes)
    return model


def with_columns(facts: dict[str, Any]) -> dict[str, Any]:
    """What a file of the format before this one says, as this one says it: every column was a number."""
    count = facts.get("attributes", {}).get("n_features_in_", 0)
    columns = TableColumns(tuple(TableColumn(str(i), "number") for i in range(count)))
    return facts | {"format": _FORMAT, "columns": columns.facts()}


def _restored(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters = facts["parameters"]
    units = tuple(u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"])
    parameters["unit"] = units
    if not facts["several"]:
        parameters["unit"] = units[0]
    frame = Frame(**{n.removeprefix("frame."): a for n, a in arrays.items() if n.startswith("frame.")})
    attributes = {name: facts["attributes"][name] for name in _PLAIN}
    state = {n.removeprefix("network."): torch.tensor(a) for n, a in arrays.items() if n.startswith("network.")}
    unit = restored_unit(facts["network"])
    network = restored_network(unit, attributes["width_"], frame.directions, len(frame.y_mean), state)
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
