"""The rules on numbers made by hand: each rule, each tie-break and each caveat can be seen at work."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gatelab.scorecard import Evidence, Facts, FittedNetwork, Growth, Recommendation, Score, recommend
from gatelab.statistics import Interval

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
) -> FittedNetwork:
    return FittedNetwork(
        unit, width, 10 * width, flops, train, Interval(rmse, 0.9 * rmse, 1.1 * rmse), Interval(*behind)
    )


FALLING = Growth("a", (4, 8), (40, 80), Interval(0.4, 0.3, 0.5))
FLAT = Growth("a", (4, 8), (40, 80), Interval(1.02, 0.95, 1.1))
A, B = score("a", 0.1, (1, 1, 1)), score("b", 0.2, (2, 1.5, 2.5))
NETWORKS = (
    network("a", 4, 80, 0.25, (2.5, 2.2, 3.0)),
    network("a", 8, 160, 0.1, (1, 1, 1)),
    network("b", 4, 60, 0.4, (4, 3.5, 4.5)),
    network("b", 8, 150, 0.2, (2, 1.5, 2.5)),
)


def advise(
    *scores: Score, networks: tuple[FittedNetwork, ...] = NETWORKS, growth: Growth | None = FALLING, **facts: object
):
    return recommend(Evidence(scores, networks, growth, 80, replace(FACTS, **facts)))


def sides(advice: Recommendation, rival: str = "b") -> dict[str, str]:
    """Every line of the recommended unit and another: for, against or undecided."""
    other = next(r for r in advice.rivals if r.unit == rival)
    words = {}
    for line in other.lines:
        words[line.name] = ("against" if line.favours == rival else "for") if line.decided else "undecided"
    return words


def test_where_more_parameters_help_the_least_error_at_the_budget_wins():
    advice = advise(A, B)
    assert (advice.unit, advice.width, advice.regime, advice.equals) == ("a", 8, "units", ())
    assert "from 40 to 80 parameters its error goes to 40 % [30 %, 50 %]" in advice.reasons[0]
    assert "b, has 2 times that [1.5, 2.5]" in advice.reasons[1]
    assert "error decides, that of b is 2 [1.5, 2.5] times the least" in advice.reasons[2]
    assert sides(advice) == dict.fromkeys(NAMES, "undecided") | {"error": "for"}


NAMES = ("error", "parameters", "FLOPs", "steps", "condition", "throughput")
TIED = score("b", 0.11, (1.1, 0.95, 1.3))
# The numbers of one kind that are decided for b, beside those of SCORE.
BETTER: dict[str, dict[str, Any]] = {
    "parameters": {"parameters": 60},
    "FLOPs": {"flops": 120},
    "steps": {"steps": 4.0},
    "condition": {"condition": 10.0, "condition_low": 10.0, "condition_high": 10.0},
    "throughput": {"rows_per_second": 2000.0, "rows_per_second_low": 1900.0, "rows_per_second_high": 2100.0},
}
WORSE: dict[str, dict[str, Any]] = {
    "parameters": {"parameters": 100},
    "FLOPs": {"flops": 200},
    "steps": {"steps": 40.0},
    "condition": {"condition": 1e4, "condition_low": 1e4, "condition_high": 1e4},
    "throughput": {"rows_per_second": 500.0, "rows_per_second_low": 490.0, "rows_per_second_high": 510.0},
}


@pytest.mark.parametrize("name", BETTER)
def test_one_decided_line_breaks_a_tie_of_errors(name: str):
    advice = advise(A, replace(TIED, **BETTER[name]))
    assert (advice.unit, advice.equals, advice.rivals[0].decided_by) == ("b", ("a",), "majority")
    assert sides(advice, "a") == dict.fromkeys(NAMES, "undecided") | {name: "for"}
    assert f"the majority of decided lines, 1 to 0, decides; for it: {name}; undecided: " in advice.reasons[2]
    assert advice.reasons[2].endswith("undecided, though as measured against it: error")
    assert advice.caveats[0] == "a would do as well, as far as these rows can tell"
    advice = advise(A, replace(TIED, **WORSE[name]))
    assert advice.unit == "a" and sides(advice)[name] == "for"


NEAR: dict[str, dict[str, Any]] = {
    "parameters": {"parameters": 73},
    "FLOPs": {"flops": 146},
    "steps": {"steps": 5.1},
    "condition": {"condition": 51.0, "condition_low": 45.0, "condition_high": 55.0},
    "throughput": {"rows_per_second": 2000.0, "rows_per_second_low": 1005.0, "rows_per_second_high": 2100.0},
}


@pytest.mark.parametrize("name", NEAR)
def test_a_difference_within_the_tolerance_is_undecided_and_the_least_error_as_measured_is_taken(name: str):
    advice = advise(A, replace(TIED, **NEAR[name]))
    assert advice.unit == "a" and sides(advice)[name] == "undecided"
    assert "the decided lines are level, 0 to 0, and error as measured decides" in advice.reasons[2]
    assert advice.reasons[2].endswith(f"undecided, though as measured against it: {name}")


def test_one_line_does_not_outweigh_the_others():
    """The report that led to the rule: all is for b but the condition number."""
    a = score("a", 0.11, (1.1, 0.95, 1.3), **BETTER["condition"])
    cheap = {**BETTER["parameters"], **BETTER["FLOPs"], **BETTER["steps"]}
    advice = advise(
        a, score("b", 0.1, (1, 1, 1), **cheap), networks=(NETWORKS[1], network("b", 8, 120, 0.1, (1, 1, 1)))
    )
    assert advice.unit == "b"
    assert "the majority of decided lines, 3 to 1, decides" in advice.reasons[2]
    assert "for it: parameters, FLOPs and steps; against it: condition; undecided: error and th" in advice.reasons[2]


def test_an_error_that_is_told_from_the_least_is_out_against_every_other_line_and_the_reason_says_so():
    everything = {name: value for numbers in BETTER.values() for name, value in numbers.items()}
    advice = advise(A, replace(B, **everything))
    assert advice.unit == "a" and advice.rivals[0].decided_by == "error" and advice.rivals[0].votes == (1, 5)
    assert "error decides, that of b is 2 [1.5, 2.5] times the least" in advice.reasons[2]
    assert "against the majority of decided lines, 5 to 1" in advice.reasons[2]
    assert "against it: parameters, FLOPs, steps, condition and throughput" in advice.reasons[2]


def test_a_wide_interval_makes_no_equal_of_a_unit_that_is_measured_worse_than_one_that_is_told_apart():
    apart, wide = score("b", 0.11, (1.1, 1.05, 1.15)), score("c", 0.13, (1.3, 0.9, 1.6), **BETTER["steps"])
    advice = advise(A, apart, wide)
    assert advice.unit == "a" and advice.equals == ()
    assert "error as measured decides, that of c is 1.3 [0.9, 1.6] times the least: undecided" in advice.reasons[3]
    assert sides(advice, "c")["error"] == "undecided" and sides(advice)["error"] == "for"


def test_majorities_in_a_circle_leave_the_least_error_as_measured():
    a = score("a", 0.1, (1, 1, 1), parameters=60, flops=200, steps=4.0)
    b = score("b", 0.11, (1.1, 0.9, 1.3), parameters=80, flops=100, steps=16.0)
    c = score("c", 0.12, (1.2, 0.9, 1.4), parameters=100, flops=150, steps=1.0)
    advice = advise(a, b, c)
    assert advice.unit == "a" and [r.votes for r in advice.rivals] == [(2, 1), (1, 2)]
    assert [r.decided_by for r in advice.rivals] == ["majority", "error"]
    assert "go round in a circle, 1 to 2 here, and error as measured decides" in advice.rivals[1].reason


def test_a_condition_number_that_is_not_known_decides_only_by_what_is_proved():
    unknown: dict[str, Any] = {"condition": float("inf"), "condition_high": float("inf"), "resolved": False}
    beyond = replace(TIED, rmse=0.09, condition_low=1e12, **unknown)
    assert sides(advise(A, beyond))["condition"] == "for"
    # Nothing is proved against a unit whose lower end is not above the others'.
    assert sides(advise(A, replace(TIED, condition_low=50.0, **unknown)))["condition"] == "undecided"
    # A sampled kernel's condition number comes out too large and decides nothing.
    sampled = replace(TIED, condition_low=1e12, kernel_networks=20, **unknown)
    assert sides(advise(A, sampled))["condition"] == "undecided"


def test_steps_that_never_come_are_decided_against():
    assert sides(advise(A, replace(TIED, steps=float("inf"))))["steps"] == "for"
    never = replace(A, steps=float("inf"))
    assert sides(advise(never, replace(TIED, steps=float("inf"))))["steps"] == "undecided"


# ---- rule 3


FLOOR = (
    network("a", 1, 16, 0.104, (1.04, 0.97, 1.1)),
    network("a", 8, 160, 0.102, (1.02, 0.95, 1.1)),
    network("b", 1, 12, 0.13, (1.3, 1.2, 1.4)),
    network("b", 2, 30, 0.1, (1, 1, 1)),
    network("b", 8, 150, 0.11, (1.1, 0.99, 1.2)),
)


def test_where_more_parameters_do_not_help_the_cheapest_network_that_is_as_good_wins():
    advice = advise(score("a", 0.102, (1, 1, 1)), score("b", 0.11, (1.08, 1.01, 1.2)), networks=FLOOR, growth=FLAT)
    assert (advice.unit, advice.width, advice.parameters, advice.regime) == ("a", 1, 10, "noise")
    assert advice.equals == ("b",)
    assert "more parameters do not help" in advice.reasons[0] and "noise is left" in advice.reasons[0]
    assert "4 of 5 networks" in advice.reasons[1]
    assert "operations a row go from 16, of a of width 1, to 160" in advice.reasons[1]
    assert "FLOPs decide, 16 beside 30" in advice.reasons[2] and advice.rivals[0].decided_by == "FLOPs"


def test_an_error_far_above_the_least_is_no_equal_however_wide_its_interval():
    loose = (replace(FLOOR[0], behind=Interval(1.5, 0.9, 2.5)), *FLOOR[1:])
    advice = advise(score("a", 0.102, (1, 1, 1)), B, networks=loose, growth=FLAT)
    assert (advice.unit, advice.width) == ("b", 2)


def test_a_test_error_above_the_training_error_means_too_few_rows():
    few = tuple(replace(n, train_rmse=0.02) for n in FLOOR)
    advice = advise(score("a", 0.102, (1, 1, 1)), B, networks=few, growth=FLAT)
    assert advice.regime == "rows" and "5 times its training error" in advice.reasons[0]


def test_a_smaller_network_that_is_certainly_better_means_a_floor_though_the_leader_still_falls():
    worse = (*FLOOR[:1], network("a", 8, 160, 0.2, (2.0, 1.7, 2.3)), *FLOOR[2:])
    advice = advise(score("a", 0.2, (1, 1, 1)), B, networks=worse, growth=FALLING)
    assert advice.regime == "noise" and advice.width == 1
    assert "has 2 times its error [1.7, 2.3]" in advice.reasons[0]


def test_a_target_fitted_to_rounding_needs_the_smallest_network_that_does_it():
    exact = (network("a", 8, 160, 1e-12, (1, 1, 1)), network("b", 2, 30, 3e-11, (30, 20, 40)), NETWORKS[0])
    advice = advise(score("a", 1e-12, (1, 1, 1)), score("b", 3e-11, (1, 1, 1)), networks=exact, growth=FLAT)
    assert (advice.regime, advice.unit, advice.width) == ("exact", "b", 2)


def test_one_width_alone_leaves_open_what_limits_the_error():
    advice = advise(A, B, networks=(NETWORKS[1], NETWORKS[3]), growth=None)
    assert (advice.regime, advice.unit) == ("open", "a")
    assert "within 80 parameters a was fitted at width 8 alone" in advice.reasons[0]


def test_a_step_of_less_than_twice_the_width_tells_a_fall_and_no_floor():
    flat, falling = (replace(growth, widths=(6, 8), parameters=(60, 80)) for growth in (FLAT, FALLING))
    advice = advise(A, B, growth=flat)
    assert advice.regime == "open" and "alone" not in advice.reasons[0]
    assert "from 60 to 80 parameters its error goes to 102 % [95 %, 110 %], which is undecided" in advice.reasons[0]
    assert advise(A, B, growth=falling).regime == "units"


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ({"test_rows": 20}, "20 test rows are few"),
        ({"train_rows": 80, "kernel_rows": 80}, "80 training rows are few"),
        ({"heaviest": 0.6}, "one test row makes 60% of"),
        ({"outside": 0.3}, "30% of the test rows lie outside"),
        ({"values": 100}, "80 parameters are more than half of the 100 values"),
        ({"unfinished": 4}, "4 of 12 fits ran out of steps"),
        ({"seeds": 1}, "1 seed can show"),
        ({"kernel_rows": 300}, "kernels are of 300 of 400"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_caveat_is_said_where_its_number_is_there_and_only_there(fact: dict, said: str):
    assert any(said in c for c in advise(A, B, **fact).caveats)
    assert not any(said in c for c in advise(A, B).caveats)


def test_slopes_and_kernels_have_their_caveats():
    like = replace(B, slope_low=-2.5, slope_high=-1.5)
    assert any("a's slope overlaps with b" in c for c in advise(A, like).caveats)
    assert not any("overlaps" in c for c in advise(A, replace(B, slope_low=-1.2, slope_high=-1.0)).caveats)
    vague = replace(B, resolved=False, condition=float("inf"))
    assert any("smallest eigenvalue of b cannot be told" in c for c in advise(A, vague).caveats)
    assert any("kernel of b is a mean" in c for c in advise(A, replace(B, kernel_networks=9)).caveats)
    assert any("extrapolation" in c for c in advise(A, B).caveats)
    floor = advise(score("a", 0.102, (1, 1, 1)), B, networks=FLOOR, growth=FLAT)
    assert any("chose among 5 networks" in c for c in floor.caveats)


# ---- whatever the numbers are


def random_evidence(rng: np.random.Generator) -> Evidence:
    """A table of two to five units with two networks each: some numbers near each other, some far apart or unknown."""
    units = "abcde"[: rng.integers(2, 6)]

    def spread(scale: float) -> float:
        return float(np.exp(scale * rng.standard_normal()))

    def interval(value: float) -> tuple[float, float, float]:
        width = 0.2 * abs(rng.standard_normal())
        return value, value * (1 - width), value * (1 + width)

    errors = {(u, w): spread(0.15) * (1, 1.2)[w == 4] for u in units for w in (4, 8)}
    best, leader = min(errors, key=errors.__getitem__), min(units, key=lambda u: errors[u, 8])
    scores, networks = [], []
    for (unit, width), error in errors.items():
        flops = int(200 * spread(0.3)) * width // 8
        behind = (1.0, 1.0, 1.0) if (unit, width) == best else interval(error / errors[best])
        networks.append(network(unit, width, flops, error, behind, train=error / rng.choice([1.1, 3.0])))
        if width == 8:
            condition, speed = spread(1.5), spread(0.5)
            resolved = bool(rng.random() < 0.8)
            behind = (1.0, 1.0, 1.0) if unit == leader else interval(error / errors[leader, 8])
            scores.append(
                score(
                    unit,
                    error,
                    behind,
                    flops=flops,
                    parameters=networks[-1].parameters,
                    steps=float(rng.choice([spread(1.0), float("inf")], p=[0.9, 0.1])),
                    condition=condition if resolved else float("inf"),
                    condition_low=0.9 * condition,
                    condition_high=1.1 * condition if resolved else float("inf"),
                    resolved=resolved,
                    kernel_networks=int(rng.random() < 0.1),
                    rows_per_second=speed,
                    rows_per_second_low=0.9 * speed,
                    rows_per_second_high=1.1 * speed,
                )
            )
    narrow = int(rng.choice([4, 6]))
    growth = None
    if rng.random() < 0.9:
        growth = Growth(leader, (narrow, 8), (10 * narrow, 80), Interval(*interval(spread(0.3))))
    return Evidence(tuple(scores), tuple(networks), growth, 80, FACTS)


def decided(mine: tuple[FittedNetwork, Score], other: tuple[FittedNetwork, Score]) -> Counter[str]:
    """How many lines but that of the error are decided for which unit: a twin of `evidence.lines`, written out."""
    (n, s), (m, t) = mine, other
    wins: Counter[str] = Counter()
    for x, y, factor in ((n.parameters, m.parameters, 1.1), (n.flops, m.flops, 1.1), (s.steps, t.steps, 2.0)):
        wins[s.unit] += factor * x < y
        wins[t.unit] += factor * y < x
    if not s.kernel_networks and not t.kernel_networks:
        wins[s.unit] += s.resolved and 2 * s.condition_high < t.condition_low
        wins[t.unit] += t.resolved and 2 * t.condition_high < s.condition_low
    wins[s.unit] += s.rows_per_second_low > t.rows_per_second_high
    wins[t.unit] += t.rows_per_second_low > s.rows_per_second_high
    return wins


def test_a_unit_is_taken_against_the_majority_only_where_the_reason_names_the_line_that_decides():
    """A thousand tables made at random by a fixed seed: nothing here is left to luck."""
    rng = np.random.default_rng(0)
    kinds: Counter[str] = Counter()
    for _ in range(1000):
        e = random_evidence(rng)
        advice = recommend(e)
        scores = {s.unit: s for s in e.scores}
        mine = (e.network(advice.unit, advice.width), scores[advice.unit])
        assert {r.unit for r in advice.rivals} == set(scores) - {advice.unit}
        for rival in advice.rivals:
            other = (e.network(rival.unit, rival.width), scores[rival.unit])
            error = rival.lines[0]
            wins = decided(mine, other)
            wins[error.favours or ""] += error.decided
            assert rival.votes == (wins[advice.unit], wins[rival.unit])
            assert rival.reason in advice.reasons
            against = wins[rival.unit] > wins[advice.unit]
            if against:
                assert rival.decided_by in ("error", "FLOPs")
                assert re.search(rf"{rival.decided_by} (as measured )?decides?", rival.reason)
                assert "against the majority of decided lines" in rival.reason
            elif rival.decided_by == "majority":
                assert wins[advice.unit] >= wins[rival.unit]
            # What the sentence lists is what the lines say.
            for line in rival.lines:
                part = next(p for p in rival.reason.split("; ")[1:] if line.name in p)
                assert part.startswith("undecided") is not line.decided
                assert ("against it" in part) is (line.favours == rival.unit)
            kinds[f"{advice.regime} {rival.decided_by} {against}"] += 1
    # Every way of deciding came up, with and against the majority.
    for kind in (
        "units error True",
        "units majority False",
        "open error False",
        "noise FLOPs True",
        "rows FLOPs False",
    ):
        assert kinds[kind] > 10, kinds


@pytest.mark.slow
def test_a_unit_that_no_line_is_against_is_taken():
    """Whoever is better by every line, decided or not, at every width is recommended: three thousand tables again."""
    rng = np.random.default_rng(1)
    for _ in range(1000):
        e = random_evidence(rng)
        best = e.best.rmse.value
        good = replace(
            SCORE,
            unit="z",
            parameters=1,
            flops=1,
            rmse=0.5 * best,
            behind=1.0,
            steps=0.0,
            condition=1e-9,
            condition_low=1e-9,
            condition_high=1e-9,
            rows_per_second=1e9,
            rows_per_second_low=1e9,
            rows_per_second_high=1e9,
        )
        ratio = {s.unit: s.rmse / good.rmse for s in e.scores}
        scores = [replace(s, behind=ratio[s.unit], behind_low=0.9, behind_high=3.0) for s in e.scores]
        own = replace(network("z", 8, 1, good.rmse, (1, 1, 1), train=good.rmse), parameters=1)
        networks = [replace(n, behind=Interval(n.rmse.value / good.rmse, 0.9, 3.0)) for n in e.networks]
        growth = e.growth and replace(e.growth, unit="z")
        assert recommend(replace(e, scores=(*scores, good), networks=(*networks, own), growth=growth)).unit == "z"
