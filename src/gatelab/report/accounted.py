"""Every table and figure of the papers: where it is in the report, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gatelab.report.markup import Markup, escape, prose
from gatelab.report.records import Record
from gatelab.report.summary import PAPERS, SIGNS, address, chip
from gatelab.studies import Claim
from gatelab.studies.inventory import Item, in_quick

COLUMNS = ("Row or panel", "Paper prints", "Ours", "Verdict", "Study")
WORDS = {"differs": "differ", "schematic": "without numbers", "missing": "not in these records"}


def accounted(items: Sequence[Item], records: Mapping[str, Record]) -> Markup:
    """A table a paper, folded; below each place its rows: the printed value, ours, the verdict of the claim on it."""
    made = []
    for paper in dict.fromkeys(item.paper for item in items):
        own = [item for item in items if item.paper == paper]
        rows = []
        for place in dict.fromkeys(item.place for item in own):
            rows.append(
                f'<tr role="row" class="study"><th role="rowheader" scope="rowgroup" colspan="{len(COLUMNS)}">'
                f"{escape(place[:1].upper() + place[1:])}</th></tr>"
            )
            rows += [_row(item, records) for item in own if item.place == place]
        made.append(
            f'<details class="fold"><summary><span class="name">{escape(PAPERS.get(paper, ("", paper))[1])}</span> '
            f"{_counts(own, records)}</summary>{_table(rows)}</details>"
        )
    return Markup("".join(made))


def _counts(items: Sequence[Item], records: Mapping[str, Record]) -> str:
    """What became of them, in the order of the verdicts."""
    found = Counter(_state(item, records)[0] for item in items)
    return " ".join(chip(state, f"{found[state]} {WORDS.get(state, state)}") for state in SIGNS if found[state])


def counted(items: Sequence[Item], records: Mapping[str, Record]) -> str:
    """How many there are, and how many of them have a claim in these records."""
    measured = [item for item in items if item.claim]
    found = sum(answer(item, records) is not None for item in measured)
    return (
        f"{len(items)} rows and panels, as the papers have them. {len(measured)} can be measured, {found} of these are "
        f"in these records; {len(items) - len(measured)} are definitions and pictures without numbers."
    )


def answer(item: Item, records: Mapping[str, Record]) -> Claim | None:
    """The claim that answers for the item, if its study was run and makes it."""
    claims = records[item.study].claims if item.study in records else ()
    return next((claim for claim in claims if claim.what == item.claim), None)


def _row(item: Item, records: Mapping[str, Record]) -> str:
    claim = answer(item, records)
    ours = "–" if claim is None else f"{claim.ours} {claim.interval}".strip()
    what = f'<span class="aside">{prose(item.claim)}</span>' if item.claim and item.claim != item.row else ""
    cells = (prose(item.printed or "–"), prose(ours), _verdict(item, records), _link(item, records))
    return (
        f'<tr role="row"><th role="rowheader" scope="row">{prose(item.row or "the whole")}{what}</th>'
        + "".join(
            f'<td role="cell" class="{"verdict" if name == "Verdict" else "value"}" data-label="{name}">{cell}</td>'
            for name, cell in zip(COLUMNS[1:], cells, strict=True)
        )
        + "</tr>"
    )


def _state(item: Item, records: Mapping[str, Record]) -> tuple[str, str]:
    """A verdict, or what stands in its place: a claim that a full run lacks is a defect of ours and is said."""
    if not item.claim:
        return "schematic", "nothing to measure"
    claim = answer(item, records)
    if claim is not None:
        return claim.verdict, claim.verdict
    if item.study not in records:
        return "missing", "not run"
    return "missing", "in the full run alone" if records[item.study].quick and not in_quick(item) else "missing"


def _verdict(item: Item, records: Mapping[str, Record]) -> Markup:
    why = f'<span class="aside">{prose(item.why)}</span>' if item.why else ""
    return Markup(chip(*_state(item, records)) + why)


def _link(item: Item, records: Mapping[str, Record]) -> Markup:
    if not item.study:
        return Markup("–")
    name = Markup(f"<code>{escape(item.study)}</code>")
    at = address(item.study) if item.study in records else "not-run"
    return Markup(f'<a href="#{escape(at)}">{name}</a>')


def _table(rows: Sequence[str]) -> str:
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in COLUMNS)
    return (
        f'<table class="cards claims" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )
