"""The ladder's study: what it says of records with few sizes and many, and that it is what the record has."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.statistics import Interval
from gatelab.studies import Request, reproduce
from gatelab.studies.ladder import enwik8
from gatelab.studies.ladder.climbs import (
    Regime,
    at_best_rates,
    bits_table,
    first_rise,
    laws_of,
    regimes_of,
    speed_rows,
    timed,
)
from gatelab.studies.ladder.enwik8 import (
    Climbs,
    change_of,
    claims_of,
    cost_claim,
    course_words,
    details,
    draw,
    findings,
    headline,
    hypothesis_claim,
    law_claim,
    law_words,
    limit_words,
    lowest_bits,
    notes,
    pairs_claim,
    single_sizes_claim,
    tables_of,
    unlike_words,
    unswept_words,
    worth_claim,
)
from gatelab.train import Ladder
from gatelab.train.ladder_plans import LADDER_SIZES
from gatelab.train.ladder_runs import run_of

RECORD = Path(__file__).parents[2] / "results/ladder/enwik8.json"
UNITS = {"gelu": 1.0, "relu2": 0.97, "swiglu": 0.92, "gqu": 0.99}
SCORES = {"a score": {"gelu": 4.0, "gqu": 3.0, "relu2": 2.0, "swiglu": 1.0}}


def made_up(
    sizes: int, repeated: int, units: Sequence[str] = tuple(UNITS), exponents: dict[str, float] | None = None
) -> Ladder:
    """A ladder whose losses are made up: L = E + A_unit P^-a, seeds that all units share, and a little noise.

    When the text repeats, gains of units are half as large again. `exponents` are what units have above the others.
    """
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    first = {}
    for rung in document["rungs"]:
        first.setdefault(rung["arguments"]["recipe"]["unit"]["name"], rung)
    tuned = [rung for rung in document["rungs"] if rung["arguments"]["purpose"] == "tune"]
    climbed, generator = [], np.random.default_rng(0)
    for repeats, count in ((1, sizes), (20, repeated)):
        for size in LADDER_SIZES[:count]:
            shared = 0.004 * generator.standard_normal(3)
            for unit in units:
                rung = copy.deepcopy(first[unit])
                rung["arguments"] |= {"lrs": [0.003], "seeds": [0, 1, 2], "repeats": repeats, "purpose": "climb"}
                rung["arguments"]["recipe"]["size"] = size
                made = run_of(rung["arguments"])
                P = made.config.body_count(made.recipe.unit, True)
                gain = UNITS[unit] ** (1.5 if repeats > 1 else 1.0)
                own = 0.26 + (exponents or {}).get(unit, 0.0)
                loss = 0.55 + 18 * gain * P**-0.26 * (P / 3e6) ** (0.26 - own) + shared
                loss = (loss + 0.001 * generator.standard_normal(3)).tolist()
                tokens = 10**8
                flops = made.config.token_flops(made.recipe.unit, True) * tokens
                rung["metrics"] |= {"loss": loss, "train": loss, "diverged": [None] * 3, "parameters": P}
                rung["metrics"] |= {"tokens": tokens, "flops": flops, "seconds": 60.0, "together": 3}
                rung["metrics"] |= {"course": [[last + 1, last - 0.2, last] for last in loss]}
                climbed.append(rung)
    return Ladder.from_plain(document | {"rungs": tuned + climbed})


def speeds_of(units: Sequence[str]) -> pd.DataFrame:
    rows = [
        {"unit": unit, "size": size, "loop": "gatelab", "models": 3, "tokens_per_second": 1e7 / (1 + i)}
        for unit in units
        for i, size in enumerate(LADDER_SIZES)
    ]
    return speed_rows({"rows": rows})


def climbs_of(ladder: Ladder, timed_units: Sequence[str] = ("gelu", "swiglu")) -> Climbs:
    speeds = speeds_of(timed_units)
    regimes = regimes_of(ladder, speeds, 20)
    # As if no learning rate cost anything: those of a made-up ladder are no matter.
    return Climbs(ladder, regimes, SCORES, speeds, regimes[1], ())


@cache
def climbed(sizes: int, repeated: int) -> Climbs:
    """A made-up ladder and its laws, once for all tests."""
    return climbs_of(made_up(sizes, repeated))


def claims_by_name(climbs: Climbs) -> dict[str, Any]:
    return {claim.what: claim for claim in claims_of(climbs, tables_of(climbs))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "repeated"), [(1, 0), (2, 0), (3, 2), pytest.param(4, 3, marks=pytest.mark.slow), (5, 4)]
)
def test_a_record_of_any_number_of_sizes_is_told_and_drawn(sizes: int, repeated: int) -> None:
    climbs = climbed(sizes, repeated)
    tables = tables_of(climbs)
    claims = claims_of(climbs, tables)
    assert len({claim.what for claim in claims}) == len(claims)
    law = next(c for c in claims if c.what == "offset or exponent, L against parameters, every byte once")
    if sizes < 3:
        words = "1 size" if sizes == 1 else "2 sizes"
        assert (law.verdict, law.ours) == ("undecided", f"undecided: {words}, and a law needs 3")
    else:
        assert law.ours.startswith(("offset", "undecided"))
    again = next(c for c in claims if c.what == "swiglu less relu2, repeated less once")
    assert (again.verdict == "undecided") == (repeated == 0)
    if not repeated:
        assert again.ours == "undecided: 0 sizes in both regimes"
    assert len(draw(climbs.regimes, tables["bits"]).axes) == 2 * (1 + bool(repeated))
    assert f"{12 * (sizes + repeated)} trainings" in headline(climbs, tables)
    assert ("swiglu less relu2 over these sizes" in details(climbs, tables)) == bool(repeated)
    assert notes(climbs) and findings(tables)[0].sentence.startswith("Of 4 units")


def test_five_sizes_find_the_offset_the_worth_and_what_repeating_does() -> None:
    """The made-up amplitudes are 0.97 and 0.92: (0.97 / 0.92)^(1 / 0.26) is 1.226, and repeating adds to the lead."""
    climbs = climbed(5, 4)
    claims = claims_by_name(climbs)
    assert claims["offset or exponent, L against parameters, every byte once"].verdict == "differs"
    worth = climbs.once.worth("swiglu", "relu2")
    assert not isinstance(worth, str) and worth.overall.value == pytest.approx(1.226, abs=0.02)
    assert claims["swiglu in parameters of relu2, every byte once"].verdict == "differs"
    assert claims["swiglu less relu2 over all sizes, every byte once"].verdict == "differs"
    assert claims["swiglu less relu2 over all sizes, a 20th of the text 20 times"].verdict == "reproduced"
    assert claims["swiglu less relu2, repeated less once"].verdict == "reproduced"
    score = claims["rank correlation of a score with the loss, every byte once"]
    assert score.ours == "1.00" and score.verdict == "undecided", "four units cannot decide at 5 % with 24 orders"


@pytest.mark.parametrize(
    ("exponents", "verdict", "order"),
    [
        ({"swiglu": 0.06, "gqu": 0.06}, "reproduced", ""),
        ({"swiglu": 0.06}, "undecided", ", swiglu the steepest"),
        ({"swiglu": 0.06, "gqu": -0.06}, "differs", ", swiglu the steepest and gqu the least steep"),
    ],
)
def test_gates_are_called_steeper_where_each_of_them_is(exponents: dict[str, float], verdict: str, order: str) -> None:
    """What the first paper says is more than that exponents differ; of two that are alike none is the steepest."""
    claim = law_claim(climbs_of(made_up(5, 0, exponents=exponents)), 1, "parameters")
    assert claim.verdict == verdict and claim.ours.startswith(f"exponent{order}; ratios")


@pytest.mark.parametrize(
    ("sizes", "exponents", "ours", "verdict"),
    [
        (5, {"swiglu": 0.06, "gqu": -0.06}, "exponent without 0.4M or 1.3M or 3.2M or 11M or 26M", "new"),
        (3, {}, "undecided without 0.4M or 1.3M or 3.2M", "undecided"),
    ],
)
def test_what_the_other_sizes_say_is_told(sizes: int, exponents: dict[str, float], ours: str, verdict: str) -> None:
    """Exponents this far apart are found by any four sizes; two sizes have no law."""
    claim = single_sizes_claim(climbs_of(made_up(sizes, 0, exponents=exponents)).once)
    assert (claim.ours, claim.verdict) == (ours, verdict)
    assert len(re.findall(r"Without \S+: ", claim.because)) == sizes


def test_no_size_is_left_out_of_an_empty_regime() -> None:
    assert single_sizes_claim(climbed(2, 0).regime(20)).ours == "undecided: 0 sizes"


def shifted(regime: Regime, unit: str, bits: float) -> Regime:
    """The regime with so many bits added to those of a unit, without laws."""
    points = regime.points.assign(bits=regime.points["bits"] + bits * (regime.points["unit"] == unit))
    return Regime(regime.repeats, points, {}, regime.draws)


@pytest.mark.slow
def test_an_exponent_that_learning_rates_account_for_is_undecided() -> None:
    """gqu falls less steeply, and by just as much as its learning rates are said to cost."""
    climbs = climbs_of(made_up(5, 0, exponents={"gqu": -0.03}))
    claim = law_claim(climbs, 1, "parameters")
    assert claim.ours.startswith("exponent, ") and "gqu the least steep" in claim.ours and claim.verdict == "differs"
    P = dict(climbs.ladder.table()[["size", "parameters"]].itertuples(index=False))
    dearer = {size: 18 * 0.99 * n**-0.26 * ((n / 3e6) ** 0.03 - 1) / math.log(2) for size, n in P.items()}
    rates = pd.DataFrame([{"unit": "gqu", "size": size, "excess": dearer[size]} for size in list(P)[:4]])
    # The largest size was not swept: its rate is taken to cost what that of the fourth does.
    at_best = at_best_rates(climbs.once, rates, climbs.speeds)
    off = (climbs.once.points["bits"] - at_best.points["bits"])[climbs.once.points["unit"] == "gqu"]
    expected = [dearer[size] for size in [*list(P)[:4], list(P)[3]] for _ in range(3)]
    np.testing.assert_allclose(off, expected, atol=1e-12)
    beside = law_claim(replace(climbs, at_best=at_best), 1, "parameters")
    assert beside.verdict == "undecided" and beside.ours.startswith(("undecided: exponent, but", "exponent"))
    assert "gqu the least steep" not in beside.ours and "Less what learning rates are known to cost" in beside.because
    assert worth_claim(climbs, "gelu").verdict == "new"
    assert worth_claim(replace(climbs, least_known=("gelu at 11M",)), "gelu").verdict == "undecided"
    # The curve of gqu crosses that of relu2: no mean over sizes is told.
    assert hypothesis_claim(climbs, 1, "gqu").ours.startswith("sizes differ: -")
    # Above relu2 at all sizes: what its rates cost, or may cost, leaves that open, and swiglu's lead as it is.
    once = shifted(climbs.once, "gqu", 0.1)
    above = replace(climbs, regimes={1: once}, at_best=once)
    less = {unit: hypothesis_claim(above, 1, unit).verdict for unit in ("gqu", "swiglu")}
    assert less == {"gqu": "reproduced", "swiglu": "differs"}
    for other in (replace(above, at_best=shifted(once, "gqu", -0.2)), replace(above, least_known=("gqu at 11M",))):
        less = {unit: hypothesis_claim(other, 1, unit).verdict for unit in ("gqu", "swiglu")}
        assert less == {"gqu": "undecided", "swiglu": "differs"}
    unknown = law_claim(replace(climbs, least_known=("gqu at 11M",)), 1, "parameters")
    assert unknown.verdict == "undecided" and "gqu at 11M" in unknown.because
    assert "That is open: of gqu at 11M" in headline(replace(climbs, least_known=("gqu at 11M",)), tables_of(climbs))


def test_what_learning_rates_cost_is_told_apart_from_the_least_that_they_can() -> None:
    rows = {"unit": ["gelu", "glu"], "size": ["11M"] * 2, "end": [0, -1], "excess": [0.002, 0.013]}
    rates = pd.DataFrame(rows | {"factor": [1.3, 2.0], "first_tuned": [False, False]})
    claim = cost_claim(rates)
    assert claim.ours.startswith("at most 0.0020 at 11M; at least") and "glu at 11M 0.0130" in claim.ours
    assert cost_claim(rates, ["11M", "26M"]).ours.endswith("; not known at 26M")
    assert cost_claim(rates[1:]).verdict == "undecided" and cost_claim(rates[:0]).ours == "undecided: 0 sizes"


def test_the_change_is_what_the_losses_say_seed_by_seed() -> None:
    """The slow way: differences of seeds at each common size, and their mean by the inverse squares of reaches."""
    climbs = climbed(5, 4)
    change = change_of(climbs, "swiglu")
    assert change.sizes == LADDER_SIZES[:4] and not isinstance(change.change, str)
    means, squares = {}, dict.fromkeys(change.sizes, 0.0)
    for repeats in (1, 20):
        regime = climbs.regimes[repeats]
        for size in change.sizes:
            points = regime.points[regime.points["size"] == size].pivot_table("bits", "seed", "unit")
            means[repeats, size] = float((points["swiglu"] - points["relu2"]).mean())
            apart = regime.difference("swiglu", "relu2", size)
            assert not isinstance(apart, str)
            squares[size] += ((apart[0].high - apart[0].low) / 2) ** 2
    expected = np.average(
        [means[20, size] - means[1, size] for size in change.sizes],
        weights=[1 / squares[size] for size in change.sizes],
    )
    assert change.change.value == pytest.approx(expected, abs=1e-12)
    assert change.change.high - change.change.value == pytest.approx(sum(1 / s for s in squares.values()) ** -0.5)


def test_sizes_that_say_the_same_seldom_look_unlike() -> None:
    """Four sizes of one true difference, variances known by ten degrees of freedom: about 5 of 100 alarms.

    With 2000 draws the share has a standard deviation of 0.5 %; what is beyond 6.5 % happens once in 700 times.
    """
    generator, spread = np.random.default_rng(0), np.array([0.01, 0.05, 0.03, 0.1])

    def told(values: Array, reaches: Array) -> str:
        own = zip(LADDER_SIZES[:4], values, reaches, strict=True)
        return unlike_words({size: Interval(value, value - reach, value + reach) for size, value, reach in own})

    alarms = 0
    for _ in range(2000):
        deviations = spread * np.sqrt(generator.chisquare(10, 4) / 10)
        alarms += bool(told(0.02 + spread * generator.standard_normal(4), 2.23 * deviations))
    assert alarms / 2000 < 0.065
    far = told(np.array([-0.01, 0.0, 0.0, 0.5]), np.full(4, 0.1))
    assert far.startswith("sizes differ: -0.010 at 0.4M")
    assert told(np.array([0.01, 0.1, 0.2, 0.5]), np.full(4, 0.05)) == ""


def test_the_lowest_loss_of_a_course_is_told_beside_the_last() -> None:
    climbs = climbed(5, 4)
    points = climbs.regime(20).points
    last = points[points["size"] == LADDER_SIZES[3]].groupby("unit")["bits"].mean()
    found = lowest_bits(climbs.ladder, 20)["swiglu", LADDER_SIZES[3]]
    assert found == pytest.approx((last["swiglu"] - 0.2 / math.log(2), last["swiglu"]))
    apart = f"{last['swiglu'] - last['relu2']:+.3f}"
    assert f"swiglu less relu2 is {apart} bits at the end, and {apart} at the lowest" in course_words(climbs, "swiglu")
    assert course_words(climbed(2, 0), "swiglu") == ""


def test_seconds_are_those_of_speeds_and_units_without_them_are_left_out() -> None:
    climbs = climbed(5, 4)
    laws = climbs.once.law("seconds")
    assert not isinstance(laws, str) and laws.losses.units == ("gelu", "swiglu")
    # What learning rates cost is taken off losses in seconds too, not off those in parameters, which have more units.
    reasons = {axis: law_claim(climbs, 1, axis).because for axis in ("parameters", "seconds")}
    assert all("Less what learning rates are known to cost" in reason for reason in reasons.values())
    assert "gqu" in reasons["parameters"] and "gqu" not in reasons["seconds"]
    points = timed(climbs.once.points, climbs.speeds)
    assert set(points["unit"]) == {"gelu", "swiglu"}
    assert sorted(set(points["seconds"])) == pytest.approx([10.0 * (1 + i) for i in range(5)])
    alone = climbs_of(made_up(3, 0), ["swiglu"]).once.law("seconds")
    assert isinstance(alone, str) and alone.startswith("undecided: the ladder has swiglu alone")
    # A record of one unit's speeds names it once, for all its rows.
    assert speed_rows({"unit": "swiglu", "rows": [{"size": "26M"}]})["unit"].tolist() == ["swiglu"]


def test_what_lies_above_the_best_is_paired_by_seed_and_a_diverged_run_is_left_out() -> None:
    ladder = made_up(3, 0)
    ladder.records[-1].metrics["diverged"][0] = 5  # type: ignore[index]
    ladder.records[-1].metrics["loss"][0] = None  # type: ignore[index]
    climbs = climbs_of(replace(ladder, records=ladder.records))
    table = bits_table(climbs.regimes).set_index(["size", "unit"])
    points = climbs.once.points.set_index(["size", "unit", "seed"])["bits"]
    size = LADDER_SIZES[0]
    apart = points[size, "gelu"] - points[size, "swiglu"]
    row = table.loc[size, "gelu"]
    assert row["best"] == "swiglu" and row["excess"] == pytest.approx(apart.mean())
    # Pairing takes away what seeds share, which is four times what is left.
    assert row["excess_high"] - row["excess_low"] < row["high"] - row["low"]
    last = table.loc[LADDER_SIZES[2], run_of(ladder.records[-1].arguments).recipe.unit.name]
    assert (last["seeds"], last["diverged"]) == (3, 1) and math.isfinite(last["bits"])
    assert any("Diverged, marked and left out" in line for line in notes(climbs))


def test_a_regime_without_trainings_is_empty_and_not_an_error() -> None:
    climbs = climbed(2, 0)
    empty = climbs.regime(20)
    assert isinstance(empty, Regime) and empty.points.empty and empty.law() == "undecided: 0 sizes"


@cache
def recorded() -> Climbs:
    """The record without laws."""
    ladder = Ladder.read(RECORD)
    regimes = {repeats: Regime(repeats, points, {}, 0) for repeats, points in ladder.table().groupby("repeats")}
    return Climbs(ladder, regimes, {}, pd.DataFrame(), regimes[1], ())


def test_pairs_are_counted_by_both_rules_of_variance_and_decided_where_both_say_so() -> None:
    """Of the record nine pairs differ by one rule and none by the other; made-up losses leave no doubt."""
    claim = pairs_claim(recorded().once)
    assert claim.ours.startswith("9 of 15 over all sizes and 4 of 75 at single sizes with the variance pooled")
    assert ", 0 of 15 and 2 of 75 with that of each pair alone" in claim.ours and claim.verdict == "undecided"
    lead = hypothesis_claim(recorded(), 1, "swiglu")
    assert lead.verdict == "undecided" and "With the variance of this pair alone" in lead.because
    sure = pairs_claim(climbed(5, 4).once)
    assert sure.ours.startswith("6 of 6 over all sizes") and ", 6 of 6 and " in sure.ours and sure.verdict == "new"


def test_a_size_without_a_sweep_is_marked_with_what_lower_rates_gained() -> None:
    """Of the record 26M: five units were trained there at two rates, and each is better at the lower one."""
    climbs = recorded()
    assert climbs.unswept == ["26M"]
    words = "26M has no sweep of learning rates: 5 of its 6 units were trained again at lower rates and gained "
    assert unswept_words(climbs) == f"{words}0.004 to 0.022 bits, and the best rates may be lower still."
    assert unswept_words(climbed(5, 4)) == "26M has no sweep of learning rates." and not unswept_words(climbed(4, 3))
    bits = tables_of(climbed(5, 4))["bits"]
    assert set(bits[~bits["swept"]]["size"]) == {"26M"}
    (finding,) = findings(tables_of(climbed(5, 4)))
    assert "at 26M parameters (no sweep of learning rates)" in finding.sentence
    axes = draw(climbed(5, 4).regimes, bits).axes
    assert ["no sweep" in ax.get_xlabel() for ax in axes] == [True, True, False, False]


def test_the_record_is_no_offset_in_seconds_and_its_e_is_none_of_the_text() -> None:
    """One exponent is not rejected there, but one E is: p 0.035 of 4000 draws, which has an error of 0.008 with 500."""
    speeds = speed_rows(json.loads((RECORD.parent / "speed.json").read_text(encoding="utf-8")))
    laws = laws_of(timed(recorded().once.points, speeds), "seconds", enwik8.DRAWS)
    assert not isinstance(laws, str) and not laws.exponents_differ.decided and laws.limits_differ.decided
    assert laws.verdict == "undecided" and "beside an E each" in law_words(laws)
    assert laws.laws["offset"].E.low > enwik8.LITERATURE_BITS and "not of the text: a larger" in limit_words(laws)


@pytest.mark.slow
def test_the_committed_record_is_what_the_study_tells(quick: Quick) -> None:
    outcome, ladder = quick("ladder/enwik8").outcome, Ladder.read(RECORD)
    bits = outcome.tables["bits"]
    assert int(bits["seeds"].sum()) == len(ladder.table())
    expected = ladder.table().groupby(["repeats", "size", "unit"])["bits"].mean()
    measured = bits.set_index(["repeats", "size", "unit"])["bits"]
    pd.testing.assert_series_equal(measured.sort_index(), expected.sort_index())
    assert set(outcome.tables) == {"bits", "laws", "worth", "comparisons", "regimes", "rates", "agreement"}
    assert any("1.11" in claim.paper for claim in outcome.comparison)
    # Courses are those of the climbs that count, whatever the order: the record has others.
    turned = replace(ladder, records=ladder.records[::-1])
    for own, repeats in product((ladder, turned), (1, 20)):
        last = {key: bits for key, (_, bits) in lowest_bits(own, repeats).items()}
        wanted = {(unit, size): bits for (size, unit), bits in expected[repeats].items()}
        assert last == pytest.approx(wanted, abs=1e-5)


def test_the_record_is_never_written_over_by_the_outcome_of_its_study(tmp_path: Path) -> None:
    """Both are called ladder/enwik8.json: in a folder with the record the study is refused, and the record stays."""
    (tmp_path / "ladder").mkdir()
    path = tmp_path / "ladder/enwik8.json"
    path.write_bytes(RECORD.read_bytes())
    with pytest.raises(GatelabError, match=r"is no outcome of a study.*give another folder"):
        reproduce("ladder/enwik8", tmp_path, quick=True)
    assert path.read_bytes() == RECORD.read_bytes()


def test_a_full_run_draws_more_than_a_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def read(draws: int) -> Climbs:
        asked.append(draws)
        return climbed(2, 0)

    monkeypatch.setattr(enwik8, "read_climbs", read)
    enwik8.run(Request(quick=True))
    enwik8.run(Request())
    assert asked == [enwik8.QUICK_DRAWS, enwik8.DRAWS]


def test_where_losses_rise_with_size_there_is_no_law() -> None:
    """Of units that climbed both sizes alone: one that climbed the larger size only does not make a rise."""
    rows = [("a", "1M", 1e6, 2.0), ("a", "2M", 2e6, 1.8), ("a", "4M", 4e6, 1.9), ("b", "2M", 2e6, 3.0)]
    points = pd.DataFrame(rows, columns=pd.Index(["unit", "size", "parameters", "bits"])).assign(diverged=None)
    assert first_rise(points) == ("2M", "4M")
    assert first_rise(points[points["size"] != "4M"]) is None
    assert laws_of(points, "parameters", 10) == "undecided: losses rise from 2M to 4M, and a law falls with size"
    diverged = points.assign(diverged=[None, None, 7, None])
    assert first_rise(diverged) is None
