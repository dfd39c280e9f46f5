"""The law in P and D: noisy data, every size of network with every number of data. Not a figure of the paper.

To the fits of each unit an additive law E + A/P^a + B/D^b and the law that noise asks for are fitted; the figure has
the errors with both laws, and how far each of them is off as P nears D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gatelab.arrays import Array
from gatelab.display import counted
from gatelab.plotting import GREY, NEURON_COLOURS, Entry, Panel, Pen, figure_legend, new_figure, style
from gatelab.scaling_laws import Law, Slope, fit_law, slope
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.scaling.error_curves import fit_curves
from gatelab.studies.scaling.noisy_fits import (
    QUICK,
    NoiseLaw,
    NoisyFit,
    NoisyPlan,
    columns,
    fit_noise_law,
    measure_noisy,
)
from gatelab.studies.verdicts import ends

Columns = tuple[Array, Array, Array]
Predict = Callable[[Array, Array], Array]
MARKS = {"additive": ("o", NEURON_COLOURS[0]), "noise": ("^", NEURON_COLOURS[1])}
LINES = {"additive": "-", "noise": "--"}
NEAR_D = 0.25  # parameters over data from which on a network counts as near to interpolation
BINS = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, np.inf)


def run(request: Request) -> Outcome:
    """Every fit of the plan, the laws of each unit, and what they say."""
    plan = NoisyPlan()
    if request.quick:
        plan = QUICK
    tick = ticker(request, plan.fits)
    fits = measure_noisy(request, plan, tick)
    clean = fit_curves(request, plan.units, plan.target(max(plan.data), 0, noise=0.0), plan.widths, tick, **plan.how)
    units = [unit_laws(u, fits, plan, slope(*clean.curve(u, against="P"))) for u in plan.units]
    figure = law_panels(
        [laws.panel for laws in units], f"The law in P and D: Friedman 1 with noise of deviation {plan.noise:g}"
    )
    errors = pd.DataFrame(
        [{"data": f.data, "draw": f.draw, "noise": plan.noise, **asdict(f.point)} for f in fits]
        + [{"data": max(plan.data), "draw": 0, "noise": 0.0, **asdict(p)} for p in clean.points]
    )
    tables = {"laws": laws_table(units), "ratios": ratios_table(units), "errors": errors}
    claims = [claim for laws in units for claim in (size_claim(laws), data_claim(laws), noise_claim(laws))]
    return Outcome(figure, tables, tuple(claims), notes(plan, units))


@dataclass(frozen=True, eq=False)
class UnitLaws:
    """What the fits of one unit say.

    Attributes:
        unit: The unit.
        additive: The additive law in P and D.
        noisy: The noise law.
        noise_free: The slope against P of fits without noise.
        used: The fits that made the laws.
        left_out: The fits with half as many parameters as data or more.
    """

    unit: str
    additive: Law
    noisy: NoiseLaw
    noise_free: Slope
    used: tuple[NoisyFit, ...]
    left_out: tuple[NoisyFit, ...]

    @property
    def panel(self) -> LawPanel:
        """What the figure shows of them."""
        predictions = {"additive": self.additive.predict, "noise": self.noisy.predict}
        return LawPanel(self.unit, columns(self.used), columns(self.left_out), predictions)

    def ratios(self, low: float, high: float) -> tuple[Array, Array]:
        """Measured error over that of the additive and of the noise law, for fits with P/D in [low, high)."""
        P, D, L = columns((*self.used, *self.left_out))
        here = (low <= P / D) & (high > P / D)
        return (L / self.additive.predict(P, D))[here], (L / self.noisy.predict(P, D))[here]


def unit_laws(unit: str, fits: Sequence[NoisyFit], plan: NoisyPlan, noise_free: Slope) -> UnitLaws:
    """Both laws through the fits of a unit."""
    used, left_out = (tuple(f for f in fits if f.unit == unit and f.left_out is out) for out in (False, True))
    P, D, L = columns(used)
    return UnitLaws(unit, fit_law(P, D, L), fit_noise_law(P, D, L, plan.noise), noise_free, used, left_out)


def share_of_noise(laws: UnitLaws) -> tuple[float, float]:
    """How much of the squared error estimation makes, by the noise law, at the two opposite corners of the table."""
    P, D, _ = columns(laws.used)
    least = D[P.max() <= P].min()
    shape, estimation = laws.noisy.parts(np.array([P.min(), P.max()]), np.array([D.max(), least]))
    shares = estimation**2 / (shape**2 + estimation**2)
    return float(shares[0]), float(shares[1])


def laws_table(units: Sequence[UnitLaws]) -> pd.DataFrame:
    """A row a unit: the five constants of the additive law with intervals, the noise law, the slope without noise."""
    rows = []
    for laws in units:
        row: dict[str, object] = {"unit": laws.unit, "fits": laws.additive.points, "left_out": len(laws.left_out)}
        for name, (low, high) in laws.additive.intervals._asdict().items():
            row |= {name: getattr(laws.additive, name), f"{name}_low": low, f"{name}_high": high}
        row["log_rmse"] = laws.additive.rmse
        row |= {f"noise_{key}": getattr(laws.noisy, key) for key in ("A", "a", "c")}
        row |= {"noise_log_rmse": laws.noisy.rmse, "noise_free_slope_P": laws.noise_free.value}
        rows.append(row | {"noise_free_low": laws.noise_free.low, "noise_free_high": laws.noise_free.high})
    return pd.DataFrame(rows)


def ratios_table(units: Sequence[UnitLaws]) -> pd.DataFrame:
    """Measured error over each law's, by how near P is to D: geometric mean, least and greatest."""
    rows = []
    for laws in units:
        for low, high in pairwise(BINS):
            for law, ratios in zip(("additive", "noise"), laws.ratios(low, high), strict=True):
                if len(ratios):
                    row = {"unit": laws.unit, "P_over_D_from": low, "P_over_D_to": high, "law": law}
                    middle = float(np.exp(np.log(ratios).mean()))
                    rows.append(row | {"fits": len(ratios), "mean": middle, "min": ratios.min(), "max": ratios.max()})
    return pd.DataFrame(rows)


