"""The pages: the report of everything that was reproduced, the demonstration, a scorecard, a profile of a model.

The page of the demonstration has the figure, the slopes beside the paper's, and why they are what they are; that of a
scorecard says what to take and why, with the numbers side by side, the figure, and how it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gatelab.anatomy import Profile
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.plotting.chart import chart_of
from gatelab.plotting.theme import picture_address
from gatelab.report.findings import opening
from gatelab.report.pages import Markup, Section, escape, page, points, table
from gatelab.report.records import StudyRecord, read_records
from gatelab.report.summary import PAPERS, accounted, address, all_claims, filters, how_many, own_claims, paper_of
from gatelab.scorecard import Scorecard
from gatelab.scorecard.result import frame
from gatelab.studies import Study, all_studies
from gatelab.studies.demonstration import Demo, draw
from gatelab.studies.inventory import ITEMS, Item

NAME = "report.html"
TITLE = "Three papers, measured again"
LEAD = (
    "Tables and figures of three papers on feed-forward units: what the paper says, what gatelab measures, a verdict "
    "in words, and what was not measured."
)
TABLE = "all-claims"


def build(out: Path, items: Sequence[Item] = ITEMS) -> Path:
    """Write `report.html` into the folder that has the records below it.

    Args:
        out: The folder that `gatelab reproduce` wrote into.
        items: The tables and figures of the papers that the page accounts for.

    Returns:
        The path of the page.
    """
    records = read_records(out)
    if not records:
        raise GatelabError(f"{out} holds no records; run gatelab reproduce all --out {out}, then gatelab report again")
    return write_whole(out / NAME, report(records, items))


def report(records: Mapping[str, StudyRecord], items: Sequence[Item]) -> str:
    """The page as text: what was found, a section a study, what was not run, and last the tables of all claims."""
    known = all_studies()
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


def _remarks(records: Sequence[StudyRecord], missing: Sequence[Study]) -> list[str]:
    """What a reader must know of these records before the first number: quick runs, and studies that are not there."""
    quick = [r.study for r in records if r.quick]
    remarks = []
    if quick:
        which = "All studies were"
        if len(quick) < len(records):
            which = f"Of the studies {', '.join(quick)} were"
        remarks.append(f"{which} run quickly, with few sizes and points: verdicts are not those of the papers' ranges.")
    if missing:
        link = Markup(f'<a href="#not-run">{len(missing)} of {len(missing) + len(records)} studies were not run</a>')
        remarks.append(Markup(f"{link}; they are listed with their commands."))
    return remarks


def _summary(records: Sequence[StudyRecord]) -> Section:
    body = filters(records, TABLE) + all_claims(records, TABLE)
    count = sum(len(r.claims) for r in records)
    lead = f"{count} claims in {len(records)} studies: what the paper says beside what we measure."
    return Section("summary", "All claims", lead, body, part="All of it")


def _accounted(items: Sequence[Item], records: Mapping[str, StudyRecord]) -> Section:
    title = "Every table and figure of the papers"
    return Section("inventory", title, how_many(items, records), accounted(items, records), part="All of it")


def _study(record: StudyRecord) -> Section:
    picture = ""
    if record.picture and record.chart is None:
        picture = f'<figure class="picture"><img src="{escape(record.picture)}" alt="{escape(record.title)}"></figure>'
    lead, kicker = "", record.study
    if record.paper:
        lead = f"In the paper: {record.paper}"
    if record.quick:
        kicker += " · a quick run, few sizes and points"
    return Section(
        id=address(record.study),
        title=record.title,
        lead=lead,
        body=picture + own_claims(record),
        chart=record.chart,
        tables=record.tables,
        command=record.command,
        notes=record.notes,
        part=PAPERS.get(paper_of(record.study), ("", paper_of(record.study)))[1],
        kicker=kicker,
        origin=record.origin,
        picture=record.picture,
    )


def _missing(studies: Iterable[Study]) -> Section:
    rows = [(s.title, s.paper, Markup(f"<code>gatelab reproduce {escape(s.name)}</code>")) for s in studies]
    body = table(("Study", "In the paper", "Command"), rows)
    return Section("not-run", "Not run", "These studies have no record in this folder.", body, part="Not run")


NEXT = (
    "gatelab reproduce all, then gatelab report: the tables and figures of three papers on a page like this one.",
    "gatelab compare --data FILE: the units side by side on data of your own.",
    "docs/tutorial.md: from here to a unit of your own in ten minutes.",
)


def demo_page(demo: Demo, command: str = "gatelab demo") -> str:
    """The demonstration as one HTML document that needs nothing else."""
    points = demo.scaling.points
    widest = max(p.width for p in points)
    errors = {p.unit: p.test_rmse for p in points if p.width == widest}
    rows = [
        (r["unit"], *_axis(r, "n"), *_axis(r, "P"), f"{r['ratio_to_limit']:.2f}", f"{errors[r['unit']]:.1e}")
        for r in demo.slopes.to_dict("records")
    ]
    headings = ("unit", "slope in n", "paper", "slope in P", "paper", "over the limit", "test RMSE")
    body = table(headings, rows, right=(1, 2, 3, 4, 5, 6))
    figure = draw(demo.scaling)
    shown = Section(
        "slopes",
        "Slopes, and the limit",
        f"Least-squares lines through all widths with intervals of 95 %; the last two columns are at width {widest}.",
        body,
        chart_of(figure),
        {"fits": demo.scaling.table(), "slopes": demo.slopes},
        command,
        origin=f"{len(points)} networks in {demo.seconds:.1f} s.",
        picture=picture_address(figure),
    )
    why = Section("why", "Why the slopes are not the orders", demo.reason)
    lead = (
        f"{len(points)} networks of widths 1 to {widest}, trained as near to their optimum as the solvers come; "
        "errors on data they have not seen."
    )
    return page("How the error of a unit falls", lead, [shown, why, Section("next", "Next", notes=NEXT)])


def _axis(row: dict[Any, Any], axis: str) -> tuple[str, str]:
    value, low, high, paper = (row[f"{what}_{axis}"] for what in ("slope", "low", "high", "paper"))
    return with_interval(value, low, high, ".2f"), number(paper, ".2f")


def number(value: float, digits: str) -> str:
    """The value in the format, or a hyphen where there is none.

    >>> number(-2.5, ".2f"), number(math.nan, ".2f")
    ('-2.50', '-')
    """
    if math.isnan(value):
        return "-"
    return format(value, digits)


def with_interval(value: float, low: float, high: float, digits: str) -> str:
    """The value with its interval behind it, where it has one.

    >>> with_interval(-2.5, -2.7, -2.4, ".1f"), with_interval(-2.5, math.nan, math.nan, ".1f")
    ('-2.5 [-2.7, -2.4]', '-2.5')
    """
    if math.isnan(low):
        return number(value, digits)
    return f"{number(value, digits)} [{low:{digits}}, {high:{digits}}]"


LEFT_OUT, MEASURED = "Left out", "How was it measured?"


def scorecard_page(card: Scorecard, command: str = "") -> str:
    """The scorecard as one HTML document that needs nothing else."""
    facts = card.facts
    return page(
        f"{facts['problem']}: which unit?",
        f"{', '.join(card.units)} side by side on {facts['train_rows']} training and {facts['test_rows']} held-out "
        f"rows of {facts['inputs']} input{'s' * (facts['inputs'] != 1)}, at {facts['budget']} parameters.",
        [_advice(card, command), _numbers(card), _figure(card), _networks(card)],
        kicker="gatelab scorecard",
    )


def _advice(card: Scorecard, command: str) -> Section:
    title = f"Take {card.recommendation}"
    (_, (opening,)), *parts = card.sections.items()
    body = "".join(f"<h3>{heading}</h3>{points(i)}" for heading, i in parts if heading not in (LEFT_OUT, MEASURED))
    return Section("recommendation", title, opening.removeprefix(f"{title}. "), body, command=command)


def _numbers(card: Scorecard) -> Section:
    body = ""
    for heading, numbers in card.texts().items():
        rows = numbers.to_numpy().tolist()
        for row in rows:
            if row[0] == card.recommendation.unit:
                row[0] = Markup(f"<strong>{escape(row[0])}</strong>")
        body += f"<h3>{heading}</h3>{table(tuple(numbers), rows, right=range(1, numbers.shape[1]))}"
    lead = "Every unit at the largest width within the budget; intervals of rows per second are quartiles."
    notes = card.sections[MEASURED]
    return Section("numbers", "Side by side", lead, body, tables={"scorecard": card.table()}, notes=notes)


def _figure(card: Scorecard) -> Section:
    figure = card.plot()
    fits = card.scaling.table()
    picture = picture_address(figure)
    return Section("figure", "The figure", chart=chart_of(figure), tables={"fits": fits}, picture=picture)


def _networks(card: Scorecard) -> Section:
    """Every network that could have been chosen."""
    rows = [
        [n.unit, n.width, n.parameters, n.flops, f"{n.train_rmse:.3g}", str(n.rmse), str(n.ratio)]
        for n in sorted(card.networks, key=lambda n: n.rmse.value)
    ]
    headings = ("unit", "width", "parameters", "FLOPs", "training RMSE", "held-out RMSE", "of the least")
    body = table(headings, rows, right=(1, 2, 3, 4, 5, 6))
    if LEFT_OUT in card.sections:
        body = Markup(f"{body}<h3>{LEFT_OUT}</h3>{points(card.sections[LEFT_OUT])}")
    lead = (
        "Every network within the budget, the smallest error first. One that is not significantly worse than the best "
        "has 1 or less at the lower end of the last column."
    )
    return Section("networks", "All networks", lead, body, tables={"all": frame(card.networks)})


def profile_page(profile: Profile, command: str = "") -> str:
    """The profile of a model as one HTML document that needs nothing else."""
    fitted, chosen, measured = profile.tokens
    figure = profile.plot()
    losses = "nats a token" if math.isfinite(profile.loss) else "shares of the variance of the model's output"
    notes = (
        "Left: the share of the variance of a block's output that a map leaves, on test windows; 100 % less it is how "
        "linear a block is. Units are fitted within a budget of steps: what they leave is an upper bound.",
        f"Losses are in {losses}, with 95 % intervals over windows, one block changed at a time.",
        "Effective width and rank are participation ratios: of the neurons' second moments, and of the eigenvalues of "
        "the covariance. Largest and tail are single activations over their root mean square.",
    )
    numbers = Section(
        "blocks",
        "Block by block",
        f"Fitted on {fitted} tokens, chosen by {chosen}, measured on {measured} others.",
        points(profile.sentences()),
        chart_of(figure),
        {"blocks": profile.table(), "curves": profile.curves()},
        command,
        notes=notes,
        origin=f"{profile.seconds:.0f} s.",
        picture=picture_address(figure),
    )
    lead = f"{len(profile.blocks)} feed-forward blocks: what they do, and how hard they are to replace."
    return page(f"Blocks of {profile.model}", lead, [numbers], kicker="gatelab profile")
