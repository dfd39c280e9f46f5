"""`gatelab compare`: units compared on your data, with a recommendation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, SampleOptions, Seeds, Words, option, out_option, unit_option
from gatelab.errors import GatelabError
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.scorecard import Scorecard

COMPARE = """Examples: gatelab compare glu gqu relu2 --data mine.csv
gatelab compare --data houses.csv --target price --inputs rooms,age --out card.html
gatelab compare mlp swiglu friedman1 --budget 120 --plot card.png --json"""


@dataclass(frozen=True)
class ComparedData(SampleOptions):
    """The data of the comparison; formulas have some hundreds of points, as tables do."""

    points: Annotated[int | None, option("Training points of a formula.", default="400")] = None


@dataclass(frozen=True)
class MeasureOptions:
    """The measurements, as arguments of `compare`."""

    rows: Annotated[int, option("Maximal number of training rows, drawn by a fixed seed.", min=20)] = 1000
    budget: Annotated[int | None, option("Parameters.", min=1, default="a quarter of the values, 160 at most")] = None
    seeds: Seeds = 3
    features: Annotated[int, option("Features of the linearization.", min=1)] = 64
    loss: Annotated[float, option("Remaining share of the variance at which training steps are predicted.")] = 0.1
    d_model: Annotated[int, option("Size of the block that is timed.", min=1)] = 128


def compare_command(
    *,
    context: typer.Context,
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu,gqu,relu2,swiglu")] = None,
    source: ComparedData,
    widths: Annotated[str | None, option("Widths, such as 1:8 or 2,4,8.", default="by parameters")] = None,
    measured: MeasureOptions,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the page, .html.", ".html")] = None,
) -> None:
    """Compare units on your data: a recommendation, its certainty, the reasons and the costs."""
    names, word = reading.units(words, unit)
    from gatelab.scorecard import UNITS, compare
    from gatelab.scorecard.fits import POINTS

    if source.points is None and source.data is None:
        source = replace(source, points=POINTS)
    problem = source.problem(word)
    sizes = reading.widths(widths) if widths else None
    if not names and word is None and source.data is None:
        raise GatelabError("no data are given; give --data FILE, a problem or a formula, or some units")
    with output.progress("measurements") as report:
        card = compare(names or UNITS, problem, widths=sizes, progress=report, **vars(measured))
    if out:
        from gatelab.report.builders import scorecard_page

        write_whole(out, scorecard_page(card, output.command_line(context)))
    output.write(card, plot)
    output.emit({**_numbers(card), "advice": card.sections}, *_parts(card), files=(out, plot))


def _numbers(card: Scorecard) -> dict[str, Any]:
    """All numbers; an interval is three of them."""
    from gatelab.scorecard.result import frame

    r = card.recommendation
    chosen = {"unit": r.unit, "width": r.width, "parameters": r.parameters, "regime": r.regime, "equals": r.equals}
    frames = {"scores": card.table(), "networks": frame(card.networks), "left_out": card.left_out()}
    tables = {name: numbers.to_dict("records") for name, numbers in frames.items()}
    return {**card.facts, "recommendation": chosen, **tables, "scaling": card.scaling}


def _parts(card: Scorecard) -> Iterator[output.Part]:
    """The advice, the numbers of the units, and how they were measured."""
    (_, opening), *parts, (measured, how) = card.sections.items()
    yield from opening
    for heading, items in parts:
        yield from ("", heading, output.points(items))
    for heading, numbers in card.texts().items():
        yield from ("", heading, "", output.table(numbers))
    yield from ("", measured, output.points(how))
