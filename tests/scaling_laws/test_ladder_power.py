"""The power of a ladder's tests: a slow twin, the limit of small noise, and the level of a true null hypothesis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import least_squares

from gatelab.errors import GatelabError
from gatelab.scaling_laws import ladder_power, read_ladder
from gatelab.scaling_laws.ladder_laws import Cells, loosened
from gatelab.scaling_laws.ladder_losses import seed_noise
from gatelab.scaling_laws.power import QUESTIONS, design_cells, p_value, rejected_shares
from gatelab.train import Ladder

ROOT = Path(__file__).parents[2]
SIZES = (1e5, 4e5, 1.6e6, 6.4e6, 2.5e7)
FORMS = [forms for _, *forms in QUESTIONS]


def record(exponents: tuple[float, ...], deviation: float) -> pd.DataFrame:
    """A ladder of units with these exponents, and three seeds."""
    generator, rows = np.random.default_rng(0), []
    for u, a in enumerate(exponents):
        for P in SIZES:
            loss = 1.2 + 0.5 * (P / 1e6) ** -a
            rows += [(f"unit {u}", P, s, loss + deviation * generator.standard_normal()) for s in range(3)]
    return pd.DataFrame(rows, columns=["unit", "parameters", "seed", "loss"])


def cells_of(table: pd.DataFrame, sizes: tuple[float, ...] = SIZES, seeds: int = 3) -> tuple[Cells, Cells]:
    """The means of a record, and the cells of a design."""
    ladder = read_ladder(table)
    return loosened(Cells.of(ladder, seed_noise(ladder))), design_cells(ladder, np.array(sizes), seeds)


class Twin:
    """A law whose E, A and a are each one number or one per unit, fitted by scipy to one row of means."""

    def __init__(self, cells: Cells, form: str) -> None:
        self.cells, first, self.place = cells, 0, []
        for letter in "EAa":
            self.place.append(first + cells.unit * (letter in form))
            first = self.place[-1].max() + 1
        self.start = np.concatenate([np.full(len(set(p)), v) for p, v in zip(self.place, (1.2, 0.5, 0.3), strict=True)])

    def losses(self, theta: Any) -> Any:
        E, A, a = (theta[place] for place in self.place)
        return E + A * np.exp(-a * self.cells.log_size)

    def fit(self, means: Any) -> Any:
        """The constants and the misfit."""
        rest = lambda theta: self.cells.root @ (self.losses(theta) - means)  # noqa: E731
        found = least_squares(rest, self.start, method="lm", xtol=1e-10)
        return found.x, 2 * found.cost


@pytest.mark.parametrize("forms", FORMS, ids=" ".join)
def test_power_is_the_share_of_simulated_ladders_that_a_loop_of_tests_rejects(forms: list[str]) -> None:
    """The slow twin simulates the same ladders and fits each with scipy; a ladder on the border may differ."""
    known, cells = cells_of(record((0.30, 0.31), 0.01), (5e4, *SIZES[1:]))
    smaller, larger = Twin(cells, forms[0]), Twin(cells, forms[1])
    moved = replace(cells, log_size=cells.log_size + np.log(cells.center / known.center))
    mean = Twin(moved, forms[2]).losses(Twin(known, forms[2]).fit(known.means)[0])
    null = smaller.losses(smaller.fit(mean)[0])
    generator, noise = np.random.default_rng(3), np.linalg.inv(cells.root)
    misfits = np.empty((2, 100, 2))
    for i, center in enumerate((null, mean)):
        for k, own in enumerate(generator.standard_normal((100, len(mean)))):
            misfits[i, k] = [law.fit(center + noise @ own)[1] for law in (smaller, larger)]
    few, many = np.moveaxis(misfits, 2, 0)
    slow = [(s[1] >= np.quantile(s[0], 0.95)).mean() for s in (few - many, (few - many) / many)]
    assert rejected_shares(known, cells, forms, 100, 3) == pytest.approx(slow, abs=0.011)
    assert 0.1 < slow[0] < 0.99


@pytest.mark.parametrize("forms", FORMS, ids=" ".join)
def test_power_is_that_of_noncentral_distributions_where_noise_is_small(forms: list[str]) -> None:
    """Then laws are linear: chi-squared and F. Shares of 2000 draws scatter by 0.02, with their critical values."""
    known, cells = cells_of(record((0.30, 0.305, 0.302), 0.004))
    truth, smaller, larger = (Twin(cells, form) for form in (forms[2], *forms[:2]))
    mean = truth.losses(truth.fit(known.means)[0])
    misfit, rest = smaller.fit(mean)[1], larger.fit(mean)[1]
    more, freedom = len(larger.start) - len(smaller.start), len(mean) - len(larger.start)
    power = stats.ncx2.sf(stats.chi2.ppf(0.95, more), more, misfit - rest)
    power_f = stats.ncf.sf(stats.f.ppf(0.95, more, freedom), more, freedom, misfit - rest)
    assert rejected_shares(known, cells, forms, 2000, 0) == pytest.approx((power, power_f), abs=0.06)


@pytest.mark.parametrize("forms", FORMS, ids=" ".join)
def test_p_of_a_record_is_that_of_the_f_test_where_noise_is_small(forms: list[str]) -> None:
    """A share of 2000 draws scatters by at most 0.011."""
    known, _ = cells_of(record((0.30, 0.302, 0.301), 0.004))
    smaller, larger = (Twin(known, form) for form in forms[:2])
    few, many = (law.fit(known.means)[1] for law in (smaller, larger))
    more, freedom = len(larger.start) - len(smaller.start), len(known.means) - len(larger.start)
    p = stats.f.sf((few - many) / more / (many / freedom), more, freedom)
    assert p_value(known, forms, 2000, 0) == pytest.approx(p, abs=0.035)
    assert 0.01 < p < 0.99


@pytest.mark.parametrize("forms", FORMS, ids=" ".join)
def test_a_true_null_hypothesis_is_rejected_in_5_percent(forms: list[str]) -> None:
    """Shares of 1000 draws scatter by 0.7 %, and their critical values as much; 3 % more or less in 1 of 500 cases."""
    known, cells = cells_of(record((0.3, 0.3), 0.01))
    shares = rejected_shares(known, cells, [*forms[:2], forms[0]], 1000, 0)
    assert shares == pytest.approx((0.05, 0.05), abs=0.03)


def test_powers_against_a_shift_are_those_of_the_page_of_the_ladder() -> None:
    """Another implementation, with variable projection and E >= 0, gave 0.507, 0.976 and 1.000 for the same draws."""
    ladder = read_ladder(Ladder.read(ROOT / "results/ladder/enwik8.json").regime(1))
    record, more = loosened(Cells.of(ladder, seed_noise(ladder))), np.array([1e5, 2e5, 4e5, 3.2e6, 1.1e7, 2.6e7])
    designs = [design_cells(ladder, *design) for design in ((ladder.parameters, 3), (ladder.parameters, 10), (more, 6))]
    assert [p_value(record, forms, 1000, 0) for forms in FORMS] == pytest.approx([0.010, 0.004, 0.458], abs=0.002)
    shares = [rejected_shares(record, cells, FORMS[2], 1000, 0)[0] for cells in designs]
    assert shares == pytest.approx([0.507, 0.976, 1.0], abs=0.005)
    text = (ROOT / "docs/packages/ladder.md").read_text(encoding="utf-8")
    shown = re.findall(r"\d\.\d\d\b", text.partition("**Power.**")[2].partition("\n- ")[0])
    assert shown[2:5] == [f"{share:.2f}" for share in shares]


def test_more_seeds_have_more_power_and_enough_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both searches for enough seeds go through the same designs, which are simulated once."""
    seen: dict[Any, tuple[float, float]] = {}

    def shares(record: Cells, cells: Cells, forms: Sequence[str], draws: int, seed: int) -> tuple[float, float]:
        key = (record.means.tobytes(), cells.root.tobytes(), *forms, draws, seed)
        return seen[key] if key in seen else seen.setdefault(key, rejected_shares(record, cells, forms, draws, seed))

    monkeypatch.setattr("gatelab.scaling_laws.power.rejected_shares", shares)
    own, reports = record((0.30, 0.31), 0.01), []
    few, many = (ladder_power(own, seeds=n, draws=100, progress=lambda *n: reports.append(n)) for n in (2, 12))
    assert few["question"].tolist() == [question for question, *_ in QUESTIONS]
    assert few["true"].tolist() == ["A", "Aa", "Aa"] and reports == 2 * [(1, 3), (2, 3), (3, 3)]
    assert (few["power"] < many["power"]).all() and few["seeds_for_95"].equals(many["seeds_for_95"])
    for forms, enough in zip(FORMS, few["seeds_for_95"], strict=True):
        less, least = (shares(*cells_of(own, seeds=int(enough) - k), forms, 100, 0)[0] for k in (1, 0))
        assert less < 0.95 <= least


def test_no_number_of_seeds_is_enough_where_units_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatelab.scaling_laws.power.QUESTIONS", QUESTIONS[:1])
    assert ladder_power(record((0.3, 0.3), 0.1), draws=100)["seeds_for_95"].isna().tolist() == [True]


def test_designs_that_cannot_be_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({name: n}, f"{name} is {n}") for name, n in (("seeds", 1), ("seeds", 0), ("draws", 10))
    ]
    for sizes in ([1e6, 2e6], [1e6, 2e6, -1.0], [1e6, 1e6, 2e6], [1e6, 2e6, np.nan], []):
        wrong.append(({"sizes": sizes}, r"sizes are .*; give 3 or more different positive numbers"))
    for how, match in wrong:
        with pytest.raises(GatelabError, match=match):
            ladder_power(record((0.3, 0.4), 0.01), **how)
