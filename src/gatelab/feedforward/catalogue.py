"""The registered units as plain values: gate, factors and what theory promises, for lists that need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatelab.errors import GatelabError, unknown_name

POWERS = {"relu": 1, "relu2": 2, "relu3": 3}
"""The k of the gates that are truncated powers relu(z)^k."""
ALIASES = {"reglu": "glu", "relu": "mlp", "relu^2": "relu2", "relu^3": "relu3"}


@dataclass(frozen=True)
class UnitSpec:
    """A registered unit: its name, its gate times so many affine factors, and what it is.

    >>> CATALOGUE["gqu"].order, CATALOGUE["gqu"].parameter_count(50), CATALOGUE["swiglu"].order
    (4, 351, None)
    """

    name: str
    gate: str
    factors: int
    description: str

    @property
    def order(self) -> int | None:
        """The order m in RMSE ~ n^-m on smooth 1-D targets; None where no algebraic rate is known."""
        return spline_order(POWERS.get(self.gate), self.factors)

    def parameter_count(self, width: int) -> int:
        """How many parameters a network of `width` neurons has, with one input and one output."""
        return parameter_count(self.factors, width)


CATALOGUE = {
    spec.name: spec
    for spec in (
        UnitSpec("mlp", "relu", 0, "relu(Gx+g): piecewise linear, order 2"),
        UnitSpec("relu2", "relu2", 0, "relu(Gx+g)^2: C1 quadratic spline, order 3 at 3n+1 parameters"),
        UnitSpec("relu3", "relu3", 0, "relu(Gx+g)^3: C2 cubic spline, order 4 at 3n+1 parameters"),
        UnitSpec("glu", "relu", 1, "relu(Gx+g)(Ux+u): the paper's GLU (ReGLU), C0 quadratic, order 3"),
        UnitSpec("gqu", "relu", 2, "relu(Gx+g)(Ux+u)(Qx+q): the paper's Gated Quadratic Unit, order 4"),
        UnitSpec("geglu", "gelu", 1, "gelu(Gx+g)(Ux+u): the block of Gemma, T5 v1.1"),
        UnitSpec("swiglu", "silu", 1, "silu(Gx+g)(Ux+u): the block of Llama, Qwen, Mistral"),
        UnitSpec("sigmoid-glu", "sigmoid", 1, "sigmoid(Gx+g)(Ux+u): the first GLU (Dauphin et al. 2017)"),
        UnitSpec("bilinear", "identity", 1, "(Gx+g)(Ux+u): no gate, a quadratic form"),
        UnitSpec("gelu", "gelu", 0, "gelu(Gx+g)"),
        UnitSpec("silu", "silu", 0, "silu(Gx+g)"),
    )
}


def unit_name(name: str) -> str:
    """The name under which a unit is registered, whatever its case and whichever of its names is given.

    >>> unit_name("ReGLU")
    'glu'
    """
    own = ALIASES.get(name.lower(), name.lower())
    if own not in CATALOGUE:
        raise unknown_name("unit", name, (*CATALOGUE, *ALIASES))
    return own


def spline_order(power: int | None, factors: int) -> int | None:
    """The order of a gate relu^power times `factors` lines: one more than the degree of its open neurons."""
    return None if power is None else power + factors + 1


def parameter_count(factors: int, width: int, d_in: int = 1, d_out: int = 1, bias: bool = True) -> int:
    """P = (d_in (q+1) + d_out + (q+1)) n + d_out; without biases only the products with n remain."""
    lines = factors + 1
    per_neuron = d_in * lines + d_out + lines * bias
    return per_neuron * check_width(width) + d_out * bias


def check_width(width: Any) -> int:
    """The width as an int, refused unless it is a whole number of neurons."""
    if isinstance(width, bool) or not hasattr(width, "__index__") or int(width) < 1:
        raise GatelabError(f"width is {width!r}; give a whole number of neurons, 1 or more")
    return int(width)
