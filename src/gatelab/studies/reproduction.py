"""Run a study and write what it gives: the figure, its tables, and the comparison with the paper."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
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
        files: The files that hold it.
        outcome: What it gave.
        seconds: How long it took.
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
    """Run a study and write what it gives into a folder named after its paper.

    The figure comes as PNG and as SVG, tables come as CSV, claims and notes as JSON. Nothing is written until the study
    has ended and everything is drawn: what was there stays until then.

    Args:
        name: The name of the study, such as "scaling/fig2".
        out: The folder below which to write.
        quick: Whether to take few widths and few points, to see that it works.
        jobs: How many processes fit at once; by default as many as there are cores.
        progress: Called after each fit with how many are finished and how many there are.
        sweep: Goes to `gatelab.scaling`: with `{"store": "runs.db"}` a second call computes only what is missing.

    Returns:
        The outcome and its files.
    """
    study = find(name)
    folder = Path(out) / Path(name).parent
    # Before the run: a study of minutes must not end at a folder that cannot be written to.
    refuse_other_records(Path(out) / f"{name}.json")
    stage = staging_folder(folder)
    try:
        began = time.perf_counter()
        outcome = study.run(Request(quick, jobs, progress, sweep or {}))
        if quick:
            outcome = replace(outcome, notes=(*outcome.notes, QUICK_NOTE))
        seconds = time.perf_counter() - began
        names = write_outcome(study, outcome, stage, quick=quick, seconds=seconds)
        files = tuple((stage / n).replace(folder / n) for n in names)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return Reproduction(name, files, outcome, seconds)


def refuse_other_records(path: Path) -> None:
    """A JSON file of the outcome's name that is no outcome, such as a record of a GPU, is not written over."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # nothing is there, or what a killed process left half written
    if not isinstance(values, dict) or "claims" not in values:
        raise GatelabError(f"{path} is no outcome of a study, and would be written over; give another folder")


def staging_folder(folder: Path) -> Path:
    """A new folder beside the results, so that moving a file from it is one step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    except OSError as error:
        raise GatelabError(
            f"{folder} cannot be written to ({error.strerror or error}); give a folder of your own as out"
        ) from error


def take_record(name: str, out: str | Path) -> dict[str, Any] | None:
    """Write what the committed tables of a study give, marked as recorded.

    Args:
        name: The name of the study.
        out: The folder, as `reproduce` is given it.

    Returns:
        What `read_outcome` gives of it, or None where no record is committed.
    """
    study = find(name)
    for folder in record_folders():
        source = folder / f"{name}.json"
        if not source.is_file():
            continue
        facts = read_outcome(source)
        target = (Path(out) / name).parent
        outcome = study.report(read_tables(source, facts["files"]))
        stage = staging_folder(target)
        try:
            kept = {key: facts[key] for key in ("command", "gatelab", "seconds", "date", "device")}
            for file in write_outcome(study, outcome, stage, quick=False, **kept, recorded=True):
                (stage / file).replace(target / file)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return read_outcome(Path(out) / f"{name}.json")
    return None


def read_tables(record: Path, files: Iterable[str]) -> dict[str, pd.DataFrame]:
    """The tables beside a record, by name; one that is not there is an error that says how to go on."""
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
    """Write the figure, the tables and last the document about them, with the facts of a record; the files' names."""
    stem = Path(study.name).name
    names = [f"{stem}{suffix}" for suffix in (".png", ".svg")]
    for name in names:
        save(outcome.figure, stage / name)
    for key, table in outcome.tables.items():
        names.append(f"{stem}-{key}.csv")
        table.to_csv(stage / names[-1], index=False)
    names.append(f"{stem}.json")
    command = f"gatelab reproduce {study.name}"
    if quick:
        command += " --quick"
    record = {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "command": command,
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
