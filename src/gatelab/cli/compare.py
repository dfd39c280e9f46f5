"""`gatelab compare`: units side by side on one's own rows, and which to take."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Json, SampleOptions, Words, grouped, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.scorecard import Line, Score, Scorecard

COMPARE = """Examples: gatelab compare glu gqu relu2 --data mine.csv

gatelab compare --data houses.csv --target price --inputs rooms,age --out card.html

gatelab compare mlp swiglu friedman1 --budget 120 --json"""
DEFAULTS = {"noise": reading.NOISE, "rows": 1000, "seeds": 3, "features": 64, "loss": 0.1, "d-model": 128}


@dataclass(frozen=True)
class ComparedData(SampleOptions):
    """The data that units are compared on; a formula has some hundreds of points, as tables have."""

    points: Annotated[int | None, typer.Option(help="Training points of a formula.", show_default="400")] = None


@grouped
def compare_command(
    *,
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu,gqu,relu2,swiglu")] = None,
    source: ComparedData,
    rows: Annotated[int, typer.Option(min=20, help="At most so many training rows, drawn by a fixed seed.")] = 1000,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Parameters.", show_default="a quarter of the values, 160 at most")
    ] = None,
    widths: Annotated[
        str | None, typer.Option(metavar="1:8 | 2,4,8", help="Widths of every unit.", show_default="by parameters")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    features: Annotated[int, typer.Option(min=1, help="Features m of the linearisation.")] = 64,
    loss: Annotated[float, typer.Option(help="Share of the variance left to which steps are predicted.")] = 0.1,
    d_model: Annotated[int, typer.Option(min=1, help="Size of the block that is timed.")] = 128,
    out: Annotated[Path | None, typer.Option(help="Write the page, .html, or its figure, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Hold units against each other on your data, and say which to take and why."""
    check_file(out, (".html", *PICTURES))
    names, word = reading.units(words, unit)
    from gatelab.scorecard import UNITS, compare
    from gatelab.scorecard.fits import POINTS
    from gatelab.scorecard.measurements import check_loss

    sampled = source
    if source.points is None and source.data is None:
        sampled = replace(source, points=POINTS)
    problem = sampled.problem(word)
    sizes = None if widths is None else reading.widths(widths)
    if not names and word is None and source.data is None:
        check_loss(loss)
        raise GatelabError("nothing is given to compare on; give --data FILE, a problem or a formula, or some units")
    with output.progress("comparing") as report:
        card = compare(
            names or UNITS,
            problem,
            budget=budget,
            widths=sizes,
            seeds=seeds,
            features=features,
            loss=loss,
            d_model=d_model,
            rows=rows,
            progress=report,
        )
    if out:
        chosen: dict[str, Any] = {
            "interval": source.interval,
            "points": source.points,
            "noise": source.noise,
            "data": source.data,
        }
        chosen |= {"target": source.target, "inputs": source.inputs, "rows": rows, "budget": budget, "widths": widths}
        chosen |= {"seeds": seeds, "features": features, "loss": loss, "d-model": d_model, "out": out}
        if out.suffix.lower() == ".html":
            from gatelab.report.builders import scorecard_page

            command = _command_line(word, names, source.standardise, chosen)
            write_whole(out, scorecard_page(card, command).encode())
        else:
            card.plot(out)
    if as_json:
        output.document({**output.plain(card), "methods": list(card.methods()), "files": output.asked_for(out)})
        return
    _print(card)
    output.say_written(out)


def _command_line(problem: str | None, names: list[str], standardise: bool | None, chosen: dict[str, Any]) -> str:
    """The command that makes the page again, without what is so by default, and with files by their names alone."""
    words = ["gatelab", "compare"]
    if problem:
        words.append(problem)
    for name in names:
        words += ["--unit", name]
    for name, value in chosen.items():
        if value is not None and value != DEFAULTS.get(name):
            words += [f"--{name}", value.name if isinstance(value, Path) else str(value)]
    if standardise is not None:
        words.append("--standardise" if standardise else "--raw")
    return shlex.join(words)


# ---- what it prints


def _print(card: Scorecard) -> None:
    output.say(
        f"{card.problem}: {card.train_rows} training and {card.test_rows} test rows of {card.inputs} "
        f"input{'s' * (card.inputs != 1)}; {card.settings.budget} parameters",
        "",
    )
    output.table(
        ("unit", "width", "P", "test RMSE [95%]", "of the best", "slope vs P [95%]", "limit"),
        [_error_cells(s, floor=bool(card.floor)) for s in card.scores],
        right=(1, 2, 4, 6),
        wrap=(3, 5),
    )
    output.say("")
    output.table(
        ("unit", "condition", "steps", "linear", "degree 8", "FLOPs", "rows/s [quartiles]"),
        [_cost_cells(s) for s in card.scores],
        right=(1, 2, 3, 4, 5),
        wrap=(6,),
    )
    if card.left_out:
        output.say("", "Left out:")
        output.points(map(str, card.left_out))
    r = card.recommendation
    output.say("", f"Take {r}.", "")
    output.points(r.reasons)
    output.say("")
    output.table(
        (f"{r.unit} beside", *(line.name for line in r.rivals[0].lines)),
        [[rival.unit, *(_side(line, rival.unit) for line in rival.lines)] for rival in r.rivals],
    )
    output.say("", "Keep in mind:")
    output.points(r.caveats)
    output.say("", "How it was measured:")
    output.points(card.methods())


def _error_cells(s: Score, *, floor: bool) -> list[str]:
    return [
        s.unit,
        str(s.width),
        str(s.parameters),
        f"{s.rmse:.3g} [{s.rmse_low:.2g}, {s.rmse_high:.2g}]",
        f"{s.behind:.2f}",
        output.interval(s.slope, s.slope_low, s.slope_high),
        output.number(None if floor else s.limit, ".1e"),
    ]


def _cost_cells(s: Score) -> list[str]:
    return [
        s.unit,
        f"{s.condition:.2g}" if s.resolved else f"> {s.condition_low:.1g}",
        f"{s.steps:.3g}" if math.isfinite(s.steps) else "never",
        output.number(s.linear_error, ".2g"),
        output.number(s.minimax_error, ".2g"),
        f"{s.block_flops:,}",
        f"{_thousands(s.rows_per_second)} [{_thousands(s.rows_per_second_low)}, {_thousands(s.rows_per_second_high)}]",
    ]


def _thousands(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def _side(line: Line, rival: str) -> str:
    """Whether a line is for the recommended unit."""
    if not line.decided:
        return "undecided"
    return "against" if line.favours == rival else "for"
