"""Where the gate's gain sits: the trainings of docs/results/ladder-design.md, as rows of a record, on a GPU.

    python benchmarks/gpu_gain.py results/ladder --seconds 560

It needs enwik8 below GATELAB_DATA (text/enwik8.gz). The folder's records are continued: rows that they have are not
computed again. It first runs the last round of the pilot (pilot4.jsonl), which chooses the decoder of the small sizes,
then the sweeps of learning rates and the trainings at the rates of the rule that all sweeps make (grid.jsonl).
Whatever does not fit into `--seconds` is left for the next call. Every unit and size has a process of its
own, which compiles once and trains all its cells; NVIDIA's multi-process service lets processes overlap. `--tiny` is
the same in small, for a CPU.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from gatelab.feedforward import unit as as_unit
from gatelab.models import DECODER_SIZES, DecoderConfig
from gatelab.train.ladder_runs import part_of, read_text
from gatelab.train.loop import device_name, train_many
from gatelab.train.rates import RateRule, at_end, best_rate, further_rates, rounded_rate
from gatelab.train.recipes import recipe

BATCH, CONTEXT = 16, 512
UNITS = ("swiglu", "gelu", "relu2", "geglu")
SIZES = ("0.1M", "0.2M", "0.4M", "0.8M", "1.6M", "3.2M", "6.4M")  # as first planned
# The grid's sizes and the variant of each, "" for the decoder of the design's first version; see its list of changes.
GRID = {"0.4M": "three layers", "0.8M": "three layers", "1.6M": "", "3.2M": "", "6.4M": ""}
STEPS = (687, 1373, 2747, 5493, 10986)  # 5.6, 11.2, 22.5, 45 and 90 million tokens, each read once
SWEPT = (1373, 5493)
SEEDS = (0, 1, 2, 3, 4)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # learning rates of a sweep over the one in its middle
# Where sweeps are centered, for d_model 192; from the sweeps of results/ladder/enwik8.json.
CENTERS = {"swiglu": 0.0040, "geglu": 0.0040, "gelu": 0.0030, "relu2": 0.0025}
# The fourth round of the pilot: what is changed in the decoder, the simplest first; three layers have about as many
# parameters as the two of that size.
THREE_LAYERS = {
    "0.1M": {"layers": 3, "heads": 2, "d_model": 48, "width": 288},
    "0.2M": {"layers": 3, "heads": 3, "d_model": 72, "width": 336},
    "0.4M": {"layers": 3, "heads": 3, "d_model": 96, "width": 528},
    "0.8M": {"layers": 3, "heads": 3, "d_model": 144, "width": 672},
}
AS_CHOSEN = "as chosen"
VARIANTS = (AS_CHOSEN, "logits up to 32", "8 taps", "three layers", "three layers, logits up to 32")
PILOT_SIZES, PILOT_UNITS = ("0.1M", "0.8M"), ("relu2", "swiglu")
LARGEST_DEVIATION, NEAR = 0.015, 0.01  # bits: of seeds in a variant that qualifies; a simpler variant's mean so close
PILOT_STEPS, PILOT_SEEDS = 5493, (0, 1, 2, 3, 4, 5)
LAUNCHED = 45.0  # seconds that a process takes before its first step
# Tokens per second of all processes on an H200, for the plan alone.
SPEEDS = {
    "0.1M": 3.2e7,
    "0.2M": 2.8e7,
    "0.4M": 2.4e7,
    "0.8M": 1.8e7,
    "1.6M": 1.2e7,
    "3.2M": 7.5e6,
    "6.4M": 4.3e6,
    "11M": 2.2e6,
}


@dataclass(frozen=True)
class Cell:
    """Trainings that run together: one unit, size and number of steps, at these rates and seeds."""

    kind: str
    unit: str
    size: str
    steps: int
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    variant: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What a record knows the cell by: rates of a sweep may move, cells may not be computed twice."""
        return self.kind, self.unit, self.size, self.steps, self.variant

    def seconds(self, jobs: int) -> float:
        """The time that it should take beside others."""
        return jobs * len(self.lrs) * len(self.seeds) * self.steps * BATCH * CONTEXT / SPEEDS[self.size]


