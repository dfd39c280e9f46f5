"""The script that runs docs/results/ladder-design.md on a GPU: its rules on made-up records, its cells in small."""

import json
import queue
import time
from dataclasses import asdict

import numpy as np
import pytest
import torch
from benchmarks.gain_grid import GRID, SEEDS, STEPS, SWEPT, UNITS, Plan
from benchmarks.gain_parts import COMBINATIONS, PREDICTIONS, further_cells
from benchmarks.gain_runs import CHECKPOINTS, Cell, compute, decoder, losses_of, read_rows, trained_rows
from benchmarks.gain_units import EIGHTEEN, unit_named
from benchmarks.gpu_gain import RECORDS

from gatelab.feedforward.registry import describe, restore
from gatelab.train.ladder_runs import read_text


@pytest.fixture
def text(monkeypatch, tmp_path):
    """Random letters in the place of every text, and a folder for records and checkpoints."""
    (tmp_path / "text").write_bytes(np.random.default_rng(0).integers(97, 123, 20_000, dtype=np.uint8).tobytes())
    letters = read_text(str(tmp_path / "text"), "bytes")
    monkeypatch.setattr("benchmarks.gain_runs.read_text", lambda source, tokenizer: letters)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep_rows(plan, best):
    """Made-up sweeps with their lowest loss at `best` of a unit, whatever the size."""
    cells = plan.sweep_cells([])
    return [
        {"kind": "sweep", "unit": c.unit, "size": c.size, "steps": c.steps, "variant": c.variant, "lr": lr, "seed": 0}
        | {"averaged": 2.0 + 0.1 * np.log(lr / best(c)) ** 2}
        for c in cells
        for lr in c.lrs
    ]


def test_sweeps_make_one_rule_and_the_grid_follows_it():
    plan = Plan(GRID)
    rows = sweep_rows(plan, lambda c: 0.003 * (192 / decoder(c.size, c.variant).d_model) ** 0.5)
    assert not plan.sweep_cells(rows)
    cells = plan.grid_cells(rows)
    assert len(cells) == len(GRID) * len(UNITS) * len(STEPS)
    for cell in cells:
        expected = 0.003 * (192 / decoder(cell.size, cell.variant).d_model) ** 0.5
        assert cell.lrs == pytest.approx((expected,), rel=1e-3)
        assert cell.variant == GRID[cell.size]
        assert cell.seeds == SEEDS
    done = [row | {"kind": "grid", "steps": 687} for row in rows if row["unit"] == "gelu" and row["steps"] == SWEPT[0]]
    assert len(plan.grid_cells(rows + done)) == len(cells) - len(GRID)


def test_a_sweep_whose_best_rate_is_its_largest_goes_on():
    plan = Plan({"3.2M": ""})
    rows = sweep_rows(plan, lambda c: 1.0)
    beyond = plan.sweep_cells(rows)
    assert len(beyond) == len(UNITS) * len(SWEPT)
    assert min(beyond[0].lrs) == pytest.approx(
        2 * max(row["lr"] for row in rows if row["unit"] == beyond[0].unit), 1e-3
    )


@pytest.mark.parametrize("variant", ["", "three layers"])
def test_every_variant_trains(variant, text):
    rows = trained_rows(Cell("grid", "swiglu", "0.4M", 687, (0.001,), (0, 1), variant), tiny=True)
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(np.isfinite(row["averaged"]) and row["diverged"] is None for row in rows)
    assert rows[0]["parameters"] == decoder("0.4M", variant).body_count("swiglu")


# ---- the parts after the grid


class Now:
    """Stands for multiprocessing: a process runs when it is started."""

    Queue = queue.Queue

    class Process:
        exitcode = None

        def __init__(self, target, args, daemon):
            self.target, self.args = target, args

        def start(self):
            self.target(*self.args)


EMPTY = {name: [] for name in RECORDS}


