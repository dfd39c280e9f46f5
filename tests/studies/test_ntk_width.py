"""Eq. 5 and 8 as laws: the formulas against kernels, the fits against made-up errors, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick

from gatelab.ntk import analytic
from gatelab.studies.ntk.fig4 import WIDTHS, cosines, drawn_kernels, eq5_law, eq8_law, fitted_power, measured_over_law
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
    for row in range(5):
        for column in range(5):
            a, b = x[row], x[column]
            for w, p, v in zip(W, P, V, strict=True):
                h, k, on = max(w @ a, 0), max(w @ b, 0), float(w @ a > 0) * float(w @ b > 0)
                total[0, row, column] += h * k + v**2 * on * (a @ b)
                lines = (p @ a) * (p @ b)
                total[1, row, column] += h * k * lines + v**2 * (a @ b) * (on * lines + h * k)
    np.testing.assert_allclose(np.stack(whole), total / 3, rtol=1e-10, atol=1e-12)


def test_powers_and_coefficients_of_made_up_errors() -> None:
    x = np.array([0.005, 0.01, 0.02, 0.03])
    errors = {0: 2 * x**1.5, 1: 2 * x**1.5 / (1 + 2 * x)}
    rows = pd.concat([pd.DataFrame({"d_over_m": x, "seed": seed, "error": e}) for seed, e in errors.items()])
    fit = fitted_power("eq. 5", rows)
    assert (fit["power"], fit["coefficient"]) == pytest.approx((1.5, 2.0))


@pytest.mark.parametrize(("bend", "says"), [(0.0, "reproduced"), (0.5, "undecided")])
def test_a_power_that_is_off_is_not_reproduced(bend: float, says: str) -> None:
    generator = np.random.default_rng(0)
    x = np.array([0.125, 0.25, 0.5, 1.0, 2.0])
    parts = []
    for seed in range(3):
        law = x / (1 + 2 * x)
        error = law * x**bend * (1 + 0.001 * generator.standard_normal(len(x)))
        parts.append(pd.DataFrame({"d_over_m": x, "seed": seed, "error": error, "law": law, "over_law": error / law}))
    powers = pd.DataFrame([measured_over_law("eq. 5", pd.concat(parts))])
    tables = {"powers": powers, "expected": pd.DataFrame({"with_m_plus_d": [0.0]})}
    assert next(iter(WIDTHS._functions["claims"](tables))).verdict == says


def test_eigenvalues_are_off_to_first_order_and_the_condition_number_to_second(quick: Quick) -> None:
    outcome = quick("ntk/width").outcome
    powers = outcome.tables["powers"].query("kernels == 'expected kernels'")
    np.testing.assert_allclose(powers["power"], powers["predicted"], atol=0.01)
    assert outcome.claims[-1].value < 1e-14
