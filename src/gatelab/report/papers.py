"""The report of all reproduced studies: findings, a section per study, and all claims and places of the papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.plotting.cards import draw_card
from gatelab.report.pages import Section, drawn, page, part, table
from gatelab.report.records import StudyRecord, address, distinct, read_records
from gatelab.studies import Study, all_studies
from gatelab.studies.inventory import ITEMS, Item, answers, in_quick, namesake

NAME = "report.html"
TITLE = "Three papers, measured again"
LEAD = (
    "Tables and figures of three papers on feed-forward units: the paper's values next to gatelab's, a verdict in "
    "words, and a list of values that were not measured."
)
FOOT = "The commands in each section compute its numbers; the CSV files contain all of them."
TABLE = "all-claims"
PAPERS = {
    "scaling": ("Scaling", "Divine Benevolence is an x²"),
    "ntk": ("Condition numbers", "The Devil is in the Condition Numbers"),
    "linearize": ("Linearization", "Linearization of the Feed-Forward Layers in Neural Networks"),
    "ladder": ("Ladder", "Beyond the papers: units in a language model"),
    "models": ("Real models", "Blocks of real models"),
}
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
        which = f"Of the studies {', '.join(quick)} were"
        if len(quick) == len(records):
            which = "All studies were"
        remarks.append(f"{which} run quickly, with few sizes, so verdicts do not apply to the papers' ranges.")
    if missing:
        link = Markup('<a href="#not-run">{} of {} studies were not run</a>; they are listed with their commands.')
        remarks.append(link.format(len(missing), len(missing) + len(records)))
    return remarks


def _study(record: StudyRecord) -> Section:
    reasons = list(dict.fromkeys(c.because for c in record.claims if c.because))
    counts = Counter(c.verdict for c in record.claims)
    return Section(
        id=record.address,
        title=record.title,
        lead=record.paper and f"In the paper: {record.paper}",
        body=part("own_claims", record, reasons, counts) if record.claims else "",
        figure=record.figure,
        tables=record.tables,
        command=record.command,
        notes=record.notes,
        part=_paper(record.folder)[1],
        kicker=record.study + " · a quick run, few sizes and points" * record.quick,
        origin=record.origin,
    )


def _paper(folder: str) -> tuple[str, str]:
    return PAPERS.get(folder, (folder, folder))


def _summary(records: Sequence[StudyRecord], claims: Mapping[str, Sequence[Any]], counts: Mapping[str, int]) -> Section:
    """Every claim once, grouped by study; repeated claims are counted."""
    again = {r.study: len(r.claims) - len(claims[r.study]) for r in records}
    rows = [(r, claims[r.study], counted(again[r.study], "claim") if again[r.study] else "") for r in records]
    papers = {r.folder: _paper(r.folder)[0] for r in records}
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
        papers.append({"name": paper, "title": _paper(paper)[1], "headings": headings, "counts": counts})
    title = "Every table and figure of the papers"
    return Section("inventory", title, lead, part("accounted", papers), part="All of it")


def _row(item: Item, answer: Any, records: Records) -> dict[str, Any]:
    state, said = _state(item, answer, records)
    row = {"item": item, "state": state, "said": said, "why": "; ".join(filter(None, (item.missing, item.why)))}
    if answer is not None:
        what = answer.claim.what
        if what == item.row:
            what = ""
        return row | {"ours": answer.claim.ours, "what": what, "study": answer.study, "section": address(answer.study)}
    study = namesake(item)
    if study in records:
        study = ""
    return row | {"ours": "–", "what": "", "study": study, "section": "not-run"}


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
