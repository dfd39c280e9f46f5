"""The figure of a scorecard: six small panels, one for each question.

`Scorecard`: units side by side on one problem, and the recommendation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gatelab.display import counted, one_line, shorten
from gatelab.plotting import GREY, Look, canvas, looks, style
from gatelab.scaling_laws import Scaling
from gatelab.scorecard.costs import Bench
from gatelab.scorecard.evidence import FittedNetwork, LeftOut, Score
from gatelab.scorecard.measurements import DRAWS, ScoreInterval
from gatelab.scorecard.recommendation import Recommendation

if TYPE_CHECKING:
    pass

WIDTH, HEIGHT = 11.4, 6.6
Triple = tuple[float, float, float]


def draw(card: Scorecard, ax: Any = None) -> Figure:
    """Error against P with limits; then a line a unit: error at the budget, condition, steps, linearisation, rows."""
    shapes = looks(card.units)
    s = card.settings
    with style():
        place = canvas(WIDTH, HEIGHT, 6, ax, rows=2)
        panels = np.reshape(np.array(place.panels), (2, 3))
        _errors(panels[0, 0], card, shapes)
        _dots(panels[0, 1], card, shapes, _rmse, f"RMSE at {s.budget} parameters", "test RMSE, 95 % interval")
        _dots(panels[0, 2], card, shapes, _condition, "Conditioning", "condition number of the tangent kernel")
        _dots(panels[1, 0], card, shapes, _steps, "Training", f"predicted steps until {s.loss:.0%} is left")
        _dots(panels[1, 1], card, shapes, _linear, "Linearisation", f"RMSE of {s.features} features / deviation")
        _dots(panels[1, 2], card, shapes, _speed, "Throughput of a block", "rows a second, quartiles", log=False)
        place.title(f"{card.problem}: {card.recommendation}")
        place.legend(ncols=min(3, len(card.scores)))
    return place.figure


def _errors(panel: Axes, card: Scorecard, shapes: Mapping[str, Look]) -> None:
    title = "Error" if card.floor is None else "Error, the floor of the data in grey"
    for score in card.scores:
        shape = shapes[score.unit]
        sizes, errors = card.scaling.curve(score.unit, against="P", flagged=True)
        panel.plot(sizes, errors, linestyle="none", marker=shape.marker, color=shape.colour, markersize=2.5, alpha=0.4)
        panel.plot(
            sizes, errors.mean(axis=1), color=shape.colour, marker=shape.marker, label=f"{score.unit}: {_slope(score)}"
        )
        limits = {p.parameters: p.limit for p in card.scaling.points if p.unit == score.unit and p.limit > 0}
        # From noisy rows a limit is that of the noise.
        if limits and card.floor is None:
            panel.plot(list(limits), list(limits.values()), color=shape.colour, linestyle="--", linewidth=0.9)
            title = "Error, limits dashed"
    if card.floor is not None:
        panel.axhspan(card.floor.low, card.floor.high, color=GREY, alpha=0.15, linewidth=0)
        panel.axhline(card.floor.value, color=GREY, linewidth=0.8)
    panel.axvline(card.settings.budget, color=GREY, linestyle=":", linewidth=0.9)
    panel.set(xscale="log", yscale="log", xlabel="parameters P", ylabel="test RMSE", title=title)
    _plain_ticks(panel, "x")
    _plain_ticks(panel, "y")


def _slope(score: Score) -> str:
    if math.isnan(score.slope):
        return "no slope"
    if math.isnan(score.slope_low):
        return f"slope {score.slope:.2f}"
    return f"slope {score.slope:.2f} [{score.slope_low:.2f}, {score.slope_high:.2f}]"


def _dots(
    panel: Axes,
    card: Scorecard,
    shapes: Mapping[str, Look],
    of: Callable[[Score], Triple],
    title: str,
    label: str,
    log: bool = True,
) -> None:
    """A line a unit from the top down; a hollow mark and an arrow where only a lower end is known."""
    places = np.arange(len(card.scores))[::-1]
    ends: list[float] = []
    for at, score in zip(places, card.scores, strict=True):
        value, low, high = of(score)
        shape = shapes[score.unit]
        if math.isnan(value):
            _said(panel, "not known", at)
            continue
        known = math.isfinite(value)
        if not known and not math.isfinite(low):
            _said(panel, "never", at)
            continue
        shown = value if known else low
        if known and high > low:
            panel.plot([low, high], [at, at], color=shape.colour, linewidth=2.2, alpha=0.5)
        face = shape.colour if known else "white"
        panel.plot([shown], [at], marker=shape.marker if known else ">", color=shape.colour, markerfacecolor=face)
        told = _number(shown) if known else f"above {_number(shown)}"
        panel.annotate(told, (shown, float(at)), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7.5)
        ends += [shown, *([low, high] if known else [])]
    panel.set_yticks(places, [s.unit for s in card.scores])
    panel.set_ylim(-0.6, len(places) - 0.3)
    panel.grid(axis="y", visible=False)
    panel.set(title=title, xlabel=label)
    if log and ends and min(ends) > 0:
        panel.set_xscale("log")
        # Room at both ends for the numbers above the marks, and at least a decade for ticks to be numbers.
        spread = max(math.log10(max(ends) / min(ends)), 1.0)
        middle = math.log10(max(ends) * min(ends)) / 2
        panel.set_xlim(10 ** (middle - 0.68 * spread), 10 ** (middle + 0.68 * spread))
        _plain_ticks(panel, "x")
    elif ends:
        panel.set_xlim(0, 1.18 * max(ends))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))


def _said(panel: Axes, text: str, at: float) -> None:
    panel.annotate(
        text, (0.5, float(at)), xycoords=("axes fraction", "data"), ha="center", va="center", fontsize=7.5, color=GREY
    )


def _plain_ticks(panel: Axes, which: str) -> None:
    """Powers of ten, and between them 2 and 5 where there are less than two powers."""
    axis = panel.xaxis if which == "x" else panel.yaxis
    low, high = panel.get_xlim() if which == "x" else panel.get_ylim()
    span = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 2 else (1.0,), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_formatter(NullFormatter())


def _number(value: float) -> str:
    """Three digits, thousands as k.

    >>> _number(0.0213), _number(41234.0), _number(3.2e7), _number(14.0), _number(1e-7)
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


