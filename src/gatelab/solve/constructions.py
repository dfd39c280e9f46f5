"""The paper's constructions: parameters in closed form, without training, and the error that theory predicts.

Knots t_i = a + i h, every gate opens to the right, d = f(a); functions of three orders that interpolate at the knots:
chords (MLP), parabolas with f'' of the left end (GLU), C1 cubics (GQU), of which one neuron supplies the slope at the
left end. SwiGLU puts a neuron on each of the target's nearest poles, and the others interpolate what is left, with
gates whose poles are far away: what is left is analytic up to the next pole of the target or of a neuron's ladder.

Some units contain others (`contains`): `embedded` writes a network of one unit as a network of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from gatelab.arrays import AnyArray as Array
from gatelab.arrays import check_interval
from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, FunctionUnit, ModuleUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.memory import check_memory
from gatelab.solve.free_knots import Neurons, to_network
from gatelab.theory import green, interpolate, singularities
from gatelab.theory.limits import CONSTRUCTION_CONSTANTS

# Of a constructed smooth network: the nodes of its least squares, and the largest height of its other poles.
_NODES, _HEIGHT = 400, 2.0


@dataclass(frozen=True)
class Construction(Compact):
    """A constructed `network`, its `predicted_rmse`, and the `order` in which that falls with the width.

    The predicted error is NaN for functions with a kink, a jump or a pole, and the order 0 for a smooth gate, whose
    predicted error falls exponentially.
    """

    network: Network
    predicted_rmse: float
    order: int


def construct(
    unit: str | AnyUnit,
    f: str | Callable | Problem,
    width: int,
    interval: tuple[float, float] | None = None,
) -> Construction:
    """The constructed network for a function.

    Args:
        unit: mlp, glu, gqu or swiglu.
        f: a function, an expression in x, or a problem that has one.
        width: the number of neurons.
        interval: where f is approximated; None takes that of the problem, or -1 to 1.

    Returns:
        The network and the error that theory predicts.

    >>> construction = construct("glu", "exp(sin(3*x))", 100, (0, 3))
    >>> construction.order, f"{construction.predicted_rmse:.1e}"
    (3, '7.6e-05')
    """
    chosen = as_unit(unit)
    swiglu = chosen == as_unit("swiglu")
    if not isinstance(chosen, Unit) or (not swiglu and (chosen.gate_power != 1 or chosen.factors not in (0, 1, 2))):
        raise GatelabError(f"there are constructions for mlp, glu, gqu and swiglu, not for {chosen.name!r}")
    least, width, order = max(chosen.factors, 1), check_width(width), chosen.factors + 2
    if width < least:
        raise GatelabError(f"width is {width}; the {chosen.name} construction needs at least {least}")
    # About twenty arrays of the width: knots, values, derivatives, lines and the network.
    check_memory([(20, width)], f"a construction of {width} neurons", "give a smaller width")
    target = as_problem(f) if isinstance(f, Problem) or interval is None else as_problem(f, interval=interval)
    if target.f is None or target.interval is None:
        raise GatelabError(f"problem {target.name!r} has data but no function; a construction evaluates f at its knots")
    a, b = check_interval(target.interval if interval is None else interval)
    if swiglu:
        return _swiglu(chosen, target.f, width, (a, b))
    nodes = np.linspace(a, b, width + (order < 4))
    h = (b - a) / (len(nodes) - 1)
    smooth = interpolate(target.f, (a, b), halvings=10)
    kinked = smooth.tail > 1e-10
    if kinked:  # on short panels next to a kink, derivatives would be rounding errors
        smooth = interpolate(target.f, (a, b))
    neurons = (_mlp, _glu, _gqu)[chosen.factors](nodes, h, np.asarray(target.f(nodes), float), smooth)
    rms = np.nan if kinked else smooth.norm(order, 2.0) / (b - a) ** 0.5
    return Construction(to_network(neurons, chosen), CONSTRUCTION_CONSTANTS[order] * h**order * rms, order)


def _mlp(nodes: Array, h: float, f: Array, smooth: Any) -> Neurons:
    t, slope = nodes[:-1], np.diff(f) / h
    lines = np.stack((np.diff(slope, prepend=0.0), np.zeros_like(t)), axis=1)[:, None]
    return Neurons(t, np.ones_like(t), lines, float(f[0]))


def _glu(nodes: Array, h: float, f: Array, smooth: Any) -> Neurons:
    t = nodes[:-1]
    bend = smooth.derivative(2)(t)
    slope = np.diff(f) / h - bend * h / 2
    arriving = np.concatenate(([0.0], slope[:-1] + bend[:-1] * h))
    lines = np.stack((slope - arriving, np.diff(bend, prepend=0.0) / 2), axis=1)[:, None]
    return Neurons(t, np.ones_like(t), lines, float(f[0]))


def _gqu(nodes: Array, h: float, f: Array, smooth: Any) -> Neurons:
    t, slope, chord = nodes[:-1], smooth.derivative(1)(nodes), np.diff(f) / h
    second = (6 * chord - 4 * slope[:-1] - 2 * slope[1:]) / h
    third = 6 * (slope[:-1] + slope[1:] - 2 * chord) / h**2
    arriving = np.concatenate(([0.0], second[:-1] + third[:-1] * h))
    # The first neuron is the slope at the left end; in the others one factor follows the gate.
    knots = np.concatenate((t[:1], t))
    lines = np.zeros((len(knots), 2, 2))
    lines[0, :, 0] = 1.0, slope[0]
    lines[1:, 0, 1] = 1.0
    lines[1:, 1] = np.stack(((second - arriving) / 2, np.diff(third, prepend=0.0) / 6), axis=1)
    return Neurons(knots, np.ones_like(knots), lines, float(f[0]))


def _swiglu(unit: Unit, f: Callable, width: int, interval: tuple[float, float]) -> Construction:
    """Neurons on the nearest poles, as many as give the least predicted error, and least squares for the others.

    silu has the residue iπ at iπ, so D silu(Gx + g)(Ux + u) has iπ (U p + u) D / G at its pole p.
    """
    low, high = interval
    half, middle = (high - low) / 2, (high + low) / 2
    found = singularities(f, interval)
    pairs = [(p, r) for p, r in zip(found.poles, found.residues, strict=True) if p.imag > 0]
    outer = [float(green(p, interval)) for p, _ in pairs] + [float(green(middle + _HEIGHT * half * 1j, interval))]
    ladders = [float(green(complex(p.real, 3 * p.imag), interval)) for p, _ in pairs]
    gammas = [min([outer[k], *ladders[:k]]) for k in range(min(len(pairs), width) + 1)]
    exponents = [gamma * (2 * (width - k) + 1) for k, gamma in enumerate(gammas)]
    k = int(np.argmax(exponents))
    x = middle + half * np.cos((np.arange(_NODES) + 0.5) * np.pi / _NODES)
    rest = width - k
    # As high as what limits the error: gates that are nearly straight would be too similar to be told apart.
    G = np.full(width, np.pi / (min(_HEIGHT, np.sinh(gammas[k])) * half))
    t = middle + half * np.cos((np.arange(width) + 0.5 - k) * np.pi / max(rest, 1))
    lines = np.zeros((width, 2))  # u and U
    for i, (pole, residue) in enumerate(pairs[:k]):
        t[i], G[i] = pole.real, np.pi / pole.imag
        factor = 2 * residue * G[i] / (2j * np.pi)
        U = factor.imag / pole.imag
        lines[i] = factor.real - U * pole.real, U
    gate = unit.gate(torch.from_numpy(G * (x[:, None] - t))).numpy()
    left = np.asarray(f(x), float) - (gate[:, :k] * (lines[:k, 0] + x[:, None] * lines[:k, 1])).sum(axis=1)
    far = gate[:, k:]
    columns = np.concatenate([far, far * ((x - middle) / half)[:, None], np.ones((len(x), 1))], axis=1)
    c = np.linalg.lstsq(columns, left, rcond=1e-14)[0]
    lines[k:] = np.stack([c[:rest] - c[rest:-1] * middle / half, c[rest:-1] / half], axis=1)
    net = Network(unit, width)
    net.fill(G=G, g=-G * t, U=lines[:, 1], u=lines[:, 0], D=np.ones(width), d=c[-1:])
    return Construction(net, float(np.abs(left - left.mean()).max() * np.exp(-exponents[k])), 0)


def contains(unit: AnyUnit, other: AnyUnit) -> bool:
    """Whether every network of `other` is one of `unit` of the same width: factors may be one, or follow a gate."""
    if unit == other:
        return not isinstance(unit, ModuleUnit)
    if not all(isinstance(u, Unit) and not isinstance(u, FunctionUnit) for u in (unit, other)):
        return False
    assert isinstance(unit, Unit) and isinstance(other, Unit)
    related = unit.gate == other.gate or (unit.gate_power or np.inf) <= (other.gate_power or 0)
    return related and unit.factors >= other.factors + _following(unit, other)


def _following(unit: Unit, other: Unit) -> int:
    """The number of factors that follow the gate in a network of `other`: powers of relu that the gate lacks."""
    return (other.gate_power or 0) - (unit.gate_power or 0)


@torch.no_grad()
def embedded(network: Network, unit: Unit, width: int) -> Network:
    """The same function in a unit that contains the network's; additional neurons have weight zero."""
    if not contains(unit, network.unit) or check_width(width) < network.width:
        raise GatelabError(
            f"a {unit.name} network of width {width} does not contain a {network.unit.name} network of width "
            f"{network.width}; give a start of a unit that is contained, with at most {width} neurons"
        )
    wider, rows = Network(unit, width, network.d_in, network.d_out), torch.arange(width)
    rows[network.width :] = 0
    gate, *factors = network.maps
    for (weight, bias), source in zip_longest(wider.maps, [gate, *[gate] * _following(unit, network.unit), *factors]):
        if source is None:
            bias.fill_(1.0)
        else:
            weight.copy_(source[0][rows])
            bias.copy_(source[1][rows])
    wider.D[:, : network.width] = network.D
    wider.d.copy_(network.d)
    return wider


def start_network(start: object, unit: Unit, width: int, sizes: tuple[int, int]) -> Network:
    """The network that a solver starts from, as a network of the unit that is fitted."""
    network = getattr(start, "network", start)
    if not isinstance(network, Network):
        raise GatelabError(f"start is {type(start).__name__}; give a network of a unit, or a fit that has one")
    if (network.d_in, network.d_out) != sizes:
        raise GatelabError(
            f"the start has {network.d_in} inputs and {network.d_out} outputs, the problem {sizes[0]} and {sizes[1]}; "
            "give a network that was fitted to the same rows"
        )
    if network.width > width:
        raise GatelabError(f"the start has {network.width} neurons; give one with at most {width}")
    return embedded(network, unit, network.width)
