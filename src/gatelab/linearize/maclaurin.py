"""Random Maclaurin features (Kar and Karnick, AISTATS 2012): a power of w.x as a product of chance projections.

For signs omega_1 .. omega_n, independent and even, E[prod_j (omega_j.w)(omega_j.x)] = (w.x)^n. A feature draws its
degree n with probability p_n ~ |a_n| radius^n and is that product times a_n / p_n. Of M drawn features the mean has
the variance

    ( sum_n a_n^2 / p_n (|w|^2 |x|^2 + 2 (w.x)^2 - 2 sum_i w_i^2 x_i^2)^n  -  rest(w.x)^2 ) / M
"""

from __future__ import annotations

import torch
from torch import Tensor

from gatelab.linearize.maps import Maps
from gatelab.linearize.random_features import Terms, dice, moments, terms
from gatelab.memory import check_memory
from gatelab.units import Activation


def build(
    activation: Activation,
    d: int,
    *,
    m: int,
    seed: int = 0,
    radius: float = 1.0,
    degree: int = 10,
    exact_linear: bool = True,
) -> Maps:
    """m features in all, unbiased for the degree's interpolant of act on |w.x| <= radius.

    >>> from gatelab.units import activation
    >>> maps = build(activation("gelu"), 16, m=256)
    >>> maps.phi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    p = terms(activation, d, radius, degree, exact_linear)
    M = p.drawn(m)
    # Signs of degree two or more, drawn as one array and scaled in another.
    check_memory(8 * 3 * M * d, f"a drawing of {M} features of {d} inputs", "give a smaller m")
    generator = dice(seed)
    chances = _chances(p)
    counts = torch.bincount(
        torch.multinomial(chances, M, replacement=True, generator=generator), minlength=len(chances)
    )
    signs, scales = [], []
    for n, a, chance, count in zip(p.degrees, p.coefficients, chances, counts.tolist(), strict=True):
        signs.append(2.0 * torch.randint(0, 2, (n, count, d), generator=generator, dtype=torch.float64) - 1)
        scales.append(a / float(chance) / M)

    def products(rows: Tensor) -> list[Tensor]:
        out = []
        for each in signs:
            omega = each.to(rows.device, rows.dtype)
            value = rows @ omega[0].T
            for one in omega[1:]:
                value = value * (rows @ one.T)
            out.append(value)
        return out

    def phi(W: Tensor) -> Tensor:
        return torch.cat(p.head_phi(W) + [s * v for s, v in zip(scales, products(W), strict=True)], -1)

    def psi(X: Tensor) -> Tensor:
        return torch.cat(p.head_psi(X) + products(X), -1)

    return Maps(phi, psi, int(m), d)


def variance(
    activation: Activation,
    W: Tensor,
    X: Tensor,
    *,
    m: int,
    radius: float = 1.0,
    degree: int = 10,
    exact_linear: bool = True,
) -> Tensor:
    """Var[Phi(w).Psi(x)] over the draws, (rows of W, rows of X), in closed form."""
    p = terms(activation, W.shape[1], radius, degree, exact_linear)
    M = p.drawn(m)
    z, lengths, fourth = moments(W, X)
    square = lengths + 2 * z.square() - 2 * fourth
    total = -p.rest(z).square()
    for n, a, chance in zip(p.degrees, p.coefficients, _chances(p).tolist(), strict=True):
        total = total + a * a / chance * square**n
    return total / M


def _chances(p: Terms) -> Tensor:
    """The p_n of least variance where |w| |x| = radius."""
    size = torch.tensor(
        [abs(a) * p.radius**n for n, a in zip(p.degrees, p.coefficients, strict=True)], dtype=torch.float64
    )
    return size / size.sum()
