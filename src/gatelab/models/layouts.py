"""Layouts of feed-forward blocks in models: which modules are G, U and D, and how to read and write them.

    llama   mlp.gate_proj, mlp.up_proj, mlp.down_proj     D [ act(Gx) * Ux ]: Llama, SmolLM2, Qwen, Mistral, Gemma
    gpt2    mlp.c_fc, mlp.c_proj                          W2 act(W1 x + b1) + b2, weights as (inputs, outputs)
    vit     mlp.fc1, mlp.fc2                              the same: ViT, CLIP, Phi
    neox    mlp.dense_h_to_4h, mlp.dense_4h_to_h          the same: GPT-NeoX, Pythia, Falcon
    bert    intermediate.dense, output.dense              the same: BERT and its kin, ViT of older versions
    distil  ffn.lin1, ffn.lin2                            the same: DistilBERT
    opt     fc1, fc2                                      the same, in the layer itself: OPT
    own     feed_forward                                  gatelab's GPT2 and ViT with a product unit

A layout is a row of names; a new one only needs another row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.feedforward import FeedForward, Unit, units
from gatelab.feedforward.gates import activation
from gatelab.feedforward.network import factor_names
from gatelab.models.block import TransformerBlock

Elementwise = Callable[[Tensor], Tensor]
AffineWeights = tuple[Tensor, Tensor]  # weights (outputs, inputs) and biases (outputs,)


@dataclass(frozen=True, eq=False)
class Block(Compact):
    """One feed-forward block of a layer: W2 [ act(W1 x + b1) * (U x + u) * ... ] + b2.

    Weights are (outputs, inputs), biases zeros if the model has none. An MLP has no factors (U, u), a GLU one.
    """

    layer: str
    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor
    activation: Elementwise
    factors: tuple[AffineWeights, ...] = ()

    @property
    def width(self) -> int:
        return len(self.W1)

    @property
    def maps(self) -> list[AffineWeights]:
        return [(self.W1, self.b1), *self.factors, (self.W2, self.b2)]

    def with_maps(self, maps: Iterable[AffineWeights]) -> Block:
        """The same block with other weights and biases, in the order of `maps`."""
        (W1, b1), *factors, (W2, b2) = maps
        return replace(self, W1=W1, b1=b1, W2=W2, b2=b2, factors=tuple(factors))

    def before(self, x: Tensor) -> Tensor:
        """The gate's pre-activations z = W1 x + b1."""
        return functional.linear(x, self.W1, self.b1)

    def hidden(self, x: Tensor) -> Tensor:
        """The values of the neurons, act(W1 x + b1) times the factors."""
        values = self.activation(self.before(x))
        for U, u in self.factors:
            values = values * functional.linear(x, U, u)
        return values

    def after(self, values: Tensor) -> Tensor:
        """The output W2 values + b2 of the block from values of its neurons."""
        return functional.linear(values, self.W2, self.b2)

    def __call__(self, x: Tensor) -> Tensor:
        return self.after(self.hidden(x))


class Pointwise(nn.Module):
    """An elementwise function as a module."""

    def __init__(self, function: Elementwise) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        return self.function(z)


