"""Verdicts follow from numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gatelab.scaling_laws import Point, Scaling, Slope
from gatelab.statistics import Interval, t_interval
from gatelab.studies.scaling.error_curves import slope_reason
from gatelab.studies.scaling.fig2 import neurons_claim
from gatelab.studies.scaling.fig6 import at_equal_parameters
from gatelab.studies.verdicts import (
    errors_claim,
    errors_verdict,
    fewer_verdict,
    number_verdict,
    side_verdict,
    slope_verdict,
)

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.mark.parametrize(
    ("paper", "value", "low", "high", "verdict"),
    [
        (-3.08, -3.0, -3.05, -2.95, "reproduced"),  # near
        (-3.08, -2.8, -3.2, -2.4, "reproduced"),  # inside a wide interval
        (-3.08, -3.5, -3.6, -3.4, "exceeded"),
        (-3.08, -2.5, -2.6, -2.4, "differs"),
        (-2.00, -2.16, -2.16, -2.16, "exceeded"),
        (-2.00, -1.84, -1.84, -1.84, "differs"),
        (-3.00, -2.87, -2.93, -2.81, "reproduced"),  # 4 % from the paper's, and so is the next
        (-4.00, -3.84, -3.90, -3.79, "reproduced"),
        (-0.31, -0.37, -0.39, -0.35, "exceeded"),  # 0.06 is a fifth of a small slope
    ],
)
def test_slopes(paper: float, value: float, low: float, high: float, verdict: str) -> None:
    assert slope_verdict(paper, Slope(value, low, high, 0.0, 50)) == verdict


def test_steeper_training_errors_exceed_nothing() -> None:
    assert slope_verdict(-0.56, Slope(-1.4, -1.53, -1.31, 0.0, 5), held_out=False) == "differs"


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ({5: 0.5, 10: 0.2}, "exceeded"),
        ({5: 1.05, 10: 0.2}, "reproduced"),
        ({5: 1.2, 10: 0.2}, "differs"),
        ({5: 0.5}, "exceeded"),
        ({7: 0.5}, "new"),  # nothing to compare with
    ],
)
def test_errors(ours: dict[int, float], verdict: str) -> None:
    reference = {5: 1.0, 10: 0.5}
    assert errors_verdict(reference, ours) == verdict == errors_claim("mlp", reference, ours).verdict


def test_fewer_neurons() -> None:
    assert [fewer_verdict(15, n) for n in (14, 15, 16, None)] == ["exceeded", "reproduced", "differs", "differs"]


def power_law(**units: tuple[float, float]) -> Scaling:
    """Errors A n^slope for each unit given as name=(A, slope), at 1..50, with the limit at n^-3."""
    points = [
        Point(name, n, 5 * n + 1, 0, a * n**s, a * n**s, n**-3.0, a * n**s / n**-3.0, "", "converged", 0.0)
        for name, (a, s) in units.items()
        for n in range(1, 51)
    ]
    return Scaling("made up", tuple(points))


def test_neurons_that_match_are_found() -> None:
    claim = neurons_claim(power_law(mlp=(1.0, -2.0), glu=(1.0, -3.0)))
    assert claim.ours == "14 for 50" and claim.verdict == "exceeded"
    assert neurons_claim(power_law(mlp=(1e-9, -2.0), glu=(1.0, -3.0))).verdict == "differs"


def test_reasons_say_which_way_the_line_bends() -> None:
    assert "flatter than order 3" in slope_reason(power_law(glu=(0.1, -2.5)), "glu")
    assert "steeper than order 3" in slope_reason(power_law(glu=(0.1, -3.5)), "glu")


def test_errors_at_equal_parameters() -> None:
    P, times = at_equal_parameters(power_law(relu2=(1.0, -3.0), glu=(4.0, -3.0)).table(), "relu2", "glu")
    assert P == 251 and times == pytest.approx(4.0)


# ---- what an interval decides


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.7, -0.4, "reproduced"),  # contains the paper's -0.56 and no opposite
        (-0.73, 0.38, "undecided"),  # contains both
        (-0.5, -0.3, "differs"),  # contains neither
        (-0.5, 0.2, "differs"),  # contains the opposite alone
        (-0.56, 0.0, "undecided"),  # ends belong to the interval
        (-9.0, -0.1, "reproduced"),  # however wide, its opposite is out
    ],
)
def test_a_number_and_its_opposite(low: float, high: float, verdict: str) -> None:
    assert number_verdict(-0.56, 0.0, Interval((low + high) / 2, low, high)) == verdict


@pytest.mark.parametrize("number", [-1.0, 0.0, 2.5])
@pytest.mark.parametrize("side", ["below", "above"])
def test_a_side_is_decided_only_by_an_interval_that_lies_on_one(number: float, side: str) -> None:
    below, above = Interval(number - 1, number - 2, number - 0.1), Interval(number + 1, number + 0.1, number + 2)
    across, unknown = Interval(number + 1, number - 0.1, number + 2), Interval(number + 1, np.nan, np.nan)
    agreeing, opposed = (below, above) if side == "below" else (above, below)
    verdicts = [side_verdict(ours, number, side) for ours in (agreeing, opposed, across, unknown)]
    assert verdicts == ["reproduced", "differs", "undecided", "undecided"]


def test_intervals_of_normal_means_decide_wrongly_as_seldom_as_they_say() -> None:
    """Means of 20 draws about a true 0: of 4000 95 % t-intervals 5 % exclude it, and only these decide for a side.

    More than 6.2 % or fewer than 3.9 % are excluded by chance once in 1000 times.
    """
    draws = np.random.default_rng(0).standard_normal((4000, 20))
    intervals = [t_interval(row) for row in draws]
    decided = [side_verdict(interval, 0.0, "above") for interval in intervals]
    assert 0.039 < 1 - decided.count("undecided") / 4000 < 0.062
    assert [side_verdict(i, 0.0, "below") for i in intervals].count("undecided") == decided.count("undecided")


def test_a_wide_slope_is_undecided_and_a_steep_one_exceeds() -> None:
    assert slope_verdict(-0.56, Slope(-0.17, -0.73, 0.38, 0.0, 7)) == "undecided"
    assert slope_verdict(-0.56, Slope(-0.9, -2.0, 0.38, 0.0, 7)) == "undecided"
    assert slope_verdict(-0.56, Slope(-1.2, -1.6, -0.8, 0.0, 7)) == "exceeded"
