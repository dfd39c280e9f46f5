"""`gatelab scale`, the error by width, and `gatelab law`, the loss by parameters and data.

`scale` fits networks, as a sweep whose runs may be stored. `law` fits a formula to the losses in a table of runs.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import (
    DryRun,
    Plot,
    ProblemOptions,
    Seeds,
    SolverOptions,
    SweepOptions,
    Words,
    how_to_look,
    out_option,
    unit_option,
)
from gatelab.cli.output import Line, check_file
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.scaling_laws import Scaling
    from gatelab.sweep import Plan, Run

WHY = {
    "floor": "at the rounding of float64 (floor)",
    "interpolation": "with more than one parameter for two values of the data (interpolation)",
    "noise": "since noise of the data sets their error (noise)",
    "optimiser": "above 1.1 times the limit (optimiser)",
    "failed": "since they failed (failed)",
}

SCALE = """Examples: gatelab scale glu mlp --widths 1:50 --plot glu.png

gatelab scale gqu --problem "exp(sin(3*x))" --widths 4,8,16 --seeds 5

gatelab scale glu mlp --data houses.csv --target price --widths 4,8,16 --out fits.csv

gatelab scale glu --widths 1:200 --store runs.db --dry-run"""


def scale_command(
    *,
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option()] = None,
    problem: Annotated[str | None, typer.Option(help="A name or a formula.", show_default=reading.PROBLEM)] = None,
    widths: Annotated[str, typer.Option(metavar="1:50 | 50:200:10 | 4,8,16", help="Both ends included.")] = "1:50",
    seeds: Seeds = 1,
    solver: SolverOptions,
    sweep: SweepOptions,
    dry_run: DryRun = False,
    source: ProblemOptions,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write every fit, .csv.")] = None,
) -> None:
    """Fit units at many widths and measure the slopes of the error."""
    sizes = reading.widths(widths)
    units, word = reading.units(words, unit)
    reading.some_unit(units, "scale", word)
    if problem is None:
        problem = word
    elif word is not None:
        raise GatelabError(f"both the problem {word!r} and --problem {problem} are given; leave one of them out")
    check_file(plot, PICTURES)
    check_file(out, (".csv",))
    settings = solver.settings()
    target = source.problem(problem)
    keywords = sweep.keywords()
    from gatelab.scaling_laws import scaling, scaling_runs

    def runs() -> tuple[Run, ...]:
        return scaling_runs(units, target, sizes, seeds, **settings)

    if dry_run:
        emit_plan(sweep.plan(runs()), sweep.store)
        return
    with sweep.resumable(runs):
        stored = 0
        if sweep.store:
            plan = sweep.plan(runs())
            stored = plan.done + plan.failed
        with output.progress("fits", stored) as report:
            study = scaling(units, target, sizes, seeds, jobs=sweep.jobs, progress=report, **keywords, **settings)
    if plot:
        study.plot(plot)
    output.write_csv(out, study.table())
    failed = sum(p.flag == "failed" for p in study.points)
    parts = list(slope_parts(study, seeds))
    if failed:
        parts += ["", f"{failed} of {len(study.points)} fits failed; --retry-failed repeats them. The reasons:"]
        parts.append(Line(how_to_look(sweep.store)))
    output.emit(
        {
            "problem": study.problem,
            "slopes": study.slopes().to_dict("records"),
            "left_out": {u: _left_out(study, u) for u in study.units},
            "failed": failed,
            "points": study.points,
        },
        *parts,
        files=(plot, out),
    )


def emit_plan(plan: Plan, store: Path | None) -> None:
    """The size of a sweep, with --dry-run."""
    expected = plan.expected_seconds
    rows = [
        ("done", str(plan.done)),
        ("failed", str(plan.failed)),
        ("to do", str(plan.todo)),
        ("expected time", "not known yet" if expected is None else duration(expected)),
    ]
    parts = [output.pairs(rows)]
    if plan.failed:
        parts += ["", "--retry-failed repeats the failed fits. The reasons:", Line(how_to_look(store))]
    facts = {"done": plan.done, "failed": plan.failed, "todo": plan.todo}
    output.emit({**facts, "expected_seconds": expected, "store": store}, *parts)


def slope_parts(study: Scaling, seeds: int) -> Iterator[output.Part]:
    """One row per unit; with several seeds, one for the best of them and one for their median."""
    last = max(p.width for p in study.points)
    slopes = {(s["unit"], s["aggregate"], s["against"]): s for s in study.slopes().to_dict("records")}

    def cells(unit: str, aggregate: str) -> list[str]:
        both = [slopes[unit, aggregate, axis] for axis in ("n", "P")]
        return [output.interval(row["slope"], row["low"], row["high"]) for row in both]

    headings = ["unit", "seeds", "slope vs n [95%]", "slope vs P [95%]", "ratio", "RMSE"]
    rows = []
    for unit in study.units:
        points = [p for p in study.points if p.unit == unit and p.width == last]
        # A failed fit has no error and ranks last.
        best = min(points, key=lambda p: math.inf if math.isnan(p.test_rmse) else p.test_rmse)
        widest = [output.number(best.ratio), output.number(best.test_rmse, ".1e")]
        rows.append([unit, "best", *cells(unit, "best"), *widest])
        if seeds > 1:
            rows.append([unit, "median", *cells(unit, "median"), "", ""])
    if seeds == 1:
        for row in (headings, *rows):
            del row[1]
    k = len(headings)
    yield output.table(headings, rows, right=(k - 2, k - 1), wrap=(k - 4, k - 3))
    yield ""
    yield f"{study.problem}; ratio to the limit and RMSE on test data at width {last}"
    for unit in study.units:
        total = sum(p.unit == unit for p in study.points)
        if math.isnan(slopes[unit, "best", "n"]["slope"]):
            yield f"{unit}: no slope, which needs two widths or more that are not left out"
        elif math.isnan(slopes[unit, "best", "n"]["low"]):
            yield f"{unit}: no interval of the slope, which needs four widths or more that are not left out"
        for flag, count in _left_out(study, unit).items():
            yield f"{unit}: {count} of {total} fits are left out of the slopes, {WHY.get(flag, flag)}"


def _left_out(study: Scaling, unit: str) -> dict[str, int]:
    """The number of fits of a unit that are left out of the slopes, by reason."""
    return dict(Counter(p.flag for p in study.points if p.unit == unit and p.flag))


LAW = """Examples: gatelab law runs.csv --plot law.png

