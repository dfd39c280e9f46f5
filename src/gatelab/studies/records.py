"""Records of what takes a GPU or hours: made once, kept in results/, and read where a study is reproduced elsewhere.

What need not be computed: a study that this very code has written already, or one whose outcome is committed.

A long study's outcome lies in results/ under the study's name, as `reproduce` wrote it, with the device and the date.
"""

from __future__ import annotations

import json
import shutil
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from gatelab.errors import GatelabError
from gatelab.files import write_whole

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


_CODE = Path(__file__).resolve().parents[1]


@cache
def fingerprint() -> str:
    """Of all code of the package: what another code has written may be something else.

    >>> len(fingerprint())
    16
    """
    whole = sha256()
    for path in sorted(_CODE.rglob("*.py")):
        whole.update(path.relative_to(_CODE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:16]


def read_outcome(path: Path) -> dict[str, Any]:
    """The JSON document that `reproduce` wrote."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GatelabError(f"{path} cannot be read ({error}); make it anew with 'gatelab reproduce'") from error
    if not isinstance(held, dict) or "claims" not in held:
        raise GatelabError(f"{path} is no outcome of a study; make it anew with 'gatelab reproduce'")
    return held


def done_before(name: str, out: str | Path, *, quick: bool) -> dict[str, Any] | None:
    """The outcome below `out`, if this very code has computed it and all its files are there."""
    path = Path(out) / f"{name}.json"
    if not path.is_file():
        return None
    try:
        held = read_outcome(path)
    except GatelabError:
        return None  # cut off or not ours: computed again
    same = held.get("fingerprint") == fingerprint() and not held.get("recorded")
    whole = all((path.parent / file).is_file() for file in held.get("files", ()))
    return held if same and whole and held.get("quick") == quick else None


def take_record(name: str, out: str | Path) -> dict[str, Any] | None:
    """Copy the committed outcome of a study below `out`, marked as such; None where there is none."""
    for place in places():
        source = place / f"{name}.json"
        if not source.is_file():
            continue
        held = {**read_outcome(source), "recorded": True}
        target = Path(out) / name
        for file in held["files"]:
            if file != source.name:
                write_whole(target.with_name(file), partial(_copy, source.with_name(file)))
        write_whole(target.with_name(source.name), json.dumps(held, indent=2, ensure_ascii=False) + "\n")
        return held
    return None


def _copy(source: Path, part: Path) -> None:
    try:
        shutil.copyfile(source, part)
    except FileNotFoundError as error:
        raise GatelabError(f"{source} is missing from the records; compute the study with --full") from error
