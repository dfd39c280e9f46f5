"""The record of the ladder: `python -m benchmarks.gpu_ladder results/ladder/enwik8.json --store ladder.db`.

Every run is kept in the store as it ends, and its checkpoints beside it: whatever ends the script, the same command
goes on, and OUT has all that was done: an OUT that is there already is what it goes on from. Several runs are trained
beside each other on one device, which hides the time that compiling takes; NVIDIA's multi-process service (`nvidia-
cuda-mps-control -d`) lets them overlap. GATELAB_DATA names the folder with text/enwik8.gz.

`--speeds FILE` measures tokens a second first, of each unit and size: the loop of gatelab with as many models as there
are seeds; for swiglu also with one, and a plain compiled loop of one model. They are measured one after the other and
written as they end. `--tiny` is the same in small, for a CPU.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import device_name, facts, timed, wait, write_record
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.models import Decoder
from gatelab.sweep import Store
from gatelab.train.ladder_plans import LADDER_SIZES, TUNED, UNITS, Rates, plan_ladder, train_plan
from gatelab.train.ladder_runs import LadderRun, read_text
from gatelab.train.ladders import Ladder
from gatelab.train.loop import State
from gatelab.train.members import Source, build

REPEATED = (("gelu", "relu2", "swiglu", "gqu"), LADDER_SIZES[:4], 20)
SWEPT = 4  # sizes at which learning rates are swept; at the largest a training takes twice as long as at the fourth
PEAK = {"H100": 989.5e12, "H200": 989.5e12, "A100": 312e12}  # operations a second of dense bf16 products
WARM, TIMED, PROFILED = 5, 40, 3
# What the kernels of a step are by their names, the first that is found; those that are compiled are passes.
KERNELS = {"sdpa|flash|fmha|compute_dot_do_o|convert_dq": "attention", "nvjet|gemm|cutlass": "products"}
KERNELS |= {"^triton": "passes", "": "update"}
PLAIN_UNIT = "swiglu"  # whose plain loop is timed beside ours
TINY: dict[str, Any] = {"batch": 4, "steps": 12, "test_size": 8, "options": {"context": 16}}


def plain_loop(run: LadderRun, source: Source, device: torch.device, compile: bool) -> Any:
    """A step of the loop that one would write: one model, compiled as a whole, bf16, torch's fused AdamW."""
    model = Decoder(run.recipe.size, run.recipe.unit, **dict(run.recipe.options)).to(device)
    loss_of = torch.compile(model, dynamic=False) if compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=device.type == "cuda")
    steps = iter(range(10**9))

    def step() -> None:
        x, y = source.batch(next(steps), [0])
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(x[0], y[0])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop that is compiled: its name, how many models it trains, a step of it, and the tokens of one."""

    name: str
    models: int
    step: Callable[[], object]
    tokens: int
    token_flops: float
    device: torch.device

    def timed(self) -> dict[str, Any]:
        """Tokens and operations a second."""
        steps = TIMED if self.device.type == "cuda" else 2
        self.step()
        _, seconds = timed(lambda: [self.step() for _ in range(steps)])
        rate = steps * self.tokens / seconds
        values = {"tokens_per_second": rate, "flops_per_second": rate * self.token_flops}
        return {"loop": self.name, "models": self.models, **values}

    def milliseconds(self) -> dict[str, float]:
        """Of a step, by kinds of kernels: products, attention, the update, and passes that go over numbers alone."""
        with profile(activities=[ProfilerActivity.CUDA]) as kernels:
            for _ in range(PROFILED):
                self.step()
            wait()
        parts = dict.fromkeys(KERNELS.values(), 0.0)
        for kernel in kernels.key_averages():
            kind = next(kind for name, kind in KERNELS.items() if re.search(name, kernel.key))
            parts[kind] += kernel.device_time_total / 1e3 / PROFILED
        return parts


def compiled_loops(unit: str, size: str, seeds: int, tiny: bool) -> list[Loop]:
    """The loops of a unit at a size, each run a few steps, which compiles it."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    compile = device.type == "cuda"
    plan = plan_ladder([unit], "enwik8", [size], seeds, (1,), TINY if tiny else {})
    (run,) = plan.tests(lambda unit, d_model: 1e-3)
    data = read_text("enwik8", "bytes")
    source = Source.of(run.recipe, data, device, run.config.context)
    tokens, flops = run.recipe.batch * run.config.context, run.config.token_flops(unit)

    def stacked(count: int) -> Callable[[], object]:
        recipes = [replace(run.recipe, lr=1e-3, seed=seed) for seed in range(count)]
        state = State(recipes, [build(r, data) for r in recipes], source, bf16=compile, compile=compile)
        return state.advance

    loops = []
    if unit == PLAIN_UNIT:
        plain = plain_loop(run, source, device, compile)
        loops += [Loop("plain", 1, plain, tokens, flops, device), Loop("gatelab", 1, stacked(1), tokens, flops, device)]
    loops.append(Loop("gatelab", seeds, stacked(seeds), seeds * tokens, flops, device))
    for loop in loops:
        for _ in range(WARM):
            loop.step()
    wait()
    return loops


