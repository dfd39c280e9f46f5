"""The rule and its words on numbers made by hand: each branch can be seen at work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gatelab.scaling_laws import Point, Scaling
from gatelab.scorecard import FittedNetwork, Recommendation, Score, Scorecard, recommend
from gatelab.statistics import Interval

ONE, NAN = Interval(1.0, 1.0, 1.0), Interval(float("nan"), float("nan"), float("nan"))
FALLING, FLAT = Interval(0.4, 0.3, 0.5), Interval(1.02, 0.95, 1.1)
SCORE = Score(
    unit="a", width=8, parameters=80, flops=160, train_rmse=0.09, rmse=Interval(0.1, 0.09, 0.11), ratio=ONE,
    slope=Interval(-2.0, -2.1, -1.9), order=3, limit=float("nan"), narrower=4, growth=FALLING,
    condition=Interval(100.0, 99.0, 101.0), sampled=0, steps=10.0, linear=Interval(0.1, 0.09, 0.11), features=64,
    minimax=0.1, block_width=64, block_parameters=1000, block_flops=2000,
    rows_per_second=Interval(1000.0, 990.0, 1010.0),
)  # fmt: skip
FACTS = {
    "problem": "p", "inputs": 2, "outputs": 1, "train_rows": 400, "test_rows": 100, "budget": 80, "seeds": 3,
    "features": 64, "loss": 0.1, "interval": (-3.0, 3.0), "kernel_rows": 400, "d_model": 8, "batch": 1, "repeats": 5,
    "device": "cpu", "threads": 1, "deviation": 1.0, "outside": 0.0, "heaviest": 0.05, "unfinished": 0, "fits": 12,
}  # fmt: skip


def near(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


def score(unit: str, rmse: float, *ratio: float, **others: Any) -> Score:
    return replace(SCORE, unit=unit, rmse=near(rmse), ratio=Interval(*ratio), **others)


def network(unit: str, width: int, flops: int, rmse: float, *ratio: float, train: float = 0.09) -> FittedNetwork:
    return FittedNetwork(unit, width, 10 * width, flops, train, near(rmse), Interval(*ratio))


A, B = score("a", 0.1, 1, 1, 1), score("b", 0.2, 2, 1.5, 2.5)
RISING = (
    network("a", 4, 80, 0.25, 2.5, 2.2, 3.0),
    network("a", 8, 160, 0.1, 1, 1, 1),
    network("b", 4, 60, 0.4, 4, 3.5, 4.5),
    network("b", 8, 150, 0.2, 2, 1.5, 2.5),
)
FLOOR = (
    network("a", 1, 16, 0.104, 1.04, 0.97, 1.1),
    network("a", 8, 160, 0.102, 1.02, 0.95, 1.1),
    network("b", 1, 12, 0.13, 1.3, 1.2, 1.4),
    network("b", 2, 30, 0.1, 1, 1, 1),
    network("b", 8, 150, 0.11, 1.1, 0.99, 1.2),
)
STILL: dict[str, Any] = {"growth": FLAT, "narrower": 1}
FLAT_SCORES = (score("a", 0.102, 1, 1, 1, **STILL), score("b", 0.11, 1.08, 1.01, 1.2, **STILL))


def advise(*scores: Score, networks: tuple[FittedNetwork, ...] = RISING) -> Recommendation:
    return recommend(scores, networks, 1.0)


def words(*scores: Score, networks: tuple[FittedNetwork, ...] = RISING, **facts: Any) -> str:
    point = Point("a", 8, 80, 0, 0.1, 0.1, 0.05, 2.0, "", "converged", 0.1)
    card = Scorecard(FACTS | facts, scores, networks, Scaling("p", (point,)), advise(*scores, networks=networks))
    return card.advice


def test_where_more_parameters_help_the_least_error_at_the_budget_wins():
    cheap = replace(B, flops=1, steps=1.0, condition=Interval(1, 1, 1), rows_per_second=Interval(1e9, 1e9, 1e9))
    advice = advise(A, cheap)
    assert (advice.unit, advice.width, advice.regime, advice.equals) == ("a", 8, "units", ())
    assert str(advice) == "a at width 8 (80 parameters)" and [n.verdict for n in advice.others] == ["worse"]


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [((1.05, 0.98, 1.1), "equal"), ((1.3, 0.9, 1.6), "inconclusive"), ((1.05, 1.01, 1.1), "worse")],
)
def test_a_difference_is_called_what_the_interval_says(ratio: tuple[float, float, float], verdict: str):
    other = score("b", 0.1 * ratio[0], *ratio)
    advice = advise(A, other)
    assert advice.unit == "a" and advice.others[0].verdict == verdict
    assert advice.equals == (("b",) if verdict == "equal" else ())
    starts = {"equal": "Not significantly different", "inconclusive": "Inconclusive", "worse": "Every other unit has"}
    assert [name for name, start in starts.items() if start in words(A, other)] == [verdict]


def test_equal_errors_go_to_fewer_flops_then_to_the_faster_unit():
    same = score("b", 0.1, 1, 1, 1, flops=120)
    assert advise(A, same).unit == "b"
    assert advise(A, replace(same, flops=160, rows_per_second=near(2000.0))).unit == "b"
    assert advise(A, replace(same, flops=160, rows_per_second=near(500.0))).unit == "a"
    # A clock that cannot tell them apart does not decide.
    overlap = replace(FLOOR[3], flops=16), replace(FLAT_SCORES[1], rows_per_second=near(950.0))
    assert advise(FLAT_SCORES[0], overlap[1], networks=(*FLOOR[:3], overlap[0], FLOOR[4])).unit == "b"


def test_where_more_parameters_do_not_help_the_cheapest_network_that_is_as_good_wins():
    advice = advise(*FLAT_SCORES, networks=FLOOR)
    assert (advice.unit, advice.width, advice.parameters, advice.regime) == ("a", 1, 10, "noise")
    assert advice.equals == ("b",) and advice.others[0].width == 2
    cheaper = (*FLOOR[:3], replace(FLOOR[3], flops=16), FLOOR[4])
    assert advise(FLAT_SCORES[0], replace(FLAT_SCORES[1], rows_per_second=near(2000.0)), networks=cheaper).unit == "b"


def test_an_error_far_above_the_least_is_no_equal_however_wide_its_interval():
    advice = advise(*FLAT_SCORES, networks=(replace(FLOOR[0], ratio=Interval(1.5, 0.9, 2.5)), *FLOOR[1:]))
    assert (advice.unit, advice.width) == ("b", 2)
    alone = tuple(replace(n, ratio=Interval(2.0, 1.5, 2.5)) if n.unit == "a" else n for n in FLOOR)
    assert [n.verdict for n in advise(*FLAT_SCORES, networks=alone).others] == ["worse"]


def test_what_limits_the_error():
    few = tuple(replace(n, train_rmse=0.02) for n in FLOOR)
    assert advise(*FLAT_SCORES, networks=few).regime == "rows"
    assert "5 times as large on held-out rows" in words(*FLAT_SCORES, networks=few)
    # A smaller network that is significantly better means a floor though the leader still falls.
    worse = (*FLOOR[:1], network("a", 8, 160, 0.2, 2.0, 1.7, 2.3), *FLOOR[2:])
    leading = score("a", 0.2, 1, 1, 1), B
    assert advise(*leading, networks=worse).regime == "noise" and advise(*leading, networks=worse).width == 1
    assert "b at width 2 with 20 parameters has the smallest error" in words(*leading, networks=worse)
    exact = (network("a", 8, 160, 1e-12, 1, 1, 1), network("b", 2, 30, 1e-12, 1, 1, 1), RISING[0])
    tiny = score("a", 1e-12, 1, 1, 1), score("b", 1e-12, 1, 1, 1)
    advice = advise(*tiny, networks=exact)
    assert (advice.regime, advice.unit, advice.width) == ("exact", "b", 2)
    assert "2 of 3 networks fit the target exactly" in words(*tiny, networks=exact)


def test_widths_that_do_not_say_leave_that_open():
    alone = replace(A, narrower=0, growth=NAN), replace(B, narrower=0, growth=NAN)
    assert advise(*alone, networks=(RISING[1], RISING[3])).regime == "open"
    halved = (
        score("b", 0.105, 1.05, 0.97, 1.1, growth=FLAT),
        (*RISING[:3], network("b", 8, 150, 0.105, 1.05, 0.97, 1.1)),
    )
    assert advise(alone[0], halved[0], networks=halved[1]).regime == "noise"  # b says that more parameters do not help
    assert "fitted at one width only" in words(*alone, networks=(RISING[1], RISING[3]))
    nearer = (replace(RISING[0], width=6, parameters=60), *RISING[1:])
    assert advise(replace(A, narrower=6, growth=FLAT), B, networks=nearer).regime == "open"
    assert "from 60 to 80 parameters" in words(replace(A, narrower=6, growth=FLAT), B, networks=nearer)
    assert advise(replace(A, narrower=6), B, networks=nearer).regime == "units"
    # A fall that is measured, and not significant.
    assert advise(replace(A, growth=Interval(0.7, 0.4, 1.2)), B).regime == "open"


def test_the_advice_has_its_numbers():
    said = words(A, B)
    assert said.startswith("Take a at width 8 (80 parameters). ") and "nan" not in said
    for number in ("from 40 to 80 parameters", "40 % [30 %, 50 %]", "2 times [1.5, 2.5]", "160 FLOPs per row", "1,000"):
        assert number in said
    never = replace(A, steps=float("inf"), condition=Interval(float("inf"), 1e12, float("inf")))
    assert "infinitely many steps" in words(never, B) and "above 1e12; b has the smallest, 100" in words(never, B)


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ({"test_rows": 20}, "20 are few, and another split"),
        ({"train_rows": 180}, "180 are few, and with more"),
        ({"deviation": 0.09}, "The mean of the target would predict better"),
        ({"heaviest": 0.6}, "One held-out row makes up 60 %"),
        ({"outside": 0.3}, "30 % of the held-out rows lie outside"),
        ({"train_rows": 100}, "80 parameters for 100 training values"),
        ({"unfinished": 4}, "4 of 12 fits ran into the step limit"),
        ({"seeds": 1}, "More seeds: with 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_caveat_is_said_where_its_number_is_there_and_only_there(fact: dict[str, Any], said: str):
    assert said in words(A, B, **fact) and said not in words(A, B)


def test_the_choice_is_as_good_as_the_rule_promises_whatever_the_numbers_are():
    """Tables made at random by a fixed seed."""
    rng, regimes = np.random.default_rng(0), set()
    for _ in range(500):
        units = "abcde"[: rng.integers(2, 6)]
        errors = {(u, w): float(np.exp(0.15 * rng.standard_normal())) * (1, 1.2)[w == 4] for u in units for w in (4, 8)}

        def ratio(error: float, least: float) -> tuple[float, float, float]:
            reach = 0.2 * abs(rng.standard_normal()) * (error > least)
            return error / least, error / least * (1 - reach), error / least * (1 + reach)

        top, best, train = min(errors[u, 8] for u in units), min(errors.values()), rng.choice([1.1, 3.0])
        growth = Interval(change := float(np.exp(0.3 * rng.standard_normal())), 0.7 * change, 1.3 * change)
        scores = [score(u, errors[u, 8], *ratio(errors[u, 8], top), growth=growth) for u in units]
        networks = [
            network(u, w, int(rng.integers(5, 40)), e, *ratio(e, best), train=e / train) for (u, w), e in errors.items()
        ]
        advice = recommend(scores, networks, 1.0)
        regimes.add(advice.regime)
        assert {advice.unit, *(n.unit for n in advice.others)} == set(units)
        if advice.regime in ("units", "open"):
            assert advice.width == 8 and advice.rmse.value == top
        else:
            assert advice.flops == min(n.flops for n in networks if n.verdict == "equal")
    assert regimes == {"units", "noise", "rows", "open"}
