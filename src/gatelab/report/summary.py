"""The claims of the papers beside what we measure: all of them with filters, and those of one study with its reasons.

The inventory says of every table and figure of the papers where it is in the report, and what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gatelab.display import counted
from gatelab.report.pages import Markup, between, escape, prose
from gatelab.report.records import StudyRecord, distinct
from gatelab.studies import Claim
from gatelab.studies.definition import VERDICTS, all_studies
from gatelab.studies.inventory import Answer, Item, answers, in_quick, namesake

ACCOUNT_COLUMNS = ("Row or panel", "Paper prints", "Ours", "Verdict", "Study")
WORDS = {"differs": "differ", "schematic": "without numbers", "missing": "not in these records"}


def accounted(items: Sequence[Item], records: Mapping[str, StudyRecord]) -> Markup:
    """A table a paper, folded; below each place its rows: the printed value, ours, the verdict of the claim on it."""
    folds = []
    answered = joined(items, records)
    for paper in dict.fromkeys(item.paper for item in items):
        own = [item for item in items if item.paper == paper]
        rows = []
        for heading in dict.fromkeys(item.heading for item in own):
            rows.append(
                f'<tr role="row" class="study"><th role="rowheader" scope="rowgroup" colspan="{len(ACCOUNT_COLUMNS)}">'
                f"{escape(heading[:1].upper() + heading[1:])}</th></tr>"
            )
            rows += [_row(item, answered.get(item), records) for item in own if item.heading == heading]
        folds.append(
            f'<details class="fold"><summary><span class="name">{escape(PAPERS.get(paper, ("", paper))[1])}</span> '
            f"{_counts(own, answered, records)}</summary>{_table(rows, f'{paper}-places', ACCOUNT_COLUMNS)}</details>"
        )
    return Markup("".join(folds))


def _counts(items: Sequence[Item], answered: Mapping[Item, Answer], records: Mapping[str, StudyRecord]) -> str:
    """What became of them, in the order of the verdicts."""
    states = Counter(_state(item, answered.get(item), records)[0] for item in items)
    return " ".join(chip(state, f"{states[state]} {WORDS.get(state, state)}") for state in SIGNS if states[state])


def how_many(items: Sequence[Item], records: Mapping[str, StudyRecord]) -> str:
    """How many there are, and how many of them have a claim in these records."""
    measurable = [item for item in items if item.measurable]
    missing, answered = sum(bool(item.missing) for item in items), len(joined(items, records))
    return (
        f"{len(items)} rows and panels, as the papers have them. {len(measurable)} can be measured, {answered} of "
        f"these are in these records, {missing} were never measured; {len(items) - len(measurable)} are definitions "
        "and pictures without numbers."
    )


def joined(items: Sequence[Item], records: Mapping[str, StudyRecord]) -> dict[Item, Answer]:
    """The claims of the records that answer for the items."""
    return answers({study: record.claims for study, record in records.items()}, items)


def _row(item: Item, answer: Answer | None, records: Mapping[str, StudyRecord]) -> str:
    ours, what = "–", Markup("")
    if answer is not None:
        ours = f"{answer.claim.ours} {answer.claim.interval}".strip()
        if answer.claim.what != item.row:
            what = between('<span class="aside">', prose(answer.claim.what), "</span>")
    cells = (
        prose(item.printed or "no number"),
        prose(ours),
        _verdict(item, answer, records),
        _link(item, answer, records),
    )
    kinds = ("value", "value", "verdict", "value")
    return (
        f'<tr role="row"><th role="rowheader" scope="row">{prose(item.row or "the whole")}{what}</th>'
        + "".join(
            f'<td role="cell" class="{kind}" data-label="{name}">{cell}</td>'
            for name, kind, cell in zip(ACCOUNT_COLUMNS[1:], kinds, cells, strict=True)
        )
        + "</tr>"
    )


def _state(item: Item, answer: Answer | None, records: Mapping[str, StudyRecord]) -> tuple[str, str]:
    """A verdict, or what stands in its place: what no study of the paper answers is a defect of ours, and is said."""
    if not item.measurable:
        return "schematic", "nothing to measure"
    if item.missing:
        return "unmeasured", "not measured"
    if answer is not None:
        return answer.claim.verdict, answer.claim.verdict
    own = [study.name for study in all_studies() if paper_of(study.name) == item.paper and not study.beyond]
    if any(name not in records for name in own):
        return "missing", "not run"
    if any(records[name].quick for name in own) and not in_quick(item):
        return "missing", "in the full run alone"
    return "missing", "missing"


def _verdict(item: Item, answer: Answer | None, records: Mapping[str, StudyRecord]) -> Markup:
    why = between('<span class="aside">', prose("; ".join(filter(None, (item.missing, item.why)))), "</span>")
    return Markup(chip(*_state(item, answer, records)) + why)


def _link(item: Item, answer: Answer | None, records: Mapping[str, StudyRecord]) -> Markup:
    """The study that answers, or the one of that figure where it was not run."""
    if answer is not None:
        study, section = answer.study, address(answer.study)
    else:
        study, section = namesake(item), "not-run"
    if not study or (answer is None and study in records):
        return Markup("–")
    return Markup(f'<a href="#{escape(section)}"><code>{escape(study)}</code></a>')


# The sign beside each verdict: colour alone would not reach everyone, nor paper.
SIGNS = {
    "reproduced": "✓",
    "exceeded": "↑",
    "differs": "≠",
    "undecided": "?",
    "new": "+",
    "missing": "○",
    "unmeasured": "–",
    "schematic": "·",
}
MEANS = {
    "reproduced": "as the paper has it",
    "exceeded": "better than the paper has it",
    "differs": "not as the paper has it, with the reason",
    "undecided": "our interval allows what the paper says and its opposite, or its formula is lost",
    "new": "the paper has nothing to compare with",
}
PAPERS = {
    "scaling": ("Scaling", "Divine Benevolence is an x²"),
    "ntk": ("Condition numbers", "The Devil is in the Condition Numbers"),
    "linearize": ("Linearisation", "Linearization of the Feed-Forward Layers in Neural Networks"),
    "ladder": ("Ladder", "Beyond the papers: units in a language model"),
    "models": ("Real models", "Blocks of real models"),
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


def filters(records: Iterable[StudyRecord], table: str) -> Markup:
    """A search, how many claims have each verdict, as buttons that show these alone, and the papers.

    They are hidden until the script is there to serve them: without it the table stands alone.
    """
    records = list(records)
    counts = Counter(claim.verdict for claims in distinct(records).values() for claim in claims)
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


def all_claims(records: Iterable[StudyRecord], table: str) -> Markup:
    """Every claim once, those of a study below its name; what a study above has shown already is counted there."""
    rows = []
    records = list(records)
    claims = distinct(records)
    for record in records:
        name = escape(record.study)
        again = ""
        if len(record.claims) > len(claims[record.study]):
            count = counted(len(record.claims) - len(claims[record.study]), "claim")
            again = f' <span class="again">{count} more, which a study above has shown</span>'
        rows.append(
            f'<tr role="row" class="study" data-heading="{name}"><th role="rowheader" scope="rowgroup" colspan="5">'
            f'<a href="#{escape(address(record.study))}">{escape(record.title)}</a> <code>{name}</code>'
            f"{again}</th></tr>"
        )
        rows += [
            f'<tr role="row" data-verdict="{escape(c.verdict)}" data-paper="{escape(paper_of(record.study))}" '
            f'data-study="{name}">{_cells(c, _why(c))}</tr>'
            for c in claims[record.study]
        ]
    return _table(rows, table)


def own_claims(record: StudyRecord) -> Markup:
    """The claims of one study, then why: a reason that several claims share is said once, with their numbers."""
    if not record.claims:
        return Markup("")
    reasons = list(dict.fromkeys(c.because for c in record.claims if c.because))
    section = escape(address(record.study))
    rows = []
    for c in record.claims:
        link = ""
        if c.because:
            place = reasons.index(c.because) + 1
            link = f' <a class="why" href="#{section}-why-{place}">why<span class="unseen"> number</span> {place}</a>'
        rows.append(f'<tr role="row">{_cells(c, Markup(link))}</tr>')
    listed = "".join(f'<li id="{section}-why-{i}">{prose(r)}</li>' for i, r in enumerate(reasons, start=1))
    because = between('<div class="reasons"><h3>Because</h3><ol>', Markup(listed), "</ol></div>")
    counts = Counter(c.verdict for c in record.claims)
    shown = " ".join(chip(v, f"{counts[v]} {v}") for v in VERDICTS if counts[v])
    return Markup(
        f'<details class="fold own"><summary><span class="name">What the paper says, and what we measure</span> {shown}'
        f"</summary>{_table(rows, f'{section}-claims')}{because}</details>"
    )


def _why(claim: Claim) -> Markup:
    return between('<details class="because"><summary>because</summary><p>', prose(claim.because), "</p></details>")


def _cells(claim: Claim, why: Markup) -> str:
    cells = ""
    for name, value in zip(COLUMNS[1:4], (claim.paper, claim.ours, claim.interval), strict=True):
        kind = "value" if value else "none"
        cells += f'<td role="cell" class="{kind}" data-label="{name}">{prose(value or "–")}</td>'
    return (
        f'<th role="rowheader" scope="row">{prose(claim.what)}</th>{cells}'
        f'<td role="cell" class="verdict" data-label="Verdict">{chip(claim.verdict)}{_outside(claim)}{why}</td>'
    )


def _outside(claim: Claim) -> Markup:
    """The mark of what was measured where a condition of the paper does not hold."""
    if not claim.outside:
        return Markup("")
    return between('<p class="outside">Outside the paper\'s conditions: ', prose(claim.outside), ".</p>")


def _table(rows: Sequence[str], place: str, columns: Sequence[str] = COLUMNS) -> Markup:
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in columns)
    return Markup(
        f'<table class="cards claims" role="table" id="{escape(place)}"><thead role="rowgroup"><tr role="row">{head}'
        f'</tr></thead><tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )
