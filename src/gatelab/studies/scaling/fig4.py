"""Figure 4: six neurons with frozen and with trained gates, and what each trained neuron contributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from gatelab.data import Problem
from gatelab.feedforward import Network
from gatelab.plotting import GREY, NEURON_COLOURS, look, new_figure, style
from gatelab.solve import Fit, construct, fit
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.scaling.errors import paper_target, ticker
from gatelab.studies.scaling.random_networks import line_claim

NEURONS = 6
UNITS = ("mlp", "glu")
WAYS = {"frozen": "frozen gates", "knots": "fully trained"}


def run(request: Request) -> Outcome:
    target = paper_target(request)
    tick = ticker(request, len(UNITS) * len(WAYS))
    fits: dict[tuple[str, str], Fit] = {}
    for name in UNITS:
        for way in WAYS:
            fits[name, way] = fit(name, target, NEURONS, solver=way)
            tick()
    assert target.f is not None and target.interval is not None
    x = np.linspace(*target.interval, 801)
    letters = iter("abcdef")
    with style():
        figure = new_figure(10.2, 5.6)
        panels = figure.subplots(2, 3, sharex=True)
        for row, name in zip(panels, UNITS, strict=True):
            for panel, (way, words) in zip(row, WAYS.items(), strict=False):
                found = fits[name, way]
                _draw_fit(panel, x, target.f(x), found)
                panel.set_title(f"({next(letters)}) {name.upper()}, {words}: RMSE {found.test_rmse:.1e}")
            _draw_neurons(row[2], x, fits[name, "knots"])
            found = fits[name, "knots"]
            panel_title = f"({next(letters)}) {name.upper()}, trained neurons: RMSE {found.test_rmse:.1e}"
            row[2].set_title(panel_title)
        for panel in panels[-1]:
            panel.set_xlabel("x")
        shown = {h.get_label(): h for panel in panels[:, 0] for h in panel.get_legend_handles_labels()[0]}
        figure.legend(handles=list(shown.values()), loc="outside lower center", ncols=len(shown))
        figure.suptitle(f"Figure 4: {NEURONS} neurons on 1/(1+cos²πx)")
    claims = [
        claim
        for name in UNITS
        for claim in (
            trained_claim(name, fits),
            knots_claim(name, fits[name, "frozen"], target),
            _neurons(name, x, fits),
        )
    ]
    return Outcome(figure, {"fits": _table(fits)}, tuple(claims), _notes(fits))


def _inside(found: Fit, reach: float = 1.0) -> np.ndarray:
    assert isinstance(found.network, Network)
    knots = found.network.knots().numpy()
    return np.sort(knots[np.abs(knots) <= reach])


def _draw_fit(panel: Axes, x: np.ndarray, y: np.ndarray, found: Fit) -> None:
    for i, knot in enumerate(_inside(found)):
        panel.axvline(knot, color=GREY, linestyle="--", linewidth=0.7, label="knot" if not i else None)
    panel.plot(x, y, color="#bbbbbb", linewidth=3.2, label="target")
    panel.plot(x, found.predict(x), color=look(found.unit).colour, linewidth=1.2, label=found.unit.upper())
    panel.set_ylabel("y")


def _contributions(found: Fit, x: np.ndarray) -> np.ndarray:
    """D_i times neuron i, (N, neurons)."""
    assert isinstance(found.network, Network)
    with torch.no_grad():
        return (found.network.neurons(torch.from_numpy(x[:, None])) * found.network.D[0]).numpy()


def _draw_neurons(panel: Axes, x: np.ndarray, found: Fit) -> None:
    parts = _contributions(found, x)
    for knot in _inside(found):
        panel.axvline(knot, color=GREY, linestyle="--", linewidth=0.7)
    for i, part in enumerate(parts.T):
        panel.plot(x, part, color=NEURON_COLOURS[i], linewidth=1.1)
    panel.set_ylabel("contribution of a neuron")


def _table(fits: Mapping[tuple[str, str], Fit]) -> pd.DataFrame:
    rows = []
    for (_, way), found in fits.items():
        row = found.as_row()
        row["gates"] = "frozen" if way == "frozen" else "trained"
        row["knots_inside"] = " ".join(f"{k:.4f}" for k in _inside(found))
        rows.append(row)
    columns = ["unit", "gates", "width", "train_rmse", "test_rmse", "knots_inside", "status", "steps", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def trained_claim(name: str, fits: Mapping[tuple[str, str], Fit]) -> Claim:
    frozen, trained = fits[name, "frozen"].test_rmse, fits[name, "knots"].test_rmse
    return Claim(
        f"training the gates of the {name}",
        "frozen gates do not reach the lowest error",
        f"{frozen:.1e} frozen, {trained:.1e} trained",
        "reproduced" if trained < frozen else "differs",
        f"Moving the knots divides the error by {frozen / trained:.1f}.",
    )


def knots_claim(name: str, frozen: Fit, target: Problem) -> Claim:
    """Appendix B: the construction meets the target at its knots, a least-squares fit with the same knots does not."""
    assert target.f is not None
    built = construct(name, target, NEURONS).network
    off = []
    for network in (built, frozen.network):
        assert isinstance(network, Network)
        knots = np.sort(network.knots().numpy())
        knots = knots[np.abs(knots) <= 1.0]
        with torch.no_grad():
            values = network(torch.from_numpy(knots[:, None]))[:, 0].numpy()
        off.append(float(np.abs(values - np.asarray(target.f(knots))).max()))
    return Claim(
        f"the {name} at its knots, gates frozen",
        "on the target if constructed, not if fitted",
        f"off by {off[0]:.0e} constructed, by up to {off[1]:.1e} fitted",
        "reproduced" if off[0] < 1e-9 < 1e-3 < off[1] else "differs",
        f"Least squares spreads the error over the cell: the fitted one has RMSE {frozen.test_rmse:.1e}.",
    )


def _neurons(name: str, x: np.ndarray, fits: Mapping[tuple[str, str], Fit]) -> Claim:
    found = fits[name, "knots"]
    assert isinstance(found.network, Network)
    letter, degree = {"mlp": ("c", 1), "glu": ("f", 2)}[name]
    what = f"neurons of the trained {name}, panel ({letter})"
    return line_claim(what, x, _contributions(found, x), found.network.knots().numpy(), degree)


def _notes(fits: Mapping[tuple[str, str], Fit]) -> tuple[str, ...]:
    gain = fits["mlp", "knots"].test_rmse / fits["glu", "knots"].test_rmse
    return (
        "Dashed lines are knots, where Gx + g = 0; errors are on test points.",
        "Panels (c) and (f) show D_i times the neuron, so that the curves add up to the network less its bias d.",
        f"Trained, the GLU's error is {gain:.1f} times less than the MLP's with equal neurons.",
    )


STUDY = Study(
    "scaling/fig4",
    "Six neurons, frozen and trained",
    "With frozen, evenly spaced gates both units follow the target; training the gates as well lowers the error.",
    run,
    position=4,
)
