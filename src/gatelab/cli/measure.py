"""`gatelab fit` and `gatelab scale`: one network, and how the error falls with the width."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import read, show
from gatelab.cli.lists import Json
from gatelab.cli.write import check_file, write_bytes
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from gatelab.problems import Problem
    from gatelab.scaling import Scaling
    from gatelab.solve import Fit

SOLVER_HELP = "auto, knots, frozen, newton, adam or lbfgs."
WHY = {
    "floor": "at the rounding of float64 (floor)",
    "interpolation": "with more than one parameter for two values of the data (interpolation)",
    "optimiser": "above 1.1 times the limit (optimiser)",
}

Interval = Annotated[tuple[float, float] | None, typer.Option(metavar="A B", help="Where x lies.", show_default="-1 1")]
Points = Annotated[int, typer.Option(help="Training points.")]
Sampling = Annotated[str, typer.Option(help="random, grid or gauss.")]
Noise = Annotated[float, typer.Option(help="Standard deviation of noise on the training targets.")]
Solver = Annotated[str, typer.Option(help=SOLVER_HELP)]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the solver.", show_default="its own")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core")]

FIT = """Examples: gatelab fit glu --width 50

gatelab fit glu "exp(sin(3*x))" --width 25 --interval 0 3

gatelab fit mlp --data points.csv --width 10 --save mlp.safetensors"""

SCALE = """Examples: gatelab scale glu mlp --widths 1:50 --out glu.png

