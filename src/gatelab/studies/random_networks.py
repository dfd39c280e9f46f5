"""The random networks of two inputs in figures 1, 9, 10 and 11: values, hinges, and of what degree their pieces are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gatelab.plotting import Plane
from gatelab.studies.study import Claim, Request
from gatelab.units import Network, Unit, unit

Array = NDArray[np.float64]
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
