"""Hidden states of whole calibration sets, layer by layer.

    stream = Stream.begin(model, rows)          the input of the first layer, for all rows
    stream.through(layer)                       inputs, outputs and residual of its block, batch by batch
    stream.advance(layer)                       the same rows after this layer

The model runs up to its first layer; then every layer is called directly with the further arguments, such as masks and
positions, that the model passed to it on one batch. `check_order` compares the result with the model on one window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.flows import not_called_once
from gatelab.anatomy.texts import logits_of, without_cache
from gatelab.errors import GatelabError
from gatelab.models.hooks import captured, changed_output, first_tensor, replaced
from gatelab.models.layouts import Layer, layers_of

TOKENS = 4096  # tokens per batch
TOLERANCE = 1e-3  # relative differences above are not rounding errors
FELT = 1024  # tokens per batch with gradients


Call = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of a layer in addition to the states


class Reached(Exception):
    """The first layer was reached; the rest of the model need not run."""


@dataclass(frozen=True, eq=False)
class Passage:
    """Inputs and outputs of a block on a batch of windows, as rows (N, d)."""

    inputs: Tensor
    outputs: Tensor
    residual: Tensor  # the outputs are added to it; zeros if they are not added unscaled


class Stream:
    """The hidden states of windows before a layer, in main memory, and the further arguments of all layers."""

    def __init__(self, states: Tensor, calls: Mapping[int, Mapping[str, Call]], size: int) -> None:
        self.states, self.calls, self.size = states, calls, size  # calls by windows per batch and names of layers
        self.adds = True  # whether layers add the outputs of their blocks unscaled

    @classmethod
    def begin(cls, model: nn.Module, rows: Tensor) -> Stream:
        layers = layers_of(model)
        device = next(model.parameters()).device
        size = max(1, TOKENS // rows.shape[1])
        if rows.is_floating_point():
            size = 16
        states: list[Tensor] = []
        calls: dict[int, Mapping[str, Call]] = {}
        for batch in rows.split(size):
            known = len(batch) in calls
            hidden, its_calls = entry(model, layers[:1] if known else layers, batch.to(device))
            if len(hidden) != len(batch):
                raise GatelabError(
                    f"{type(model).__name__} calls its first layer with {tuple(hidden.shape)}; it cannot be shrunken"
                )
            states.append(hidden.cpu())
            if not known:
                calls[len(batch)] = its_calls
        stream = cls(torch.cat(states), calls, size)
        stream.adds = stream.adds_output(layers[0])
        return stream

    def call(self, layer: Layer, states: Tensor) -> Tensor:
        """The output of a layer for a batch of states."""
        arguments, options = self.calls[len(states)][layer.name]
        device = next(layer.module.parameters()).device
        return first_tensor(layer.module(states.to(device), *arguments, **options))

    def adds_output(self, layer: Layer) -> bool:
        """Whether a layer adds its block's output without a norm (Gemma 2) or factor (Granite), by halving it."""
        states = self.states[: self.size]
        after = self.call(layer, states)
        with (
            replaced({layer.exit: changed_output(layer.exit, lambda y: y / 2)}),
            captured(outputs={"half": layer.exit}) as values,
        ):
            changed = self.call(layer, states)
        if len(values["half"]) != 1:
            raise not_called_once(layer.name)
        half = values["half"][0].view_as(after)
        gap = (after - changed - half).norm()
        return bool(gap <= 2e-3 * half.norm() + 4 * torch.finfo(after.dtype).eps * after.norm())

    def through(self, layer: Layer) -> Iterator[Passage]:
        """Inputs, outputs and residuals of the block of a layer, batch by batch."""
        for states in self.states.split(self.size):
            with captured({"x": layer.entrance}, {"y": layer.exit}) as values:
                after = self.call(layer, states)
            if any(len(calls) != 1 for calls in values.values()):
                raise not_called_once(layer.name)
            inputs, outputs = (values[name][0].flatten(0, -2) for name in ("x", "y"))
            residual = torch.zeros_like(outputs)
            if self.adds:
                residual = after.reshape(outputs.shape) - outputs
            elif layer.layout.post_norm:
                residual = inputs
            yield Passage(inputs, outputs, residual)

    def advance(self, layer: Layer) -> None:
        """Apply a layer with its current block to the states."""
        self.states = torch.cat([self.call(layer, states).cpu() for states in self.states.split(self.size)])


