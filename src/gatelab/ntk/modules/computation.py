"""Kernels of modules: `empirical` computes the matrix within a memory budget, `operator` only its products.

`empirical` surveys the model, plans groups of parameters, and collects and contracts their factors group by group. The
factors of one group are kept for all n samples:

    peak = factors of the largest group + max(batch x memory of a pass per sample, workspace)

K is a sum over parameters, so a smaller budget means more groups, each with a forward and backward pass over all
samples. Parameters whose factors do not fit are handled by automatic Jacobians: by `vmap(grad)` if the model supports
it, otherwise sample by sample, which is slower. If the Jacobian of all samples is too large, pairs of blocks are
computed and multiplied.

`operator` computes K v = J (J^T v) by a backward pass and a forward-mode pass, without K.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import grad, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.interrupts import apart
from gatelab.memory import check_memory, free_memory, most_that_fits, ran_out
from gatelab.ntk.kernels import Kernel
from gatelab.ntk.modules.contraction import Kind, Outer, Rows, Sum, Tied, add_gram, add_tile, cuts, product
from gatelab.ntk.modules.samples import Outputs, Samples, check_finite, trainable
from gatelab.ntk.modules.surveys import AHEAD, Call, Misfit, Recorder, Share, Survey, gradients, plain_gradients, survey

Collected = Outer | Sum | Tied
_COPIES = 3  # of the kernel: the sum, the next summand or the transpose, and the result


def empirical(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    budget: int | float | str | None = None,
    batch: int | None = None,
    progress: ProgressLike = None,
) -> Kernel:
    """The tangent kernel of a model with its current weights: K_ij = <df(x_i)/dtheta, df(x_j)/dtheta>.

    Frozen parameters are left out. float64 models are computed in float64. float32 models run in float32 (strictly so
    with torch's default matmul precision "highest"), with sums over slices in float64; `error` is then 64 eps = 8e-6,
    a typical rounding error for networks of a few dozen layers, not a bound.

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

        budget: memory in addition to the model and K, in bytes or as "24GiB"; None for half of the free memory.
        batch: samples per pass; None to choose it by the budget.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).

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
    check_memory(
        whole,
        f"the kernel of {samples.n} samples",
        f"give {int(most_that_fits(_COPIES * 8, samples.device) ** 0.5)} samples or fewer, or gl.ntk.operator, which "
        "never forms it",
        samples.device,
    )
    sizes = {name: p.numel() for name, p in parameters.items()}
    total = bytes_of(budget, samples.device, reserved=whole)
    overview = survey(samples, parameters)
    trimmed = True
    with reporting(progress, "kernel") as report:
        while True:
            plan = make_plan(overview, sizes, samples, total, batch)
            try:
                K = kernel_sum(samples, parameters, overview, plan, report)
                break
            except Misfit as misfit:
                # Other samples differ from the three of the survey: keep all positions, then give up on factors.
                if trimmed:
                    overview, trimmed = survey(samples, parameters, trim=False), False
                else:
                    shares = tuple(s for s in overview.shares if s.name not in misfit.args)
                    free = tuple(dict.fromkeys((*overview.free, *misfit.args)))
                    overview = replace(overview, shares=shares, free=free)
    error = 64 * torch.finfo(torch.float32).eps if samples.dtype == torch.float32 else 0.0
    return Kernel((K + K.T) / 2, type(model).__name__, error=error)


