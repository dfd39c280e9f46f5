"""Figures 10 and 11 are one figure for two units: what each neuron of a random network contributes on the square."""

from __future__ import annotations

import numpy as np

from gatelab.plotting import draw_plane, new_figure, style
from gatelab.studies.random_networks import SEED_NOTE, neuron_claim, random_network
from gatelab.studies.study import Outcome, Request


def neuron_maps(name: str, number: int, request: Request) -> Outcome:
    net = random_network(name, request)
    # One scale for all: a neuron that contributes little should look so.
    scale = max(float(np.abs(plane.values).max()) for plane in net.neurons)
    with style():
        figure = new_figure(10.2, 3.1)
        panels = figure.subplots(1, len(net.neurons), sharey=True)
        maps = [
            draw_plane(panel, plane, f"neuron {i + 1}", scale=scale)
            for i, (panel, plane) in enumerate(zip(panels, net.neurons, strict=True))
        ]
        for panel in panels:
            panel.label_outer()
        bar = figure.colorbar(maps[0], ax=list(panels), shrink=0.8)
        bar.set_ticks([-scale, 0.0, scale], labels=[f"−{scale:.1f}", "0", f"{scale:.1f}"])
        figure.suptitle(f"Figure {number}: contributions of the neurons of a random {name.upper()}")
    return Outcome(figure, {"gates": net.gates}, (neuron_claim(net),), (SEED_NOTE, "The four maps share one scale."))
