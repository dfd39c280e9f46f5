"""The script that runs docs/results/ladder-design.md on a GPU: its rules on made-up records, its cells in small."""

import numpy as np
import pytest
from benchmarks.gpu_gain import (
    AS_CHOSEN,
    GRID,
    PILOT_SEEDS,
    PILOT_SIZES,
    PILOT_STEPS,
    PILOT_UNITS,
    SEEDS,
    STEPS,
    SWEPT,
    UNITS,
    VARIANTS,
    Cell,
    Plan,
    chosen_variant,
    decoder,
    pilot_cells,
    trained_rows,
)

from gatelab.train.ladder_runs import read_text


def pilot_rows(means, deviations):
    """A made-up pilot: the better of two rates has this mean and deviation, the other is 0.1 above."""
    zs = np.array([-1.2, -0.6, -0.1, 0.1, 0.6, 1.2])
    zs /= zs.std(ddof=1)
    return [
        {"kind": "pilot", "unit": unit, "size": size, "steps": PILOT_STEPS, "variant": variant, "lr": lr, "seed": seed}
        | {"averaged": means[variant] + worse + deviations[variant] * zs[seed]}
        for variant in VARIANTS
        for size in PILOT_SIZES
        for unit in PILOT_UNITS
        for lr, worse in ((0.001, 0.1), (0.002, 0.0))
        for seed in PILOT_SEEDS
    ]


@pytest.mark.parametrize(
    ("means", "deviations", "expected"),
    [
        ([2.0, 2.0, 2.0, 2.0, 2.0], [0.014] * 5, AS_CHOSEN),
        ([2.0, 2.0, 2.0, 2.0, 2.0], [0.016, 0.014, 0.014, 0.014, 0.014], VARIANTS[1]),
        ([2.0, 1.99, 1.97, 1.965, 1.99], [0.014] * 5, VARIANTS[2]),
        ([2.0, 1.99, 1.97, 1.95, 1.99], [0.014, 0.014, 0.014, 0.014, 0.014], VARIANTS[3]),
        ([2.0, 1.99, 1.97, 1.95, 1.90], [0.016, 0.02, 0.05, 0.07, 0.016], None),
    ],
)
def test_the_rule_of_the_pilot(means, deviations, expected):
    rows = pilot_rows(dict(zip(VARIANTS, means, strict=True)), dict(zip(VARIANTS, deviations, strict=True)))
    assert chosen_variant(rows) == expected


def test_a_variant_with_a_diverged_training_at_both_rates_does_not_qualify():
    rows = pilot_rows(dict.fromkeys(VARIANTS, 2.0), dict.fromkeys(VARIANTS, 0.01))
    for row in rows:
        if row["variant"] == AS_CHOSEN and row["seed"] == 3:
            row["averaged"] = None
    assert chosen_variant(rows) == VARIANTS[1]


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


@pytest.mark.parametrize("variant", ["", *VARIANTS[1:]])
def test_every_variant_trains(variant, monkeypatch, tmp_path):
    (tmp_path / "text").write_bytes(np.random.default_rng(0).integers(97, 123, 20_000, dtype=np.uint8).tobytes())
    text = read_text(str(tmp_path / "text"), "bytes")
    monkeypatch.setattr("benchmarks.gpu_gain.read_text", lambda source, tokenizer: text)
    rows = trained_rows(Cell("grid", "swiglu", "0.1M", 687, (0.001,), (0, 1), variant), tiny=True)
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(np.isfinite(row["averaged"]) and row["diverged"] is None for row in rows)
    assert rows[0]["parameters"] == decoder("0.1M", variant).body_count("swiglu")


def test_the_pilot_asks_only_for_what_is_missing():
    plan = Plan({"3.2M": "", "0.8M": ""})
    rates = plan.rule(sweep_rows(plan, lambda c: 0.003))
    rows = pilot_rows(dict.fromkeys(VARIANTS, 2.0), dict.fromkeys(VARIANTS, 0.01))
    assert not pilot_cells(rows, rates)
    assert [
        c.key for c in pilot_cells([r for r in rows if r["variant"] != "8 taps" or r["unit"] != "relu2"], rates)
    ] == [("pilot", "relu2", size, PILOT_STEPS, "8 taps") for size in reversed(PILOT_SIZES)]
