"""Corollary 4.2's early stage and lemma B.8: laws against slow twins, and claims that can come out each way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick
from scipy.integrate import quad

from gatelab.ntk import analytic
from gatelab.studies.ntk.early import EarlyCell, bound_row, expected_bound, measure, stage_claim, target_claim
from gatelab.studies.ntk.gaussian import samples
from gatelab.studies.ntk.lemma_b8 import ShapeDistances, claim, largest_difference, mp_share_below
from gatelab.theory.random_matrix import mp_density, mp_edges


def tick() -> None:
    """Nobody listens."""


# ---- corollary 4.2


def test_terms_are_what_loops_give() -> None:
    cell = measure(4, 3, 2, tick)
    for seed in range(2):
        for unit, i in (("mlp", 0), ("glu", 1)):
            A = analytic(unit, samples(4, 3, seed), None).numpy()
            assert cell.spread[i, seed] == pytest.approx(sum(A[j, k] ** 2 for j in range(4) for k in range(4)))
            assert cell.start[i, seed] == pytest.approx(sum(A[j, j] for j in range(4)))
            y = np.random.default_rng([11, seed, 4, 3]).standard_normal((50, 4))
            mean = np.mean([row @ A @ row for row in y])
            assert cell.rate[i, seed] == pytest.approx(mean + cell.spread[i, seed])


def test_the_bound_is_where_mean_spreads_meet() -> None:
    """Means of 100 draws at half and twice the bound lie to either side, and farther from 1 than their intervals."""
    bound = expected_bound(20)
    below, above = (measure(round(times * bound), 20, 100, tick).ratio("spread") for times in (0.5, 2.0))
    assert below.high < 1 < above.low


def cell(n: int, d: int, ratio: float, chance: float = 0.01) -> EarlyCell:
    draws = 1 + chance * np.random.default_rng(n).standard_normal((2, 30))
    terms = draws * np.array([[ratio], [1.0]])
    return EarlyCell(n, d, terms, terms, terms, np.full(30, 0.3))


@pytest.mark.parametrize(
    ("ratio", "chance", "says"), [(2, 0.01, "reproduced"), (0.5, 0.01, "undecided"), (1, 0.5, "undecided")]
)
def test_one_size_that_is_slower_is_not_reproduced(ratio: float, chance: float, says: str) -> None:
    cells = [cell(40, 20, 2.0), cell(80, 20, ratio, chance)]
    bounds = pd.DataFrame([bound_row({(c.n, c.d): c for c in cells}, [40, 80], 20)])
    assert stage_claim([*cells, cell(2, 20, 0.5)], bounds).verdict == says
    assert target_claim(cells).ours == "30%"


# ---- lemma B.8


@pytest.mark.parametrize("gamma", [0.25, 0.5])
def test_shares_below_are_integrals_of_the_density(gamma: float) -> None:
    low, high = mp_edges(gamma)
    for x in (low + 0.1, 1.0, high - 0.1):
        share, _ = quad(lambda v: float(mp_density(v, gamma)), low, x)
        assert mp_share_below(np.array([x]), gamma)[0] == pytest.approx(share, abs=1e-5)


def test_wishart_matrices_are_near_the_law_and_far_from_another() -> None:
    """Kolmogorov's distance of 400 eigenvalues, which repel each other: far below 0.03; a wrong shape is 0.1 off."""
    x = np.random.default_rng(0).standard_normal((400, 1600))
    values = np.linalg.eigvalsh(x @ x.T / 1600)
    assert largest_difference(values, 0.25) < 0.03 and largest_difference(values, 0.125) > 0.1


def test_what_does_not_vanish_or_scatters_is_undecided() -> None:
    d = np.array([10.0, 14, 20, 28, 40])
    chance = np.random.default_rng(1).standard_normal((5, 6))
    vanishing = 2 / d[:, None] + 1e-3 * chance
    one = ShapeDistances(0.5, (10, 14, 20, 28, 40), vanishing, vanishing + 0.15, np.ones(3))
    assert claim(one).verdict == "reproduced"
    assert claim(replace(one, lemma=vanishing + 0.15)).verdict == "undecided"
    assert claim(replace(one, lemma=2 / d[:, None] + 0.05 * np.abs(chance))).verdict == "undecided"


def test_both_report_progress_to_the_end(quick: Quick) -> None:
    for name in ("ntk/early", "ntk/lemma-b8"):
        progress = quick(name).progress
        assert progress[-1] == (len(progress), len(progress))
