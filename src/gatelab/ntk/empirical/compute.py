"""`empirical`: survey, plan, and then group by group: collect, contract, save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gatelab.display import ProgressLike, Told, reporting
from gatelab.memory import check_memory, most_that_fits
from gatelab.ntk.empirical.budget import Plan, bytes_of, make_plan
from gatelab.ntk.empirical.checks import check_batch, trainable
from gatelab.ntk.empirical.collect import collect
from gatelab.ntk.empirical.contract import add_parameter
from gatelab.ntk.empirical.jacobians import add_jacobians, blocks
from gatelab.ntk.empirical.record import Misfit
from gatelab.ntk.empirical.resume import Progress
from gatelab.ntk.empirical.samples import Outputs, Samples
from gatelab.ntk.empirical.survey import Survey, survey
from gatelab.ntk.kernel import Kernel

# Products larger than this gain nothing: on a GPU they fill it, on a CPU they leave the caches.
_LIMIT = {"cuda": 2 * 2**30}
_LIMIT_ELSEWHERE = 64 * 2**20
_COPIES = 3  # of the kernel: the sum, what is added to it or its mirror image, and the result


def empirical(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    budget: int | float | str | None = None,
    batch: int | None = None,
    store: str | Path | None = None,
    progress: ProgressLike = None,
) -> Kernel:
    """The tangent kernel of a model as it is: K_ij = <df(x_i)/dtheta, df(x_j)/dtheta>.

    `X` is an array of samples, or a dictionary of the model's inputs (input_ids, pixel_values, ...), samples first.
    Of a model with one number a sample that number is f; else `outputs` says which:

        3               entry 3 of the last dimension of (N, C)
        (-1, 3)         of a sequence (N, T, C): last position, entry 3
        (n,), (n, 2)    whole numbers, for each sample its entry (of a sequence: at the last position), or both
        function        of the model's output to (N,), or to (N, k): K is then the sum over the k outputs, at k times
                        the cost

    Of outputs that are no tensor, `.logits` is taken, else `.last_hidden_state`. Frozen parameters are left out.

    Memory beside the model and K stays within `budget` (bytes, "24GiB"; default: half of what is free
    beside K). `batch`
    overrides how many samples a pass takes. With `store`, a file, partial sums are kept: after an interruption the same
    call goes on from there. `progress` is shown on a terminal and in a notebook unless it is False, or a function of
    (done, total).

    float64 models are computed in float64 throughout. float32 models run in float32 (set torch's matmul precision to
    "highest", its default, for strict float32), sums from slice to slice in float64; `error` is then 64 eps = 8e-6, a
    round figure for what rounding leaves in networks of some dozen layers, not a bound.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    >>> K = empirical(net, torch.eye(3, dtype=torch.float64))
    >>> K.matrix.shape, K.label
    (torch.Size([3, 3]), 'Sequential')
    """
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    check_batch(batch)
    whole = _COPIES * 8 * samples.n**2
    most = int(most_that_fits(_COPIES * 8, samples.device) ** 0.5)
    check_memory(
        whole,
        f"the kernel of {samples.n} samples",
        f"give {most} samples or fewer, or gl.ntk.operator, which never forms it",
        samples.device,
    )
    room = bytes_of(budget, samples.device, beside=whole)
    sizes = {name: p.numel() for name, p in parameters.items()}
    limit = _LIMIT.get(samples.device.type, _LIMIT_ELSEWHERE)
    seen = survey(samples, parameters)
    state = Progress(store, samples, parameters, seen.values)
    trimmed = True
    with reporting(progress, "kernel") as report:
        while True:
            plan = make_plan(seen, sizes, samples.n, samples.dtype.itemsize, room, limit, batch)
            try:
                _accumulate(samples, parameters, seen, plan, state, report)
                break
            except Misfit as misfit:
                # Other samples went another way than the three ahead: keep all positions, then give up on factors.
                seen = survey(samples, parameters, trim=False) if trimmed else seen.without(misfit.names)
                trimmed = False
    matrix = (state.K + state.K.T) / 2
    error = 64 * torch.finfo(torch.float32).eps if samples.dtype == torch.float32 else 0.0
    return Kernel(matrix, type(model).__name__, error=error)


def _accumulate(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    seen: Survey,
    plan: Plan,
    state: Progress,
    progress: Told | None,
) -> None:
    passes = -(-samples.n // plan.batch)
    work = sum(passes + len(group) for group in plan.groups) + (blocks(samples.n, plan.block) if plan.free else 0)
    count, total = 0, work * seen.columns

    def tick(steps: int = 1) -> None:
        nonlocal count
        count += steps
        if progress is not None:
            progress(count, total)

    for column in range(seen.columns):
        for group in plan.groups:
            left = [share for share in group if f"{column}:{share.name}" not in state.done]
            if left:
                kept = collect(samples, parameters, seen, left, column, plan.batch, tick)
            else:
                kept = {}
                tick(passes)
            tick(len(group) - len(left))
            for share in left:
                add_parameter(state.K, kept.pop(share.name), plan.workspace)
                tick()
            state.add({f"{column}:{share.name}" for share in left})
        free = {name: parameters[name] for name in plan.free if f"{column}:{name}" not in state.done}
        if free:
            add_jacobians(state.K, samples, free, column, plan.block, max(1, plan.batch // 2), tick)
            state.add({f"{column}:{name}" for name in free})
