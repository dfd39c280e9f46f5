"""User-defined units: functions of tensors and module classes, and the check that their networks map rows to rows."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed
from gatelab.feedforward.gates import Activation
from gatelab.feedforward.specification import Unit, check_width


def tensors_taken(function: Callable[..., Tensor]) -> int:
    """The number of tensors that a function takes: its positional arguments without a default."""
    if isinstance(function, nn.Module):
        function = function.forward
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # functions of torch, such as torch.sin, have no signature and take one tensor
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


class FunctionUnit(Unit):
    """A user-defined neuron: an elementwise function of q + 1 affine maps of x; the fields are those of `Unit`."""

    def __init__(self, function: Callable[..., Tensor], name: str = "") -> None:
        lines = tensors_taken(function)
        if not lines:
            raise GatelabError("a unit given as a function takes at least one tensor, the gate's Gx + g")
        if isinstance(function, nn.Module) and any(True for _ in function.parameters()):
            raise GatelabError(
                f"{type(function).__name__} has parameters, which would not be trained; give a function or a class"
            )
        kind = type(function).__name__.lower() if isinstance(function, nn.Module) else "custom"
        name = name or getattr(function, "__name__", kind)
        gate = Activation(name, function, growth=None)
        super().__init__(activation=gate, factors=lines - 1, name=name, description="given as a function")

    def neuron(self, z: Tensor, *factors: Tensor) -> Tensor:
        return self.gate.function(z, *factors)


@dataclass(frozen=True)
class ModuleUnit:
    """A user-defined class: an `nn.Module` built as `cls(width, d_in, d_out)` that maps (N, d_in) to (N, d_out).

    Attributes:
        module: the class.
        name: the attribute `name` of the class if it has one, otherwise the name of the class.
        order: the order m in RMSE ~ n^-m on smooth 1-D targets, if the class has an `order`.
        gate_power: None, since its gate is unknown.
        degree: None.
        description: a one-line description.
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
        dtype: torch.dtype | None = None,
    ) -> nn.Module:
        """The module, built under `seed` without changing torch's global generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check_seed(seed))
            try:
                return self.module(check_width(width), d_in, d_out).to(dtype or torch.float64)
            except Exception as error:  # a user's class may raise anything
                raise GatelabError(
                    f"{self.name} cannot be built as {self.name}(width, d_in, d_out) ({type(error).__name__}: {error});"
                    " give a class that can, or a function of tensors such as torch.relu"
                ) from error


AnyUnit = Unit | ModuleUnit


def neuron_slopes(unit: Unit, z: Iterable[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The hidden values of pre-activations, and their derivatives by each of these, by automatic differentiation."""
    with torch.enable_grad():
        maps = [v.detach().requires_grad_() for v in z]
        value = unit.neuron(*maps)
        # A neuron depends on its own pre-activations only: the gradient of the sum is elementwise.
        slopes = torch.autograd.grad(value.sum(), maps, materialize_grads=True)
    return value.detach(), list(slopes)


def check_rows(unit: AnyUnit, width: int, d_in: int, d_out: int) -> None:
    """Refuse a user-defined unit that does not map rows to rows, and warn if rows depend on each other."""
    if isinstance(unit, Unit) and isinstance(unit.activation, str):
        return
    x = torch.linspace(-1, 1, 6 * d_in, dtype=torch.float64).reshape(6, d_in).sin()
    with torch.random.fork_rng(devices=[]):
        net = unit.network(width, d_in, d_out)
        try:
            y = net(x)
            parts = torch.cat([net(x[:4]), net(x[4:])])
            if isinstance(unit, Unit):  # solvers start without neurons
                unit.neuron(*[x[:, :0]] * (unit.factors + 1))
            if isinstance(unit, FunctionUnit):  # and need the slopes of neurons
                z = x[:, :1].requires_grad_()
                torch.autograd.grad(unit.neuron(*[z] * (unit.factors + 1)).sum(), z)
            torch.autograd.grad(y.sum(), [p for p in net.parameters() if p.requires_grad], allow_unused=True)
            assert y.shape == (6, d_out), f"it gave {tuple(y.shape)}"
        except (TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
            raise GatelabError(
                f"a network of {unit.name!r} does not map rows (6, {d_in}) to (6, {d_out}) ({type(error).__name__}: "
                f"{error}); give a function of tensors, without numpy, with their shape and a gradient, or a class"
            ) from error
    moved = (y - parts).abs().max().item()
    if not moved <= 1e-9 * (1 + y.abs().max().item()):
        warnings.warn(
            f"the unit {unit.name!r} computes a row from the other rows of its batch, or at random: a row changes by "
            f"{moved:.2g} when it is evaluated with fewer, so that test errors are meaningless; see gl.check_unit",
            UserWarning,
            stacklevel=3,
        )