def where_it_holds(laws: UnitLaws) -> str:
    """How far the additive law is off far from interpolation and near to it."""
    parts = []
    for words, low, high in (("below", 0.0, NEAR_D), ("from", NEAR_D, np.inf)):
        additive, noisy = laws.ratios(low, high)
        if len(additive):
            off, less = (float(np.exp(np.abs(np.log(r)).max())) for r in (additive, noisy))
            mean = float(np.exp(np.log(additive).mean()))
            parts.append(
                f"for P/D {words} {NEAR_D:g} the error is {mean:.2f} times the additive law's in the mean and up to "
                f"{off:.2f} times off (noise law: {less:.2f})"
            )
    return f"{laws.unit}: {'; '.join(parts)}."


def size_claim(laws: UnitLaws) -> Claim:
    """The exponent of P beside the slope without noise."""
    interval, free = laws.additive.intervals.a, laws.noise_free
    agrees = "does not agree"
    if interval[0] <= -free.value <= interval[1]:
        agrees = "agrees"
    return Claim(
        f"exponent a of P, {laws.unit}",
        "-",
        exponent_words(laws.additive.a),
        "new",
        f"Without noise the {laws.unit}'s error falls with slope {free} against P: the law's exponent "
        f"{agrees} with it within its interval. The noise law's exponent is "
        f"{laws.noisy.a:.2f}.",
        exponent_ends(laws.additive.a, interval),
    )


def data_claim(laws: UnitLaws) -> Claim:
    """The exponent of D beside the 1/2 of theory."""
    interval = laws.additive.intervals.b
    holds = "does not hold"
    if interval[0] <= 0.5 <= interval[1]:
        holds = "holds"
    few, many = share_of_noise(laws)
    return Claim(
        f"exponent b of D, {laws.unit}",
        "-",
        exponent_words(laws.additive.b),
        "new",
        f"Noise alone would give 1/2, which the interval for the {laws.unit} {holds}. By the noise law estimation "
        f"makes {few:.0%} of the squared error at the least P and the most D, and {many:.0%} at the most P and the "
        "least D.",
        exponent_ends(laws.additive.b, interval),
    )


def noise_claim(laws: UnitLaws) -> Claim:
    """The constant of the estimation error, and which law describes the table better."""
    return Claim(
        f"estimation error over noise (P/D)^1/2, {laws.unit}",
        "-",
        f"{laws.noisy.c:.2f}",
        "new",
        f"With 3 constants the noise law is within {laws.noisy.rmse:.1%} (RMS of log) of the {laws.unit}'s "
        f"{len(laws.used)} fits, with 5 the additive one within {laws.additive.rmse:.1%}.",
    )


def exponent_words(value: float) -> str:
    """An exponent as claims have it; a law without that term has none.

    >>> exponent_words(1.234), exponent_words(np.nan)
    ('1.23', 'none')
    """
    if np.isnan(value):
        return "none"
    return f"{value:.2f}"


def exponent_ends(value: float, interval: tuple[float, float]) -> str:
    """The interval of an exponent, if there is the exponent.

    >>> exponent_ends(1.234, (1.0, np.inf)), exponent_ends(np.nan, (0.0, np.inf))
    ('[1.00, inf]', '')
    """
    if np.isnan(value):
        return ""
    return ends(*interval, ".2f")


