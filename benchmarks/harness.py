"""What the benchmarks share: clocks, threads, the facts and the file of a record, tables on the terminal."""

from __future__ import annotations

import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import torch

from gatelab.files import write_whole

Row = dict[str, Any]
Table = tuple[str, list[Row], str]  # title, rows, note


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call and its seconds, with all that a GPU was asked for before and by it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - began


def device_name(device: str) -> str:
    """The name of a GPU or of the processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def machine() -> str:
    """The processor and the versions that a time depends on."""
    return f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"


def facts(device: str) -> Row:
    """The date, command, device and torch of a record."""
    command = ["python", *sys.argv]
    if module := sys.modules["__main__"].__spec__:
        command[1:2] = ["-m", module.name.removesuffix(".__main__")]
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": date, "command": " ".join(command), "device": device_name(device), "torch": torch.__version__}


def write_record(path: Path, record: Row, lines: str = "") -> None:
    """Write a record as JSON; the list called `lines` has one entry per line."""
    if not lines:
        write_whole(path, json.dumps(record, indent=1) + "\n")
        return
    head = json.dumps({name: value for name, value in record.items() if name != lines})[:-1]
    entries = ",\n".join(json.dumps(entry) for entry in record[lines])
    write_whole(path, f'{head}, "{lines}": [\n{entries}\n]}}\n')


def read_record(path: Path, new: Row) -> Row:
    """The record in a JSON file, or a new one if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else new


def continued(path: Path, keys: list[str], cells: Iterable[Any], rows_of: Callable[..., Any], **form: Any) -> Any:
    """The rows of a CSV file, after those of its missing cells were computed and written, cell by cell."""
    rows = pd.DataFrame(columns=keys)
    if path.exists():
        rows = pd.read_csv(path)
    done = {*rows[keys].itertuples(index=False, name=None)}
    missing = [cell for cell in cells if cell not in done]
    for computed in joblib.Parallel(return_as="generator_unordered")(joblib.delayed(rows_of)(*c) for c in missing):
        rows = pd.concat([rows, pd.DataFrame(computed)], ignore_index=True)
        rows.to_csv(path, index=False, **form)
    return rows


@dataclass
class Recording:
    """The record while it grows: a part that fails is noted in it, and after `seconds` no part begins."""

    out: Path
    seconds: float
    values: Row
    began: float = field(default_factory=time.monotonic)

    def part(self, name: str, measure: Callable[[], Row]) -> None:
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
    for title, rows, note in tables:
        print(title, pd.DataFrame(rows).to_string(index=False, float_format="%.3g"), note, sep="\n", end="\n\n")
