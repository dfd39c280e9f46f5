"""Trainings of docs/results/ladder-design.md as rows of records: cells, their training, and many of them on one GPU.

A cell is a set of trainings that run together, as one process. A plan lists the cells that the records still miss, the
most wanted first, and whenever a process ends, the next one takes the first of them. Trainings that the deadline stops
are saved below CHECKPOINTS, and the next call on the same machine goes on with them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gain_units import unit_named
from benchmarks.python_text import SHA256
from gatelab.data.archives import first_file, places
from gatelab.data.text import TextData
from gatelab.models import DECODER_SIZES, DecoderConfig
from gatelab.ntk import empirical
from gatelab.train.history import History
from gatelab.train.ladder_runs import part_of, read_text
from gatelab.train.loop import load_models, train_many
from gatelab.train.members import build, measured_windows
from gatelab.train.recipes import Recipe, recipe

BATCH, CONTEXT = 16, 512
# Three layers have about as many parameters as the two of that size; the fourth round of the pilot chose them.
THREE_LAYERS = {
    "0.4M": {"layers": 3, "heads": 3, "d_model": 96, "width": 528},
    "0.8M": {"layers": 3, "heads": 3, "d_model": 144, "width": 672},
}
CENTERED, OUTPUT_BIAS = "centered", "output bias"
MARKS = tuple(10 * 2**k for k in range(9))  # steps of the early losses, besides the last: 10, 20, ... 2560
KERNEL_ROWS = 128
CHECKPOINTS = Path("gatelab-out/gain")
LAUNCHED = 45.0  # seconds that a process takes before its first step
SAVED = 45.0  # seconds that stopped processes have for their checkpoints
# Tokens per second of all processes on an H200, for the plan alone.
SPEEDS = {
    "0.4M": 2.4e7,
    "0.8M": 1.8e7,
    "1.6M": 8e6,
    "3.2M": 7e6,
    "6.4M": 4.8e6,
    "26M": 1.5e6,
    "60M": 7e5,
}
Rows = list[dict[str, Any]]
Records = Mapping[str, Rows]  # the rows of every record by its name


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
    optimizer: str = "adamw"
    text: str = "enwik8"
    batch: int = BATCH
    record: str = "grid"

    @property
    def key(self) -> tuple[Any, ...]:
        """What its record knows it by: rates of a sweep may move, cells may not be computed twice."""
        return self.kind, self.unit, self.size, self.steps, self.variant, self.optimizer, self.text, self.batch

    @property
    def name(self) -> str:
        """A name for the folder of its checkpoint."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def seconds(self, jobs: int) -> float:
        """The time that it should take beside others."""
        return LAUNCHED + jobs * len(self.lrs) * len(self.seeds) * self.steps * self.batch * CONTEXT / SPEEDS[self.size]


