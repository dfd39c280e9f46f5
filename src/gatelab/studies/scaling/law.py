"""What the noisy fits of one unit say: the additive law, the noise law, and where each of them holds.

The figure of the law in P and D: errors with both laws, and how far each law is off as P nears D.

The law in P and D: noisy data, every size of network with every number of data. Not a figure of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gatelab.arrays import Array
from gatelab.plotting import GREY, NEURON_COLOURS, new_figure, style
from gatelab.scaling_laws import Law, Slope, fit_law, slope
from gatelab.studies.definition import Claim, Outcome, Request, Study
from gatelab.studies.scaling.errors import measured, ticker
from gatelab.studies.scaling.noisy import QUICK, NoiseLaw, Noisy, NoisyPlan, columns, fit_noise_law, measure_noisy
from gatelab.studies.verdicts import ends

NEAR_D = 0.25  # parameters over data from which on a network counts as near to interpolation
BINS = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, np.inf)


@dataclass(frozen=True, eq=False)
class UnitLaws:
    """What one unit's fits say: the additive law, the noise law, and the slope against P without noise."""

    unit: str
    additive: Law
    noisy: NoiseLaw
    noise_free: Slope
    kept: tuple[Noisy, ...]
    left_out: tuple[Noisy, ...]

    @property
    def panel(self) -> LawPanel:
        return LawPanel(
            self.unit, columns(self.kept), columns(self.left_out), self.additive.predict, self.noisy.predict
        )

    def ratios(self, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """Measured error over that of the additive and of the noise law, for fits with P/D in [low, high)."""
        P, D, L = columns((*self.kept, *self.left_out))
        here = (low <= P / D) & (high > P / D)
        return (L / self.additive.predict(P, D))[here], (L / self.noisy.predict(P, D))[here]


def unit_laws(unit: str, fits: Sequence[Noisy], plan: NoisyPlan, noise_free: Slope) -> UnitLaws:
    mine = [f for f in fits if f.unit == unit]
    kept, left_out = (tuple(f for f in mine if f.left_out is out) for out in (False, True))
    P, D, L = columns(kept)
    return UnitLaws(unit, fit_law(P, D, L), fit_noise_law(P, D, L, plan.noise), noise_free, kept, left_out)


def share_of_noise(laws: UnitLaws) -> tuple[float, float]:
    """How much of the squared error estimation makes, by the noise law, at the two opposite corners of the table."""
    P, D, _ = columns(laws.kept)
    least = D[P.max() <= P].min()
    shape, estimation = laws.noisy.parts(np.array([P.min(), P.max()]), np.array([D.max(), least]))
    shares = estimation**2 / (shape**2 + estimation**2)
    return float(shares[0]), float(shares[1])


def laws_table(found: Sequence[UnitLaws]) -> pd.DataFrame:
    """A row a unit: the five constants of the additive law with intervals, the noise law, the slope without noise."""
    rows = []
    for laws in found:
        line: dict[str, object] = {"unit": laws.unit, "fits": laws.additive.points, "left_out": len(laws.left_out)}
        for name, (low, high) in laws.additive.intervals._asdict().items():
            line |= {name: getattr(laws.additive, name), f"{name}_low": low, f"{name}_high": high}
        line["log_rmse"] = laws.additive.rmse
        line |= {f"noise_{key}": getattr(laws.noisy, key) for key in ("A", "a", "c")}
        line |= {"noise_log_rmse": laws.noisy.rmse, "noise_free_slope_P": laws.noise_free.value}
        rows.append(line | {"noise_free_low": laws.noise_free.low, "noise_free_high": laws.noise_free.high})
    return pd.DataFrame(rows)


def ratios_table(found: Sequence[UnitLaws]) -> pd.DataFrame:
    """Measured error over each law's, by how near P is to D: geometric mean, least and greatest."""
    rows = []
    for laws in found:
        for low, high in pairwise(BINS):
            for law, ratios in zip(("additive", "noise"), laws.ratios(low, high), strict=True):
                if len(ratios):
                    line = {"unit": laws.unit, "P_over_D_from": low, "P_over_D_to": high, "law": law}
                    middle = float(np.exp(np.log(ratios).mean()))
                    rows.append(line | {"fits": len(ratios), "mean": middle, "min": ratios.min(), "max": ratios.max()})
    return pd.DataFrame(rows)


def where_it_holds(laws: UnitLaws) -> str:
    """How far the additive law is off far from interpolation and near to it."""
    said = []
    for words, low, high in (("below", 0.0, NEAR_D), ("from", NEAR_D, np.inf)):
        additive, noisy = laws.ratios(low, high)
        if len(additive):
            off, less = (float(np.exp(np.abs(np.log(r)).max())) for r in (additive, noisy))
            mean = float(np.exp(np.log(additive).mean()))
            said.append(
                f"for P/D {words} {NEAR_D:g} the error is {mean:.2f} times the additive law's in the mean and up to "
                f"{off:.2f} times off (noise law: {less:.2f})"
            )
    return f"{laws.unit}: {'; '.join(said)}."


Columns = tuple[Array, Array, Array]
Predict = Callable[[Array, Array], Array]
MARKS = {"additive": ("o", NEURON_COLOURS[0]), "noise": ("^", NEURON_COLOURS[1])}


@dataclass(frozen=True, eq=False)
class LawPanel:
    """One unit: P, D and error of the fits that made the laws and of those left out, and the two laws."""

    name: str
    kept: Columns
    left_out: Columns
    additive: Predict
    noise: Predict


def law_panels(units: Sequence[LawPanel], title: str) -> Figure:
    """Above, error against P for each D with both laws; below, measured over predicted against P/D."""
    with style():
        figure = new_figure(1.2 + 3.4 * len(units), 6.2)
        grid = figure.subplots(2, len(units), sharey="row", sharex="row", squeeze=False, height_ratios=(1.4, 1.0))
        data = np.unique(np.concatenate([u.kept[1] for u in units]))
        for (above, below), unit in zip(grid.T, units, strict=True):
            _errors(above, unit, data)
            _ratios(below, unit)
            above.set_title(unit.name)
        grid[0, 0].set_ylabel("RMSE on clean test data")
        grid[1, 0].set_ylabel("measured over law")
        figure.legend(handles=_handles(data), loc="outside right center", handlelength=2.2)
        figure.suptitle(title)
    return figure


def _errors(panel: Axes, unit: LawPanel, data: Array) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    for D in data:
        colour = _colour(D, data)
        for (P, Ds, L), face in ((unit.kept, colour), (unit.left_out, "white")):
            here = Ds == D
            panel.plot(P[here], L[here], "o", color=colour, markerfacecolor=face, markersize=3.5, zorder=3)
        P = unit.kept[0][unit.kept[1] == D]
        if len(P):
            along = np.geomspace(P.min(), P.max(), 60)
            panel.plot(along, unit.additive(along, np.full(60, D)), color=colour, linestyle="-")
            panel.plot(along, unit.noise(along, np.full(60, D)), color=colour, linestyle="--")
    panel.set_xlabel("parameters P")
    _plain(panel.xaxis, (1.0, 2.0, 5.0))
    _plain(panel.yaxis, (1.0, 2.0, 5.0))


def _ratios(panel: Axes, unit: LawPanel) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.axhline(1.0, color=GREY, linewidth=0.8)
    for law, predict in (("additive", unit.additive), ("noise", unit.noise)):
        marker, colour = MARKS[law]
        for (P, D, L), face in ((unit.kept, colour), (unit.left_out, "white")):
            panel.plot(P / D, L / predict(P, D), marker, color=colour, markerfacecolor=face, markersize=3.5)
    panel.set_xlabel("parameters over data, P/D")
    _plain(panel.xaxis, (1.0, 3.0))
    _plain(panel.yaxis, (1.0, 2.0, 5.0))


def _plain(axis: Axis, steps: tuple[float, ...]) -> None:
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _colour(value: float, values: Array) -> Any:
    """From dark to light with the logarithm; the palest part, which white would swallow, is not used."""
    share = np.log(value / values[0]) / max(np.log(values[-1] / values[0]), 1e-12)
    return mpl.colormaps["viridis"](0.86 * share)


def _handles(data: Array) -> list[Line2D]:
    of_data = [Line2D([], [], color=_colour(D, data), marker="o", linestyle="none", label=f"D = {D:g}") for D in data]
    of_laws = [
        Line2D([], [], color=GREY, linestyle="-", label="$E + A/P^a + B/D^b$"),
        Line2D([], [], color=GREY, linestyle="--", label="noise law"),
    ]
    below = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=f"over the {law} law")
        for law, (marker, colour) in MARKS.items()
    ]
    hollow = Line2D(
        [], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none", label="left out: P ≥ D/2"
    )
    return [*of_data, *of_laws, *below, hollow]


