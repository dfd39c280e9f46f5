"""The ladder's study: its tables and claims on made-up losses, and its record."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick

from gatelab.errors import GatelabError
from gatelab.scaling_laws import fit_ladder
from gatelab.statistics import Interval
from gatelab.studies import Request, reproduce
from gatelab.studies.ladder import enwik8
from gatelab.train import Ladder
from gatelab.train.ladder_plans import LADDER_SIZES
from gatelab.train.ladder_runs import run_of

RECORD = Path(__file__).parents[2] / "results/ladder/enwik8.json"
UNITS = {"gelu": 1.0, "relu2": 0.97, "swiglu": 0.92, "gqu": 0.99}
SCORES = {"a score": {"gelu": 4.0, "gqu": 3.0, "relu2": 2.0, "swiglu": 1.0}}
SPEEDS = pd.DataFrame(
    [
        {"unit": unit, "size": size, "loop": "gatelab", "models": 3, "tokens_per_second": 1e7 / (1 + i)}
        for unit in UNITS
        for i, size in enumerate(LADDER_SIZES)
    ]
)


def made_up(exponents: Mapping[str, float] = {}) -> Ladder:
    """Five sizes read once and four repeated: L = E + A_unit P^-a, seeds that all units share, and a little noise.

    When the text repeats, gains of units are half as large again. `exponents` are what units have above the others.
    """
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    first = {run["arguments"]["recipe"]["unit"]["name"]: run for run in reversed(document["rungs"])}
    runs, generator = [], np.random.default_rng(0)
    runs += [run for run in document["rungs"] if run["arguments"]["purpose"] == "tune"]
    for repeats, size in [(1, size) for size in LADDER_SIZES] + [(20, size) for size in LADDER_SIZES[:4]]:
        shared = 0.004 * generator.standard_normal(3)
        for unit, amplitude in UNITS.items():
            run = copy.deepcopy(first[unit])
            run["arguments"] |= {"lrs": [0.003], "seeds": [0, 1, 2], "repeats": repeats, "purpose": "climb"}
            run["arguments"]["recipe"]["size"] = size
            made = run_of(run["arguments"])
            P = made.config.body_count(made.recipe.unit, True)
            gain = amplitude ** (1.5 if repeats > 1 else 1.0)
            loss = 0.55 + 18 * gain * P**-0.26 * (P / 3e6) ** -exponents.get(unit, 0.0) + shared
            loss = (loss + 0.001 * generator.standard_normal(3)).tolist()
            flops = made.config.token_flops(made.recipe.unit, True) * 10**8
            run["metrics"] |= {"loss": loss, "train": loss, "diverged": [None] * 3, "parameters": P, "flops": flops}
            run["metrics"] |= {"tokens": 10**8, "seconds": 60.0, "together": 3}
            run["metrics"] |= {"course": [[last + 1, last - 0.2, last] for last in loss]}
            runs.append(run)
    return Ladder.from_plain(document | {"rungs": runs})


@cache
def made_up_tables() -> dict[str, Any]:
    return dict(enwik8.tables_of(made_up(), SPEEDS, Request(quick=True)))


def test_five_sizes_find_the_offset_the_factor_and_the_effect_of_repeating() -> None:
    """The made-up amplitudes are 0.97 and 0.92: (0.97 / 0.92)^(1 / 0.26) is 1.226, and repeating adds to the lead."""
    claims = {claim.what: claim for claim in enwik8.claims(made_up_tables())}
    law = claims["gates have larger exponents, L against parameters, every byte once"]
    assert law.support["answer"] == "offset" and law.verdict in ("differs", "undecided")
    factor = claims["swiglu in parameters of relu2, one factor for all sizes, every byte once"]
    assert factor.value == pytest.approx(1.226, abs=0.02) and list(factor.support)[:-1] == list(LADDER_SIZES)
    assert claims["swiglu minus relu2 over all sizes, every byte once"].verdict == "differs"
    assert claims["swiglu minus relu2 over all sizes, a 20th of the text 20 times"].verdict == "reproduced"
    assert claims["swiglu minus relu2 over all sizes, repeated minus once"].verdict == "reproduced"
    assert claims["pairs of units that differ significantly by both rules of variance, every byte once"].value == 6


@pytest.mark.parametrize(
    ("exponents", "steeper"),
    [({"swiglu": 0.06, "gqu": 0.06}, 1.0), ({"swiglu": 0.06}, None), ({"swiglu": 0.06, "gqu": -0.06}, 0.0)],
)
def test_gates_are_steeper_where_each_of_them_is(exponents: dict[str, float], steeper: float | None) -> None:
    """The first paper says more than that exponents differ."""
    points = enwik8.trainings(made_up(exponents), SPEEDS).query("repeats == 1")
    laws = enwik8.law_rows(fit_ladder(points, draws=40, progress=False), enwik8.TRAINED, "none")
    assert set(laws["verdict"]) == {"exponent"} and enwik8.gates_steeper(laws) == steeper


def test_an_answer_that_depends_on_learning_rates_is_undecided() -> None:
    laws = made_up_tables()["laws"]
    for answer, verdict in (("offset", "differs"), ("undecided", "undecided")):
        other = laws.assign(verdict=np.where(laws["losses"] == enwik8.AT_BEST, answer, "offset"))
        assert {claim.verdict for claim in enwik8.law_claims(other) if claim.rule == "holds"} == {verdict}


def test_losses_at_best_rates_are_lower_by_the_known_costs() -> None:
    """The largest size was not swept: its rate costs as much as that of the size below."""
    points = enwik8.trainings(made_up(), SPEEDS).query("repeats == 1")
    assert sorted(set(points["seconds"])) == pytest.approx([10.0 * (1 + i) for i in range(5)])
    costs = pd.DataFrame({"unit": "gqu", "size": LADDER_SIZES[:4], "excess": [0.1, 0.2, 0.3, 0.4]})
    costs = pd.concat([costs, costs.assign(unit="gelu", excess=0.0), costs.assign(unit="relu2", excess=0.0)])
    lower = enwik8.best_rate_losses(points, pd.concat([costs, costs[:4].assign(unit="swiglu", excess=0.0)]))
    off = (points["loss"] - lower["loss"]).groupby([points["unit"], points["size"]]).first()
    assert off["gqu"][list(LADDER_SIZES)].to_numpy() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert off.drop("gqu").abs().max() < 1e-12


def test_the_change_is_what_the_losses_say_seed_by_seed() -> None:
    """The slow way: differences of seeds at each common size, and their mean by the inverse squares of half-widths."""
    tables = made_up_tables()
    points = enwik8.trainings(made_up(), SPEEDS)
    means = points.groupby(["repeats", "size", "unit"])["bits"].mean().unstack()
    own = tables["leads"].query("unit == 'swiglu'").set_index(["text", "size"])
    half = own["difference_high"] - own["difference"]
    change, squares = [], []
    for size in LADDER_SIZES[:4]:
        once, repeated = (means.loc[(repeats, size)] for repeats in enwik8.TEXTS)
        change.append((repeated["swiglu"] - repeated["relu2"]) - (once["swiglu"] - once["relu2"]))
        squares.append(sum(half[text, size] ** 2 for text in enwik8.TEXTS.values()))
    row = own.loc[("repeated minus once", "all sizes")]
    assert row["difference"] == pytest.approx(np.average(change, weights=1 / np.array(squares)), abs=1e-12)
    assert half["repeated minus once", "all sizes"] == pytest.approx(np.sum(1 / np.array(squares)) ** -0.5)


def test_an_interval_covers_all_analyses_and_sizes_that_disagree() -> None:
    ends = [Interval(0.1, 0.05, 0.15), Interval(0.12, -0.02, 0.26)]
    alike = {"all sizes": ends[0], "0.4M": Interval(0.1, 0.0, 0.2), "11M": Interval(0.2, 0.1, 0.3)}
    (first, *_) = enwik8.lead_rows("glu", "a text", alike, ends)
    assert (first["widest_low"], first["widest_high"], first["disagree"]) == (-0.02, 0.26, False)
    (first, *rest) = enwik8.lead_rows("glu", "a text", {**alike, "11M": Interval(-0.5, -0.6, -0.4)}, ends)
    assert (first["widest_low"], first["widest_high"], first["disagree"]) == (-0.6, 0.26, True) and len(rest) == 2


def test_excess_is_paired_by_seed_and_a_diverged_run_is_left_out() -> None:
    ladder = made_up()
    ladder.records[-1].metrics["diverged"][0] = 5  # type: ignore[index]
    ladder.records[-1].metrics["loss"][0] = None  # type: ignore[index]
    ladder = replace(ladder, records=ladder.records)
    points = enwik8.trainings(ladder, SPEEDS)
    once, repeated = (points[points["repeats"] == repeats] for repeats in enwik8.TEXTS)
    laws = fit_ladder(once, draws=20, progress=False)
    pairs = pd.concat([enwik8.pair_table(once, 1, enwik8.TRAINED), enwik8.pair_table(repeated, 20, enwik8.TRAINED)])
    table = enwik8.bits_table(ladder, points, pairs, laws).set_index(["repeats", "size", "unit"])
    bits = points.set_index(["repeats", "size", "unit", "seed"])["bits"].sort_index()
    size = LADDER_SIZES[0]
    row = table.loc[(1, size, "gelu")]
    apart = bits[1, size, "gelu"] - bits[1, size, "swiglu"]
    assert row["best"] == "swiglu" and row["excess"] == pytest.approx(apart.mean())
    # Pairing takes away what seeds share, which is four times what is left.
    assert row["excess_high"] - row["excess_low"] < row["bits_high"] - row["bits_low"]
    assert row["lowest"] == pytest.approx(row["bits"] - 0.2 / math.log(2))
    last = table.loc[(20, LADDER_SIZES[3], run_of(ladder.records[-1].arguments).recipe.unit.name)]
    assert (last["seeds"], last["diverged"]) == (3, 1) and math.isfinite(last["bits"])


@pytest.mark.slow
def test_the_committed_tables_are_those_of_the_record(quick: Quick) -> None:
    run, ladder = quick("ladder/enwik8"), Ladder.read(RECORD)
    tables = run.outcome.tables
    expected = ladder.table().groupby(["repeats", "size", "unit"])["bits"].mean()
    measured = tables["bits"].set_index(["repeats", "size", "unit"])["bits"]
    pd.testing.assert_series_equal(measured.sort_index(), expected.sort_index())
    assert int(tables["bits"]["seeds"].sum()) == len(ladder.table()) and run.progress[-1] == (11, 11)
    for name, table in tables.items():
        committed = pd.read_csv(RECORD.with_name(f"enwik8-{name}.csv"))
        assert list(committed.columns) == list(table.columns)
        if name not in ("laws", "worth"):  # which a quick run draws less often
            pd.testing.assert_frame_equal(committed, table.reset_index(drop=True), check_dtype=False, rtol=1e-6)
    unswept = tables["bits"][tables["bits"]["unswept"]]
    gains = (unswept["other_bits"] - unswept["bits"]).dropna()
    assert set(unswept["size"]) == {"26M"} and len(gains) == 5 and (gains > 0).all()


def test_the_record_is_never_written_over_by_the_outcome_of_its_study(tmp_path: Path) -> None:
    """Both are called ladder/enwik8.json: in a folder with the record the study is refused, and the record stays."""
    (tmp_path / "ladder").mkdir()
    path = tmp_path / "ladder/enwik8.json"
    path.write_bytes(RECORD.read_bytes())
    with pytest.raises(GatelabError, match="give another folder"):
        reproduce("ladder/enwik8", tmp_path, quick=True)
    assert path.read_bytes() == RECORD.read_bytes()
