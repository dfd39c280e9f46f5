"""All blocks of a smaller model refitted together: to what the given model says at its end.

    E KL( given model's next token || smaller model's )          models that predict a next token
    E |last states - given model's|^2 / E |given model's|^2      others

Layer by layer, an error is as bad in one direction as in another; the loss feels few of them. Only the weights of the
feed-forward blocks move. A rate that suits a model of 260 thousand weights tears one of 135 million apart, so a few
rates are tried for a part of the way. Windows that nothing is fitted to say which rate is taken, which epoch was best,
and whether any was.

Some thousand tokens are soon known by heart. A model that predicts next tokens can write more of them: from beginnings
in the calibration text, each token drawn from its own predictions. What a small model draws leads it astray: the
further it goes on, the less it knows what comes next. So logits are divided by a temperature at which what it writes
is as hard for it as the calibration text is, which is where the divergence is to be small.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.streams import last_states
from gatelab.anatomy.texts import continued, given_numbers, logits_of, token_losses
from gatelab.display import Listener, ProgressLike
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.models.layouts import Layer, Replaced, layers_of

TOKENS, STEPS = 1024, 3000  # of a step, at least; where there are more tokens than for so many steps, steps grow
WARM = 10  # steps until the rate is what it is to be
RATES = (0.03, 0.01, 0.003, 0.001, 0.0003)  # of a weight in a step, as a share of the root mean square of its matrix
TRIED, MOST_TRIED = 8, 60  # each rate is tried for this part of all steps, so many at most, and until it is warm
BEGINNING = 8  # tokens of the calibration text that a window of the model's own begins with
TEMPERATURES = (0.85, 0.9, 0.95, 1.0)  # at which some windows are written first, so many each
WRITTEN_FIRST = 32


@dataclass(frozen=True, eq=False)
class Distillation:
    """How blocks are refitted together.

    Attributes:
        epochs: passes over the windows.
        own_text: tokens that the given model writes beside those of the calibration text; or windows of tokens that
            are there already, as `own_windows` gives them.
        rates: which are tried for a part of the way; one alone is not tried but taken.
        seed: of what is written and of the order of the windows.
    """

    epochs: int = 1
    own_text: int | Tensor = 0
    rates: Sequence[float] = RATES
    seed: int = 0

    @property
    def writes(self) -> bool:
        """Whether there is text beside that of the calibration, or is to be."""
        return isinstance(self.own_text, Tensor) or self.own_text > 0

    def __post_init__(self) -> None:
        whole_number("epochs", self.epochs, 1, of="passes over the windows")
        if isinstance(self.own_text, Tensor | np.ndarray | list):
            windows = given_numbers(self.own_text, "own_text")
            if windows.ndim != 2 or not windows.numel():
                raise GatelabError(
                    f"own_text has the shape {tuple(windows.shape)}; give a number of tokens, or windows of tokens"
                    " (windows, length)"
                )
            object.__setattr__(self, "own_text", windows)
        else:
            whole_number("own_text", self.own_text, 0, of="tokens")
        if isinstance(self.rates, str) or not isinstance(self.rates, Sequence) or not self.rates:
            raise GatelabError(f"rates are {self.rates!r}; give one or more positive numbers, such as (0.003, 0.001)")
        for rate in self.rates:
            real_number("one of the rates", rate, above=0)


@dataclass(frozen=True)
class Distilled:
    """How a distillation went."""

    losses: tuple[float, ...]  # on held-out windows, before it and after every epoch
    best: int  # which of them was taken
    rate: float  # the change of a weight in a step, as a share of the root mean square of its matrix
    epochs: int  # passes over the windows
    own_text: int  # tokens of own text that were asked for or given


def distil_blocks(
    dense: Any,
    small: Any,
    fitted: Tensor,
    held_out: Tensor,
    terms: Distillation,
    *,
    causal: bool,
    report: Listener | None = None,
) -> Distilled:
    """Fit the feed-forward weights of a smaller model, in place, to what the given one says at its end.

    Windows that are held out decide which rate and which epoch is taken, be it the start. What the model is to write
    itself is among those to fit already. Steps that are reported are those of the rates tried, then of the epochs.
    """
    weights = block_weights(layers_of(small))
    epochs, rates, size = terms.epochs, terms.rates, 8
    if not fitted.is_floating_point():
        size = max(1, max(TOKENS, epochs * fitted.numel() // STEPS) // fitted.shape[1])
    steps = epochs * -(-len(fitted) // size)
    trial = min(steps, max(2 * WARM, min(steps // TRIED, MOST_TRIED)))
    to_try = rates if len(rates) > 1 else ()  # one alone is taken
    all_steps, done = len(to_try) * trial + steps, 0

    def loss() -> float:
        return loss_on(dense, small, held_out, size, causal)

    def descent(rate: float, steps: int) -> Iterator[int]:
        """Step after step on windows in an order by chance, the rate falling to a twentieth."""
        nonlocal done
        groups = [{"params": [W], "lr": rate * float(W.detach().square().mean().sqrt())} for W in weights]
        optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-12, fused=weights[0].is_cuda)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / WARM) * (1 - 0.95 * step / steps)
        )
        for step, batch in enumerate(islice(shuffled(fitted, size, terms.seed), steps), 1):
            with torch.enable_grad():
                difference(dense, small, batch, causal).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
            if report:
                report(done, all_steps)
            yield step

    losses, best, start = [loss()], 0, copies(weights)
    saved, rate = start, rates[0]
    try:
        with trained_alone(small, weights):
            tried: dict[float, float] = {}
            for rate in to_try:
                for _ in descent(rate, trial):
                    pass
                tried[rate] = loss()
                put(weights, start)
            if tried:
                rate = min(tried, key=lambda rate: (not math.isfinite(tried[rate]), tried[rate]))
            for step in descent(rate, steps):
                if step % (steps // epochs) == 0:
                    losses.append(loss())
                    if losses[-1] < losses[best]:
                        best, saved = len(losses) - 1, copies(weights)
    finally:
        put(weights, saved)
    own_text = terms.own_text.numel() if isinstance(terms.own_text, Tensor) else terms.own_text
    return Distilled(tuple(losses), best, rate, epochs, own_text)


def shuffled(rows: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    """Batches of windows in an order by chance, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for chosen in torch.randperm(len(rows), generator=generator).split(size):
            yield rows[chosen]


