"""The factors of all samples for a group of parameters, by forward and backward passes over batches of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.linalg.interruptible import apart
from gatelab.memory import ran_out
from gatelab.ntk.empirical.record import Call, Misfit, Recorder, gradients
from gatelab.ntk.empirical.samples import Samples
from gatelab.ntk.empirical.survey import AHEAD, Share, Survey, Use, g_activity


@dataclass
class Factors:
    """What is kept of a parameter (p, q) for n samples: `summed` (n, p q), or L and R, rows and values, or all four."""

    summed: Tensor | None = None
    left: Tensor | None = None
    right: Tensor | None = None
    rows: Tensor | None = None
    values: Tensor | None = None


def collect(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    seen: Survey,
    shares: Sequence[Share],
    column: int,
    batch: int,
    tick: Callable[[], None],
) -> dict[str, Factors]:
    """Run all samples, `batch` at a time, and keep the factors of `shares` for the output `column`."""
    known = {id(p): name for name, p in parameters.items()}
    calls = sorted({use.call for share in shares for use in share.uses})
    kept = _allocate(samples, shares)
    for start in range(0, samples.n, batch):
        which = slice(start, min(start + batch, samples.n))
        recorder = Recorder(known, which.stop - start, seen.stretched)
        by_call = apart(_pass, samples, which, recorder, seen, calls, column)
        for share in shares:
            _write(kept[share.name], share, recorder.calls, by_call, which)
        del recorder, by_call
        tick()
    return kept


def _pass(
    samples: Samples, which: slice, recorder: Recorder, seen: Survey, calls: list[int], column: int
) -> dict[int, Tensor | None]:
    """Forward and backward for the samples in `which`: the gradients by the results of the numbered calls."""
    with torch.enable_grad(), recorder:
        values = samples.run(samples.take(which), samples.index(which))
    _check(recorder, values, seen)
    by_result = gradients(values[:, column].sum(), [recorder.calls[k] for k in calls])
    return dict(zip(calls, by_result, strict=True))


def _check(recorder: Recorder, values: Tensor, seen: Survey) -> None:
    if not torch.isfinite(values).all():
        raise GatelabError("the model's outputs are not finite; look for NaN or overflow in weights and inputs")
    if recorder.signature != seen.signature:
        raise Misfit(*(share.name for share in seen.shares))
    new = recorder.other - seen.other
    for call, expected in zip(recorder.calls, seen.shapes, strict=True):
        if not call.shared and (call.shape[1:] != expected[1:] or call.shape[0] * AHEAD != expected[0] * recorder.n):
            new |= {part.name for part in call.parts}
    if new - set(seen.free):
        raise Misfit(*new)


def _allocate(samples: Samples, shares: Sequence[Share]) -> dict[str, Factors]:
    """Zeroed memory for all factors: what a batch does not reach has no gradient."""
    n, kept, shared = samples.n, {}, {}

    def zeros(*shape: int, dtype: torch.dtype = samples.dtype) -> Tensor:
        return torch.zeros(n, *shape, dtype=dtype, device=samples.device)

    for share in shares:
        p, q = share.shape
        if share.summed:
            kept[share.name] = Factors(summed=zeros(p * q))
            continue
        factors = kept[share.name] = Factors()
        length = sum(u.positions for u in share.uses if u.kind == "outer")
        if length:
            sides = []
            for side, width in ((0, p), (1, q)):
                key = (share.alias, length) if share.alias and share.alias[1] == side else None
                memory = shared.get(key) if key else None
                memory = zeros(length, width) if memory is None else memory
                if key:
                    shared[key] = memory
                sides.append(memory)
            factors.left, factors.right = sides
        length = sum(u.positions for u in share.uses if u.kind == "rows")
        if length:
            factors.rows, factors.values = zeros(length, dtype=torch.int64), zeros(length, q)
    return kept


def _write(kept: Factors, share: Share, calls: list[Call], gradient: dict[int, Tensor | None], which: slice) -> None:
    n = which.stop - which.start
    places = {"outer": 0, "rows": 0}
    for use in share.uses:
        call, g = calls[use.call], gradient[use.call]
        if g is not None:
            try:
                made = call.parts[use.part].make(g, n, call.shared)
            except RuntimeError as error:
                if ran_out(error):
                    raise
                raise Misfit(share.name) from error
            if kept.summed is not None:
                kept.summed[which] += _whole(made, use, share.shape)
            else:
                _put(kept, use, made, which, places[use.kind], share.name)
        if use.kind != "sum":
            places[use.kind] += use.positions


def _whole(made: tuple[Tensor, ...], use: Use, shape: tuple[int, int]) -> Tensor:
    """The gradient of each sample (N, p q)."""
    if use.kind == "sum":
        return made[0]
    if use.kind == "outer":
        return torch.bmm(made[0].transpose(1, 2), made[1]).flatten(1)
    whole = made[1].new_zeros(len(made[0]), *shape)
    whole.scatter_add_(1, made[0][..., None].expand_as(made[1]), made[1])
    return whole.flatten(1)


def _put(kept: Factors, use: Use, made: tuple[Tensor, ...], which: slice, at: int, name: str) -> None:
    if use.trimmed:
        side = use.side if use.side >= 0 else None
        active = g_activity(side, made)
        if int((active > 0).sum(1).max()) > use.positions:
            raise Misfit(name)
        best = active.topk(use.positions, dim=1).indices[..., None]
        made = tuple(t.gather(1, best.expand(-1, -1, t.shape[2])) for t in made)
    if made[0].shape[1] != use.positions:
        raise Misfit(name)
    targets = (kept.left, kept.right) if use.kind == "outer" else (kept.rows, kept.values)
    for target, value in zip(targets, made, strict=True):
        assert target is not None
        target[which, at : at + use.positions] = value