class Replaced(nn.Module):
    """A map that replaced a whole block, and the dropout of the block."""

    def __init__(self, function: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.made, self.dropout = function, dropout  # names that saved weights have

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.dropout(self.made(hidden_states))


@dataclass(frozen=True)
class Layout:
    """The names of the parts of a block below the layer that holds it."""

    name: str
    first: str  # the gate's linear map
    last: str  # the last linear map of the block
    activations: tuple[str, ...]  # possible names of the activation
    factors: tuple[str, ...] = ()  # the linear maps of the factors
    entrance: str = "mlp"  # the module that is called with the input of the block
    exit: str = "mlp"  # the module that returns its output, before dropout, residual and norm
    widths: tuple[str, ...] = ("intermediate_size",)  # possible names of the width in configurations
    post_norm: bool = False  # whether a norm follows the residual connection around the block
    sibling: str = ""  # another module of the layer, to distinguish layouts whose other names agree

    def fits(self, layer: nn.Module) -> bool:
        """Whether a layer holds its block in this way, or held it before the block was replaced."""
        if self.sibling and part(layer, self.sibling) is None:
            return False
        if hasattr(part(layer, self.entrance), "replaces_block"):
            return self.last.startswith(self.entrance) or part(layer, self.last) is not None
        names = (self.first, *self.factors, self.last)
        return all(hasattr(part(layer, name), "weight") for name in names) and self.activation(layer) is not None

    def width(self, config: Any) -> str | None:
        return next((name for name in self.widths if hasattr(config, name)), None)

    def activation(self, layer: nn.Module) -> str | None:
        return next((name for name in self.activations if part(layer, name) is not None), None)


LAYOUTS = (
    Layout("llama", "mlp.gate_proj", "mlp.down_proj", ("mlp.act_fn", "mlp.activation_fn"), factors=("mlp.up_proj",)),
    Layout("gpt2", "mlp.c_fc", "mlp.c_proj", ("mlp.act",), widths=("n_inner", "intermediate_size")),
    Layout("vit", "mlp.fc1", "mlp.fc2", ("mlp.activation_fn", "mlp.act")),
    Layout(
        "neox", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", ("mlp.act",), widths=("ffn_hidden_size", "intermediate_size")
    ),
    Layout(
        "bert", "intermediate.dense", "output.dense", ("intermediate.intermediate_act_fn",), entrance="intermediate",
        exit="output.dense", post_norm=True,
    ),
    Layout(
        "distil", "ffn.lin1", "ffn.lin2", ("ffn.activation",), entrance="ffn", exit="ffn", widths=("hidden_dim",),
        post_norm=True,
    ),
    Layout(
        "opt", "fc1", "fc2", ("activation_fn",), entrance="fc1", exit="fc2", widths=("ffn_dim",), sibling="self_attn"
    ),
)  # fmt: skip
OWN = Layout("own", "", "", (), entrance="feed_forward", exit="feed_forward", widths=("width",))


def part(module: nn.Module, name: str) -> Any:
    value: Any = module
    for step in name.split("."):
        value = getattr(value, step, None)
    return value


def put(module: nn.Module, name: str, value: nn.Module) -> None:
    above, _, last = name.rpartition(".")
    setattr(part(module, above) if above else module, last, value)


@dataclass(frozen=True, eq=False)
class Layer(Compact):
    """A layer that holds a feed-forward block: its name in the model, the module, and the layout."""

    name: str
    module: Any
    layout: Layout

    @property
    def entrance(self) -> nn.Module:
        return part(self.module, self.layout.entrance)

    @property
    def exit(self) -> nn.Module:
        return part(self.module, self.layout.exit)

    @property
    def is_whole(self) -> bool:
        return self.layout.entrance == self.layout.exit

    def require_weights(self) -> None:
        """Raise if the whole block was replaced."""
        if hasattr(self.entrance, "replaces_block"):
            raise GatelabError(f"the map of {self.name} was replaced before; give the model as it was")

    def read(self) -> Block:
        """The block, with weights that are detached but not copied."""
        self.require_weights()
        if self.layout is OWN:
            feed = self.module.feed_forward
            first, last = (feed.G, feed.g), (feed.D, feed.d)
            factors = [(getattr(feed, name), getattr(feed, name.lower())) for name in factor_names(feed.unit.factors)]
            activation = feed.unit.gate
        else:
            first, *factors, last = (
                (weight_of(linear), linear.bias) for linear in (part(self.module, name) for name in self.linear_names())
            )
            activation = part(self.module, self.layout.activation(self.module) or "")
        maps = [(W.detach(), W.new_zeros(len(W)) if b is None else b.detach()) for W, b in (first, *factors, last)]
        return Block(self.name, *maps[0], *maps[-1], activation, tuple(maps[1:-1]))

    def linear_names(self) -> tuple[str, ...]:
        return (self.layout.first, *self.layout.factors, self.layout.last)

    def write(self, block: Block) -> None:
        """Set the weights of the layer to those of a block of any width, without biases if the layer has none."""
        for name, (weight, bias) in zip(self.linear_names(), block.maps, strict=True):
            put(self.module, name, linear_like(part(self.module, name), weight, bias, f"{self.name}.{name}"))

    def put_activation(self, activation: Elementwise) -> None:
        self.require_weights()
        if self.layout is OWN:
            feed = self.module.feed_forward
            feed.unit = Unit(activation=activation, factors=feed.unit.factors)
            return
        module: Any = activation
        if not isinstance(activation, nn.Module):
            module = Pointwise(activation)
        put(self.module, self.layout.activation(self.module) or "", module)

    def put_map(self, module: nn.Module) -> None:
        self.require_weights()
        self.put_parts(Replaced(module, self.dropout), nn.Identity())

    @property
    def dropout(self) -> nn.Module:
        dropout = getattr(self.entrance, "dropout", None)
        return dropout if self.is_whole and isinstance(dropout, nn.Module) else nn.Identity()

    def put_parts(self, first: nn.Module, last: nn.Module) -> None:
        """Replace the block by `first`, or, if the layer holds it in two parts, the parts by `first` and `last`."""
        if not self.is_whole:
            name = self.layout.activation(self.module)
            if name and not name.startswith(self.layout.entrance):
                put(self.module, name, nn.Identity())
            put(self.module, self.layout.exit, last)
        cast(Any, first).replaces_block = True
        put(self.module, self.layout.entrance, first)


def weight_of(linear: Any) -> Tensor:
    """The weights of a linear map as (outputs, inputs); GPT-2's Conv1D stores the transpose."""
    if isinstance(linear, nn.Linear):
        return linear.weight
    return linear.weight.T


def linear_like(linear: Any, weight: Tensor, bias: Tensor, name: str) -> nn.Module:
    """A linear map of the same kind, precision and device with other weights."""
    if linear.bias is None and bool(bias.any()):
        raise GatelabError(f"{name} has no bias in this model, and the block has one; give a block without it")
    old = linear.weight
    if isinstance(linear, nn.Linear):
        fresh: Any = nn.Linear(weight.shape[1], weight.shape[0], bias=linear.bias is not None)
        values = weight
    else:
        fresh = type(linear)(weight.shape[0], weight.shape[1])
        values = weight.T
    fresh.weight = nn.Parameter(values.detach().to(old).clone(), requires_grad=old.requires_grad)
    if linear.bias is not None:
        fresh.bias = nn.Parameter(bias.detach().to(old).clone(), requires_grad=old.requires_grad)
    return fresh.train(linear.training)


def layout_of(layer: nn.Module) -> Layout | None:
    if isinstance(layer, TransformerBlock):
        if isinstance(layer.feed_forward, FeedForward | Replaced):
            return OWN
        return None
    return next((layout for layout in LAYOUTS if layout.fits(layer)), None)


def layers_of(model: nn.Module) -> list[Layer]:
    """The layers of a model that hold a feed-forward block, in order."""
    check_module(model)
    layouts = ((name, module, layout_of(module)) for name, module in model.named_modules())
    layers = [Layer(name, module, layout) for name, module, layout in layouts if layout is not None]
    if not layers:
        raise GatelabError(unknown_layout(model))
    return layers


def check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise GatelabError(f"the model is a {kind}; give a module of torch, such as gl.anatomy.load_model(path) reads")


def unknown_layout(model: nn.Module) -> str:
    """The message for a model without a known layout, with the names of modules that look like blocks."""
    similar = [name for name, module in model.named_modules() if looks_like_a_block(module)]
    known = ", ".join(layout.name for layout in LAYOUTS)
    advice = f"give a model of Transformers in one of the layouts {known}, or gatelab's GPT2 or ViT"
    if similar:
        shown = ", ".join(map(repr, similar[:3]))
        more = f" and {len(similar) - 3} more" if len(similar) > 3 else ""
        advice += f"; modules that look like a block: {shown}{more}, for profile(model, text, modules=[...])"
    return f"{type(model).__name__} has no feed-forward block of a known layout; {advice}"


def looks_like_a_block(module: nn.Module) -> bool:
    """Whether linear maps of a module expand its input (jointly, as in Phi-3) and contract it, or it has experts."""
    if any(word in name for name, _ in module.named_children() for word in ("q_proj", "qkv", "query")):
        return False  # attention
    shapes = [child.weight.shape for child in module.children() if isinstance(child, nn.Linear)]
    ways = ((a, b) for a in shapes for b in shapes if a[0] in (b[1], 2 * b[1]) and a[1] == b[0])
    return any(a[0] > a[1] for a, _ in ways) or isinstance(getattr(module, "experts", None), nn.Module)


def blocks(model: nn.Module) -> tuple[Block, ...]:
    """The feed-forward blocks of a model.

    Args:
        model: a model of Transformers in one of the layouts, or gatelab's GPT2 or ViT.

    Returns:
        One `Block` per layer, in order.

    >>> from gatelab.models import GPT2
    >>> [tuple(b.W1.shape) for b in blocks(GPT2("tiny", "gelu"))]
    [(96, 32), (96, 32)]
    """
    return tuple(layer.read() for layer in layers_of(model))


@torch.no_grad()
def unit_of(block: Block) -> Unit:
    """The unit of a block: the first known one with the same number of factors and the same gate between -6 and 6."""
    factors = len(block.factors)
    z = torch.linspace(-6, 6, 601)
    values = block.activation(z.to(block.W1)).to(z)
    for unit in units():
        # The formula of GELU by tanh is within 5e-4 of the one by erf.
        if isinstance(unit, Unit) and unit.factors == factors and torch.allclose(unit.gate(z), values, atol=2e-3):
            return unit
    return Unit(activation=activation(block.activation), factors=factors)
