"""`Scorecard`: units side by side on one problem, with a recommendation in words and a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gatelab.display import one_line, shorten
from gatelab.plotting import GRAY, Look, looks, saved, style
from gatelab.plotting.theme import canvas, html, log_ticks
from gatelab.scaling_laws import Scaling
from gatelab.scorecard.recommendation import FittedNetwork, Recommendation, Score, leader_of
from gatelab.statistics import DRAWS, Interval

WIDTH, HEIGHT = 11.4, 6.6


@dataclass(frozen=True)
class Scorecard:
    """The measurements of `compare`, with a recommendation.

    Attributes:
        facts: the settings by name, and what affects the reliability of errors: deviation (of the held-out targets),
            outside (the share of held-out rows beyond the range of the training rows), heaviest (the largest share of
            one row in the best network's squared error), fits, unfinished (fits that ran out of steps).
        scores: a `Score` per unit, at the budget.
        networks: every network within the budget.
        scaling: all fits, by their parameters.
        recommendation: the selected unit and width.
    """

    facts: Mapping[str, Any]
    scores: tuple[Score, ...]
    networks: tuple[FittedNetwork, ...]
    scaling: Scaling
    recommendation: Recommendation

    def __repr__(self) -> str:
        problem = shorten(self.facts["problem"])
        return one_line(self, f"{shorten(', '.join(self.units))} on {problem}: {self.recommendation}")

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the units."""
        return tuple(s.unit for s in self.scores)

    def score(self, unit: str) -> Score:
        """The numbers of one unit."""
        return next(s for s in self.scores if s.unit == unit)

    def network(self, unit: str, width: int) -> FittedNetwork:
        """The network of a unit and a width within the budget."""
        return next(n for n in self.networks if (n.unit, n.width) == (unit, width))

    @property
    def best(self) -> FittedNetwork:
        """The network with the smallest error."""
        return min(self.networks, key=lambda n: n.rmse.value)

    @property
    def floor(self) -> Interval | None:
        """The smallest RMSE on held-out rows if the data limit it, not the units; else None."""
        return self.best.rmse if self.recommendation.regime in ("noise", "rows") else None

    def table(self) -> pd.DataFrame:
        """One row per unit; the columns are the fields of `Score`, and `_low` and `_high` for ends of intervals."""
        return frame(self.scores)

    def left_out(self) -> pd.DataFrame:
        """Networks that are left out of the comparison or of slopes, with the number of fits of each.

        `why` is "budget" (beyond it), "floor" (exact to rounding) or "interpolation".
        """
        points = self.scaling.table()
        beyond = points[points["parameters"] > self.facts["budget"]].assign(why="budget")
        flagged = points[points["flag"] != ""].assign(why=lambda some: some["flag"])
        networks = pd.concat([beyond, flagged]).groupby(["unit", "width", "parameters", "why"], sort=False)
        return networks.agg(fits=("seed", "size")).reset_index()

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """The sentences of `advice.md` by their headings; the recommendation itself has the heading ""."""
        environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters |= {"share": "{:.3g} %".format, "count": whole_text, "bound": bound_text}
        template = environment.from_string((files("gatelab.scorecard") / "advice.md").read_text(encoding="utf-8"))
        names = {"card": self, "facts": self.facts, "advice": self.recommendation, "leader": leader_of(self.scores)}
        text = template.render(**names, left_out=self.left_out().to_dict("records"), draws=DRAWS)
        sections: dict[str, list[str]] = {"": (items := [])}
        for line in map(str.strip, text.splitlines()):
            if line.startswith("## "):
                items = sections.setdefault(line[3:], [])
            elif line.startswith("- "):
                items.append(line[2:])
            elif line:
                items[-1:] = [" ".join([*items[-1:], line])]
        return {heading: items for heading, items in sections.items() if items}

    @property
    def advice(self) -> str:
        """The recommended unit with its certainty, reasons, cost and conditions, as Markdown."""
        (_, opening), *others = self.sections.items()
        parts = ["\n".join([f"## {heading}\n", *(f"- {item}" for item in items)]) for heading, items in others]
        return "\n\n".join([*opening, *parts])

    def texts(self) -> dict[str, pd.DataFrame]:
        """Rounded numbers: the errors of every unit, and its training, linearization and cost."""
        errors, costs = [], []
        for s in self.scores:
            slope = f"{s.slope:.2f}".replace("nan", "-")
            limit = s.limit if self.floor is None else math.nan  # meaningless for noisy rows
            numbers = s.unit, s.width, s.parameters, s.rmse, s.ratio, slope, s.order or "-", short_number(limit)
            errors.append(tuple(map(str, numbers)))
            linear = [short_number(number) for number in (s.steps, s.linear.value, s.minimax)]
            speed, low, high = (short_number(number) for number in astuple(s.rows_per_second)[:3])
            costs.append((s.unit, bound_text(s.condition), *linear, f"{s.block_flops:,}", f"{speed} [{low}, {high}]"))
        title = f"Training, linearization, and a block of d_model {self.facts['d_model']}"
        headings = ["unit", "width", "P", "RMSE", "of the least", "slope in P", "order", "limit"]
        more = ["unit", "condition", "steps", f"m = {self.facts['features']}", "degree 8", "FLOPs", "rows/s"]
        tables = {"Error at equal parameters, with 95 % intervals": pd.DataFrame(errors, columns=headings)}
        return {**tables, title: pd.DataFrame(costs, columns=more)}

    def _repr_html_(self) -> str:
        errors, _ = self.texts().values()
        title = f"{self.facts['problem']}: {self.recommendation}"
        return html(title, errors.to_numpy().tolist(), columns=tuple(errors), figure=self.plot())

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Six panels: error against P, error at the budget, conditioning, steps, linearization, throughput.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into your six axes `ax` if given.
        """
        return saved(draw(self, ax), path)


def frame(networks: Iterable[FittedNetwork]) -> pd.DataFrame:
    """One row per network; an interval has three columns: its value, and with `_low` and `_high` its ends."""

    def cells(name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Interval):
            return {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        return {name: value}

    rows = [{key: v for field in vars(n).items() for key, v in cells(*field).items()} for n in networks]
    return pd.DataFrame(rows)


def whole_text(value: float) -> str:
    """A large number in a sentence: 41234.5 becomes 41,200."""
    return f"{float(f'{value:.3g}'):,.0f}" if math.isfinite(value) else "infinitely many"


def draw(card: Scorecard, ax: Any = None) -> Figure:
    """Error against P with limits; then one line per unit in each other panel."""
    shapes, facts = looks(card.units), card.facts
    contents: list[tuple[Callable[[Score], Interval], str, str]] = [
        (lambda s: s.rmse, f"RMSE at {facts['budget']} parameters", "RMSE on held-out rows, 95 % interval"),
        (lambda s: s.condition, "Conditioning", "condition number of the tangent kernel"),
        (lambda s: Interval(*[s.steps] * 3), "Training", f"predicted steps until {facts['loss']:.0%} is left"),
        (lambda s: s.linear, "Linearization", f"RMSE of {facts['features']} features / deviation"),
        (lambda s: s.rows_per_second, "Throughput of a block", "rows per second, quartiles"),
    ]
    with style():
        place = canvas(WIDTH, HEIGHT, 6, ax, rows=2)
        errors, *others = place.axes
        draw_errors(errors, card, shapes)
        for axes, (number, title, label) in zip(others, contents, strict=True):
            draw_dots(axes, card, shapes, number, log=axes is not others[-1])
            axes.set(title=title, xlabel=label)
        place.title(f"{facts['problem']}: {card.recommendation}")
        place.legend(ncols=min(3, len(card.scores)))
    return place.figure


def draw_errors(axes: Axes, card: Scorecard, shapes: Mapping[str, Look]) -> None:
    """The errors of every unit against parameters, with limits, or with the floor of the data."""
    title = "Error" if card.floor is None else "Error, the floor of the data in gray"
    for score in card.scores:
        shape = shapes[score.unit]
        sizes, errors = card.scaling.curve(score.unit, against="P", flagged=True)
        for seed in errors.T:
            axes.plot(sizes, seed, shape.marker, color=shape.color, markersize=2.5, alpha=0.4)
        slope = "no slope" if math.isnan(score.slope.value) else f"slope {score.slope:.2f}"
        label = f"{score.unit}: {slope}"
        axes.plot(sizes, errors.mean(axis=1), color=shape.color, marker=shape.marker, label=label)
        limits = {p.parameters: p.limit for p in card.scaling.points if p.unit == score.unit and p.limit > 0}
        # For noisy rows the limit is meaningless.
        if limits and card.floor is None:
            axes.plot(list(limits), list(limits.values()), "--", color=shape.color, linewidth=0.9)
            title = "Error, limits dashed"
    if card.floor is not None:
        axes.axhspan(card.floor.low, card.floor.high, color=GRAY, alpha=0.15, linewidth=0)
        axes.axhline(card.floor.value, color=GRAY, linewidth=0.8)
    axes.axvline(card.facts["budget"], color=GRAY, linestyle=":", linewidth=0.9)
    axes.set(xscale="log", yscale="log", xlabel="parameters P", ylabel="RMSE on held-out rows", title=title)
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)


def draw_dots(
    axes: Axes, card: Scorecard, shapes: Mapping[str, Look], number: Callable[[Score], Interval], *, log: bool
) -> None:
    """One line per unit from the top; a hollow mark and an arrow if only the lower end is known."""
    heights = np.arange(len(card.scores))[::-1]
    ends: list[float] = []
    for height, score in zip(heights, card.scores, strict=True):
        interval, shape = number(score), shapes[score.unit]
        if not math.isfinite(interval.low):
            text = "not known" if math.isnan(interval.value) else "never"
            middle: Any = {"xycoords": ("axes fraction", "data"), "ha": "center", "va": "center", "fontsize": 7.5}
            axes.annotate(text, (0.5, height), color=GRAY, **middle)
            continue
        shown, marker, face = interval.value, shape.marker, shape.color
        if math.isfinite(shown):
            axes.hlines(height, interval.low, interval.high, color=shape.color, linewidth=2.2, alpha=0.5)
            ends += [shown, interval.high]
        else:
            shown, marker, face = interval.low, ">", "white"
        ends.append(interval.low)
        axes.plot([shown], [height], marker, color=shape.color, markerfacecolor=face)
        above: Any = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 7.5}
        axes.annotate(bound_text(interval), (shown, height), **above)
    axes.set_yticks(heights, [s.unit for s in card.scores])
    axes.set(ylim=(-0.6, len(heights) - 0.3))
    axes.grid(axis="y", visible=False)
    if log and ends and min(ends) > 0:
        # Space at both ends for the numbers above the marks, and at least a decade for readable ticks.
        margin = max(max(ends) / min(ends), 10.0) ** 0.68
        middle = math.sqrt(max(ends)) * math.sqrt(min(ends))
        axes.set(xscale="log", xlim=(middle / margin, middle * margin))
        log_ticks(axes.xaxis)
    elif ends:
        axes.set(xlim=(0, 1.18 * max(ends)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def short_number(value: float) -> str:
    """Three digits, thousands as k; a hyphen for NaN.

    >>> [short_number(value) for value in (0.0213, 41234.0, 3.2e7, 14.0, 1e-7, math.nan, math.inf)]
    ['0.0213', '41.2k', '3.2e7', '14', '1e-7', '-', 'never']
    """
    if value == 0 or not math.isfinite(value):
        return {0.0: "0", math.inf: "never"}.get(value, "-")
    if 1e3 <= abs(value) < 1e6:
        return f"{value / 1e3:.3g}k"
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def bound_text(interval: Interval) -> str:
    """The value, or the lower end if the value is infinite.

    >>> bound_text(Interval(1.2e8, 1e8, 2e8)), bound_text(Interval(math.inf, 1e13, math.inf))
    ('1.2e8', 'above 1e13')
    """
    return short_number(interval.value) if math.isfinite(interval.value) else f"above {short_number(interval.low)}"
