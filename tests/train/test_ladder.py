"""The ladder: rates by a parabola and a rule, stages that go on from the store, and what it refuses."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal

from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.statistics import Interval
from gatelab.sweep import Record, Run, Store
from gatelab.train import train
from gatelab.train.ladder_plans import RATES, ladder, plan_ladder
from gatelab.train.ladder_runs import TASK, LadderRun, part_of, read_text, run_of, train_run
from gatelab.train.ladders import Ladder
from gatelab.train.rates import RateRule, at_end, best_rate, excess, further_rates

RECORD = Path(__file__).parents[2] / "results/ladder/enwik8.json"
FIRST_KEY = "3bf77cf6686471f0557f6a97591e8f61"  # of the first run of the record, as it was filed
SMALL: dict[str, Any] = {"batch": 4, "steps": 6, "test_size": 8, "evaluations": 2, "options": {"context": 16}}


# ---- learning rates


def test_the_best_rate_is_that_of_a_parabola_or_at_an_end_and_divergence_is_a_loss_above_all() -> None:
    lrs = [1e-3 * 2.0**k for k in range(5)]
    losses = [1 + 0.3 * (math.log(lr / 3.3e-3)) ** 2 for lr in lrs]
    order = np.random.default_rng(0).permutation(5)
    shuffled = best_rate([lrs[i] for i in order], [losses[i] for i in order])
    assert shuffled == pytest.approx(3.3e-3) and at_end(lrs, losses) == 0
    lrs = [1e-3, 2e-3, 4e-3]
    assert at_end(lrs, [3, 2, 1]) == 1 and at_end(lrs, [1, 2, 3]) == -1 and best_rate(lrs, [1, 2, 3]) == 1e-3
    assert at_end(lrs, [3, 2, math.nan]) == 0 and best_rate(lrs, [3, 2, math.nan]) == 2e-3
    assert at_end(lrs, [1, math.nan, math.nan]) == -1
    with pytest.raises(GatelabError, match="diverged; give smaller"):
        best_rate(lrs, [math.nan] * 3)


def test_what_a_rate_costs_is_read_off_the_parabola() -> None:
    lrs = [1e-3 * 2.0**k for k in range(3)]
    losses = [1 + 0.3 * math.log(lr / 2e-3) ** 2 for lr in lrs]
    assert excess(4e-3, lrs, losses) == pytest.approx(0.3 * math.log(2) ** 2)
    # Where the best rate lies at an end a rate costs more than what was seen, and of others nothing is known.
    ended = [1.0, 1.25, 1.75]
    assert excess(2e-3, lrs, ended) == pytest.approx(0.25) and math.isnan(excess(3e-3, lrs, ended))


def test_a_sweep_goes_on_beyond_the_end_where_its_best_rate_lies() -> None:
    assert further_rates([4e-3, 1e-3, 2e-3], [1.0, 3.0, 2.0], 2) == [8e-3, 1.6e-2]
    assert further_rates([1.2345e-3, 2e-3], [1.0, math.nan], 2, digits=4) == [6.172e-4, 3.086e-4]
    assert further_rates([1e-3, 2e-3, 4e-3], [2.0, 1.0, math.nan], 2) == []


def test_the_rule_has_one_exponent_for_all_units() -> None:
    generator = np.random.default_rng(0)
    rows = [
        (unit, d, a * (d / 128) ** -0.7 * math.exp(0.01 * generator.standard_normal()))
        for unit, a in (("a", 4e-3), ("b", 8e-3), ("c", 2e-3))
        for d in (128, 192)
    ]
    rule = RateRule.of(rows)
    assert 0.7 in rule.exponent and rule.exponent.high - rule.exponent.low < 0.3
    assert rule.rate("b", 512) == pytest.approx(8e-3 * 4**-0.7, rel=0.1)
    # Where steps vary too, each has an exponent; what a unit lacks, others say.
    grid = [(unit, d, steps) for unit in "abc" for d in (128, 256, 512) for steps in (500, 2000)][:-3]
    exact = RateRule.of((u, d, 4e-3 * (d / 128) ** -0.7 * (steps / 1000) ** 0.2, steps) for u, d, steps in grid)
    assert exact.exponent.value == pytest.approx(0.7) and exact.steps_exponent == pytest.approx(-0.2)
    assert exact.rate("c", 512, 2000, digits=4) == pytest.approx(4e-3 * 4**-0.7 * 2**0.2, rel=1e-3)
    single = RateRule.of(rows[:1])
    assert single.exponent.value == 0 and single.rate("a", 999) == pytest.approx(rows[0][2], rel=1e-2)


# ---- runs


def test_a_run_is_its_members_one_by_one(text: Path) -> None:
    plan = plan_ladder(["swiglu"], text, ["tiny"], 1, (1,), SMALL)
    run = LadderRun(plan.recipes["swiglu", "tiny"], (1e-3, 4e-3), (0, 1), repeats=2, part="valid")
    outcome = train_run(**run.run(plan.fingerprint).arguments)
    data = part_of(read_text(str(text), "bytes"), 2, "valid")
    expected = [train(member, data=data, device="cpu").test[-1] for member in run.members]
    np.testing.assert_allclose(outcome.metrics["loss"], expected, rtol=1e-4)
    assert len(set(outcome.metrics["loss"])) == 4 and outcome.metrics["together"] == 4
    tokens = 6 * 4 * 16
    assert outcome.metrics["tokens"] == tokens
    assert outcome.metrics["flops"] == tokens * run.config.token_flops("swiglu") == run.flops / 4


def test_a_run_refuses_another_text(text: Path) -> None:
    (run,) = plan_ladder(["glu"], text, ["tiny"], 1, (1,), SMALL).tests(lambda unit, d_model: 1e-3)
    with pytest.raises(GatelabError, match="not the text"):
        train_run(**run.run("another").arguments)


# ---- the ladder


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses whose bottom is at 4e-3 at the three smaller sizes, and at a fourth of it at the last."""

    def records(runs: Iterable[Run], **_: Any) -> Iterator[Record]:
        for run in runs:
            members = run_of(run.arguments).members
            best = 1e-3 if members[0].size == "0.4M" else 4e-3
            losses = [1 + math.log(m.lr / best) ** 2 for m in members]
            metrics = {"loss": losses, "train": losses, "diverged": [None] * len(losses), "tokens": 1, "flops": 1.0}
            metrics |= {"parameters": 1, "seconds": 1.0, "throughput": 1.0, "together": len(losses)}
            yield Record(run, "done", metrics)

    monkeypatch.setattr("gatelab.train.ladder_plans.map_runs", records)


