"""Figures 1, 9, 10 and 11: random networks before any training, an MLP and a GLU with the same four gates.

Each figure shows where the gates of two inputs open and that between these hinges a network, or one of its neurons, is
a polynomial; figure 1 also has the neurons of a GLU of one input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.feedforward import Network, Unit, unit
from gatelab.plotting import (
    GREY,
    NEURON_COLOURS,
    Panel,
    Pen,
    Plane,
    colour_bar,
    draw_plane,
    draw_surface,
    new_figure,
    style,
)
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.verdicts import reproduced_if

NEURONS = 4
# A seed whose four hinges cross the square well inside and at different angles, with no neuron far larger than another.
# Equal seeds give equal gates to both units, so that the MLP and the GLU are seen on the same pieces.
SEED = 597
SEED_NOTE = f"Four neurons, every parameter from N(0, 1), seed {SEED}; the MLP and the GLU have equal gates."
SEED_1D = 654  # four knots well apart inside [-1, 1], gates facing both ways, contributions of like size
DEGREES = ("constant", "linear", "quadratic", "cubic")
EXACT = 1e-10  # of the range: a polynomial that is off by less is the function


@dataclass(frozen=True, eq=False)
class RandomNetwork:
    """A random network on the square [-1, 1]^2.

    Attributes:
        unit: The name of its unit.
        degree: The degree of its pieces.
        whole: Its values and all its hinges.
        neurons: What each neuron adds to it, with its hinge.
        open: At each point of the grid, which gates are open, (points, gates).
        gates: The parameters of the gates, a row each.
    """

    unit: str
    degree: int
    whole: Plane
    neurons: tuple[Plane, ...]
    open: NDArray[np.bool_]
    gates: pd.DataFrame


def random_network(name: str, request: Request) -> RandomNetwork:
    """The random network of a unit, on a grid that is coarser when quick."""
    chosen = unit(name)
    assert isinstance(chosen, Unit) and chosen.degree is not None
    net = chosen.network(NEURONS, 2, 1, init="normal", seed=SEED)
    points = 161
    if request.quick:
        points = 61
    axis = np.linspace(-1.0, 1.0, points)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values, parts, z = evaluated(net, grid)
    G, biases = net.G.detach().numpy(), net.g.detach().numpy()
    hinges: list[Array] = []
    neurons: list[Plane] = []
    for i, (g, bias) in enumerate(zip(G, biases, strict=True)):
        lifted: tuple[Array, ...] = ()
        path = hinge(g, bias)
        if path is not None:
            heights, own, _ = evaluated(net, path)
            hinges.append(np.column_stack((path, heights)))
            lifted = (np.column_stack((path, own[:, i])),)
        neurons.append(Plane(axis, axis, parts[:, i].reshape(points, points), lifted))
    whole = Plane(axis, axis, values.reshape(points, points), tuple(hinges))
    gates = pd.DataFrame(
        {
            "unit": name,
            "neuron": np.arange(1, NEURONS + 1),
            "G1": G[:, 0],
            "G2": G[:, 1],
            "g": biases,
            "share_open": (z > 0).mean(axis=0),
        }
    )
    return RandomNetwork(name, chosen.degree, whole, tuple(neurons), z > 0, gates)


def evaluated(net: Network, x: Array) -> tuple[Array, Array, Array]:
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
    if first >= last:
        return None
    return foot + np.linspace(first, last, 60)[:, None] * along


def misfit(plane: Plane, which: NDArray[np.bool_], degree: int) -> float:
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


def degree_claim(net: RandomNetwork, place: str) -> Claim:
    """Whether the whole network is, between its hinges, a polynomial of the degree that the paper says."""
    exact, lower = (misfit(net.whole, net.open, k) for k in (net.degree, net.degree - 1))
    holds = exact < EXACT < lower
    paper = ours = f"piecewise {DEGREES[net.degree]}"
    if not holds:
        ours = f"not {paper}"
    return Claim(
        f"pieces of the random {net.unit}",
        paper,
        ours,
        reproduced_if(holds),
        f"On each of {len(np.unique(net.open, axis=0))} pieces a polynomial of degree {net.degree} is off by at most "
        f"{exact:.0e} of the range, one of degree {net.degree - 1} by up to {lower:.1g}.",
        place=place,
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
    if not scale:
        return 0.0
    return worst / scale


def line_claim(what: str, x: Array, parts: Array, knots: Array, degree: int, *, place: str = "") -> Claim:
    """Whether each neuron of one input is a polynomial of that degree, and of no lower one, beside its knot."""
    pairs = [(part, float(knot)) for part, knot in zip(parts.T, knots, strict=True) if np.abs(part).max() > 0]
    exact = max(line_misfit(x, part, knot, degree) for part, knot in pairs)
    lower = min(line_misfit(x, part, knot, degree - 1) for part, knot in pairs)
    holds = exact < EXACT < lower
    ours = f"{len(pairs)} neurons, each piecewise {DEGREES[degree]}"
    if not holds:
        ours = f"not all piecewise {DEGREES[degree]}"
    return Claim(
        what,
        f"each a single piecewise {DEGREES[degree]} function",
        ours,
        reproduced_if(holds),
        f"On either side of its knot each is a polynomial of degree {degree} to {exact:.0e} of its range and misses "
        f"one of degree {degree - 1} by {lower:.1g} or more.",
        place=place,
    )


def neuron_claim(net: RandomNetwork, figure: str) -> Claim:
    """The same for each neuron alone, on the open side of its gate."""
    gates = list(enumerate(net.neurons))
    exact = max(misfit(plane, net.open[:, [i]], net.degree) for i, plane in gates)
    lower = min(misfit(plane, net.open[:, [i]], net.degree - 1) for i, plane in gates)
    holds = exact < EXACT < lower
    word = DEGREES[net.degree]
    paper = ours = f"a piecewise {word} basis"
    if not holds:
        ours = f"not piecewise {word}"
    return Claim(
        f"neurons of the random {net.unit}",
        paper,
        ours,
        reproduced_if(holds),
        f"Open, each neuron is a polynomial of degree {net.degree} to {exact:.0e} of its range and misses one of "
        f"degree {net.degree - 1} by {lower:.1g} or more.",
        place=f"{figure}, four neurons, piecewise {word}",
    )


def neuron_maps(name: str, number: int, request: Request) -> Outcome:
    """Figures 10 and 11, which are one figure for two units: what each neuron contributes on the square."""
    net = random_network(name, request)
    # One scale for all: a neuron that contributes little should look so.
    scale = max(float(np.abs(plane.values).max()) for plane in net.neurons)
    with style():
        figure = new_figure(10.2, 3.1)
        panels = [Panel(axes) for axes in figure.subplots(1, len(net.neurons), sharey=True)]
        maps = [
            draw_plane(panel, plane, f"neuron {i + 1}", scale=scale)
            for i, (panel, plane) in enumerate(zip(panels, net.neurons, strict=True))
        ]
        for panel in panels:
            panel.axes.label_outer()
        bar = colour_bar(maps[0], panels, shrink=0.8)
        bar.set_ticks([-scale, 0.0, scale], labels=[f"−{scale:.1f}", "0", f"{scale:.1f}"])
        figure.suptitle(f"Figure {number}: contributions of the neurons of a random {name.upper()}")
    claim = neuron_claim(net, f"figure {number}")
    return Outcome(figure, {"gates": net.gates}, (claim,), (SEED_NOTE, "The four maps share one scale."))


def run_fig1(request: Request) -> Outcome:
    """Random networks, an MLP and a GLU of two inputs, and the neurons of a GLU of one."""
    nets = [random_network(name, request) for name in ("mlp", "glu")]
    x, parts, knots = neurons_in_1d()
    with style():
        figure = new_figure(10.2, 3.4)
        *planes, right = map(Panel, figure.subplots(1, 3))
        for panel, net in zip(planes, nets, strict=True):
            filled = draw_plane(panel, net.whole, f"random {net.unit.upper()}, $\\mathbb{{R}}^2 \\to \\mathbb{{R}}$")
            colour_bar(filled, [panel], shrink=0.85, ticks=three_ticks(net.whole.values))
        for i, (part, knot) in enumerate(zip(parts.T, knots, strict=True)):
            right.rule("x", knot, Pen(GREY, "--", 0.7))
            right.line(x, part, Pen(NEURON_COLOURS[i]), label=f"neuron {i + 1}")
        right.set(title="each neuron of a random GLU, $\\mathbb{R} \\to \\mathbb{R}$")
        right.set(xlabel="x", ylabel="contribution")
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        figure.suptitle("Figure 1: functions of random networks; black lines are where gates open")
    table = pd.concat([net.gates for net in nets], ignore_index=True)
    notes = (
        SEED_NOTE,
        f"On the right a GLU of one input with {NEURONS} neurons, every parameter from N(0, 1), seed {SEED_1D}; "
        f"dashed lines are its knots at {', '.join(f'{k:.2f}' for k in np.sort(knots))}.",
        "Level lines are straight within the pieces of the MLP and conics within those of the GLU.",
    )
    claims = [degree_claim(net, f"figure 1, {net.unit.upper()} of two inputs") for net in nets]
    place = "figure 1, right: neurons of a GLU of one input"
    claims.append(line_claim("neurons of the random glu of one input", x, parts, knots, 2, place=place))
    return Outcome(figure, {"gates": table}, tuple(claims), notes)


def neurons_in_1d() -> tuple[Array, Array, Array]:
    """x (N,), each neuron's contribution (N, neurons) and the knots of the random GLU of one input."""
    chosen = unit("glu")
    assert isinstance(chosen, Unit)
    net = chosen.network(NEURONS, init="normal", seed=SEED_1D)
    x = np.linspace(-1.0, 1.0, 401)
    with torch.no_grad():
        parts = net.neurons(torch.from_numpy(x[:, None])) * net.D[0]
    return x, parts.numpy(), net.knots().numpy()


