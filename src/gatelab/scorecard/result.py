"""`Scorecard`: units side by side on one problem, with the recommendation and a figure of six panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gatelab.display import Compact, one_line, shorten
from gatelab.plotting import GREY, Look, Panel, Pen, canvas, looks, style
from gatelab.scaling_laws import Scaling
from gatelab.scorecard.costs import Bench
from gatelab.scorecard.evidence import FittedNetwork, LeftOut, Score
from gatelab.scorecard.recommendation import Recommendation
from gatelab.statistics import DRAWS, Interval

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT = 11.4, 6.6


@dataclass(frozen=True)
class Settings(Compact):
    """What was asked for.

    Attributes:
        budget: the number of parameters at which units are compared.
        seeds: how many fits there are of every network.
        features: the m of the linearisation.
        loss: the share of the target's variance left that counts as trained.
        bench: where and how blocks were timed.
        minimax_interval: that of the polynomials.
    """

    budget: int
    seeds: int
    features: int
    loss: float
    bench: Bench
    minimax_interval: tuple[float, float]


@dataclass(frozen=True)
class Scorecard:
    """What `compare` measured, and what follows from it.

    Attributes:
        problem: its name.
        inputs: how many it has.
        outputs: how many it has.
        train_rows: how many were trained on.
        test_rows: how many were set aside.
        settings: what was asked for.
        scores: a `Score` a unit at the budget.
        networks: every network within the budget.
        scaling: all fits, by their parameters.
        recommendation: which unit to take, and why.
        floor: the least test RMSE reached, with its interval, where the data set it and not the units; else None.
        left_out: the networks that were fitted and do not count for the comparison or the slope, each with its reason.
    """

    problem: str
    inputs: int
    outputs: int
    train_rows: int
    test_rows: int
    settings: Settings
    scores: tuple[Score, ...]
    networks: tuple[FittedNetwork, ...]
    scaling: Scaling
    recommendation: Recommendation
    floor: Interval | None
    left_out: tuple[LeftOut, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{shorten(', '.join(self.units))} on {shorten(self.problem)}: {self.recommendation}")

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the units."""
        return tuple(s.unit for s in self.scores)

    def score(self, unit: str) -> Score:
        """The numbers of one unit."""
        return next(s for s in self.scores if s.unit == unit)

    def table(self) -> pd.DataFrame:
        """A row a unit, in the order in which they were given; the columns are the fields of `Score`."""
        import pandas as pd

        return pd.DataFrame([asdict(s) for s in self.scores])

    def methods(self) -> tuple[str, ...]:
        """How each number was made, in sentences."""
        s, b = self.settings, self.settings.bench
        low, high = s.minimax_interval
        return (
            f"{self.train_rows} rows of {self.inputs} input{'s' * (self.inputs != 1)} were fitted and {self.test_rows} "
            "held out; all errors are on those.",
            f"Equal parameters: of every unit the width nearest to {s.budget} parameters from below, and smaller ones "
            f"for the slopes. RMSE is the mean over {s.seeds} seeds; its 95 % interval is from {DRAWS} draws of test "
            "rows and seeds.",
            "Condition numbers are of the tangent kernel at that width on standardised training rows with a 1 for the "
            "bias, expected over LeCun initialisations, with proved bounds.",
            f"Steps are those of gradient descent on all rows at 1 / lambda_max until {s.loss:.0%} of the target's "
            "variance is left, in the kernel regime.",
            f"Linearisation: RMSE of maps with {s.features} features in all, over the deviation of the unit's neuron; "
            f"polynomial: largest error of degree 8 of the gate on [{low:.2f}, {high:.2f}], over the gate's deviation.",
            f"Rows a second: the transformer's block of d_model {b.d_model} with the parameters of an MLP four times "
            f"as wide, {b.batch} rows a call, median and quartiles of {b.repeats} calls, on {b.device}.",
        )

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        columns = ("unit", "width", "parameters", "test RMSE", "slope in P", "condition", "steps", "rows/s")
        rows = [
            [
                s.unit,
                str(s.width),
                str(s.parameters),
                str(s.rmse_interval),
                *(f"{value:.3g}" for value in (s.slope, s.condition, s.steps, s.rows_per_second)),
            ]
            for s in self.scores
        ]
        return html(f"{self.problem}: {self.recommendation}", rows, columns=columns, figure=self.plot())

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Six panels: error against P, error at the budget, conditioning, steps, linearisation, throughput.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into six axes of your own with `ax`.
        """
        from gatelab.plotting import saved

        return saved(draw(self, ax), path)


def draw(card: Scorecard, ax: Any = None) -> Figure:
    """Error against P with limits; then a line a unit: error at the budget, condition, steps, linearisation, rows."""
    shapes, s = looks(card.units), card.settings

    def conditions(score: Score) -> Interval:
        return Interval(score.condition, score.condition_low, score.condition_high)

    def steps(score: Score) -> Interval:
        return Interval(score.steps, score.steps, score.steps)  # a formula's value: it has no interval

    def linear(score: Score) -> Interval:
        return Interval(score.linear_error, score.linear_low, score.linear_high)

    def speeds(score: Score) -> Interval:
        return Interval(score.rows_per_second, score.rows_per_second_low, score.rows_per_second_high)

    with style():
        place = canvas(WIDTH, HEIGHT, 6, ax, rows=2)
        errors, *panels = place.panels
        draw_errors(errors, card, shapes)
        contents: list[tuple[Callable[[Score], Interval], str, str]] = [
            (lambda score: score.rmse_interval, f"RMSE at {s.budget} parameters", "test RMSE, 95 % interval"),
            (conditions, "Conditioning", "condition number of the tangent kernel"),
            (steps, "Training", f"predicted steps until {s.loss:.0%} is left"),
            (linear, "Linearisation", f"RMSE of {s.features} features / deviation"),
            (speeds, "Throughput of a block", "rows a second, quartiles"),
        ]
        for panel, (number, title, label) in zip(panels, contents, strict=True):
            draw_dots(panel, card, shapes, number, log=number is not speeds)
            panel.set(title=title, xlabel=label)
        place.title(f"{card.problem}: {card.recommendation}")
        place.legend(ncols=min(3, len(card.scores)))
    return place.figure


def draw_errors(panel: Panel, card: Scorecard, shapes: Mapping[str, Look]) -> None:
    """The errors of every unit against its parameters, with its limits, or with the floor of the data."""
    title = "Error"
    if card.floor is not None:
        title = "Error, the floor of the data in grey"
    for score in card.scores:
        shape = shapes[score.unit]
        sizes, errors = card.scaling.curve(score.unit, against="P", flagged=True)
        for seed in errors.T:
            panel.line(sizes, seed, Pen(shape.colour, "", marker=shape.marker, size=2.5, alpha=0.4))
        slope = "no slope"
        if not math.isnan(score.slope):
            slope = f"slope {Interval(score.slope, score.slope_low, score.slope_high):.2f}"
        means = errors.mean(axis=1)
        panel.line(sizes, means, Pen(shape.colour, marker=shape.marker), label=f"{score.unit}: {slope}")
        limits = {p.parameters: p.limit for p in card.scaling.points if p.unit == score.unit and p.limit > 0}
        # From noisy rows a limit is that of the noise.
        if limits and card.floor is None:
            panel.line(list(limits), list(limits.values()), Pen(shape.colour, "--", 0.9))
            title = "Error, limits dashed"
    if card.floor is not None:
        panel.span("y", card.floor.low, card.floor.high, GREY, alpha=0.15)
        panel.rule("y", card.floor.value, Pen(GREY, width=0.8))
    panel.rule("x", card.settings.budget, Pen(GREY, ":", 0.9))
    panel.set(xscale="log", yscale="log", xlabel="parameters P", ylabel="test RMSE", title=title)
    plain_ticks(panel, "x")
    plain_ticks(panel, "y")


def draw_dots(
    panel: Panel, card: Scorecard, shapes: Mapping[str, Look], number: Callable[[Score], Interval], *, log: bool
) -> None:
    """A line a unit from the top down; a hollow mark and an arrow where only a lower end is known."""
    heights = np.arange(len(card.scores))[::-1]
    ends: list[float] = []

    def write(text: str, height: float) -> None:
        panel.text(text, 0.5, height, within=("panel", "data"), across="center", up="center", size=7.5, colour=GREY)

    for height, score in zip(heights, card.scores, strict=True):
        interval, shape = number(score), shapes[score.unit]
        if math.isnan(interval.value):
            write("not known", height)
            continue
        if math.isfinite(interval.value):
            shown, text, marker, face = interval.value, short_number(interval.value), shape.marker, ""
            ends += [interval.value, interval.low, interval.high]
            if interval.high > interval.low:
                line = [interval.low, interval.high]
                panel.line(line, [height, height], Pen(shape.colour, width=2.2, alpha=0.5))
        elif math.isfinite(interval.low):
            shown, text, marker, face = interval.low, f"above {short_number(interval.low)}", ">", "white"
            ends.append(interval.low)
        else:
            write("never", height)
            continue
        panel.line(shown, height, Pen(shape.colour, marker=marker, face=face))
        panel.text(text, shown, height, shift=(0, 6), across="center", size=7.5)
    panel.axes.set_yticks(heights, [s.unit for s in card.scores])
    panel.set(ylim=(-0.6, len(heights) - 0.3))
    panel.axes.grid(axis="y", visible=False)
    if log and ends and min(ends) > 0:
        # Room at both ends for the numbers above the marks, and at least a decade for ticks to be numbers.
        spread = max(math.log10(max(ends) / min(ends)), 1.0)
        middle = math.log10(max(ends) * min(ends)) / 2
        panel.set(xscale="log", xlim=(10 ** (middle - 0.68 * spread), 10 ** (middle + 0.68 * spread)))
        plain_ticks(panel, "x")
    elif ends:
        panel.set(xlim=(0, 1.18 * max(ends)))
        panel.axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def plain_ticks(panel: Panel, which: str) -> None:
    """Powers of ten, and between them 2 and 5 where there are less than two powers."""
    axis = {"x": panel.axes.xaxis, "y": panel.axes.yaxis}[which]
    low, high = axis.get_view_interval()
    steps = [1.0]
    if math.log10(high / low) < 2:
        steps += [2.0, 5.0]
    axis.set_major_locator(LogLocator(subs=steps, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axis.set_minor_formatter(NullFormatter())


def short_number(value: float) -> str:
    """Three digits, thousands as k.

    >>> short_number(0.0213), short_number(41234.0), short_number(3.2e7), short_number(14.0), short_number(1e-7)
    ('0.0213', '41.2k', '3.2e7', '14', '1e-7')
    """
    if value == 0:
        return "0"
    if 1e3 <= abs(value) < 1e6:
        return f"{value / 1e3:.3g}k"
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"