def test_rates_are_swept_at_three_sizes_and_beyond_an_end(text: Path, made_up: None) -> None:
    sizes = ["tiny", "mini", "0.4M", "1.3M"]
    result = ladder(["glu"], text, sizes, 1, progress=False, device="cpu", **SMALL)
    swept = {size: (d_model, lrs, losses) for _, size, d_model, lrs, losses in result.sweeps()}
    # At the third size the first rule's rate is four times the best: one more rate, and another one.
    assert set(swept) == set(sizes[:3]) and [len(swept[size][1]) for size in sizes[:3]] == [4, 4, 5]
    rates = result.rates().set_index("size").loc[sizes[:3]]
    assert rates["best"]["0.4M"] == pytest.approx(1e-3, rel=0.01) and not rates["end"].any()
    # What was found at the third size is in the rule, and the trainings that count are at its rates.
    lines = np.polyfit(np.log([swept[size][0] for size in sizes[:3]]), np.log(rates["best"]), 1)
    assert result.rule().exponent.value == pytest.approx(-lines[0], rel=1e-6) and lines[0] < -0.5
    assert rates["used"].tolist() == rates["rule"].tolist()
    costs = [math.log(rates["rule"][size] / rates["best"][size]) ** 2 for size in sizes[:3]]
    np.testing.assert_allclose(rates["excess"], costs, rtol=0.01, atol=1e-4)


