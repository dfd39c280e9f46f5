"""The damped linear systems of Levenberg-Marquardt: min |J s + r|^2 + damping |D s|^2.

D is a number, the root mean square of the norms of the columns of J. The norms themselves (Marquardt's scaling) would
let parameters of little influence move far, and networks with two hidden layers then often stall.

- `DenseSystem` holds J. If the damping keeps the condition number of the normal equations below 1 / sqrt(eps), Cholesky
  solves them; with fewer residuals than parameters, they are those of J J^T (Woodbury). For smaller dampings they would
  lose digits: then J, or its transpose, is factored by QR once, and its triangle on top of the damping again.
- `FreeSystem` has products with J alone: conjugate gradients for least squares (CGLS); random products estimate D.

**Losses other than squares** enter by their second-order model in the outputs (generalized Gauss-Newton). A loss has
one value per row of outputs z (N, C). With its gradient g and Hessian H = V diag(e) V^T by the outputs of a row,
g d + d H d / 2 is, up to a constant, half of |root^T d + r|^2, root = V diag(sqrt e), r = V^T g / sqrt e. An e is
raised where the model would promise more than the loss of the row, g^2 / (2 e) > loss, if no loss is negative: for
Huber's loss this gives the weights of iteratively reweighted least squares, where H is zero and g is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import gram
from gatelab.optim.jacobians import Graph

RowLoss = Callable[[Tensor], Tensor]
# Random products for D; the most iterations of CGLS, and the share of the gradient that ends them.
_PROBES, _ITERATIONS, _ACCURACY = 4, 200, 1e-3


class DenseSystem:
    """The system of a dense Jacobian (m, p); the first `linear` parameters have `ease` times the damping."""

    def __init__(self, jacobian: Tensor, r: Tensor, linear: int = 0, ease: float = 1.0) -> None:
        self.r, self.wide = r, jacobian.shape[0] < jacobian.shape[1]
        p = jacobian.shape[1]
        size = float(jacobian.norm()) / p**0.5
        self.size = r.new_full((p,), max(size, torch.finfo(r.dtype).tiny))
        self.size[:linear] *= ease**0.5
        self.scaled = jacobian / self.size
        self._upper, self._squared = r.new_zeros(0, 0), True

    def step(self, damping: float) -> tuple[Tensor, float]:
        """The damped step, and the predicted decrease of the sum of squares."""
        x = self._solved(damping)
        left = self.r + self.scaled @ x
        return x / self.size, float(self.r.square().sum() - left.square().sum())

    def second(self, r: Tensor) -> Tensor:
        """The step for other residuals and the last damping, by the normal equations."""
        if self.wide and not self._squared:
            Q, core, _ = self._core
            assert Q is not None
            return -Q @ torch.cholesky_solve((core.mT @ r)[:, None], self._upper, upper=True)[:, 0] / self.size
        if not self.wide:
            r = self.scaled.mT @ r
        return self._from_normal(r) / self.size

    def times(self, s: Tensor) -> Tensor:
        """J s."""
        return self.scaled @ (self.size * s)

    def _from_normal(self, right: Tensor) -> Tensor:
        z = -torch.cholesky_solve(right[:, None], self._upper, upper=True)[:, 0]
        return self.scaled.mT @ z if self.wide else z

    def _solved(self, damping: float) -> Tensor:
        """The scaled step; stores the triangle of the damped normal equations."""
        n, p = min(self.scaled.shape), self.scaled.shape[1]
        if damping >= p * torch.finfo(self.r.dtype).eps ** 0.5:
            damped, right = self._normal
            damped = damped.clone()
            damped.diagonal().add_(damping)
            self._upper, failed = torch.linalg.cholesky_ex(damped, upper=True)
            self._squared = not failed
            if self._squared:
                return self._from_normal(right)
        Q, core, right = self._core
        below = torch.zeros_like(core)
        below.diagonal().fill_(damping**0.5)
        stacked = torch.cat([torch.cat([core, right[:, None]], 1), torch.nn.functional.pad(below, (0, 1))])
        triangle = torch.linalg.qr(stacked, mode="r")[1]
        self._upper, self._squared = triangle[:n, :n], False
        z = -torch.linalg.solve_triangular(self._upper, triangle[:n, n:], upper=True)[:, 0]
        if Q is None:
            return z
        return Q @ z

    @cached_property
    def _normal(self) -> tuple[Tensor, Tensor]:
        """The Gram matrix of the smaller side, and its right-hand side."""
        if self.wide:
            return gram(self.scaled.mT[None])[0], self.r
        return gram(self.scaled[None])[0], self.scaled.mT @ self.r

    @cached_property
    def _core(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """A basis of steps, if it is not that of the parameters; J in this basis, made square; and the residuals."""
        if self.wide:
            Q, R = torch.linalg.qr(self.scaled.mT)
            return Q, R.mT, self.r
        n = self.scaled.shape[1]
        triangle = torch.linalg.qr(torch.cat([self.scaled, self.r[:, None]], 1), mode="r")[1]
        return None, triangle[:n, :n], triangle[:n, n]


class FreeSystem:
    """The system of products with J, solved by CGLS."""

    def __init__(self, graph: Graph, generator: torch.Generator) -> None:
        self.graph, self.r = graph, graph.value
        squares = 0.0
        for _ in range(_PROBES):
            signs = torch.randint(0, 2, self.r.shape, generator=generator).to(self.r) * 2 - 1
            squares += float(graph.transposed(signs).square().mean()) / _PROBES
        self.size = self.r.new_full((graph.shape[1],), max(squares**0.5, torch.finfo(self.r.dtype).tiny))
        self._damping = 0.0

    def step(self, damping: float) -> tuple[Tensor, float]:
        """The damped step, and the predicted decrease of the sum of squares."""
        self._damping = damping
        s, left = self._least_squares(self.r)
        return s, float(self.r.square().sum() - left.square().sum())

    def second(self, r: Tensor) -> Tensor:
        """The step for other residuals and the last damping."""
        return self._least_squares(r)[0]

    def times(self, s: Tensor) -> Tensor:
        """J s."""
        return self.graph.times(s)

    def _least_squares(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """The minimizer of |J s + r|^2 + damping |D s|^2, and J s + r."""
        x, left = torch.zeros_like(self.size), r.clone()
        g = -self.graph.transposed(left) / self.size
        p, gamma = g.clone(), float(g.square().sum())
        goal = gamma * _ACCURACY**2
        for _ in range(_ITERATIONS):
            if not gamma > goal:
                break
            stop_if_asked()
            q = self.graph.times(p / self.size)
            alpha = gamma / float(q.square().sum() + self._damping * p.square().sum())
            x, left = x + alpha * p, left + alpha * q
            g = -self.graph.transposed(left) / self.size - self._damping * x
            gamma, before = float(g.square().sum()), gamma
            p = g + gamma / before * p
        return x / self.size, left


def row_losses(loss: RowLoss, outputs: Tensor) -> Tensor:
    """The loss of each row (N,)."""
    values = loss(outputs)
    if values.shape[:1] != outputs.shape[:1]:
        shape = tuple(values.shape)
        raise GatelabError(
            f"the loss of outputs {tuple(outputs.shape)} has shape {shape}; give one per row, reduction='none'"
        )
    return values.reshape(len(values), -1).sum(1)


def quadratic_model(loss: RowLoss, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """r (N, C) and root (N, C, C) at these outputs."""
    z = outputs.detach().reshape(len(outputs), -1).requires_grad_()
    values = row_losses(loss, z.view_as(outputs))
    (g,) = torch.autograd.grad(values.sum(), z, create_graph=True)
    columns = [torch.zeros_like(z)] * z.shape[1]
    if g.requires_grad:
        columns = [torch.autograd.grad(g[:, k].sum(), z, retain_graph=True)[0] for k in range(z.shape[1])]
    e, V = torch.linalg.eigh(torch.stack(columns, 1))
    along = (V.mT @ g.detach()[..., None])[..., 0]
    tiny = torch.finfo(z.dtype).tiny ** 0.5
    # A loss with negative values has no bound of zero; one with this bound is not steeper than its largest curvature.
    if float(values.detach().min()) >= 0:
        least = (along.square() / (2 * values.detach()[:, None])).nan_to_num(0.0)
        e = torch.maximum(e, least.clamp_max(float(e.max()) or torch.inf))
    e = e.clamp_min(tiny)
    return torch.where(e > tiny, along / e.sqrt(), 0.0), V * e.sqrt()[:, None, :]
