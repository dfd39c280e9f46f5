"""Feed-forward blocks of a given model replaced: their activation, or the whole map; and what flows through them.

    x  ->  W2 act(W1 x + b1) + b2        replace_activation: another act
                                         replace_map: another function of x, such as W2 Phi(W1) Psi(x) + b2

Models are those of Transformers that are built as BERT is (`intermediate.dense`, `output.dense`) or as GPT-2 is
(`mlp.c_fc`, `mlp.c_proj`), and gatelab's own GPT-2 and ViT with a plain unit, whose biases are 0. The given model stays
as it was: every function gives a changed copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError
from gatelab.feedforward import FeedForward, Unit
from gatelab.models.block import TransformerBlock

Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Block:
    """One feed-forward block: W1 (n, d), b1 (n,), W2 (d, n), b2 (d,), and the name of the layer that holds it."""

    layer: str
    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor
    activation: Elementwise

    def __repr__(self) -> str:
        return one_line(self, f"{self.layer}: {self.W1.shape[0]} neurons, d = {self.W1.shape[1]}")

    def before(self, x: Tensor) -> Tensor:
        """The pre-activations z = W1 x + b1."""
        return functional.linear(x, self.W1, self.b1)

    def after(self, values: Tensor) -> Tensor:
        """W2 values + b2."""
        return functional.linear(values, self.W2, self.b2)

    def __call__(self, x: Tensor) -> Tensor:
        return self.after(self.activation(self.before(x)))


@dataclass(frozen=True, eq=False)
class Trace:
    """What went into each feed-forward block and what came out of the layer around it, (..., d) a layer."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.inputs), 'layer')}")


class Pointwise(nn.Module):
    """A function of one tensor, entry by entry, where a model expects a module."""

    def __init__(self, function: Elementwise) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        return self.function(z)