def design_changes(steps: int) -> dict[str, Any]:
    """What the design has that the recipe of a decoder does not."""
    return {"warmup": max(50, steps // 50), "average": 0.02, "options": {"taps": 4, "sharpness": 16.0}}


def variant_options(variant: str, size: str) -> dict[str, Any]:
    """What a variant changes in the decoder of a size.

    >>> variant_options("output bias", "3.2M")
    {'output_bias': True}
    """
    if variant == "three layers":
        return THREE_LAYERS[size]
    return {variant.replace(" ", "_"): True} if variant else {}


def decoder(size: str, variant: str) -> DecoderConfig:
    """The decoder of a size in a variant; "" is that of the design.

    >>> {size: decoder(size, "three layers").body_count("swiglu") for size in THREE_LAYERS}
    {'0.4M': 417024, '0.8M': 832896}
    """
    return replace(DECODER_SIZES[size], **design_changes(50)["options"] | variant_options(variant, size))


def text_of(cell: Cell) -> TextData:
    """The text of a cell, with the part on which it is measured; the sources of Python packages by their sum."""
    if cell.text == "enwik8":
        whole = read_text("enwik8", "bytes")
    else:
        file = first_file(places("text"), [f"{cell.text}.gz"])
        if file is None:
            raise SystemExit(f"text/{cell.text}.gz is missing; make it with benchmarks/python_text.py")
        whole = read_text(str(file), "bytes")
        assert whole.valid is not None
        if hashlib.sha256(np.concatenate([whole.train, whole.valid, whole.test]).tobytes()).hexdigest() != SHA256:
            raise SystemExit(f"{file} is another text; make it again with benchmarks/python_text.py")
    part = "valid" if cell.kind == "sweep" else "test"
    return part_of(whole, 1, part)


def members(cell: Cell, tiny: bool) -> list[Recipe]:
    """The recipes of a cell."""
    values: dict[str, Any] = {"size": cell.size, "sampling": "epochs", "tokenizer": "bytes", "batch": cell.batch}
    values |= {"steps": cell.steps, "evaluations": 1, "test_size": 2000, "optimizer": cell.optimizer}
    values |= design_changes(cell.steps)
    values["options"] |= variant_options(cell.variant, cell.size)
    if tiny:
        values |= {"batch": 4, "steps": 6, "warmup": 2, "test_size": 8, "size": "tiny"}
    first = recipe("decoder", unit_named(cell.unit), cell.text, lr=1.0, **values)
    return [replace(first, lr=lr, seed=seed) for lr in cell.lrs for seed in cell.seeds]


def trained_rows(cell: Cell, tiny: bool, folder: Path | None = None) -> Rows:
    """A row for every rate and seed of a cell."""
    marks = ((1, 2, 4), MARKS)[not tiny] if cell.kind == "early" else ()
    how: dict[str, Any] = {"compile": torch.cuda.is_available(), "progress": False, "save_seconds": math.inf}
    histories = train_many(members(cell, tiny), data=text_of(cell), folder=folder, marks=marks, **how)
    parameters = decoder(cell.size, cell.variant).body_count(unit_named(cell.unit))
    return [row_of(cell, history, parameters) for history in histories]


def row_of(cell: Cell, h: History, parameters: int) -> dict[str, Any]:
    """A training as a row of a record."""
    plain = {name: value for name, value in asdict(cell).items() if name not in ("lrs", "seeds", "record")}
    row = plain | {
        "lr": h.recipe.lr,
        "seed": h.recipe.seed,
        "parameters": parameters,
        "tokens": h.recipe.steps * h.recipe.batch * CONTEXT,
        "bits": bits(h.test, h.diverged),
        "averaged": bits(h.averaged, h.diverged),
        "train": bits(h.train, h.diverged),
        "diverged": h.diverged,
        "together": h.together,
        "seconds": round(float(h.seconds[-1]), 1),
        "throughput": None if math.isnan(h.throughput) else round(h.throughput),
    }
    if cell.kind == "early":
        row["measured"] = h.steps.tolist()
        row["losses"] = [round(float(loss) / math.log(2), 6) for loss in h.test]
    return row


def bits(losses: np.ndarray, diverged: int | None) -> float | None:
    """The last loss in bits per byte; none for a training that diverged."""
    if diverged is not None or not len(losses) or not math.isfinite(losses[-1]):
        return None
    return round(float(losses[-1]) / math.log(2), 6)


def kernel_rows(cell: Cell, tiny: bool, folder: Path) -> Rows:
    """Condition numbers of the kernel of the first model of a cell, before and after its training.

    The kernel is that of the logit of the true next byte at the end of windows of the test text. The head, which is
    zero initially, is drawn from N(0, 1/d_model) for the first of them; running means are set by a few passes.
    """
    data, first = text_of(cell), members(cell, tiny)[0]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start: Any = build(first, data)
    end = load_models(folder, data)[0]
    x, y = measured_windows(data, "test", start.config.context, KERNEL_ROWS)
    with torch.no_grad():
        head = start.head.weight
        head.copy_(torch.randn(head.shape, generator=torch.Generator().manual_seed(0)) / head.shape[1] ** 0.5)
    for some in x[:32].split(8):
        start.loss(some, some.roll(-1, 1))
    rows = []
    for when, model in (("start", start), ("end", end)):
        kernel = empirical(model.to(device).eval(), x.to(device), y[:, -1].to(device), progress=False)
        values = np.linalg.eigvalsh(kernel.matrix.double().cpu().numpy())
        row = {name: value for name, value in asdict(cell).items() if name not in ("lrs", "seeds", "record", "kind")}
        row |= {"kind": "kernel", "when": when, "rows": len(x), "seed": first.seed, "lr": first.lr}
        rows.append(row | {"largest": values[-1], "second": values[-2], "smallest": values[0]})
    return rows


def work(cell: Cell, tiny: bool, answers: Any) -> None:
    """Train a cell and report its rows, or what went wrong; an interrupt saves it for the next time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    folder = CHECKPOINTS / cell.name
    rows: Rows = []
    try:
        rows = trained_rows(cell, tiny, folder)
        if cell.kind == "mechanism":
            rows = rows + kernel_rows(cell, tiny, folder)
    except KeyboardInterrupt:
        return
    except BaseException as error:  # whatever it is, the other cells go on
        rows = [*rows, asdict(cell) | {"error": f"{type(error).__name__}: {error}"}]
    answers.put((cell, rows))
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def overlapping() -> Iterator[None]:
    """NVIDIA's multi-process service, where there is one."""
    with suppress(OSError):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False, capture_output=True)
    yield
    with suppress(OSError):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False, capture_output=True, timeout=20)


