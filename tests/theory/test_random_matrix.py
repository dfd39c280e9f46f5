"""The law of Marchenko and Pastur, the paper's estimates, and the deformed law that keeps the lengths of rows."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from gatelab.theory import random_matrix as law


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0, 2.0, 7.0])
def test_marchenko_pastur_moments(gamma):
    """Mass one, mean one, second moment 1 + gamma, third 1 + 3 gamma + gamma^2."""
    low, high = law.mp_edges(gamma)

    def moment(k):
        def f(t):  # x = center + radius sin t removes the square roots
            x = (low + high) / 2 + (high - low) / 2 * math.sin(t)
            return float(law.mp_density(x, gamma)) * x**k * (high - low) / 2 * math.cos(t)

        return quad(f, -math.pi / 2, math.pi / 2, limit=200)[0]

    assert moment(0) + max(0.0, 1 - 1 / gamma) == pytest.approx(1, abs=1e-6)
    assert [moment(k) for k in (1, 2, 3)] == pytest.approx([1, 1 + gamma, 1 + 3 * gamma + gamma**2], rel=1e-6)


def test_the_papers_own_numbers():
    """n, d, m = 400, 100, 1000, divided by m."""
    top, bottom = law.paper_extremes(0, 400, 100, 1000)
    assert (top / 1000, bottom / 1000, top / bottom) == pytest.approx((64.06, 0.116, 553), rel=3e-3)
    top, bottom = law.paper_extremes(1, 400, 100, 1000)
    assert (top / 1000, bottom / 1000, top / bottom) == pytest.approx((1.63, 0.282, 5.8), rel=4e-3)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("n", [50, 100, 400])
def test_the_papers_limit_of_width(order, n):
    wide = law.paper_extremes(order, n, 100, 10**9)
    assert [x / 1e9 for x in wide] == pytest.approx(law.paper_extremes(order, n, 100, None), rel=1e-5)


@pytest.mark.parametrize("d", [2, 3, 10, 50])
def test_harmonics_rebuild_the_function(d):
    """A polynomial of degree 6 is the sum of its harmonics at every cosine."""
    from scipy.special import eval_chebyt, eval_gegenbauer

    def h(t):
        return 1 + t + 0.5 * t**2 + 0.3 * t**3 + t**6

    parts = law.harmonics(h, d, n=10**12)
    t = np.linspace(-1, 1, 41)
    a = (d - 2) / 2
    P = [eval_gegenbauer(k, a, t) / eval_gegenbauer(k, a, 1.0) if a else eval_chebyt(k, t) for k in range(7)]
    assert np.abs(parts.coefficients[:7] @ np.array(P) - h(t)).max() < 1e-9
    assert parts.tail == 0
    counts = [math.comb(k + d - 1, k) - (math.comb(k + d - 3, k - 2) if k > 1 else 0) for k in range(7)]
    assert parts.dimensions[:7] == pytest.approx(counts)


def test_with_equal_lengths_and_one_degree_the_law_is_marchenko_pastur():
    """In 10^6 dimensions lengths are equal; degree 2 has N_2 harmonics, degree 1 none here."""
    d = 10**6
    limit = law.limit_spectrum(lambda t: t, power=1, n=d // 2, d=d)
    low, high = law.mp_edges(0.5)
    x = np.linspace(low * 1.5, high * 0.95, 7)
    assert limit.density(x) == pytest.approx(law.mp_density(x, 0.5), rel=1e-2)
    assert (limit.smallest(), limit.largest()) == pytest.approx((low, high), rel=1e-2)
    # With fewer harmonics than rows there is a null space.
    assert law.limit_spectrum(lambda t: t, power=1, n=50, d=20).smallest() == 0


def test_count_is_the_integral_of_the_density():
    limit = law.limit_spectrum(lambda t: 0.2 + t + 0.3 * t**2 + 0.1 * t**4, power=2, n=60, d=40)
    x = np.geomspace(1e-3, 50, 300)
    density, count = limit.density(x), limit.count(x)
    steps = np.diff(x) * (density[1:] + density[:-1]) / 2
    assert np.abs(np.diff(count) / 60 - steps).max() < 2e-4
    assert count[0] < 0.01
    assert count[-1] == pytest.approx(60, abs=0.01)


def test_the_spike_of_the_plain_model():
    """Equal lengths, h = 1 b + t: the strength is theta / (gamma + sqrt gamma), the place Baik's, theta = n b."""
    d, n = 10**6, 4 * 10**6
    for theta in (5.0, 12.0):
        strength, place = law.limit_spectrum(lambda t, b=theta / n: b + t, power=1, n=n, d=d).spike()
        assert strength == pytest.approx(theta / 6, rel=2e-2)
        assert math.isnan(place) if theta < 6 else place == pytest.approx(law.spiked_edge(theta, 4.0), rel=1e-2)


def test_the_law_against_a_wishart_matrix():
    """Three draws of 300 rows: counts below x are rigid, within 3 of 300."""
    rng = np.random.default_rng(0)
    n, d = 300, 150
    limit = law.limit_spectrum(lambda t: t, power=1, n=n, d=d)
    x = np.array([0.5, 2.0, 4.0])
    for _ in range(3):
        X = rng.standard_normal((n, d))
        values = np.linalg.eigvalsh(X @ X.T / d)
        assert np.abs((values[:, None] < x).sum(0) - limit.count(x)).max() <= 3
