"""Every random feature map is unbiased, tested over draws.

z = (mean - expected) / standard error must be below 5 for each of 6 pairs: false alarms in 6e-7 of all seeds and pairs.
Seeds are fixed.
"""

from __future__ import annotations

import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.feedforward import activation
from gatelab.linearization import linearize
from gatelab.linearization.builders.least_error import chebyshev
from gatelab.linearization.builders.random_features import TensorSketch, maclaurin_maps, power_terms, tensorsketch_maps

DRAWS = 1500
METHODS = {"maclaurin": maclaurin_maps, "tensorsketch": tensorsketch_maps}


def pairs(n, N, d, seed=0):
    draw = torch.Generator().manual_seed(seed)
    make = torch.nn.functional.normalize
    return tuple(make(torch.randn(k, d, generator=draw, dtype=torch.float64), dim=1) for k in (n, N))


def check(values, mean, slack=0.0):
    """values: (draws, n, N)."""
    error = values.std(0) / len(values) ** 0.5
    assert float((((values.mean(0) - mean).abs() - slack) / error).max()) < 5


@pytest.mark.slow
@pytest.mark.parametrize("method", ["maclaurin", "tensorsketch"])
@pytest.mark.parametrize("gate", ["gelu", "tanh", "sigmoid"])
def test_powers_are_unbiased(method, gate):
    (W, X), a, degree = pairs(2, 3, 6), activation(gate), 6 if gate != "gelu" else 4
    made = [METHODS[method](a, 6, m=48, degree=degree, seed=s) for s in range(DRAWS)]
    target = chebyshev(a, degree, 1.0)(W @ X.T)
    assert float((target - a(W @ X.T)).abs().max()) < 2e-3  # bias, by the series and not by chance
    check(torch.stack([one.phi(W) @ one.psi(X).T for one in made]), target)
    _, linear, drawn = power_terms(a, 1.0, degree)
    assert linear is not None and 1 not in drawn


def test_sketch_is_the_count_sketch_of_the_tensor_power():
    draw = torch.Generator().manual_seed(0)
    one = TensorSketch(3, 4, 6, draw)
    x = torch.randn(4, generator=draw, dtype=torch.float64)
    slow = torch.zeros(6, dtype=torch.float64)
    for i in range(4):
        for j in range(4):
            for k in range(4):
                at = (one.bucket[0, i] + one.bucket[1, j] + one.bucket[2, k]) % 6
                slow[at] += one.sign[0, i] * one.sign[1, j] * one.sign[2, k] * x[i] * x[j] * x[k]
    torch.testing.assert_close(one(x[None])[0], slow)


@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_asked(method):
    build = METHODS[method]
    with pytest.raises(GatelabError, match="m is 3"):
        build(activation("gelu"), 16, m=3)
    with pytest.raises(GatelabError, match="nothing to draw"):
        build(activation("identity"), 16, m=99)


def test_monte_carlo_is_no_method():
    with pytest.raises(GatelabError, match="does not factor"):
        linearize("gelu", "monte-carlo")
