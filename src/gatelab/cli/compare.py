"""`gatelab compare`: units side by side on one's own rows, and which to take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Json, SampleOptions, Words, grouped, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError, real_number
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.scorecard import Scorecard

COMPARE = """Examples: gatelab compare glu gqu relu2 --data mine.csv

gatelab compare --data houses.csv --target price --inputs rooms,age --out card.html

gatelab compare mlp swiglu friedman1 --budget 120 --json"""


@dataclass(frozen=True)
class ComparedData(SampleOptions):
    """The data that units are compared on; a formula has some hundreds of points, as tables have."""

    points: Annotated[int | None, typer.Option(help="Training points of a formula.", show_default="400")] = None


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured, as `compare` takes it."""

    rows: Annotated[int, typer.Option(min=20, help="At most so many training rows, drawn by a fixed seed.")] = 1000
    budget: Annotated[
        int | None, typer.Option(min=1, help="Parameters.", show_default="a quarter of the values, 160 at most")
    ] = None
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3
    features: Annotated[int, typer.Option(min=1, help="Features m of the linearization.")] = 64
    loss: Annotated[float, typer.Option(help="Share of the variance left to which steps are predicted.")] = 0.1
    d_model: Annotated[int, typer.Option(min=1, help="Size of the block that is timed.")] = 128


@grouped
def compare_command(
    *,
    context: typer.Context,
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu,gqu,relu2,swiglu")] = None,
    source: ComparedData,
    widths: Annotated[
        str | None, typer.Option(metavar="1:8 | 2,4,8", help="Widths of every unit.", show_default="by parameters")
    ] = None,
    measured: MeasureOptions,
    out: Annotated[Path | None, typer.Option(help="Write the page, .html, or its figure, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Compare units on your data: which one to take, how sure that is, why, and what it costs."""
    check_file(out, (".html", *PICTURES))
    names, word = reading.units(words, unit)
    from gatelab.scorecard import UNITS, compare
    from gatelab.scorecard.fits import POINTS

    if source.points is None and source.data is None:
        source = replace(source, points=POINTS)
    problem = source.problem(word)
    sizes = reading.widths(widths) if widths else None
    real_number("loss", measured.loss, above=0, below=1)
    if not names and word is None and source.data is None:
        raise GatelabError("nothing is given to compare on; give --data FILE, a problem or a formula, or some units")
    with output.progress("comparing") as report:
        card = compare(names or UNITS, problem, widths=sizes, progress=report, **vars(measured))
    if out and out.suffix.lower() == ".html":
        from gatelab.report.builders import scorecard_page

        write_whole(out, scorecard_page(card, output.command_line(context)).encode())
    elif out:
        card.plot(out)
    if as_json:
        output.document({**_numbers(card), "advice": card.sections, "files": output.asked_for(out)})
        return
    _print(card)
    output.say_written(out)


def _numbers(card: Scorecard) -> dict[str, Any]:
    """All numbers; an interval is three of them."""
    from gatelab.scorecard.result import frame

    r = card.recommendation
    chosen = {"unit": r.unit, "width": r.width, "parameters": r.parameters, "regime": r.regime, "equals": r.equals}
    frames = {"scores": card.table(), "networks": frame(card.networks), "left_out": card.left_out()}
    tables = {name: numbers.to_dict("records") for name, numbers in frames.items()}
    return {**card.facts, "recommendation": chosen, **tables, "scaling": card.scaling}


def _print(card: Scorecard) -> None:
    """The advice, the numbers of the units, and how they were measured."""
    (_, opening), *parts, (measured, how) = card.sections.items()
    output.say(*opening)
    for heading, items in parts:
        output.say("", heading)
        output.points(items)
    for heading, numbers in card.texts().items():
        output.say("", heading, "")
        wrapped = [i for i, name in enumerate(numbers) if numbers[name].str.contains("[", regex=False).any()]
        right = [i for i in range(1, numbers.shape[1]) if i not in wrapped]
        output.table(tuple(numbers), numbers.to_numpy().tolist(), right=right, wrap=wrapped)
    output.say("", measured)
    output.points(how)
