"""The studies of tables 1 to 3 and of learned maps, in quick form and on made-up tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from quick_runs import Quick

from gatelab.feedforward import activation
from gatelab.linearization.builders.trained_maps import learned_maps, population_rmse
from gatelab.studies.definition import Request
from gatelab.studies.linearize import learned, taylor


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
    assert [c.verdict for c in taylor.table2_claims(tables)] == ["reproduced"] * 5 + ["exceeded"]
    counts = tables["features"].set_index("d")
    assert counts.loc[3, ["kronecker", "symmetric"]].tolist() == [66_432, 163]
    assert counts.loc[16, ["kronecker", "symmetric"]].tolist() == pytest.approx([1.1e12, 3.8e6], rel=0.01)
    np.testing.assert_allclose(taylor.gelu(tables["table2"]["recovered"], "gelu-tanh"), taylor.TANH, atol=1e-12)
    changed = tables["table2"].copy()
    changed.loc[2, ["recovered", "Kronecker"]] += [0.01, 1e-4]
    expected = ["differs", "reproduced", "differs", "reproduced"]
    assert [c.verdict for c in taylor.table2_claims({**tables, "table2": changed})][:4] == expected


def test_table2_does_not_depend_on_the_weights_that_were_drawn() -> None:
    for seed in (1, 2):
        made = taylor.product(taylor.taylor_maps("symmetric"), *taylor.layer(seed))
        assert [f"{v:.4f}" for v in made] == taylor.PRINTED["Linearized y' = Phi(W) Psi(x)"].split(", ")


def test_table3_to_its_digits(quick: Quick) -> None:
    outcome = quick("linearize/table3").outcome
    assert [c.verdict for c in outcome.claims] == ["reproduced", "reproduced", "new", *["reproduced"] * 3]
    found = outcome.tables["table3"].set_index("metric")["RMSE"]
    assert f"{found['Taylor vs. tanh-GELU']:.5f}" == "0.21182"
    assert found["Taylor vs. erf-GELU"] == pytest.approx(0.2121, abs=5e-5)
    assert found["Kronecker product vs. Taylor"] < 1e-10
    bias = outcome.tables["bias"]
    unsure = bias.assign(bias_high=[0.1, *bias["bias_high"][1:]])
    assert list(taylor.table3_claims({**outcome.tables, "bias": unsure}))[-1].verdict == "undecided"


def test_maps_at_a_reference_point_are_the_expansion() -> None:
    W, centre, x = np.array([[0.5, -1.0]]), np.array([0.3, 0.2]), np.array([[0.4, 0.1]])
    z = W @ centre
    first_order = taylor.gelu(z, "gelu-tanh") + taylor.derivative(z) * (W @ (x[0] - centre))
    np.testing.assert_allclose(taylor.reference_maps(W, centre, x)[0], first_order, rtol=1e-14)


def test_a_wrong_slope_takes_an_order_off(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = taylor.derivative
    monkeypatch.setattr(taylor, "derivative", lambda z: 1.1 * printed(z))
    assert taylor.reference_power("gelu-tanh").value == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_learned2d_study(quick):
    outcome = quick("linearize/learned2d").outcome
    by_recipe = dict(list(outcome.tables["errors"].groupby("recipe")["rmse"]))
    assert by_recipe["paper"].is_monotonic_decreasing and by_recipe["paper"].min() > 0.2
    assert by_recipe["fresh"].max() < 0.03
    assert [c.paper for c in outcome.claims][:2] == [0.1245, 0.0822]


@pytest.fixture(scope="module")
def estimates() -> dict[str, Any]:
    return dict(learned.estimates(Request()))


def made_up(
    monte_carlo: dict[str, Any], means: dict[int, float], deviation: float = 0.1, floor: float = 0.0105
) -> dict[str, Any]:
    """Tables of five seeds about these means, single pairs from a tenth to double, and Monte Carlo as it is."""
    spread = np.linspace(-1, 1, 5) * deviation
    plans = [("paper", n, mean) for n, mean in means.items()] + [("fresh", 300, 0.011)]
    rows = [
        {"recipe": recipe, "count": n, "steps": n, "seed": seed, "rmse": mean * (1 + part)}
        | {"pair_low": 0.1 * mean, "pair_high": 2 * mean}
        for recipe, n, mean in plans
        for seed, part in enumerate(spread)
    ]
    tables = learned.columns({"runs": pd.DataFrame(rows), **monte_carlo}, {})
    return {**tables, "errors": tables["errors"].assign(floor=floor)}


def test_learned2d_claims_follow_their_tables(estimates):
    claims = {c.what: c for c in learned.claims(made_up(estimates, {3: 0.4, 10: 0.3, 30: 0.1}))}
    # One pair cannot confirm the maps; outside of what single pairs have it contradicts them.
    assert [claims[f"RMSE after {n} epochs"].verdict for n in (3, 10, 30)] == ["undecided"] * 3
    assert [claims[f"RMSE after {n} epochs"].value for n in (3, 10, 30)] == pytest.approx([0.4, 0.3, 0.1])
    worse, more = (next(c for w, c in claims.items() if w.startswith(p)) for p in ("RMSE after 30 epochs m", "more"))
    assert worse.verdict == "differs" and worse.value == pytest.approx(-0.2)
    assert more.verdict == "reproduced" and claims["least RMSE of any maps of 16 features"].verdict == "differs"
    # Monte Carlo is unbiased and consistent.
    assert [c.verdict for w, c in claims.items() if "section 4.1" in w] == ["reproduced"] * 2
    other = {c.what: c for c in learned.claims(made_up(estimates, {3: 0.01, 10: 0.02, 30: 0.03}, floor=0.0))}
    assert other["RMSE after 30 epochs minus that after 10"].verdict == "reproduced"
    assert other["RMSE after 3 epochs"].verdict == "differs"  # its single pairs end at 0.02
    assert other["least RMSE of any maps of 16 features"].verdict == "reproduced"
    scattered = {c.what: c for c in learned.claims(made_up(estimates, {10: 0.2, 30: 0.19}, deviation=0.5))}
    assert scattered["RMSE after 30 epochs minus that after 10"].verdict == "undecided"


@pytest.mark.slow
def test_learned16_study(quick):
    outcome = quick("linearize/learned16").outcome
    table = outcome.tables["errors"]
    fresh = table[table["recipe"] == "fresh"]
    assert np.allclose(fresh["rmse"], fresh["floor"], rtol=0.06)
    # The paper says neither m nor its data: no loss of ours contradicts it.
    assert [c.verdict for c in outcome.claims if c.place] == ["undecided"] * 3 + ["new"]
    assert table["training"].notna().equals(table["recipe"] == "paper")
    # 1000 rows and inputs: chance moves an error by a few percent (long rows weigh much).
    best = table[table["recipe"] == "optimal"]
    assert np.allclose(best["rmse"], best["floor"], rtol=0.05)
    assert (table["rmse"] > 0.95 * table["floor"]).all()
    assert best.set_index("m").loc[152, "floor"] == pytest.approx(0.418, abs=5e-4)
    curve = outcome.tables["steps"]
    gap = curve["new_data"] - curve["training"]
    assert curve["new_data"].is_monotonic_decreasing and gap.is_monotonic_increasing and gap.iloc[-1] > 0
    assert [axis.get_xlabel() for axis in outcome.figure.axes] == ["training steps", "features m"]


def test_training_loss_and_products_are_what_a_loop_gives():
    gelu = activation("gelu")
    maps = learned_maps(gelu, 16, m=3, recipe="paper", epochs=1, seed=4)
    draw = torch.Generator().manual_seed(4)
    W, x = torch.randn(1024, 16, 16, generator=draw).double(), torch.randn(1024, 16, generator=draw).double()
    made, exact = learned.drawn_pairs(maps, 1024, 4, torch.float32)
    for i in range(5):
        each = torch.stack([maps.phi(row[None])[0] @ maps.psi(x[i][None])[0] for row in W[i]])
        assert torch.allclose(each, made[i]) and torch.allclose(gelu(W[i] @ x[i]), exact[i])
    assert learned.training_loss(maps, 4) == float((made - exact).square().mean())


def test_single_pairs_have_the_population_error_in_the_mean():
    """Mean squares of 2000 pairs and of all pairs agree within 20 %: pairs share no rows (false alarm below 1e-4)."""
    maps = learned_maps(learned.GELU, 2, m=16, recipe="paper", epochs=3)
    singles = learned.single_errors(maps, 1)
    assert len(singles) == 2000
    assert float((singles**2).mean()) == pytest.approx(population_rmse(maps, learned.GELU, seed=2) ** 2, rel=0.2)
