"""Holm's correction against his own words."""

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


@pytest.mark.parametrize("p", [[0.1, np.nan], [-0.1], [1.5], [[0.1], [0.2]]])
def test_what_is_no_p_value_is_refused(p: list[float]) -> None:
    with pytest.raises(GatelabError, match="p-values are a list of numbers from 0 to 1"):
        holm(p)
