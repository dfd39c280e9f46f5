"""Eq. 5 and 8 as laws: the formulas against kernels, the fits against made-up errors, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest
from gatelab.studies.ntk.angles import cosines, drawn_kernels
from gatelab.studies.ntk.width import (
    DRAWN_SHARES,
    QUICK,
    DrawnErrors,
    drawn_claims,
    eq5_law,
    eq8_law,
    measured_power,
    power_and_coefficient,
)
from quick_runs import Quick

from gatelab.ntk import analytic
from gatelab.studies.ntk.gaussian import samples


@pytest.mark.parametrize("share", [0.1, 1.0, 4.0])
def test_the_laws_are_those_of_the_kernels(share: float) -> None:
    """Entry by entry for eq. 8, and on the diagonal for eq. 5; samples at every angle."""
    d = 20
    x = samples(12, d, 0) + 1.0
    plain, gated = (k.numpy() for k in analytic(["mlp", "glu"], x, round(d / share)))
    gram = x @ x.T / d
    np.testing.assert_allclose(1 - np.diag(gram * plain) / np.diag(gated), eq5_law(share), rtol=1e-12)
    theta = cosines(gram)
    ratio = cosines(gated) / (cosines(plain) * theta) - 1
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(ratio[off], eq8_law(theta, share)[off], rtol=1e-9)
    np.testing.assert_allclose(gram * analytic("mlp", x, round(d / share) + d).numpy(), gated, rtol=1e-12)


def test_a_mean_over_networks_is_the_mean_of_single_ones() -> None:
    """The neurons of 3 networks, drawn at once, have the kernels that autodiff-tested single ones sum to."""
    x = samples(5, 4, 0)
    whole = drawn_kernels(x, 6, 3, networks=3)
    generator = np.random.default_rng([3, 6])
    W, P = generator.standard_normal((2, 18, 4)) / 2
    V = generator.standard_normal(18) / 6**0.5
    total = np.zeros((2, 5, 5))
    for first in (0, 6, 12):
        own = slice(first, first + 6)
        for row in range(5):
            for column in range(5):
                a, b = x[row], x[column]
                for w, p, v in zip(W[own], P[own], V[own], strict=True):
                    h, k, on = max(w @ a, 0), max(w @ b, 0), float(w @ a > 0) * float(w @ b > 0)
                    total[0, row, column] += h * k + v**2 * on * (a @ b)
                    lines = (p @ a) * (p @ b)
                    total[1, row, column] += h * k * lines + v**2 * (a @ b) * (on * lines + h * k)
    np.testing.assert_allclose(np.stack(whole), total / 3, rtol=1e-10, atol=1e-12)


def test_powers_and_coefficients_of_made_up_errors() -> None:
    x = np.array([0.01, 0.02, 0.04, 0.08])
    power, coefficient = power_and_coefficient(x, np.stack([2 * x**1.5, 2 * x**1.5 / (1 + 2 * x)], axis=1))
    assert power.value == pytest.approx(1.5) and coefficient.value == pytest.approx(2.0)
    assert measured_power(x, np.stack([x, x, -x + 2 * x], axis=1)).value == pytest.approx(1.0)


@pytest.mark.parametrize(("times", "power", "says"), [(1.0, 0.0, "reproduced"), (1.2, 0.0, "undecided")])
def test_a_coefficient_or_a_power_that_is_off_is_not_reproduced(times: float, power: float, says: str) -> None:
    shares = np.array(DRAWN_SHARES)[:, None]
    law = np.repeat(shares / (1 + 2 * shares), 3, axis=1)
    chance = 1 + 0.001 * np.random.default_rng(0).standard_normal(law.shape)
    errors = times * law * shares**power * chance
    assert {c.verdict for c in drawn_claims(DrawnErrors(errors, law, errors, law), QUICK)} == {says}
    bent = law * shares**0.5 * chance
    assert {c.verdict for c in drawn_claims(DrawnErrors(bent, law, bent, law), QUICK)} == {"undecided"}


def test_eigenvalues_are_off_to_first_order_and_the_condition_number_to_second(quick: Quick) -> None:
    claims = {claim.what.partition(":")[0]: claim for claim in quick("ntk/width").outcome.comparison}
    for name in ("eq. 5, Frobenius norm", "λ_max by eq. 5", "λ_min by eq. 5"):
        assert claims[name].ours.endswith("^1.00")
    for name in ("κ by eq. 5", "eq. 8, rms over pairs"):
        assert claims[name].ours.endswith("^2.00")
    exact = claims["eq. 5 with a ReLU network of m + d neurons"].ours
    assert float(exact.split()[3]) < 1e-14
