"""The report of all reproduced studies: findings, a section per study, and all claims and places of the papers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import pandas as pd
from markupsafe import Markup

from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.plotting.cards import draw_card
from gatelab.plotting.svg import themed
from gatelab.report.pages import Section, drawn, page, part, table
from gatelab.studies import Study, all_studies
from gatelab.studies.claims import Claim
from gatelab.studies.inventory import ITEMS, Item, answers, in_quick, namesake
from gatelab.studies.records import read_claim

NAME = "report.html"
TITLE = "Three papers, measured again"
LEAD = "Tables and figures of three papers on feed-forward units: their values, ours, verdicts, and what is missing."
FOOT = "The commands in each section compute its numbers; the CSV files contain all of them."
TABLE = "all-claims"
PAPERS = {
    "scaling": ("Scaling", "Divine Benevolence is an x²"),
    "ntk": ("Condition numbers", "The Devil is in the Condition Numbers"),
    "linearize": ("Linearization", "Linearization of the Feed-Forward Layers in Neural Networks"),
    "ladder": ("Ladder", "Beyond the papers: units in a language model"),
    "models": ("Real models", "Blocks of real models"),
}


# ---- the records of `gatelab reproduce`


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """The record of one study, with the SVG of its figure for a page."""

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
        return self.study.partition("/")[0]

    @property
    def address(self) -> str:
        """The id of its section."""
        return address(self.study)

    def numbers(self) -> dict[str, pd.DataFrame]:
        """The tables with parsed numbers."""
        return {name: pd.read_csv(StringIO(table.to_csv(index=False))) for name, table in self.tables.items()}


def address(study: str) -> str:
    """The id of a study's section."""
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
    svg = path.with_suffix(".svg")
    try:
        return StudyRecord(
            **{name: str(content[name]) for name in ("study", "title", "paper", "command")},
            quick=bool(content["quick"]),
            claims=tuple(read_claim(claim) for claim in content["claims"]),
            notes=tuple(str(note) for note in content["notes"]),
            origin=how_made(content),
            figure=Markup(themed(svg.read_text(encoding="utf-8"), address(content["study"]))) if svg.exists() else "",
            # As text, to keep the digits of the file.
            tables={
                file.stem.removeprefix(f"{path.stem}-"): pd.read_csv(file, dtype=str, keep_default_na=False)
                for name in content["files"]
                if (file := path.with_name(Path(str(name)).name)).suffix == ".csv" and file.exists()
            },
        )
    except (KeyError, TypeError, ValueError, GatelabError, ParseError) as error:
        raise GatelabError(
            f"{path} is not a record of this gatelab ({type(error).__name__}: {error}); run gatelab reproduce again"
        ) from error


def how_made(content: Mapping[str, Any]) -> str:
    """Device, date, time and version in one sentence.

    >>> how_made({"device": "2 cores", "seconds": 240, "gatelab": "0.8.0"})
    'Computed on 2 cores, in 4.0 min, with gatelab 0.8.0.'
    """
    parts = [f"computed on {content['device']}" if content.get("device") else "computed"]
    if content.get("date"):
        day = datetime.fromisoformat(str(content["date"]))
        parts.append(f"{day.day} {day:%B %Y}")
    if content.get("seconds") is not None:
        seconds = float(content["seconds"])
        unit, length = next((of for of in (("h", 3600), ("min", 60)) if seconds >= 2 * of[1]), ("s", 1))
        parts.append(f"in {seconds / length:.1f} {unit}")
    if content.get("gatelab"):
        parts.append(f"with gatelab {content['gatelab']}")
    sentence = f"{', '.join(parts)}."
    return f"From the committed record: {sentence}" if content.get("recorded") else f"C{sentence[1:]}"


def distinct(records: Iterable[StudyRecord]) -> dict[str, tuple[Claim, ...]]:
    """The claims of each study without those of earlier studies with the same text and values."""
    earlier: set[tuple[str, ...]] = set()
    claims: dict[str, tuple[Claim, ...]] = {}
    for record in records:
        keys = {(record.folder, c.what, c.theirs, c.ours): c for c in record.claims}
        claims[record.study] = tuple(c for key, c in keys.items() if key not in earlier)
        earlier |= set(keys)
    return claims


# ---- the page

Records = Mapping[str, StudyRecord]


def build(out: Path, items: Sequence[Item] = ITEMS) -> Path:
    """Write `report.html` into a folder of records.

    Args:
        out: The folder of `gatelab reproduce`.
        items: The tables and figures of the papers that the page lists.

    Returns:
        The path of the page.
    """
    records = read_records(out)
    if not records:
        raise GatelabError(f"{out} holds no records; run gatelab reproduce all --out {out}, then gatelab report again")
    return write_whole(out / NAME, report(records, items))


def report(records: Records, items: Sequence[Item]) -> str:
    """The page as text: findings, a section per study, studies that were not run, and tables of all claims."""
    known = all_studies()
    ordered = [records[s.name] for s in known if s.name in records]
    ordered += [record for name, record in records.items() if name not in {s.name for s in known}]
    missing = [s for s in known if s.name not in records]
    sections = [_study(record) for record in ordered]
    if missing:
        rows = [(s.title, s.paper, Markup("<code>gatelab reproduce {}</code>").format(s.name)) for s in missing]
        body = table(("Study", "In the paper", "Command"), rows)
        sections.append(
            Section("not-run", "Not run", "These studies have no record in this folder.", body, part="Not run")
        )
    if items:
        sections.append(_accounted(items, records))
    claims = distinct(ordered)
    counts = Counter(claim.verdict for own in claims.values() for claim in own)
    sections.append(_summary(ordered, claims, counts))
    findings, lacking = found(ordered)
    opening = part("opening", findings, counts, len(ordered), [*_remarks(ordered, missing), *lacking])
    return page(TITLE, LEAD, sections, foot=FOOT, opening=opening)