def joined(*ladders: Ladder) -> Ladder:
    """All runs of several ladders, each once."""
    return Ladder("text", tuple({r.key: r for one in ladders for r in one.records}.values()), {})


@pytest.fixture(scope="module")
def kept(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ladder, Path]:
    store = tmp_path_factory.mktemp("store") / "runs.db"
    return ladder(["gelu", "swiglu"], text, ["tiny"], 2, store=store, progress=False, device="cpu", **SMALL), store


def losses_of(result: Ladder, part: str = "test") -> list[float]:
    return result.table(part)["loss"].tolist()


def test_every_unit_is_trained_at_its_own_best_rate(kept: tuple[Ladder, Path]) -> None:
    result, _ = kept
    table, swept = result.table(), result.table("valid")
    assert len(table) == 4 and set(table["unit"]) == {"gelu", "swiglu"}
    np.testing.assert_allclose(table["bits"], table["loss"] / math.log(2))
    rule = result.rule()
    for unit, own in table.groupby("unit"):
        assert set(own["lr"]) == {rule.rate(str(unit), 32)} and set(own["seed"]) == {0, 1}
        rates = swept[swept["unit"] == unit]["lr"]
        assert set(RATES) <= set(rates) and len(rates) <= len(RATES) + 6
    with pytest.raises(GatelabError, match="no part of a text is called 'tune'"):
        result.table("tune")


def test_the_same_call_trains_nothing_again(kept: tuple[Ladder, Path], text: Path, monkeypatch: Any) -> None:
    result, store = kept
    monkeypatch.setattr("gatelab.train.ladder_runs.train_many", None)
    again = ladder(["gelu", "swiglu"], text, ["tiny"], 2, store=store, progress=False, device="cpu", **SMALL)
    assert_frame_equal(again.trainings, result.trainings)
    assert not list(store.with_name("runs.db.checkpoints").rglob("*.safetensors"))


def test_a_record_is_read_back(kept: tuple[Ladder, Path], tmp_path: Path) -> None:
    result, _ = kept
    path = result.save(tmp_path / "ladder.json")
    back = Ladder.read(path)
    assert_frame_equal(back.trainings, result.trainings)
    assert back.facts == dict(result.facts)
    assert back.fill(tmp_path / "filled.db") == len(result.records) and back.fill(tmp_path / "filled.db") == 0
    path.write_text("{}")
    with pytest.raises(GatelabError, match="not a record of a ladder"):
        Ladder.read(path)


def test_progress_grows_from_run_to_run_and_changes_nothing(text: Path) -> None:
    calls: list[tuple[int, int]] = []
    values = {**SMALL, "lrs": {"gelu": 1e-2, "swiglu": 1e-2}, "device": "cpu"}
    shown = ladder(["gelu", "swiglu"], text, ["tiny"], 1, progress=lambda d, t, run: calls.append((d, t)), **values)
    total = calls[-1][1]
    assert [d for d, _ in calls] == pytest.approx([total / 2, total], rel=0.05) and calls[-1][0] == total
    assert losses_of(ladder(["gelu", "swiglu"], text, ["tiny"], 1, progress=False, **values)) == losses_of(shown)


def test_units_of_one_name_are_not_mixed_up(text: Path) -> None:
    """They are found by this process alone, each at a place of its own."""
    runs = []
    for sign in (1.0, -1.0):

        def own(z: torch.Tensor, v: torch.Tensor, sign: float = sign) -> torch.Tensor:
            return sign * z.relu() * v

        plan = plan_ladder([own], text, ["tiny"], 1, (1,), SMALL)
        runs.append(plan.tests(lambda unit, d_model: 1e-3)[0].run(plan.fingerprint))
    assert runs[0].key != runs[1].key and [run_of(run.arguments).run("t").key for run in runs] == [
        Run(TASK, {**run.arguments, "text": "t"}).key for run in runs
    ]


