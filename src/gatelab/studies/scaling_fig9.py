"""Figure 9: the random MLP and GLU of four neurons as surfaces."""

from __future__ import annotations

import pandas as pd

from gatelab.plotting import draw_surface, new_figure, style
from gatelab.studies.random_networks import SEED_NOTE, degree_claim, random_network
from gatelab.studies.study import Outcome, Request, Study


def run(request: Request) -> Outcome:
    nets = [random_network(name, request) for name in ("mlp", "glu")]
    with style():
        figure = new_figure(9.0, 4.3)
        for place, net in enumerate(nets, start=1):
            panel = figure.add_subplot(1, 2, place, projection="3d")
            draw_surface(panel, net.whole, f"y of a random {net.unit.upper()}")
        figure.suptitle("Figure 9: surfaces of random networks; black lines are the hinges of their gates")
    table = pd.concat([net.gates for net in nets], ignore_index=True)
    return Outcome(figure, {"gates": table}, tuple(degree_claim(net) for net in nets), (SEED_NOTE,))


STUDY = Study(
    "scaling/fig9",
    "Surfaces of random networks",
    "The hinges of four ReLU gates break the surface of a random network into linear (MLP) or quadratic (GLU) regions.",
    run,
)