def found(records: Sequence[StudyRecord]) -> tuple[list[dict[str, Any]], list[str]]:
    """The findings in the order of the papers, and a remark for each record without the numbers for one."""
    known = {study.name: study for study in all_studies()}
    findings: list[dict[str, Any]] = []
    remarks = []
    for record in records:
        if record.study not in known:
            continue
        try:
            own = known[record.study].findings(record.numbers())
            for finding in own:
                small = draw_card(finding.facets, finding.tables)
                texts = {name: getattr(finding, name) for name in ("topic", "sentence", "sizes")}
                place = {"title": record.title, "address": record.address, "quick": record.quick}
                findings.append(texts | place | {"figure": drawn(small, f"finding-{len(findings)}")})
        except (KeyError, IndexError, ValueError, TypeError, GatelabError) as error:
            remarks.append(
                f"{record.study} has no finding here, since its record lacks the necessary numbers "
                f"({type(error).__name__}: {error}); run {record.command} again."
            )
    return findings, remarks


def _remarks(records: Sequence[StudyRecord], missing: Sequence[Study]) -> list[str]:
    """Remarks about quick runs and missing studies."""
    quick = [r.study for r in records if r.quick]
    remarks = []
    if quick:
        which = ("All studies were", f"Of the studies {', '.join(quick)} were")[len(quick) < len(records)]
        remarks.append(f"{which} run quickly, with few sizes, so verdicts do not apply to the papers' ranges.")
    if missing:
        link = Markup('<a href="#not-run">{} of {} studies were not run</a>; they are listed with their commands.')
        remarks.append(link.format(len(missing), len(missing) + len(records)))
    return remarks


def _study(record: StudyRecord) -> Section:
    reasons = list(dict.fromkeys(c.because for c in record.claims if c.because))
    return Section(
        id=record.address,
        title=record.title,
        lead=record.paper and f"In the paper: {record.paper}",
        body=part("own_claims", record, reasons, Counter(c.verdict for c in record.claims)) if record.claims else "",
        figure=record.figure,
        tables=record.tables,
        command=record.command,
        notes=record.notes,
        part=PAPERS.get(record.folder, ("", record.folder))[1],
        kicker=record.study + " · a quick run, few sizes and points" * record.quick,
        origin=record.origin,
    )


def _summary(records: Sequence[StudyRecord], claims: Mapping[str, Sequence[Any]], counts: Mapping[str, int]) -> Section:
    """Every claim once, grouped by study; repeated claims are counted."""
    again = {r.study: len(r.claims) - len(claims[r.study]) for r in records}
    rows = [(r, claims[r.study], counted(again[r.study], "claim") if again[r.study] else "") for r in records]
    papers = {r.folder: PAPERS.get(r.folder, (r.folder, ""))[0] for r in records}
    lead = f"{sum(len(r.claims) for r in records)} claims in {len(records)} studies: the paper's numbers next to ours."
    body = part("filters", TABLE, counts, papers) + part("all_claims", TABLE, rows)
    return Section("summary", "All claims", lead, body, part="All of it")


def _accounted(items: Sequence[Item], records: Records) -> Section:
    """Every place of the papers: the printed value, ours, and the verdict of its claim."""
    claims: dict[str, Any] = {study: record.claims for study, record in records.items()}
    answered = answers(claims, items)
    measurable, missing = sum(item.measurable for item in items), sum(bool(item.missing) for item in items)
    lead = (
        f"{len(items)} rows and panels, as the papers have them. {measurable} can be measured, {len(answered)} of "
        f"these are in these records, {missing} were never measured; {len(items) - measurable} are definitions "
        "and pictures without numbers."
    )
    papers = []
    for paper in dict.fromkeys(item.paper for item in items):
        rows = [_row(item, answered.get(item), records) for item in items if item.paper == paper]
        headings: dict[str, list[Any]] = {}
        for row in rows:
            headings.setdefault(row["item"].heading, []).append(row)
        counts = Counter(row["state"] for row in rows)
        papers.append({"name": paper, "title": PAPERS[paper][1], "headings": headings, "counts": counts})
    title = "Every table and figure of the papers"
    return Section("inventory", title, lead, part("accounted", papers), part="All of it")


def _row(item: Item, answer: Any, records: Records) -> dict[str, Any]:
    state, said = _state(item, answer, records)
    row = {"item": item, "state": state, "said": said, "why": "; ".join(filter(None, (item.missing, item.why)))}
    if answer is not None:
        what = "" if answer.claim.what == item.row else answer.claim.what
        return row | {"ours": answer.claim.ours, "what": what, "study": answer.study, "section": address(answer.study)}
    study = namesake(item)
    return row | {"ours": "–", "what": "", "study": study * (study not in records), "section": "not-run"}


def _state(item: Item, answer: Any, records: Records) -> tuple[str, str]:
    """The verdict, or the reason for its absence."""
    if not item.measurable:
        return "schematic", "nothing to measure"
    if item.missing:
        return "unmeasured", "not measured"
    if answer is not None:
        return answer.claim.verdict, answer.claim.verdict
    own = [study.name for study in all_studies() if study.name.startswith(f"{item.paper}/") and not study.beyond]
    if any(name not in records for name in own):
        return "missing", "not run"
    if any(records[name].quick for name in own) and not in_quick(item):
        return "missing", "in the full run alone"
    return "missing", "missing"
