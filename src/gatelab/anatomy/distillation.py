"""Distillation: refit all blocks of a smaller model together to the outputs of the given model.

    E KL( given model's next token || smaller model's )          models that predict a next token
    E |last states - given model's|^2 / E |given model's|^2      others

Only the weights of the feed-forward blocks are trained. A few rates are tried for a part of the steps; held-out windows
choose the rate and the best epoch, which may be the start. A model that predicts next tokens can generate more text
from prompts in the calibration text, at a temperature at which it has the same loss as that text.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gatelab.anatomy.streams import last_states
from gatelab.anatomy.texts import continued, logits_of, token_losses
from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.models.layouts import layers_of

TOKENS, STEPS = 1024, 3000  # tokens per step, more if there would be more than 3000 steps
WARM = 10  # warm-up steps
RATES = (0.03, 0.01, 0.003, 0.001, 0.0003)  # change of a weight per step, relative to the rms of its matrix
TRIED, MOST_TRIED = 8, 60  # each rate is tried for 1/8 of all steps, between 2 WARM and 60
BEGINNING = 8  # tokens of the prompt of a generated window
TEMPERATURES = (0.85, 0.9, 0.95, 1.0)
WRITTEN_FIRST = 32  # windows generated at each temperature


@dataclass(frozen=True, eq=False)
class Distillation:
    """Settings of a distillation.

    Attributes:
        epochs: passes over the windows.
        own_text: number of tokens that the given model generates in addition to the calibration text.
        rates: learning rates to try for a part of the steps; a single one is used without a trial.
        seed: seed of the generated text and of the order of the windows.
    """

    epochs: int = 1
    own_text: int = 0
    rates: Sequence[float] = RATES
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("epochs", self.epochs, 1, of="passes over the windows")
        whole_number("own_text", self.own_text, 0, of="tokens")
        if isinstance(self.rates, str) or not isinstance(self.rates, Sequence) or not self.rates:
            raise GatelabError(f"rates is {self.rates!r}; give one or more positive numbers, such as (0.003, 0.001)")
        for rate in self.rates:
            real_number("one of the rates", rate, above=0)


@dataclass(frozen=True)
class Distilled:
    """The course of a distillation."""

    losses: tuple[float, ...]  # on held-out windows, before it and after every epoch
    best: int  # the index of the best loss
    rate: float  # the change of a weight per step, relative to the root mean square of its matrix
    epochs: int  # passes over the windows
    own_text: int  # number of generated tokens


def distil(
    dense: Any,
    small: Any,
    fitted: Tensor,
    held_out: Tensor,
    terms: Distillation,
    *,
    causal: bool,
    progress: ProgressLike = False,
) -> Distilled:
    """Fit the feed-forward weights of a smaller model, in place, to the outputs of the given one.

    Held-out windows choose the rate and the epoch. With `own_text`, the model's own text is fitted too.
    """
    if terms.own_text:
        fitted = torch.cat([fitted, own_windows(dense, fitted, terms, progress)])
    modules = [layer.module.get_submodule(name) for layer in layers_of(small) for name in layer.linear_names()]
    weights = [p for module in modules for p in module.parameters()]
    epochs, rates, size = terms.epochs, terms.rates, 8  # images
    if not fitted.is_floating_point():
        size = max(1, max(TOKENS, epochs * fitted.numel() // STEPS) // fitted.shape[1])
    steps = epochs * -(-len(fitted) // size)
    trial = min(steps, max(2 * WARM, min(steps // TRIED, MOST_TRIED)))
    to_try = rates if len(rates) > 1 else ()
    all_steps, done = len(to_try) * trial + steps, 0

    @torch.no_grad()
    def loss() -> float:
        total = sum(float(difference(dense, small, batch, causal)) * len(batch) for batch in held_out.split(size))
        return total / len(held_out)

    def descent(rate: float, steps: int, report: Listener | None) -> Iterator[int]:
        """Steps on shuffled windows, with warm-up and linear decay to a twentieth of the rate."""
        nonlocal done
        groups = [{"params": [W], "lr": rate * float(W.detach().square().mean().sqrt())} for W in weights]
        optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-12, fused=weights[0].is_cuda)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / WARM) * (1 - 0.95 * step / steps)
        )
        generator = torch.Generator().manual_seed(terms.seed)
        orders = (torch.randperm(len(fitted), generator=generator) for _ in count())
        batches = (fitted[chosen] for order in orders for chosen in order.split(size))
        for step, batch in enumerate(islice(batches, steps), 1):
            with torch.enable_grad():
                difference(dense, small, batch, causal).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
            if report:
                report(done, all_steps)
            yield step

    losses, best, start = [loss()], 0, [W.detach().clone() for W in weights]
    saved, rate = start, rates[0]
    trained = {p: p.requires_grad for p in small.parameters()}
    small.requires_grad_(False)
    for W in weights:
        W.requires_grad_(True)
    try:
        with reporting(progress, "distilling") as report:
            tried: dict[float, float] = {}
            for rate in to_try:
                for _ in descent(rate, trial, report):
                    pass
                tried[rate] = loss()
                put(weights, start)
            if tried:
                rate = min(tried, key=lambda rate: (not math.isfinite(tried[rate]), tried[rate]))
            for step in descent(rate, steps, report):
                if step % (steps // epochs) == 0:
                    losses.append(loss())
                    if losses[-1] < losses[best]:
                        best, saved = len(losses) - 1, [W.detach().clone() for W in weights]
    finally:
        put(weights, saved)
        for p, flag in trained.items():
            p.requires_grad_(flag)
            p.grad = None
    return Distilled(tuple(losses), best, rate, epochs, terms.own_text)


def own_windows(dense: Any, fitted: Tensor, terms: Distillation, progress: ProgressLike = False) -> Tensor:
    """Windows that the model generates from prompts in the given ones, with the same length and about the same loss."""
    length = fitted.shape[1]
    beginnings = beginnings_in(fitted, -(-terms.own_text // length), terms.seed)
    writer = dense
    if next(dense.parameters()).is_cuda:
        # Several times as fast: half the memory per token, and kernels with grouped keys.
        writer = with_half_weights(dense)
    temperature = fair_temperature(writer, fitted, terms.seed, progress)
    return continued(writer, beginnings, length, temperature=temperature, seed=terms.seed, progress=progress)


def beginnings_in(rows: Tensor, count: int, seed: int) -> Tensor:
    """Prompts of a few tokens from random places in the windows."""
    generator = torch.Generator().manual_seed(seed)
    length = rows.shape[1]
    beginning = min(BEGINNING, length - 1)
    window = torch.randint(len(rows), (count, 1), generator=generator)
    place = torch.randint(length - beginning + 1, (count, 1), generator=generator)
    return rows[window, place + torch.arange(beginning)]


def fair_temperature(model: Any, rows: Tensor, seed: int = 0, progress: ProgressLike = False) -> float:
    """The temperature, between 0.85 and 1, at which generated text has the same loss as the given windows."""
    beginnings = beginnings_in(rows, WRITTEN_FIRST, seed)
    first = beginnings.shape[1]
    temperatures = torch.tensor(TEMPERATURES).repeat_interleave(WRITTEN_FIRST)
    beginnings = beginnings.repeat(len(TEMPERATURES), 1)
    written = continued(model, beginnings, rows.shape[1], temperature=temperatures, seed=seed + 1, progress=progress)

    def losses(windows: Tensor) -> Tensor:
        return token_losses(model, windows)[:, first - 1 :].double().mean(1)

    wanted = float(losses(rows).mean())
    rising = np.maximum.accumulate(losses(written).view(len(TEMPERATURES), -1).mean(1).numpy())
    return float(np.interp(wanted, rising, TEMPERATURES))


def with_half_weights(model: Any) -> Any:
    """A copy with weights in bfloat16; buffers, such as the frequencies of rotary positions, keep their precision."""
    half = copy.deepcopy(model)
    for p in half.parameters():
        p.data = p.data.bfloat16()
    return half


@torch.no_grad()
def put(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for W, value in zip(weights, values, strict=True):
        W.copy_(value)


def difference(dense: Any, small: Any, batch: Tensor, causal: bool) -> Tensor:
    """The mean divergence of the smaller model from the given one; on a GPU, products are in bfloat16."""
    device = next(small.parameters()).device
    batch = batch.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        if causal:
            with torch.no_grad():
                wanted = logits_of(dense(batch), dense).float().log_softmax(-1)
            own = logits_of(small(batch), small).float().log_softmax(-1)
            return functional.kl_div(own.flatten(0, 1), wanted.flatten(0, 1), log_target=True, reduction="batchmean")
        with torch.no_grad():
            wanted = last_states(dense, batch)
        return (last_states(small, batch) - wanted).square().sum() / wanted.square().sum()
