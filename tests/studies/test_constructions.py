"""Section 3 of the first paper: constructed networks and the equations on a cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gatelab.data import problem
from gatelab.scaling_laws import Point, Scaling
from gatelab.studies.scaling import constructions as study
from gatelab.studies.scaling.error_curves import curves_of
from gatelab.studies.scaling.fig2 import shift_claim

TARGET = problem("paper-1d", n=200)


def trained(unit: str, error: float, slope: float, widths: tuple[int, ...]) -> Scaling:
    errors = ((n, error * n**slope) for n in widths)
    return Scaling("", tuple(Point(unit, n, 5 * n + 1, 0, e, e, 1.0, 1.0, "", "converged", 0.0) for n, e in errors))


def test_constants_and_orders_are_those_of_the_equations() -> None:
    built = study.built_errors("glu", TARGET, study.WIDTHS)
    constant, order, below = study.construction_claims("glu", built, dict.fromkeys(study.WIDTHS, 1e-9))
    assert constant.verdict == order.verdict == below.verdict == "reproduced"
    assert constant.value == pytest.approx((945 / 2) ** -0.5, rel=1e-3) and order.value == pytest.approx(-3, abs=0.01)
    assert [*study.construction_claims("glu", built, dict.fromkeys(study.WIDTHS, 1.0))][-1].verdict == "differs"
    line = study.built_errors("mlp", TARGET, [200]).iloc[0]
    assert line["rmse"] == pytest.approx(line["predicted_rmse"], rel=1e-3)


def test_the_recurrence_interpolates_when_divided_by_h() -> None:
    f, h = np.sin(np.arange(8.0)), 0.1
    knots = h * np.arange(8)
    y = f[0] + np.maximum(knots[:, None] - knots[:-1], 0) @ study.recurrence(f, h, printed=False)
    np.testing.assert_allclose(y, f, atol=1e-12)
    # At h = 1 the slip is not seen, which may be how it came about.
    np.testing.assert_allclose(study.recurrence(f, 1.0, printed=True), study.recurrence(f, 1.0, printed=False))


def test_the_same_errors_fall_faster_against_parameters() -> None:
    """log P = log(5n + 1) grows more slowly than log n where n is small, and alike where it is large."""
    small, large = (shift_claim("glu", trained("glu", 1.0, -3.0, w)) for w in ((1, 2, 4), (100, 200, 400)))
    assert (small.verdict, large.verdict) == ("differs", "reproduced")
    assert (small.value or 0) > 1.05 > (large.value or 0) > 1


def test_fits_come_back_from_a_table_and_from_a_file(tmp_path) -> None:
    study = trained("glu", 1.0, -3.0, (5, 10))
    study.table().to_csv(tmp_path / "errors.csv", index=False)
    assert curves_of(study.table()).points == curves_of(pd.read_csv(tmp_path / "errors.csv")).points == study.points


def test_the_equations_on_a_cell_and_what_is_wrong_with_eq_6_and_7() -> None:
    claims = {claim.place.partition(",")[0]: claim for claim in study.equation_claims(study.equations_table(TARGET))}
    wrong = {"eq. 6": "differs", "eq. 7": "differs"}
    assert {place: claim.verdict for place, claim in claims.items()} == dict.fromkeys(claims, "reproduced") | wrong
    assert set(claims) == {*(f"eq. {number}" for number in (6, 7, 8, 10, 11, 12, 13)), "section 3"}
    assert [claims["eq. 7"].value, *claims["eq. 7"].support.values()] == pytest.approx([2, 3, 4], abs=0.02)
    # A term that is missing, or of the wrong sign, is noticed in each of them.
    assert study.cell_order(lambda t, x, h: study.glu_error(t, x, h, 2.0, 3.0) + study.eq11(t, x, h, 2.0, 3.0)).high < 3
    assert (
        study.cell_order(lambda t, x, h: study.glu_error(t, x, h, 2.0, t.second / 4) + study.eq13(t, x, h)).high < 3.5
    )


def test_derivatives_of_the_targets_on_a_cell_are_those_of_their_functions() -> None:
    x = 1e-2 * np.arange(-4, 5)
    for target in study.TARGETS.values():
        powers = np.polynomial.Polynomial.fit(x, target.f(x), 8).convert().coef
        np.testing.assert_allclose(powers[2:5] * [2, 6, 24], target[1:], rtol=1e-4)
