"""The rules on numbers made by hand: each rule, each tie-break and each caveat can be seen at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gatelab.scorecard import Estimate, Evidence, Facts, Network, Score, recommend
from gatelab.scorecard.recommend import break_tie

SCORE = Score(
    unit="a",
    width=8,
    parameters=80,
    slope=-2.0,
    slope_low=-2.1,
    slope_high=-1.9,
    order=3,
    limit=float("nan"),
    rmse=0.1,
    rmse_low=0.09,
    rmse_high=0.11,
    train_rmse=0.09,
    behind=1.0,
    behind_low=1.0,
    behind_high=1.0,
    condition=100.0,
    condition_low=100.0,
    condition_high=100.0,
    resolved=True,
    kernel_networks=0,
    steps=10.0,
    linear_error=0.1,
    linear_low=0.1,
    linear_high=0.1,
    linear_features=64,
    minimax_error=0.1,
    flops=160,
    block_width=64,
    block_parameters=1000,
    block_flops=2000,
    rows_per_second=1000.0,
    rows_per_second_low=990.0,
    rows_per_second_high=1010.0,
)
FACTS = Facts(
    train_rows=400,
    test_rows=100,
    values=400,
    deviation=1.0,
    outside=0.0,
    heaviest=0.05,
    unfinished=0,
    fits=12,
    seeds=3,
    kernel_rows=400,
    threads=1,
    device="cpu",
)


def score(unit: str, rmse: float, behind: tuple[float, float, float], **others: object) -> Score:
    return replace(SCORE, unit=unit, rmse=rmse, behind=behind[0], behind_low=behind[1], behind_high=behind[2], **others)


def network(
    unit: str, width: int, flops: int, rmse: float, behind: tuple[float, float, float], train: float = 0.09
) -> Network:
    return Network(unit, width, 10 * width, flops, train, Estimate(rmse, 0.9 * rmse, 1.1 * rmse), Estimate(*behind))


FALLING = Estimate(0.4, 0.3, 0.5)
FLAT = Estimate(1.02, 0.95, 1.1)
A, B = score("a", 0.1, (1, 1, 1)), score("b", 0.2, (2, 1.5, 2.5))
NETWORKS = (
    network("a", 4, 80, 0.25, (2.5, 2.2, 3.0)),
    network("a", 8, 160, 0.1, (1, 1, 1)),
    network("b", 4, 60, 0.4, (4, 3.5, 4.5)),
    network("b", 8, 150, 0.2, (2, 1.5, 2.5)),
)


def told(*scores: Score, networks: tuple[Network, ...] = NETWORKS, growth: Estimate | None = FALLING, **facts: object):
    return recommend(Evidence(scores, networks, growth, 80, replace(FACTS, **facts)))


def test_where_more_parameters_help_the_least_error_at_the_budget_wins():
    found = told(A, B)
    assert (found.unit, found.width, found.regime, found.equals) == ("a", 8, "units", ())
    assert "40 % [30 %, 50 %]" in found.reasons[0]
    assert "b, has 2 times that [1.5, 2.5]" in found.reasons[1]


def test_an_error_that_cannot_be_told_from_the_least_is_a_tie_and_conditioning_breaks_it():
    tied = score("b", 0.11, (1.1, 0.95, 1.3), condition=10.0, condition_low=10.0, condition_high=10.0)
    networks = (*NETWORKS[:3], network("b", 8, 150, 0.11, (1.1, 0.95, 1.3)))
    found = told(A, tied, networks=networks)
    assert (found.unit, found.equals) == ("b", ("a",))
    assert any("conditioning speaks for b: 10 beside a 1e+02" in r for r in found.reasons)
    assert found.caveats[0] == "a would do as well, as far as these rows can tell"


def test_a_condition_number_within_a_factor_of_two_breaks_no_tie_but_throughput_does():
    near = score("b", 0.11, (1.1, 0.95, 1.3), condition=60.0, condition_low=60.0, rows_per_second=2000.0)
    fast = replace(near, rows_per_second_low=1900.0, rows_per_second_high=2100.0)
    chosen, why = break_tie([A, fast])
    assert chosen.unit == "b" and "throughput decides: b 2,000 rows a second, a 1,000" in why[-1]
    # Quartiles that overlap decide nothing: the least error as measured is taken.
    chosen, why = break_tie([A, replace(near, rows_per_second_low=1005.0, rows_per_second_high=3000.0)])
    assert chosen.unit == "a" and "nothing else tells them apart" in why[-1]


def test_a_condition_number_that_is_not_known_decides_only_by_what_is_proved():
    unknown = {"condition": float("inf"), "condition_high": float("inf"), "resolved": False}
    beyond = score("b", 0.11, (1.1, 0.9, 1.3), condition_low=1e12, **unknown)
    assert break_tie([A, beyond])[0].unit == "a"
    # Nothing is proved against a unit whose lower end is not above the others'.
    below = score("b", 0.09, (1.1, 0.9, 1.3), condition_low=50.0, **unknown)
    assert break_tie([A, below])[0].unit == "b"
    # A sampled kernel's condition number comes out too large and speaks against nobody.
    sampled = score("b", 0.09, (1.1, 0.9, 1.3), condition_low=1e12, kernel_networks=20, **unknown)
    assert break_tie([A, sampled])[0].unit == "b"


FLOOR = (
    network("a", 1, 16, 0.104, (1.04, 0.97, 1.1)),
    network("a", 8, 160, 0.102, (1.02, 0.95, 1.1)),
    network("b", 1, 12, 0.13, (1.3, 1.2, 1.4)),
    network("b", 2, 30, 0.1, (1, 1, 1)),
    network("b", 8, 150, 0.11, (1.1, 0.99, 1.2)),
)


def test_where_more_parameters_do_not_help_the_cheapest_network_that_is_as_good_wins():
    found = told(score("a", 0.102, (1, 1, 1)), score("b", 0.11, (1.08, 1.01, 1.2)), networks=FLOOR, growth=FLAT)
    assert (found.unit, found.width, found.parameters, found.regime) == ("a", 1, 10, "noise")
    assert found.equals == ("b",)
    assert "more parameters do not help" in found.reasons[0] and "noise is left" in found.reasons[0]
    assert "4 of 5 networks" in found.reasons[1] and "16 operations a row" in found.reasons[2]


def test_an_error_far_above_the_least_is_no_equal_however_wide_its_interval():
    loose = (replace(FLOOR[0], behind=Estimate(1.5, 0.9, 2.5)), *FLOOR[1:])
    found = told(score("a", 0.102, (1, 1, 1)), networks=loose, growth=FLAT)
    assert (found.unit, found.width) == ("b", 2)


def test_a_test_error_above_the_training_error_means_too_few_rows():
    few = tuple(replace(n, train_rmse=0.02) for n in FLOOR)
    found = told(score("a", 0.102, (1, 1, 1)), networks=few, growth=FLAT)
    assert found.regime == "rows" and "5 times its training error" in found.reasons[0]


def test_a_smaller_network_that_is_certainly_better_means_a_floor_though_the_leader_still_falls():
    worse = (*FLOOR[:1], network("a", 8, 160, 0.2, (2.0, 1.7, 2.3)), *FLOOR[2:])
    found = told(score("a", 0.2, (1, 1, 1)), networks=worse, growth=FALLING)
    assert found.regime == "noise" and found.width == 1
    assert "has 2 times its error [1.7, 2.3]" in found.reasons[0]


def test_a_target_fitted_to_rounding_needs_the_smallest_network_that_does_it():
    exact = (network("a", 8, 160, 1e-12, (1, 1, 1)), network("b", 2, 30, 3e-11, (30, 20, 40)), NETWORKS[0])
    found = told(score("a", 1e-12, (1, 1, 1)), networks=exact, growth=FLAT)
    assert (found.regime, found.unit, found.width) == ("exact", "b", 2)


def test_one_width_alone_leaves_open_what_limits_the_error():
    found = told(A, B, networks=(NETWORKS[1], NETWORKS[3]), growth=None)
    assert (found.regime, found.unit) == ("open", "a") and "one width alone" in found.reasons[0]


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ({"test_rows": 20}, "20 test rows are few"),
        ({"train_rows": 80, "kernel_rows": 80}, "80 training rows are few"),
        ({"heaviest": 0.6}, "one test row makes 60% of"),
        ({"outside": 0.3}, "30% of the test rows lie outside"),
        ({"values": 100}, "80 parameters are more than half of the 100 values"),
        ({"unfinished": 4}, "4 of 12 fits ran out of steps"),
        ({"seeds": 1}, "1 seed show"),
        ({"kernel_rows": 300}, "kernels are of 300 of 400"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_caveat_is_said_where_its_number_is_there_and_only_there(fact: dict, said: str):
    assert any(said in c for c in told(A, B, **fact).caveats)
    assert not any(said in c for c in told(A, B).caveats)


def test_slopes_and_kernels_have_their_caveats():
    like = replace(B, slope_low=-2.5, slope_high=-1.5)
    assert any("a's slope overlaps with b" in c for c in told(A, like).caveats)
    assert not any("overlaps" in c for c in told(A, replace(B, slope_low=-1.2, slope_high=-1.0)).caveats)
    vague = replace(B, resolved=False, condition=float("inf"))
    assert any("smallest eigenvalue of b cannot be told" in c for c in told(A, vague).caveats)
    assert any("kernel of b is a mean" in c for c in told(A, replace(B, kernel_networks=9)).caveats)
    assert any("extrapolation" in c for c in told(A, B).caveats)
    floor = told(score("a", 0.102, (1, 1, 1)), networks=FLOOR, growth=FLAT)
    assert any("chose among 5 networks" in c for c in floor.caveats)
