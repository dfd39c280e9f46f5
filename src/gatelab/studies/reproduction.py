"""Run a study and write its outcome: the figure, its tables, and the comparison with the paper."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from gatelab._version import __version__
from gatelab.display import Compact, Listener
from gatelab.errors import GatelabError
from gatelab.plain import to_plain
from gatelab.plotting import save
from gatelab.studies.definition import Outcome, Request
from gatelab.studies.engine import Study
from gatelab.studies.engine import study as find
from gatelab.studies.records import code_fingerprint, read_outcome, record_folders

QUICK_NOTE = "A quick run with few widths and few points: its verdicts are not those of the paper's range."


@dataclass(frozen=True, eq=False)
class Reproduction(Compact):
    """A study that was run.

    Attributes:
        study: Its name.
        files: The files that were written.
        outcome: Its figure, tables, claims and notes.
        seconds: The duration of the run.
    """

    study: str
    files: tuple[Path, ...]
    outcome: Outcome
    seconds: float


def reproduce(
    name: str,
    out: str | Path,
    *,
    quick: bool = False,
    jobs: int | None = None,
    progress: Listener | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Reproduction:
    """Run a study and write its outcome into a folder named after its paper.

    The figure is written as PNG and SVG, tables as CSV, claims and notes as JSON. Files are replaced at the end, once
    the study has finished and the figure is drawn.

    Args:
        name: The name of the study, such as "scaling/fig2".
        out: The folder below which to write.
        quick: Whether to take few widths and few points, as a test.
        jobs: The number of processes that fit at once; by default one per core.
        progress: Called after each fit with the number of finished fits and the total.
        sweep: Options of `gatelab.scaling`: with `{"store": "runs.db"}` a second call computes only missing fits.

    Returns:
        The outcome and its files.
    """
    study = find(name)
    # Before the run: a study of minutes must not end at a folder that cannot be written to.
    refuse_other_records(Path(out) / f"{name}.json")
    with staging_folder(Path(out) / Path(name).parent) as stage:
        began = time.perf_counter()
        outcome = study.run(Request(quick, jobs, progress, sweep or {}))
        if quick:
            outcome = replace(outcome, notes=(*outcome.notes, QUICK_NOTE))
        seconds = time.perf_counter() - began
        files = write_outcome(study, outcome, stage, quick=quick, seconds=seconds)
    return Reproduction(name, tuple(stage.parent / file for file in files), outcome, seconds)


def refuse_other_records(path: Path) -> None:
    """Raise if the outcome's file exists and is another kind of JSON file, such as a record made on a GPU."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # missing, or half written by a killed process
    if "claims" not in values:
        raise GatelabError(f"{path} is not an outcome of a study, and would be overwritten; give another folder")


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside the results; its files move to them at the end, and are deleted if an error is raised."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    except OSError as error:
        raise GatelabError(
            f"{folder} cannot be written to ({error.strerror or error}); give a folder of your own as out"
        ) from error
    try:
        yield stage
        for file in stage.iterdir():
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def take_record(name: str, out: str | Path) -> dict[str, Any] | None:
    """Write the outcome that follows from the committed tables of a study, marked as recorded.

    Args:
        name: The name of the study.
        out: The folder, as for `reproduce`.

    Returns:
        The document of `read_outcome`, or None if no record is committed.
    """
    study = find(name)
    source = next((file for folder in record_folders() if (file := folder / f"{name}.json").is_file()), None)
    if source is None:
        return None
    record = read_outcome(source)
    outcome = study.report(read_tables(source, record["files"]))
    facts = {key: record[key] for key in ("command", "gatelab", "seconds", "date", "device")}
    with staging_folder((Path(out) / name).parent) as stage:
        write_outcome(study, outcome, stage, quick=False, **facts, recorded=True)
    return read_outcome(Path(out) / f"{name}.json")


def read_tables(record: Path, files: Iterable[str]) -> dict[str, pd.DataFrame]:
    """The tables next to a record, by name."""
    tables = {}
    for file in files:
        if file.endswith(".csv"):
            path = record.with_name(file)
            if not path.is_file():
                raise GatelabError(f"{path} is missing from the records; compute the study with --full")
            tables[path.stem.removeprefix(f"{record.stem}-")] = pd.read_csv(path)
    return tables


def write_outcome(
    study: Study, outcome: Outcome, stage: Path, *, quick: bool, seconds: float, **facts: Any
) -> list[str]:
    """Write the figure, the tables and the document about them; the names of the files."""
    stem = Path(study.name).name
    names = [f"{stem}{suffix}" for suffix in (".png", ".svg")]
    for name in names:
        save(outcome.figure, stage / name)
    for key, table in outcome.tables.items():
        names.append(f"{stem}-{key}.csv")
        table.to_csv(stage / names[-1], index=False)
    names.append(f"{stem}.json")
    record = {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "command": f"gatelab reproduce {study.name}" + " --quick" * quick,
        "gatelab": __version__,
        "fingerprint": code_fingerprint(),
        "quick": quick,
        "seconds": round(seconds, 3),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": f"{os.cpu_count()} {platform.machine()} cores",
        "recorded": False,
        **facts,
        "claims": to_plain(outcome.claims),
        "notes": list(outcome.notes),
        "files": names,
    }
    (stage / names[-1]).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return names
