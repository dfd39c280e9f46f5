"""The kernel as an operator: K v = J (J^T v) by a backward pass and a forward-mode pass, K itself never formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from gatelab.memory import ran_out
from gatelab.ntk.empirical.budget import bytes_of
from gatelab.ntk.empirical.checks import check_batch, trainable
from gatelab.ntk.empirical.samples import Outputs, Samples
from gatelab.ntk.empirical.survey import survey


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
