"""The dual of a gate: what its expectation makes of two samples.

For a Gaussian pair (u, v) with standard deviations s and t and correlation rho, c = rho s t:

    A = E[act(u) act(v)]        C = c E[act'(u) act'(v)]

`dual(gate, s)` prepares the rows of standard deviation s and gives A and C tile by tile. Powers of relu (arc-cosine
kernels, Cho and Saul 2009), identity, erf and the exact gelu have closed forms; every other gate is a Hermite series
(`dual_series`), which knows its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gatelab.feedforward import Activation, activation
from gatelab.ntk.dual_series import series

# rho (a tile), s (a column), t (a row) -> A, and C where slopes are wanted; rho is left as it is.
Formula = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Dual(Protocol):
    """A and C of prepared rows; C may be left out (None) where no slopes were asked for."""

    def tile(self, rho: Tensor, top: float, rows: slice, cols: slice) -> tuple[Tensor, Tensor | None]:
        """A and C of every pair of `rows` with `cols`.

        `rho` holds their correlations, exactly 1 or -1 where two rows are parallel; `top` is the largest other |rho|.
        """
        ...

    def diagonal(self) -> tuple[Tensor, Tensor | None]:
        """A and C of every row with itself."""
        ...

    def error(self, top: float) -> float:
        """The largest error up to |rho| = `top`, relative to the geometric mean of the two diagonal entries."""
        ...


@dataclass(frozen=True)
class ClosedForm:
    """A dual by formula: exact to rounding."""

    formula: Formula
    s: Tensor

    def tile(self, rho: Tensor, top: float, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        return self.formula(rho, self.s[rows, None], self.s[None, cols])

    def diagonal(self) -> tuple[Tensor, Tensor]:
        return self.formula(torch.ones_like(self.s), self.s, self.s)

    def error(self, top: float) -> float:
        return 0.0


def dual(gate: str | Activation, s: Tensor, *, slopes: bool = True) -> Dual:
    """The dual of `gate` for rows of standard deviation `s`; without `slopes` the series leaves C out.

    >>> A, C = dual("relu", torch.tensor([1.0, 2.0], dtype=torch.float64)).diagonal()
    >>> A, C
    (tensor([0.5000, 2.0000], dtype=torch.float64), tensor([0.5000, 2.0000], dtype=torch.float64))
    """
    gate = activation(gate)
    for function, formula in _CLOSED:
        # By the function, not the name: a user may call anything "gelu".
        if gate.function is function:
            return ClosedForm(formula, s)
    return series(gate, s, slopes=slopes)


def _sine_squared(rho: Tensor) -> Tensor:
    """1 - rho^2 without cancellation near rho = +-1, where 1 - rho and 1 + rho are exact."""
    return torch.rsub(rho, 1).mul_(rho + 1)


def _powers_of_relu(power: int) -> Formula:
    """E[relu(u)^k relu(v)^k] = (s t)^k J_k / (2 pi), and c k^2 E[relu(u)^(k-1) relu(v)^(k-1)].

    J_k(theta) = (-1)^k sin^(2k+1) (1/sin d/dtheta)^k [(pi - theta)/sin], written with psi = pi - theta = acos(-rho):

        J_0 = psi      J_1 = sin + psi cos      J_2 = 3 sin cos + psi (1 + 2 cos^2)
        J_3 = sin (4 + 11 cos^2) + psi cos (9 + 6 cos^2)
    """

    def formula(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        psi = torch.neg(rho).acos_()
        sin = _sine_squared(rho).sqrt_()
        scale = s**power * (t**power / (2 * math.pi))
        if power == 1:
            C = psi.mul_(rho)
            return sin.add_(C).mul_(scale), C.mul_(scale)
        square = rho * rho
        if power == 2:
            C = (sin + psi * rho).mul_(rho).mul_(4)
            A = sin.mul_(rho).mul_(3).add_(psi.mul_(square.mul_(2).add_(1)))
        else:
            lower = (sin * rho).mul_(3).add_(psi * (2 * square).add_(1))
            C = lower.mul_(rho).mul_(9)
            A = sin.mul_((11 * square).add_(4)).add_(psi.mul_(rho).mul_(square.mul_(6).add_(9)))
        return A.mul_(scale), C.mul_(scale)

    return formula


def _identity(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    c = rho * (s * t)
    return c, c.clone()


def _gelu(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """gelu(u) = u Phi(u), by Gaussian integration by parts. With a = 1 + s^2, b = 1 + t^2, D = ab - c^2:

    P = E[Phi(u) Phi(v)] = 1/4 + atan(c / sqrt D) / (2 pi)          e = E[phi(u) phi(v)] = 1 / (2 pi sqrt D)
    E[gelu gelu]   = c P + e (s^2 t^2 + c^2 (1/a + 1/b - 1))
    E[gelu' gelu'] = P + c e (1/a + 1/b + 1/D)
    """
    st = s * t
    c = rho * st
    D = _sine_squared(rho).mul_(st).mul_(st).add_(s * s + (t * t + 1))
    root = D.sqrt()
    P = (c / root).atan_().div_(2 * math.pi).add_(0.25)
    both = 1 / (1 + s * s) + 1 / (1 + t * t)
    e = root.mul_(2 * math.pi).reciprocal_()
    slopes = D.reciprocal_().add_(both).mul_(e).mul_(c).add_(P)
    A = both.sub_(1).mul_(c).mul_(c).addcmul_(st, st).mul_(e)
    return A.addcmul_(c, P), c.mul_(slopes)


def _erf(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """E[erf erf] = 2/pi atan(2c / sqrt D), E[erf' erf'] = 4/pi / sqrt D, D = (1 + 2 s^2)(1 + 2 t^2) - 4 c^2."""
    st = s * t
    root = _sine_squared(rho).mul_(st).mul_(st).mul_(4).add_(2 * s * s + (2 * t * t + 1)).sqrt_()
    ratio = (rho * st).mul_(2).div_(root)
    return ratio.atan().mul_(2 / math.pi), ratio.mul_(2 / math.pi)


_CLOSED: tuple[tuple[Callable[[Tensor], Tensor], Formula], ...] = (
    *((activation(name).function, _powers_of_relu(k)) for k, name in enumerate(("relu", "relu2", "relu3"), 1)),
    (activation("identity").function, _identity),
    (activation("gelu").function, _gelu),
    (torch.erf, _erf),
)
