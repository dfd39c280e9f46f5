"""Steps against the condition number: counts, predictors and verdicts on cases whose answer is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick
from scipy.stats import spearmanr

from gatelab.ntk import analytic
from gatelab.studies.ntk import steps as study
from gatelab.studies.ntk.steps import PLAIN, PREDICTORS, RATES, REMOVED, SHARES, TARGETS, UNITS


def whole(counts: np.ndarray) -> np.ndarray:
    """The whole steps that take counts in continuous time."""
    return np.ceil(counts - 1e-6)


def iterated(K: np.ndarray, y: np.ndarray, lr: float, share: float) -> int:
    """Gradient descent on the residual, one product with the kernel a step."""
    residual, count = y.copy(), 0
    while residual @ residual > share * (y @ y):
        residual, count = residual - lr * (K @ residual), count + 1
    return count


# ---- steps of one kernel


@pytest.mark.parametrize("kind", ["Gaussian", "clusters", "digits"])
def test_steps_are_those_of_matrix_iterations(kind: str) -> None:
    X, Y = study.rows_and_targets(kind, 20, 64, 1)
    K = analytic("glu", X, 256).numpy()
    values, vectors = np.linalg.eigh(K)
    times, predictors = study.kernel_steps(K, Y)
    counts = whole(times)
    top = np.outer(vectors[:, -1], vectors[:, -1])
    for t, y in enumerate(Y.T):
        for s, share in enumerate(SHARES[:3]):
            assert counts[PLAIN, t, s] == iterated(K, y, 1 / values[-1], share)
            left = y - top @ y
            of_left = share * (y @ y) / (left @ left)
            assert counts[REMOVED, t, s] == iterated(K - values[-1] * top, left, 1 / values[-2], of_left)
        harmonic = values[-1] * (y @ np.linalg.solve(K, y)) / (y @ y)
        assert predictors[2, PLAIN, t] == pytest.approx(harmonic)
    assert predictors[0, PLAIN, 0] == pytest.approx(values[-1] / values[0])
    assert predictors[1, PLAIN, 0] == pytest.approx(values[-2] / values[0])


def test_a_target_along_the_smallest_direction_takes_the_steps_of_the_bound() -> None:
    """With all weight there the premise holds as it stands: -log(ε) / (-2 log(1 - 1/κ)), nearly κ log(1/ε) / 2."""
    K, smallest = np.diag([1.0, 3.0, 8.0, 500.0]), np.eye(4)[:, :1]
    counts, predictors = study.kernel_steps(K, smallest)
    np.testing.assert_allclose(counts[PLAIN, 0], np.log(SHARES) / (2 * np.log1p(-1 / 500)))
    np.testing.assert_allclose(counts[PLAIN, 0], 250 * np.log(1 / np.array(SHARES)), rtol=0.003)
    # Without the top direction the largest eigenvalue is 8, and so is the condition number.
    np.testing.assert_allclose(counts[REMOVED, 0], np.log(SHARES) / (2 * np.log1p(-1 / 8)))
    assert predictors[:2, PLAIN, 0].tolist() == [500.0, 8.0]


def test_a_target_along_the_top_direction_takes_one_step_whatever_the_condition_number() -> None:
    counts, _ = study.kernel_steps(np.diag([1.0, 3.0, 1e6]), np.array([[1e-9], [0.0], [1.0]]))
    assert counts[PLAIN, 0].tolist() == [1.0] * len(SHARES) == counts[REMOVED, 0].tolist()


def test_trained_networks_take_the_steps_of_the_closed_form() -> None:
    """The steps of a network of width 2048 are within a third of those of the expected kernel."""
    rows = [*study.training("Gaussian", 20, 10, "glu", 2048, "random", 0, SHARES[:2])]
    assert [row["measured"] / row["predicted"] for row in rows] == pytest.approx([1.0, 1.0], rel=1 / 3)


@pytest.mark.parametrize("kind", ["Gaussian", "clusters", "digits"])
def test_rows_and_targets_are_scaled(kind: str) -> None:
    X, Y = study.rows_and_targets(kind, 300, 64, 0)
    assert (X * X).mean() == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(Y.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose((Y * Y).mean(0), 1)


# ---- predictors


def test_rank_correlations_are_scipys() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.integers(6, size=(2, 4, 30)).astype(float)
    each = [spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(study.spearman(x, y), each)
    assert study.line_slope(x, y) == pytest.approx(np.polyfit(x.ravel(), y.ravel(), 1)[0])


@cache
def made_up(power: float) -> tuple[np.ndarray, pd.DataFrame]:
    """Steps at one rate that are κ^power log(1/ε) / 2, where bulk κ is unrelated to κ; and their predictions."""
    shape = 8, len(UNITS), 2
    drawn = np.exp(np.random.default_rng(1).uniform(1, 6, (len(PREDICTORS), 1, 1, *shape)))
    predictors = np.broadcast_to(drawn, (len(PREDICTORS), 1, len(TARGETS), *shape))
    over = np.log(1 / np.array(SHARES)).reshape(1, 1, -1, 1, 1, 1) / 2
    counts = np.broadcast_to(predictors[0][:, :, None] ** power * over, (1, 2, len(SHARES), *shape))
    return counts, study.prediction_table(counts, predictors)


@pytest.mark.parametrize(("power", "says"), [(1.0, "reproduced"), (0.5, "undecided")])
def test_the_premise_is_held_against_an_exponent_of_one(power: float, says: str) -> None:
    """Its formula is lost in our copy: what does not agree with the restored one decides nothing."""
    counts, rows = made_up(power)
    claim = study.premise_claim("random", rows.query("target == 'random' and predictor == 'κ'"))
    assert claim.verdict == says and claim.value == pytest.approx(power)
    assert study.exponents_table(counts)["exponent"].tolist() == pytest.approx([1.0, 1.0])


def test_a_number_that_makes_the_steps_beats_one_that_is_unrelated() -> None:
    rows = made_up(1.0)[1].set_index(["rate", "target", "share", "predictor"])
    kappa, bulk = (rows.loc[RATES[PLAIN], "random", SHARES[0], name] for name in PREDICTORS[:2])
    assert kappa["within"] == kappa["gated_pairs"] == 1 and kappa["over_bound"] == pytest.approx(1.0)
    assert bulk["lead_low"] > 0 and bulk["gated_pairs"] < 1


def rows_with(leads: list[tuple[float, float]], low: float = 0.9) -> pd.DataFrame:
    """Rows of one rate: all predictors with these intervals of κ's lead, and all else alike."""
    rows = [(name, *ends, sum(ends) / 2) for name in PREDICTORS for ends in leads]
    frame = pd.DataFrame(rows, columns=["predictor", "lead_low", "lead_high", "lead"]).set_index("predictor")
    others = {"within": 0.5, "gated_pairs": 0.95, "gated_pairs_high": 1.0}
    return frame.assign(**others, gated_pairs_low=low)


