"""Monte Carlo for the scalar GELU: unbiased, with the stated variance."""

from __future__ import annotations

import pytest
import torch

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.linearization import monte_carlo, monte_carlo_variance


@pytest.mark.parametrize("kind", ["naive", "antithetic"])
def test_unbiased_with_the_variance_that_is_promised(kind):
    # |z| < 5 at 8 points, for mean and variance: a false alarm in 1e-5 of all seeds.
    draw = torch.Generator().manual_seed(0)
    at = torch.tensor([-2.0, -1.28, -0.5, -0.1, 0.2, 0.9, 1.28, 2.5], dtype=torch.float64)
    values = torch.stack([monte_carlo(at, 20, kind, draw) for _ in range(4000)])
    variance = monte_carlo_variance(at, 20, kind)
    exact = torch.nn.functional.gelu(at)
    assert float(((values.mean(0) - exact).abs() / (variance / 4000).sqrt()).max()) < 5
    squares = (values - exact).square()
    assert float(((squares.mean(0) - variance).abs() / (squares.std(0) / 4000**0.5)).max()) < 5


def test_worst_cases():
    z = torch.linspace(-5, 5, 100_001, dtype=torch.float64)
    naive = monte_carlo_variance(z, 1)
    assert float(naive.max()) == pytest.approx(0.1478, abs=5e-5)
    assert abs(float(z[naive.argmax()])) == pytest.approx(1.28, abs=0.006)
    assert 2 * float(monte_carlo_variance(z, 2, "antithetic").max()) == pytest.approx(0.1328, abs=5e-5)
    error = (monte_carlo(z, 256, "quantile") - torch.nn.functional.gelu(z)).abs()
    assert float(error.max()) == pytest.approx(5.6e-3, abs=5e-5)
    assert float(monte_carlo_variance(z, 256, "quantile").max()) == 0


def test_what_cannot_be_asked():
    z = torch.zeros(3)
    with pytest.raises(GatelabError, match="does not factor"):
        gl.linearize("gelu", "monte-carlo")
    with pytest.raises(GatelabError, match="pairs"):
        monte_carlo(z, 3, "antithetic", torch.Generator())
    with pytest.raises(GatelabError, match="generator"):
        monte_carlo(z, 4)
    with pytest.raises(GatelabError, match="kind"):
        monte_carlo(z, 4, "sobol")
    with pytest.raises(GatelabError, match="samples"):
        monte_carlo(z, 0, "quantile")
