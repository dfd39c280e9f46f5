"""Rates in many dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.errors import GatelabError
from gatelab.feedforward import unit
from gatelab.theory import estimation_rmse, ridge_rate, worst_case_rate


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
        assert worst_case_rate(k, 1) == ridge_rate(k)
    with pytest.raises(GatelabError, match="1 or more"):
        worst_case_rate(1, 0)


def test_least_squares_spreads_the_noise_over_its_parameters() -> None:
    """Linear least squares with P columns: the error of the fit on its own rows is noise (P/D)^1/2 in the mean."""
    rng = np.random.default_rng(0)
    P, D, noise = 20, 400, 0.5
    columns, _ = np.linalg.qr(rng.standard_normal((D, P)))
    squares = [np.mean((columns @ (columns.T @ (noise * rng.standard_normal(D)))) ** 2) for _ in range(300)]
    # 6000 squares of normals: their mean is within 6 % of its expectation with 99.9 % and more.
    assert np.mean(squares) == pytest.approx(float(estimation_rmse(noise, P, D)) ** 2, rel=0.06)
