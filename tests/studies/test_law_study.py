"""The law in P and D of noisy data."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.scaling_laws import Point, Slope
from gatelab.studies.scaling.law import (
    UnitLaws,
    data_claim,
    laws_table,
    noise_claim,
    ratios_table,
    share_of_noise,
    size_claim,
    unit_laws,
    where_it_holds,
)
from gatelab.studies.scaling.noisy_fits import QUICK, NoiseLaw, NoisyFit, NoisyPlan, columns, fit_noise_law

TRUE = NoiseLaw(A=40.0, a=1.2, c=1.0, noise=0.5, rmse=0.0)


def made_up() -> tuple[NoisyFit, ...]:
    """Errors exactly on the noise law; flagged where P is half of D or more."""
    return tuple(
        NoisyFit("mlp", D, 0, Point("mlp", n, 7 * n + 1, 0, 0.1, error, np.nan, np.nan, flag, "converged", 0.0))
        for D in (200, 400, 800, 1600, 3200, 6400)
        for n in (2, 4, 8, 16)
        for error, flag in ((float(TRUE.predict(7 * n + 1, D)), "interpolation" if 14 * n + 2 >= D else ""),)
    )


@pytest.fixture(scope="module")
def laws() -> UnitLaws:
    return unit_laws("mlp", made_up(), NoisyPlan(), Slope(-1.2, -1.3, -1.1, 0.0, 4))


def test_the_noise_law_is_found_again_and_the_additive_one_is_only_near(laws: UnitLaws) -> None:
    assert (laws.noisy.A, laws.noisy.a, laws.noisy.c) == pytest.approx((40.0, 1.2, 1.0), rel=1e-5)
    assert laws.noisy.rmse < 1e-6 < laws.additive.rmse < 0.3
    assert len(laws.left_out) == 1 and len(laws.used) == 23


def test_noise_that_is_not_seen_has_a_constant_near_zero() -> None:
    P, D, _ = columns(made_up())
    law = fit_noise_law(P, D, 30 * P**-1.0, 0.5)
    assert law.a == pytest.approx(1.0, abs=1e-3) and law.c < 1e-2


def test_claims_are_new_and_have_their_numbers(laws: UnitLaws) -> None:
    claims = [size_claim(laws), data_claim(laws), noise_claim(laws)]
    assert {c.verdict for c in claims} == {"new"} and {c.paper for c in claims} == {"-"}
    assert "-1.20 [-1.30, -1.10]" in claims[0].because
    assert claims[2].ours == "1.00" and "23 fits" in claims[2].because
    few, many = share_of_noise(laws)
    assert 0 <= few < 0.01 < 0.5 < many <= 1


def test_tables_and_sentences_cover_every_fit(laws: UnitLaws) -> None:
    ratios = ratios_table([laws])
    assert ratios.groupby("law")["fits"].sum().to_dict() == {"additive": 24, "noise": 24}
    noisy = ratios[ratios["law"] == "noise"]
    np.testing.assert_allclose(noisy[["mean", "min", "max"]].to_numpy(float), 1.0, atol=1e-5)
    assert "for P/D from 0.25" in where_it_holds(laws) and "(noise law: 1.00)" in where_it_holds(laws)
    row = laws_table([laws]).iloc[0]
    assert row["fits"] == 23 and row["a_low"] <= row["a"] <= row["a_high"]


def test_plans_count_their_fits_and_ask_for_no_more_parameters_than_data() -> None:
    assert QUICK.fits == 2 * (9 + 3)
    assert NoisyPlan().fits == 3 * (2 * (6 + 5 * 7) + 7)
    target = QUICK.target(100, 0)
    assert target.train.n == 100 and target.test.n == QUICK.tests
    np.testing.assert_array_equal(target.test.x, QUICK.target(400, 0).test.x)