def run(request: Request) -> Outcome:
    plan = QUICK if request.quick else NoisyPlan()
    tick = ticker(request, plan.fits)
    fits = measure_noisy(request, plan, tick)
    clean = measured(request, plan.units, plan.target(max(plan.data), 0, noise=0.0), plan.widths, tick, **plan.how)
    found = [unit_laws(u, fits, plan, slope(*clean.curve(u, against="P"))) for u in plan.units]
    panels = [laws.panel for laws in found]
    figure = law_panels(panels, f"The law in P and D: Friedman 1 with noise of deviation {plan.noise:g}")
    errors = pd.DataFrame(
        [{"data": f.data, "draw": f.draw, "noise": plan.noise, **asdict(f.point)} for f in fits]
        + [{"data": max(plan.data), "draw": 0, "noise": 0.0, **asdict(p)} for p in clean.points]
    )
    tables = {"laws": laws_table(found), "ratios": ratios_table(found), "errors": errors}
    claims = [claim for laws in found for claim in (size_claim(laws), data_claim(laws), noise_claim(laws))]
    return Outcome(figure, tables, tuple(claims), _notes(plan, found))


def size_claim(laws: UnitLaws) -> Claim:
    """The exponent of P beside the slope without noise."""
    found, free = laws.additive.intervals.a, laws.noise_free
    agree = found[0] <= -free.value <= found[1]
    return Claim(
        f"exponent a of P, {laws.unit}",
        "-",
        _exponent(laws.additive.a),
        "new",
        f"Without noise the {laws.unit}'s error falls with slope {free} against P: the law's exponent "
        f"{'agrees' if agree else 'does not agree'} with it within its interval. The noise law's exponent is "
        f"{laws.noisy.a:.2f}.",
        _ends(laws.additive.a, found),
    )


