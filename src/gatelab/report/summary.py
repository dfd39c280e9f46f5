"""Claims beside ours: the table of all of them with its filters, and that of one study with its reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gatelab.report.markup import Markup, escape, prose
from gatelab.report.records import VERDICTS, Record
from gatelab.studies import Claim

# The sign beside each verdict: colour alone would not reach everyone, nor paper.
SIGNS = {"reproduced": "✓", "exceeded": "↑", "differs": "≠", "new": "+", "missing": "○", "schematic": "·"}
MEANS = {
    "reproduced": "as the paper has it",
    "exceeded": "better than the paper has it",
    "differs": "not as the paper has it, with the reason",
    "new": "the paper has nothing to compare with",
}
PAPERS = {
    "scaling": ("Scaling", "Divine Benevolence is an x²"),
    "ntk": ("Condition numbers", "The Devil is in the Condition Numbers"),
    "linearize": ("Linearisation", "Linearization of the Feed-Forward Layers in Neural Networks"),
}
COLUMNS = ("Claim", "Paper", "Ours", "Interval", "Verdict")


def paper_of(study: str) -> str:
    return study.split("/")[0]


def address(study: str) -> str:
    """The id of a study's section.

    >>> address("ntk/appendix-d")
    'ntk-appendix-d'
    """
    return study.replace("/", "-")


def chip(verdict: str, text: str = "") -> Markup:
    sign = SIGNS.get(verdict, "")
    return Markup(
        f'<span class="chip {escape(verdict)}"><span aria-hidden="true">{sign}</span> {escape(text or verdict)}</span>'
    )


def filters(records: Iterable[Record], table: str) -> Markup:
    """A search, how many claims have each verdict, as buttons that show these alone, and the papers.

    They are hidden until the script is there to serve them: without it the table stands alone.
    """
    records = list(records)
    counts = Counter(claim.verdict for record in records for claim in record.claims)
    tiles = "".join(
        f'<button type="button" class="tile {v}" data-key="verdict" data-value="{v}" aria-pressed="false">'
        f'<span class="count">{counts[v]}</span> {chip(v)}<span class="means">{MEANS[v]}</span></button>'
        for v in VERDICTS
    )
    papers = "".join(
        f'<button type="button" data-key="paper" data-value="{escape(p)}" aria-pressed="false">'
        f"{escape(PAPERS.get(p, (p, ''))[0])}</button>"
        for p in dict.fromkeys(paper_of(r.study) for r in records)
    )
    return Markup(
        f'<div data-filter="{escape(table)}" hidden><div class="search"><label for="{escape(table)}-search">Search the '
        f'claims</label><input type="search" id="{escape(table)}-search" data-search autocomplete="off" '
        f'aria-controls="{escape(table)}"></div><div class="tiles" role="group" aria-label="Show one verdict">{tiles}'
        f'</div><div class="line"><span class="switch" role="group" aria-label="Show one paper">{papers}</span>'
        f'<span class="count-said" data-count></span>'
        '<button type="button" class="quiet" data-clear hidden>Show all</button></div></div>'
    )


def all_claims(records: Iterable[Record], table: str) -> Markup:
    """Every claim of every study, those of a study below its name."""
    rows = []
    for record in records:
        at = escape(record.study)
        rows.append(
            f'<tr role="row" class="study" data-heading="{at}"><th role="rowheader" scope="rowgroup" colspan="5">'
            f'<a href="#{escape(address(record.study))}">{escape(record.title)}</a> <code>{at}</code></th></tr>'
        )
        rows += [
            f'<tr role="row" data-verdict="{escape(c.verdict)}" data-paper="{escape(paper_of(record.study))}" '
            f'data-study="{at}">{_cells(c, _why(c))}</tr>'
            for c in record.claims
        ]
    return _table(rows, table)


def own_claims(record: Record) -> Markup:
    """The claims of one study, then why: a reason that several claims share is said once, with their numbers."""
    if not record.claims:
        return Markup("")
    reasons = list(dict.fromkeys(c.because for c in record.claims if c.because))
    at = address(record.study)
    rows = []
    for c in record.claims:
        place = reasons.index(c.because) + 1 if c.because else 0
        link = f' <a class="why" href="#{escape(at)}-why-{place}">why<span class="unseen"> number</span> {place}</a>'
        rows.append(f'<tr role="row">{_cells(c, Markup(link if place else ""))}</tr>')
    listed = "".join(f'<li id="{escape(at)}-why-{i}">{prose(r)}</li>' for i, r in enumerate(reasons, start=1))
    said = f'<div class="reasons"><h3>Because</h3><ol>{listed}</ol></div>' if reasons else ""
    counts = Counter(c.verdict for c in record.claims)
    shown = " ".join(chip(v, f"{counts[v]} {v}") for v in VERDICTS if counts[v])
    return Markup(
        f'<details class="fold own"><summary><span class="name">What the paper says, and what we measure</span> {shown}'
        f"</summary>{_table(rows, f'{at}-claims')}{said}</details>"
    )


def _why(claim: Claim) -> Markup:
    if not claim.because:
        return Markup("")
    return Markup(f'<details class="because"><summary>because</summary><p>{prose(claim.because)}</p></details>')


def _cells(claim: Claim, why: Markup) -> str:
    values = (claim.paper, claim.ours, claim.interval)
    cells = "".join(
        f'<td role="cell" class="{"value" if value else "none"}" data-label="{name}">{prose(value or "–")}</td>'
        for name, value in zip(COLUMNS[1:4], values, strict=True)
    )
    return (
        f'<th role="rowheader" scope="row">{prose(claim.what)}</th>{cells}'
        f'<td role="cell" class="verdict" data-label="Verdict">{chip(claim.verdict)}{why}</td>'
    )


def _table(rows: Sequence[str], at: str) -> Markup:
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in COLUMNS)
    return Markup(
        f'<table class="cards claims" role="table" id="{escape(at)}"><thead role="rowgroup"><tr role="row">{head}</tr>'
        f'</thead><tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )
