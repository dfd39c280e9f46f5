"""Figures 1, 9, 10 and 11: random networks before any training, an MLP and a GLU with the same four gates.

A table holds the parameters of each neuron, D relu(G.x + g) (U.x + u), where an MLP has U = 0 and u = 1. Between its
hinges a network, or one of its neurons, is a polynomial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.feedforward import Network, unit
from gatelab.plotting.theme import GRAY, NEURON_COLORS, style
from gatelab.studies.claims import Claim
from gatelab.studies.definition import only
from gatelab.studies.engine import Study, Table, Tables

NEURONS = range(1, 5)
# A seed whose four hinges cross the square at different angles. Equal seeds give equal gates to both units.
MLP, GLU = ("mlp", 2, 597), ("glu", 2, 597)
LINE = ("glu", 1, 654)  # four knots well apart inside [-1, 1], gates facing both ways, contributions of similar size
DEGREES = ("constant", "linear", "quadratic")
EXACT = 1e-10  # of the range: a polynomial that is off by less is the function
PLACES = {
    ("mlp", 2, "network"): "figure 1, MLP of two inputs; figure 9, MLP",
    ("glu", 2, "network"): "figure 1, GLU of two inputs; figure 9, GLU",
    ("mlp", 2, "neurons"): "figure 10, four neurons, piecewise linear",
    ("glu", 2, "neurons"): "figure 11, four neurons, piecewise quadratic",
    ("glu", 1, "neurons"): "figure 1, right: neurons of a GLU of one input",
}
AXIS = np.linspace(-1.0, 1.0, 161)
SQUARE = np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2)
POINTS = {1: np.linspace(-1, 1, 401)[:, None], 2: SQUARE}  # by the number of inputs


def neuron_rows(net: Network) -> Iterator[dict[str, float]]:
    inputs = range(net.d_in)
    given = {name: values.detach().numpy() for name, values in net.named_parameters()}
    U, u = given.get("U", np.zeros((net.width, net.d_in))), given.get("u", np.ones(net.width))
    for i in range(net.width):
        weights = {f"{name}{k + 1}": W[i, k] for name, W in (("G", given["G"]), ("U", U)) for k in inputs}
        yield {**weights, "g": given["g"][i], "u": u[i], "D": given["D"][0, i], "d": given["d"][0]}


def affine(neurons: Table, x: Array, name: str = "G") -> Array:
    """G.x + g, or U.x + u, of each neuron at each row of x: (rows, neurons)."""
    weights = neurons[[f"{name}{k + 1}" for k in range(x.shape[1])]].to_numpy()
    return x @ weights.T + neurons[name.lower()].to_numpy()


def contributions(neurons: Table, x: Array) -> Array:
    """The contribution of each neuron to the output at each row of x: (rows, neurons)."""
    return neurons["D"].to_numpy() * np.maximum(affine(neurons, x), 0) * affine(neurons, x, "U")


def output(neurons: Table, x: Array) -> Array:
    return contributions(neurons, x).sum(axis=1) + float(neurons["d"].iloc[0])


def misfit(x: Array, values: Array, opened: NDArray[np.bool_], degree: int) -> float:
    """The largest distance of the values from the best polynomial of that degree on each piece, over their maximum.

    A piece is where the same gates are open; `opened` has a row for each row of x and a column for each gate.

    >>> x = np.linspace(-1, 1, 101)[:, None]
    >>> bent = np.maximum(x[:, 0] - 0.1, 0) * x[:, 0]
    >>> misfit(x, bent, x > 0.1, 2) < 1e-12 < misfit(x, bent, x > 0.1, 1)
    True
    """
    powers = np.stack(np.meshgrid(*[np.arange(degree + 1)] * x.shape[1]), -1).reshape(-1, x.shape[1])
    columns = np.stack([np.prod(x**power, axis=1) for power in powers if power.sum() <= degree], axis=1)
    _, piece = np.unique(opened, axis=0, return_inverse=True)
    off = np.zeros(len(x))
    for p in np.unique(piece):
        here = piece.ravel() == p
        off[here] = columns[here] @ np.linalg.lstsq(columns[here], values[here], rcond=None)[0] - values[here]
    return float(np.abs(off).max() / np.abs(values).max())


def neuron_misfits(neurons: Table, x: Array, degree: int) -> tuple[float, float]:
    """The largest misfit of a neuron to that degree, and the least to the next lower degree."""
    opened, parts = affine(neurons, x) > 0, contributions(neurons, x)
    used = [i for i in range(len(neurons)) if np.abs(parts[:, i]).max() > 0]
    exact, lower = ([misfit(x, parts[:, i], opened[:, [i]], k) for i in used] for k in (degree, degree - 1))
    return max(exact), min(lower)


def degree_claim(what: str, degree: int, exact: float, lower: float, **more: Any) -> Claim:
    """Whether pieces are polynomials of a degree and of no lower one."""
    off = {f"largest misfit of degree {degree}": exact, f"misfit of degree {degree - 1}": lower}
    paper, holds = f"piecewise {DEGREES[degree]}", float(exact < EXACT < lower)
    return Claim(what, holds, paper=paper, rule="holds", support=off | more.pop("support", {}), **more)


def draw_maps(
    figure: SubFigure, panels: Sequence[Axes], parts: Sequence[Table], values: Array, titles: Sequence[str]
) -> None:
    """Filled maps of the columns of values, symmetric about zero, with the hinges of each part and one color bar."""
    scale = float(np.abs(values).max())
    levels = np.linspace(-scale, scale, 24)
    filled: Any = None
    for axes, neurons, column, title in zip(panels, parts, values.T, titles, strict=True):
        grid = column.reshape(len(AXIS), -1)
        filled = axes.contourf(AXIS, AXIS, grid, levels, cmap="RdBu_r")
        axes.contour(AXIS, AXIS, grid, levels, colors=GRAY, linewidths=0.3, linestyles="solid")
        for path in hinges(neurons):
            axes.plot(*path.T, color="black", linewidth=1.4)
        axes.set(title=title, xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-1, 1), ylim=(-1, 1))
        axes.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    end = float(f"{0.8 * scale:.0e}")
    figure.colorbar(filled, ax=list(panels), shrink=0.85, ticks=[-end, 0, end])


def hinges(neurons: Table) -> Iterator[Array]:
    """The line G.x + g = 0 of each neuron as a path (points, 2), cut off at the square."""
    for row in neurons.itertuples():
        normal = np.array([row.G1, row.G2])
        along = np.array([-row.G2, row.G1]) / np.hypot(*normal)
        path = -row.g * normal / (normal @ normal) + np.linspace(-3, 3, 1200)[:, None] * along
        yield path[(np.abs(path) <= 1).all(axis=1)]


def figure(tables: Tables) -> Figure:
    plane, line = (only(tables["gates"], inputs=inputs) for inputs in (2, 1))
    with style():
        drawing = Figure(figsize=(10.2, 9.8), layout="constrained")
        subfigures: Any = drawing.subfigures(3, 1)
        networks, *rows = subfigures
        *left, right = networks.subplots(1, 3)
        for axes, row, (name, neurons) in zip(left, rows, plane.groupby("unit", sort=False), strict=True):
            title = f"random {name.upper()} of two inputs"
            draw_maps(networks, [axes], [neurons], output(neurons, SQUARE)[:, None], [title])
            panels = row.subplots(1, len(NEURONS), sharey=True)
            parts = [only(neurons, neuron=i) for i in NEURONS]
            titles = [f"{name.upper()}, neuron {i}" for i in NEURONS]
            draw_maps(row, panels, parts, contributions(neurons, SQUARE), titles)
            for panel in panels:
                panel.label_outer()
        x = np.linspace(-1, 1, 401)
        for part, knot, number in zip(contributions(line, x[:, None]).T, -line["g"] / line["G1"], NEURONS, strict=True):
            right.axvline(knot, color=GRAY, linestyle="--", linewidth=0.7)
            right.plot(x, part, color=NEURON_COLORS[number - 1], label=f"neuron {number}")
        right.set(title="neurons of a random GLU of one input", xlabel="x", ylabel="contribution")
        right.legend()
        drawing.suptitle("Figures 1 and 9 to 11: functions of random networks; black lines are where gates open")
    return drawing


STUDY = Study(
    "scaling/fig1",
    "Functions of random networks",
    "Gates cut the plane into pieces on which a random MLP and its neurons are linear, a random GLU and its neurons "
    "quadratic.",
    grid={"unit_name, inputs, seed": (MLP, GLU, LINE), "neuron": NEURONS},
    position=1,
    figure=figure,
)


@STUDY.measure("gates", "neuron")
def gates(unit_name: str, inputs: int, seed: int, neuron: Sequence[int]) -> Iterator[dict[str, float]]:
    """The neurons of a network whose parameters are all drawn from N(0, 1)."""
    chosen: Any = unit(unit_name)
    yield from neuron_rows(chosen.network(len(neuron), inputs, 1, init="normal", seed=seed))


@STUDY.columns
def with_pieces(tables: Tables, rows: Tables) -> Tables:
    """The share of points at which each gate is open, and the misfit of pieces to their degree and the next lower."""
    shares, pieces = [], []
    table = tables["gates"].rename(columns={"unit_name": "unit"})
    for (name, inputs), neurons in table.groupby(["unit", "inputs"], sort=False):
        x, degree = POINTS[inputs], unit(name).degree or 0
        opened = affine(neurons, x) > 0
        shares += list(opened.mean(axis=0))
        whole = [misfit(x, output(neurons, x), opened, k) for k in (degree, degree - 1)]
        pieces += [
            (name, inputs, "network", degree, len(np.unique(opened, axis=0)), *whole),
            (name, inputs, "neurons", degree, 2 * len(neurons), *neuron_misfits(neurons, x, degree)),
        ]
    columns = ["unit", "inputs", "part", "degree", "pieces", "misfit", "misfit_of_one_less"]
    return {"gates": table.assign(share_open=shares), "pieces": pd.DataFrame(pieces, columns=columns)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for row in tables["pieces"].itertuples():
        if place := PLACES.get((row.unit, row.inputs, row.part)):
            what = f"{row.part.replace('network', 'pieces')} of the random {row.unit}"
            what += " of one input" * (row.inputs == 1)
            off = {"exact": row.misfit, "lower": row.misfit_of_one_less}
            yield degree_claim(what, row.degree, **off, place=place, support={"pieces": row.pieces})
