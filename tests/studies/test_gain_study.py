"""The study of the gate's gain: the design's rules on made-up grids, and the numbers of the record."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gatelab.scaling_laws.token_laws import NESTED
from gatelab.statistics import Interval
from gatelab.studies import Request, study
from gatelab.studies.ladder import gain
from gatelab.studies.ladder.gain import ALL, PAIRS, PRIMARY, RATES, analyses, difference_table, rate_table, token_factor


@pytest.fixture(scope="module")
def record() -> dict[str, pd.DataFrame]:
    """The tables of a quick run."""
    return dict(study("ladder/gain").measured(Request(quick=True)))


def trainings(deviations: dict[str, float]) -> pd.DataFrame:
    """A grid of two units with a seed deviation per size; swiglu is lower by 0.02."""
    generator, rows = np.random.default_rng(0), []
    for i, (size, deviation) in enumerate(deviations.items()):
        for unit in ("relu2", "swiglu", "gelu", "geglu"):
            for steps in (100, 200, 400):
                for seed in range(5):
                    loss = 2.0 - 0.02 * (unit == "swiglu") + deviation * generator.standard_normal()
                    row = {"unit": unit, "size": size, "steps": steps, "variant": "", "seed": seed, "lr": 0.002}
                    rows.append(row | {"parameters": 10**i, "tokens": 8 * steps, "averaged": loss, "bits": loss + 0.1})
    return pd.DataFrame(rows)


def test_sizes_with_too_much_seed_noise_are_in_the_sensitivity_analysis_alone() -> None:
    grid = trainings({"small": 0.03, "large": 0.002})
    rates = grid[["unit", "size"]].drop_duplicates().assign(steps=100, cost=0.01)
    deviations = pd.DataFrame({"size": ["small", "large"], "primary": [False, True]})
    losses = analyses(grid, rates, deviations)
    assert set(losses[PRIMARY]["size"]) == {"large"}
    assert set(losses[ALL]["size"]) == {"small", "large"}
    assert (losses[PRIMARY]["loss"] - losses[RATES]["loss"]).to_numpy() == pytest.approx(0.01)


def test_the_cost_of_a_rate_is_the_parabola_of_its_sweep() -> None:
    grid = trainings({"large": 0.002})
    key = {"unit": "relu2", "size": "large", "steps": 100, "variant": ""}
    rows = [key | {"lr": 0.001 * 2.0**k, "averaged": 2 + 0.05 * k**2} for k in (-2, -1, 0, 1, 2)]
    made = rate_table(pd.DataFrame(rows), grid).iloc[0]
    assert made["best"] == pytest.approx(0.001)
    assert made["cost"] == pytest.approx(0.05)  # the grid took twice the best rate
    assert made["inside"]


def test_differences_are_paired_by_seed() -> None:
    grid = trainings({"large": 0.01})
    shift = np.random.default_rng(1).normal(size=5)[grid["seed"]]  # common to all units of a seed
    made, moved = (difference_table(t) for t in (grid, grid.assign(averaged=grid["averaged"] + shift)))
    columns = ["difference", "difference_low", "difference_high"]
    assert made[columns].to_numpy() == pytest.approx(moved[columns].to_numpy())
    assert set(made["pair"]) == {f"{a} - {b}" for a, b in PAIRS}


def test_the_record_has_five_seeds_per_cell_and_rates_inside_their_sweeps(record: dict[str, pd.DataFrame]) -> None:
    assert (record["cells"]["seeds"] == 5).all()
    assert record["rates"]["inside"].all()
    assert record["deviations"].query("primary")["size"].tolist() == ["0.8M", "1.6M", "3.2M", "6.4M"]
    assert record["deviations"].query("not primary")["size"].tolist() == ["0.4M"]


def test_findings_come_from_written_tables_too(record: dict[str, pd.DataFrame]) -> None:
    written = {name: pd.read_csv(StringIO(table.to_csv(index=False))) for name, table in record.items()}
    first, again = (study("ladder/gain").findings(tables) for tables in (record, written))
    assert [finding.sentence for finding in again] == [finding.sentence for finding in first]


def test_the_gain_shrinks_with_tokens_by_every_rule(record: dict[str, pd.DataFrame]) -> None:
    own = record["trends"].query("coefficient == 'per doubling of tokens'")
    assert (own["high"] < 0).all()
    assert len(own) == 2 * len(PAIRS)


def test_claims_take_the_worst_of_both_rules_of_variance(record: dict[str, pd.DataFrame]) -> None:
    trends, tests = (record[name].set_index("weights") for name in ("trends", "tests"))
    trends.loc["cell", ["low", "high"]], tests.loc["cell", "p"] = (-1.0, 1.0), 1.0
    more = {name: rows.reset_index() for name, rows in (("trends", trends), ("tests", tests))}
    made = {claim.what: claim for claim in gain.claims(record | more)}
    for first, second in PAIRS:
        for name in (gain.TOKENS, gain.PARAMETERS):
            value = trends.query("first == @first and second == @second and coefficient == @name").loc["size", "value"]
            assert made[f"{first} minus {second}, change {name}"].interval == Interval(value, -1.0, 1.0)
    largest = [claim.value for what, claim in made.items() if what.startswith("p of ")]
    assert largest == [1.0] * (len(NESTED) + 1)


def test_the_change_with_parameters_is_a_line_over_all_sizes_but_0_4m(record: dict[str, pd.DataFrame]) -> None:
    made = {claim.what: claim.interval for claim in gain.claims(record)}
    (change,) = (interval for what, interval in made.items() if "90 million tokens, change per doubling" in what)
    own = record["differences"].query("pair == 'relu2 - swiglu' and steps == 10986 and size != '0.4M'")
    line, covariance = np.polyfit(np.log2(own["parameters"]), own["difference"], 1, cov=True)
    reach = stats.t.ppf(0.975, 4) * covariance[0, 0] ** 0.5
    assert (change.value, change.high) == pytest.approx((line[0], line[0] + reach))


def test_the_factor_of_tokens_is_where_the_curve_has_the_loss() -> None:
    tokens = np.array([1.0, 2.0, 4.0, 8.0])
    curve = pd.Series(3 - np.log2(tokens), pd.Index(tokens, name="tokens"))  # 3, 2, 1, 0
    assert token_factor(curve, pd.Series([1.4, 1.6]), 2.0) == pytest.approx(2**0.5)
    assert token_factor(curve, pd.Series([1.0]), 4.0) == pytest.approx(1.0)
    assert np.isnan(token_factor(curve, pd.Series([-0.1]), 8.0))
    assert np.isnan(token_factor(curve * 0, pd.Series([0.0]), 8.0))  # it does not fall
    convex = pd.Series(1 / tokens, curve.index)  # has 0.375 at 8/3, a line in log tokens has it at 2.83
    assert token_factor(convex, pd.Series([0.375]), 1.0) == pytest.approx(8 / 3, rel=0.025)
