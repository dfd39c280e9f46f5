"""The studies of the floor and of learned maps, in quick form and on made-up tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gatelab.feedforward import activation
from gatelab.linearization.builders.trained_maps import learned_maps, population_rmse
from gatelab.studies.definition import Request
from gatelab.studies.linearize import learned


@pytest.mark.slow
def test_floor_study_puts_no_method_below_the_floor(quick):
    outcome = quick("linearize/floor").outcome
    table = outcome.tables["errors"]
    assert {"optimal", "hermite", "taylor", "maclaurin", "tensorsketch", "fourier"} <= set(table["method"])
    # 400 rows and inputs: chance moves the error of the best maps by up to 7 % (long rows weigh much).
    assert (table["rmse"] > 0.93 * table["floor"]).all()
    best = table[table["method"] == "optimal"]
    assert np.allclose(best["rmse"], best["floor"], rtol=0.07)
    # What theory has, to all its digits.
    theory = [c.value for c in outcome.claims if c.what.startswith("the floor at")]
    assert theory == pytest.approx([0.01054, 0.418, 0.0705, 0.0259], rel=0.005)
    assert len(outcome.figure.axes) == 3


@pytest.mark.slow
def test_learned2d_study(quick):
    outcome = quick("linearize/learned2d").outcome
    by_recipe = dict(list(outcome.tables["errors"].groupby("recipe")["rmse"]))
    assert by_recipe["paper"].is_monotonic_decreasing and by_recipe["paper"].min() > 0.2
    assert by_recipe["fresh"].max() < 0.03
    assert [c.paper for c in outcome.claims][:2] == [0.1245, 0.0822]


def made_up(means: dict[int, float], deviation: float = 0.1, floor: float = 0.0105) -> dict[str, Any]:
    """Tables of five seeds about these means, single pairs from a tenth to double, and Monte Carlo as it is."""
    spread = np.linspace(-1, 1, 5) * deviation
    plans = [("paper", n, mean) for n, mean in means.items()] + [("fresh", 300, 0.011)]
    rows = [
        {"recipe": recipe, "count": n, "steps": n, "seed": seed, "rmse": mean * (1 + part)}
        | {"pair_low": 0.1 * mean, "pair_high": 2 * mean}
        for recipe, n, mean in plans
        for seed, part in enumerate(spread)
    ]
    tables = learned.columns({"runs": pd.DataFrame(rows), **learned.estimates(Request())}, {})
    return {**tables, "errors": tables["errors"].assign(floor=floor)}


def test_learned2d_claims_follow_their_tables():
    claims = {c.what: c for c in learned.claims(made_up({3: 0.4, 10: 0.3, 30: 0.1}))}
    # One pair cannot confirm the maps; outside of what single pairs have it contradicts them.
    assert [claims[f"RMSE after {n} epochs"].verdict for n in (3, 10, 30)] == ["undecided"] * 3
    assert [claims[f"RMSE after {n} epochs"].value for n in (3, 10, 30)] == pytest.approx([0.4, 0.3, 0.1])
    worse, more = (next(c for w, c in claims.items() if w.startswith(p)) for p in ("RMSE after 30 epochs m", "more"))
    assert worse.verdict == "differs" and worse.value == pytest.approx(-0.2)
    assert more.verdict == "reproduced" and claims["least RMSE of any maps of 16 features"].verdict == "differs"
    # Monte Carlo is unbiased and consistent.
    assert [c.verdict for w, c in claims.items() if "section 4.1" in w] == ["reproduced"] * 2
    other = {c.what: c for c in learned.claims(made_up({3: 0.01, 10: 0.02, 30: 0.03}, floor=0.0))}
    assert other["RMSE after 30 epochs minus that after 10"].verdict == "reproduced"
    assert other["RMSE after 3 epochs"].verdict == "differs"  # its single pairs end at 0.02
    assert other["least RMSE of any maps of 16 features"].verdict == "reproduced"
    scattered = {c.what: c for c in learned.claims(made_up({10: 0.2, 30: 0.19}, deviation=0.5))}
    assert scattered["RMSE after 30 epochs minus that after 10"].verdict == "undecided"


@pytest.mark.slow
def test_learned16_study(quick):
    outcome = quick("linearize/learned16").outcome
    table = outcome.tables["errors"]
    fresh = table[table["recipe"] == "fresh"]
    assert np.allclose(fresh["rmse"], fresh["floor"], rtol=0.06)
    # The paper says neither m nor its data: no loss of ours contradicts it.
    assert [c.verdict for c in outcome.claims if c.place] == ["undecided"] * 3 + ["new"]
    assert table["training"].notna().tolist() == [False] * 2 + [True] * 2
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
