"""All blocks of a smaller model refitted together: to what the given model says at its end.

    E KL( given model's next token || smaller model's )          models that predict a next token
    E |last states - given model's|^2 / E |given model's|^2      others

Layer by layer, an error is as bad in one direction as in another; the loss feels few of them. Only the weights of the
feed-forward blocks move. Windows that nothing is fitted to say which epoch was best, and whether any was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.streams import first_of
from gatelab.anatomy.texts import logits_of
from gatelab.display import Listener
from gatelab.models.layouts import Layer, Replaced, layers_of

TOKENS = 1024  # of a step
WARM = 10  # steps until the rate is what it is to be


@dataclass(frozen=True)
class Distilled:
    """How a distillation went: the loss on held-out windows before it and after every epoch, and which was taken."""

    losses: tuple[float, ...]
    best: int


def distil(
    dense: Any,
    small: Any,
    fitted: Tensor,
    held_out: Tensor,
    *,
    epochs: int,
    rate: float,
    causal: bool,
    seed: int = 0,
    report: Listener | None = None,
) -> Distilled:
    """Fit the feed-forward weights of a model, in place, to what another one says at its end.

    Args:
        dense: the given model.
        small: the smaller one, whose blocks are fitted.
        fitted: windows to fit.
        held_out: other windows, which decide which epoch is taken.
        epochs: passes over the windows.
        rate: the change of a weight in a step, as a share of the root mean square of its matrix.
        causal: whether next tokens are predicted; else last states are compared.
        seed: of the order of the windows.
        report: called with (epochs done, epochs).

    Returns:
        The losses by epoch; the smaller model holds the weights of the best one, be it the start.
    """
    weights = block_weights(layers_of(small))
    trained = {id(W) for W in weights}
    needed = {p: p.requires_grad for p in small.parameters()}
    for p in small.parameters():
        p.requires_grad_(id(p) in trained)
    groups = [{"params": [W], "lr": rate * float(W.detach().square().mean().sqrt())} for W in weights]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-12)
    size = max(1, TOKENS // fitted.shape[1])
    if fitted.is_floating_point():
        size = 8
    total = epochs * -(-len(fitted) // size)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / WARM) * (1 - 0.95 * step / total)
    )
    generator = torch.Generator().manual_seed(seed)
    losses = [loss_on(dense, small, held_out, size, causal)]
    best, saved = 0, [W.detach().clone() for W in weights]
    try:
        for epoch in range(epochs):
            for chosen in torch.randperm(len(fitted), generator=generator).split(size):
                batch = fitted[chosen]
                with torch.enable_grad():
                    loss = difference(dense, small, batch, causal)
                    loss.backward()
                optimiser.step()
                schedule.step()
                optimiser.zero_grad(set_to_none=True)
            losses.append(loss_on(dense, small, held_out, size, causal))
            if losses[-1] < losses[best]:
                best, saved = epoch + 1, [W.detach().clone() for W in weights]
            if report:
                report(epoch + 1, epochs)
    finally:
        with torch.no_grad():
            for W, value in zip(weights, saved, strict=True):
                W.copy_(value)
        for p, flag in needed.items():
            p.requires_grad_(flag)
            p.grad = None
    return Distilled(tuple(losses), best)


def block_weights(layers: list[Layer]) -> list[nn.Parameter]:
    """The weights and biases of all blocks."""
    modules: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer.entrance, Replaced):
            modules.append(layer.entrance)
        else:
            modules += [layer.module.get_submodule(name) for name in layer.linear_names()]
    return [p for module in modules for p in module.parameters()]


def difference(dense: Any, small: Any, batch: Tensor, causal: bool) -> Tensor:
    """How far the smaller model is from the given one on some windows: the mean over their places."""
    batch = batch.to(next(small.parameters()).device)
    if causal:
        with torch.no_grad():
            wanted = logits_of(dense(batch), dense).float().log_softmax(-1)
        own = logits_of(small(batch), small).float().log_softmax(-1)
        return functional.kl_div(own.flatten(0, 1), wanted.flatten(0, 1), log_target=True, reduction="batchmean")
    with torch.no_grad():
        wanted = last_states(dense, batch)
    return (last_states(small, batch) - wanted).square().sum() / wanted.square().sum()


@torch.no_grad()
def loss_on(dense: Any, small: Any, rows: Tensor, size: int, causal: bool) -> float:
    """The mean difference over windows."""
    total = sum(float(difference(dense, small, batch, causal)) * len(batch) for batch in rows.split(size))
    return total / len(rows)


def last_states(model: Any, rows: Tensor) -> Tensor:
    """What the last layer gives, (windows, places, d)."""
    notes: list[Tensor] = []
    hook = layers_of(model)[-1].module.register_forward_hook(lambda _, __, result: notes.append(first_of(result)))
    try:
        model(rows.to(next(model.parameters()).device))
    finally:
        hook.remove()
    return notes[0].float()
