"""Holm's correction against his own words, and against what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.errors import GatelabError
from gatelab.statistics import holm


def step_down(p: list[float], alpha: float) -> list[bool]:
    """Holm's procedure as he wrote it: the least p against alpha/m, the next against alpha/(m - 1), until one fails."""
    rejected = [False] * len(p)
    for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] > alpha / (len(p) - k):
            break
        rejected[i] = True
    return rejected


def test_corrected_p_reject_what_the_procedure_rejects() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        p = generator.random(generator.integers(1, 12)) ** generator.integers(1, 5)
        p[generator.random(len(p)) < 0.2] = p[0]  # ties
        for alpha in generator.random(5):
            assert (holm(p) <= alpha).tolist() == step_down(p.tolist(), alpha)


def test_true_hypotheses_are_rejected_no_more_often_than_promised() -> None:
    """20 of 30 hypotheses true, 2000 times: a rejection among them in 5 % or less; 6.5 % is three deviations more."""
    generator = np.random.default_rng(1)
    p = generator.random((2000, 30))
    p[:, 20:] *= 1e-4
    wrong = np.mean([(holm(row)[:20] <= 0.05).any() for row in p])
    assert 0.03 < wrong < 0.065


@pytest.mark.parametrize("p", [[0.1, np.nan], [-0.1], [1.5], [[0.1], [0.2]]])
def test_what_is_no_p_value_is_refused(p: list[float]) -> None:
    with pytest.raises(GatelabError, match="p-values are a list of numbers from 0 to 1"):
        holm(p)
