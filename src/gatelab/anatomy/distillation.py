"""All blocks of a smaller model refitted together: to what the given model says at its end.

    E KL( given model's next token || smaller model's )          models that predict a next token
    E |last states - given model's|^2 / E |given model's|^2      others

Layer by layer, an error is as bad in one direction as in another; the loss feels few of them. Only the weights of the
feed-forward blocks move. A rate that suits a model of 260 thousand weights tears one of 135 million apart, so a few
rates are tried for a part of the way. Windows that nothing is fitted to say which rate is taken, which epoch was best,
and whether any was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
RATES = (
    0.01,
    0.003,
    0.001,
    0.0003,
)  # the change of a weight in a step, as a share of the root mean square of its matrix
TRIED = 8  # each rate is tried for this part of all steps


@dataclass(frozen=True)
class Distilled:
    """How a distillation went.

    Attributes:
        losses: on held-out windows, before it and after every epoch.
        best: which of them was taken.
        rate: the change of a weight in a step, as a share of the root mean square of its matrix.
    """

    losses: tuple[float, ...]
    best: int
    rate: float


def distil(
    dense: Any,
    small: Any,
    fitted: Tensor,
    held_out: Tensor,
    *,
    epochs: int,
    causal: bool,
    rates: Sequence[float] = RATES,
    seed: int = 0,
    report: Listener | None = None,
) -> Distilled:
    """Fit the feed-forward weights of a model, in place, to what another one says at its end.

    Args:
        dense: the given model.
        small: the smaller one, whose blocks are fitted.
        fitted: windows to fit.
        held_out: other windows, which decide which rate and which epoch is taken.
        epochs: passes over the windows.
        causal: whether next tokens are predicted; else last states are compared.
        rates: which to try for a part of the way; one alone is not tried but taken.
        seed: of the order of the windows.
        report: called with (parts done, all of them): rates that were tried, then epochs.

    Returns:
        The losses by epoch; the smaller model holds the weights of the best one, be it the start.
    """
    weights = block_weights(layers_of(small))
    trained = {id(W) for W in weights}
    needed = {p: p.requires_grad for p in small.parameters()}
    size = max(1, TOKENS // fitted.shape[1])
    if fitted.is_floating_point():
        size = 8
    steps = epochs * -(-len(fitted) // size)
    start = copies(weights)
    best, saved = 0, start
    losses = [loss_on(dense, small, held_out, size, causal)]
    tried: dict[float, float] = {}
    if len(rates) == 1:
        tried[rates[0]] = losses[0]
    parts = len(rates) - len(tried) + epochs
    done = 0

    def batches() -> Iterator[Tensor]:
        """Windows in an order by chance, epoch after epoch."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            for chosen in torch.randperm(len(fitted), generator=generator).split(size):
                yield fitted[chosen]

    def descent(rate: float, steps: int) -> Iterator[int]:
        """Step after step, the rate falling to a twentieth."""
        groups = [{"params": [W], "lr": rate * float(W.detach().square().mean().sqrt())} for W in weights]
        optimiser = torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-12)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min(1.0, (step + 1) / WARM) * (1 - 0.95 * step / steps)
        )
        for step, batch in zip(range(1, steps + 1), batches(), strict=False):
            with torch.enable_grad():
                difference(dense, small, batch, causal).backward()
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
            yield step

    try:
        for p in small.parameters():
            p.requires_grad_(id(p) in trained)
        for rate in rates[: parts - epochs]:
            for _ in descent(rate, max(1, steps // TRIED)):
                pass
            tried[rate] = loss_on(dense, small, held_out, size, causal)
            put(weights, start)
            done += 1
            if report:
                report(done, parts)
        rate = min(tried, key=lambda rate: (not math.isfinite(tried[rate]), tried[rate]))
        for step in descent(rate, steps):
            if step % (steps // epochs):
                continue
            losses.append(loss_on(dense, small, held_out, size, causal))
            if losses[-1] < losses[best]:
                best, saved = len(losses) - 1, copies(weights)
            done += 1
            if report:
                report(done, parts)
    finally:
        put(weights, saved)
        for p, flag in needed.items():
            p.requires_grad_(flag)
            p.grad = None
    return Distilled(tuple(losses), best, rate)


def copies(weights: Sequence[Tensor]) -> list[Tensor]:
    """The values of weights as they are now."""
    return [W.detach().clone() for W in weights]


@torch.no_grad()
def put(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give weights these values."""
    for W, value in zip(weights, values, strict=True):
        W.copy_(value)


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
