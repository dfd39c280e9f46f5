"""Rates in many dimensions."""

from __future__ import annotations

import pytest

from gatelab.errors import GatelabError
from gatelab.feedforward import unit
from gatelab.theory import worst_case_rate


@pytest.mark.parametrize(
    ("inputs", "rates"),
    [
        (1, (2.0, 3.0, 4.0)),
        (5, (0.8, 1.0, 1.2)),
        (8, (0.6875, 0.8125, 0.9375)),
    ],
)
def test_worst_case_rates(inputs: int, rates: tuple[float, ...]) -> None:
    degrees = [unit(name).degree for name in ("mlp", "glu", "gqu")]
    assert [worst_case_rate(k, inputs) for k in degrees if k] == pytest.approx(rates)


def test_the_rate_on_a_line_is_that_of_ridges() -> None:
    for k in (1, 2, 3):
        assert worst_case_rate(k, 1) == k + 1
    with pytest.raises(GatelabError, match="1 or more"):
        worst_case_rate(1, 0)
