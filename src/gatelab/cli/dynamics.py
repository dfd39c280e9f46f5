"""`gatelab dynamics`: losses of units under gradient descent, and where they cross."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Plot, Words, unit_option
from gatelab.cli.output import check_file
from gatelab.cli.rows import TrainingRowOptions
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.arrays import Array
    from gatelab.dynamics import Crossing, MeasuredCrossing, Training, Trajectory
    from gatelab.ntk import Kernel

UNITS = ("mlp", "glu")
DYNAMICS = """Examples: gatelab dynamics --gaussian 60,30 --plot curves.png

gatelab dynamics mlp glu gqu friedman1 --width 2048 --measure

gatelab dynamics --data points.csv --target price --standardize --json"""


@dataclass(frozen=True, eq=False)
class TrainedUnit:
    """One unit: its kernel's ends, its expected loss, and its networks where they were trained."""

    name: str
    kernel: Kernel
    nngp: Kernel
    ends: tuple[float, float]
    expected: Trajectory
    trained: Training | None = None

    def plain(self) -> dict[str, Any]:
        """The row of the JSON document."""
        row: dict[str, Any] = {
            "unit": self.name,
            "lambda_max": self.ends[0],
            "lambda_min": self.ends[1],
            "stable": self.expected.stable,
            "step": self.expected.steps,
            "loss": self.expected.loss,
            "bias": self.expected.bias,
            "variance": self.expected.variance,
        }
        if self.trained is not None:
            low, high = self.trained.interval()
            row["measured"] = {
                "seeds": self.trained.seeds,
                "step": self.trained.steps,
                "mean": self.trained.mean,
                "low": low,
                "high": high,
                "diverged": self.trained.diverged,
            }
        return row


@dataclass(frozen=True, eq=False)
class UnitPair:
    """Where the expected losses of two units cross, and where those of their trained networks do."""

    expected: Crossing
    measured: MeasuredCrossing | None = None

    def plain(self) -> dict[str, Any]:
        """The row of the JSON document."""
        c, early, late = self.expected, self.expected.early, self.expected.late
        return {
            "units": list(c.labels),
            "step": c.step,
            "loss": c.loss,
            "changes": list(c.changes),
            "reason": c.reason,
            "first": c.first,
            "last": c.last,
            "early": {"holds": early.holds, "start": early.start, "signal": early.signal, "spread": early.spread},
            "late": {"holds": late.holds, "lambda_min": late.lambda_min, "bound": late.bound},
            "verdict": c.verdict,
            "measured": self.measured,
        }


def dynamics_command(
    *,
    words: Words = None,
    source: TrainingRowOptions,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    width: Annotated[int, typer.Option(min=1, help="Neurons.")] = 1024,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default="half of the stable limit")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of gradient descent.")] = 100,
    measure: Annotated[bool, typer.Option("--measure", help="Train networks as well.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, with --measure.")] = 5,
    plot: Plot = None,
) -> None:
    """Expected losses by gradient descent, and where they cross."""
    check_file(plot, PICTURES)
    names, problem = reading.units(words, unit)
    from gatelab.feedforward import unit as find_unit

    names = list(dict.fromkeys(find_unit(name).name for name in names or UNITS))
    rows, y = source.read(problem)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always", UserWarning)
        units = _expected(names, rows.x, y, width, lr, steps)
        if measure:
            units = _trained(units, rows.x, y, width, steps, seeds)
        pairs = _crossings(units, y, steps)
    notes = list(dict.fromkeys(str(m.message) for m in messages if issubclass(m.category, UserWarning)))
    if plot:
        _plot(units, rows.name, plot)
    step = units[0].expected.lr
    verdicts = []
    for pair in pairs:
        verdicts.append(f"{pair.expected.labels[0]}, {pair.expected.labels[1]}: {pair.expected.verdict}")
        if pair.measured is not None:
            verdicts.append(f"  trained networks ({pair.measured.seeds[0]} seeds) cross at step {pair.measured}")
    about = {"data": rows.name, "n": rows.n, "d": rows.d, "width": width, "lr": step, "steps": steps}
    curves = {"units": [u.plain() for u in units], "crossings": [pair.plain() for pair in pairs]}
    output.emit(
        {**about, **curves, "notes": notes},
        f"{rows.name}: n = {rows.n}, d = {rows.d}, width {width}, lr {step:.3g}; loss (1/2)|f - y|^2",
        "",
        loss_table(units, steps),
        "",
        *verdicts,
        output.points(notes),
        files=(plot,),
    )


