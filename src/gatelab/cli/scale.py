"""`gatelab scale`: how the error falls with the width.

`gatelab law`: the law in parameters and data from a table of runs.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output, reading, sweeps
from gatelab.cli.fit import (
    Data,
    Device,
    Inputs,
    Interval,
    Jobs,
    Noise,
    Points,
    Protocol,
    Ridge,
    Sampling,
    Seeds,
    Solver,
    Standardise,
    Steps,
    Target,
    check_solver,
    solver_options,
)
from gatelab.cli.lists import Json, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.scaling_laws import Point, Scaling
    from gatelab.sweep import Run

WHY = {
    "floor": "at the rounding of float64 (floor)",
    "interpolation": "with more than one parameter for two values of the data (interpolation)",
    "noise": "since noise of the data sets their error (noise)",
    "optimiser": "above 1.1 times the limit (optimiser)",
    "failed": "since they failed (failed)",
}

SCALE = """Examples: gatelab scale glu mlp --widths 1:50 --out glu.png

gatelab scale gqu --problem "exp(sin(3*x))" --widths 4,8,16 --seeds 5

gatelab scale glu mlp --data houses.csv --target price --widths 4,8,16

gatelab scale glu --widths 1:200 --store runs.db --dry-run"""


def scale_command(
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option()] = None,
    problem: Annotated[str | None, typer.Option(help="A name or a formula.", show_default=reading.PROBLEM)] = None,
    widths: Annotated[str, typer.Option(metavar="1:50 | 50:200:10 | 4,8,16", help="Both ends included.")] = "1:50",
    seeds: Seeds = 1,
    solver: Solver = "auto",
    steps: Steps = None,
    ridge: Ridge = None,
    device: Device = None,
    jobs: Jobs = None,
    store: sweeps.Store = None,
    backend: sweeps.Backend = None,
    address: sweeps.Address = None,
    retry_failed: sweeps.RetryFailed = False,
    dry_run: sweeps.DryRun = False,
    max_hours: sweeps.MaxHours = None,
    interval: Interval = None,
    points: Points = None,
    sampling: Sampling = reading.SAMPLING,
    noise: Noise = reading.NOISE,
    data: Data = None,
    target: Target = None,
    inputs: Inputs = None,
    standardise: Standardise = None,
    protocol: Protocol = "split",
    out: Annotated[Path | None, typer.Option(help="Write the figure, .png, .svg or .pdf.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every fit, .csv.")] = None,
    as_json: Json = False,
) -> None:
    """Fit units at many widths and measure the slopes of the error."""
    sizes = reading.widths(widths)
    units, word = reading.units(words, unit)
    reading.some_unit(units, "scale")
    if problem is not None and word is not None:
        raise GatelabError(f"both the problem {word!r} and --problem {problem} are given; leave one of them out")
    check_file(out, PICTURES)
    check_file(csv, (".csv",))
    check_solver(solver)
    chosen = reading.target(
        word if problem is None else problem,
        data,
        interval=reading.interval(interval),
        points=points,
        sampling=sampling,
        noise=noise,
        target=target,
        inputs=inputs,
        standardise=standardise,
        protocol=protocol,
    )
    sweep = sweeps.keywords(store, backend, retry_failed, max_hours, address)
    settings = solver_options(steps, ridge, device)
    from gatelab.scaling_laws import scaling, scaling_runs

    def runs() -> tuple[Run, ...]:
        return scaling_runs(units, chosen, sizes, seeds, solver=solver, **settings)

    if dry_run:
        workers = 1 if backend == "serial" else jobs or sweeps.cores()
        sweeps.print_plan(sweeps.planned(runs(), store, retry_failed=retry_failed, jobs=workers), store, as_json)
        return
    with sweeps.going_on(store, runs):
        before = sweeps.planned(runs(), store, retry_failed=retry_failed) if store else None
        with output.progress("fitting", before.done + before.failed if before else 0) as report:
            study = scaling(units, chosen, sizes, seeds, solver=solver, jobs=jobs, progress=report, **sweep, **settings)
    files = [path for path in (out, csv) if path]
    if out:
        study.plot(out)
    if csv:
        write_whole(csv, study.table().to_csv(index=False).encode())
    if as_json:
        output.document(
            {
                "problem": study.problem,
                "slopes": study.slopes().to_dict("records"),
                "left_out": {u: _left_out(study, u) for u in study.units},
                "failed": _failed(study),
                "points": study.points,
                "files": files,
            }
        )
        return
    _print_slopes(study, seeds)
    if failed := _failed(study):
        output.say("", f"{failed} of {len(study.points)} fits failed, and stay so without --retry-failed; to see why:")
        output.say(sweeps.how_to_look(store), wrap=False)
    for path in files:
        output.say(f"wrote {path}", wrap=False)


def _print_slopes(study: Scaling, seeds: int) -> None:
    last = max(p.width for p in study.points)
    rows = []
    slopes = {(s["unit"], s["aggregate"], s["against"]): s for s in study.slopes().to_dict("records")}
    for unit in study.units:
        best = min((p for p in study.points if p.unit == unit and p.width == last), key=_error)
        for aggregate in ("best", "median") if seeds > 1 else ("best",):
            cells = [slopes[unit, aggregate, axis] for axis in ("n", "P")]
            lines = [output.interval(s["slope"], s["low"], s["high"]) for s in cells]
            at_last = (
                [output.number(best.ratio), output.number(best.test_rmse, ".1e")] if aggregate == "best" else ["", ""]
            )
            rows.append([unit, *([aggregate] if seeds > 1 else []), *lines, *at_last])
    seed = ("seeds",) if seeds > 1 else ()
    headings = ("unit", *seed, "slope vs n [95%]", "slope vs P [95%]", "ratio", "RMSE")
    k = len(headings)
    output.table(headings, rows, right=(k - 2, k - 1), wrap=(k - 4, k - 3))
    output.say("", f"{study.problem}; ratio to the limit and RMSE on test data at width {last}")
    for unit in study.units:
        total = sum(p.unit == unit for p in study.points)
        if math.isnan(slopes[unit, "best", "n"]["slope"]):
            output.say(f"{unit}: no slope, which needs two widths or more that are not left out")
        for flag, count in _left_out(study, unit).items():
            output.say(f"{unit}: {count} of {total} fits are left out of the slopes, {WHY.get(flag, flag)}")


def _error(point: Point) -> float:
    """The test error; of a fit that failed, which has none, more than any."""
    return math.inf if math.isnan(point.test_rmse) else point.test_rmse


def _failed(study: Scaling) -> int:
    return sum(p.flag == "failed" for p in study.points)


def _left_out(study: Scaling, unit: str) -> dict[str, int]:
    return dict(Counter(p.flag for p in study.points if p.unit == unit and p.flag))


LAW = """Examples: gatelab law runs.csv --plot law.png

