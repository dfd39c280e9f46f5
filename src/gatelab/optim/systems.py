"""The damped linear systems of Levenberg-Marquardt: min |J s + r|^2 + damping |D s|^2.

D is a number, the root mean square of the norms of the columns of J. The norms themselves (Marquardt's scaling) would
let parameters of little influence move far, and networks with two hidden layers then often stall.

Losses other than squares enter by their second-order model in the outputs (generalized Gauss-Newton): with the gradient
g and the Hessian H = V diag(e) V^T by the outputs of a row, g d + d H d / 2 is half of |root^T d + r|^2 up to a
constant, root = V diag(sqrt e), r = V^T g / sqrt e. An e is raised where the model would promise more than the loss of
the row, if no loss is negative: for Huber's loss these are the weights of iteratively reweighted least squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import gram
from gatelab.optim.jacobians import Graph, Jacobian

# The least damping for Cholesky, over the number of parameters and the rounding of the Gram matrix.
_MARGIN = {torch.float32: 10.0, torch.float64: 1e3}
RowLoss = Callable[[Tensor], Tensor]
# Random products for D; the most iterations of CGLS, and the share of the gradient that ends them.
_PROBES, _ITERATIONS, _ACCURACY = 4, 200, 1e-3


class DenseSystem:
    """The system of a Jacobian (m, p) in memory; the first `linear` parameters have `ease` times the damping."""

    def __init__(self, jacobian: Jacobian, r: Tensor, linear: int = 0, ease: float = 1.0) -> None:
        self.r, self.jacobian = r, jacobian
        m, p = jacobian.shape
        self.wide = m < p
        size = jacobian.norm() / p**0.5
        self.finite = math.isfinite(size)
        self.size = r.new_full((p,), max(size, torch.finfo(r.dtype).tiny))
        self.size[:linear] *= ease**0.5
        self._linear = linear * (not self.wide)
        self._damping, self._upper, self._refined, self._orthogonal = 0.0, r.new_zeros(0, 0), False, False
        self._grams: dict[torch.dtype, Tensor] = {}

    def step(self, damping: float) -> tuple[Tensor, Tensor]:
        """The damped step s, and J s."""
        self._damping, self._orthogonal = damping, not self._by_cholesky(damping)
        if self._orthogonal:
            s = self._by_qr(damping) / self.size
        else:
            s = self._minimizer(self.r, self._refined)
        return s, self.jacobian.times(s)

    def second(self, r: Tensor) -> Tensor:
        """The step for other residuals and the last damping, by the normal equations without refinement."""
        if self.wide and self._orthogonal:
            Q, core, _ = self._core
            assert Q is not None
            return -Q @ torch.cholesky_solve((core.mT @ r)[:, None], self._upper, upper=True)[:, 0] / self.size
        return self._minimizer(r, False)

    def times(self, s: Tensor) -> Tensor:
        """J s."""
        return self.jacobian.times(s)

    def _minimizer(self, r: Tensor, refined: bool) -> Tensor:
        """The step by the damped normal equations, refined once where rounding could be seen."""
        J, size = self.jacobian, self.size
        if self.wide:
            z = -self._solved(r)
            if refined:
                z = z - self._solved(r + J.times(J.transposed(z) / size.square()) + self._damping * z)
            return J.transposed(z) / size.square()
        g = J.transposed(r) / size
        z = -self._solved(g)
        if refined:
            z = z - self._solved(g + J.transposed(J.times(z / size)) / size + self._damping * z)
        return z / size

    def _solved(self, right: Tensor) -> Tensor:
        """The solution of the damped normal equations, by blocks if linear parameters are eliminated."""
        k = self._linear
        if not k or self._orthogonal:
            return self._twice(right)
        V, S, C, _ = self._eliminated
        first = V.mT @ right[:k]
        weight = 1 / (S.square() + self._damping)
        rest = right[k:] - C.mT @ (S * weight * first)
        rest = self._twice(rest)
        return torch.cat([V @ (weight * (first - S * (C @ rest))), rest])

    def _twice(self, right: Tensor) -> Tensor:
        """The solution with the triangle and its transpose; two calls are faster than `cholesky_solve`."""
        U, x = self._upper, right.to(self._upper.dtype)[:, None]
        x = torch.linalg.solve_triangular(U.mT, x, upper=False)
        return torch.linalg.solve_triangular(U, x, upper=True)[:, 0].to(right.dtype)

    def _by_cholesky(self, damping: float) -> bool:
        """Factor the damped normal equations, if their rounding, of the Gram matrix above all, is small enough."""
        p, own = self.jacobian.shape[1], self.r.dtype
        least = {dtype: margin * p * torch.finfo(dtype).eps for dtype, margin in _MARGIN.items()}
        if damping < least[own]:
            return False
        dtype = torch.float32
        if damping < least[dtype]:
            dtype = own
        damped = self._gram(dtype).to(own if self._linear else dtype, copy=True)
        damped.diagonal().add_(damping)
        if self._linear:
            _, S, C, _ = self._eliminated
            damped += C.mT @ ((damping / (S.square() + damping))[:, None] * C)
        self._refined = dtype != own or damping < p * torch.finfo(own).eps ** 0.5
        self._upper, failed = torch.linalg.cholesky_ex(damped, upper=True)
        return not failed

    def _by_qr(self, damping: float) -> Tensor:
        n, (Q, core, right) = min(self.jacobian.shape), self._core
        below = torch.zeros_like(core)
        below.diagonal().fill_(damping**0.5)
        stacked = torch.cat([torch.cat([core, right[:, None]], 1), torch.nn.functional.pad(below, (0, 1))])
        triangle = torch.linalg.qr(stacked, mode="r")[1]
        self._upper = triangle[:n, :n]
        z = -torch.linalg.solve_triangular(self._upper, triangle[:n, n:], upper=True)[:, 0]
        if Q is None:
            return z
        return Q @ z

    def _gram(self, dtype: torch.dtype) -> Tensor:
        """The upper triangle of the Gram matrix of the smaller side, without linear parameters and what they can do."""
        if dtype not in self._grams:
            if self._linear:
                G = gram(self._eliminated[3].to(dtype)[None])[0]
            elif self.wide and bool((self.size == self.size[0]).all()):
                G = self.jacobian.outer(dtype) / self.size[0].to(dtype).square()
            elif self.wide:
                G = gram(self._scaled.mT.to(dtype)[None])[0]
            else:
                G = self.jacobian.gram(dtype) / self.size[0].to(dtype).square()
            self._grams[dtype] = G
        return self._grams[dtype]

    @cached_property
    def _scaled(self) -> Tensor:
        return self.jacobian.matrix / self.size

    @cached_property
    def _eliminated(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """V, S, C = U^T G and G - U C for the columns U S V^T of linear parameters and the others G."""
        Q, R = torch.linalg.qr(self._scaled[:, : self._linear])
        U, S, Vh = torch.linalg.svd(R)
        Q, G = Q @ U, self._scaled[:, self._linear :]
        C = Q.mT @ G
        return Vh.mT, S, C, G - Q @ C

    @cached_property
    def _core(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """A basis of steps, if it is not that of the parameters; J in this basis, made square; and the residuals."""
        if self.wide:
            Q, R = torch.linalg.qr(self._scaled.mT)
            return Q, R.mT, self.r
        n = self._scaled.shape[1]
        triangle = torch.linalg.qr(torch.cat([self._scaled, self.r[:, None]], 1), mode="r")[1]
        return None, triangle[:n, :n], triangle[:n, n]


class FreeSystem:
    """The system of products with J, solved by CGLS."""

    def __init__(self, graph: Graph, generator: torch.Generator) -> None:
        self.graph, self.r = graph, graph.value
        squares = 0.0
        for _ in range(_PROBES):
            signs = torch.randint(0, 2, self.r.shape, generator=generator, device="cpu").to(self.r) * 2 - 1
            squares += float(graph.transposed(signs).square().mean()) / _PROBES
        self.size = self.r.new_full((graph.shape[1],), max(squares**0.5, torch.finfo(self.r.dtype).tiny))
        self._damping = 0.0

    def step(self, damping: float) -> tuple[Tensor, Tensor]:
        """The damped step s, and J s."""
        self._damping = damping
        s, left = self._least_squares(self.r)
        return s, left - self.r

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