def test_keys_of_the_record_are_what_they_were_and_settings_are_no_part_of_them(tmp_path: Path) -> None:
    """So a store that an older version filled still answers, and so does the record, sweeps included."""
    record = Ladder.read(RECORD)
    assert {"valid", "test"} == set(record.trainings["part"])
    for one in record.records:
        again = run_of(one.arguments).run(one.arguments["text"], {"folder": str(tmp_path), "device": "cpu"})
        assert again == one.run and again.key == one.key and not one.run.settings
    assert record.records[0].key == FIRST_KEY
    assert record.fill(tmp_path / "filled.db") == len(record.records)


def test_a_call_that_is_refused_loses_nothing(kept: tuple[Ladder, Path], text: Path) -> None:
    result, store = kept
    for bad in ({"lrs": {"gelu": math.inf}}, {"sizes": ["mini", "tiny"]}, {"device": "cuda:99"}):
        values = {"sizes": ["tiny"], "device": "cpu", **SMALL, **bad}
        with pytest.raises(GatelabError):
            ladder(["gelu"], text, seeds=2, store=store, progress=False, **values)
    again = ladder(["gelu", "swiglu"], text, ["tiny"], 2, store=store, progress=False, device="cpu", **SMALL)
    assert losses_of(again) == losses_of(result)


