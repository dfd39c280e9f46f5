"""Figure 4: six neurons with frozen and with trained gates, and the contribution of each trained neuron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gatelab.data import problem
from gatelab.feedforward import Network
from gatelab.plotting.theme import GRAY, NEURON_COLORS, look, style
from gatelab.solve import construct, fit
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.scaling.error_curves import paper_target
from gatelab.studies.scaling.random_networks import contributions, degree_claim, neuron_misfits, neuron_rows, output

NEURONS = 6
SOLVERS = {"frozen": "frozen", "trained": "knots"}  # how gates are treated, and by which solver
PANELS = {"mlp": "abc", "glu": "def"}
SHOWN = ("frozen gates", "trained gates", "trained neurons")
DEGREE = {"mlp": 1, "glu": 2}
X = np.linspace(-1.0, 1.0, 801)[:, None]


def figure(tables: Tables) -> Figure:
    """A row for each unit: its frozen fit, its trained fit, and the neurons of the latter; knots are dashed."""
    with style():
        drawn = Figure(figsize=(10.2, 5.8), layout="constrained")
        for row, (unit, letters) in zip(drawn.subplots(2, 3, sharex=True), PANELS.items(), strict=True):
            for axes, letter, words in zip(row, letters, SHOWN, strict=True):
                gates = words.split()[0]
                neurons, fitted = (_of(tables[name], unit, gates) for name in ("neurons", "fits"))
                for knot in neurons.loc[neurons["knot"].abs() <= 1, "knot"]:
                    axes.axvline(knot, color=GRAY, linestyle="--", linewidth=0.7)
                _draw(axes, unit, neurons, whole=letter != letters[-1])
                error = fitted["test_rmse"].iloc[0]
                axes.set(title=f"({letter}) {unit.upper()}, {words}: RMSE {error:.1e}")
        for axes in drawn.axes[-3:]:
            axes.set(xlabel="x")
        handles = {line.get_label(): line for axes in drawn.axes for line in axes.get_legend_handles_labels()[0]}
        drawn.legend(handles=list(handles.values()), loc="outside lower center", ncols=3)
        drawn.suptitle(f"Figure 4: {NEURONS} neurons on 1/(1+cos²πx)")
    return drawn


def _draw(axes: Axes, unit: str, neurons: Table, *, whole: bool) -> None:
    """The network on its target, or the contribution of each neuron."""
    target: Any = problem("paper-1d").f
    if whole:
        axes.plot(X, target(X), color="#bbbbbb", linewidth=3.2, label="target")
        axes.plot(X, output(neurons, X), color=look(unit).color, label=unit.upper())
        axes.set(ylabel="y")
    else:
        for part, color in zip(contributions(neurons, X).T, NEURON_COLORS, strict=False):
            axes.plot(X, part, color=color)
        axes.set(ylabel="contribution of a neuron")


STUDY = Study(
    "scaling/fig4",
    "Six neurons, frozen and trained",
    "With frozen, evenly spaced gates both units follow the target; training the gates as well lowers the error.",
    position=4,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """Both units with frozen and with trained gates and by the construction: their errors, and their neurons."""
    target = paper_target(request)
    assert target.f is not None
    fits, neurons = [], []
    for unit in PANELS:
        for gates, solver in SOLVERS.items():
            fitted = fit(unit, target, NEURONS, solver=solver)
            assert isinstance(fitted.network, Network)
            fits.append(fitted.as_row() | {"gates": gates, **_at_knots(fitted.network, target.f)})
            neurons += [
                {"unit": unit, "gates": gates, "neuron": i, **row}
                for i, row in enumerate(neuron_rows(fitted.network), start=1)
            ]
        built = construct(unit, target, NEURONS).network
        fits.append({"unit": unit, "gates": "constructed", "width": NEURONS, **_at_knots(built, target.f)})
    columns = ["unit", "gates", "width", "train_rmse", "test_rmse", "knots_inside", "off_at_knots"]
    parameters = pd.DataFrame(neurons)
    return {
        "fits": pd.DataFrame(fits, columns=[*columns, "status", "steps", "seconds"]),
        "neurons": parameters.assign(knot=-parameters["g"] / parameters["G1"]),
    }


def _at_knots(network: Any, f: Any) -> dict[str, Any]:
    """The knots in [-1, 1], and how far the network is from the target there."""
    knots = np.sort(network.knots().numpy())
    knots = knots[np.abs(knots) <= 1]
    with torch.no_grad():
        off = network(torch.from_numpy(knots[:, None]))[:, 0].numpy() - f(knots)
    return {"knots_inside": " ".join(f"{knot:.4f}" for knot in knots), "off_at_knots": float(np.abs(off).max())}


def _of(table: Table, unit: str, gates: str) -> Table:
    return table[(table["unit"] == unit) & (table["gates"] == gates)]


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """What training the gates gains, where the construction meets the target, and what each neuron is."""
    for unit, letters in PANELS.items():
        frozen, trained, built = (_of(tables["fits"], unit, g).iloc[0] for g in (*SOLVERS, "constructed"))
        yield Claim(
            f"error of the {unit} with frozen gates over that with trained gates",
            frozen["test_rmse"] / trained["test_rmse"],
            paper=1.0,
            rule="above",
            place=f"figure 4, ({letters[0]}) and ({letters[1]})",
            support={"frozen": frozen["test_rmse"], "trained": trained["test_rmse"]},
        )
        off = {"constructed": built["off_at_knots"], "fitted": frozen["off_at_knots"]}
        yield Claim(
            f"the {unit} at its knots, gates frozen",
            float(off["constructed"] < 1e-9 < 1e-3 < off["fitted"]),
            paper="on the target if constructed, not if fitted",
            rule="holds",
            place=f"appendix B, {unit.upper()} at its knots",
            support={f"largest distance at a knot, {way}": distance for way, distance in off.items()},
            note="Least squares spreads the error over the cell.",
        )
        exact, lower = neuron_misfits(_of(tables["neurons"], unit, "trained"), X, DEGREE[unit])
        what = f"neurons of the trained {unit}, panel ({letters[2]})"
        yield degree_claim(what, DEGREE[unit], exact, lower, place=f"figure 4, ({letters[2]})")
