"""Kernels of modules: `empirical` computes the matrix within a memory budget, `operator` only its products.

K is a sum over parameters, which are divided into groups that fit the budget; the factors of a group are collected for
all n samples, by a forward and backward pass over all of them, and contracted:

    peak = factors of the largest group + max(batch x memory of a pass per sample, workspace)

For parameters without factors, or whose factors do not fit, rows of the Jacobian are computed sample by sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.interrupts import apart
from gatelab.memory import check_memory, free_memory, most_that_fits, ran_out
from gatelab.ntk.kernels import Kernel
from gatelab.ntk.modules import surveys
from gatelab.ntk.modules.contraction import Factors, Outer, Rows, Sum, add_gram, add_tied, add_tile, cuts, product
from gatelab.ntk.modules.samples import Outputs, Samples, check_finite, trainable
from gatelab.ntk.modules.surveys import AHEAD, Misfit, Recorder, Share, Survey

Memory = dict[type[Factors], Factors]  # the factors of a parameter for all samples, of each kind
_COPIES = 3  # of the kernel: the sum, the next summand or the transpose, and the result


def empirical(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    budget: float | None = None,
    batch: int | None = None,
    progress: ProgressLike = None,
) -> Kernel:
    """The tangent kernel of a model with its current weights: K_ij = <df(x_i)/dtheta, df(x_j)/dtheta>.

    Frozen parameters are left out. float32 models run in float32, with sums over slices in float64; `error` is then
    64 eps = 8e-6, a typical rounding error for networks of a few dozen layers, not a bound.

    Args:
        model: any module in evaluation mode, with parameters of one precision on one device.
        X: an array of samples, or a dictionary of the model's inputs (input_ids, pixel_values, ...), samples first.
        outputs: which output is f; None for a model with one number per sample. If the model does not return a
            tensor, `.logits` or `.last_hidden_state` is used. Then

                3               entry 3 of the last dimension of (N, C)
                (-1, 3)         last position and entry 3 of a sequence (N, T, C)
                (n,), (n, 2)    whole numbers, the entry for each sample (of a sequence: at the last position), or both
                function        of the model's output to (N,), or to (N, k): K is then the sum over the k outputs, at k
                                times the cost

        budget: bytes of memory in addition to the model and K; None for half of the free memory.
        batch: samples per pass; None to choose it by the budget.
        progress: False for none, or a function of (done, total).

    Returns:
        The `Kernel`, n by n in float64 on the device of the model.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    >>> K = empirical(net, torch.eye(3, dtype=torch.float64))
    >>> K.matrix.shape, K.label
    (torch.Size([3, 3]), 'Sequential')
    """
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    if batch is not None:
        batch = whole_number("batch", batch, 1, of="samples")
    whole = _COPIES * 8 * samples.n**2
    most = int(most_that_fits(_COPIES * 8, samples.device) ** 0.5)
    remedy = f"give {most} samples or fewer, or gl.ntk.operator, which never forms it"
    check_memory(whole, f"the kernel of {samples.n} samples", remedy, samples.device)
    if budget is None:
        budget = (free_memory(samples.device) - whole) / 2
    budget = real_number("budget", budget, above=0)
    overview = surveys.survey(samples, parameters)
    with reporting(progress, "kernel") as report:
        try:
            K = kernel_sum(samples, parameters, overview, budget, batch, report)
        except Misfit:
            # Other samples differ from the three of the survey: give up on factors.
            overview = replace(overview, shares=(), free=tuple(parameters))
            K = kernel_sum(samples, parameters, overview, budget, batch, report)
    error = 64 * torch.finfo(torch.float32).eps if samples.dtype == torch.float32 else 0.0
    return Kernel((K + K.T) / 2, type(model).__name__, error=error)


def kernel_sum(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    survey: Survey,
    budget: float,
    batch: int | None,
    report: Listener | None,
) -> Tensor:
    """The kernel as a sum over groups of parameters."""
    plan = make_plan(survey, parameters, samples, budget, batch)
    K = torch.zeros(samples.n, samples.n, dtype=torch.float64, device=samples.device)
    free, done = [parameters[name] for name in plan.free], 0
    blocks = cuts(samples.n, plan.block) if free else []
    passes = cuts(samples.n, plan.batch)
    total = survey.columns * (sum(len(passes) + len(group) for group in plan.groups) + len(blocks))

    def tick() -> None:
        nonlocal done
        done += 1
        if report is not None:
            report(done, total)

    for column in range(survey.columns):
        for group in plan.groups:
            factors = collect(samples, parameters, survey, group, column, passes, tick)
            for share in group:
                add_contribution(K, factors.pop(share.name), share, plan.workspace)
                tick()
        for k, i in enumerate(blocks):
            left = jacobian(samples, free, column, i)
            add_gram(K[i, i], left)
            for j in blocks[k + 1 :]:
                add_tile(K, i, j, product(left, jacobian(samples, free, column, j)))
            tick()
    return K


def collect(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    survey: Survey,
    shares: Sequence[Share],
    column: int,
    passes: list[slice],
    tick: Callable[[], None],
) -> dict[str, Memory]:
    """Run all samples, pass by pass, and keep the factors of `shares` for the output `column`."""
    known = {id(p): name for name, p in parameters.items()}
    numbers = sorted({k for share in shares for k, _ in share.uses})
    memory: dict[str, Memory] = {share.name: {} for share in shares}

    def run(which: slice) -> tuple[Recorder, dict[int, Tensor | None]]:
        """Forward and backward for the samples in `which`: the calls, and the gradients by their numbers."""
        recorder, values = surveys.forward(samples, known, which, survey.stretched)
        check_pass(recorder, values, survey)
        by_result = surveys.gradients(values[:, column].sum(), [recorder.calls[k] for k in numbers])
        return recorder, dict(zip(numbers, by_result, strict=True))

    def keep(which: slice, recorder: Recorder, by_call: dict[int, Tensor | None]) -> None:
        for share in shares:
            try:
                factors = surveys.factors_of(share.uses, recorder.calls, by_call, recorder.n)
            except RuntimeError as error:
                if ran_out(error):
                    raise
                raise Misfit from error
            for part in joined(factors, share):
                own = memory[share.name]
                own[type(part)] = stored(own.get(type(part)), part, which, samples.n)

    for which in passes:
        # Kept by this thread: what a thread allocates, its allocator holds back.
        keep(which, *apart(run, which))
        tick()
    return memory


def check_pass(recorder: Recorder, values: Tensor, survey: Survey) -> None:
    """Raise for outputs that are not finite, and `Misfit` for calls or shapes that differ from the survey."""
    check_finite(values)
    if [names for names, _ in recorder.outline] != [names for names, _ in survey.outline]:
        raise Misfit
    new = recorder.other - survey.other
    for call, (names, expected) in zip(recorder.calls, survey.outline, strict=True):
        if not call.shared and (call.shape[1:] != expected[1:] or call.shape[0] * AHEAD != expected[0] * recorder.n):
            new.update(names)
    if new - set(survey.free):
        raise Misfit


def joined(factors: list[Factors], share: Share) -> list[Factors]:
    """The factors of a parameter, one of each kind, from those of its uses."""
    if share.summed and factors:
        return [Sum(torch.stack([part.gradients(share.shape) for part in factors]).sum(0))]
    by_kind: list[Factors] = []
    for kind in (Outer, Rows):
        own = [vars(part).values() for part in factors if isinstance(part, kind)]
        if own:
            by_kind.append(kind(*(torch.cat(tensors, 1) for tensors in zip(*own, strict=True))))
    return by_kind


def stored(memory: Factors | None, part: Factors, which: slice, n: int) -> Factors:
    """`part` written into the memory of all n samples, which grows if a batch has more positions than those before."""
    kept = []
    for name, tensor in vars(part).items():
        whole = getattr(memory, name, None)
        if whole is None:
            whole = tensor.new_zeros(n, *tensor.shape[1:])
        more = tensor.shape[1] - whole.shape[1]
        if more > 0:
            whole = functional.pad(whole, (0, 0) * (tensor.ndim - 2) + (0, more))
        whole[which, : tensor.shape[1]] = tensor
        kept.append(whole)
    return type(part)(*kept)


def add_contribution(K: Tensor, memory: Memory, share: Share, workspace: int) -> None:
    """Add the contribution of a parameter to K, within `workspace` bytes."""
    outer, rows = memory.get(Outer), memory.get(Rows)
    if isinstance(rows, Rows):
        if not isinstance(outer, Outer):
            outer = Outer(*(rows.values.new_zeros(len(K), 0, size) for size in share.shape))
        add_tied(K, outer, rows, workspace)
        return
    for part in memory.values():
        if not isinstance(part, Rows):
            part.add_to(K, workspace)


def jacobian(samples: Samples, free: list[nn.Parameter], column: int, which: slice) -> Tensor:
    """The gradients of the output `column` by the parameters `free`, a backward pass per sample."""

    def gradient(k: int) -> Tensor:
        with torch.enable_grad():
            value = samples.run(*samples.take(slice(k, k + 1)))[0, column]
        return torch.cat([g.flatten() for g in surveys.plain_gradients(value, free)])

    width = sum(p.numel() for p in free)
    rows = torch.empty(which.stop - which.start, width, dtype=samples.dtype, device=samples.device)
    for k, row in enumerate(rows, which.start):
        row.copy_(apart(gradient, k))
    return rows


def operator(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    batch: int | None = None,
) -> LinearOperator:
    """The kernel of `empirical` as a scipy LinearOperator, for example for `eigsh`, without its n^2 numbers.

    Each product costs about four passes over the samples.

    Args:
        model: as for `empirical`.
        X: as for `empirical`, n samples.
        outputs: as for `empirical`.
        batch: samples per pass; None to choose it by the free memory.

    Returns:
        The operator, n by n.

    >>> net = nn.Linear(3, 1).double()
    >>> K = operator(net, torch.eye(3, dtype=torch.float64))
    >>> K @ np.ones(3)                     # x_i . x_j + 1, summed over j
    array([4., 4., 4.])
    """
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    overview = surveys.survey(samples, parameters)
    if batch is None:
        batch = min(samples.n, free_memory(samples.device) // (8 * max(1, overview.pass_bytes))) or 1
    batches = cuts(samples.n, whole_number("batch", batch, 1, of="samples"))
    weights = list(parameters.values())

    def outputs_of(which: slice, column: int) -> Tensor:
        return samples.run(*samples.take(which))[:, column]

    def along(which: slice, way: list[Tensor], column: int) -> Tensor:
        """J u for some samples, as the derivative of <J^T w, u> by w."""
        values = outputs_of(which, column)
        w = torch.zeros_like(values, requires_grad=True)
        slopes = torch.autograd.grad(values, weights, w, create_graph=True, allow_unused=True, materialize_grads=True)
        derivative = torch.stack([(g * u).sum() for g, u in zip(slopes, way, strict=True)]).sum()
        return surveys.plain_gradients(derivative, [w])[0]

    @torch.enable_grad()
    def times(v: np.ndarray) -> np.ndarray:
        given = torch.as_tensor(np.asarray(v, dtype=np.float64).reshape(-1)).to(samples.device, samples.dtype)
        total = torch.zeros(samples.n, dtype=torch.float64, device=samples.device)
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            for column in range(overview.columns):
                way = [torch.zeros_like(p) for p in weights]
                for which in batches:
                    slopes = surveys.plain_gradients(outputs_of(which, column) @ given[which], weights)
                    way = list(map(torch.add, way, slopes))
                total += torch.cat([along(which, way, column).detach().double() for which in batches])
        return total.cpu().numpy()

    return LinearOperator((samples.n, samples.n), matvec=times, rmatvec=times, dtype=np.dtype(np.float64))  # type: ignore[call-arg]


# Larger products are not faster: on a GPU these fill it, on a CPU larger ones exceed the caches.
_LIMIT, _LIMIT_OF_GPU = 64 * 2**20, 2 * 2**30


@dataclass(frozen=True)
class PassPlan:
    """Groups of parameters whose factors are kept together; `free` ones are handled by Jacobians of `block` samples.

    A pass has `batch` samples, and products have `workspace` bytes.
    """

    groups: list[list[Share]]
    free: tuple[str, ...]
    batch: int
    workspace: int
    block: int


def make_plan(
    survey: Survey, parameters: dict[str, nn.Parameter], samples: Samples, total: float, batch: int | None
) -> PassPlan:
    """The plan for these parameters within `total` bytes; `batch` is chosen if None."""
    n, item, each = samples.n, samples.dtype.itemsize, max(1, survey.pass_bytes)
    sizes = {name: p.numel() * item for name, p in parameters.items()}
    limit = _LIMIT_OF_GPU if samples.device.type == "cuda" else _LIMIT

    def require(needed: float, what: str) -> None:
        if needed > total:
            raise GatelabError(
                f"{what} need {needed / 2**20:.1f} MiB; the budget is {total / 2**20:.1f} MiB, give more"
            )

    # The survey needs the gradients of all parameters, and those of three samples by one of them.
    ahead = AHEAD * each + 2 * sum(sizes.values()) + AHEAD * max(sizes.values())
    require(max(ahead, (batch or 1) * each), "three samples and a gradient of all parameters")
    # A pass, or the least workspace: one row of the gradients of all samples and their product.
    row = max((2 * n * share.shape[1] * item for share in survey.shares if not share.summed), default=0)
    available = total - max((batch or max(1, total // 8 // each)) * each, row)
    groups: list[list[Share]] = []
    used, largest, free = math.inf, 0, dict.fromkeys(survey.free)
    for share in survey.shares:
        need = share.numbers * n * item
        if need > available:
            free[share.name] = None
            continue
        if used + need > available:
            groups.append([])
            used = 0
        groups[-1].append(share)
        used += need
        largest = max(largest, used)
    left = total - largest
    # Jacobians of all samples, or of two blocks that are multiplied; a third is for the pass that computes them.
    own = sum(sizes[name] for name in free)
    block, available = n, total - max(2 * each, total // 3)
    if n * own > available:
        require(3 * own + 2 * each, "the Jacobians of two samples")
        block = max(1, int(available // (2 * own)))
    size = batch or max(1, min(n, int(min(left, 4 * limit) // each)))
    return PassPlan(groups, tuple(free), size, int(min(left, limit)), block)
