"""The product unit of order q: what gatelab studies.

    y(x) = d + D [ act(Gx + g) * (U1 x + u1) * ... * (Uq x + uq) ]

q = 0 is the MLP, q = 1 the GLU, q = 2 the GQU. A unit is a frozen value: it knows its formula, its parameter count and
what theory promises; `network` makes the trainable module.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.feedforward.gates import GATES, Activation, activation
from gatelab.feedforward.network import Network, initialise
from gatelab.feedforward.specification import check_width, parameter_count, spline_order


@dataclass(frozen=True)
class Unit:
    """A gate times affine factors.

    Attributes:
        activation: the gate, by name or as a function of one tensor; it is kept as an `Activation`.
        factors: how many affine factors the gate is multiplied by.
        name: what the unit is called; made of the gate and the factors where none is given.
        description: a line on what it is, which does not count when units are compared.

    >>> Unit(activation="relu", factors=1).parameter_count(50)
    251
    >>> Unit(activation=torch.sin, factors=2, name="sin-gated").order is None
    True
    """

    activation: str | Activation | Callable[[Tensor], Tensor] = "relu"
    factors: int = 0
    name: str = ""
    description: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.gate.name} times {counted(self.factors, 'factor')}")

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", whole_number("factors", self.factors, 0))
        gate = activation(self.activation)
        object.__setattr__(self, "activation", gate)
        if not self.name:
            times = f"*{self.factors}" * (self.factors > 0)
            object.__setattr__(self, "name", f"{gate.name}{times}")

    @property
    def gate(self) -> Activation:
        return activation(self.activation)

    @property
    def gate_power(self) -> int | None:
        """k where the gate is relu^k, else None."""
        return self.gate.power

    @property
    def degree(self) -> int | None:
        """The polynomial degree of an open neuron of a relu-power gate, else None."""
        if self.gate_power is None:
            return None
        return self.gate_power + self.factors

    @property
    def order(self) -> int | None:
        """The order m in RMSE ~ n^-m on smooth 1-D targets; None where no algebraic rate is known."""
        return spline_order(self.gate.degree, self.factors)

    def neuron(self, z: Tensor, *factors: Tensor) -> Tensor:
        """The hidden value from the gate's pre-activation and those of the factors."""
        value = self.gate(z)
        for v in factors:
            value = value * v
        return value

    def parameter_count(self, width: int, d_in: int = 1, d_out: int = 1, bias: bool = True) -> int:
        """P = (d_in (q+1) + d_out + (q+1)) n + d_out; without biases only the products with n remain."""
        return parameter_count(self.factors, width, d_in, d_out, bias)

    def network(
        self,
        width: int,
        d_in: int = 1,
        d_out: int = 1,
        *,
        seed: int = 0,
        init: str = "lecun",
        interval: tuple[float, float] = (-1.0, 1.0),
        dtype: torch.dtype = torch.float64,
    ) -> Network:
        """A network of `width` neurons, initialised from `seed`; see `gatelab.feedforward.network` for the ways."""
        net = Network(self, check_width(width), d_in, d_out, dtype)
        initialise(net, init, seed=seed, interval=interval)
        return net


def tensors_taken(function: Callable[..., Tensor]) -> int:
    """How many tensors a function needs: its positional arguments without a default."""
    if isinstance(function, nn.Module):
        function = function.forward
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # torch's own functions, such as torch.sin, do not tell: they take one
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


class FunctionUnit(Unit):
    """A user's own neuron: any elementwise function of q + 1 affine maps of x; the fields are those of `Unit`."""

    def __init__(self, function: Callable[..., Tensor], name: str = "") -> None:
        lines = tensors_taken(function)
        if not lines:
            raise GatelabError("a unit given as a function takes at least one tensor, the gate's Gx + g")
        if isinstance(function, nn.Module) and any(True for _ in function.parameters()):
            raise GatelabError(
                f"{type(function).__name__} has parameters of its own, which would not be trained; give a function or "
                "module without, or a class that is built as cls(width, d_in, d_out)"
            )
        kind = type(function).__name__.lower() if isinstance(function, nn.Module) else "custom"
        name = name or getattr(function, "__name__", kind)
        gate = Activation(name, function, growth=None)
        super().__init__(activation=gate, factors=lines - 1, name=name, description="given as a function")

    def neuron(self, z: Tensor, *factors: Tensor) -> Tensor:
        return self.gate.function(z, *factors)


