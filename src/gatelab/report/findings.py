"""The first screen of the report: what the studies found, each a sentence, a small figure and a link to the study.

The small figures are SVG within the page: no script, few marks, names beside the lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gatelab.report.pages import Markup, between, escape, prose
from gatelab.report.records import StudyRecord, distinct
from gatelab.report.summary import address, chip
from gatelab.studies import Finding, Sketch, Stroke, all_studies
from gatelab.studies.definition import VERDICTS

WIDTH, HEIGHT = 280, 136
TOP, BOTTOM, LEFT, RIGHT = 18.0, 108.0, 38.0, 12.0
LETTER = 6.4  # the width of a letter at the size of the labels, with something to spare
SWATCH = 14.0  # the piece of line before a name
LINE = 13.0  # the least distance between two labels
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """Values onto pixels, logarithmic or not."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, position = self.low, self.high, value
        if self.log:
            low, high, position = math.log10(low), math.log10(high), math.log10(position)
        return self.start + (position - low) / (high - low) * (self.end - self.start)


def draw(sketch: Sketch) -> Markup:
    """The sketch as an SVG element that is as wide as its place and takes the colours of the page."""
    strokes = [stroke for stroke in sketch.strokes if stroke.x]
    names = [stroke.label for stroke in strokes if stroke.label]
    right = WIDTH - RIGHT - max((LETTER * len(name) + SWATCH for name in names), default=0.0)
    margin = 0.5 * bool(sketch.places)
    xs = [value for stroke in strokes for value in stroke.x]
    ys = [value for stroke in strokes for part in (stroke.y, stroke.low, stroke.high) for value in part]
    if sketch.level is not None:
        ys.append(sketch.level)
    x = Axis(min(xs) - margin, max(xs) + margin, LEFT, right, sketch.log_x)
    y = Axis(*_reach(ys, sketch.log_y), BOTTOM, TOP, sketch.log_y)
    parts = [
        f'<path class="axis" d="M{LEFT:g},{TOP:g}V{BOTTOM:g}H{right:.1f}"/>',
        _text(sketch.y, 2, 11, "start"),
        *_ticks(sketch, x, y, xs),
        *(_stroke(stroke, x, y) for stroke in strokes),
        *_names(strokes, x, y),
    ]
    if sketch.level is not None:
        parts.append(f'<path class="level" d="M{LEFT:g},{y(sketch.level):.1f}H{right:.1f}"/>')
    label = f"{sketch.y} against {sketch.x or 'the models'}"
    if names:
        label += f": {', '.join(dict.fromkeys(names))}"
    return Markup(
        f'<svg class="sketch" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _reach(values: Sequence[float], log: bool) -> tuple[float, float]:
    """A little more than the values take."""
    low, high = min(values), max(values)
    if log:
        spare = (high / low) ** 0.04 if high > low else 2.0
        return low / spare, high * spare
    spare = 0.06 * (high - low) or 1.0
    return low - spare, high + spare


def _ticks(sketch: Sketch, x: Axis, y: Axis, xs: Sequence[float]) -> list[str]:
    """The ends of the data below, two values at the side; places have their names, of one line or two."""
    marks = [_text(short(value), LEFT - 5, y(value) + 4, "end") for value in _two(y)]
    if sketch.places:
        for place, name in enumerate(sketch.places):
            lines = name.split("\n")
            marks += [_text(line, x(place), BOTTOM + 13 + 11 * i, "middle") for i, line in enumerate(lines)]
        return marks
    marks += [_text(short(min(xs)), x(min(xs)), BOTTOM + 13, "middle")]
    marks += [_text(short(max(xs)), x(max(xs)), BOTTOM + 13, "middle")]
    return [*marks, _text(sketch.x, (x.start + x.end) / 2, BOTTOM + 25, "middle")]


def _two(axis: Axis) -> tuple[float, ...]:
    """The outermost round values inside: powers of ten on a logarithmic axis where it has two, else round steps."""
    if axis.log:
        powers = range(math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high)) + 1)
        if len(powers) > 1:
            return 10.0 ** powers[0], 10.0 ** powers[-1]
    step = 10.0 ** math.floor(math.log10(axis.high - axis.low))
    for part in (1.0, 0.5, 0.2, 0.1):
        first, last = math.ceil(axis.low / (part * step)), math.floor(axis.high / (part * step))
        if last > first:
            return first * part * step, last * part * step
    return (axis.low,)


def short(value: float) -> str:
    """A tick in few letters.

    >>> short(50.0), short(0.25), short(1e-6), short(-20.0)
    ('50', '0.25', '10⁻⁶', '−20')
    """
    if value and not 1e-2 <= abs(value) < 1e5:
        power = math.floor(math.log10(abs(value)) + 1e-9)
        mantissa = f"{value / 10**power:.1g}"
        ten = f"10{str(power).translate(RAISED)}"
        return ten if mantissa == "1" else f"{mantissa}·{ten}"
    return f"{value:g}".replace("-", "−")


