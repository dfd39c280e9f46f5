"""Tables 1 to 3 of the paper on linearization: every printed digit, and what wrong numbers would give."""

from __future__ import annotations

import numpy as np
import pytest
from quick_runs import Quick

from gatelab.studies.linearize import table2, table3


def test_table1_to_its_digits_and_the_corrected_reading(quick: Quick) -> None:
    outcome = quick("linearize/table1").outcome
    verdicts = [c.verdict for c in outcome.claims]
    assert verdicts == ["reproduced"] * 4 + ["differs", "reproduced"] + ["new"] * 4
    table = outcome.tables["table1"]
    assert [float(f"{v:.3g}") for v in table["Taylor"]] == [8.82e-6, 3.01, 785, 2.68e4]
    for kind in ("Taylor", "minimax"):
        assert (table[f"{kind}, proved at most"] >= table[kind]).all()
    assert "is off by 3.0, 9195 times as much" in quick("linearize/table1").study.findings(outcome.tables)[0].sentence


def test_table2_to_its_digits_and_wrong_ones_are_told(quick: Quick) -> None:
    tables = quick("linearize/table2").outcome.tables
    assert [c.verdict for c in table2.claims(tables)] == ["reproduced"] * 6 + ["exceeded"]
    counts = tables["features"].set_index("d")
    assert counts.loc[3, ["kronecker", "symmetric"]].tolist() == [66_432, 163]
    assert counts.loc[16, ["kronecker", "symmetric"]].tolist() == pytest.approx([1.1e12, 3.8e6], rel=0.01)
    np.testing.assert_allclose(table3.gelu(tables["table2"]["recovered"], "gelu-tanh"), table2.TANH, atol=1e-12)
    changed = tables["table2"].copy()
    changed.loc[2, ["recovered", "Kronecker"]] += [0.01, 1e-4]
    wrong = {**tables, "table2": changed, "drawn": tables["drawn"].assign(residual=1e-3)}
    expected = ["differs", "reproduced", "differs", "reproduced", "differs"]
    assert [c.verdict for c in table2.claims(wrong)][:5] == expected


def test_table2_does_not_depend_on_the_weights_that_were_drawn() -> None:
    for seed in (1, 2):
        made = table2.product(table2.taylor_maps("symmetric"), *table2.layer(seed))
        assert [f"{v:.4f}" for v in made] == table2.PRINTED["Linearized y' = Phi(W) Psi(x)"].split(", ")


def test_the_product_is_the_series_of_any_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(table2.residuals(3)) < table2.ROUNDING
    monkeypatch.setattr(table2, "taylor", lambda z: 0.5 * z)
    assert max(table2.residuals(3)) > 1e-3


def test_table3_to_its_digits(quick: Quick) -> None:
    outcome = quick("linearize/table3").outcome
    assert [c.verdict for c in outcome.claims] == ["reproduced", "reproduced", "new", *["reproduced"] * 3]
    found = outcome.tables["table3"].set_index("metric")["RMSE"]
    assert f"{found['Taylor vs. tanh-GELU']:.5f}" == "0.21182"
    assert found["Taylor vs. erf-GELU"] == pytest.approx(0.2121, abs=5e-5)
    assert found["Kronecker product vs. Taylor"] < 1e-10
    bias = outcome.tables["bias"]
    unsure = bias.assign(bias_high=[0.1, *bias["bias_high"][1:]])
    assert list(table3.claims({**outcome.tables, "bias": unsure}))[-1].verdict == "undecided"


def test_maps_at_a_reference_point_are_the_expansion() -> None:
    W, centre, x = np.array([[0.5, -1.0]]), np.array([0.3, 0.2]), np.array([[0.4, 0.1]])
    z = W @ centre
    first_order = table3.gelu(z, "gelu-tanh") + table3.derivative(z) * (W @ (x[0] - centre))
    np.testing.assert_allclose(table3.reference_maps(W, centre, x)[0], first_order, rtol=1e-14)


def test_a_wrong_slope_takes_an_order_off(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = table3.derivative
    monkeypatch.setattr(table3, "derivative", lambda z: 1.1 * printed(z))
    assert table3.reference_power("gelu-tanh").value == pytest.approx(1, abs=0.05)