def three_ticks(values: Array) -> list[float]:
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
    """The random MLP and GLU as surfaces."""
    nets = [random_network(name, request) for name in ("mlp", "glu")]
    with style():
        figure = new_figure(9.0, 4.3)
        for place, net in enumerate(nets, start=1):
            panel = figure.add_subplot(1, 2, place, projection="3d")
            draw_surface(panel, net.whole, f"y of a random {net.unit.upper()}")
        figure.suptitle("Figure 9: surfaces of random networks; black lines are the hinges of their gates")
    table = pd.concat([net.gates for net in nets], ignore_index=True)
    claims = tuple(degree_claim(net, f"figure 9, {net.unit.upper()}") for net in nets)
    return Outcome(figure, {"gates": table}, claims, (SEED_NOTE,))


FIG9 = Study(
    "scaling/fig9",
    "Surfaces of random networks",
    "The hinges of four ReLU gates break the surface of a random network into linear (MLP) or quadratic (GLU) regions.",
    run_fig9,
    position=10,
)


def run_fig10(request: Request) -> Outcome:
    """The neurons of the random MLP."""
    return neuron_maps("mlp", 10, request)


FIG10 = Study(
    "scaling/fig10",
    "Neurons of a random MLP",
    "The neurons of a random MLP of two inputs form a piecewise linear basis.",
    run_fig10,
    position=11,
)


def run_fig11(request: Request) -> Outcome:
    """The neurons of the random GLU."""
    return neuron_maps("glu", 11, request)


FIG11 = Study(
    "scaling/fig11",
    "Neurons of a random GLU",
    "The neurons of a random GLU of two inputs form a piecewise quadratic basis.",
    run_fig11,
    position=12,
)
