"""Replace the unit of every feed-forward block in a model of Transformers by D [ act(Gx + g) * (Ux + u) * ... ] + d.

The biases, the distribution of initial weights (GPT-2 divides D by sqrt(2 layers)) and, by the two-thirds rule, the
number of weights stay those of the model, so that gated and plain blocks differ only in the gate.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, ModuleUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.network import factor_names
from gatelab.models.block import UnitLike, UserBlock, layer_seeds, matched_width
from gatelab.models.layouts import OWN, Layer, layers_of, part


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
    """A whole block: neurons, D, and the dropout of the replaced block."""

    def __init__(self, neurons: nn.Module, D: nn.Linear, dropout: nn.Module) -> None:
        super().__init__()
        self.neurons, self.D, self.dropout = neurons, D, dropout

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.dropout(self.D(self.neurons(hidden_states)))


def transplant(model: nn.Module, unit: UnitLike, *, match_mlp: bool = True, seed: int = 0) -> nn.Module:
    """A copy of a model of Transformers with another unit in its feed-forward blocks.

    All other weights are copied; the configuration keeps the old width. A user's module class keeps its own initial
    weights and biases, at the width with the same number of parameters.

        transplant(GPT2LMHeadModel(GPT2Config()), "swiglu")

    Args:
        model: the model, in one of the layouts of `gatelab.models.layouts`; it is not changed.
        unit: the unit, as a name, a value, a function or a class.
        match_mlp: give a unit of q factors 2 / (q + 2) of the width of an MLP, so that the number of parameters stays.
        seed: seed of the new weights.

    Returns:
        The changed copy.
    """
    chosen = as_unit(unit)
    if layers_of(model)[0].layout is OWN or not hasattr(model, "config"):
        raise GatelabError(f"{type(model).__name__} is not a model of Transformers; build gatelab's own with the unit")
    copied = copy.deepcopy(model)
    layers = layers_of(copied)
    for layer, own in zip(layers, layer_seeds(seed, len(layers)), strict=True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(own)
            replace_block(copied, layer, chosen, match_mlp, own)
    return copied


def replace_block(model: Any, layer: Layer, unit: AnyUnit, match_mlp: bool, seed: int) -> None:
    """Put a block of the unit into a layer of the model."""
    block, like = layer.read(), next(layer.module.parameters())
    bias = part(layer.module, layer.layout.first).bias is not None
    d_model, width = block.W1.shape[1], block.width
    if match_mlp:
        # A block without factors that has the same number of weights: (q + 2) d n = 2 d w
        width = matched_width(unit, d_model, math.ceil((len(block.factors) + 2) * width / 2))
    first, last = nn.Module(), nn.Identity()
    if isinstance(unit, ModuleUnit):
        first = UserBlock(unit.network(width, d_model, d_model, seed=seed, dtype=like.dtype)).to(like.device)
    else:
        neurons = BlockNeurons(unit, d_model, width, bias=bias)
        first = whole = Transplant(neurons, nn.Linear(width, d_model, bias=bias), layer.dropout)
        for module in whole.modules():
            if isinstance(module, nn.Linear):
                model._init_weights(module)
        whole.to(like.device, like.dtype).train(model.training)
        if getattr(model.config, "model_type", "") == "gpt2":
            std = model.config.initializer_range / math.sqrt(2 * model.config.n_layer)
            whole.D.weight.data.copy_(torch.randn(whole.D.weight.shape) * std)
        if not layer.is_whole:
            first, last = whole.neurons, whole.D
    layer.put_parts(first, last)
