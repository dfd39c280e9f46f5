"""Replace the activation or the whole map of feed-forward blocks, and trace their inputs and outputs.

Models must have a layout of `gatelab.models.layouts`. Every function returns a changed copy of the model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.models.hooks import captured
from gatelab.models.layouts import Block, Elementwise, Layer, layers_of


@dataclass(frozen=True, eq=False)
class Trace(Compact):
    """The input of each feed-forward block and the output of the layer around it, (..., d) per layer."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class LinearMap(nn.Module):
    """x (..., d) -> real(Psi([x, 1]) A^T) + b2: a block as the product of a matrix and features of x."""

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


def folded(block: Block, maps: Any) -> LinearMap:
    """A block by maps of d + 1 inputs, the last always 1: A = W2 Phi([W1, b1]), computed in float64.

    The hidden layer disappears: the result has m features times d outputs for blocks of any width.

    Args:
        block: the block, as `blocks` returns it.
        maps: Phi and Psi, as `gatelab.linearize` returns them.

    Returns:
        A module that maps (..., d) to (..., d).

    >>> from gatelab.models import GPT2, blocks
    >>> block = blocks(GPT2("tiny", lambda z: z))[0]
    >>> class Same:
    ...     phi = psi = staticmethod(lambda rows: rows)
    >>> x = torch.randn(5, 32)
    >>> bool(torch.allclose(folded(block, Same())(x), block(x), atol=1e-6))
    True
    """
    if block.factors:
        raise GatelabError(f"{block.layer} is gated, and Phi(W) Psi(x) is act(Wx) alone; give a block without factors")
    phi = maps.phi(torch.cat([block.W1, block.b1[:, None]], dim=1).double())
    A, dtype = block.W2.to(phi.dtype) @ phi, block.W2.dtype
    if A.is_complex():
        dtype = dtype.to_complex()
    return LinearMap(maps.psi, A.to(dtype), block.b2)


def replace_activation(model: nn.Module, activation: Any) -> nn.Module:
    """A copy of the model with another activation.

    Args:
        model: the model, which is not changed.
        activation: a function of one tensor, a module or a polynomial of `gatelab.linearize`; or a dictionary
            {layer: activation} for some layers only.

    Returns:
        The changed copy.

    >>> from gatelab.models import GPT2, blocks
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
        model: the model, which is not changed.
        maps: by layer number, the module that replaces W2 act(W1 x + b1) + b2.

    Returns:
        The changed copy.
    """
    for i, module in dict(maps).items():
        if not isinstance(module, nn.Module):
            raise GatelabError(f"the map of layer {i} is a {type(module).__name__}; give a module, such as LinearMap")
    return changed(model, dict(maps), Layer.put_map)


@torch.no_grad()
def trace(model: nn.Module, run: Callable[[nn.Module], Any]) -> Trace:
    """Inputs and outputs of every feed-forward block.

    Args:
        model: the model.
        run: a function that takes the model and calls it once.

    Returns:
        A `Trace` with the input of every block and the output of the layer around it.

    >>> from gatelab.models import GPT2
    >>> flow = trace(GPT2("tiny", "gelu"), lambda model: model(torch.arange(8)[None]))
    >>> [tuple(x.shape) for x in flow.inputs]
    [(1, 8, 32), (1, 8, 32)]
    """
    layers = layers_of(model)
    with captured(
        {("in", i): layer.entrance for i, layer in enumerate(layers)},
        {("out", i): layer.module for i, layer in enumerate(layers)},
    ) as values:
        run(model)
    called = sum(bool(values["out", i]) for i in range(len(layers)))
    if called < len(layers):
        raise GatelabError(f"{called} of {len(layers)} layers were called; give a function that calls the model")
    return Trace(*(tuple(values[side, i][-1] for i in range(len(layers))) for side in ("in", "out")))


def changed(model: nn.Module, by_layer: Mapping[int, Any], put: Callable[[Layer, Any], None]) -> nn.Module:
    """A copy of the model with other activations or maps in some layers."""
    count = len(layers_of(model))
    for i, function in by_layer.items():
        if i not in range(count):
            raise GatelabError(f"layer {i!r} does not exist; the model has {count}, give 0 to {count - 1}")
        if not callable(function):
            raise GatelabError(f"layer {i} was given {function!r}; give a function of one tensor or a module")
    copied = copy.deepcopy(model)
    for i, layer in enumerate(layers_of(copied)):
        if i in by_layer:
            put(layer, by_layer[i])
    return copied


def pointwise(function: Any) -> Any:
    """The polynomial of a linearization; other functions unchanged."""
    if hasattr(function, "polynomial") and function.polynomial is None:
        raise GatelabError(f"{function} is not a polynomial of w.x; replace whole maps by replace_map and folded")
    return getattr(function, "polynomial", function)
