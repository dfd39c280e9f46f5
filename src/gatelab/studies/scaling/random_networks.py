"""The random networks of two inputs in figures 1, 9, 10 and 11: values, hinges, and of what degree their pieces are.

Figures 10 and 11 are one figure for two units: what each neuron of a random network contributes on the square.

Figure 1: random networks before any training, an MLP and a GLU of two inputs, and the neurons of a GLU of one.

Figure 9: the random MLP and GLU of four neurons as surfaces.

Figure 10: the neurons of the random MLP.

Figure 11: the neurons of the random GLU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.feedforward import Network, Unit, unit
from gatelab.plotting import GREY, NEURON_COLOURS, Plane, draw_plane, draw_surface, new_figure, style
from gatelab.studies.definition import Claim, Outcome, Request, Study

NEURONS = 4
# A seed whose four hinges cross the square well inside and at different angles, with no neuron far larger than another.
# Equal seeds give equal gates to both units, so that the MLP and the GLU are seen on the same pieces.
SEED = 597
SEED_NOTE = f"Four neurons, every parameter from N(0, 1), seed {SEED}; the MLP and the GLU have equal gates."


@dataclass(frozen=True, eq=False)
class RandomNetwork:
    """A random network on the square [-1, 1]^2: the whole, and what each neuron adds to it."""

    unit: str
    degree: int
    whole: Plane
    neurons: tuple[Plane, ...]
    open: NDArray[np.bool_]
    gates: pd.DataFrame


def random_network(name: str, request: Request) -> RandomNetwork:
    chosen = unit(name)
    assert isinstance(chosen, Unit) and chosen.degree is not None
    net = chosen.network(NEURONS, 2, 1, init="normal", seed=SEED)
    axis = np.linspace(-1.0, 1.0, 61 if request.quick else 161)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values, parts, z = _values(net, grid)
    shape = (len(axis), len(axis))
    paths = [hinge(g, b) for g, b in zip(_array(net.G), _array(net.g), strict=True)]
    whole = Plane(axis, axis, values.reshape(shape), tuple(_lifted(net, p, None) for p in paths if p is not None))
    neurons = tuple(
        Plane(axis, axis, parts[:, i].reshape(shape), () if p is None else (_lifted(net, p, i),))
        for i, p in enumerate(paths)
    )
    gates = pd.DataFrame(
        {
            "unit": name,
            "neuron": np.arange(1, NEURONS + 1),
            "G1": _array(net.G)[:, 0],
            "G2": _array(net.G)[:, 1],
            "g": _array(net.g),
            "share_open": (z > 0).mean(axis=0),
        }
    )
    return RandomNetwork(name, chosen.degree, whole, neurons, z > 0, gates)


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().numpy()


def _values(net: Network, x: Array) -> tuple[Array, Array, Array]:
    """The network's values (N,), each neuron's contribution (N, width) and the gates' pre-activations (N, width)."""
    with torch.no_grad():
        rows = torch.from_numpy(x)
        return net(rows)[:, 0].numpy(), (net.neurons(rows) * net.D[0]).numpy(), net.affine(rows)[0].numpy()


def hinge(g: Array, bias: float) -> Array | None:
    """The part of the line g.x + bias = 0 inside [-1, 1]^2 as a path (points, 2); None where the line passes by.

    >>> hinge(np.array([1.0, 0.0]), 0.5)[[0, -1]]
    array([[-0.5, -1. ],
           [-0.5,  1. ]])
    """
    along = np.array([-g[1], g[0]]) / np.hypot(*g)
    foot = -bias * g / (g @ g)
    moving = np.abs(along) > 1e-12
    if (np.abs(foot[~moving]) > 1).any():
        return None
    ends = (np.array([[-1.0], [1.0]]) - foot[moving]) / along[moving]
    first, last = ends.min(axis=0).max(), ends.max(axis=0).min()
    return foot + np.linspace(first, last, 60)[:, None] * along if first < last else None


def _lifted(net: Network, path: Array, neuron: int | None) -> Array:
    """The path with the height of the network, or of one neuron, as third column."""
    values, parts, _ = _values(net, path)
    return np.column_stack((path, values if neuron is None else parts[:, neuron]))


def misfit(net: RandomNetwork, plane: Plane, which: NDArray[np.bool_], degree: int) -> float:
    """How far a polynomial of that degree on each piece stays from the values, relative to the greatest of them.

    A piece is where the gates `which` (points, gates) are open alike.
    """
    x, y = (part.ravel() for part in np.meshgrid(plane.x, plane.y))
    columns = np.stack([x**i * y**j for i in range(degree + 1) for j in range(degree + 1 - i)], axis=1)
    values = plane.values.ravel()
    _, piece = np.unique(which, axis=0, return_inverse=True)
    worst = 0.0
    for p in range(int(piece.max()) + 1):
        here = piece.ravel() == p
        fitted = columns[here] @ np.linalg.lstsq(columns[here], values[here], rcond=None)[0]
        worst = max(worst, float(np.abs(fitted - values[here]).max()))
    return worst / float(np.abs(values).max())


