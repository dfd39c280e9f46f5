"""Models that gatelab saved, as commands use them: which columns they want, what they predict, the network inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from gatelab.problems.formats import Columns

    Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """A network, what it is called, the names of its inputs and targets where known, and the ways in and out.

    `scaled` maps raw rows to those that the network takes, `predict` raw rows (N, d_in) to raw targets (N, d_out).
    """

    network: nn.Module
    name: str
    d_in: int
    d_out: int
    columns: tuple[str, ...]
    targets: tuple[str, ...]
    scaled: Callable[[Array], Array]
    predict: Callable[[Array], Array]


def read_model(path: Path) -> Model:
    """The model in a file."""
    from gatelab.saved import load
    from gatelab.solve import Fit, predict

    saved = load(path)
    if isinstance(saved, Fit):
        return Model(
            network=saved.network,
            name=f"{saved.unit} of width {saved.width}",
            d_in=saved.d_in,
            d_out=len(saved.network.state_dict()["d"]),
            columns=saved.columns,
            targets=saved.targets,
            scaled=saved.scaled,
            predict=saved.predict,
        )
    from gatelab.estimators import GatedRegressor

    if not isinstance(saved, GatedRegressor):
        raise GatelabError(f"{path} holds a {type(saved).__name__}, no network; give a file of gatelab fit --save")
    network, frame = saved.network_, saved.frame_
    return Model(
        network=network,
        name=f"{saved.unit_} of width {saved.width_}",
        d_in=saved.n_features_in_,
        d_out=len(frame.y_mean),
        columns=tuple(getattr(saved, "feature_names_in_", ())),
        targets=(),
        scaled=frame.inputs,
        predict=lambda rows: frame.outputs(predict(network, frame.inputs(rows))),
    )


def columns_by_name(source: Columns, path: Path, names: Sequence[str]) -> list[int] | None:
    """Where a file has the inputs of a model; None where either has no names and order must do."""
    if not names or not source.names:
        return None
    missing = [name for name in names if name not in source.names]
    if missing:
        raise GatelabError(
            f"{path} has no column {', '.join(map(repr, missing))}, which the model was fitted with; it has "
            f"{', '.join(map(repr, source.names))}: rename them, or say with --inputs which are which"
        )
    if double := [name for name in names if source.names.count(name) > 1]:
        raise GatelabError(f"{path} has several columns called {double[0]!r}; give the columns by number with --inputs")
    return [source.names.index(name) for name in names]


def check_inputs(path: Path, model: Model, inputs: int) -> None:
    """Refuse rows that the model cannot take."""
    if inputs != model.d_in:
        raise GatelabError(
            f"the network in {path} has {model.d_in} inputs and the data have {inputs}; choose columns with --inputs"
        )
