"""Figure 3: the ReLUs of the two spline initialisations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from gatelab.arrays import Array
from gatelab.feedforward import Unit, unit
from gatelab.plotting import GREY, NEURON_COLOURS, Panel, Pen, new_figure, style
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.verdicts import reproduced_if

NEURONS = 6
WAYS = {"spline": "all facing one way", "spline-alternating": "alternating"}


def run(request: Request) -> Outcome:
    """The gates of both initialisations, drawn over the interval; a quick run is the same."""
    x = np.linspace(-1.0, 1.0, 401)
    rows = []
    with style():
        figure = new_figure(7.2, 3.0)
        panels = [Panel(axes) for axes in figure.subplots(1, 2, sharey=True)]
        for panel, (init, words) in zip(panels, WAYS.items(), strict=True):
            values, knots = activations(init, x)
            for i, knot in enumerate(knots):
                panel.rule("x", knot, Pen(GREY, "--", 0.6))
                panel.line(x, values[:, i], Pen(NEURON_COLOURS[i]))
                dead = not (values[:, i] > 0).any()
                rows.append({"initialisation": init, "neuron": i + 1, "knot": knot, "dead_inside": dead})
            panel.set(title=f"{words} (init='{init}')", xlabel="x", xticks=[-1.0, -0.5, 0.0, 0.5, 1.0])
        panels[0].set(ylabel="relu(Gx + g)")
        figure.suptitle(f"Figure 3: {NEURONS} gates on equally spaced knots")
    table = pd.DataFrame(rows)
    return Outcome(figure, {"gates": table}, (dead_claim(table), cells_claim(table)), notes())


def activations(init: str, x: Array, neurons: int = NEURONS) -> tuple[Array, Array]:
    """relu(Gx + g) of each neuron, (N, neurons), and the knots."""
    chosen = unit("mlp")
    assert isinstance(chosen, Unit)
    net = chosen.network(neurons, init=init)
    with torch.no_grad():
        return net.neurons(torch.from_numpy(x[:, None])).numpy(), net.knots().numpy()


def dead_claim(table: pd.DataFrame) -> Claim:
    """How many gates never open inside the interval, either way."""
    dead = {init: int(table.loc[table["initialisation"] == init, "dead_inside"].sum()) for init in WAYS}
    one_way, alternating = dead["spline"], dead["spline-alternating"]
    more = NEURONS + 1
    odd = int((activations("spline-alternating", np.linspace(-1.0, 1.0, 401), more)[0] <= 0).all(axis=0).sum())
    knots = [np.sort(table.loc[table["initialisation"] == init, "knot"].to_numpy(float)) for init in WAYS]
    same = np.array_equal(knots[0], knots[1])
    alike = "the same" if same else "not the same"
    return Claim(
        "dead neurons inside the interval",
        "alternating prevents all dead neurons, with the same partitioning",
        f"{one_way} of {NEURONS} facing one way, {alternating} of {NEURONS} alternating, {odd} of {more} alternating",
        reproduced_if(alternating == odd == 0 < one_way and same),
        "A gate whose knot is at the end that it faces never opens inside. Alternating turns it round where the number "
        "of neurons is even; where it is odd the first and the last face one way, and one of them outwards. The knots "
        f"are {alike} both ways.",
        place="figure 3, left and right",
    )


def cells_claim(table: pd.DataFrame) -> Claim:
    """The text has n - 1 cells of size 1/n; linspace with both ends makes their size 1/(n - 1)."""
    knots = np.sort(table.loc[table["initialisation"] == "spline", "knot"].to_numpy(float))
    sizes = np.diff(knots)
    share = float(sizes.mean()) / 2.0  # of the interval [-1, 1]
    equal = bool(np.allclose(sizes, sizes[0]))
    word = "equal" if equal else "unequal"
    return Claim(
        f"cells that {NEURONS} gates make",
        f"n - 1 = {NEURONS - 1} closed partitions, equally sized, h = 1/n",
        f"{len(sizes)} {word} cells, each 1/{1 / share:.0f} of the interval",
        reproduced_if(equal and len(sizes) == NEURONS - 1 and bool(np.isclose(share, 1 / NEURONS))),
        f"linspace with both ends puts n knots at {knots[0]:g} to {knots[-1]:g}: h is 1/(n - 1), and the last gate has "
        "no cell inside. n cells of size 1/n, as eq. 9 and 14 count them, take knots without the right end.",
        place="section 3, partitions",
    )


def notes() -> tuple[str, ...]:
    """How many gates are closed beside the interval, where new points may lie."""
    left = np.array([-1.5])
    closed = {init: int((activations(init, left)[0] <= 0).sum()) for init in WAYS}
    return (
        f"To the left of the interval, at x = -1.5, {closed['spline']} of {NEURONS} gates are closed when all face one "
        f"way and {closed['spline-alternating']} when they alternate.",
    )


STUDY = Study(
    "scaling/fig3",
    "ReLUs of the spline initialisations",
    "Gates on equally spaced knots cut the interval into equal cells, facing one way or alternating; alternating "
    "avoids dead neurons.",
    run,
    position=3,
)
