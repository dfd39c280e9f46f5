"""The maps: features, products in parts, gated units, biases, errors, refusals."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.linearization import linearize
from gatelab.linearization.monomials import count, multiplicities, powers


def rows(n: int, d: int, seed: int, scale: float = 0.5) -> Tensor:
    return scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_monomials(x: Tensor, k: int) -> Tensor:
    """Every monomial of degree k times the root of its multinomial coefficient, one by one."""
    out = []
    for indices in itertools.combinations_with_replacement(range(len(x)), k):
        many = math.factorial(k)
        for i in set(indices):
            many //= math.factorial(indices.count(i))
        out.append(math.sqrt(many) * math.prod(float(x[i]) for i in indices))
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_features_are_the_monomials(d: int, k: int) -> None:
    x = rows(1, d, 0)[0]
    (found,), naive = powers([x], [k]), naive_monomials(x, k)
    assert len(found) == count(d, k) == len(naive)
    assert torch.allclose(found.sort().values, naive.sort().values)
    assert multiplicities(d, k)[0].sum() == d**k


@pytest.mark.parametrize("kind", ["symmetric", "kronecker"])
def test_powers_of_products_with_factors(kind: str) -> None:
    x, g, u, v = rows(6, 3, 0), rows(4, 3, 1), rows(4, 3, 2), rows(4, 3, 3)
    left = dict(enumerate(powers([x], range(7), kind)))
    for weights, times in (([g], 1.0), ([g, u], x @ u.T), ([g, u, v], (x @ u.T) * (x @ v.T))):
        for k in range(5):
            (phi,) = powers(weights, [k + len(weights) - 1], kind)
            assert torch.allclose(left[k + len(weights) - 1] @ phi.T, (x @ g.T) ** k * times)


def test_symmetric_features_equal_kronecker_features_with_163_instead_of_66432() -> None:
    W, X = rows(3, 3, 0, 1.0), rows(4, 3, 1, 1.0)
    lean, full = (linearize("gelu", "taylor", degree=10, d=3, features=f) for f in ("symmetric", "kronecker"))
    assert (lean.m, full.m) == (163, 66_432)
    a, b = lean.psi(X) @ lean.phi(W).T, full.psi(X) @ full.phi(W).T
    assert (a - b).abs().max() < 1e-10
    assert lean.polynomial is not None and (a - lean.polynomial(X @ W.T)).abs().max() < 1e-10


def test_degree_four_of_64_inputs_where_kronecker_cannot() -> None:
    made = linearize("gelu", "taylor", degree=4, d=64)
    assert made.m == 766_480 + 2_080 + 64
    W, X = rows(2, 64, 0, 0.1), rows(3, 64, 1, 1.0)
    assert (made.psi(X) @ made.phi(W).T - made.product(W, X)).abs().max() < 1e-12
    with pytest.raises(GatelabError, match="kronecker features"):
        linearize("gelu", "taylor", degree=6, d=64, features="kronecker").psi(X)


@pytest.mark.parametrize(("unit", "m"), [("bilinear", 5 * 6 // 2), ("swiglu", None), (Unit("gelu", 2), None)])
def test_gated_units(unit: str | Unit, m: int | None) -> None:
    options = {"degree": 1} if unit == "bilinear" else {"degree": 4, "interval": 4.0}
    made = linearize(unit, "taylor" if unit == "bilinear" else "minimax", d=5, **options)
    W = tuple(rows(7, 5, seed) for seed in range(made.factors + 1))
    X = rows(3, 5, 9)
    whole = made.psi(X) @ made.phi(W).T
    assert torch.allclose(whole, made.product(W, X), atol=1e-12)
    assert made.polynomial is not None
    expected = made.polynomial(X @ W[0].T)
    for u in W[1:]:
        expected = expected * (X @ u.T)
    assert torch.allclose(whole, expected, atol=1e-12)
    if m is not None:
        assert made.m == m and torch.allclose(whole, made.exact(W, X), atol=1e-12)
    with pytest.raises(GatelabError, match="weights were given"):
        made.phi(W[0])


def test_the_tangent_touches_at_its_reference_to_first_order() -> None:
    at = rows(1, 4, 5)[0]
    made = linearize("gelu", "tangent", d=4, reference=at)
    W, step = rows(6, 4, 0), rows(1, 4, 1)[0]
    errors = [
        float((made.product(W, (at + h * step)[None]) - made.exact(W, (at + h * step)[None])).abs().max())
        for h in (0.0, 1e-3, 2e-3)
    ]
    assert errors[0] < 1e-15 and errors[2] / errors[1] == pytest.approx(4, rel=0.02)


def test_error_on_a_distribution_is_what_integration_gives() -> None:
    """On the circle w.x = cos(angle): a fixed seed and 2^16 pairs; the interval misses with probability 0.05."""
    made = linearize("gelu", "minimax", degree=2, interval=1.0, d=2)
    assert made.polynomial is not None
    angle = torch.linspace(0, 2 * math.pi, 10_001, dtype=torch.float64)[:-1]
    gap = made.activation(angle.cos()) - made.polynomial(angle.cos())
    found = made.error("sphere", seed=1)
    assert found.low < float(gap.square().mean().sqrt()) < found.high
    assert found.maximum <= 1.0001 * float(gap.abs().max()) and found.maximum > 0.99 * float(gap.abs().max())
    assert found.floor is not None and found.floor < found.rmse and found.m == made.m


def test_error_on_data_and_its_floor() -> None:
    W, X = rows(12, 3, 0, 1.0), rows(40, 3, 1, 1.0)
    made = linearize("gelu", "hermite", degree=2)
    found = made.error(W=W, X=X)
    gap = made.exact(W, X) - made.product(W, X)
    assert found.rmse == pytest.approx(float(gap.square().mean().sqrt())) and found.maximum == float(gap.abs().max())
    values = torch.linalg.svdvals(made.exact(W, X))
    assert found.floor == pytest.approx(float((values[found.m :].square().sum() / gap.numel()).sqrt()), rel=1e-6)
    assert found.low < found.rmse < found.high and found.floor < found.rmse


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: linearize("gelu", "hermit"), "did you mean 'hermite'"),
        (lambda: linearize("gelu", "minimax", intervals=3), "did you mean 'interval'"),
        (lambda: linearize("gelu", "optimal", m=3), "give d="),
        (lambda: linearize("gelu", features="all"), "kronecker"),
        (lambda: linearize("gelu", "tangent", features="kronecker"), "leave it out"),
        (lambda: linearize("gelu").m, "features"),
        (lambda: linearize("gelu").error(), "give d="),
        (lambda: linearize("gelu", d=2).error("cauchy"), "no distribution"),
        (lambda: linearize("gelu", d=2).error(W=rows(2, 2, 0)), "give both"),
        (lambda: linearize("gelu", d=2).phi(rows(2, 3, 0)), "one more input"),
        (lambda: linearize("gelu", "tangent", d=3, reference=[1.0]), "reference"),
        (lambda: linearize("gelu", "tangent", d=3, reference=[0.0] * 3).bound(), "polynomial"),
        (lambda: linearize(nn.Linear, "hermite"), "is a class"),
        (lambda: linearize("silu").product(rows(4, 3, 0), rows(4, 3, 1).float()), "one dtype"),
    ],
)
def test_errors_say_what_to_do(call, says: str) -> None:
    with pytest.raises(GatelabError, match=says):
        call()