def design_changes(steps: int) -> dict[str, Any]:
    """What the design has that the recipe of a decoder does not."""
    return {"warmup": max(50, steps // 50), "average": 0.02, "options": {"taps": 4, "sharpness": 16.0}}


def variant_options(variant: str, size: str) -> dict[str, Any]:
    """What a variant of the pilot changes in the decoder of a size.

    >>> variant_options("three layers, logits up to 32", "0.1M")["sharpness"]
    32.0
    """
    options: dict[str, Any] = {}
    if "three layers" in variant:
        options |= THREE_LAYERS[size]
    if "32" in variant:
        options["sharpness"] = 32.0
    if "8 taps" in variant:
        options["taps"] = 8
    return options


def decoder(size: str, variant: str) -> DecoderConfig:
    """The decoder of a size in a variant of the pilot; "" is that of the design.

    >>> {size: decoder(size, "three layers").body_count("swiglu") for size in THREE_LAYERS}
    {'0.1M': 111744, '0.2M': 209088, '0.4M': 417024, '0.8M': 832896}
    """
    return replace(DECODER_SIZES[size], **design_changes(STEPS[0])["options"] | variant_options(variant, size))


def trained_rows(cell: Cell, tiny: bool) -> list[dict[str, Any]]:
    """A row for every rate and seed of a cell."""
    values: dict[str, Any] = {
        "size": cell.size,
        "sampling": "epochs",
        "tokenizer": "bytes",
        "batch": BATCH,
        "steps": cell.steps,
        "evaluations": 1,
        "test_size": 2000,
        **design_changes(cell.steps),
    }
    values["options"] |= variant_options(cell.variant, cell.size)
    if tiny:
        values |= {"batch": 4, "steps": 6, "warmup": 2, "test_size": 8, "size": "tiny"}
    first = recipe("decoder", cell.unit, "enwik8", lr=1.0, **values)
    members = [replace(first, lr=lr, seed=seed) for lr in cell.lrs for seed in cell.seeds]
    data = part_of(read_text("enwik8", "bytes"), 1, "test" if cell.kind == "grid" else "valid")
    began = time.monotonic()
    histories = train_many(members, data=data, compile=torch.cuda.is_available(), progress=False)
    seconds = time.monotonic() - began
    parameters = decoder(cell.size, cell.variant).body_count(as_unit(cell.unit))
    plain = {name: value for name, value in asdict(cell).items() if name not in ("lrs", "seeds")}
    return [
        plain
        | {
            "lr": h.recipe.lr,
            "seed": h.recipe.seed,
            "parameters": parameters,
            "tokens": h.recipe.steps * h.recipe.batch * CONTEXT,
            "bits": bits(h.test, h.diverged),
            "averaged": bits(h.averaged, h.diverged),
            "train": bits(h.train, h.diverged),
            "diverged": h.diverged,
            "together": h.together,
            "seconds": round(seconds, 1),
            "throughput": None if math.isnan(h.throughput) else round(h.throughput),
        }
        for h in histories
    ]


def bits(losses: np.ndarray, diverged: int | None) -> float | None:
    """The last loss in bits per byte; none for a training that diverged."""
    if diverged is not None or not math.isfinite(losses[-1]):
        return None
    return round(float(losses[-1]) / math.log(2), 6)


def work(cells: Sequence[Cell], jobs: int, deadline: float, tiny: bool, answers: Any) -> None:
    """Train cells one after the other, until no time is left for the next; a cell that fails is reported."""
    torch.set_num_threads(1)
    slowness = 1.0
    for cell in cells:
        if time.time() + slowness * cell.seconds(jobs) > deadline and not tiny:
            break
        began = time.monotonic()
        try:
            answers.put(trained_rows(cell, tiny))
        except Exception as error:  # whatever it is, the other cells go on
            answers.put([asdict(cell) | {"error": f"{type(error).__name__}: {error}"}])
        slowness = max(0.5, (time.monotonic() - began - LAUNCHED * (cell is cells[0])) / cell.seconds(jobs))
    answers.put(None)


@contextmanager
def overlapping() -> Iterator[None]:
    """NVIDIA's multi-process service, where there is one."""
    with suppress(OSError):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False, capture_output=True)
    yield
    with suppress(OSError):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False, capture_output=True, timeout=20)


