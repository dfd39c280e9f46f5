"""The product unit of order q. This module does not import torch, so that lists of units are fast.

    y(x) = d + D [ act(Gx + g) * (U1 x + u1) * ... * (Uq x + uq) ]

q = 0 is the MLP, q = 1 the GLU, q = 2 the GQU (gated quadratic unit). A unit is a frozen value with its formula, its
parameter count and its order in theory; `network` makes the trainable module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, whole_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gatelab.feedforward.gates import Activation
    from gatelab.feedforward.network import Network

POWERS = {"relu": 1, "relu2": 2, "relu3": 3}
"""The exponents k of the gates relu(z)^k."""
DEGREES = {**POWERS, "leaky-relu2": 2, **dict.fromkeys(("gelu", "silu", "sigmoid", "tanh", "identity"))}
"""Every gate, with k if it is a sum of relu(z)^k and a polynomial of degree k or less, otherwise None."""


@dataclass(frozen=True)
class Unit:
    """A gate times affine factors.

    Attributes:
        activation: the gate by name, as a function of one tensor or as an `Activation`; `gate` is the `Activation`.
        factors: the number of affine factors.
        name: the unit's name, by default made of the gate and the number of factors.
        description: a one-line description, ignored when units are compared.
        aliases: other names of a registered unit.

    >>> glu = Unit(activation="relu", factors=1)
    >>> glu.parameter_count(50), glu.order, Unit("silu", 1).order
    (251, 3, None)
    """

    activation: str | Activation | Callable[[Tensor], Tensor] = "relu"
    factors: int = 0
    name: str = ""
    description: str = field(default="", compare=False)
    aliases: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.gate.name} times {counted(self.factors, 'factor')}")

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", whole_number("factors", self.factors, 0))
        # Torch is imported only for activations other than gate names and functions of the registered units.
        plain = isinstance(self.activation, str) and self.activation in DEGREES
        if not plain and not isinstance(self.activation, FunctionType):
            from gatelab.feedforward.gates import GATES

            known = self.gate == GATES.get(self.gate.name)
            object.__setattr__(self, "activation", self.gate.name if known else self.gate)
        if not self.name:
            gate = self.activation if isinstance(self.activation, str) else self.gate.name
            object.__setattr__(self, "name", gate + f"*{self.factors}" * (self.factors > 0))

    @property
    def gate(self) -> Activation:
        from gatelab.feedforward.gates import activation

        return activation(self.activation)

    @property
    def gate_power(self) -> int | None:
        """k if the gate is relu^k, otherwise None."""
        return self.gate.power

    @property
    def degree(self) -> int | None:
        """The polynomial degree of an open neuron if the gate is relu^k, otherwise None."""
        power = self.gate_power
        return None if power is None else power + self.factors

    @property
    def order(self) -> int | None:
        """The order m in RMSE ~ n^-m on smooth 1-D targets; None if no algebraic rate is known."""
        if isinstance(self.activation, str) and self.activation in DEGREES:
            degree = DEGREES[self.activation]
        else:
            degree = getattr(self.activation, "degree", None)
        return None if degree is None else degree + self.factors + 1

    def neuron(self, z: Tensor, *factors: Tensor) -> Tensor:
        """The hidden value from the pre-activations of the gate and of the factors."""
        value = self.gate(z)
        for v in factors:
            value = value * v
        return value

    def parameter_count(self, width: int, d_in: int = 1, d_out: int = 1, bias: bool = True) -> int:
        """P = (d_in (q+1) + d_out + (q+1)) n + d_out; without biases only the products with n remain."""
        lines, d_in, d_out = self.factors + 1, whole_number("d_in", d_in, 1), whole_number("d_out", d_out, 1)
        return (d_in * lines + d_out + lines * bias) * check_width(width) + d_out * bias

    def network(
        self,
        width: int,
        d_in: int = 1,
        d_out: int = 1,
        *,
        seed: int = 0,
        init: str = "lecun",
        interval: tuple[float, float] = (-1.0, 1.0),
        dtype: torch.dtype | None = None,
    ) -> Network:
        """A network of `width` neurons, initialized with `seed` as `gatelab.feedforward.network` describes."""
        from gatelab.feedforward.network import Network, initialize

        net = Network(self, check_width(width), d_in, d_out, dtype)
        initialize(net, init, seed=seed, interval=interval)
        return net


def check_width(width: Any) -> int:
    """The width as an int of 1 or more."""
    return whole_number("width", width, 1, of="neurons")


def check_widths(widths: Any) -> list[int]:
    """Widths as a list of ints."""
    values = list(widths) if isinstance(widths, Iterable) else []
    if not values:
        raise GatelabError(f"widths is {widths!r}; give at least one number of neurons, such as [8, 16, 32]")
    return [check_width(width) for width in values]
