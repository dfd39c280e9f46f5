"""The report: everything that was reproduced, on one page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.report.accounted import accounted, counted
from gatelab.report.findings import opening
from gatelab.report.markup import Markup, escape, table
from gatelab.report.page import Section, page
from gatelab.report.records import Record, read_records
from gatelab.report.summary import PAPERS, address, all_claims, filters, own_claims, paper_of
from gatelab.studies import Study, studies
from gatelab.studies.inventory import ITEMS, Item

NAME = "report.html"
TITLE = "Three papers, measured again"
LEAD = (
    "Every table and figure of three papers on feed-forward units: what the paper says, what gatelab measures, and a "
    "verdict in words."
)
TABLE = "all-claims"


def build(out: Path, items: Sequence[Item] = ITEMS) -> Path:
    """Write `report.html` into the folder that has the records below it."""
    records = read_records(out)
    if not records:
        raise GatelabError(f"{out} holds no records; run gatelab reproduce all --out {out}, then gatelab report again")
    return write_whole(out / NAME, report(records, items))


def report(records: Mapping[str, Record], items: Sequence[Item]) -> str:
    """The page as text: what was found, a section a study, what was not run, and last the tables of all claims."""
    known = studies()
    ordered = [records[s.name] for s in known if s.name in records]
    ordered += [record for name, record in records.items() if name not in {s.name for s in known}]
    missing = [s for s in known if s.name not in records]
    sections = [_study(record) for record in ordered]
    if missing:
        sections.append(_missing(missing))
    if items:
        sections.append(_accounted(items, records))
    sections.append(_summary(ordered))
    foot = "Every number on this page is made by the commands beside it; the CSV files hold all of them."
    return page(TITLE, LEAD, sections, foot=foot, opening=opening(ordered, "summary", _remarks(ordered, missing)))


def _remarks(records: Sequence[Record], missing: Sequence[Study]) -> list[str]:
    """What a reader must know of these records before the first number: quick runs, and studies that are not there."""
    quick = [r.study for r in records if r.quick]
    remarks = []
    if quick:
        which = "All studies were" if len(quick) == len(records) else f"Of the studies {', '.join(quick)} were"
        remarks.append(f"{which} run quickly, with few sizes and points: verdicts are not those of the papers' ranges.")
    if missing:
        link = Markup(f'<a href="#not-run">{len(missing)} of {len(missing) + len(records)} studies were not run</a>')
        remarks.append(Markup(f"{link}; they are listed with their commands."))
    return remarks


def _summary(records: Sequence[Record]) -> Section:
    body = filters(records, TABLE) + all_claims(records, TABLE)
    count = sum(len(r.claims) for r in records)
    lead = f"{count} claims in {len(records)} studies: what the paper says beside what we measure."
    return Section("summary", "All claims", lead, body, part="All of it")


def _accounted(items: Sequence[Item], records: Mapping[str, Record]) -> Section:
    title = "Every table and figure of the papers"
    return Section("inventory", title, counted(items, records), accounted(items, records), part="All of it")


def _study(record: Record) -> Section:
    picture = (
        f'<figure class="picture"><img src="{escape(record.picture)}" alt="{escape(record.title)}"></figure>'
        if record.picture
        else ""
    )
    return Section(
        id=address(record.study),
        title=record.title,
        lead=f"In the paper: {record.paper}" if record.paper else "",
        body=picture + own_claims(record),
        chart=record.chart,
        tables=record.tables,
        command=record.command,
        notes=record.notes,
        part=PAPERS.get(paper_of(record.study), ("", paper_of(record.study)))[1],
        kicker=f"{record.study}{' · a quick run, few sizes and points' if record.quick else ''}",
        made=record.made,
    )


def _missing(found: Iterable[Study]) -> Section:
    rows = [(s.title, s.paper, Markup(f"<code>gatelab reproduce {escape(s.name)}</code>")) for s in found]
    body = table(("Study", "In the paper", "Command"), rows)
    return Section("not-run", "Not run", "These studies have no record in this folder.", body, part="Not run")
