"""Passes over all samples: the factors of a group of parameters, and automatic Jacobians of other parameters.

Factors are collected by forward and backward passes over batches of samples. Jacobians are computed by `vmap(grad)` if
the model supports it, otherwise sample by sample, which is slower. If the Jacobian of all samples is too large, pairs
of blocks are computed and multiplied.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from gatelab.errors import GatelabError
from gatelab.interrupts import apart
from gatelab.memory import ran_out
from gatelab.ntk.modules.contraction import Kind, Outer, Rows, Sum, Tied, add_gram, add_tile, cuts, product
from gatelab.ntk.modules.samples import Samples, check_finite
from gatelab.ntk.modules.surveys import AHEAD, Call, Misfit, Recorder, Share, Survey, gradients, plain_gradients

Collected = Outer | Sum | Tied


def collect(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    survey: Survey,
    shares: Sequence[Share],
    column: int,
    batch: int,
    tick: Callable[[], None],
) -> dict[str, Collected]:
    """Run all samples, `batch` at a time, and keep the factors of `shares` for the output `column`."""
    known = {id(p): name for name, p in parameters.items()}
    numbers = sorted({use.call for share in shares for use in share.uses})
    memory = {share.name: allocate(samples, share) for share in shares}

    def run(which: slice, recorder: Recorder) -> dict[int, Tensor | None]:
        """Forward and backward for the samples in `which`: the gradients by the results of the numbered calls."""
        with torch.enable_grad(), recorder:
            values = samples.run(*samples.take(which))
        check_pass(recorder, values, survey)
        by_result = gradients(values[:, column].sum(), [recorder.calls[k] for k in numbers])
        return dict(zip(numbers, by_result, strict=True))

    for which in cuts(samples.n, batch):
        recorder = Recorder(known, which.stop - which.start, survey.stretched)
        by_call = apart(run, which, recorder)
        for share in shares:
            write(memory[share.name], share, recorder.calls, by_call, which)
        del recorder, by_call
        tick()
    return memory


def check_pass(recorder: Recorder, values: Tensor, survey: Survey) -> None:
    """Raise for outputs that are not finite, and `Misfit` for calls or shapes that differ from the survey."""
    check_finite(values)
    if recorder.signature != survey.signature:
        raise Misfit(*(share.name for share in survey.shares))
    new = recorder.other - survey.other
    for call, expected in zip(recorder.calls, survey.shapes, strict=True):
        if not call.shared and (call.shape[1:] != expected[1:] or call.shape[0] * AHEAD != expected[0] * recorder.n):
            new |= {part.name for part in call.parts}
    if new - set(survey.free):
        raise Misfit(*sorted(new))


def allocate(samples: Samples, share: Share) -> Collected:
    """Memory for all factors of a parameter, initially zero."""
    p, q = share.shape
    lengths = Counter[Kind]()
    for use in share.uses:
        lengths[use.kind] += use.positions

    def zeros(*shape: int, dtype: torch.dtype = samples.dtype) -> Tensor:
        return torch.zeros(samples.n, *shape, dtype=dtype, device=samples.device)

    if share.summed:
        return Sum(zeros(p * q))
    outer = Outer(zeros(lengths[Outer], p), zeros(lengths[Outer], q))
    if Rows not in lengths:
        return outer
    rows = Rows(zeros(lengths[Rows], dtype=torch.int64), zeros(lengths[Rows], q))
    return Tied(outer, rows)


def write(memory: Collected, share: Share, calls: list[Call], by_call: dict[int, Tensor | None], which: slice) -> None:
    """Put the factors of the samples in `which` into the memory of a parameter."""
    places = Counter[Kind]()
    for use in share.uses:
        call, g = calls[use.call], by_call[use.call]
        place = places[use.kind]
        places[use.kind] += use.positions
        if g is None:
            continue
        try:
            factors = call.parts[use.part].make(g, which.stop - which.start, call.shared)
        except RuntimeError as error:
            if ran_out(error):
                raise
            raise Misfit(share.name) from error
        if isinstance(memory, Sum):
            memory.whole[which] += factors.gradients(share.shape)
            continue
        if use.trimmed and isinstance(factors, Outer):
            activity = factors.activity()
            if int((activity > 0).sum(1).max()) > use.positions:
                raise Misfit(share.name)
            factors = factors.gathered(activity.topk(use.positions, dim=1).indices)
        if factors.positions != use.positions:
            raise Misfit(share.name)
        memory.put(which, place, factors)


@dataclass(frozen=True)
class Jacobians:
    """Gradients of the output `column` by the parameters `free`, made for `batch` samples at a time."""

    samples: Samples
    free: dict[str, nn.Parameter]
    column: int
    batch: int

    def add_to(self, K: Tensor, block: int, tick: Callable[[], None]) -> None:
        """Add the contribution of these parameters to K, in blocks of samples; `tick` is called for each block."""
        pieces = cuts(self.samples.n, block)
        for k, i in enumerate(pieces):
            left = self.rows(i)
            tick()
            add_gram(K[i, i], left)
            for j in pieces[k + 1 :]:
                add_tile(K, i, j, product(left, self.rows(j)))
                tick()

    def rows(self, which: slice) -> Tensor:
        width = sum(p.numel() for p in self.free.values())
        count = which.stop - which.start
        whole = torch.empty(count, width, dtype=self.samples.dtype, device=self.samples.device)
        for here in cuts(count, self.batch):
            part = slice(which.start + here.start, which.start + here.stop)
            try:
                whole[here] = apart(self.mapped, part)
            except (MemoryError, GatelabError):
                raise
            except Exception as error:
                # vmap raises many kinds of errors; the loop below raises those of the model itself.
                if ran_out(error):
                    raise
                for k in range(part.start, part.stop):
                    whole[k - which.start] = self.single(k)
        return whole

    def mapped(self, which: slice) -> Tensor:
        samples = self.samples

        def value(parameters: dict[str, Tensor], inputs: dict[str, Tensor], index: Tensor) -> Tensor:
            sample = {name: tensor.unsqueeze(0) for name, tensor in inputs.items()}
            return samples.run(sample, index.unsqueeze(0), parameters)[0, self.column]

        parameters = {name: p.detach() for name, p in self.free.items()}
        with torch.no_grad(), warnings.catch_warnings():  # the other parameters are constants here
            warnings.filterwarnings("ignore", "There is a performance drop")
            by_name = vmap(grad(value), in_dims=(None, 0, 0))(parameters, *samples.take(which))
        return torch.cat([by_name[name].flatten(1) for name in self.free], 1)

    def single(self, k: int) -> Tensor:
        """The gradient of sample k by a separate backward pass."""
        with torch.enable_grad():
            value = self.samples.run(*self.samples.take(slice(k, k + 1)))[0, self.column]
        return torch.cat([g.flatten() for g in plain_gradients(value, list(self.free.values()))])