def entry(model: Any, layers: Sequence[Layer], batch: Tensor) -> tuple[Tensor, dict[str, Call]]:
    """The states before the first of some layers of a model, and the further arguments of each layer."""
    states: list[Tensor] = []
    calls: dict[str, Call] = {}

    def enter(layer: Layer, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        named = dict(options)
        hidden = arguments[0] if arguments else named.pop("hidden_states")
        if not states:
            states.append(hidden)
        calls[layer.name] = arguments[1:], named
        if len(calls) == len(layers):
            raise Reached
        return forward(*arguments, **options)

    stops = {layer.module: partial(enter, layer, layer.module.forward) for layer in layers}
    with without_cache(model), replaced(stops), suppress(Reached):
        model(batch)
    missing = [layer.name for layer in layers if layer.name not in calls]
    if missing:
        raise GatelabError(f"{type(model).__name__} does not call {missing[0]} on these rows; give other text")
    return states[0], calls


def last_states(model: Any, rows: Tensor) -> Tensor:
    """The output of the last layer, (windows, positions, d)."""
    with captured(outputs={"last": layers_of(model)[-1].module}) as values:
        model(rows.to(next(model.parameters()).device))
    return values["last"][-1].float()


@torch.no_grad()
def check_order(model: nn.Module, window: Tensor) -> None:
    """Raise if blocks compute more than their layout, or layers are not called one after the other."""
    layers = layers_of(model)
    stream = Stream.begin(model, window)
    for layer in layers:
        passage, *_ = stream.through(layer)
        gap = float((layer.read()(passage.inputs) - passage.outputs).norm() / passage.outputs.norm().clamp_min(1e-30))
        if not gap < max(TOLERANCE, 8 * torch.finfo(passage.outputs.dtype).eps):
            raise GatelabError(
                f"the block of {layer.name} differs by {gap:.1e} from its weights; it can be profiled, not shrunken"
            )
        stream.advance(layer)
    expected = last_states(model, window).cpu()
    gap = float((stream.states - expected).norm() / expected.norm())
    if not gap < TOLERANCE:
        raise GatelabError(
            f"the layers of {type(model).__name__} are not called one after the other; it can be profiled, not shrunken"
        )


def felt_directions(model: Any, rows: Tensor, seed: int = 0) -> list[Tensor]:
    """The Fisher matrix E[g g^T] of every block's output, where g is the gradient of the loss.

    The next token is drawn from the model's own prediction. To second order an error e of the output increases the loss
    by e^T E[g g^T] e / 2 nats per token, if errors and gradients are independent.
    """
    layers = layers_of(model)
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    sums: dict[int, Tensor] = {}
    for batch in rows.split(max(1, FELT // rows.shape[1])):
        probes: dict[int, Tensor] = {}

        def add_probe(y: Tensor, i: int, probes: dict[int, Tensor] = probes) -> Tensor:
            probes[i] = torch.zeros_like(y, requires_grad=True)
            return y + probes[i]

        exits = [layer.exit for layer in layers]
        probed = {exit: changed_output(exit, partial(add_probe, i=i)) for i, exit in enumerate(exits)}
        with replaced(probed), torch.enable_grad():
            logits = logits_of(model(batch.to(device)), model).float().flatten(0, 1)
            drawn = torch.multinomial(logits.detach().softmax(-1), 1, generator=generator)[:, 0]
            loss = functional.cross_entropy(logits, drawn, reduction="sum")
            gradients = torch.autograd.grad(loss, [probes[i] for i in range(len(layers))])
        for i, g in enumerate(gradients):
            flat = g.reshape(-1, g.shape[-1])
            sums[i] = sums.get(i, 0) + (flat.T @ flat).double()
    return [sums[i] / rows.numel() for i in range(len(layers))]