def kernel_sum(
    samples: Samples, parameters: dict[str, nn.Parameter], survey: Survey, plan: PassPlan, report: Listener | None
) -> Tensor:
    """The kernel as a sum over groups of parameters."""
    K = torch.zeros(samples.n, samples.n, dtype=torch.float64, device=samples.device)
    free = {name: parameters[name] for name in plan.free}
    blocks = -(-samples.n // plan.block) if free else 0
    passes = sum(-(-samples.n // plan.batch) + len(group) for group in plan.groups)
    total, done = survey.columns * (passes + blocks * (blocks + 1) // 2), 0

    def tick() -> None:
        nonlocal done
        done += 1
        if report is not None:
            report(done, total)

    for column in range(survey.columns):
        for group in plan.groups:
            factors = collect(samples, parameters, survey, group, column, plan.batch, tick)
            for share in group:
                factors.pop(share.name).add_to(K, plan.workspace)
                tick()
        if free:
            Jacobians(samples, free, column, max(1, plan.batch // 2)).add_to(K, plan.block, tick)
    return K


# ---- passes over all samples


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


# ---- products with vectors


def operator(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    batch: int | None = None,
) -> LinearOperator:
    """The kernel of `empirical` as a scipy LinearOperator, for example for `eigsh`, without its n^2 numbers.

    Each product costs about three passes over the samples.

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
    overview = survey(samples, parameters)
    if batch is None:
        batch = min(samples.n, bytes_of(None, samples.device) // (4 * max(1, overview.pass_bytes))) or 1
    batch = whole_number("batch", batch, 1, of="samples")
    batches = cuts(samples.n, batch)
    fixed = {name: p.detach() for name, p in parameters.items()}

    def direction(weights: Tensor, column: int) -> dict[str, Tensor]:
        """J^T v, parameter by parameter."""
        total = [torch.zeros_like(p) for p in fixed.values()]
        for which in batches:
            with torch.enable_grad():
                values = samples.run(*samples.take(which))[:, column] @ weights[which]
            total = list(map(torch.add, total, plain_gradients(values, list(parameters.values()))))
        return dict(zip(fixed, total, strict=True))

    def along(which: slice, way: dict[str, Tensor], column: int) -> Tensor:
        """J u for some samples, by forward mode, which stores no activations; fused attention has none."""
        inputs, index = samples.take(which)

        def value(own: dict[str, Tensor]) -> Tensor:
            return samples.run(inputs, index, own)[:, column]

        with sdpa_kernel(SDPBackend.MATH):
            try:
                return jvp(value, (fixed,), (way,))[1].detach()
            except (RuntimeError, NotImplementedError) as error:
                # Some operation has no forward mode. If memory ran out, backward passes would need even more.
                if ran_out(error):
                    raise
                return twice_backward(value, fixed, way)

    def times(v: np.ndarray) -> np.ndarray:
        weights = torch.as_tensor(np.asarray(v, dtype=np.float64).reshape(-1)).to(samples.device)
        total = torch.zeros(samples.n, dtype=torch.float64, device=samples.device)
        for column in range(overview.columns):
            way = direction(weights.to(samples.dtype), column)
            total += torch.cat([along(which, way, column).double() for which in batches])
        return total.cpu().numpy()

    return LinearOperator((samples.n, samples.n), matvec=times, rmatvec=times, dtype=np.dtype(np.float64))  # type: ignore[call-arg]


def twice_backward(value: Callable[..., Tensor], parameters: dict[str, Tensor], way: dict[str, Tensor]) -> Tensor:
    """d/dw <J^T w, u> = J u: for operations that have a second derivative but no forward mode."""
    with torch.enable_grad():
        plain = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        values = value(plain)
        w = torch.zeros_like(values, requires_grad=True)
        gradients = torch.autograd.grad(
            values, list(plain.values()), w, create_graph=True, allow_unused=True, materialize_grads=True
        )
        total = torch.stack([(g * u).sum() for g, u in zip(gradients, way.values(), strict=True)]).sum()
        return plain_gradients(total, [w])[0].detach()


# ---- the budget

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_BATCHES = (16, 8, 4, 2, 1)  # candidates for the samples per pass
# Larger products are not faster: on a GPU these fill it, on a CPU larger ones exceed the caches.
_LIMIT, _LIMIT_OF_GPU = 64 * 2**20, 2 * 2**30


@dataclass(frozen=True)
class PassPlan:
    """A plan: `groups` are parameters whose factors are kept together, `free` those handled by Jacobians.

    A pass has `batch` samples, products have `workspace` bytes, and Jacobians are computed for `block` samples at once.
    """

    groups: tuple[tuple[Share, ...], ...]
    free: tuple[str, ...]
    batch: int
    workspace: int
    block: int


def bytes_of(budget: int | float | str | None, device: torch.device, reserved: int = 0) -> int:
    """A budget in bytes: a number, a text such as "24GiB", or None for half of the free memory minus `reserved`.

    >>> bytes_of("1.5 GiB", torch.device("cpu"))
    1610612736
    """
    if budget is None:
        return max(0, free_memory(device) - reserved) // 2
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmg]i?|)b?\s*", budget.lower())
        if match:
            return int(float(match[1]) * _UNITS[match[2]])
    elif not isinstance(budget, bool) and isinstance(budget, int | float) and 0 < budget < float("inf"):
        return int(budget)
    raise GatelabError(f"budget is {budget!r}; give bytes, or a text such as '24GiB' or '500MB'")


def make_plan(survey: Survey, sizes: dict[str, int], samples: Samples, total: int, batch: int | None) -> PassPlan:
    """The plan for parameters with these numbers of entries within `total` bytes; `batch` is chosen if None."""
    n, item, each = samples.n, samples.dtype.itemsize, survey.pass_bytes
    limit = _LIMIT_OF_GPU if samples.device.type == "cuda" else _LIMIT

    def require(needed: int, what: str) -> None:
        if needed > total:
            raise GatelabError(
                f"the budget is {total / 2**20:.1f} MiB, which does not hold {what}; give {needed / 2**20:.1f} MiB or"
                " more"
            )

    # The survey needs the gradients of all parameters, and those of three samples by one of them.
    ahead = AHEAD * each + (2 * sum(sizes.values()) + AHEAD * max(sizes.values())) * item
    require(max(ahead, (batch or 1) * each), "three samples and a gradient of all parameters")
    row = max((2 * n * share.shape[1] * item for share in survey.shares if not share.summed), default=0)
    available = total - max((batch or 1) * each, row)
    large = [share.name for share in survey.shares if share.numbers * n * item > available]
    free = tuple(dict.fromkeys((*survey.free, *large)))
    shares = [share for share in survey.shares if share.name not in free]

    def grouped(batch: int) -> list[list[Share]]:
        """Groups of shares in the order of the model that fit together with a pass of `batch` samples."""
        groups: list[list[Share]] = []
        used = 0
        for share in shares:
            need = share.numbers * n * item
            if not groups or used + need > total - max(batch * each, row):
                groups.append([])
                used = 0
            groups[-1].append(share)
            used += need
        return groups

    # Each group costs passes over all samples, which are slower for small batches.
    groups = grouped(min((batch,) if batch else _BATCHES, key=lambda size: len(grouped(size)) * (1 + 2 / size)))
    largest = max((sum(share.numbers for share in group) * n * item for group in groups), default=0)
    workspace = min(total - largest, limit)
    size = batch or max(1, min(n, min(total - largest, 4 * limit) // max(1, each)))
    # Jacobians of all samples, or of two blocks that are multiplied; a third is for the pass that computes them.
    jacobian = sum(sizes[name] for name in free) * item
    available, block = total - max(2 * each, total // 3), n
    if n * jacobian > available:
        if 2 * jacobian > available:
            require(3 * jacobian + 2 * each, "the Jacobians of two samples")
        block = available // (2 * jacobian)
    return PassPlan(tuple(map(tuple, groups)), free, size, workspace, block)
