"""Corollary 4.2's early stage and lemma B.8: laws against slow twins, and claims that can come out each way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from gatelab.ntk import analytic
from gatelab.studies.ntk import early, lemma_b8
from gatelab.studies.ntk.gaussian import samples
from gatelab.theory.random_matrix import mp_density, mp_edges


def test_terms_are_what_loops_give() -> None:
    row = early.terms(3, 4, 2)
    means = {"spread": np.zeros(2), "start": np.zeros(2), "rate": np.zeros(2)}
    for seed in range(2):
        y = np.random.default_rng([11, seed, 4, 3]).standard_normal((50, 4))
        for i, unit in enumerate(("mlp", "glu")):
            A = analytic(unit, samples(4, 3, seed), None).numpy()
            spread = sum(A[j, k] ** 2 for j in range(4) for k in range(4))
            means["spread"][i] += spread
            means["start"][i] += sum(A[j, j] for j in range(4))
            means["rate"][i] += np.mean([target @ A @ target for target in y]) + spread
    for term, (plain, gated) in means.items():
        assert row[term] == pytest.approx(plain / gated)


def test_the_bound_is_where_mean_spreads_meet() -> None:
    """Means of 100 draws at half and twice the bound lie to either side, and farther from 1 than their intervals."""
    bound = early.expected_bound(20)
    below, above = (early.terms(20, round(times * bound), 100) for times in (0.5, 2.0))
    assert below["spread_high"] < 1 < above["spread_low"]


@pytest.mark.parametrize(
    ("ratio", "chance", "says"), [(2, 0.1, "reproduced"), (0.5, 0.1, "undecided"), (1.2, 0.5, "undecided")]
)
def test_one_size_that_is_slower_is_not_reproduced(ratio: float, chance: float, says: str) -> None:
    spread = np.array([0.5, 2.0, ratio])
    terms = pd.DataFrame({"n": [2, 40, 80], "d": 20, "signal": [0.2, 0.3, 0.3]})
    for term in ("spread", "start", "rate"):
        terms = terms.assign(**{term: spread, f"{term}_low": spread - chance, f"{term}_high": spread + chance})
    tables = early.columns({"terms": terms}, {})
    stage, targets, _ = early.claims(tables)
    assert tables["bounds"]["measured"].item() == (40 if ratio > 1 else np.nan) or ratio < 1
    assert stage.verdict == says and targets.value == pytest.approx(0.3)


@pytest.mark.parametrize("gamma", [0.25, 0.5])
def test_shares_below_are_integrals_of_the_density(gamma: float) -> None:
    low, high = mp_edges(gamma)
    for x in (low + 0.1, 1.0, high - 0.1):
        share, _ = quad(lambda v: float(mp_density(v, gamma)), low, x)
        assert lemma_b8.mp_share_below(np.array([x]), gamma)[0] == pytest.approx(share, abs=1e-5)


def test_wishart_matrices_are_near_the_law_and_far_from_another() -> None:
    """Kolmogorov's distance of 400 eigenvalues, which repel each other: far below 0.03; a wrong shape is 0.1 off."""
    x = np.random.default_rng(0).standard_normal((400, 1600))
    values = np.linalg.eigvalsh(x @ x.T / 1600)
    assert lemma_b8.largest_difference(values, 0.25) < 0.03 and lemma_b8.largest_difference(values, 0.125) > 0.1


@pytest.mark.parametrize(("left", "chance", "says"), [(0, 1e-3, True), (0.15, 1e-3, False), (0, 0.3, False)])
def test_what_does_not_vanish_or_scatters_is_undecided(left: float, chance: float, says: bool) -> None:
    d = np.array([10, 14, 20, 28, 40])
    noise = np.random.default_rng(1).standard_normal((5, 6))
    rows = pd.DataFrame(left + 2 / d[:, None] + chance * noise, index=pd.Index(d, name="d")).melt(
        ignore_index=False, var_name="seed", value_name="distance"
    )
    rows = rows.reset_index().assign(shape=0.5, n=100)
    rows["distance_half"] = rows["distance"]
    table = rows.assign(distance_low=rows["distance"], distance_high=rows["distance"])
    tables = lemma_b8.columns({"distances": table}, {"distances": rows})
    assert next(lemma_b8.claims(tables)).verdict == ("reproduced" if says else "undecided")
