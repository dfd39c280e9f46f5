"""What a registered unit is, in plain values: gate, factors and what theory promises, for lists that need no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gatelab.errors import GatelabError, whole_number

POWERS = {"relu": 1, "relu2": 2, "relu3": 3}
"""The k of the gates that are truncated powers relu(z)^k."""
DEGREES = {**POWERS, "leaky-relu2": 2}
"""The k of the gates that are relu(z)^k and a polynomial of degree k or less: they have the orders of relu^k."""


@dataclass(frozen=True)
class UnitSpec:
    """A registered unit: a gate times so many affine factors.

    Attributes:
        name: what the unit is called, in small letters.
        gate: the name of a gate of `gatelab.feedforward.gates`, or a function of a tensor, which is a new gate.
        factors: how many affine factors the gate is multiplied by.
        description: the formula of a neuron and what is to be known of it, in a line.
        aliases: other names that mean the same unit.

    >>> glu = UnitSpec("glu", "relu", 1, "relu(Gx+g)(Ux+u)")
    >>> glu.order, glu.parameter_count(50), UnitSpec("swiglu", "silu", 1, "silu(Gx+g)(Ux+u)").order
    (3, 251, None)
    """

    name: str
    gate: str | Callable[..., Any]
    factors: int
    description: str
    aliases: tuple[str, ...] = ()

    @property
    def order(self) -> int | None:
        """The order m in RMSE ~ n^-m on smooth 1-D targets; None where no algebraic rate is known."""
        return spline_order(DEGREES.get(self.gate_name), self.factors)

    @property
    def gate_name(self) -> str:
        """The name of the gate, which of a function is its own."""
        return getattr(self.gate, "__name__", str(self.gate))

    def parameter_count(self, width: int) -> int:
        """How many parameters a network of `width` neurons has, with one input and one output."""
        return parameter_count(self.factors, width)


def spline_order(degree: int | None, factors: int) -> int | None:
    """The order of a gate of that degree times `factors` lines: one more than the degree of its open neurons."""
    if degree is None:
        return None
    return degree + factors + 1


def parameter_count(factors: int, width: int, d_in: int = 1, d_out: int = 1, bias: bool = True) -> int:
    """P = (d_in (q+1) + d_out + (q+1)) n + d_out; without biases only the products with n remain."""
    lines, d_in, d_out = factors + 1, whole_number("d_in", d_in, 1), whole_number("d_out", d_out, 1)
    per_neuron = d_in * lines + d_out + lines * bias
    return per_neuron * check_width(width) + d_out * bias


def check_width(width: Any) -> int:
    """The width as an int, refused unless it is a whole number of neurons."""
    return whole_number("width", width, 1, of="neurons")


def check_widths(widths: Any) -> list[int]:
    """Widths as ints, from whatever can be gone through."""
    values = list(widths) if isinstance(widths, Iterable) else []
    if not values:
        raise GatelabError(f"widths is {widths!r}; give at least one number of neurons, such as [8, 16, 32]")
    return [check_width(width) for width in values]
