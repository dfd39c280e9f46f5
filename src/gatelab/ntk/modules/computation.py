"""Kernels of modules: `empirical` surveys, plans, and then goes group by group: collect, contract, save.

`operator` is the same kernel as an operator, K v = J (J^T v) by a backward pass and a forward-mode pass; K itself is
never formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from gatelab.display import Listener, ProgressLike, reporting
from gatelab.memory import check_memory, most_that_fits, ran_out
from gatelab.ntk.kernels import Kernel
from gatelab.ntk.modules.budgets import Budget, PartialKernel, PassPlan, bytes_of, make_plan
from gatelab.ntk.modules.contraction import cuts
from gatelab.ntk.modules.passes import Jacobians, block_count, collect
from gatelab.ntk.modules.samples import Outputs, Samples, check_batch, trainable
from gatelab.ntk.modules.surveys import Misfit, Share, Survey, survey

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

    Frozen parameters are left out. float64 models are computed in float64 throughout. float32 models run in float32
    (set torch's matmul precision to "highest", its default, for strict float32), sums from slice to slice in float64;
    `error` is then 64 eps = 8e-6, a round figure for what rounding leaves in networks of some dozen layers, not a
    bound.

    Args:
        model: any module in evaluation mode, with parameters of one precision on one device.
        X: an array of samples, or a dictionary of the model's inputs (input_ids, pixel_values, ...), samples first.
        outputs: which number of a sample is f; None where the model gives one. Of outputs that are no tensor, `.logits`
            is taken, else `.last_hidden_state`, and then

                3               entry 3 of the last dimension of (N, C)
                (-1, 3)         of a sequence (N, T, C): last position, entry 3
                (n,), (n, 2)    whole numbers, for each sample its entry (of a sequence: at the last position), or both
                function        of the model's output to (N,), or to (N, k): K is then the sum over the k outputs, at k
                                times the cost

        budget: memory beside the model and K, in bytes or as "24GiB"; None is half of what is free beside K.
        batch: how many samples a pass takes; None leaves that to the budget.
        store: a file in which partial sums are kept: after an interruption the same call goes on from there.
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
    check_batch(batch)
    whole = _COPIES * 8 * samples.n**2
    most = int(most_that_fits(_COPIES * 8, samples.device) ** 0.5)
    check_memory(
        whole,
        f"the kernel of {samples.n} samples",
        f"give {most} samples or fewer, or gl.ntk.operator, which never forms it",
        samples.device,
    )
    sizes = {name: p.numel() for name, p in parameters.items()}
    room = bytes_of(budget, samples.device, beside=whole)
    limit = _LIMIT.get(samples.device.type, _LIMIT_ELSEWHERE)
    limits = Budget(samples.n, samples.dtype.itemsize, room, limit)
    overview = survey(samples, parameters)
    kernel = PartialKernel(store, samples, parameters, overview.values)
    trimmed = True
    with reporting(progress, "kernel") as report:
        while True:
            plan = make_plan(overview, sizes, limits, batch)
            try:
                Accumulation(samples, parameters, overview, plan, report).add_to(kernel)
                break
            except Misfit as misfit:
                # Other samples went another way than the three ahead: keep all positions, then give up on factors.
                if trimmed:
                    overview, trimmed = survey(samples, parameters, trim=False), False
                else:
                    overview = overview.without(misfit.names)
    error = 64 * torch.finfo(torch.float32).eps if samples.dtype == torch.float32 else 0.0
    return Kernel((kernel.K + kernel.K.T) / 2, type(model).__name__, error=error)


@dataclass
class Accumulation:
    """The parts of the kernel one after the other, as planned; `steps` counts what progress has been told of."""

    samples: Samples
    parameters: dict[str, nn.Parameter]
    survey: Survey
    plan: PassPlan
    progress: Listener | None
    steps: int = 0

    @property
    def passes(self) -> int:
        """Passes over all samples."""
        return -(-self.samples.n // self.plan.batch)

    @property
    def total(self) -> int:
        """All steps that progress will be told of."""
        steps = sum(self.passes + len(group) for group in self.plan.groups)
        if self.plan.free:
            steps += block_count(self.samples.n, self.plan.block)
        return steps * self.survey.columns

    def tick(self, steps: int = 1) -> None:
        """Tell progress of further steps."""
        self.steps += steps
        if self.progress is not None:
            self.progress(self.steps, self.total)

    def add_to(self, kernel: PartialKernel) -> None:
        """Add all parts that are not in the kernel yet."""
        for column in range(self.survey.columns):
            for group in self.plan.groups:
                self.add_group(kernel, group, column)
            free = {name: self.parameters[name] for name in self.plan.free if f"{column}:{name}" not in kernel.parts}
            if free:
                jacobians = Jacobians(self.samples, free, column, max(1, self.plan.batch // 2))
                jacobians.add_to(kernel.K, self.plan.block, self.tick)
                kernel.add({f"{column}:{name}" for name in free})

    def add_group(self, kernel: PartialKernel, group: tuple[Share, ...], column: int) -> None:
        """Collect the factors of a group of parameters and add their parts."""
        missing = [share for share in group if f"{column}:{share.name}" not in kernel.parts]
        if not missing:
            self.tick(self.passes)
        factors = {}
        if missing:
            factors = collect(self.samples, self.parameters, self.survey, missing, column, self.plan.batch, self.tick)
        self.tick(len(group) - len(missing))
        for share in missing:
            factors.pop(share.name).add_to(kernel.K, self.plan.workspace)
            self.tick()
        kernel.add({f"{column}:{share.name}" for share in missing})


def operator(
    model: nn.Module,
    X: Any,
    outputs: Outputs = None,
    *,
    budget: int | float | str | None = None,
    batch: int | None = None,
) -> LinearOperator:
    """The kernel of `empirical` as a scipy LinearOperator, for `eigsh` and the like where n^2 numbers are too many.

    Each product costs about three passes over the samples.

    Args:
        model: as for `empirical`.
        X: as for `empirical`, n samples.
        outputs: as for `empirical`.
        budget: memory that the passes may take, in bytes or as "24GiB"; None is half of what is free.
        batch: how many samples a pass takes; None leaves that to the budget.

    Returns:
        The operator, n by n.

    >>> net = nn.Linear(3, 1).double()
    >>> K = operator(net, torch.eye(3, dtype=torch.float64))
    >>> K @ np.ones(3)                     # x_i . x_j + 1, summed over j
    array([4., 4., 4.])
    """
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    check_batch(batch)
    overview = survey(samples, parameters)
    if batch is None:
        # A forward-mode pass keeps nothing, the way through two backward passes keeps about three times one.
        batch = max(1, min(samples.n, bytes_of(budget, samples.device) // (4 * max(1, overview.pass_bytes))))
    products = Products(samples, parameters, batch, overview.columns)
    return LinearOperator((samples.n, samples.n), matvec=products, rmatvec=products, dtype=np.dtype(np.float64))  # type: ignore[call-arg]


class Products:
    """Products of the kernel with vectors, `batch` samples a pass, summed over the `columns` of the outputs.

    `push` is the way from a direction of the parameters to that of the outputs: forward mode, as long as it works.
    """

    def __init__(self, samples: Samples, parameters: dict[str, nn.Parameter], batch: int, columns: int) -> None:
        self.samples, self.parameters, self.columns = samples, parameters, columns
        self.batches = cuts(samples.n, batch)
        self.push: Callable[..., Tensor] = forward_mode

    def __call__(self, v: np.ndarray) -> np.ndarray:
        samples = self.samples
        weights = torch.as_tensor(np.asarray(v, dtype=np.float64).reshape(-1)).to(samples.device)
        total = torch.zeros(samples.n, dtype=torch.float64, device=samples.device)
        for column in range(self.columns):
            direction = self.direction(weights.to(samples.dtype), column)
            for which in self.batches:
                total[which] += self.along(which, direction, column).double()
        return total.cpu().numpy()

    def direction(self, weights: Tensor, column: int) -> dict[str, Tensor]:
        """J^T v, parameter by parameter."""
        total = {name: torch.zeros_like(p, requires_grad=False) for name, p in self.parameters.items()}
        for which in self.batches:
            with torch.enable_grad():
                values = self.samples.run(self.samples.take(which), self.samples.index(which))[:, column]
            if not values.requires_grad:
                continue
            gradients = torch.autograd.grad(values @ weights[which], list(self.parameters.values()), allow_unused=True)
            for name, g in zip(self.parameters, gradients, strict=True):
                if g is not None:
                    total[name] += g
        return total

    def along(self, which: slice, direction: dict[str, Tensor], column: int) -> Tensor:
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
                if self.push is twice_backward or ran_out(error):
                    raise
                self.push = twice_backward
                return self.push(value, self.parameters, direction)


def forward_mode(value: Callable[..., Tensor], parameters: dict[str, nn.Parameter], direction: dict) -> Tensor:
    """J u by a forward-mode pass, which keeps nothing."""
    plain = {name: p.detach() for name, p in parameters.items()}
    return jvp(value, (plain,), (direction,))[1].detach()


def twice_backward(value: Callable[..., Tensor], parameters: dict[str, nn.Parameter], direction: dict) -> Tensor:
    """d/dw <J^T w, u> = J u: for operations that have a second derivative but no forward mode."""
    with torch.enable_grad():
        plain = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        values = value(plain)
        w = torch.zeros_like(values, requires_grad=True)
        gradients = torch.autograd.grad(values, list(plain.values()), w, create_graph=True, allow_unused=True)
        terms = [(g * direction[name]).sum() for name, g in zip(plain, gradients, strict=True) if g is not None]
        if terms:
            total = torch.stack(terms).sum()
            if total.requires_grad:
                return torch.autograd.grad(total, w)[0].detach()
        return torch.zeros_like(values).detach()