def _stroke(stroke: Stroke, x: Axis, y: Axis) -> str:
    places = [(x(a), y(b)) for a, b in zip(stroke.x, stroke.y, strict=True)]
    spans = "".join(
        f"M{px:.1f},{y(low):.1f}V{y(high):.1f}"
        for (px, _), low, high in zip(places, stroke.low, stroke.high, strict=False)
    )
    inside: str = between('<path class="span" d="', spans, '"/>')
    if stroke.marks:
        inside += "".join(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in places)
    else:
        line = "M" + "L".join(f"{px:.1f},{py:.1f}" for px, py in _thin(places))
        inside += f'<path class="{_kind(stroke)}" d="{line}"/>'
    return f'<g style="--series: {escape(stroke.colour)}">{inside}</g>'


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that are half a pixel apart or more, and both ends: a small figure shows no others."""
    apart = [points[0]]
    for point in points[1:-1]:
        if math.dist(point, apart[-1]) >= 0.5:
            apart.append(point)
    return [*apart, *points[1:][-1:]]


def _names(strokes: Sequence[Stroke], x: Axis, y: Axis) -> list[str]:
    """Each name once, beside the end of its line, and moved so far that no two touch."""
    named = {stroke.label: stroke for stroke in reversed(strokes) if stroke.label}
    order = sorted(named.values(), key=lambda stroke: y(stroke.y[-1]))
    heights = spread([y(stroke.y[-1]) for stroke in order], LINE, TOP, BOTTOM)
    return [
        f'<g style="--series: {escape(stroke.colour)}">{_swatch(stroke, x.end + 6, height)}'
        f"{_text(stroke.label, x.end + 6 + SWATCH, height + 4, 'start')}</g>"
        for stroke, height in zip(order, heights, strict=True)
    ]


def _swatch(stroke: Stroke, x: float, y: float) -> str:
    if stroke.marks:
        return f'<circle cx="{x + 5:.1f}" cy="{y:.1f}" r="3"/>'
    return f'<path class="{_kind(stroke)}" d="M{x:.1f},{y:.1f}h10"/>'


def _kind(stroke: Stroke) -> str:
    return "dashed" if stroke.dashed else "line"


def spread(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Ascending places moved as little as it takes to be `least` apart, within the ends.

    >>> spread([10.0, 12.0, 50.0], 13.0, 0.0, 100.0), spread([95.0, 99.0], 13.0, 0.0, 100.0)
    ([10.0, 23.0, 50.0], [87.0, 100.0])
    """
    moved: list[float] = []
    lowest = low
    for place in places:
        moved.append(max(place, lowest))
        lowest = moved[-1] + least
    ceiling = high
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - least
    return moved


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def found(records: Sequence[StudyRecord]) -> tuple[list[tuple[StudyRecord, Finding]], list[str]]:
    """The findings in the order of the papers, and a remark for each record that lacks the numbers for its own."""
    known = {study.name: study for study in all_studies()}
    findings: list[tuple[StudyRecord, Finding]] = []
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


def opening(records: Sequence[StudyRecord], table: str, remarks: Sequence[str] = ()) -> Markup:
    """The findings as cards, and below them how many claims there are, with a link to the table of all."""
    findings, lacking = found(records)
    cards = "".join(_card(record, finding, i) for i, (record, finding) in enumerate(findings))
    counts = Counter(claim.verdict for claims in distinct(records).values() for claim in claims)
    verdicts = " ".join(chip(verdict, f"{counts[verdict]} {verdict}") for verdict in VERDICTS if counts[verdict])
    claims = f'<a href="#{escape(table)}">{sum(counts.values())} claims in {len(records)} studies</a>'
    sentences = "".join(f'<p class="remark">{escape(remark)}</p>' for remark in (*remarks, *lacking))
    body = between('<div class="findings">', Markup(cards), "</div>")
    return Markup(
        '<section id="findings" class="opening" aria-labelledby="findings-title">'
        f'<h2 id="findings-title">What was found</h2>{body}'
        f'<p class="verdicts">{claims}: {verdicts}</p>{sentences}</section>\n'
    )


def _card(record: StudyRecord, finding: Finding, place: int) -> str:
    quick = " A quick run: few sizes and points." if record.quick else ""
    return (
        f'<article class="finding" aria-labelledby="finding-{place}"><h3 id="finding-{place}">{escape(finding.topic)}'
        f"</h3>{draw(finding.sketch)}<p>{prose(finding.sentence)}</p>"
        f'<p class="aside">{prose(finding.sizes)}{quick}</p>'
        f'<a href="#{escape(address(record.study))}">{escape(record.title)}</a></article>'
    )
