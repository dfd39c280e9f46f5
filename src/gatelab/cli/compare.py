"""`gatelab compare`: units side by side on one's own rows, and which to take."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.fit import Data, Inputs, Interval, Noise, Standardise, Target
from gatelab.cli.lists import Json, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.scorecard import Line, Score, Scorecard

COMPARE = """Examples: gatelab compare glu gqu relu2 --data mine.csv

gatelab compare --data houses.csv --target price --inputs rooms,age --out card.html

gatelab compare mlp swiglu friedman1 --budget 120 --json"""


def compare_command(
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu,gqu,relu2,swiglu")] = None,
    data: Data = None,
    target: Target = None,
    inputs: Inputs = None,
    standardise: Standardise = None,
    interval: Interval = None,
    points: Annotated[int | None, typer.Option(help="Training points of a formula.", show_default="400")] = None,
    noise: Noise = reading.NOISE,
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
    names, problem = reading.units(words, unit)
    chosen = reading.target(
        problem,
        data,
        interval=reading.interval(interval),
        points=_points(points, data),
        noise=noise,
        target=target,
        inputs=inputs,
        standardise=standardise,
    )
    from gatelab.scorecard import UNITS
    from gatelab.scorecard import compare as hold

    with output.progress("comparing") as report:
        card = hold(
            names or UNITS,
            chosen,
            budget=budget,
            widths=None if widths is None else reading.widths(widths),
            seeds=seeds,
            features=features,
            loss=loss,
            d_model=d_model,
            rows=rows,
            progress=report,
        )
    if out:
        given = {"interval": interval, "points": points, "noise": noise or None, "data": data, "target": target}
        given |= {"inputs": inputs, "rows": rows if rows != 1000 else None, "budget": budget, "widths": widths}
        given |= {"seeds": seeds if seeds != 3 else None, "features": features if features != 64 else None}
        given |= {"loss": loss if loss != 0.1 else None, "d-model": d_model if d_model != 128 else None, "out": out}
        _write(card, out, _asked(problem, names, standardise, given))
    if as_json:
        output.document({**_plain(card), "files": [out] if out else []})
        return
    _print(card)
    if out:
        output.say(f"wrote {out}", wrap=False)


def _points(points: int | None, data: Path | None) -> int | None:
    """Formulas have as many points as one likes; here some hundreds, as tables have."""
    from gatelab.scorecard.fits import POINTS

    return POINTS if points is None and data is None else points


def _asked(problem: str | None, names: list[str], standardise: bool | None, given: dict[str, Any]) -> str:
    """The command that makes the page again, files by their names alone."""
    said = ["gatelab", "compare", *([problem] if problem else [])]
    for name in names:
        said += ["--unit", name]
    for name, value in given.items():
        if value is not None:
            said += [f"--{name}", value.name if isinstance(value, Path) else str(value)]
    if standardise is not None:
        said.append("--standardise" if standardise else "--raw")
    return shlex.join(said)


def _write(card: Scorecard, out: Path, asked: str) -> None:
    if out.suffix.lower() != ".html":
        card.plot(out)
        return
    from gatelab.report.builders import scorecard_page

    write_whole(out, scorecard_page(card, asked).encode())


def _plain(card: Scorecard) -> dict[str, Any]:
    return {**output.plain(card), "methods": list(card.methods())}


# ---- what it prints


def _print(card: Scorecard) -> None:
    output.say(
        f"{card.problem}: {card.train_rows} training and {card.test_rows} test rows of {card.inputs} "
        f"input{'s' * (card.inputs != 1)}; {card.settings.budget} parameters",
        "",
    )
    output.table(
        ("unit", "width", "P", "test RMSE [95%]", "of the best", "slope vs P [95%]", "limit"),
        [
            [
                s.unit,
                str(s.width),
                str(s.parameters),
                _triple(s.rmse, s.rmse_low, s.rmse_high),
                f"{s.behind:.2f}",
                output.interval(s.slope, s.slope_low, s.slope_high),
                output.number(None if card.floor else s.limit, ".1e"),
            ]
            for s in card.scores
        ],
        right=(1, 2, 4, 6),
        wrap=(3, 5),
    )
    output.say("")
    output.table(
        ("unit", "condition", "steps", "linear", "degree 8", "FLOPs", "rows/s [quartiles]"),
        [
            [
                s.unit,
                _condition(s),
                _steps(s),
                output.number(s.linear_error, ".2g"),
                output.number(s.minimax_error, ".2g"),
                f"{s.block_flops:,}",
                f"{_k(s.rows_per_second)} [{_k(s.rows_per_second_low)}, {_k(s.rows_per_second_high)}]",
            ]
            for s in card.scores
        ],
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


def _side(line: Line, rival: str) -> str:
    """Whether a line is for the recommended unit."""
    if not line.decided:
        return "undecided"
    return "against" if line.favours == rival else "for"


def _triple(value: float, low: float, high: float) -> str:
    return f"{value:.3g} [{low:.2g}, {high:.2g}]"


def _k(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def _condition(s: Score) -> str:
    return f"{s.condition:.2g}" if s.resolved else f"> {s.condition_low:.1g}"


def _steps(s: Score) -> str:
    return f"{s.steps:.3g}" if math.isfinite(s.steps) else "never"