gatelab law runs.csv --p-column params --d-column tokens --l-column loss"""


def law_command(
    table: Annotated[Path, typer.Argument(help="CSV with a header and one row per run.")],
    p_column: Annotated[str, typer.Option(help="Name of the column of parameters.")] = "P",
    d_column: Annotated[str, typer.Option(help="Name of the column of data.")] = "D",
    l_column: Annotated[str, typer.Option(help="Name of the column of losses.")] = "L",
    delta: Annotated[float, typer.Option(help="Errors of log L beyond it are outliers.")] = 1e-3,
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws for the intervals; 0 for none.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the draws.")] = 0,
    plot: Plot = None,
) -> None:
    """Fit L = E + A/P^a + B/D^b to the losses of many runs."""
    check_file(plot, PICTURES)
    columns = read_columns(table, (p_column, d_column, l_column))
    from gatelab.scaling_laws import fit_law

    with output.progress("bootstrap") as report:
        try:
            law = fit_law(*columns, delta=delta, bootstrap=bootstrap, seed=seed, progress=report)
        except GatelabError as error:
            raise GatelabError(f"{table}: {error}") from error
    if plot:
        law.plot(plot)
    rows = law.table().to_dict("records")
    cells = []
    for row in rows:
        ends = "-" if math.isnan(row["low"]) else f"[{row['low']:.4g}, {row['high']:.4g}]"
        cells.append((row["constant"], output.number(row["value"], ".4g"), ends))
    output.emit(
        {"law": str(law), "constants": rows, "points": law.points, "rmse_of_log": law.rmse, "notes": law.notes},
        f"{law}, from {law.points} runs in {table}",
        "",
        output.table(("", "value", f"{law.level:.0%} interval"), cells, right=(1,)),
        "",
        f"RMSE of log L: {law.rmse:.2g}",
        *law.notes,
        files=(plot,),
    )


def read_columns(path: Path, names: tuple[str, str, str]) -> list[list[float]]:
    """Three columns of a CSV file by their names."""
    remedy = f"give a CSV file with columns {', '.join(names)}"
    reading.check_exists(path, remedy)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (UnicodeDecodeError, csv.Error):
        raise GatelabError(f"{path} is not a text file; {remedy}") from None
    if not lines:
        raise GatelabError(f"{path} is empty; {remedy}")
    header = lines[0][1]
    for name in names:
        if name not in header:
            raise GatelabError(f"{path}: {unknown_name('column', name, header)}")
    places = [header.index(name) for name in names]
    columns: list[list[float]] = [[], [], []]
    for line, cells in lines[1:]:
        for column, place in zip(columns, places, strict=True):
            try:
                column.append(float(cells[place]))
            except (IndexError, ValueError):
                cell = repr(cells[place]) if place < len(cells) else "an empty cell"
                raise GatelabError(f"{path} line {line}: {cell} is not a number; correct or remove the line") from None
    return columns
