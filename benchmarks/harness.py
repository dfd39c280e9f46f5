"""What the benchmarks share: clocks, threads, the facts and the file of a record, tables on the terminal."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table as Grid

from gatelab.files import write_whole

Row = dict[str, Any]
Table = tuple[str, list[Row], str]  # title, rows, note


def wait() -> None:
    """Wait until a GPU, if there is one, has done all that it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call and its seconds."""
    wait()
    began = time.perf_counter()
    result = call()
    wait()
    return result, time.perf_counter() - began


def best_times(*calls: Callable[[], object], repeats: int = 3) -> list[float]:
    """The least seconds of each call, taken in turns: a busy moment of the machine falls on all of them."""
    rounds = [[timed(call)[1] for call in calls] for _ in range(repeats)]
    return [min(times) for times in zip(*rounds, strict=True)]


@contextmanager
def threads(most: int | None = None) -> Iterator[int]:
    """Compute on `most` cores, by default on all of them; the other benchmarks keep to one."""
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    torch.set_num_threads(min(most or cores, cores))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def device_name(device: str | None = None) -> str:
    """The name of a GPU, by default of the one that is there, or of the processor."""
    if (device or "cuda").startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def machine() -> str:
    """The processor and the versions that a time depends on."""
    return f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"


def facts(device: str | None = None) -> dict[str, Any]:
    """The date, command, device and torch of a record."""
    module = sys.modules["__main__"].__spec__
    command = " ".join(["python", *sys.argv])
    if module is not None:
        command = " ".join(["python", "-m", module.name.removesuffix(".__main__"), *sys.argv[1:]])
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": date, "command": command, "device": device_name(device), "torch": torch.__version__}


def write_record(path: Path, record: Row, lines: str = "") -> None:
    """Write a record as JSON; the list called `lines` has one entry per line."""
    if not lines:
        write_whole(path, json.dumps(record, indent=1) + "\n")
        return
    head = json.dumps({name: value for name, value in record.items() if name != lines})[:-1]
    entries = ",\n".join(json.dumps(entry) for entry in record[lines])
    write_whole(path, f'{head}, "{lines}": [\n{entries}\n]}}\n')


def continued(path: Path, keys: list[str], cells: Iterable[Any], rows_of: Callable[..., Any], **form: Any) -> Any:
    """The rows of a CSV file, after those of its missing cells were computed and written, cell by cell."""
    rows = pd.DataFrame(columns=keys)
    if path.exists():
        rows = pd.read_csv(path)
    done = {*rows[keys].itertuples(index=False, name=None)}
    for cell in cells:
        if cell not in done:
            rows = pd.concat([rows, pd.DataFrame(rows_of(*cell))], ignore_index=True)
            rows.to_csv(path, index=False, **form)
    return rows


@dataclass
class Recording:
    """The record while it grows: a part that fails is noted in it, and after `seconds` no part begins."""

    out: Path
    seconds: float
    values: dict[str, Any]
    began: float = field(default_factory=time.monotonic)

    def part(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure a part, add its values and write the record."""
        if time.monotonic() - self.began > self.seconds:
            self.values.setdefault("not_begun", []).append(name)
        else:
            try:
                self.values |= measure()
            except Exception as error:  # whatever it is, the other parts are measured
                traceback.print_exc()
                self.values.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
        write_record(self.out, self.values)
        print(f"{time.monotonic() - self.began:.0f} s: {name}", flush=True)


def show(tables: Iterable[Table]) -> None:
    """Print tables."""
    console = Console(width=max(Console().width, 130))
    for title, rows, note in tables:
        grid = Grid(title=title, caption=note, title_justify="left", caption_justify="left")
        for column, value in rows[0].items():
            grid.add_column(column, no_wrap=True, justify="left" if isinstance(value, str) else "right")
        for row in rows:
            grid.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print(grid)