@contextmanager
def trained_alone(model: nn.Module, weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """A model of which only these weights have gradients; afterwards as before, and without gradients."""
    needed = {p: p.requires_grad for p in model.parameters()}
    try:
        model.requires_grad_(False)
        for W in weights:
            W.requires_grad_(True)
        yield
    finally:
        for p, flag in needed.items():
            p.requires_grad_(flag)
            p.grad = None


def own_windows(dense: Any, fitted: Tensor, terms: Distillation, progress: ProgressLike = False) -> Tensor:
    """Windows as long as those given that the model writes itself, each from a few tokens of theirs in a row.

    They are about as hard for it as those given, see `fair_temperature`. On a GPU a copy in bfloat16 writes. Windows
    that are there already are given back.
    """
    length = fitted.shape[1]
    if isinstance(terms.own_text, Tensor):
        if terms.own_text.shape[1] != length:
            raise GatelabError(
                f"the windows of own_text have {terms.own_text.shape[1]} tokens and those of the text {length}; give"
                " windows of one length"
            )
        return terms.own_text.cpu()
    beginnings = beginnings_in(fitted, -(-terms.own_text // length), terms.seed)
    writer = dense
    if next(dense.parameters()).is_cuda:
        # Half the bytes to keep of each token, and kernels that know the sharing of keys: several times as fast.
        writer = with_half_weights(dense)
    temperature = fair_temperature(writer, fitted, terms.seed, progress)
    return continued(writer, beginnings, length, temperature=temperature, seed=terms.seed, progress=progress)


def beginnings_in(rows: Tensor, count: int, seed: int) -> Tensor:
    """So many runs of a few tokens, from places in windows that are drawn."""
    generator = torch.Generator().manual_seed(seed)
    length = rows.shape[1]
    beginning = min(BEGINNING, length - 1)
    window = torch.randint(len(rows), (count, 1), generator=generator)
    place = torch.randint(length - beginning + 1, (count, 1), generator=generator)
    return rows[window, place + torch.arange(beginning)]


def fair_temperature(model: Any, rows: Tensor, seed: int = 0, progress: ProgressLike = False) -> float:
    """The temperature at which a model's own text is as hard for it as a given one: between 0.85 and 1.

    Some windows are written at each of four temperatures, and their losses, which rise with it, are interpolated. The
    seed is that of where own windows begin; what is drawn has the next one.
    """
    beginnings = beginnings_in(rows, WRITTEN_FIRST, seed)
    first = beginnings.shape[1]
    temperatures = torch.tensor(TEMPERATURES).repeat_interleave(WRITTEN_FIRST)
    beginnings = beginnings.repeat(len(TEMPERATURES), 1)
    written = continued(model, beginnings, rows.shape[1], temperature=temperatures, seed=seed + 1, progress=progress)

    def losses(windows: Tensor) -> Tensor:
        """Of each window the mean loss behind a beginning."""
        return token_losses(model, windows)[:, first - 1 :].double().mean(1)

    wanted = float(losses(rows).mean())
    rising = np.maximum.accumulate(losses(written).view(len(TEMPERATURES), -1).mean(1).numpy())
    return float(np.interp(wanted, rising, TEMPERATURES))


def with_half_weights(model: Any) -> Any:
    """A copy whose weights are bfloat16; buffers, such as the frequencies of rotary positions, stay as they are."""
    half = copy.deepcopy(model)
    for p in half.parameters():
        p.data = p.data.bfloat16()
    return half


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
    """How far the smaller model is from the given one on some windows: the mean over their places.

    On a GPU products are those of bfloat16; weights and the stream between layers stay float32. Logits are such
    products too: results of bfloat16, which are cast to float32 before they are compared. Weights are cast anew each
    time: they have moved.
    """
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


@torch.no_grad()
def loss_on(dense: Any, small: Any, rows: Tensor, size: int, causal: bool) -> float:
    """The mean difference over windows."""
    total = sum(float(difference(dense, small, batch, causal)) * len(batch) for batch in rows.split(size))
    return total / len(rows)
