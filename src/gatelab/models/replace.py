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
        made = self.psi(rows) @ self.A.mT
        return (made.real if made.is_complex() else made) + self.b2


class BlockMaps(Protocol):
    """What `gatelab.linearization` makes: act(w.x) ~ Phi(w) . Psi(x)."""

    def phi(self, W: Tensor, /) -> Tensor: ...

    def psi(self, X: Tensor, /) -> Tensor: ...


def folded(block: Block, made: BlockMaps) -> LinearMap:
    """The whole block by maps of d + 1 inputs, the last always 1: A = W2 Phi([W1, b1]), worked out in float64.

    The hidden layer is gone: m features times d outputs are left, whatever the width was.

    >>> from gatelab.models import GPT2
    >>> block = blocks(GPT2("tiny", lambda z: z))[0]
    >>> class Same:
    ...     phi = psi = staticmethod(lambda rows: rows)
    >>> x = torch.randn(5, 32)
    >>> bool(torch.allclose(folded(block, Same())(x), block(x), atol=1e-6))
    True
    """
    rows = torch.cat([block.W1, block.b1[:, None]], dim=1).double()
    phi = made.phi(rows)
    A = block.W2.to(phi.dtype) @ phi
    own = block.W2.dtype
    return LinearMap(made.psi, A.to(own.to_complex() if A.is_complex() else own), block.b2)


def blocks(model: nn.Module) -> tuple[Block, ...]:
    """The feed-forward blocks of a model in the order of its layers.

    >>> from gatelab.models import GPT2
    >>> [tuple(b.W1.shape) for b in blocks(GPT2("tiny", "gelu"))]
    [(96, 32), (96, 32)]
    """
    return tuple(_read(name, layer) for name, layer in _layers(model))


def replace_activation(model: nn.Module, made: Any) -> nn.Module:
    """A copy of the model with another activation: in every block, or {layer: activation} in those alone.

    An activation is a function of one tensor, a module, or what `gatelab.linearize` makes of a polynomial.

    >>> from gatelab.models import GPT2
    >>> model = GPT2("tiny", "gelu")
    >>> changed = replace_activation(model, {1: torch.tanh})
    >>> [b.activation(torch.tensor(-1.0)).item() < -0.5 for b in blocks(changed)]
    [False, True]
    """
    each = {i: _pointwise(one) for i, one in made.items()} if isinstance(made, Mapping) else _pointwise(made)
    return _changed(model, each, _put_activation)


def replace_map(model: nn.Module, made: Mapping[int, nn.Module]) -> nn.Module:
    """A copy of the model in which layer i computes `made[i](x)` instead of W2 act(W1 x + b1) + b2; dropout stays."""
    for i, module in dict(made).items():
        if not isinstance(module, nn.Module):
            raise GatelabError(f"the map of layer {i} is a {type(module).__name__}; give a module, such as LinearMap")
    return _changed(model, made, _put_map)


@torch.no_grad()
def trace(model: nn.Module, run: Callable[[nn.Module], Any]) -> Trace:
    """What flows through every feed-forward block while `run(model)` calls the model once.

    >>> from gatelab.models import GPT2
    >>> seen = trace(GPT2("tiny", "gelu"), lambda model: model(torch.arange(8)[None]))
    >>> [tuple(x.shape) for x in seen.inputs]
    [(1, 8, 32), (1, 8, 32)]
    """
    layers = [layer for _, layer in _layers(model)]
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    hooks = []
    for i, layer in enumerate(layers):

        def enter(_: nn.Module, given: tuple[Any, ...], i: int = i) -> None:
            inputs[i] = given[0].detach()

        def leave(_: nn.Module, __: Any, made: Any, i: int = i) -> None:
            outputs[i] = (made[0] if isinstance(made, tuple) else made).detach()

        entrance = getattr(layer, _ENTRANCE[_kind(layer) or ""])
        hooks += [entrance.register_forward_pre_hook(enter), layer.register_forward_hook(leave)]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    if len(outputs) < len(layers):
        raise GatelabError(f"{len(outputs)} of {len(layers)} layers were called; give a function that calls the model")
    return Trace(*(tuple(found[i] for i in range(len(layers))) for found in (inputs, outputs)))


# ---- the three ways in which models hold a block


