"""Nine units at equal parameters: the rules of the design on made-up errors, and the record."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from gatelab.data import problem
from gatelab.feedforward import unit as as_unit
from gatelab.solve import fit, predict
from gatelab.studies import Request, study
from gatelab.studies.scaling.units import ALPHA, BUDGETS, OPEN, UNITS, analysis, claims, error_row

POWERS = {"mlp": -1.0, "glu": -2.0, "swiglu": -3.0}


def fits(noise: float, problems: tuple[str, ...] = ("friedman1", "airfoil")) -> pd.DataFrame:
    """Errors P^power times a factor of each seed that all units share, and an own one."""
    generator, rows = np.random.default_rng(0), []
    for name, P, seed, unit in product(problems, (40, 80), range(5), POWERS):
        error = P ** POWERS[unit] * np.exp(seed + noise * generator.standard_normal())
        row = {"problem": name, "unit": unit, "budget": P, "seed": seed, "width": P // 8, "parameters": P}
        rows.append(row | {"train_rmse": error, "test_rmse": error, "clipped_rmse": error, "status": "", "cpu": 0.1})
    return pd.DataFrame(rows)


def test_pairs_and_winners_of_powers_are_found_again() -> None:
    made = analysis(fits(noise=0.01))
    assert made["winners"]["winner"].tolist() == ["swiglu", "swiglu"]
    assert made["winners"]["leads"].tolist() == [2, 2]
    assert (made["winners"]["budget"] == 80).all()
    ratio = made["pairs"].set_index(["label", "first", "second"])["ratio"]
    assert ratio["airfoil", "mlp", "glu"] == pytest.approx(80.0, rel=0.05)


def test_pairs_ignore_what_a_draw_does_to_all_units() -> None:
    rows = fits(noise=0.3)
    shift = np.exp(np.random.default_rng(1).normal(size=5))[rows["seed"]]
    columns = ["ratio", "ratio_low", "ratio_high", "p"]
    before, after = (analysis(t)["pairs"][columns] for t in (rows, rows.assign(test_rmse=rows["test_rmse"] * shift)))
    assert before.to_numpy() == pytest.approx(after.to_numpy())
    own = rows.query("problem == 'friedman1' and budget == 80").set_index("seed")
    logs = {unit: np.log(own.query("unit == @unit")["test_rmse"]) for unit in POWERS}
    assert before["p"].iloc[0] == pytest.approx(ttest_rel(logs["mlp"], logs["glu"]).pvalue)


def test_what_noise_hides_is_inconclusive() -> None:
    made = analysis(fits(noise=20.0))
    assert set(made["pairs"]["less"]) == {OPEN}
    assert made["winners"]["leads"].tolist() == [0, 0]
    support = {c.what: c for c in claims(made)}["problems on which glu has less error than mlp"].support
    assert support == {"glu": 0, "mlp": 0, OPEN: 2}


def test_an_unfinished_budget_is_left_out_of_comparisons() -> None:
    rows = fits(noise=0.01)
    made = analysis(rows.iloc[:-1])  # airfoil lacks a fit at its larger budget
    assert made["winners"].set_index("label")["budget"].to_dict() == {"Friedman 1": 80, "airfoil": 40}
    assert len(made["errors"]) == len(rows) - 1


def test_clipping_is_compared_on_measured_data_alone() -> None:
    rows = fits(noise=0.01)
    rows.loc[rows["unit"] == "swiglu", "test_rmse"] = 1e5
    made = analysis(rows)
    assert set(made["winners"]["winner"]) == {"glu"}
    assert made["clipped"].set_index("label")["winner"].to_dict() == {"airfoil": "swiglu"}


@pytest.mark.parametrize("unit", ["mlp", "gqu"])
def test_a_row_is_of_the_widest_network_within_the_budget(unit: str) -> None:
    options: dict[str, Any] = {"starts": 1, "rounds": 0, "steps": 2}
    row = error_row("friedman1", unit, 60, 3, rows=80, options=options)
    wider = as_unit(unit).parameter_count(row["width"] + 1, 5)
    assert row["parameters"] == as_unit(unit).parameter_count(row["width"], 5) <= 60 < wider
    data = problem("friedman1", n=80, n_test=160, seed=3)
    values = predict(fit(unit, data, row["width"], seed=3, **options).network, data.test.x)
    low, high = data.train.y.min(), data.train.y.max()
    squares = [(min(max(v, low), high) - t) ** 2 for v, t in zip(values.ravel(), data.test.y.ravel(), strict=True)]
    assert row["test_rmse"] == pytest.approx(np.sqrt(np.mean((values - data.test.y) ** 2)))
    assert row["clipped_rmse"] == pytest.approx(np.sqrt(np.mean(squares)))


def test_the_record_follows_its_design() -> None:
    tables = study("scaling/units").measured(Request())
    rows = tables["errors"]
    assert not rows.duplicated(["problem", "unit", "budget", "seed"]).any()
    assert (rows["parameters"] <= rows["budget"]).all() and set(rows["unit"]) == set(UNITS)
    assert all(budget in BUDGETS[problem] for problem, budget in zip(rows["problem"], rows["budget"], strict=True))
    assert set(tables["cells"]["seeds"]) == {5}
    decided = tables["pairs"][tables["pairs"]["less"] != OPEN]
    assert (decided["corrected"] <= ALPHA).all() and (decided["corrected"] >= decided["p"]).all()
