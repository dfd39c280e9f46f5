"""The power of a ladder to find that units differ: more seeds, more power; the level where units are alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.scaling_laws import ladder_power, read_ladder
from gatelab.scaling_laws.ladder_laws import Cells, loosened, own_law
from gatelab.scaling_laws.ladder_losses import seed_noise
from gatelab.scaling_laws.power import design_cells, rejected_shares

SIZES = (1e5, 4e5, 1.6e6, 6.4e6, 2.5e7)


def record(gains: tuple[float, ...], deviation: float, seeds: int = 3) -> pd.DataFrame:
    """A ladder of units with these amplitudes."""
    generator = np.random.default_rng(0)
    rows = []
    for u, gain in enumerate(gains):
        for P in SIZES:
            loss = 1.2 + 0.5 * gain * (P / 1e6) ** -0.3
            rows += [(f"unit {u}", P, s, loss + deviation * generator.standard_normal()) for s in range(seeds)]
    return pd.DataFrame(rows, columns=["unit", "parameters", "seed", "loss"])


def test_power_is_the_share_of_simulated_ladders_that_the_test_rejects() -> None:
    """The slow twin: 60 ladders under the law, and 60 under the null, one by one; shares differ by 0.2 in 1 of 100."""
    ladder = read_ladder(record((1.0, 1.02), 0.012))
    cells, known = design_cells(ladder, np.array(SIZES), 3), loosened(Cells.of(ladder, seed_noise(ladder)))
    truth = own_law(known).losses(cells)
    near = own_law(replace(cells.alike(), means=truth)).losses(cells.alike())
    generator, noise = np.random.default_rng(1), np.linalg.inv(cells.root)
    reductions = []
    for center in (near, truth):
        own = [replace(cells, means=center + noise @ generator.standard_normal(len(truth))) for _ in range(60)]
        reductions.append([(own_law(one.alike()).misfit - own_law(one).misfit)[0] for one in own])
    slow = np.mean(np.array(reductions[1]) >= np.quantile(reductions[0], 0.95))
    assert rejected_shares(known, cells, 400, 0)[0] == pytest.approx(slow, abs=0.2)


def test_more_seeds_have_more_power_and_enough_are_found() -> None:
    own = record((1.0, 1.015), 0.012)
    few, many = (ladder_power(own, seeds=n, draws=100).iloc[0] for n in (2, 12))
    assert few["power"] < many["power"]
    assert few["seeds_for_95"] == many["seeds_for_95"]
    at = ladder_power(own, seeds=int(few["seeds_for_95"]), draws=100).iloc[0]
    assert at["power"] >= 0.95


def test_units_that_are_alike_have_no_power() -> None:
    """With one amplitude for all, both simulations are of one law, and 5 % are rejected, with a deviation of 1.8 %."""
    own = record((1.0, 1.0), 1e-3)
    same = own.assign(loss=own.groupby(["parameters", "seed"])["loss"].transform("first"))
    same["loss"] += 1e-9 * np.random.default_rng(0).standard_normal(len(same))
    assert ladder_power(same, draws=300, seeds=3)["power"][0] == pytest.approx(0.05, abs=0.05)


def test_sizes_that_are_none_are_refused() -> None:
    own = record((1.0, 1.1), 0.01)
    with pytest.raises(GatelabError, match="give 3 or more positive"):
        ladder_power(own, sizes=[1e6, 2e6])
    with pytest.raises(GatelabError, match="seeds is 1"):
        ladder_power(own, seeds=1)
