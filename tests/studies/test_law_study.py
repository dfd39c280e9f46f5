"""The law in P and D of noisy data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gatelab.studies.scaling.law import claims, fit_noise_law, noise_law, unit_laws, with_laws

TRUE = {"noise_A": 40.0, "noise_a": 1.2, "noise_c": 1.0}


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """Errors exactly on the noise law, flagged where P is half of D or more; without noise a power of P."""
    P_of = {n: 7 * n + 1 for n in (2, 4, 8, 16)}
    rows = [
        (D, 0, 0.5, n, P, noise_law(TRUE, P, D, 0.5), "interpolation" if 2 * P >= D else np.nan)
        for D in (200, 400, 800, 1600, 3200, 6400)
        for n, P in P_of.items()
    ]
    rows += [(6400, 0, 0.0, n, P, 40.0 * P**-1.2, np.nan) for n, P in P_of.items()]
    names = ["data", "draw", "noise", "width", "parameters", "test_rmse", "flag"]
    errors = pd.DataFrame(rows, columns=names).assign(unit="mlp")
    return {"laws": pd.DataFrame([unit_laws(errors)]), "errors": errors}


def test_the_noise_law_is_found_again_and_the_additive_one_is_only_near(tables: dict[str, Any]) -> None:
    row = tables["laws"].iloc[0]
    assert row[list(TRUE)].to_dict() == pytest.approx(TRUE, rel=1e-5)
    assert row["noise_log_rmse"] < 1e-6 < row["log_rmse"] < 0.3
    assert (row["fits"], row["left_out"]) == (23, 1) and row["a_low"] <= row["a"] <= row["a_high"]
    assert row["noise_free_slope_P"] == pytest.approx(-1.2)


def test_data_without_noise_have_a_constant_near_zero() -> None:
    P, D = (z.ravel() for z in np.meshgrid([15.0, 29.0, 57.0, 113.0], [200.0, 800.0, 3200.0]))
    law = fit_noise_law(P, D, 30 * P**-1.0, 0.5)
    assert law["noise_a"] == pytest.approx(1.0, abs=1e-3) and law["noise_c"] < 1e-2


def test_claims_are_new_and_have_their_numbers(tables: dict[str, Any]) -> None:
    size, data, noise = claims(tables)
    assert {claim.verdict for claim in (size, data, noise)} == {"new"}
    assert size.support["slope against P without noise"].value == pytest.approx(-1.2)
    assert data.support == {"by noise alone": 0.5}
    assert noise.value == pytest.approx(1.0) and noise.support["fits"] == 23
    fits = with_laws(tables)
    np.testing.assert_allclose(fits["noise law"], fits["test_rmse"], rtol=1e-5)
    assert fits["left_out"].sum() == 1
