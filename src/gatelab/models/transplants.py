"""A unit transplanted into a model of Transformers: every feed-forward block replaced, all else as it was.

    GPT-2   mlp: c_fc, act, c_proj, dropout          ->  D [ act(Gx + g) * (Ux + u) * ... ] + d, dropout
    ViT     mlp: fc1, act, fc2                       ->  the same; older versions: intermediate and output.dense
    Llama   mlp: gate_proj, up_proj, down_proj, act  ->  the same without biases: also Qwen, Mistral, SmolLM2

Biases, the scheme of initial weights (N(0, initializer_range^2) or what the model draws, GPT-2's D divided by
sqrt(2 layers)) and, by the two-thirds rule, the number of weights stay those of the model: gated and plain blocks
differ in the gate alone.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, ModuleUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.network import factor_names
from gatelab.models.block import UnitLike, UserBlock, layer_seeds, matched_width, quietly


class BlockNeurons(nn.Module):
    """act(Gx + g) * (Ux + u) * ... on the last dimension."""

    def __init__(self, unit: Unit, d_model: int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.unit = unit
        self.names = ("G", *factor_names(unit.factors))
        for name in self.names:
            self.add_module(name, nn.Linear(d_model, width, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        return self.unit.neuron(*(getattr(self, name)(x) for name in self.names))


class Transplant(nn.Module):
    """The whole block: neurons, D, and the dropout that the model had there."""

    def __init__(self, neurons: nn.Module, D: nn.Linear, dropout: nn.Module) -> None:
        super().__init__()
        self.neurons, self.D, self.dropout = neurons, D, dropout

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.dropout(self.D(self.neurons(hidden_states)))


def transplant(model: nn.Module, unit: UnitLike, *, match_mlp: bool = True, seed: int = 0) -> nn.Module:
    """A copy of a GPT-2, ViT or Llama-like model of Transformers with another unit in its feed-forward blocks.

    Other weights are copied as they are; the configuration keeps the old width. A user's module class comes with its
    own weights and biases, at the width that costs the same. A model into which a unit was transplanted is taken too:
    the new one gets the width that it would get in the model as it was.

        transplant(GPT2LMHeadModel(GPT2Config()), "swiglu")

    Args:
        model: the model, which stays as it was.
        unit: the unit, by name, as a value, a function or a class.
        match_mlp: give a unit of q factors 2 / (q + 2) of the width that an MLP would have, so that the blocks cost
            what they did.
        seed: of the new weights.

    Returns:
        The changed copy.
    """
    chosen = as_unit(unit)
    names = [name for name, module in model.named_modules() if kind_of(module) is not None]
    if not names or not hasattr(model, "config"):
        raise GatelabError(
            f"{type(model).__name__} has no feed-forward block that can be replaced; give a GPT-2, a ViT or"
            " a Llama-like model of Transformers (GPT2LMHeadModel, ViTModel, LlamaForCausalLM), or build gatelab's own"
        )
    copied = copy.deepcopy(model)
    layers = dict(copied.named_modules())
    for name, own in zip(names, layer_seeds(seed, len(names)), strict=True):
        with quietly():
            torch.manual_seed(own)
            replace_block(copied, layers[name], chosen, match_mlp, own)
    return copied


@dataclass(frozen=True)
class PlainBlock:
    """What a model had where the block is.

    Attributes:
        d_model: how many numbers go in and come out.
        width: that of the block without factors that has as many weights.
        own_width: that of the block itself.
        bias: whether it has biases.
        dropout: its dropout.
    """

    d_model: int
    width: int
    own_width: int
    bias: bool
    dropout: nn.Module


def kind_of(module: nn.Module) -> str | None:
    """Which of the four ways a layer holds its feed-forward block in; None where it holds none that is known."""
    name, mlp = type(module).__name__, getattr(module, "mlp", None)
    if all(hasattr(mlp, part) for part in ("gate_proj", "up_proj", "down_proj")):
        return "llama"
    if name.endswith("DecoderLayer") and hasattr(mlp, "plain"):
        return "llama"
    if name == "GPT2Block" and mlp is not None:
        return "gpt2"
    if name == "ViTLayer" and (hasattr(mlp, "fc1") or hasattr(mlp, "plain")):
        return "vit"
    if name == "ViTLayer" and hasattr(module, "intermediate") and hasattr(module, "output"):
        return "vit in two"
    return None


def plain_block(layer: Any, kind: str) -> PlainBlock:
    """Of the block that the model came with, or, where it was replaced before, of the one before that."""
    block = getattr(layer, {"vit in two": "intermediate"}.get(kind, "mlp"))
    if hasattr(block, "plain"):
        return block.plain
    if kind == "gpt2" and hasattr(block, "c_fc"):
        d_model, width = block.c_fc.weight.shape
        return PlainBlock(d_model, width, width, True, block.dropout)
    if kind == "llama" and hasattr(block, "gate_proj"):
        width, d_model = block.gate_proj.weight.shape
        return PlainBlock(d_model, math.ceil(3 * width / 2), width, block.gate_proj.bias is not None, nn.Identity())
    first = getattr(block, "fc1", getattr(block, "dense", None))
    if first is None:
        raise GatelabError(
            f"a feed-forward block is a {type(block).__name__}, which says nothing of the width that the model had; "
            "transplant into the model as it was"
        )
    width, d_model = first.weight.shape
    return PlainBlock(d_model, width, width, True, nn.Identity())


def replace_block(model: Any, layer: Any, unit: AnyUnit, match_mlp: bool, seed: int) -> None:
    """Put a block of the unit into a layer of the model, and remember what was there for a later unit."""
    kind = kind_of(layer) or ""
    like = next(layer.parameters())
    plain: Any = plain_block(layer, kind)
    block: Any = unit_block(model, like, unit, plain, match_mlp, seed)
    if kind == "gpt2" and isinstance(block, Transplant):
        std = model.config.initializer_range / math.sqrt(2 * model.config.n_layer)
        block.D.weight.data.copy_(torch.randn(block.D.weight.shape) * std)
    if kind != "vit in two":
        layer.mlp = block
        block.plain = plain
        return
    if isinstance(block, Transplant):
        layer.intermediate, layer.output.dense = block.neurons, block.D
    else:
        layer.intermediate, layer.output.dense = block, nn.Identity()
    layer.intermediate.plain = plain


def unit_block(
    model: Any, like: Tensor, unit: AnyUnit, plain: PlainBlock, match_mlp: bool, seed: int
) -> Transplant | UserBlock:
    """A block of the unit with the model's own initial weights, on the device and in the precision of `like`."""
    d_model = plain.d_model
    width = plain.own_width
    if match_mlp:
        width = matched_width(unit, d_model, plain.width)
    if isinstance(unit, ModuleUnit):
        return UserBlock(unit.network(width, d_model, d_model, seed=seed, dtype=like.dtype)).to(like.device)
    neurons = BlockNeurons(unit, d_model, width, bias=plain.bias)
    block = Transplant(neurons, nn.Linear(width, d_model, bias=plain.bias), plain.dropout)
    for module in block.modules():
        if isinstance(module, nn.Linear):
            model._init_weights(module)
    return block.to(like.device, like.dtype).train(model.training)
