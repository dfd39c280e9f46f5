"""Figure 1: random networks before any training, an MLP and a GLU of two inputs, and the neurons of a GLU of one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from gatelab.plotting import GREY, NEURON_COLOURS, draw_plane, new_figure, style
from gatelab.studies.random_networks import SEED_NOTE, degree_claim, line_claim, random_network
from gatelab.studies.study import Outcome, Request, Study
from gatelab.units import Unit, unit

NEURONS_1D = 4
NEURONS_WHAT = "neurons of the random glu of one input"
SEED_1D = 654  # four knots well apart inside [-1, 1], gates facing both ways, contributions of like size


def run(request: Request) -> Outcome:
    nets = [random_network(name, request) for name in ("mlp", "glu")]
    x, parts, knots = neurons_in_1d()
    with style():
        figure = new_figure(10.2, 3.4)
        panels = figure.subplots(1, 3)
        for panel, net in zip(panels, nets, strict=False):
            filled = draw_plane(panel, net.whole, f"random {net.unit.upper()}, $\\mathbb{{R}}^2 \\to \\mathbb{{R}}$")
            figure.colorbar(filled, ax=panel, shrink=0.85, ticks=_three(net.whole.values))
        for i, (part, knot) in enumerate(zip(parts.T, knots, strict=True)):
            panels[2].axvline(knot, color=GREY, linestyle="--", linewidth=0.7)
            panels[2].plot(x, part, color=NEURON_COLOURS[i], label=f"neuron {i + 1}")
        panels[2].set_title("each neuron of a random GLU, $\\mathbb{R} \\to \\mathbb{R}$")
        panels[2].set_xlabel("x")
        panels[2].set_ylabel("contribution")
        panels[2].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        figure.suptitle("Figure 1: functions of random networks; black lines are where gates open")
    table = pd.concat([net.gates for net in nets], ignore_index=True)
    notes = (
        SEED_NOTE,
        f"On the right a GLU of one input with {NEURONS_1D} neurons, every parameter from N(0, 1), seed {SEED_1D}; "
        f"dashed lines are its knots at {', '.join(f'{k:.2f}' for k in np.sort(knots))}.",
        "Level lines are straight within the pieces of the MLP and conics within those of the GLU.",
    )
    claims = (*(degree_claim(net) for net in nets), line_claim(NEURONS_WHAT, x, parts, knots, 2))
    return Outcome(figure, {"gates": table}, claims, notes)


def neurons_in_1d() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (N,), each neuron's contribution (N, neurons) and the knots of the random GLU of one input."""
    chosen = unit("glu")
    assert isinstance(chosen, Unit)
    net = chosen.network(NEURONS_1D, init="normal", seed=SEED_1D)
    x = np.linspace(-1.0, 1.0, 401)
    with torch.no_grad():
        parts = net.neurons(torch.from_numpy(x[:, None])) * net.D[0]
    return x, parts.numpy(), net.knots().numpy()


def _three(values: np.ndarray) -> list[float]:
    """Ticks of a symmetric colour scale: its round ends and zero."""
    reach = float(np.abs(values).max())
    step = float(f"{0.8 * reach:.0e}")
    return [-step, 0.0, step]


STUDY = Study(
    "scaling/fig1",
    "Functions of random networks",
    "Gates cut the plane into pieces on which a random MLP is linear and a random GLU quadratic.",
    run,
)
