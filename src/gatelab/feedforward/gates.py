"""Gates: the elementwise function of a unit, and what theory needs to know of it.

`power` is the k of a truncated power relu(z)^k and None for everything else: with it a 1-D network is a spline and the
knot solver applies. `growth` is the degree in z that an open neuron approaches (1 for relu, gelu, silu; 0 for sigmoid).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.display import one_line
from gatelab.errors import unknown_name
from gatelab.feedforward.catalogue import POWERS


@dataclass(frozen=True)
class Activation:
    """A named gate.

    >>> activation("relu2")(torch.tensor([-1.0, 3.0]))
    tensor([0., 9.])
    """

    name: str
    function: Callable[[Tensor], Tensor]
    growth: int | None
    power: int | None = None
    derivative: Callable[[Tensor], Tensor] | None = None

    def __repr__(self) -> str:
        return one_line(self, self.name)

    def __call__(self, z: Tensor) -> Tensor:
        return self.function(z)

    def slope(self, z: Tensor) -> Tensor:
        """The derivative at z: in closed form where it is known, else by autodiff."""
        if self.derivative is not None:
            return self.derivative(z)
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return torch.autograd.grad(self.function(z).sum(), z)[0]


def _relu2(z: Tensor) -> Tensor:
    return torch.relu(z).square()


def _relu3(z: Tensor) -> Tensor:
    r = torch.relu(z)
    return r * r * r


def _identity(z: Tensor) -> Tensor:
    return z


def _step(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _relu2_slope(z: Tensor) -> Tensor:
    return 2 * torch.relu(z)


def _relu3_slope(z: Tensor) -> Tensor:
    return 3 * torch.relu(z).square()


def _gelu_slope(z: Tensor) -> Tensor:
    return torch.special.ndtr(z) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _silu_slope(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


def _sigmoid_slope(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 - s)


def _tanh_slope(z: Tensor) -> Tensor:
    return 1 - torch.tanh(z).square()


_ACTIVATIONS = {
    a.name: a
    for a in (
        Activation("relu", torch.relu, growth=1, power=POWERS["relu"], derivative=_step),
        Activation("relu2", _relu2, growth=2, power=POWERS["relu2"], derivative=_relu2_slope),
        Activation("relu3", _relu3, growth=3, power=POWERS["relu3"], derivative=_relu3_slope),
        Activation("gelu", functional.gelu, growth=1, derivative=_gelu_slope),
        Activation("silu", functional.silu, growth=1, derivative=_silu_slope),
        Activation("sigmoid", torch.sigmoid, growth=0, derivative=_sigmoid_slope),
        Activation("tanh", torch.tanh, growth=0, derivative=_tanh_slope),
        Activation("identity", _identity, growth=1, derivative=torch.ones_like),
    )
}


def activations() -> tuple[str, ...]:
    """The names that `activation` knows."""
    return tuple(_ACTIVATIONS)


def activation(gate: str | Activation | Callable[[Tensor], Tensor]) -> Activation:
    """The gate of that name, or a function of one tensor wrapped as one."""
    if isinstance(gate, Activation):
        return gate
    if callable(gate):
        return Activation(getattr(gate, "__name__", "custom"), gate, growth=None)
    if gate not in _ACTIVATIONS:
        raise unknown_name("activation", gate, _ACTIVATIONS)
    return _ACTIVATIONS[gate]
