"""Figure 3: the ReLUs of the two spline initializations, with gates in one direction or in alternating ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gatelab.feedforward import Unit, unit
from gatelab.plotting.facets import Facets
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, limits
from gatelab.studies.engine import Study, Tables

NEURONS = 6
WAYS = {"spline": "all facing one way", "spline-alternating": "alternating"}
STUDY = Study(
    "scaling/fig3",
    "ReLUs of the spline initializations",
    "Gates on equally spaced knots cut the interval into equal cells, facing one way or alternating; alternating "
    "avoids dead neurons.",
    position=3,
    figure=Facets(
        table="activations", x="x", y="activation", hue="neuron", col="initialisation", marks=("at_knot", "knot"),
        names=WAYS | {i: f"gate {i}" for i in range(1, NEURONS + 1)}, ylabel="relu(Gx + g)",
        title=f"Figure 3: {NEURONS} gates on equally spaced knots",
    ),
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The knots of an even and of an odd number of gates, and of the even number the values at ends and knots."""
    chosen = unit("mlp")
    assert isinstance(chosen, Unit)
    gates, activations = [], []
    for init in WAYS:
        for neurons in (NEURONS, NEURONS + 1):
            network = chosen.network(neurons, init=init)
            sides = network.G.detach().numpy()[:, 0]
            for i, (knot, side) in enumerate(zip(network.knots().numpy(), sides, strict=True), start=1):
                ends = np.maximum(side * (np.array([-1.0, knot, 1.0]) - knot), 0)
                names = {"initialisation": init, "neurons": neurons, "neuron": i}
                gates.append({**names, "knot": knot, "dead_inside": not ends.any()})
                for x, value, at_knot in zip((-1.0, knot, 1.0), ends, (False, True, False), strict=True):
                    if neurons == NEURONS:
                        activations.append({**names, "x": x, "activation": value, "at_knot": at_knot})
    return {"gates": pd.DataFrame(gates), "activations": pd.DataFrame(activations)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    by_way = tables["gates"].groupby(["initialisation", "neurons"])
    dead = by_way["dead_inside"].sum()
    counts = {f"of {n} {WAYS[init]}": int(count) for (init, n), count in dead.items()}
    yield Claim(
        "dead neurons inside the interval", float(dead["spline-alternating"].max()), paper=0.0, rule="number",
        place="figure 3, left and right", support=counts,
        note="A gate whose knot is at the end that it faces never opens inside. Alternating turns it where the number "
        "of neurons is even. Where it is odd the first and the last face the same way, and one faces outward.",
    )  # fmt: skip
    knots = np.sort(by_way.get_group(("spline", NEURONS))["knot"].to_numpy(float))
    sizes = np.diff(knots / 2)  # shares of [-1, 1]
    yield Claim(
        f"size of the cells that {NEURONS} gates make, over the interval", float(sizes.mean()), paper=1 / NEURONS,
        rule="number", place="section 3, partitions",
        support={"cells": len(sizes), "smallest and largest": limits(sizes)},
        note="linspace with both ends makes h = 1/(n - 1), and the last gate has no cell inside. n cells of size 1/n, "
        "as eq. 9 and 14 count them, take knots without the right end.",
    )  # fmt: skip
