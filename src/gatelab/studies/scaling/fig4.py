"""Figure 4: six neurons with frozen and with trained gates, and the contribution of each trained neuron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.data import problem
from gatelab.feedforward import Network
from gatelab.plotting.facets import Facets, draw_figure
from gatelab.solve import construct, fit
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Tables
from gatelab.studies.scaling.error_curves import paper_target
from gatelab.studies.scaling.random_networks import contributions, degree_claim, neuron_misfits, neuron_rows, output

NEURONS = 6
SOLVERS = {"frozen": "frozen", "trained": "knots"}  # how gates are treated, and by which solver
PANELS = {"mlp": "abc", "glu": "def"}
SHOWN = ("frozen gates", "trained gates", "trained neurons")
DEGREE = {"mlp": 1, "glu": 2}
X = np.linspace(-1.0, 1.0, 801)[:, None]
CURVES = Facets(
    x="x", y="y", hue="curve", col="panel", wrap=3, smooth=True, marks=("at_knot", "knot"),
    ylabel="y, or contribution of a neuron", title=f"Figure 4: {NEURONS} neurons on 1/(1+cos²πx)",
)  # fmt: skip


def figure(tables: Tables) -> Figure:
    target: Any = problem("paper-1d").f
    parts = []
    for unit, letters in PANELS.items():
        for letter, words in zip(letters, SHOWN, strict=True):
            neurons, fits = (only(tables[name], unit=unit, gates=words.split()[0]) for name in ("neurons", "fits"))
            x = np.union1d(X[::4], neurons.loc[neurons["knot"].abs() <= 1, "knot"])[:, None]
            curves = pd.DataFrame({"x": x[:, 0], "at_knot": np.isin(x[:, 0], neurons["knot"])})
            if letter == letters[-1]:
                names = [f"neuron {i}" for i in neurons["neuron"]]
                curves = curves.assign(**dict(zip(names, contributions(neurons, x).T, strict=True)), at_knot=False)
            else:
                curves = curves.assign(target=target(x[:, 0]), network=output(neurons, x))
            long = curves.melt(["x", "at_knot"], var_name="curve", value_name="y")
            long["at_knot"] &= long["curve"] == "network"
            error = fits["test_rmse"].iloc[0]
            parts.append(long.assign(panel=f"({letter}) {unit.upper()}, {words}: RMSE {error:.1e}"))
    return draw_figure(CURVES, {"curves": pd.concat(parts)})


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
    fits, parts = [], []
    for unit in PANELS:
        for gates, solver in SOLVERS.items():
            fitted = fit(unit, target, NEURONS, solver=solver)
            assert isinstance(fitted.network, Network)
            fits.append(fitted.as_row() | {"gates": gates, **_at_knots(fitted.network, target.f)})
            names = {"unit": unit, "gates": gates, "neuron": range(1, NEURONS + 1)}
            parts.append(pd.DataFrame(names).join(pd.DataFrame(neuron_rows(fitted.network))))
        built = construct(unit, target, NEURONS).network
        fits.append({"unit": unit, "gates": "constructed", "width": NEURONS, **_at_knots(built, target.f)})
    columns = ["unit", "gates", "width", "train_rmse", "test_rmse", "knots_inside", "off_at_knots"]
    neurons = pd.concat(parts, ignore_index=True)
    return {
        "fits": pd.DataFrame(fits, columns=[*columns, "status", "steps", "seconds"]),
        "neurons": neurons.assign(knot=-neurons["g"] / neurons["G1"]),
    }


def _at_knots(network: Any, f: Any) -> dict[str, Any]:
    """The knots in [-1, 1], and the largest distance of the network from the target there."""
    knots = np.sort(network.knots().numpy())
    knots = knots[np.abs(knots) <= 1]
    with torch.no_grad():
        off = network(torch.from_numpy(knots[:, None]))[:, 0].numpy() - f(knots)
    return {"knots_inside": " ".join(f"{knot:.4f}" for knot in knots), "off_at_knots": float(np.abs(off).max())}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for unit, letters in PANELS.items():
        frozen, trained, built = (only(tables["fits"], unit=unit, gates=g).iloc[0] for g in (*SOLVERS, "constructed"))
        support = {"frozen": frozen["test_rmse"], "trained": trained["test_rmse"]}
        yield Claim(
            f"error of the {unit} with frozen gates over that with trained gates",
            support["frozen"] / support["trained"], paper=1.0, rule="above",
            place=f"figure 4, ({letters[0]}) and ({letters[1]})", support=support,
        )  # fmt: skip
        off = {"constructed": built["off_at_knots"], "fitted": frozen["off_at_knots"]}
        yield Claim(
            f"the {unit} at its knots, gates frozen", float(off["constructed"] < 1e-9 < 1e-3 < off["fitted"]),
            paper="on the target if constructed, not if fitted", rule="holds",
            place=f"appendix B, {unit.upper()} at its knots",
            support={f"largest distance at a knot, {way}": distance for way, distance in off.items()},
            note="Least squares spreads the error over the cell.",
        )  # fmt: skip
        exact, lower = neuron_misfits(only(tables["neurons"], unit=unit, gates="trained"), X, DEGREE[unit])
        what = f"neurons of the trained {unit}, panel ({letters[2]})"
        yield degree_claim(what, DEGREE[unit], exact, lower, place=f"figure 4, ({letters[2]})")
