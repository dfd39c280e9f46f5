"""What `gatelab reproduce` wrote, read again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from gatelab.errors import GatelabError
from gatelab.report.pages import small_picture
from gatelab.studies import Claim
from gatelab.studies.definition import VERDICTS


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """One study that was run.

    `chart` is what a script draws the figure from, where the record has it. `picture` is the figure's PNG as address:
    whole where there is no chart, else a small one for browsers that run no scripts. `origin` says how, when and where
    it was computed.
    """

    study: str
    title: str
    paper: str
    command: str
    quick: bool
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    origin: str
    chart: dict[str, Any] | None = None
    picture: str = ""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def numbers(self) -> dict[str, pd.DataFrame]:
        """The tables with numbers as numbers, as the study had them."""
        return {name: pd.read_csv(StringIO(table.to_csv(index=False))) for name, table in self.tables.items()}


def read_records(out: Path) -> dict[str, StudyRecord]:
    """Every record below the folder, by the name of its study."""
    records: dict[str, StudyRecord] = {}
    for path in sorted(out.glob("*/*.json")):
        if path.name.endswith(".chart.json"):
            continue
        content = _json(path)
        if isinstance(content, dict) and {"study", "claims"} <= content.keys():
            record = _record(path, content)
            records[record.study] = record
    return records


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GatelabError(
            f"{path} is no record that can be read ({error}); remove it and run gatelab reproduce again"
        ) from error


def _chart(path: Path) -> dict[str, Any]:
    chart = _json(path)
    if not isinstance(chart, dict) or not isinstance(chart.get("panels"), list):
        raise ValueError(f"{path.name} is no chart")
    json.dumps(chart, allow_nan=False)  # a ValueError where pages could not hold it
    return chart


def _record(path: Path, content: dict[str, Any]) -> StudyRecord:
    stem = path.name.removesuffix(".json")
    drawn, picture = path.with_name(f"{stem}.chart.json"), path.with_name(f"{stem}.png")
    try:
        return StudyRecord(
            study=str(content["study"]),
            title=str(content["title"]),
            paper=str(content["paper"]),
            command=str(content["command"]),
            quick=bool(content["quick"]),
            claims=tuple(_claim(claim) for claim in content["claims"]),
            notes=tuple(str(note) for note in content["notes"]),
            origin=how_made(content),
            chart=_chart(drawn) if drawn.exists() else None,
            picture=_address(picture, small=drawn.exists()),
            tables=dict(_tables(path, stem, content)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise GatelabError(
            f"{path} is no record of this gatelab ({type(error).__name__}: {error}); run gatelab reproduce again"
        ) from error


def _claim(content: dict[str, Any]) -> Claim:
    if content["verdict"] not in VERDICTS:
        raise ValueError(f"the verdict {content['verdict']!r} is none of {', '.join(VERDICTS)}")
    words = {name: str(content[name]) for name in ("what", "paper", "ours", "because")}
    later = {name: str(content.get(name, "")) for name in ("interval", "place", "outside")}  # older records lack them
    return Claim(**words, verdict=content["verdict"], **later)


def _tables(path: Path, stem: str, content: dict[str, Any]) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in content["files"]:
        file = path.with_name(Path(str(name)).name)
        if file.suffix == ".csv" and file.exists():
            # As text: a download has the digits of the file, not those of another way of writing them.
            yield file.stem.removeprefix(f"{stem}-"), pd.read_csv(file, dtype=str, keep_default_na=False)


def _address(picture: Path, small: bool) -> str:
    if not picture.exists():
        return ""
    if small:
        return small_picture(picture.read_bytes())
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


def how_made(content: Mapping[str, Any]) -> str:
    """How, when and where, in one sentence.

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
        parts.append(f"in {_duration(float(content['seconds']))}")
    if content.get("gatelab"):
        parts.append(f"with gatelab {content['gatelab']}")
    sentence = ", ".join(parts)
    if content.get("recorded"):
        return f"From the committed record: {sentence}."
    return f"{sentence[0].upper()}{sentence[1:]}."


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def distinct(records: Iterable[StudyRecord]) -> dict[str, tuple[Claim, ...]]:
    """The claims of each study that no study before it has made: what two studies of a paper show is one claim.

    Two are one where the title, what the paper says and what we say agree.
    """
    earlier: set[tuple[str, ...]] = set()
    claims: dict[str, tuple[Claim, ...]] = {}
    for record in records:
        paper = record.study.partition("/")[0]
        keys = {(paper, c.what, c.paper, c.ours, c.interval): c for c in record.claims}
        claims[record.study] = tuple(c for key, c in keys.items() if key not in earlier)
        earlier |= set(keys)
    return claims
