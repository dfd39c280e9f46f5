"""Verdicts follow from numbers."""

from __future__ import annotations

import pytest

from gatelab.scaling_laws import Point, Scaling, Slope
from gatelab.studies.scaling.error_curves import slope_reason
from gatelab.studies.scaling.fig2 import neurons_claim
from gatelab.studies.scaling.fig6 import at_equal_parameters
from gatelab.studies.verdicts import errors_claim, errors_verdict, fewer_verdict, reference_sentence, slope_verdict


@pytest.mark.parametrize(
    ("paper", "value", "low", "high", "verdict"),
    [
        (-3.08, -3.0, -3.05, -2.95, "reproduced"),  # near
        (-3.08, -2.8, -3.2, -2.4, "reproduced"),  # inside a wide interval
        (-3.08, -3.5, -3.6, -3.4, "exceeded"),
        (-3.08, -2.5, -2.6, -2.4, "differs"),
        (-2.00, -2.16, -2.16, -2.16, "exceeded"),
        (-2.00, -1.84, -1.84, -1.84, "differs"),
    ],
)
def test_slopes(paper: float, value: float, low: float, high: float, verdict: str) -> None:
    assert slope_verdict(paper, Slope(value, low, high, 0.0, 50)) == verdict


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


def test_the_reference_sentence_compares_on_its_own_widths() -> None:
    ours = {n: 1.0 / n**3 for n in (1, 5, 50)}
    sentence = reference_sentence({5: 2.0 / 5**3, 50: 2.0 / 50**3}, ours, ours)
    assert "2.00 times the limit at n = 5, where ours is 1.00 times" in sentence
    assert "its slope is -3.00 and ours -3.00" in sentence
    assert reference_sentence({5: 1.0}, ours, ours) == ""


def test_errors_at_equal_parameters() -> None:
    P, times = at_equal_parameters(power_law(relu2=(1.0, -3.0), glu=(4.0, -3.0)), "relu2", "glu")
    assert P == 251 and times == pytest.approx(4.0)