class Replaced(nn.Module):
    """A map that stands for a whole block, and the dropout that the block had."""

    def __init__(self, made: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.made, self.dropout = made, dropout

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.dropout(self.made(hidden_states))


_ENTRANCE = {"own": "feed_forward", "gpt2": "mlp", "bert": "intermediate"}  # is called with the input of the block


def _kind(layer: nn.Module) -> str | None:
    if isinstance(layer, TransformerBlock):
        feed = layer.feed_forward
        return "own" if isinstance(feed, Replaced) or _is_plain(feed) else None
    inner, outer, mlp = (getattr(layer, name, None) for name in ("intermediate", "output", "mlp"))
    if hasattr(outer, "dense") and (isinstance(inner, Replaced) or hasattr(inner, "intermediate_act_fn")):
        return "bert"
    whole = hasattr(mlp, "c_fc") and hasattr(mlp, "c_proj") and hasattr(mlp, "act")
    return "gpt2" if whole or isinstance(mlp, Replaced) else None


def _is_plain(feed: nn.Module) -> bool:
    return isinstance(feed, FeedForward) and feed.unit.factors == 0


def _layers(model: nn.Module) -> list[tuple[str, Any]]:
    found = [(name, module) for name, module in model.named_modules() if _kind(module) is not None]
    if not found:
        raise GatelabError(
            f"{type(model).__name__} has no feed-forward block W2 act(W1 x + b1) + b2 that can be replaced; give a "
            "model of Transformers built as BERT or GPT-2 are, or gatelab's GPT2 or ViT with a unit without factors"
        )
    return found


def _unreplaced(name: str, layer: Any) -> str:
    kind = _kind(layer) or ""
    if isinstance(getattr(layer, _ENTRANCE[kind]), Replaced):
        raise GatelabError(f"the map of {name} was replaced before and has no weights left; give the model as it was")
    return kind


def _read(name: str, layer: Any) -> Block:
    kind = _unreplaced(name, layer)
    if kind == "own":
        feed = layer.feed_forward
        return _block(name, feed.G, feed.g, feed.D, feed.d, feed.unit.gate)
    if kind == "gpt2":
        mlp = layer.mlp  # its Conv1D keeps weights as (inputs, outputs)
        return _block(name, mlp.c_fc.weight.T, mlp.c_fc.bias, mlp.c_proj.weight.T, mlp.c_proj.bias, mlp.act)
    first, last = layer.intermediate.dense, layer.output.dense
    return _block(name, first.weight, first.bias, last.weight, last.bias, layer.intermediate.intermediate_act_fn)


def _block(name: str, W1: Tensor, b1: Tensor | None, W2: Tensor, b2: Tensor | None, activation: Elementwise) -> Block:
    biases = [W.new_zeros(len(W)) if b is None else b for W, b in ((W1, b1), (W2, b2))]
    return Block(name, W1.detach(), biases[0].detach(), W2.detach(), biases[1].detach(), activation)


def _changed(model: nn.Module, made: Any, put: Callable[[str, Any, Any], None]) -> nn.Module:
    layers = _layers(model)
    chosen = dict(made) if isinstance(made, Mapping) else dict.fromkeys(range(len(layers)), made)
    for i, one in chosen.items():
        if i not in range(len(layers)):
            raise GatelabError(f"there is no layer {i!r}; the model has {len(layers)}, give 0 to {len(layers) - 1}")
        if not callable(one):
            raise GatelabError(f"layer {i} was given {one!r}; give a function of one tensor or a module")
    grown = copy.deepcopy(model)
    for i, (name, layer) in enumerate(_layers(grown)):
        if i in chosen:
            put(name, layer, chosen[i])
    return grown


def _pointwise(made: Any) -> Any:
    """A linearisation stands for its polynomial; one that has none is no function of the pre-activation."""
    if hasattr(made, "polynomial") and made.polynomial is None:
        raise GatelabError(
            f"{made} is no polynomial of w.x; replace whole maps: replace_map(model, {{i: folded(...)}})"
        )
    return getattr(made, "polynomial", made)


def _put_activation(name: str, layer: Any, made: Elementwise) -> None:
    kind = _unreplaced(name, layer)
    if kind == "own":
        layer.feed_forward.unit = Unit(activation=made)
        return
    module = made if isinstance(made, nn.Module) else Pointwise(made)
    if kind == "gpt2":
        layer.mlp.act = module
    else:
        layer.intermediate.intermediate_act_fn = module


def _put_map(name: str, layer: Any, made: nn.Module) -> None:
    kind = _unreplaced(name, layer)
    if kind == "bert":
        # The second part keeps its dropout, its residual and its norm.
        layer.intermediate, layer.output.dense = Replaced(made, nn.Identity()), nn.Identity()
    elif kind == "gpt2":
        layer.mlp = Replaced(made, layer.mlp.dropout)
    else:
        layer.feed_forward = Replaced(made, nn.Identity())
