"""The first screen: what the studies found, each a sentence, a small figure and a link to the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gatelab.report.markup import Markup, escape, prose
from gatelab.report.records import VERDICTS, Record
from gatelab.report.sketch import draw
from gatelab.report.summary import address, chip
from gatelab.studies import Finding, studies


def found(records: Sequence[Record]) -> tuple[list[tuple[Record, Finding]], list[str]]:
    """The findings in the order of the papers, and a remark for each record that lacks the numbers for its own."""
    known = {study.name: study for study in studies()}
    findings: list[tuple[Record, Finding]] = []
    remarks = []
    for record in records:
        if record.study not in known:
            continue
        try:
            findings += [(record, finding) for finding in known[record.study].findings(record.numbers())]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            remarks.append(
                f"{record.study} has no finding here, since its record lacks numbers that it is made of "
                f"({type(error).__name__}: {error}); run {record.command} again."
            )
    return findings, remarks


def opening(records: Sequence[Record], table: str, remarks: Sequence[str] = ()) -> Markup:
    """The findings as cards, and below them how many claims there are, with a link to the table of all."""
    findings, lacking = found(records)
    cards = "".join(_card(record, finding, i) for i, (record, finding) in enumerate(findings))
    counts = Counter(claim.verdict for record in records for claim in record.claims)
    verdicts = " ".join(chip(verdict, f"{counts[verdict]} {verdict}") for verdict in VERDICTS if counts[verdict])
    claims = f'<a href="#{escape(table)}">{sum(counts.values())} claims in {len(records)} studies</a>'
    said = "".join(f'<p class="remark">{escape(remark)}</p>' for remark in (*remarks, *lacking))
    body = f'<div class="findings">{cards}</div>' if cards else ""
    return Markup(
        '<section id="findings" class="opening" aria-labelledby="findings-title">'
        f'<h2 id="findings-title">What was found</h2>{body}'
        f'<p class="verdicts">{claims}: {verdicts}</p>{said}</section>\n'
    )


def _card(record: Record, finding: Finding, place: int) -> str:
    quick = " A quick run: few sizes and points." if record.quick else ""
    return (
        f'<article class="finding" aria-labelledby="finding-{place}"><h3 id="finding-{place}">{escape(finding.topic)}'
        f"</h3>{draw(finding.sketch)}<p>{prose(finding.sentence)}</p>"
        f'<p class="aside">{prose(finding.sizes)}{quick}</p>'
        f'<a href="#{escape(address(record.study))}">{escape(record.title)}</a></article>'
    )
