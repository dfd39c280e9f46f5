"""Figure 4: six neurons with frozen and with trained gates, and what each trained neuron contributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.feedforward import Network
from gatelab.plotting import GREY, NEURON_COLOURS, Panel, Pen, figure_legend, look, new_figure, style
from gatelab.solve import Fit, construct, fit
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.scaling.error_curves import paper_target
from gatelab.studies.scaling.random_networks import line_claim
from gatelab.studies.verdicts import reproduced_if

NEURONS = 6
UNITS = ("mlp", "glu")
WAYS = {"frozen": "frozen gates", "knots": "fully trained"}
PANELS = {"mlp": "abc", "glu": "def"}  # frozen, trained, the trained neurons
Fits = Mapping[tuple[str, str], Fit]


def run(request: Request) -> Outcome:
    """Both units with frozen and with trained gates, and the neurons of the trained ones."""
    target = paper_target(request)
    tick = ticker(request, len(UNITS) * len(WAYS))
    fits: dict[tuple[str, str], Fit] = {}
    for name in UNITS:
        for way in WAYS:
            fits[name, way] = fit(name, target, NEURONS, solver=way)
            tick()
    assert target.f is not None and target.interval is not None
    x = np.linspace(*target.interval, 801)
    y = np.asarray(target.f(x), float)
    with style():
        figure = new_figure(10.2, 5.6)
        panels = [list(map(Panel, row)) for row in figure.subplots(2, 3, sharex=True)]
        for row, name in zip(panels, UNITS, strict=True):
            for panel, letter, (way, words) in zip(row, PANELS[name], WAYS.items(), strict=False):
                draw_fit(panel, x, y, fits[name, way])
                panel.set(title=f"({letter}) {name.upper()}, {words}: RMSE {fits[name, way].test_rmse:.1e}")
            trained = fits[name, "knots"]
            draw_neurons(row[2], x, trained)
            row[2].set(title=f"({PANELS[name][2]}) {name.upper()}, trained neurons: RMSE {trained.test_rmse:.1e}")
        for panel in panels[-1]:
            panel.set(xlabel="x")
        entries = {entry.text: entry for row in panels for entry in row[0].labelled()}
        figure_legend(figure, list(entries.values()), ncols=len(entries))
        figure.suptitle(f"Figure 4: {NEURONS} neurons on 1/(1+cos²πx)")
    claims = [
        claim
        for name in UNITS
        for claim in (
            trained_claim(name, fits),
            knots_claim(name, fits[name, "frozen"], target),
            neurons_claim(name, x, fits[name, "knots"]),
        )
    ]
    gain = fits["mlp", "knots"].test_rmse / fits["glu", "knots"].test_rmse
    notes = (
        "Dashed lines are knots, where Gx + g = 0; errors are on test points.",
        "Panels (c) and (f) show D_i times the neuron, so that the curves add up to the network less its bias d.",
        f"Trained, the GLU's error is {gain:.1f} times less than the MLP's with equal neurons.",
    )
    return Outcome(figure, {"fits": fits_table(fits)}, tuple(claims), notes)


def network_of(fitted: Fit) -> Network:
    """The network of a fit, which has knots: all units of this figure do."""
    assert isinstance(fitted.network, Network)
    return fitted.network


def knots_inside(network: Network) -> Array:
    """The knots in [-1, 1], in ascending order."""
    knots = network.knots().numpy()
    return np.sort(knots[np.abs(knots) <= 1.0])


def contributions(fitted: Fit, x: Array) -> Array:
    """D_i times neuron i at each x, (N, neurons)."""
    network = network_of(fitted)
    with torch.no_grad():
        return (network.neurons(torch.from_numpy(x[:, None])) * network.D[0]).numpy()


def draw_fit(panel: Panel, x: Array, y: Array, fitted: Fit) -> None:
    """The target, the network on it and dashed lines at its knots; one of the lines is in the legend."""
    label = "knot"
    for knot in knots_inside(network_of(fitted)):
        panel.rule("x", knot, Pen(GREY, "--", 0.7), label=label)
        label = ""
    panel.line(x, y, Pen("#bbbbbb", width=3.2), label="target")
    panel.line(x, fitted.predict(x), Pen(look(fitted.unit).colour, width=1.2), label=fitted.unit.upper())
    panel.set(ylabel="y")


def draw_neurons(panel: Panel, x: Array, fitted: Fit) -> None:
    """What each neuron contributes, with dashed lines at the knots."""
    parts = contributions(fitted, x)
    for knot in knots_inside(network_of(fitted)):
        panel.rule("x", knot, Pen(GREY, "--", 0.7))
    for i, part in enumerate(parts.T):
        panel.line(x, part, Pen(NEURON_COLOURS[i], width=1.1))
    panel.set(ylabel="contribution of a neuron")


def fits_table(fits: Fits) -> pd.DataFrame:
    """A row a fit, with the knots that lie inside the interval."""
    rows = []
    for (_, way), fitted in fits.items():
        row = fitted.as_row()
        row["gates"] = {"frozen": "frozen", "knots": "trained"}[way]
        row["knots_inside"] = " ".join(f"{k:.4f}" for k in knots_inside(network_of(fitted)))
        rows.append(row)
    columns = ["unit", "gates", "width", "train_rmse", "test_rmse", "knots_inside", "status", "steps", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def trained_claim(name: str, fits: Fits) -> Claim:
    """The caption: frozen gates do not reach the error of trained ones."""
    frozen, trained = fits[name, "frozen"].test_rmse, fits[name, "knots"].test_rmse
    return Claim(
        f"training the gates of the {name}",
        "frozen gates do not reach the lowest error",
        f"{frozen:.1e} frozen, {trained:.1e} trained",
        reproduced_if(trained < frozen),
        f"Moving the knots divides the error by {frozen / trained:.1f}.",
        place=f"figure 4, ({PANELS[name][0]}) and ({PANELS[name][1]})",
    )


def knots_claim(name: str, frozen: Fit, target: Problem) -> Claim:
    """Appendix B: the construction meets the target at its knots, a least-squares fit with the same knots does not."""
    assert target.f is not None
    built = construct(name, target, NEURONS).network
    off = []
    for network in (built, frozen.network):
        assert isinstance(network, Network)
        knots = knots_inside(network)
        with torch.no_grad():
            values = network(torch.from_numpy(knots[:, None]))[:, 0].numpy()
        off.append(float(np.abs(values - np.asarray(target.f(knots))).max()))
    return Claim(
        f"the {name} at its knots, gates frozen",
        "on the target if constructed, not if fitted",
        f"off by {off[0]:.0e} constructed, by up to {off[1]:.1e} fitted",
        reproduced_if(off[0] < 1e-9 < 1e-3 < off[1]),
        f"Least squares spreads the error over the cell: the fitted one has RMSE {frozen.test_rmse:.1e}.",
        place=f"appendix B, {name.upper()} at its knots",
    )


def neurons_claim(name: str, x: Array, trained: Fit) -> Claim:
    """Panels (c) and (f): each trained neuron is a polynomial on either side of its knot."""
    letter, degree = PANELS[name][2], {"mlp": 1, "glu": 2}[name]
    knots = network_of(trained).knots().numpy()
    what = f"neurons of the trained {name}, panel ({letter})"
    return line_claim(what, x, contributions(trained, x), knots, degree, place=f"figure 4, ({letter})")


STUDY = Study(
    "scaling/fig4",
    "Six neurons, frozen and trained",
    "With frozen, evenly spaced gates both units follow the target; training the gates as well lowers the error.",
    run,
    position=4,
)