def compute(cells: Sequence[Cell], out: Path, jobs: int, deadline: float, tiny: bool) -> None:
    """All cells, a process per unit and size, `jobs` of them at a time; rows are appended to OUT as they come."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.unit, cell.size, cell.variant), []).append(cell)
    context, waiting, running = get_context("spawn"), list(groups.values()), 0
    answers, began = context.Queue(), time.time()
    processes: list[Any] = []
    while waiting or running:
        while waiting and running < jobs:
            group = waiting.pop(0)
            if time.time() + LAUNCHED + group[0].seconds(jobs) > deadline and not tiny:
                continue
            processes.append(context.Process(target=work, args=(group, jobs, deadline, tiny, answers), daemon=True))
            processes[-1].start()
            running += 1
        if not running:
            break
        rows = answers.get(timeout=max(300.0 if tiny else 30.0, deadline - time.time() + 60))
        if rows is None:
            running -= 1
            continue
        with out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        losses = [row.get("averaged") or row.get("bits") or row.get("error") or "diverged" for row in rows]
        first = rows[0]
        texts = " ".join(f"{v:.4f}" if isinstance(v, float) else str(v) for v in losses)
        print(
            f"{time.time() - began:4.0f} s {first['kind']} {first['unit']} {first['size']} "
            f"{first['steps']} {first['variant']}: {texts}"
            f"  {first.get('throughput') or 0:.2g}/s {first.get('seconds', 0):.0f} s",
            flush=True,
        )
    for process in processes:
        process.join(timeout=5)


def read_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of a record without its facts and failures; none where there is no record yet."""
    if not out.exists():
        return []
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "kind" in row and "error" not in row]


def losses_of(rows: Sequence[dict[str, Any]], *key: Any) -> list[tuple[float, int, float]]:
    """Learning rate, seed and loss of a cell's trainings, sorted; NaN where one diverged."""
    names = ("kind", "unit", "size", "steps", "variant")
    own = [row for row in rows if tuple(row.get(name, "") for name in names) == key]
    return sorted((row["lr"], row["seed"], math.nan if row["averaged"] is None else row["averaged"]) for row in own)


def chosen_variant(rows: Sequence[dict[str, Any]]) -> str | None:
    """What the rule of the pilot's fourth round takes; None where no variant qualifies."""
    means = {}
    for variant in VARIANTS:
        best = []
        for size, unit in product(PILOT_SIZES, PILOT_UNITS):
            own = losses_of(rows, "pilot", unit, size, PILOT_STEPS, variant)
            by_rate = [[loss for lr, _, loss in own if lr == rate] for rate in sorted({lr for lr, _, _ in own})]
            best.append(min(by_rate, key=lambda losses: math.inf if np.isnan(losses).any() else np.mean(losses)))
        variances = np.var(best, axis=1, ddof=1).reshape(len(PILOT_SIZES), len(PILOT_UNITS)).mean(1)
        if (np.sqrt(variances) < LARGEST_DEVIATION).all():  # False for NaN
            means[variant] = float(np.mean(best))
    return next((variant for variant, mean in means.items() if mean <= min(means.values()) + NEAR), None)