def compute(
    plan: Callable[[Records], Sequence[Cell]],
    folder: Path,
    *,
    names: Sequence[str],
    facts: Mapping[str, Any],
    jobs: int,
    deadline: float,
    lost: float,
    tiny: bool,
) -> None:
    """All cells of a plan, a process for each, `jobs` of them at a time; rows are appended to their records.

    At the deadline trainings are stopped and saved; none is begun that would not end before checkpoints are lost. A
    cell that fails is tried once more, after the others.
    """
    context, began = get_context("spawn"), time.time()
    answers: Any = context.Queue()
    records = {name: read_rows(folder / f"{name}.jsonl") for name in names}
    running: dict[Cell, Any] = {}
    failures: Counter[Cell] = Counter()
    while True:
        waiting = [cell for cell in plan(records) if cell not in running and failures[cell] < 2]
        waiting.sort(key=lambda cell: failures[cell])
        while waiting and len(running) < jobs and (tiny or time.time() + LAUNCHED < deadline):
            left = lost - time.time()
            beside = len(running) + 1
            begun = [cell for cell in waiting if cell.seconds(beside) < left or (CHECKPOINTS / cell.name).exists()]
            if not begun:
                break
            cell = begun[0]
            waiting.remove(cell)
            running[cell] = context.Process(target=work, args=(cell, tiny, answers), daemon=True)
            running[cell].start()
        if not running or (time.time() > deadline and not tiny):
            break
        try:
            cell, rows = answers.get(timeout=2.0)
        except queue.Empty:
            for cell in [cell for cell, process in running.items() if process.exitcode]:  # killed
                failures[cell] += 1
                del running[cell]
            continue
        del running[cell]
        if any("error" in row for row in rows):
            failures[cell] += 1
        out = folder / f"{cell.record}.jsonl"
        lines = [facts] * (facts not in records[cell.record]) + rows
        with out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in lines)
        records[cell.record] += [row for row in lines if "error" not in row]
        show(cell, rows, time.time() - began)
    stop(running)


def stop(running: Mapping[Cell, Any]) -> None:
    """Interrupt processes, which save their trainings, and wait for them."""
    for process in running.values():
        with suppress(OSError):
            os.kill(process.pid, signal.SIGINT)
    patience = time.time() + SAVED
    for cell, process in running.items():
        process.join(timeout=max(0.1, patience - time.time()))
        print(f"stopped: {cell.kind} {cell.unit} {cell.size} {cell.steps} {cell.variant} {cell.optimizer}", flush=True)


def show(cell: Cell, rows: Rows, seconds: float) -> None:
    """A line about a cell that ended."""
    losses = [row.get("averaged") or row.get("error") or "diverged" for row in rows if row.get("kind") != "kernel"]
    texts = " ".join(f"{v:.4f}" if isinstance(v, float) else str(v) for v in losses)
    name = " ".join(map(str, cell.key))
    speed = rows[0].get("throughput") or 0
    print(f"{seconds:4.0f} s {name}: {texts}  {speed:.2g}/s {rows[0].get('seconds', 0):.0f} s", flush=True)


def read_rows(out: Path) -> Rows:
    """The rows of a record without its failures; none where there is no record yet."""
    if not out.exists():
        return []
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "error" not in row]


def losses_of(rows: Sequence[Mapping[str, Any]], *key: Any) -> list[tuple[float, int, float]]:
    """Learning rate, seed and loss of a cell's trainings, sorted; NaN where one diverged."""
    usual = {"variant": "", "optimizer": "adamw", "text": "enwik8", "batch": BATCH}
    names = ("kind", "unit", "size", "steps", *usual)
    own = [row for row in rows if tuple(row.get(name, usual.get(name)) for name in names)[: len(key)] == key]
    return sorted((row["lr"], row["seed"], math.nan if row["averaged"] is None else row["averaged"]) for row in own)
