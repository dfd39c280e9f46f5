"""`gatelab scale`, the error by width, and `gatelab law`, the loss by parameters and data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    option,
    out_option,
    resuming,
    unit_option,
)
from gatelab.cli.output import Line
from gatelab.display import duration
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from gatelab.scaling_laws import Scaling
    from gatelab.sweep import Plan, Run

WHY = {
    "floor": "at the rounding of float64 (floor)",
    "interpolation": "with more than one parameter for two values of the data (interpolation)",
    "noise": "since noise of the data sets their error (noise)",
    "optimizer": "above 1.1 times the limit (optimizer)",
    "failed": "since they failed (failed)",
}
FAILED = "gatelab results list --status failed --store {}"
SCALE = """Examples: gatelab scale glu mlp --widths 1:50 --plot glu.png
gatelab scale gqu --problem "exp(sin(3*x))" --widths 4,8,16 --seeds 5
gatelab scale glu mlp --data houses.csv --target price --widths 4,8,16 --out fits.csv
gatelab scale glu --widths 1:200 --store runs.db --dry-run"""


def scale_command(
    *,
    words: Words = None,
    unit: Annotated[list[str] | None, unit_option()] = None,
    problem: Annotated[str | None, option("A name or a formula.", default="paper-1d")] = None,
    widths: Annotated[str, option("Both ends included.", metavar="1:50 | 50:200:10 | 4,8,16")] = "1:50",
    seeds: Seeds = 1,
    solver: SolverOptions,
    sweep: SweepOptions,
    dry_run: DryRun = False,
    source: ProblemOptions,
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write every fit, .csv.", ".csv")] = None,
) -> None:
    """Fit units at many widths and measure the slopes of the error."""
    sizes = reading.widths(widths)
    units, word = reading.units(words, unit)
    reading.some_unit(units, "scale", word)
    if problem is None:
        problem = word
    elif word is not None:
        raise GatelabError(f"both the problem {word!r} and --problem {problem} are given; leave one of them out")
    settings = solver.settings()
    target = source.problem(problem)
    keywords = sweep.keywords()
    from gatelab.scaling_laws import scaling, scaling_runs

    def runs() -> tuple[Run, ...]:
        return scaling_runs(units, target, sizes, seeds, **settings)

    if dry_run:
        emit_plan(sweep.plan(runs()), sweep.store)
        return
    with resuming(sweep.store, runs):
        stored = 0
        if sweep.store:
            plan = sweep.plan(runs())
            stored = plan.done + plan.failed
        with output.progress("fits", stored) as report:
            study = scaling(units, target, sizes, seeds, jobs=sweep.jobs, progress=report, **keywords, **settings)
    output.write(study, plot, out)
    failed = sum(p.flag == "failed" for p in study.points)
    parts = list(slope_parts(study, seeds))
    if failed:
        parts += ["", f"{failed} of {len(study.points)} fits failed; --retry-failed repeats them. The reasons:"]
        parts.append(Line(FAILED.format(sweep.store)))
    document = {"problem": study.problem, "slopes": study.slopes().to_dict("records")}
    document |= {"left_out": {u: left_out(study, u) for u in study.units}, "failed": failed, "points": study.points}
    output.emit(document, *parts, files=(plot, out))


def emit_plan(plan: Plan, store: Path | None) -> None:
    time = "not known yet" if plan.expected_seconds is None else duration(plan.expected_seconds)
    rows = {"done": plan.done, "failed": plan.failed, "to do": plan.todo, "expected time": time}
    parts: list[output.Part] = [output.pairs(rows.items())]
    if plan.failed:
        parts += ["", "--retry-failed repeats the failed fits. The reasons:", Line(FAILED.format(store))]
    output.emit({**vars(plan), "store": store}, *parts)


def slope_parts(study: Scaling, seeds: int) -> Iterator[output.Part]:
    """One row per unit; with several seeds, one for the best of them and one for their median."""
    from gatelab.statistics import Interval

    last = max(p.width for p in study.points)
    slopes = {(s["unit"], s["aggregate"], s["against"]): s for s in study.slopes().to_dict("records")}
    rows: list[dict[str, Any]] = []
    for unit in study.units:
        points = [p for p in study.points if p.unit == unit and p.width == last]
        # A failed fit has no error and ranks last.
        best = min(points, key=lambda p: (math.isnan(p.test_rmse), p.test_rmse))
        for aggregate in ("best", "median")[: min(seeds, 2)]:
            row: dict[str, Any] = {"unit": unit}
            if seeds > 1:
                row["seeds"] = aggregate
            for axis in ("n", "P"):
                slope = slopes[unit, aggregate, axis]
                ends = Interval(slope["slope"], slope["low"], slope["high"])
                row[f"slope vs {axis} [95%]"] = f"{ends:.2f}".replace("nan", "-")
            rows.append({**row, "ratio": best.ratio, "RMSE": best.test_rmse})
    yield output.table(rows, {"ratio": ".2f", "RMSE": ".1e"})
    yield ""
    yield f"{study.problem}; ratio to the limit and RMSE on test data, of the best seed at width {last}"
    for unit in study.units:
        if math.isnan(slopes[unit, "best", "n"]["slope"]):
            yield f"{unit}: no slope, which needs two widths or more that are not left out"
        elif math.isnan(slopes[unit, "best", "n"]["low"]):
            yield f"{unit}: no interval of the slope, which needs four widths or more that are not left out"
        total = sum(p.unit == unit for p in study.points)
        for flag, count in left_out(study, unit).items():
            yield f"{unit}: {count} of {total} fits are left out of the slopes, {WHY.get(flag, flag)}"


def left_out(study: Scaling, unit: str) -> dict[str, int]:
    """The number of fits of a unit that are left out of the slopes, by reason."""
    return dict(Counter(p.flag for p in study.points if p.unit == unit and p.flag))


LAW = """Examples: gatelab law runs.csv --plot law.png
gatelab law runs.csv --p-column params --d-column tokens --l-column loss"""


def law_command(
    table: Annotated[Path, typer.Argument(help="CSV with a header and one row per run.")],
    p_column: Annotated[str, option("Name of the column of parameters.")] = "P",
    d_column: Annotated[str, option("Name of the column of data.")] = "D",
    l_column: Annotated[str, option("Name of the column of losses.")] = "L",
    delta: Annotated[float, option("Errors of log L beyond it are outliers.")] = 1e-3,
    bootstrap: Annotated[int, option("Draws for the intervals; 0 for none.", min=0)] = 200,
    seed: Annotated[int, option("The seed of the draws.", min=0)] = 0,
    plot: Plot = None,
) -> None:
    """Fit L = E + A/P^a + B/D^b to the losses of many runs."""
    from gatelab.data.tables import indices, open_columns
    from gatelab.scaling_laws import fit_law

    source = open_columns(table)
    columns = source.take(indices("columns", [p_column, d_column, l_column], source, table)).T
    with output.progress("bootstrap") as report:
        try:
            law = fit_law(*columns, delta=delta, bootstrap=bootstrap, seed=seed, progress=report)
        except GatelabError as error:
            raise GatelabError(f"{table}: {error}") from error
    output.write(law, plot)
    rows = law.table().to_dict("records")
    output.emit(
        {"law": str(law), "constants": rows, "points": law.points, "rmse_of_log": law.rmse, "notes": law.notes},
        f"{law}, from {law.points} runs in {table}",
        "",
        output.table(rows),
        "",
        f"low, high: {law.level:.0%} interval; RMSE of log L: {law.rmse:.2g}",
        *law.notes,
        files=(plot,),
    )