def data_claim(laws: UnitLaws) -> Claim:
    """The exponent of D beside the 1/2 of theory."""
    found = laws.additive.intervals.b
    held = "holds" if found[0] <= 0.5 <= found[1] else "does not hold"
    few, many = share_of_noise(laws)
    return Claim(
        f"exponent b of D, {laws.unit}",
        "-",
        _exponent(laws.additive.b),
        "new",
        f"Noise alone would give 1/2, which the interval for the {laws.unit} {held}. By the noise law estimation makes "
        f"{few:.0%} of the squared error at the least P and the most D, and {many:.0%} at the most P and the least D.",
        _ends(laws.additive.b, found),
    )


def noise_claim(laws: UnitLaws) -> Claim:
    """The constant of the estimation error, and which law describes the table better."""
    return Claim(
        f"estimation error over noise (P/D)^1/2, {laws.unit}",
        "-",
        f"{laws.noisy.c:.2f}",
        "new",
        f"With 3 constants the noise law is within {laws.noisy.rmse:.1%} (RMS of log) of the {laws.unit}'s "
        f"{len(laws.kept)} fits, with 5 the additive one within {laws.additive.rmse:.1%}.",
    )


def _exponent(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.2f}"


def _ends(value: float, found: tuple[float, float]) -> str:
    """
    >>> _ends(1.234, (1.0, np.inf)), _ends(np.nan, (0.0, np.inf))
    ('[1.00, inf]', '')
    """
    return "" if np.isnan(value) else ends(*found, ".2f")


def _notes(plan: NoisyPlan, found: Sequence[UnitLaws]) -> tuple[str, ...]:
    return (
        f"Friedman 1 in its own units, noise of deviation {plan.noise:g} on the training targets, D from "
        f"{min(plan.data)} to {max(plan.data)}, n = {min(plan.widths)}..{max(plan.widths)}, {plan.draws} "
        f"draw{'s' * (plan.draws > 1)} of the data; errors on {plan.tests} clean points.",
        "Fits with P at least D/2 are left out of both laws and drawn hollow.",
        "The additive law has no term in which P and D meet; estimation error has: it grows with P at fixed D. "
        + " ".join(where_it_holds(laws) for laws in found),
        *(f"{laws.unit}: {note}." for laws in found for note in laws.additive.notes),
    )


STUDY = Study(
    "scaling/law",
    "The law in parameters and data",
    "Not in the paper, which varies the network alone: here data and their noise are varied too.",
    run,
    long=True,
    position=13,
)