def speeds(file: Path, seeds: int, tiny: bool) -> None:
    """All units and sizes, into a record that is written after each; those that it has are not measured again."""
    sizes = ["tiny"] if tiny else list(LADDER_SIZES)
    rows: list[dict[str, Any]] = []
    if file.exists():
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    known = {(row["unit"], row["size"]) for row in rows}
    peak = next((value for key, value in PEAK.items() if key in device_name()), None)
    for unit, size in product((as_unit(unit).name for unit in UNITS), sizes):
        if (unit, size) in known:
            continue
        loops = compiled_loops(unit, size, seeds, tiny)
        own = [{"unit": unit, "size": size, **loop.timed()} for loop in loops]
        if len(loops) > 1 and loops[-1].device.type == "cuda":
            own[-1]["milliseconds"] = loops[-1].milliseconds()
        for row in own:
            row["share_of_bf16"] = peak and row["flops_per_second"] / peak
            print(row, flush=True)
        rows = sorted([*rows, *own], key=lambda row: (sizes.index(row["size"]), row["unit"]))
        write_record(file, facts() | {"rows": rows}, "rows")
        torch.compiler.reset()


def write_ladder(out: Path, store: Path, seeds: int, options: dict[str, Any], sizes: tuple[str, ...]) -> None:
    """Everything that the store has, as one record."""
    plan = plan_ladder(UNITS, "enwik8", sizes, seeds, (1,), options)
    devices = {record.device for record in Store(store).records() if record.ok}
    facts = {
        "device": ", ".join(sorted(devices)),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "torch": torch.__version__,
        "command": "python -m benchmarks.gpu_ladder results/ladder/enwik8.json --store ladder.db",
        **plan.facts(),
    }
    record = Ladder.from_store(store, facts)
    record.save(out)
    print(record, flush=True)


def main(
    out: Path,
    store: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("ladder.db"),
    jobs: Annotated[int, typer.Option(min=1, help="Runs beside each other.")] = 3,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each unit and size.")] = 3,
    hours: Annotated[float, typer.Option(help="After them nothing new is begun.")] = 24.0,
    speed_file: Annotated[Path | None, typer.Option("--speeds", help="Measure tokens a second first.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small.")] = False,
    record_only: Annotated[bool, typer.Option("--record-only", help="Train nothing: write OUT.")] = False,
) -> None:
    """Train, and write the record after each of the two regimes and whenever time is over."""
    sizes = ("tiny",) if tiny else LADDER_SIZES
    options = TINY if tiny else {}
    began = time.monotonic()
    if speed_file is not None:
        speeds(speed_file, seeds, tiny)
    if out.exists():
        print(f"{Ladder.read(out).fill(store)} runs of {out} are new to {store}", flush=True)
    if not record_only:
        repeated, repeated_sizes, times = REPEATED

        def train(
            units: tuple[str, ...],
            own_sizes: tuple[str, ...],
            repeats: tuple[int, ...],
            lrs: Rates | None,
            checks: tuple[str, ...] = (),
        ) -> None:
            plan = plan_ladder(units, "enwik8", own_sizes, seeds, repeats or (1,), options)
            left = max(0.0, hours - (time.monotonic() - began) / 3600)
            how: dict[str, Any] = {"store": store, "backend": "processes", "jobs": jobs, "device": None}
            train_plan(replace(plan, repeats=repeats, checked=checks), lrs, max_hours=left, progress=True, **how)

        try:
            # Sweeps alone, then the trainings at the rates of the rule that all of them make, the longest first.
            train(UNITS, sizes[:SWEPT], (), None, sizes[TUNED:SWEPT])
            ladder = Ladder.from_store(store)
            for size in reversed(sizes):
                train(UNITS, (size,), (1,), ladder.near_rates())
            train(repeated, sizes[: len(repeated_sizes)], (times,), ladder.near_rates(times))
        except GatelabError as error:
            print(error, flush=True)
    if store.exists():
        write_ladder(out, store, seeds, options, sizes)


if __name__ == "__main__":
    typer.run(main)