gatelab law runs.csv --p-column params --d-column tokens --l-column loss"""

Columns = tuple[str, str, str]


def law_command(
    table: Annotated[Path, typer.Argument(help="CSV with a header and a row a run.")],
    p_column: Annotated[str, typer.Option(help="Name of the column of parameters.")] = "P",
    d_column: Annotated[str, typer.Option(help="Name of the column of data.")] = "D",
    l_column: Annotated[str, typer.Option(help="Name of the column of losses.")] = "L",
    delta: Annotated[float, typer.Option(help="Errors of log L beyond it are outliers.")] = 1e-3,
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws for the intervals; 0 for none.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the draws.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Write the figure, .png, .svg or .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """Fit L = E + A/P^a + B/D^b to the losses of many runs."""
    check_file(plot, PICTURES)
    columns = read_columns(table, (p_column, d_column, l_column))
    from gatelab.scaling_laws import fit_law

    with output.progress("bootstrap") as report:
        try:
            found = fit_law(*columns, delta=delta, bootstrap=bootstrap, seed=seed, progress=report)
        except GatelabError as error:
            raise GatelabError(f"{table}: {error}") from error
    if plot:
        found.plot(plot)
    rows = found.table().to_dict("records")
    if as_json:
        facts = {"points": found.points, "rmse_of_log": found.rmse, "notes": found.notes, "file": plot}
        output.document({"law": str(found), "constants": rows, **facts})
        return
    output.say(f"{found}, from {found.points} runs in {table}", "")
    level = f"{found.level:.0%} interval"
    output.table(
        ("", "value", level),
        [(row["constant"], output.number(row["value"], ".4g"), _ends(row["low"], row["high"])) for row in rows],
        right=(1,),
    )
    output.say("", f"RMSE of log L: {found.rmse:.2g}", *found.notes)
    if plot:
        output.say(f"wrote {plot}", wrap=False)


def _ends(low: float, high: float) -> str:
    return "-" if low != low else f"[{low:.4g}, {high:.4g}]"


def read_columns(path: Path, names: Columns) -> list[list[float]]:
    """Three columns of a CSV file by their names."""
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give a CSV file with columns {', '.join(names)}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (UnicodeDecodeError, csv.Error):
        raise GatelabError(f"{path} is not a text file; give a CSV file with columns {', '.join(names)}") from None
    if not lines:
        raise GatelabError(f"{path} is empty; give a CSV file with columns {', '.join(names)}")
    header = lines[0][1]
    for name in names:
        if name not in header:
            raise GatelabError(f"{path}: {unknown_name('column', name, header)}")
    places = [header.index(name) for name in names]
    rows = [[_number(path, line, cells, place) for place in places] for line, cells in lines[1:]]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]


def _number(path: Path, line: int, cells: list[str], place: int) -> float:
    try:
        return float(cells[place])
    except (IndexError, ValueError):
        said = repr(cells[place]) if place < len(cells) else "nothing"
        raise GatelabError(f"{path} line {line}: {said} is not a number; mend or remove the line") from None