@dataclass(frozen=True)
class Plan:
    """Sweeps and trainings of these sizes, each with its variant of the decoder."""

    variants: dict[str, str]

    def sweep(
        self, rows: Sequence[dict[str, Any]], unit: str, size: str, steps: int
    ) -> tuple[list[float], list[float]]:
        """The learning rates of a sweep, smallest first, and their losses; NaN where a training diverged."""
        own = losses_of(rows, "sweep", unit, size, steps, self.variants[size])
        return [lr for lr, _, _ in own], [loss for _, _, loss in own]

    def rule(self, rows: Sequence[dict[str, Any]]) -> RateRule:
        """Learning rates by unit, d_model and steps, through the best rates of all sweeps whose best lies inside."""
        best = []
        for unit, (size, variant), steps in product(UNITS, self.variants.items(), SWEPT):
            own = self.sweep(rows, unit, size, steps)
            if len(own[0]) > 2 and not at_end(*own):
                best.append((unit, decoder(size, variant).d_model, best_rate(*own), steps))
        return RateRule.of(best)

    def sweep_cells(self, rows: Sequence[dict[str, Any]]) -> list[Cell]:
        """Sweeps that are missing, the largest sizes first; one whose best rate lies at an end goes on beyond it."""
        cells = []
        for (size, variant), unit, steps in product(reversed(self.variants.items()), UNITS, SWEPT):
            center = CENTERS[unit] * (192 / decoder(size, variant).d_model) ** 0.7
            own = self.sweep(rows, unit, size, steps)
            lrs = [rounded_rate(center * factor, 4) for factor in FACTORS]
            if own[0]:
                lrs = further_rates(*own, count=len(FACTORS), digits=4)
            if lrs:
                cells.append(Cell("sweep", unit, size, steps, tuple(lrs), (0,), variant))
        return cells

    def grid_cells(self, rows: Sequence[dict[str, Any]]) -> list[Cell]:
        """Trainings that are missing, the smallest sizes first."""
        rates = self.rule(rows)
        cells = []
        for (size, variant), unit, steps in product(self.variants.items(), UNITS, STEPS):
            rate = rates.rate(unit, decoder(size, variant).d_model, steps, digits=4)
            cells.append(Cell("grid", unit, size, steps, (rate,), SEEDS, variant))
        return [cell for cell in cells if not losses_of(rows, *cell.key)]


def pilot_cells(rows: Sequence[dict[str, Any]], rates: RateRule) -> list[Cell]:
    """The fourth round of the pilot, as far as it is missing, at the rate of the rule and at half of it."""
    cells = []
    for size, variant, unit in product(reversed(PILOT_SIZES), VARIANTS, PILOT_UNITS):
        rate = rates.rate(unit, decoder(size, variant).d_model, PILOT_STEPS, digits=4)
        cells.append(Cell("pilot", unit, size, PILOT_STEPS, (rate / 2, rate), PILOT_SEEDS, variant))
    return [cell for cell in cells if not losses_of(rows, *cell.key)]


def main(
    folder: Path,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 6,
    seconds: Annotated[float, typer.Option(help="After them nothing new is begun.")] = 560.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small, on a CPU.")] = False,
) -> None:
    """Compute what the records in FOLDER do not have yet."""
    deadline = time.time() + seconds
    pilot, grid = folder / "pilot4.jsonl", folder / "grid.jsonl"
    device = device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    facts = {"facts": {"device": device, "date": f"{datetime.now(UTC):%Y-%m-%d}", "torch": torch.__version__}}
    facts["facts"]["command"] = f"python benchmarks/gpu_gain.py {folder}"

    def computed(cells: Sequence[Cell], out: Path) -> None:
        if cells:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")
            compute(cells, out, jobs, deadline, tiny)

    with overlapping():
        before = Plan(dict.fromkeys(SIZES, ""))  # the pilot's rates are those of the sweeps before it
        cells = pilot_cells(read_rows(pilot), before.rule(read_rows(grid)))
        computed(cells, pilot)
        if pilot_cells(read_rows(pilot), before.rule(read_rows(grid))):
            return
        print("the pilot's rule takes:", chosen_variant(read_rows(pilot)), flush=True)
        plan = Plan(GRID)
        for _ in range(2):  # a sweep may go on once
            computed(plan.sweep_cells(read_rows(grid)), grid)
        if tiny or not plan.sweep_cells(read_rows(grid)):
            computed(plan.grid_cells(read_rows(grid)), grid)


if __name__ == "__main__":
    typer.run(main)