def test_what_diverges_is_marked_and_kept(text: Path) -> None:
    values = {**SMALL, "clip": None, "warmup": 0, "lrs": {"gqu": 1e3}}
    result = ladder(["gqu"], text, ["tiny"], 2, progress=False, device="cpu", **values)
    back = Ladder.from_plain(result.plain())
    for one in (result, back):
        assert all(one.trainings["loss"].isna()) and all(one.trainings["diverged"].notna())
    assert back.trainings["diverged"].tolist() == result.trainings["diverged"].tolist()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"units": []}, "the units are"),
        ({"units": ["glu", "glu"]}, "each once"),
        ({"sizes": ["0.4M", "tiny"]}, "smallest first"),
        ({"sizes": ["5G"]}, "size of the decoder"),
        ({"seeds": 0}, "seeds"),
        ({"lrs": {"glu": 0.0}}, "lr of glu is 0"),
        ({"lrs": {"glu": "0.01"}}, "lr of glu is '0.01'"),
        ({"lrs": RateRule({"glu": -1.0}, Interval(0.0, 0.0, 0.0))}, "lr is -1"),
        ({"lrs": 0.01}, "lrs is 0.01; give a learning rate for each unit"),
        ({"lrs": {"mlp": 1e-3}}, "no learning rate of glu"),
        ({"lrs": {"reglu": 1e-3, "glu": 2e-3}}, "both 0.001 and 0.002 for glu"),
        ({"lrs": {"glue": 1e-3}}, "no unit is called 'glue'"),
        ({"max_hours": math.nan}, "max_hours is nan"),
        ({"device": "cuda"}, "cuda"),
        ({"model": "vit"}, "model of text"),
        ({"options": {"context": 4000}, "steps": None}, "training tokens"),
        ({"options": {"context": 280}}, "280 test tokens of gates.txt, too few for a window of 280"),
        ({"repeats": (1, 5000)}, "repeats 5000 a run has 1 training"),
    ],
)
def test_bad_input_is_refused_before_anything_is_trained(
    how: dict[str, Any], message: str, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr("gatelab.train.ladder_runs.train_many", None)
    values = {"units": ["glu"], "data": text, "sizes": ["tiny"], "progress": False, **SMALL, **how}
    if values["steps"] is None:
        del values["steps"]
    with pytest.raises(GatelabError, match=message) as raised:
        ladder(**values)
    assert "failed" not in str(raised.value), "it was found inside a run"


def test_rates_go_by_whatever_a_unit_is_called(text: Path, made_up: None) -> None:
    names = ["reglu", "relu", "leaky relu2"]
    rates: dict[str, Any] = dict(zip(names, (1e-3, 2e-3, np.float32(4e-3)), strict=True))
    result = ladder(names, text, ["tiny"], 1, lrs=rates, progress=False, **SMALL)
    found = dict(result.table()[["unit", "lr"]].itertuples(index=False))
    assert found == pytest.approx({as_unit(name).name: float(lr) for name, lr in rates.items()})
    assert all(type(lr) is float for run in result.records for lr in run.arguments["lrs"])  # numpy's are converted


def test_a_unit_that_cannot_be_imported_is_trained_here_and_not_kept(text: Path, tmp_path: Path) -> None:
    def own(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return z.relu() * v

    how: dict[str, Any] = {"progress": False, "device": "cpu", **SMALL}
    result = ladder([own, "glu"], text, ["tiny"], 2, lrs={"own": 1e-2, "glu": 1e-2}, **how)
    losses = result.table().set_index("unit")["loss"]
    np.testing.assert_allclose(losses["own"], losses["glu"], rtol=1e-5)
    for kept in (result.save, result.fill, lambda path: ladder([own], text, ["tiny"], 2, store=path, **how)):
        with pytest.raises(GatelabError, match=r"'own' cannot be found by name from another process; .* into a module"):
            kept(tmp_path / "kept")
    with pytest.raises(GatelabError, match="move it into a module"):
        ladder([own], text, ["tiny"], 2, backend="processes", **how)
    assert not list(tmp_path.iterdir())


def test_a_text_that_changes_and_keeps_its_time_and_size_is_read_again(tmp_path: Path) -> None:
    path, words = tmp_path / "text.txt", []
    for word in (b"gate ", b"door "):
        path.write_bytes(1000 * word)
        os.utime(path, (1, 1))
        words.append(bytes(read_text(str(path), "bytes").train[:5]))
    assert words == [b"gate ", b"door "]


@pytest.mark.parametrize("units", [(u for u in ["glu"]), "glu", as_unit("glu")])
def test_one_or_any_iterable_of_units_and_sizes(units: Any, text: Path, made_up: None) -> None:
    table = ladder(units, text, "tiny", 1, repeats=1, lrs={"glu": 1e-3}, progress=False, **SMALL).table()  # type: ignore[arg-type]
    assert table[["unit", "size", "repeats"]].to_numpy().tolist() == [["glu", "tiny", 1]]


def test_several_rates_without_a_sweep_are_refused_by_name(text: Path, made_up: None) -> None:
    """Unless the unit has one: then the rule says which count, whatever other units have."""
    each = ({"gelu": lr, "glu": 1e-2} for lr in (1e-2, 2e-2))
    both = joined(*(ladder(["gelu", "glu"], text, ["tiny"], 2, lrs=lrs, progress=False, **SMALL) for lrs in each))
    says = r"gelu was trained at tiny with the learning rates 0\.01, 0\.02, and no"
    for refused in (both.table, both.rates, both.comparisons):
        with pytest.raises(GatelabError, match=says):
            refused()
    tuned = joined(both, ladder(["gelu"], text, ["tiny"], 2, progress=False, **SMALL))
    assert set(tuned.table()[["unit", "lr"]].itertuples(index=False, name=None)) == {("gelu", 4e-3), ("glu", 1e-2)}


def test_a_store_that_was_opened_is_closed_and_one_of_a_user_is_not(
    kept: tuple[Ladder, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Path] = []
    monkeypatch.setattr(Store, "close", lambda store: closed.append(store.path))
    result, _ = kept
    result.fill(tmp_path / "filled.db")
    with Store(tmp_path / "own.db") as store:
        result.fill(store)
        assert closed == [tmp_path / "filled.db"]
