"""Records of what takes a GPU or hours: made once, kept in results/, and read where a study is reproduced elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gatelab.errors import GatelabError

# In a checkout results/ lies beside src/; the wheel carries it inside the package.
_PLACES = (Path(__file__).resolve().parents[3] / "results", Path(__file__).resolve().parents[1] / "results")


def places() -> tuple[Path, ...]:
    """Where records are looked for: the user's own results/ first."""
    return (Path("results"), *_PLACES)


def record_path(name: str, command: str) -> Path:
    """The record of that name, such as "ntk/models.json"; `command` makes it anew."""
    for place in places():
        if (place / name).is_file():
            return place / name
    raise GatelabError(
        f"there is no record results/{name}; make it with '{command}' (it takes a GPU), or see a small version with "
        "--quick"
    )


def read_record(name: str, command: str) -> dict[str, Any]:
    """A record of plain values."""
    path = record_path(name, command)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GatelabError(f"{path} is damaged ({error}); copy it again, or make it with '{command}'") from error
    if not isinstance(found, dict):
        raise GatelabError(f"{path} holds {type(found).__name__}, not a record; make it with '{command}'")
    return found


def origin(record: dict[str, Any]) -> str:
    """Where and when a record was made, as a sentence for a study's notes."""
    return f"From the record of {record['date'][:10]}, made on {record['device']} by '{record['command']}'."