@dataclass(frozen=True)
class ModuleUnit:
    """A user's own class: any `nn.Module` built as `cls(width, d_in, d_out)` that maps (N, d_in) to (N, d_out).

    Attributes:
        module: the class.
        name: what it is called; the class may have a `name`, and else its own is taken.
        order: the order m in RMSE ~ n^-m on smooth 1-D targets, if the class has an `order`.
        gate_power: None, as nothing is known of its gate.
        degree: None, likewise.
        description: a line on what it is.
    """

    module: Callable[..., nn.Module]
    name: str = ""
    order: int | None = None
    gate_power: int | None = None
    degree: int | None = None
    description: str = "given as a class"

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.description}")

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.module, "name", None) or self.module.__name__)
        declared = getattr(self.module, "order", None)
        if isinstance(declared, int):
            object.__setattr__(self, "order", declared)

    def parameter_count(self, width: int, d_in: int = 1, d_out: int = 1) -> int:
        net = self.network(check_width(width), d_in, d_out)
        return sum(p.numel() for p in net.parameters() if p.requires_grad)

    def network(
        self,
        width: int,
        d_in: int = 1,
        d_out: int = 1,
        *,
        seed: int = 0,
        init: str = "own",
        interval: tuple[float, float] = (-1.0, 1.0),
        dtype: torch.dtype = torch.float64,
    ) -> nn.Module:
        """The module, built under `seed` without disturbing torch's global generator; its own initialisation."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check_seed(seed))
            try:
                return self.module(check_width(width), d_in, d_out).to(dtype)
            except Exception as error:  # a user's class may raise anything
                raise GatelabError(
                    f"{self.name} cannot be built as {self.name}(width, d_in, d_out) ({type(error).__name__}: {error});"
                    " give a class that can, or a function of tensors such as torch.relu"
                ) from error


AnyUnit = Unit | ModuleUnit


def check_rows(unit: AnyUnit, width: int, d_in: int, d_out: int) -> None:
    """Refuse a user's own unit that does not map rows to rows, and warn where rows depend on each other."""
    if isinstance(unit, Unit) and unit.gate == GATES.get(unit.gate.name):
        return
    x = torch.linspace(-1, 1, 6 * d_in, dtype=torch.float64).reshape(6, d_in).sin()
    with torch.random.fork_rng(devices=[]):
        net = unit.network(width, d_in, d_out)
        try:
            y = net(x)
            parts = torch.cat([net(x[:4]), net(x[4:])])
            if isinstance(unit, Unit):  # solvers begin without neurons
                unit.neuron(*[x[:, :0]] * (unit.factors + 1))
            if isinstance(unit, FunctionUnit):  # and ask for the slopes of neurons
                z = x[:, :1].requires_grad_()
                torch.autograd.grad(unit.neuron(*[z] * (unit.factors + 1)).sum(), z)
            torch.autograd.grad(y.sum(), [p for p in net.parameters() if p.requires_grad], allow_unused=True)
            assert y.shape == (6, d_out), f"it gave {tuple(y.shape)}"
        except (TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
            raise GatelabError(
                f"a network of {unit.name!r} does not map rows (6, {d_in}) to (6, {d_out}) ({type(error).__name__}: "
                f"{error}); give a function of torch tensors, without numpy, that has their shape and a gradient, or a "
                "class whose modules map (N, d_in) to (N, d_out)"
            ) from error
    moved = (y - parts).abs().max().item()
    if not moved <= 1e-9 * (1 + y.abs().max().item()):
        warnings.warn(
            f"the unit {unit.name!r} computes a row from the other rows of its batch, or at random: a row moves by "
            f"{moved:.2g} when it is evaluated with fewer, so that errors on other rows say nothing; see gl.check_unit",
            UserWarning,
            stacklevel=3,
        )
