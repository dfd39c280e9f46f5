"""The power of a ladder's tests: more seeds, more power; the level where the null hypothesis is true."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.scaling_laws import fit_ladder, ladder_power, read_ladder
from gatelab.scaling_laws.ladder_fits import EXPONENT, OFFSET
from gatelab.scaling_laws.power import PowerDesign

SIZES = (1e5, 4e5, 1.6e6, 6.4e6, 2.5e7)


def record(exponents: tuple[float, ...], deviation: float, seeds: int = 3) -> pd.DataFrame:
    """A ladder of units with these exponents."""
    generator = np.random.default_rng(0)
    rows = []
    for u, a in enumerate(exponents):
        for P in SIZES:
            loss = 1.2 + 0.5 * (P / 1e6) ** -a
            rows += [(f"unit {u}", P, s, loss + deviation * generator.standard_normal()) for s in range(seeds)]
    return pd.DataFrame(rows, columns=["unit", "parameters", "seed", "loss"])


def test_power_is_the_share_of_ladders_that_the_test_rejects() -> None:
    """The slow twin: 30 ladders are made and tested one by one; shares differ by 0.25 or less in 99 % of cases."""
    own = record((0.30, 0.31), 0.006)
    power = (
        ladder_power(own, draws=400, progress=False).set_index("question").loc["exponents differ, against an offset"]
    )
    design = PowerDesign(read_ladder(own), np.array(SIZES), 400, 0)
    law = design.record
    truth = fit_once(law, EXPONENT)
    generator, rejected = np.random.default_rng(1), 0
    noise = np.linalg.inv(design.cells(3).root)
    for k in range(30):
        means = truth + noise @ generator.standard_normal(len(truth))
        table = own.groupby(["unit", "parameters"], sort=False, as_index=False)["loss"].mean()
        # Three seeds about each mean with the spread of the record, so that the test sees the same noise.
        spread = own["loss"] - own.groupby(["unit", "parameters"])["loss"].transform("mean")
        shifted = table.assign(loss=means).merge(own[["unit", "parameters", "seed"]], on=["unit", "parameters"])
        shifted["loss"] += spread.to_numpy()
        rejected += fit_ladder(shifted, draws=40, seed=k, progress=False).exponents_differ.p <= 0.05
    assert power["power_f"] == pytest.approx(rejected / 30, abs=0.25)


def fit_once(cells, form) -> np.ndarray:
    from gatelab.scaling_laws.ladder_fits import fit_form

    return fit_form(cells, (cells.root @ cells.means)[None], form).losses(cells)


def test_more_seeds_have_more_power_and_enough_are_found() -> None:
    own = record((0.30, 0.31), 0.01)
    few, many = (ladder_power(own, seeds=n, draws=300, progress=False).iloc[1] for n in (2, 12))
    assert few["power"] < many["power"]
    assert few["seeds_for_95"] == many["seeds_for_95"]
    at = ladder_power(own, seeds=int(few["seeds_for_95"]), draws=300, progress=False).iloc[1]
    assert at["power"] >= 0.95


def test_a_true_null_hypothesis_is_rejected_in_5_percent() -> None:
    """1000 ladders: between 3 and 7 % with a probability of 99.6 %, plus the error of the critical value."""
    design = PowerDesign(read_ladder(record((0.3, 0.3), 0.01)), np.array(SIZES), 1000, 0)
    assert design.power(OFFSET, EXPONENT, OFFSET, 3) == pytest.approx((0.05, 0.05), abs=0.03)


def test_sizes_that_are_none_are_refused() -> None:
    own = record((0.3, 0.4), 0.01)
    with pytest.raises(GatelabError, match="give 3 or more positive"):
        ladder_power(own, sizes=[1e6, 2e6])
    with pytest.raises(GatelabError, match="seeds is 1"):
        ladder_power(own, seeds=1)
