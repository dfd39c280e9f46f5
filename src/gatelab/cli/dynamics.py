"""`gatelab dynamics`: losses of units under gradient descent, and where they cross."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, Words, option, unit_option
from gatelab.cli.rows import TrainingRowOptions
from gatelab.feedforward.named import unit_name

if TYPE_CHECKING:
    from gatelab.dynamics import Crossing, StableStep, Training, Trajectory

DYNAMICS = """Examples: gatelab dynamics --gaussian 60,30 --plot curves.png
gatelab dynamics mlp glu gqu friedman1 --width 2048 --measure
gatelab dynamics --data points.csv --target price --standardize --json"""


def dynamics_command(
    *,
    words: Words = None,
    source: TrainingRowOptions,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    width: Annotated[int, option("Neurons.", min=1)] = 1024,
    lr: Annotated[float | None, option("Learning rate.", default="half of the stable limit")] = None,
    steps: Annotated[int, option("Steps of gradient descent.", min=1)] = 100,
    measure: Annotated[bool, option("Train networks as well.", "--measure")] = False,
    seeds: Annotated[int, option("Number of seeds, with --measure.", min=1)] = 5,
    plot: Plot = None,
) -> None:
    """Expected losses by gradient descent, and where they cross."""
    names, problem = reading.units(words, unit)
    names = list(dict.fromkeys(map(unit_name, names or ("mlp", "glu"))))
    rows = source.read(problem)
    from gatelab.dynamics import crossing, expected_loss, in_span, measured_crossing, stable_step, train
    from gatelab.ntk import analytic

    trained: dict[str, Training] = {}
    crossings, measured = [], []
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always", UserWarning)
        with output.progress("kernels") as report:
            kernels = analytic(names, rows.x, width, progress=report)
            nngp = analytic(names, rows.x, kind="nngp")
        stable = {name: stable_step(K) for name, K in zip(names, kernels, strict=True)}
        rate = min(s.limit for s in stable.values()) / 2 if lr is None else lr
        expected = {
            name: expected_loss(K, rows.y, width, rate, steps, nngp=N)
            for name, K, N in zip(names, kernels, nngp, strict=True)
        }
        small = in_span(rows.x)
        for name in names if measure else ():
            with output.progress(f"training {name}") as report:
                run = train(name, small, rows.y, width, rate, steps, seeds=seeds, fan_in=rows.d, progress=report)
            trained[name] = run
        for name, K, N in zip(names[1:], kernels[1:], nngp[1:], strict=True):
            crossings.append(crossing(kernels[0], K, rows.y, lr=rate, nngp=(nngp[0], N), steps=steps))
            runs = [trained[one] for one in (names[0], name) if measure]
            ended = bool(runs) and not any((run.diverged >= 0).any() for run in runs)
            measured.append(measured_crossing(*runs) if ended else None)
    notes = list(dict.fromkeys(str(m.message) for m in messages if issubclass(m.category, UserWarning)))
    if plot:
        draw_losses(expected, trained, rows.name, plot)
    verdicts = []
    for c, found in zip(crossings, measured, strict=True):
        verdicts.append(f"{c.labels[0]}, {c.labels[1]}: {c.verdict}")
        if found is not None:
            verdicts.append(f"  trained networks ({found.seeds[0]} seeds) cross at step {found}")
    about = {"data": rows.name, "n": rows.n, "d": rows.d, "width": width, "lr": rate, "steps": steps}
    about["units"] = [unit_facts(name, stable[name], expected[name], trained.get(name)) for name in names]
    about["crossings"] = [{**crossing_facts(c), "measured": m} for c, m in zip(crossings, measured, strict=True)]
    output.emit(
        {**about, "notes": notes},
        f"{rows.name}: n = {rows.n}, d = {rows.d}, width {width}, lr {rate:.3g}; loss (1/2)|f - y|^2",
        "",
        loss_table(about["units"], steps),
        "",
        *verdicts,
        output.points(notes),
        files=(plot,),
    )


def unit_facts(name: str, stable: StableStep, expected: Trajectory, run: Training | None) -> dict[str, Any]:
    """The ends of a unit's kernel, its expected loss, and that of its networks where they were trained."""
    facts: dict[str, Any] = {"unit": name, "lambda_max": stable.lambda_max, "lambda_min": stable.lambda_min}
    facts |= {name: getattr(expected, name) for name in ("stable", "loss", "bias", "variance")}
    facts["step"] = expected.steps
    if run is not None:
        low, high = run.interval()
        losses = {"step": run.steps, "mean": run.mean, "low": low, "high": high}
        facts["measured"] = {"seeds": run.seeds, **losses, "diverged": run.diverged}
    return facts


def crossing_facts(c: Crossing) -> dict[str, Any]:
    names = ("step", "loss", "changes", "reason", "first", "last", "verdict")
    early = {name: getattr(c.early, name) for name in ("holds", "start", "signal", "spread")}
    late = {name: getattr(c.late, name) for name in ("holds", "lambda_min", "bound")}
    return {"units": c.labels, **{name: getattr(c, name) for name in names}, "early": early, "late": late}


def loss_table(units: list[dict[str, Any]], last: int) -> output.Part:
    """One row of losses at some steps per unit, and below it one of its trained networks."""
    import numpy as np

    rows, steps = [], sorted({0, last // 4, last // 2, last})
    for unit in units:
        ends = {"unit": unit["unit"], "l_max": unit["lambda_max"], "l_min": unit["lambda_min"]}
        rows.append(ends | {f"step {t}": float(unit["loss"][t]) for t in steps})
        if run := unit.get("measured"):
            means = zip(steps, run["mean"][np.searchsorted(run["step"], steps)].tolist(), strict=True)
            rows.append({"unit": "  trained", "l_max": "", "l_min": ""} | {f"step {t}": mean for t, mean in means})
    return output.table(rows, dict.fromkeys(rows[0], ".3g"))


def draw_losses(expected: dict[str, Trajectory], trained: dict[str, Training], title: str, path: Path) -> None:
    from gatelab.plotting import looks, save
    from gatelab.plotting.kernels import PlotLine, lines_figure

    colors, curves = looks(expected), []
    for name, curve in expected.items():
        color = colors[name].color
        if run := trained.get(name):
            curves.append(PlotLine(f"{name}, trained", run.steps, run.mean, run.interval(), color=color))
        curves.append(PlotLine(f"{name}, expected", curve.steps, curve.loss, color=color, predicted=True))
    save(lines_figure(curves, title), path)