# ---- computing


def _expected(names: list[str], X: Array, y: Array, width: int, lr: float | None, steps: int) -> list[TrainedUnit]:
    from gatelab.dynamics import expected_loss, stable_step
    from gatelab.ntk import analytic

    with output.progress("kernels") as report:
        kernels = analytic(list(names), X, width, progress=report)
        nngp = analytic(list(names), X, kind="nngp")
    stable = [stable_step(K) for K in kernels]
    if lr is None:
        lr = min(s.limit for s in stable) / 2
    return [
        TrainedUnit(name, K, N, (s.lambda_max, s.lambda_min), expected_loss(K, y, width, lr, steps, nngp=N))
        for name, K, N, s in zip(names, kernels, nngp, stable, strict=True)
    ]


def _trained(units: list[TrainedUnit], X: Array, y: Array, width: int, steps: int, seeds: int) -> list[TrainedUnit]:
    from gatelab.dynamics import in_span, train

    small, trained = in_span(X), []
    for u in units:
        with output.progress(f"training {u.name}") as report:
            run = train(u.name, small, y, width, u.expected.lr, steps, seeds=seeds, fan_in=X.shape[1], progress=report)
        trained.append(replace(u, trained=run))
    return trained


def _crossings(units: list[TrainedUnit], y: Array, steps: int) -> list[UnitPair]:
    """Of the first unit with every other."""
    from gatelab.dynamics import crossing, measured_crossing

    pairs = []
    first = units[0]
    for other in units[1:]:
        nngp = (first.nngp, other.nngp)
        pair = UnitPair(crossing(first.kernel, other.kernel, y, lr=first.expected.lr, nngp=nngp, steps=steps))
        runs = [u.trained for u in (first, other) if u.trained is not None]
        if len(runs) == 2 and not any((run.diverged >= 0).any() for run in runs):
            pair = replace(pair, measured=measured_crossing(runs[0], runs[1]))
        pairs.append(pair)
    return pairs


# ---- showing


def loss_table(units: list[TrainedUnit], last: int) -> output.Part:
    """One row of losses at some steps per unit, and below it one of its trained networks."""
    import numpy as np

    steps = sorted({0, last // 4, last // 2, last})
    headings = ("unit", "l_max", "l_min", *(f"step {t}" for t in steps))
    rows = []
    for u in units:
        cells = [output.number(v, ".3g") for v in (*u.ends, *u.expected.loss[steps])]
        rows.append((u.name, *cells))
        if u.trained is not None:
            places = np.searchsorted(u.trained.steps, steps)
            rows.append(("  trained", "", "", *(f"{v:.3g}" for v in u.trained.mean[places])))
    return output.table(headings, rows, right=range(1, len(headings)))


def _plot(units: list[TrainedUnit], name: str, path: Path) -> None:
    from gatelab.plotting import looks, save
    from gatelab.plotting.kernels import PlotLine, lines_figure

    colors = looks(u.name for u in units)
    curves = []
    for u in units:
        color = colors[u.name].color
        if u.trained is not None:
            trained = u.trained
            curves.append(PlotLine(f"{u.name}, trained", trained.steps, trained.mean, trained.interval(), color=color))
        label = f"{u.name}, expected"
        curves.append(PlotLine(label, u.expected.steps, u.expected.loss, color=color, predicted=True))
    save(lines_figure(curves, name), path)
