"""How long one waits for help, lists and the import, beside Python's own start and torch's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Table
from gatelab.sweep import Record, Run, Store

TIMES = 5
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import torch": ("-c", "import torch"),
    "import gatelab": ("-c", "import gatelab"),
    "import gatelab; gl.fit": ("-c", "import gatelab as gl; gl.fit"),
    "gatelab --help": ("-m", "gatelab", "--help"),
    "gatelab units": ("-m", "gatelab", "units"),
    "gatelab problems": ("-m", "gatelab", "problems"),
    "gatelab results list": ("-m", "gatelab", "results", "list"),
}


def run() -> Iterator[Table]:
    with TemporaryDirectory() as folder:
        with Store(Path(folder) / "gatelab.db") as store:
            for width in range(1, 21):
                arguments = {"unit": {"name": "glu"}, "problem": {"spec": "paper-1d"}, "width": width, "seed": 0}
                store.put(Record(Run("lab:fit", arguments), "done", {"test_rmse": 0.1 / width}))
        # One after another, round by round: a busy moment of the machine falls on all of them.
        rounds = [{name: _times(words, folder) for name, words in COMMANDS.items()} for _ in range(TIMES)]
    best = {name: tuple(map(min, zip(*(one[name] for one in rounds), strict=True))) for name in COMMANDS}
    wall, processor = best["import torch"]
    yield (
        "Start of a process",
        [
            {"what": name, "s": s, "of torch's": s / wall, "processor s": cpu, "of torch's own": cpu / processor}
            for name, (s, cpu) in best.items()
        ],
        f"the best of {TIMES}; processor s is user and system time, which other programs disturb less",
    )


def _times(words: tuple[str, ...], folder: str) -> tuple[float, float]:
    """Seconds by the clock and by the processor."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system