def _rmse(s: Score) -> Triple:
    return s.rmse, s.rmse_low, s.rmse_high


def _condition(s: Score) -> Triple:
    return s.condition, s.condition_low, s.condition_high


def _steps(s: Score) -> Triple:
    return s.steps, s.steps, s.steps  # a formula's value: it has no interval


def _linear(s: Score) -> Triple:
    return s.linear_error, s.linear_low, s.linear_high


def _speed(s: Score) -> Triple:
    return s.rows_per_second, s.rows_per_second_low, s.rows_per_second_high


if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """What was asked for: parameters, seeds, features m, the share of the variance left that counts as trained."""

    budget: int
    seeds: int
    features: int
    loss: float
    bench: Bench
    minimax_interval: tuple[float, float]

    def __repr__(self) -> str:
        return one_line(self, f"{self.budget} parameters, {counted(self.seeds, 'seed')}, {self.features} features")


@dataclass(frozen=True)
class Scorecard:
    """What `compare` found: a `Score` a unit at the budget, every network on the way, and what follows from them.

    `floor` is the least test RMSE reached, with its interval, where the data set it and not the units; else None.
    `left_out` are the networks that were fitted and do not count for the comparison or the slope, each with its reason.
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
    floor: ScoreInterval | None
    left_out: tuple[LeftOut, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{shorten(', '.join(self.units))} on {shorten(self.problem)}: {self.recommendation}")

    @property
    def units(self) -> tuple[str, ...]:
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
                f"{s.rmse:.3g} [{s.rmse_low:.3g}, {s.rmse_high:.3g}]",
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