def notes(plan: NoisyPlan, units: Sequence[UnitLaws]) -> tuple[str, ...]:
    """What was fitted, and where the additive law holds."""
    return (
        f"Friedman 1 in its own units, noise of deviation {plan.noise:g} on the training targets, D from "
        f"{min(plan.data)} to {max(plan.data)}, n = {min(plan.widths)}..{max(plan.widths)}, "
        f"{counted(plan.draws, 'draw')} of the data; errors on {plan.tests} clean points.",
        "Fits with P at least D/2 are left out of both laws and drawn hollow.",
        "The additive law has no term in which P and D meet; estimation error has: it grows with P at fixed D. "
        + " ".join(where_it_holds(laws) for laws in units),
        *(f"{laws.unit}: {note}." for laws in units for note in laws.additive.notes),
    )


@dataclass(frozen=True, eq=False)
class LawPanel:
    """One unit in the figure.

    Attributes:
        name: The unit.
        used: P, D and error of the fits that made the laws.
        left_out: The same of the fits that were left out.
        predictions: What the "additive" and the "noise" law predict from P and D.
    """

    name: str
    used: Columns
    left_out: Columns
    predictions: Mapping[str, Predict]


def law_panels(units: Sequence[LawPanel], title: str) -> Figure:
    """Above, error against P for each D with both laws; below, measured over predicted against P/D."""
    with style():
        figure = new_figure(1.2 + 3.4 * len(units), 6.2)
        grid = figure.subplots(2, len(units), sharey="row", sharex="row", squeeze=False, height_ratios=(1.4, 1.0))
        data = np.unique(np.concatenate([u.used[1] for u in units]))
        for (above, below), unit in zip(grid.T, units, strict=True):
            draw_errors(Panel(above), unit, data)
            draw_ratios(Panel(below), unit)
            above.set_title(unit.name)
        grid[0, 0].set_ylabel("RMSE on clean test data")
        grid[1, 0].set_ylabel("measured over law")
        figure_legend(figure, legend_entries(data), loc="outside right center", handlelength=2.2)
        figure.suptitle(title)
    return figure


def draw_errors(panel: Panel, unit: LawPanel, data: Array) -> None:
    """Errors against P, a colour for each D, with both laws."""
    panel.set(xscale="log", yscale="log", xlabel="parameters P")
    for D in data:
        colour = data_colour(D, data)
        for (P, Ds, L), face in ((unit.used, ""), (unit.left_out, "white")):
            here = Ds == D
            panel.line(P[here], L[here], Pen(colour, "", marker="o", size=3.5, face=face), order=3)
        P = unit.used[0][unit.used[1] == D]
        if len(P):
            along = np.geomspace(P.min(), P.max(), 60)
            for law, predict in unit.predictions.items():
                panel.line(along, predict(along, np.full(60, D)), Pen(colour, LINES[law]))
    plain_ticks(panel.axes.xaxis, (1.0, 2.0, 5.0))
    plain_ticks(panel.axes.yaxis, (1.0, 2.0, 5.0))


def draw_ratios(panel: Panel, unit: LawPanel) -> None:
    """Measured over predicted against P/D."""
    panel.set(xscale="log", yscale="log", xlabel="parameters over data, P/D")
    panel.rule("y", 1.0, Pen(GREY, width=0.8))
    for law, predict in unit.predictions.items():
        marker, colour = MARKS[law]
        for (P, D, L), face in ((unit.used, ""), (unit.left_out, "white")):
            panel.line(P / D, L / predict(P, D), Pen(colour, "", marker=marker, size=3.5, face=face))
    plain_ticks(panel.axes.xaxis, (1.0, 3.0))
    plain_ticks(panel.axes.yaxis, (1.0, 2.0, 5.0))


def plain_ticks(axis: Axis, steps: tuple[float, ...]) -> None:
    """Ticks at these steps of each decade, labelled with plain numbers."""
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def data_colour(value: float, values: Array) -> Any:
    """From dark to light with the logarithm; the palest part, which white would swallow, is not used."""
    share = np.log(value / values[0]) / max(np.log(values[-1] / values[0]), 1e-12)
    return mpl.colormaps["viridis"](0.86 * share)


def legend_entries(data: Array) -> list[Entry]:
    """What colours, lines and marks mean."""
    of_data = [Entry(f"D = {D:g}", Pen(data_colour(D, data), "", marker="o")) for D in data]
    of_laws = [Entry("$E + A/P^a + B/D^b$", Pen(GREY)), Entry("noise law", Pen(GREY, "--"))]
    below = [Entry(f"over the {law} law", Pen(colour, "", marker=marker)) for law, (marker, colour) in MARKS.items()]
    return [*of_data, *of_laws, *below, Entry("left out: P ≥ D/2", Pen(GREY, "", marker="o", face="white"))]


STUDY = Study(
    "scaling/law",
    "The law in parameters and data",
    "Not in the paper, which varies the network alone: here data and their noise are varied too.",
    run,
    long=True,
    position=13,
    beyond=True,
)