gatelab scale gqu --problem "exp(sin(3*x))" --widths 4,8,16 --seeds 5"""


def fit(
    unit: Annotated[str, typer.Argument(help="A name from `gatelab units`.")],
    problem: Annotated[str | None, typer.Argument(help="A name or a formula in x.", show_default=read.PROBLEM)] = None,
    width: Annotated[int, typer.Option(help="Neurons.")] = 50,
    solver: Solver = "auto",
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seeds: Seeds = 1,
    steps: Steps = None,
    interval: Interval = None,
    points: Points = read.POINTS,
    sampling: Sampling = read.SAMPLING,
    noise: Noise = read.NOISE,
    data: Annotated[Path | None, typer.Option(help="CSV of two columns x,y or .npy of N x 2, for the problem.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the parameters, .safetensors.")] = None,
    as_json: Json = False,
) -> None:
    """Train one network and say how near it is to the limit."""
    check_file(save, (".safetensors",))
    _check_solver(solver)
    chosen = read.target(problem, data, interval=interval, points=points, sampling=sampling, noise=noise)
    best = _best(unit, chosen, width, solver, range(seed, seed + seeds), {"steps": steps} if steps else {})
    bound = _limit(unit, chosen, width)
    row = best.as_row() | {"limit": bound, "ratio": best.test_rmse / bound if bound else None, "saved": save}
    if save:
        _save(best, save)
    if as_json:
        show.document(row)
        return
    show.say(f"{best.unit} of width {best.width}, {best.parameters} parameters, fitted to {best.problem}")
    show.pairs(
        [
            ("train RMSE", f"{best.train_rmse:.3e}"),
            ("test RMSE", f"{best.test_rmse:.3e}"),
            ("limit", _against(bound, best.test_rmse)),
            ("status", f"{best.status} ({best.status.advice})"),
            ("solver", f"{best.solver}, {best.steps} steps, seed {best.seed}"),
            ("time", f"{best.seconds:.2f} s" + (f" for {seeds} seeds" if seeds > 1 else "")),
        ]
    )
    if save:
        show.say(f"saved {save}", wrap=False)


def scale(
    units: Annotated[list[str], typer.Argument(help="Names from `gatelab units`.")],
    problem: Annotated[str, typer.Option(help="A name or a formula in x.")] = read.PROBLEM,
    widths: Annotated[str, typer.Option(metavar="1:50 | 50:200:10 | 4,8,16", help="Both ends included.")] = "1:50",
    seeds: Seeds = 1,
    solver: Solver = "auto",
    steps: Steps = None,
    jobs: Jobs = None,
    interval: Interval = None,
    points: Points = read.POINTS,
    sampling: Sampling = read.SAMPLING,
    noise: Noise = read.NOISE,
    out: Annotated[Path | None, typer.Option(help="Write the figure, .png or .svg.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every fit, .csv.")] = None,
    as_json: Json = False,
) -> None:
    """Fit units at many widths and measure the slopes of the error."""
    sizes = read.widths(widths)
    check_file(out, (".png", ".svg"))
    check_file(csv, (".csv",))
    _check_solver(solver)
    chosen = read.target(problem, None, interval=interval, points=points, sampling=sampling, noise=noise)
    from gatelab.scaling import scaling

    with show.progress("fitting") as report:
        options = {"steps": steps} if steps else {}
        study = scaling(units, chosen, sizes, seeds, solver=solver, jobs=jobs, progress=report, **options)
    files = [path for path in (out, csv) if path]
    if out:
        study.plot(out)
    if csv:
        write_bytes(csv, study.table().to_csv(index=False).encode())
    if as_json:
        show.document(
            {
                "problem": study.problem,
                "slopes": study.slopes().to_dict("records"),
                "left_out": {u: _left_out(study, u) for u in study.units},
                "points": study.points,
                "files": files,
            }
        )
        return
    _print_slopes(study, seeds)
    for path in files:
        show.say(f"wrote {path}", wrap=False)


def _print_slopes(study: Scaling, seeds: int) -> None:
    last = max(p.width for p in study.points)
    rows = []
    slopes = {(s["unit"], s["aggregate"], s["against"]): s for s in study.slopes().to_dict("records")}
    for unit in study.units:
        best = min((p for p in study.points if p.unit == unit and p.width == last), key=lambda p: p.test_rmse)
        for aggregate in ("best", "median") if seeds > 1 else ("best",):
            cells = [slopes[unit, aggregate, axis] for axis in ("n", "P")]
            lines = [show.interval(s["slope"], s["low"], s["high"]) for s in cells]
            at_last = [show.number(best.ratio), show.number(best.test_rmse, ".1e")] if aggregate == "best" else ["", ""]
            rows.append([unit, *([aggregate] if seeds > 1 else []), *lines, *at_last])
    seed = ("seeds",) if seeds > 1 else ()
    headings = ("unit", *seed, "slope vs n [95%]", "slope vs P [95%]", "ratio", "RMSE")
    k = len(headings)
    show.table(headings, rows, right=(k - 2, k - 1), wrap=(k - 4, k - 3))
    show.say("", f"{study.problem}; ratio to the limit and RMSE on test data at width {last}")
    for unit in study.units:
        total = sum(p.unit == unit for p in study.points)
        if math.isnan(slopes[unit, "best", "n"]["slope"]):
            show.say(f"{unit}: no slope, which needs two widths or more that are not left out")
        for flag, count in _left_out(study, unit).items():
            show.say(f"{unit}: {count} of {total} fits are left out of the slopes, {WHY.get(flag, flag)}")


def _left_out(study: Scaling, unit: str) -> dict[str, int]:
    return dict(Counter(p.flag for p in study.points if p.unit == unit and p.flag))


def _check_solver(solver: str) -> None:
    """Before the workers start, since in them the same error comes late."""
    from gatelab.solve import SOLVERS

    if solver not in (known := ("auto", *SOLVERS)):
        raise unknown_name("solver", solver, known)


def _best(unit: str, problem: Problem, width: int, solver: str, seeds: range, options: dict[str, Any]) -> Fit:
    """What `gl.fit(seeds=...)` does, seed by seed for the sake of progress."""
    from gatelab.solve import fit as train

    fits = []
    with show.progress(f"training {unit}") as report:
        for seed in seeds:
            fits.append(train(unit, problem, width, solver=solver, seed=seed, **options))
            report(len(fits), len(seeds))
    return replace(min(fits, key=lambda f: f.train_rmse), seconds=sum(f.seconds for f in fits))


def _limit(unit: str, problem: Problem, width: int) -> float | None:
    """The limit, where theory has one."""
    from gatelab.scaling import limit

    try:
        return limit(unit, problem, width)
    except GatelabError:
        return None


def _against(bound: float | None, error: float) -> str:
    if bound is None:
        return "none known here"
    return f"{bound:.3e}, test RMSE is {error / bound:.2f} times that" if bound else "0, the unit can be exact here"


def _save(best: Fit, path: Path) -> None:
    from safetensors.torch import save

    about = {"unit": best.unit, "width": str(best.width), "problem": best.problem, "format": "pt"}
    write_bytes(path, save({k: v.contiguous() for k, v in best.network.state_dict().items()}, metadata=about))