LEADS = [((0.05, 0.1), [2, 0, 0], "reproduced"), ((-0.1, 0.1), [1, 0, 1], "undecided")]


@pytest.mark.parametrize(("last", "counts", "says"), [*LEADS, ((-0.2, -0.1), [1, 1, 0], "differs")])
def test_the_verdict_on_predictors_follows_the_least_lead(last: tuple[float, float], counts: list, says: str) -> None:
    rows = rows_with([(0.1, 0.2), last])
    claim = study.contest_claim(RATES[PLAIN], "bulk κ", rows)
    assert (list(claim.support.values())[:3], claim.verdict) == (counts, says)
    for rate, predictor in ((REMOVED, "bulk κ"), (PLAIN, PREDICTORS[2])):
        assert study.contest_claim(RATES[rate], predictor, rows).verdict == "new"


@pytest.mark.parametrize(
    ("rate", "low", "says"), [(PLAIN, 0.9, "reproduced"), (PLAIN, 0.45, "undecided"), (REMOVED, 0.9, "new")]
)
def test_the_verdict_on_pairs_needs_more_than_chance(rate: int, low: float, says: str) -> None:
    assert study.pairs_claim(RATES[rate], rows_with([(0.1, 0.2)] * 2, low=low)).verdict == says


def test_the_first_step_below_a_share() -> None:
    losses = np.array([2.0, 1.0, 0.2, 0.1, 0.01])
    # The loss is a tenth of the first at 2, and a hundredth 0.301 of the way (in logarithms) from 3 to 4 before 4.
    assert study.first_step(losses, 0.1) == pytest.approx(2)
    assert study.first_step(losses, 0.01) == pytest.approx(3 + np.log(5) / np.log(10))
    assert study.first_step(np.array([2.0, 1e-9]), 0.01) == 1
    assert study.first_step(losses, 1e-4) == np.inf


# ---- the study


@pytest.mark.slow
def test_the_quick_study_has_its_claims(quick: Quick) -> None:
    outcome = quick("ntk/steps").outcome
    assert len(outcome.claims) == 2 * len(TARGETS) + 3 + 2 + 1 + 3 + 1
    rows = outcome.tables["training"]
    assert np.isfinite(rows["measured"]).all() and (rows["measured"] / rows["predicted"]).between(0.4, 2.5).all()
    cases = outcome.tables["cases"]
    assert (cases["κ"] >= cases["bulk κ"]).all() and set(cases["unit"]) == set(UNITS)
    (finding,) = study.STUDY.findings(outcome.tables)
    assert "A gate divides a ReLU network's steps" in finding.sentence