def degree_claim(net: RandomNetwork) -> Claim:
    """Whether the whole network is, between its hinges, a polynomial of the degree that the paper says."""
    exact, lower = (misfit(net, net.whole, net.open, k) for k in (net.degree, net.degree - 1))
    word = ("constant", "linear", "quadratic", "cubic")[net.degree]
    holds = exact < 1e-10 < lower
    return Claim(
        f"pieces of the random {net.unit}",
        f"piecewise {word}",
        f"piecewise {word}" if holds else f"not piecewise {word}",
        "reproduced" if holds else "differs",
        f"On each of {len(np.unique(net.open, axis=0))} pieces a polynomial of degree {net.degree} is off by at most "
        f"{exact:.0e} of the range, one of degree {net.degree - 1} by up to {lower:.1g}.",
    )


def line_misfit(x: Array, values: Array, knot: float, degree: int) -> float:
    """The same on a line for one neuron: a polynomial on each side of its knot.

    >>> x = np.linspace(-1, 1, 101)
    >>> line_misfit(x, np.maximum(x - 0.1, 0) * x, 0.1, 2) < 1e-12 < line_misfit(x, np.maximum(x - 0.1, 0) * x, 0.1, 1)
    True
    """
    scale, worst = float(np.abs(values).max()), 0.0
    for side in (x < knot, x >= knot):
        if side.sum() > degree + 1:
            fitted = np.polynomial.Polynomial.fit(x[side], values[side], degree)
            worst = max(worst, float(np.abs(fitted(x[side]) - values[side]).max()))
    return worst / scale if scale else 0.0


def line_claim(what: str, x: Array, parts: Array, knots: Array, degree: int) -> Claim:
    """Whether each neuron of one input is a polynomial of that degree, and of no lower one, beside its knot."""
    pairs = [(part, float(knot)) for part, knot in zip(parts.T, knots, strict=True) if np.abs(part).max() > 0]
    exact = max(line_misfit(x, part, knot, degree) for part, knot in pairs)
    lower = min(line_misfit(x, part, knot, degree - 1) for part, knot in pairs)
    word = ("constant", "linear", "quadratic", "cubic")[degree]
    holds = exact < 1e-10 < lower
    return Claim(
        what,
        f"each a single piecewise {word} function",
        f"{len(pairs)} neurons, each piecewise {word}" if holds else f"not all piecewise {word}",
        "reproduced" if holds else "differs",
        f"On either side of its knot each is a polynomial of degree {degree} to {exact:.0e} of its range and misses "
        f"one of degree {degree - 1} by {lower:.1g} or more.",
    )


def neuron_claim(net: RandomNetwork) -> Claim:
    """The same for each neuron alone, on the open side of its gate."""
    each = [
        (misfit(net, plane, net.open[:, [i]], net.degree), misfit(net, plane, net.open[:, [i]], net.degree - 1))
        for i, plane in enumerate(net.neurons)
    ]
    word = ("constant", "linear", "quadratic", "cubic")[net.degree]
    exact, lower = max(e for e, _ in each), min(low for _, low in each)
    holds = exact < 1e-10 < lower
    return Claim(
        f"neurons of the random {net.unit}",
        f"a piecewise {word} basis",
        f"a piecewise {word} basis" if holds else f"not piecewise {word}",
        "reproduced" if holds else "differs",
        f"Open, each neuron is a polynomial of degree {net.degree} to {exact:.0e} of its range and misses one of "
        f"degree {net.degree - 1} by {lower:.1g} or more.",
    )


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


NEURONS_1D = 4
NEURONS_WHAT = "neurons of the random glu of one input"
SEED_1D = 654  # four knots well apart inside [-1, 1], gates facing both ways, contributions of like size


def run_fig1(request: Request) -> Outcome:
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


FIG1 = Study(
    "scaling/fig1",
    "Functions of random networks",
    "Gates cut the plane into pieces on which a random MLP is linear and a random GLU quadratic.",
    run_fig1,
    position=1,
)


def run_fig9(request: Request) -> Outcome:
    nets = [random_network(name, request) for name in ("mlp", "glu")]
    with style():
        figure = new_figure(9.0, 4.3)
        for place, net in enumerate(nets, start=1):
            panel = figure.add_subplot(1, 2, place, projection="3d")
            draw_surface(panel, net.whole, f"y of a random {net.unit.upper()}")
        figure.suptitle("Figure 9: surfaces of random networks; black lines are the hinges of their gates")
    table = pd.concat([net.gates for net in nets], ignore_index=True)
    return Outcome(figure, {"gates": table}, tuple(degree_claim(net) for net in nets), (SEED_NOTE,))


FIG9 = Study(
    "scaling/fig9",
    "Surfaces of random networks",
    "The hinges of four ReLU gates break the surface of a random network into linear (MLP) or quadratic (GLU) regions.",
    run_fig9,
    position=10,
)


def run_fig10(request: Request) -> Outcome:
    return neuron_maps("mlp", 10, request)


FIG10 = Study(
    "scaling/fig10",
    "Neurons of a random MLP",
    "The neurons of a random MLP of two inputs form a piecewise linear basis.",
    run_fig10,
    position=11,
)


def run_fig11(request: Request) -> Outcome:
    return neuron_maps("glu", 11, request)


FIG11 = Study(
    "scaling/fig11",
    "Neurons of a random GLU",
    "The neurons of a random GLU of two inputs form a piecewise quadratic basis.",
    run_fig11,
    position=12,
)