def answered(cells, best):
    """Made-up rows of cells; the loss of a sweep is least at `best` of a cell."""
    return [
        asdict(c) | {"lr": lr, "seed": s, "averaged": 2.0 + 0.1 * np.log(lr / best(c)) ** 2}
        for c in cells
        for lr in c.lrs
        for s in c.seeds
    ]


def filled(records, rates, best, rounds=8):
    """Records after everything that the plan asks for was done, and the number of rounds that it took."""
    records = {name: list(rows) for name, rows in records.items()}
    for done in range(rounds):
        cells = further_cells(records, rates)
        if not cells:
            return records, done
        for cell in cells:
            records[cell.record] += answered([cell], best)
    raise AssertionError("the plan does not end")


def usual_best(cell):
    return 0.003 * (192 / decoder(cell.size, cell.variant).d_model) ** 0.5


@pytest.fixture
def rates():
    plan = Plan(GRID)
    return plan.rule(sweep_rows(plan, usual_best))


def test_the_parts_are_those_of_the_design(rates, monkeypatch):
    monkeypatch.setattr("benchmarks.gain_parts.predictions_are_made", lambda: True)
    monkeypatch.setattr(Plan, "grid_cells", lambda *_: [])
    records, rounds = filled(EMPTY, rates, lambda c: {"sgd": 0.4}.get(c.optimizer, usual_best(c)))
    assert rounds == 3  # sweeps and what needs none, the trainings at their best rates, and a repetition with SGD
    trained = {name: [r for r in rows if r["kind"] != "sweep"] for name, rows in records.items()}
    counts = {name: len(rows) for name, rows in trained.items()}
    assert counts == {
        "grid": 0, "prediction": 12, "early": 20, "mechanism": 30 * 6, "text": 20, "units": 18 * 3, "batches": 16 * 6
    }  # fmt: skip
    assert {r["lr"] for r in trained["mechanism"] if r["optimizer"] == "sgd"} == {0.4}
    repeated = {(r["unit"], r["variant"], r["seed"]) for r in trained["mechanism"] if r["kind"] == "repetition"}
    assert repeated == {(u, v, s) for u, v in COMBINATIONS if v != "output bias" for s in range(6, 12)}
    assert {r["text"] for r in trained["text"]} == {"python"}
    assert {r["batch"] * r["steps"] // 1000 for r in trained["batches"]} == {10, 43}
    assert len({(r["unit"], r["variant"], r["optimizer"]) for r in trained["mechanism"]}) == 24


def test_a_sweep_goes_on_beyond_its_ends_but_not_forever(rates, monkeypatch):
    monkeypatch.setattr("benchmarks.gain_parts.predictions_are_made", lambda: True)
    monkeypatch.setattr(Plan, "grid_cells", lambda *_: [])
    records, rounds = filled(EMPTY, rates, lambda c: {"sgd": 1e9, "muon": 0.04}.get(c.optimizer, usual_best(c)))
    assert rounds == 5
    swept = {"sgd": 15, "muon": 10, "adamw": 5}
    for optimizer, count in swept.items():
        own = [r for r in records["mechanism"] if r["optimizer"] == optimizer and r["unit"] == "geglu"]
        assert sum(r["kind"] == "sweep" for r in own) == count
        assert sum(r["kind"] == "mechanism" for r in own) == 6


def test_predicted_sizes_are_not_trained_before_the_prediction_is_written(rates, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "grid_cells", lambda *_: [])

    records, _ = filled(EMPTY, rates, usual_best)
    assert not any(row["kind"] == "prediction" for row in records["prediction"])
    PREDICTIONS.parent.mkdir(parents=True)
    PREDICTIONS.write_text("value,trainings\n0.01,425\n")
    assert not further_cells(records, rates)
    PREDICTIONS.write_text("value,trainings\n0.01,500\n")
    records, _ = filled(records, rates, usual_best)
    assert sum(row["kind"] == "prediction" for row in records["prediction"]) == 12


@pytest.mark.parametrize(
    "cell",
    [
        Cell("early", "relu2", "3.2M", 2747, (0.001,), (0, 1), record="early"),
        Cell("mechanism", "gelu", "3.2M", 2747, (0.01,), (0, 1), "centered", "muon", record="mechanism"),
        Cell("mechanism", "relu2", "3.2M", 2747, (0.01,), (0,), "output bias", "sgd", record="mechanism"),
    ],
)
def test_a_cell_becomes_rows_of_its_record(cell, text, monkeypatch):
    monkeypatch.setattr("benchmarks.gain_runs.get_context", lambda kind: Now)
    facts = {"facts": {"device": "cpu"}}
    how = {"jobs": 2, "deadline": time.time() + 600, "lost": time.time() + 600, "tiny": True}

    def plan(records):
        return [cell] * (not losses_of(records[cell.record], *cell.key))

    for _ in range(2):  # the second call has nothing to do
        compute(plan, text, names=RECORDS, facts=facts, **how)
    rows = read_rows(text / f"{cell.record}.jsonl")
    assert rows[0] == facts
    trained = [row for row in rows if row.get("kind") == cell.kind]
    assert [row["seed"] for row in trained] == list(cell.seeds)
    assert all(np.isfinite(row["averaged"]) for row in trained)
    kernels = [row for row in rows if row.get("kind") == "kernel"]
    if cell.kind == "early":
        assert trained[0]["measured"] == [0, 1, 2, 4, 6] and len(trained[0]["losses"]) == 5 and not kernels
    else:
        assert [row["when"] for row in kernels] == ["start", "end"]
        assert all(row["largest"] > row["second"] > row["smallest"] for row in kernels)
    assert not any((text / CHECKPOINTS).iterdir())


def test_a_cell_that_fails_is_tried_once_more_and_the_others_go_on(text, monkeypatch):
    monkeypatch.setattr("benchmarks.gain_runs.get_context", lambda kind: Now)
    good, bad = (Cell("early", unit, "3.2M", 2747, (0.001,), (0,), record="early") for unit in ("gelu", "unheard"))
    how = {"facts": {"facts": 0}, "jobs": 1, "deadline": time.time() + 600, "lost": time.time() + 600, "tiny": True}

    def plan(records):
        return [cell for cell in (bad, good) if not losses_of(records["early"], *cell.key)]

    compute(plan, text, names=RECORDS, **how)
    rows = [json.loads(line) for line in (text / "early.jsonl").read_text().splitlines()]
    assert [row.get("unit") for row in rows] == [None, "unheard", "gelu", "unheard"]
    assert ["unheard" in row.get("error", "") for row in rows] == [False, True, False, True]


@pytest.mark.parametrize("name", EIGHTEEN)
def test_every_unit_of_the_eighteen_is_described_and_has_the_parameters_of_the_others(name):
    unit = unit_named(name)
    assert restore(describe(unit)) == unit or describe(restore(describe(unit))) == describe(unit)
    assert decoder("1.6M", "").body_count(unit) == decoder("1.6M", "").body_count("gelu")


def test_own_units_are_their_formulas():
    z, v = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64), torch.linspace(-1, 1, 5).double()
    x = z.numpy()
    expected = {
        "drelu": np.maximum(x, 0) * np.maximum(v.numpy(), 0),
        "relu2-glu": np.maximum(x, 0) ** 2 * v.numpy(),
        "xielu": np.where(x > 0, 0.8 * x**2 + x / 2, 0.8 * (np.exp(x) - 1 - x) + x / 2),
        "signed-relu2": np.where(x > 0, x**2, -(x**2) / 4),
        "mish": x * np.tanh(np.log1p(np.exp(x))),
    }
    for name, values in expected.items():
        unit = unit_named(name)
        assert unit.neuron(z, *[v] * unit.factors).numpy() == pytest.approx(values, abs=1e-12)
