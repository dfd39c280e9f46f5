"""`empirical`: survey, plan, and then group by group: collect, contract, save.

The kernel as an operator: K v = J (J^T v) by a backward pass and a forward-mode pass, K itself never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from gatelab.display import ProgressLike, Told, reporting
from gatelab.memory import check_memory, most_that_fits, ran_out
from gatelab.ntk.kernels import Kernel
from gatelab.ntk.modules.budgets import PartialKernel, PassPlan, bytes_of, make_plan
from gatelab.ntk.modules.contraction import add_jacobians, add_parameter, blocks, collect
from gatelab.ntk.modules.samples import Outputs, Samples, check_batch, trainable
from gatelab.ntk.modules.surveys import Misfit, Survey, survey

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
    state = PartialKernel(store, samples, parameters, seen.values)
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
    plan: PassPlan,
    state: PartialKernel,
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


def operator(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    budget: int | float | str | None = None,
    batch: int | None = None,
) -> LinearOperator:
    """The kernel of `empirical` as a scipy LinearOperator, for `eigsh` and the like where n^2 numbers are too many.

    Each product costs about three passes over the samples. Arguments are those of `empirical`.

    >>> net = nn.Linear(3, 1).double()
    >>> K = operator(net, torch.eye(3, dtype=torch.float64))
    >>> K @ np.ones(3)                     # x_i . x_j + 1, summed over j
    array([4., 4., 4.])
    """
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    check_batch(batch)
    seen = survey(samples, parameters)
    if batch is None:
        # A forward-mode pass keeps nothing, the way through two backward passes keeps about three times one.
        batch = max(1, min(samples.n, bytes_of(budget, samples.device) // (4 * max(1, seen.pass_bytes))))
    products = _Products(samples, parameters, batch, seen.columns)
    return LinearOperator((samples.n, samples.n), matvec=products, rmatvec=products, dtype=np.dtype(np.float64))  # type: ignore[call-arg]


class _Products:
    def __init__(self, samples: Samples, parameters: dict[str, nn.Parameter], batch: int, columns: int) -> None:
        self.samples, self.parameters, self.batch, self.columns = samples, parameters, batch, columns
        self.push: Callable[..., Tensor] = _forward_mode

    def __call__(self, v: np.ndarray) -> np.ndarray:
        samples = self.samples
        weights = torch.as_tensor(np.asarray(v, dtype=np.float64).reshape(-1)).to(samples.device)
        total = torch.zeros(samples.n, dtype=torch.float64, device=samples.device)
        for column in range(self.columns):
            direction = self._pull(weights.to(samples.dtype), column)
            for which in self._batches():
                total[which] += self._push(which, direction, column).double()
        return total.cpu().numpy()

    def _batches(self) -> Iterator[slice]:
        n = self.samples.n
        return (slice(k, min(k + self.batch, n)) for k in range(0, n, self.batch))

    def _pull(self, weights: Tensor, column: int) -> dict[str, Tensor]:
        """J^T v, parameter by parameter."""
        total = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        for which in self._batches():
            with torch.enable_grad():
                values = self.samples.run(self.samples.take(which), self.samples.index(which))[:, column]
            if not values.requires_grad:
                continue
            found = torch.autograd.grad(values @ weights[which], list(self.parameters.values()), allow_unused=True)
            for name, g in zip(self.parameters, found, strict=True):
                if g is not None:
                    total[name] += g
        return total

    def _push(self, which: slice, direction: dict[str, Tensor], column: int) -> Tensor:
        """J u for some samples. Fused attention has no forward mode: its plain form stands in."""
        samples = self.samples
        inputs, index = samples.take(which), samples.index(which)

        def value(parameters: dict[str, Tensor]) -> Tensor:
            def call(*args: Tensor, **kwargs: Tensor) -> object:
                return functional_call(samples.model, parameters, args, kwargs)

            return samples.run(inputs, index, call)[:, column]

        with sdpa_kernel(SDPBackend.MATH):
            try:
                return self.push(value, self.parameters, direction)
            except (RuntimeError, NotImplementedError) as error:
                # Some operation has no forward mode. Memory that ran out is another case: backward passes need more.
                if self.push is _twice_backward or ran_out(error):
                    raise
                self.push = _twice_backward
                return self.push(value, self.parameters, direction)


def _forward_mode(value: Callable[..., Tensor], parameters: dict[str, nn.Parameter], direction: dict) -> Tensor:
    plain = {name: p.detach() for name, p in parameters.items()}
    return jvp(value, (plain,), (direction,))[1].detach()


def _twice_backward(value: Callable[..., Tensor], parameters: dict[str, nn.Parameter], direction: dict) -> Tensor:
    """d/dw <J^T w, u> = J u: for operations that have a second derivative but no forward mode."""
    with torch.enable_grad():
        plain = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        values = value(plain)
        w = torch.zeros_like(values, requires_grad=True)
        found = torch.autograd.grad(values, list(plain.values()), w, create_graph=True, allow_unused=True)
        terms = [(g * direction[name]).sum() for name, g in zip(plain, found, strict=True) if g is not None]
        if not terms:
            return torch.zeros_like(values).detach()
        total = torch.stack(terms).sum()
        return torch.autograd.grad(total, w)[0].detach() if total.requires_grad else torch.zeros_like(values).detach()
