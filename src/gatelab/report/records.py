"""The records of `gatelab reproduce`, as input of the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import pandas as pd
from markupsafe import Markup

from gatelab.errors import GatelabError
from gatelab.plotting.svg import themed
from gatelab.studies.claims import Claim
from gatelab.studies.records import read_claim


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """The record of one study.

    `figure` is its SVG for a page, and `origin` the device, date and time of the computation.
    """

    study: str
    title: str
    paper: str
    command: str
    quick: bool
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    origin: str
    figure: str = ""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of its paper."""
        return self.study.partition("/")[0]

    @property
    def address(self) -> str:
        """The id of its section."""
        return address(self.study)

    def numbers(self) -> dict[str, pd.DataFrame]:
        """The tables with parsed numbers."""
        return {name: pd.read_csv(StringIO(table.to_csv(index=False))) for name, table in self.tables.items()}


def address(study: str) -> str:
    """The id of a study's section.

    >>> address("ntk/appendix-d")
    'ntk-appendix-d'
    """
    return study.replace("/", "-")


def read_records(out: Path) -> dict[str, StudyRecord]:
    """The records of a folder, by study."""
    records: dict[str, StudyRecord] = {}
    for path in sorted(out.glob("*/*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise GatelabError(
                f"{path} is not a readable record ({error}); remove it and run gatelab reproduce again"
            ) from error
        if isinstance(content, dict) and {"study", "claims"} <= content.keys():
            record = _record(path, content)
            records[record.study] = record
    return records


def _record(path: Path, content: dict[str, Any]) -> StudyRecord:
    try:
        return StudyRecord(
            **{name: str(content[name]) for name in ("study", "title", "paper", "command")},
            quick=bool(content["quick"]),
            claims=tuple(read_claim(claim) for claim in content["claims"]),
            notes=tuple(str(note) for note in content["notes"]),
            origin=how_made(content),
            figure=_figure(path.with_suffix(".svg"), address(content["study"])),
            tables=dict(_tables(path, content)),
        )
    except (KeyError, TypeError, ValueError, GatelabError, ParseError) as error:
        raise GatelabError(
            f"{path} is not a record of this gatelab ({type(error).__name__}: {error}); run gatelab reproduce again"
        ) from error


def _figure(path: Path, name: str) -> str:
    """The SVG in the colors of the page; empty for a study without a figure."""
    if not path.exists():
        return ""
    return Markup(themed(path.read_text(encoding="utf-8"), name))  # of known elements


def _tables(path: Path, content: dict[str, Any]) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in content["files"]:
        file = path.with_name(Path(str(name)).name)
        if file.suffix == ".csv" and file.exists():
            # As text, to keep the digits of the file.
            yield file.stem.removeprefix(f"{path.stem}-"), pd.read_csv(file, dtype=str, keep_default_na=False)


def how_made(content: Mapping[str, Any]) -> str:
    """Device, date, time and version in one sentence.

    >>> how_made({"recorded": True, "device": "one H200", "date": "2025-11-02T10:00:00+00:00", "seconds": 5.0})
    'From the committed record: computed on one H200, 2 November 2025, in 5.0 s.'
    >>> how_made({"device": "2 cores", "seconds": 240, "gatelab": "0.8.0"})
    'Computed on 2 cores, in 4.0 min, with gatelab 0.8.0.'
    """
    parts = ["computed"]
    if content.get("device"):
        parts = [f"computed on {content['device']}"]
    if content.get("date"):
        day = datetime.fromisoformat(str(content["date"]))
        parts.append(f"{day.day} {day:%B %Y}")
    if content.get("seconds") is not None:
        seconds = float(content["seconds"])
        unit, length = next((of for of in (("h", 3600), ("min", 60)) if seconds >= 2 * of[1]), ("s", 1))
        parts.append(f"in {seconds / length:.1f} {unit}")
    if content.get("gatelab"):
        parts.append(f"with gatelab {content['gatelab']}")
    sentence = ", ".join(parts)
    if content.get("recorded"):
        return f"From the committed record: {sentence}."
    return f"{sentence[0].upper()}{sentence[1:]}."


def distinct(records: Iterable[StudyRecord]) -> dict[str, tuple[Claim, ...]]:
    """The claims of each study without those of earlier studies with the same text and values."""
    earlier: set[tuple[str, ...]] = set()
    claims: dict[str, tuple[Claim, ...]] = {}
    for record in records:
        keys = {(record.folder, c.what, c.theirs, c.ours): c for c in record.claims}
        claims[record.study] = tuple(c for key, c in keys.items() if key not in earlier)
        earlier |= set(keys)
    return claims
