"""The paper's constructions: parameters in closed form, without training, and the error that theory predicts.

Knots t_i = a + i h, every gate opens to the right, d = f(a). The paper's eq. 6 is dimensionally inconsistent; the
recurrences here are those of a function that interpolates at the knots.

- MLP, order 2: the chord of each cell. RMSE ~ h^2 rms(f'') / sqrt(120).
- GLU, order 3: the parabola through both ends of a cell with f'' of its left end. RMSE ~ h^3 rms(f''') / sqrt(945/2).
- GQU, order 4: one factor follows the gate, so that each neuron adds (x - t)_+^2 (A + B (x - t)), always with real
  roots, and the network is the C1 cubic Hermite interpolant; one neuron supplies the slope at the left end, so n
  neurons make n - 1 cells. RMSE ~ h^4 rms(f'''') / (24 sqrt 630).

`embedded` writes a network of one unit as a network of another that contains it, so that a solver can start from it.
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
from gatelab.theory import interpolate
from gatelab.theory.limits import CONSTRUCTION_CONSTANTS


@dataclass(frozen=True)
class Construction(Compact):
    """A constructed `network`, its `predicted_rmse`, and the `order` in which that falls with the width.

    The predicted error is NaN for functions with a kink, a jump or a pole.
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
        unit: mlp, glu or gqu.
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
    if not isinstance(chosen, Unit) or chosen.gate_power != 1 or chosen.factors not in (0, 1, 2):
        raise GatelabError(f"there are constructions for mlp, glu and gqu, not for {chosen.name!r}")
    least, width, order = max(chosen.factors, 1), check_width(width), chosen.factors + 2
    if width < least:
        raise GatelabError(f"width is {width}; the {chosen.name} construction needs at least {least}")
    # About twenty arrays of the width: knots, values, derivatives, lines and the network.
    check_memory([(20, width)], f"a construction of {width} neurons", "give a smaller width")
    target = as_problem(f) if isinstance(f, Problem) or interval is None else as_problem(f, interval=interval)
    if target.f is None or target.interval is None:
        raise GatelabError(f"problem {target.name!r} has data but no function; a construction evaluates f at its knots")
    a, b = check_interval(target.interval if interval is None else interval)
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


def contains(unit: AnyUnit, other: AnyUnit) -> bool:
    """Whether every network of `other` is also a network of `unit` of the same width.

    Factors may be one, and may follow a relu gate: relu(z)^2 = relu(z) z, so that the GQU contains the GLU and relu3.
    Functions and classes of the user contain only themselves.
    """
    if unit == other:
        return not isinstance(unit, ModuleUnit)
    if not all(isinstance(u, Unit) and not isinstance(u, FunctionUnit) for u in (unit, other)):
        return False
    assert isinstance(unit, Unit) and isinstance(other, Unit)
    following = _following(unit, other)
    return following is not None and unit.factors >= other.factors + following


def _following(unit: Unit, other: Unit) -> int | None:
    """The number of factors that follow the gate in a network of `other`; None if the gates are unrelated."""
    if unit.gate == other.gate:
        return 0
    if unit.gate_power is None or other.gate_power is None or unit.gate_power > other.gate_power:
        return None
    return other.gate_power - unit.gate_power


@torch.no_grad()
def embedded(network: Network, unit: Unit, width: int) -> Network:
    """The same function as a network of a unit that contains the network's unit, at least as wide.

    Additional neurons are copies of the first with weight zero.
    """
    if not contains(unit, network.unit) or check_width(width) < network.width:
        raise GatelabError(
            f"a {unit.name} network of width {width} does not contain a {network.unit.name} network of width "
            f"{network.width}; give a start of a unit that is contained, with at most {width} neurons"
        )
    wider, rows = Network(unit, width, network.d_in, network.d_out), torch.arange(width)
    rows[network.width :] = 0
    following = _following(unit, network.unit) or 0
    gate, *factors = network.maps
    for (weight, bias), source in zip_longest(wider.maps, [gate, *[gate] * following, *factors]):
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
