"""Gates: the elementwise functions of units, with the properties that theory uses.

A 1-D network with a truncated power relu(z)^k is a spline, to which the knot solver applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.display import one_line
from gatelab.errors import unknown_name
from gatelab.feedforward.named import units

LEAK = 0.5  # the slope of leaky relu below 0 in language-model speed runs, which use its square


@dataclass(frozen=True)
class Activation:
    """A named gate.

    Attributes:
        name: its name.
        function: the elementwise function.
        growth: the degree of z that an open neuron approaches, None if it is not known.
        power: the k of a truncated power relu(z)^k, None for all other gates.
        derivative: the slope in closed form, None for autodiff.
        degree: k if the gate is a sum of relu(z)^k and polynomials of degree k or less: networks are then splines as
            smooth as those of relu^k. For a truncated power it is the power.

    >>> activation("relu2")(torch.tensor([-1.0, 3.0]))
    tensor([0., 9.])
    """

    name: str
    function: Callable[[Tensor], Tensor]
    growth: int | None
    power: int | None = None
    derivative: Callable[[Tensor], Tensor] | None = None
    degree: int | None = None

    def __post_init__(self) -> None:
        if self.degree is None:
            object.__setattr__(self, "degree", self.power)

    def __repr__(self) -> str:
        return one_line(self, self.name)

    def __call__(self, z: Tensor) -> Tensor:
        return self.function(z)

    def slope(self, z: Tensor) -> Tensor:
        """The derivative at z, in closed form if it is known, otherwise by autodiff."""
        if self.derivative is not None:
            return self.derivative(z)
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return torch.autograd.grad(self.function(z).sum(), z)[0]


def relu2(z: Tensor) -> Tensor:
    return torch.relu(z).square()


def relu3(z: Tensor) -> Tensor:
    r = torch.relu(z)
    return r * r * r


def leaky_relu2(z: Tensor) -> Tensor:
    """leaky_relu(z, 1/2)^2 = 3/4 relu(z)^2 + z^2 / 4."""
    return functional.leaky_relu(z, LEAK).square()


def identity(z: Tensor) -> Tensor:
    return z


def gelu_slope(z: Tensor) -> Tensor:
    return torch.special.ndtr(z) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def silu_slope(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


GATES = {
    gate.name: gate
    for gate in (
        Activation("relu", torch.relu, growth=1, power=1, derivative=lambda z: (z > 0).to(z.dtype)),
        Activation("relu2", relu2, growth=2, power=2, derivative=lambda z: 2 * torch.relu(z)),
        Activation("relu3", relu3, growth=3, power=3, derivative=lambda z: 3 * torch.relu(z).square()),
        Activation(
            "leaky-relu2", leaky_relu2, 2, derivative=lambda z: torch.where(z > 0, 2 * z, 2 * LEAK**2 * z), degree=2
        ),
        Activation("gelu", functional.gelu, growth=1, derivative=gelu_slope),
        Activation("silu", functional.silu, growth=1, derivative=silu_slope),
        Activation("sigmoid", torch.sigmoid, growth=0, derivative=lambda z: torch.sigmoid(z) * (1 - torch.sigmoid(z))),
        Activation("tanh", torch.tanh, growth=0, derivative=lambda z: 1 - torch.tanh(z).square()),
        Activation("identity", identity, growth=1, derivative=torch.ones_like),
        # A registered unit may define its own gate.
        *(Activation(f.__name__, f, None) for f in [u.activation for u in units()] if isinstance(f, FunctionType)),
    )
}


def activations() -> tuple[str, ...]:
    """The names of the gates.

    Returns:
        Every name that `activation` knows.

    >>> activations()[:3]
    ('relu', 'relu2', 'relu3')
    """
    return tuple(GATES)


def activation(gate: str | Activation | Callable[[Tensor], Tensor]) -> Activation:
    """Find a gate by name, or wrap a function as one.

    Args:
        gate: a name of `activations`, a gate, or an elementwise function of one tensor.

    Returns:
        The gate; that of a function has neither `growth` nor `power`.

    >>> activation("relu").power, activation(torch.sin).name
    (1, 'sin')
    """
    if isinstance(gate, Activation):
        return gate
    if callable(gate):
        return Activation(getattr(gate, "__name__", "custom"), gate, growth=None)
    if not isinstance(gate, str) or gate not in GATES:
        raise unknown_name("activation", gate, GATES)
    return GATES[gate]
