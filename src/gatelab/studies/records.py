"""Records: results that take a GPU or hours are computed once, committed to results/, and read from there.

A record of plain values is the input of a study (`read_record`). The outcome of a whole study, as `reproduce` wrote it,
is not computed again if the same code has written it (`done_before`) or its tables are committed (`take_record`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gatelab.arrays import fingerprint
from gatelab.errors import GatelabError
from gatelab.plain import from_plain
from gatelab.studies.claims import Claim

CODE = Path(__file__).resolve().parents[1]
# In a checkout results/ lies next to src/; the wheel carries it inside the package.
COMMITTED = (CODE.parents[1] / "results", CODE / "results")


def record_folders() -> tuple[Path, ...]:
    """The folders that are searched for records: the user's own results/ first."""
    return (Path("results"), *COMMITTED)


def record_path(name: str, command: str, takes: str = "a GPU") -> Path:
    """The record of that name, such as "ntk/models.json"; an error names the `command` that makes it and its cost."""
    for folder in record_folders():
        if (folder / name).is_file():
            return folder / name
    raise GatelabError(
        f"results/{name} is missing; make it with '{command}' (it takes {takes}), or see a small version with --quick"
    )


def read_record(name: str, command: str, takes: str = "a GPU") -> dict[str, Any]:
    """A record of plain values."""
    return read_object(record_path(name, command, takes), command)


def read_object(path: Path, command: str) -> dict[str, Any]:
    """A JSON object; an error names the `command` that makes the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GatelabError(f"{path} cannot be read ({error}); copy it again, or make it with '{command}'") from error
    if not isinstance(values, dict):
        raise GatelabError(f"{path} holds {type(values).__name__}, not a record; make it with '{command}'")
    return values


def origin(record: dict[str, Any]) -> str:
    """Where and when a record was made, as a sentence for a study's notes."""
    return f"From the record of {record['date'][:10]}, made on {record['device']} by '{record['command']}'."


@cache
def code_fingerprint() -> str:
    """A hash of all code of the package."""
    parts: list[str | bytes] = []
    for path in sorted(CODE.rglob("*.py")):
        parts += [f"{path.relative_to(CODE).as_posix()}\0", path.read_bytes(), b"\0"]
    return fingerprint(parts, 16)


def read_outcome(path: Path) -> dict[str, Any]:
    """Read the JSON document that `reproduce` wrote.

    Args:
        path: Its file.

    Returns:
        The document: the study, its claims and notes, its files, and how it was made.
    """
    outcome = read_object(path, "gatelab reproduce")
    if "claims" not in outcome:
        raise GatelabError(f"{path} is not an outcome of a study; make it again with 'gatelab reproduce'")
    return outcome


def read_claim(content: Mapping[str, Any]) -> Claim:
    """A claim from the numbers of a record; its texts and its verdict are computed again."""
    return from_plain(Claim, content, "a claim")


def done_before(name: str, out: str | Path, *, quick: bool) -> dict[str, Any] | None:
    """The outcome of a study in a folder, if the same code has computed it and all its files are there.

    Args:
        name: The name of the study.
        out: The folder that `reproduce` was given.
        quick: Whether a quick run is requested, or a full one.

    Returns:
        The document of `read_outcome`, or None if the study must be computed.
    """
    path = Path(out) / f"{name}.json"
    if not path.is_file():
        return None
    try:
        outcome = read_outcome(path)
    except GatelabError:
        return None  # cut off, or another kind of file
    same = outcome.get("fingerprint") == code_fingerprint() and not outcome.get("recorded")
    whole = all((path.parent / file).is_file() for file in outcome.get("files", ()))
    if same and whole and outcome.get("quick") == quick:
        return outcome
    return None