class LinearMap(nn.Module):
    """x (..., d) -> real(Psi([x, 1]) A^T) + b2: a whole block as one product of a matrix and features of x.

    >>> block = LinearMap(lambda rows: rows, torch.tensor([[2.0, 1.0, 5.0]]), torch.zeros(1))
    >>> block(torch.tensor([1.0, 1.0]))
    tensor([8.])
    """

    A: Tensor
    b2: Tensor

    def __init__(self, psi: Elementwise, A: Tensor, b2: Tensor) -> None:
        super().__init__()
        self.psi = psi
        self.register_buffer("A", A.detach().clone())
        self.register_buffer("b2", b2.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.cat([x, x.new_ones((*x.shape[:-1], 1))], dim=-1)
        values = self.psi(rows) @ self.A.mT
        if values.is_complex():
            values = values.real
        return values + self.b2


class BlockMaps(Protocol):
    """What `gatelab.linearization` makes: act(w.x) ~ Phi(w) . Psi(x)."""

    def phi(self, W: Tensor, /) -> Tensor: ...

    def psi(self, X: Tensor, /) -> Tensor: ...


def folded(block: Block, maps: BlockMaps) -> LinearMap:
    """The whole block by maps of d + 1 inputs, the last always 1: A = W2 Phi([W1, b1]), worked out in float64.

    The hidden layer is gone: m features times d outputs are left, whatever the width was.

    Args:
        block: the block, as `blocks` gives it.
        maps: Phi and Psi, as `gatelab.linearize` makes them.

    Returns:
        A module that maps (..., d) to (..., d).

    >>> from gatelab.models import GPT2
    >>> block = blocks(GPT2("tiny", lambda z: z))[0]
    >>> class Same:
    ...     phi = psi = staticmethod(lambda rows: rows)
    >>> x = torch.randn(5, 32)
    >>> bool(torch.allclose(folded(block, Same())(x), block(x), atol=1e-6))
    True
    """
    rows = torch.cat([block.W1, block.b1[:, None]], dim=1).double()
    phi = maps.phi(rows)
    A = block.W2.to(phi.dtype) @ phi
    dtype = block.W2.dtype
    if A.is_complex():
        dtype = dtype.to_complex()
    return LinearMap(maps.psi, A.to(dtype), block.b2)


def blocks(model: nn.Module) -> tuple[Block, ...]:
    """The feed-forward blocks of a model.

    Args:
        model: a model of Transformers built as BERT or GPT-2 are, or gatelab's GPT2 or ViT.

    Returns:
        A `Block` for each layer, in their order.

    >>> from gatelab.models import GPT2
    >>> [tuple(b.W1.shape) for b in blocks(GPT2("tiny", "gelu"))]
    [(96, 32), (96, 32)]
    """
    return tuple(layer.read() for layer in layers_of(model))


def replace_activation(model: nn.Module, activation: Any) -> nn.Module:
    """A copy of the model with another activation.

    Args:
        model: the model, which stays as it was.
        activation: a function of one tensor, a module, or what `gatelab.linearize` makes of a polynomial; or
            {layer: activation}, for these layers alone.

    Returns:
        The changed copy.

    >>> from gatelab.models import GPT2
    >>> model = GPT2("tiny", "gelu")
    >>> changed = replace_activation(model, {1: torch.tanh})
    >>> [b.activation(torch.tensor(-1.0)).item() < -0.5 for b in blocks(changed)]
    [False, True]
    """
    if isinstance(activation, Mapping):
        by_layer = {i: pointwise(function) for i, function in activation.items()}
    else:
        by_layer = dict.fromkeys(range(len(layers_of(model))), pointwise(activation))
    return changed(model, by_layer, Layer.put_activation)


def replace_map(model: nn.Module, maps: Mapping[int, nn.Module]) -> nn.Module:
    """A copy of the model with other maps for whole blocks; dropout stays.

    Args:
        model: the model, which stays as it was.
        maps: by the number of a layer, the module that it computes instead of W2 act(W1 x + b1) + b2.

    Returns:
        The changed copy.
    """
    for i, module in dict(maps).items():
        if not isinstance(module, nn.Module):
            raise GatelabError(f"the map of layer {i} is a {type(module).__name__}; give a module, such as LinearMap")
    return changed(model, dict(maps), Layer.put_map)


@torch.no_grad()
def trace(model: nn.Module, run: Callable[[nn.Module], Any]) -> Trace:
    """What flows through every feed-forward block.

    Args:
        model: the model.
        run: a function that calls the model it is given once.

    Returns:
        A `Trace` with the input of every block and the output of the layer around it.

    >>> from gatelab.models import GPT2
    >>> flow = trace(GPT2("tiny", "gelu"), lambda model: model(torch.arange(8)[None]))
    >>> [tuple(x.shape) for x in flow.inputs]
    [(1, 8, 32), (1, 8, 32)]
    """
    layers = layers_of(model)
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    hooks = []
    for i, layer in enumerate(layers):

        def enter(_: nn.Module, arguments: tuple[Any, ...], i: int = i) -> None:
            inputs[i] = arguments[0].detach()

        def leave(_: nn.Module, __: Any, result: Any, i: int = i) -> None:
            if isinstance(result, tuple):
                result = result[0]
            outputs[i] = result.detach()

        hooks += [layer.entrance.register_forward_pre_hook(enter), layer.module.register_forward_hook(leave)]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    if len(outputs) < len(layers):
        raise GatelabError(f"{len(outputs)} of {len(layers)} layers were called; give a function that calls the model")
    return Trace(*(tuple(rows[i] for i in range(len(layers))) for rows in (inputs, outputs)))


# ---- the three ways in which models hold a block


class Replaced(nn.Module):
    """A map that stands for a whole block, and the dropout that the block had."""

    def __init__(self, function: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.made, self.dropout = function, dropout  # names that saved weights have

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.dropout(self.made(hidden_states))


ENTRANCE = {"own": "feed_forward", "gpt2": "mlp", "bert": "intermediate"}  # is called with the input of the block


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer that holds a feed-forward block: its name in the model, the module, and which of the three ways it is."""

    name: str
    module: Any
    kind: str

    @property
    def entrance(self) -> nn.Module:
        """The module that is called with the input of the block."""
        return getattr(self.module, ENTRANCE[self.kind])

    def require_weights(self) -> None:
        """Refuse a layer whose whole map was replaced."""
        if isinstance(self.entrance, Replaced):
            raise GatelabError(
                f"the map of {self.name} was replaced before and has no weights left; give the model as it was"
            )

    def read(self) -> Block:
        """The block."""
        self.require_weights()
        if self.kind == "own":
            feed = self.module.feed_forward
            weights = feed.G, feed.g, feed.D, feed.d, feed.unit.gate
        elif self.kind == "gpt2":
            mlp = self.module.mlp  # its Conv1D keeps weights as (inputs, outputs)
            weights = mlp.c_fc.weight.T, mlp.c_fc.bias, mlp.c_proj.weight.T, mlp.c_proj.bias, mlp.act
        else:
            first, last = self.module.intermediate.dense, self.module.output.dense
            gate = self.module.intermediate.intermediate_act_fn
            weights = first.weight, first.bias, last.weight, last.bias, gate
        W1, b1, W2, b2, activation = weights
        if b1 is None:
            b1 = W1.new_zeros(len(W1))
        if b2 is None:
            b2 = W2.new_zeros(len(W2))
        return Block(self.name, W1.detach(), b1.detach(), W2.detach(), b2.detach(), activation)

    def put_activation(self, activation: Elementwise) -> None:
        """Give the block another activation."""
        self.require_weights()
        if self.kind == "own":
            self.module.feed_forward.unit = Unit(activation=activation)
            return
        module = activation
        if not isinstance(activation, nn.Module):
            module = Pointwise(activation)
        if self.kind == "gpt2":
            self.module.mlp.act = module
        else:
            self.module.intermediate.intermediate_act_fn = module

    def put_map(self, module: nn.Module) -> None:
        """Put another map in the place of the block."""
        self.require_weights()
        if self.kind == "bert":
            # The second part keeps its dropout, its residual and its norm.
            self.module.intermediate = Replaced(module, nn.Identity())
            self.module.output.dense = nn.Identity()
        elif self.kind == "gpt2":
            self.module.mlp = Replaced(module, self.module.mlp.dropout)
        else:
            self.module.feed_forward = Replaced(module, nn.Identity())


def kind_of(layer: nn.Module) -> str | None:
    """How a layer holds a feed-forward block; None where it holds none that can be replaced."""
    if isinstance(layer, TransformerBlock):
        feed = layer.feed_forward
        if isinstance(feed, Replaced) or (isinstance(feed, FeedForward) and feed.unit.factors == 0):
            return "own"
        return None
    inner, outer, mlp = (getattr(layer, name, None) for name in ("intermediate", "output", "mlp"))
    if hasattr(outer, "dense") and (isinstance(inner, Replaced) or hasattr(inner, "intermediate_act_fn")):
        return "bert"
    if isinstance(mlp, Replaced) or (hasattr(mlp, "c_fc") and hasattr(mlp, "c_proj") and hasattr(mlp, "act")):
        return "gpt2"
    return None


def layers_of(model: nn.Module) -> list[Layer]:
    """The layers of a model that hold a feed-forward block, in their order."""
    kinds = ((name, module, kind_of(module)) for name, module in model.named_modules())
    layers = [Layer(name, module, kind) for name, module, kind in kinds if kind is not None]
    if not layers:
        raise GatelabError(
            f"{type(model).__name__} has no feed-forward block W2 act(W1 x + b1) + b2 that can be replaced; give a "
            "model of Transformers built as BERT or GPT-2 are, or gatelab's GPT2 or ViT with a unit without factors"
        )
    return layers


def changed(model: nn.Module, by_layer: Mapping[int, Any], put: Callable[[Layer, Any], None]) -> nn.Module:
    """A copy of the model in which something else was put into some layers, by their numbers."""
    count = len(layers_of(model))
    for i, function in by_layer.items():
        if i not in range(count):
            raise GatelabError(f"there is no layer {i!r}; the model has {count}, give 0 to {count - 1}")
        if not callable(function):
            raise GatelabError(f"layer {i} was given {function!r}; give a function of one tensor or a module")
    copied = copy.deepcopy(model)
    for i, layer in enumerate(layers_of(copied)):
        if i in by_layer:
            put(layer, by_layer[i])
    return copied


def pointwise(function: Any) -> Any:
    """A linearisation stands for its polynomial; one that has none is no function of the pre-activation."""
    if hasattr(function, "polynomial") and function.polynomial is None:
        raise GatelabError(
            f"{function} is no polynomial of w.x; replace whole maps: replace_map(model, {{i: folded(...)}})"
        )
    return getattr(function, "polynomial", function)
