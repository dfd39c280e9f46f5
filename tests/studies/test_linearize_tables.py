"""Tables 1 to 3 of paper 003: every printed digit, and what stands beside it."""

from __future__ import annotations

import numpy as np
import pytest
from quick_runs import Quick

from gatelab.studies import Request
from gatelab.studies.linearize import learned2d, table2, table3
from gatelab.studies.linearize.table1 import as_printed, rounded_twice


def test_table1_to_its_digits_and_the_corrected_reading(quick: Quick) -> None:
    outcome, seen = quick("linearize/table1").outcome, quick("linearize/table1").progress
    assert seen[-1] == (len(seen), len(seen))
    verdicts = [c.verdict for c in outcome.comparison]
    assert verdicts == ["reproduced"] * 4 + ["differs", "reproduced"] + ["new"] * 4
    table = outcome.tables["table1"]
    assert [float(f"{v:.3g}") for v in table["Taylor"]] == [8.82e-6, 3.01, 785, 2.68e4]
    assert (table["Taylor, proved at most"] >= table["Taylor"]).all()
    assert "100%" in outcome.comparison[4].ours and "half to even" in outcome.comparison[2].because
    assert len(outcome.figure.axes) == 2


def test_what_would_not_reproduce_is_told() -> None:
    assert as_printed(795.0, "7.8e+02") != "7.8e+02" != rounded_twice(795.0, "7.8e+02")


def test_table2_to_its_digits() -> None:
    outcome = table2.run(Request())
    assert [c.verdict for c in outcome.comparison] == ["reproduced"] * 5 + ["exceeded"]
    counts = outcome.tables["features"].set_index("d")
    assert counts.loc[3].tolist()[:2] == [66_432, 163]
    assert counts.loc[16, "kronecker"] == pytest.approx(1.1e12, rel=0.01)
    assert counts.loc[16, "symmetric"] == pytest.approx(3.8e6, rel=0.01)
    table = outcome.tables["table2"]
    assert np.abs(table["Kronecker"] - table["symmetric"]).max() < 1e-10
    assert table2.printed((0.3358,), np.array([0.3357])) == "differs"


def test_table2_does_not_depend_on_the_weights_that_were_drawn() -> None:
    for seed in (1, 2):
        W, x = table2.layer(seed)
        assert table2.printed(table2.LINEARIZED, table2.product("symmetric", W, x)) == "reproduced"


def test_table3_to_its_digits() -> None:
    outcome = table3.run(Request())
    assert [c.verdict for c in outcome.comparison] == ["reproduced", "reproduced", "new", *["reproduced"] * 3]
    found = outcome.tables["table3"].set_index("metric")["RMSE"]
    assert f"{found['Taylor vs. tanh-GELU']:.5f}" == "0.21182"
    assert found["Taylor vs. erf-GELU"] == pytest.approx(0.2121, abs=5e-5)
    assert found["Kronecker product vs. Taylor"] < 1e-10


def test_x_is_recovered_from_the_other_rows_and_a_wrong_one_is_told() -> None:
    z = np.array([table2.recovered(z, value) for z, value in zip(table2.Z, table2.TANH, strict=True)])
    np.testing.assert_allclose(table3.gelu(z, "gelu-tanh"), table2.TANH, atol=1e-12)
    assert table2.printed(table2.Z, z, 2) == "reproduced"
    assert table2.printed((-2.38, 1.55, 2.23), z, 2) == "differs"


def test_the_product_is_the_series_of_any_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table2.drawn_residual(3) < table2.ROUNDING
    monkeypatch.setattr(table2, "five_terms", lambda reach: lambda z: 0.5 * z)
    assert table2.drawn_residual(3) > 1e-3


def test_maps_at_a_reference_point_are_the_expansion() -> None:
    W, centre = np.array([[0.5, -1.0]]), np.array([0.3, 0.2])
    x = np.array([[0.4, 0.1]])
    z = W @ centre
    first_order = table3.gelu(z, "gelu-tanh") + table3.derivative(z) * (W @ (x[0] - centre))
    np.testing.assert_allclose(table3.reference_maps(W, centre, x)[0], first_order, rtol=1e-14)


def test_a_wrong_slope_takes_an_order_off(monkeypatch: pytest.MonkeyPatch) -> None:
    order, biased = table3.reference_claims()
    assert order.verdict == biased.verdict == "reproduced"
    printed = table3.derivative
    monkeypatch.setattr(table3, "derivative", lambda z: 1.1 * printed(z))
    assert table3.reference_claims()[0].verdict == "differs"


@pytest.mark.parametrize(
    ("thirty", "deviation", "says"), [(0.3, 0.01, "reproduced"), (0.1, 0.01, "differs"), (0.1, 0.2, "undecided")]
)
def test_whether_more_epochs_are_worse_is_decided_by_an_interval(thirty: float, deviation: float, says: str) -> None:
    """Means over five seeds of 0.2 after 10 epochs; a group alone says nothing, nor do groups that overlap."""
    ten = {"mean": 0.2, "std": deviation, "count": 5, "min": 0.1, "max": 0.3}
    assert learned2d.overfitting_claim(ten, {**ten, "mean": thirty}, 5).verdict == says
    assert learned2d.ranges_verdict(ten, ten) == "undecided"
    assert learned2d.ranges_verdict({**ten, "max": 0.05}, ten) == "reproduced"
    assert learned2d.single_verdict(0.08, {"low": 0.05, "high": 0.7}) == "undecided"
    assert learned2d.single_verdict(0.8, {"low": 0.05, "high": 0.7}) == "differs"
