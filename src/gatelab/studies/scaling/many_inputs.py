"""Figures 7 and 8: synthetic problems of many inputs, and measured data under the true split and the paper's protocol.

A panel has error against n on logarithmic axes, test and training, with slopes in the legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.plotting import GREY, Curve, Panel, Pen, look, new_figure, style
from gatelab.plotting.curves import draw_curves
from gatelab.scaling_laws import Slope
from gatelab.studies.definition import Outcome, Request, Study, ticker
from gatelab.studies.scaling.printed import UNITS, Protocol
from gatelab.studies.scaling.problem_rows import (
    FittedRow,
    cells_of,
    fit_row,
    fits_table,
    measured_rows,
    rows_with_data,
    slopes_table,
    synthetic_rows,
)
from gatelab.studies.scaling.row_reasons import (
    DEFINITIONS,
    SEPARATE,
    fits_note,
    floors_table,
    gap_table,
    protocols_reason,
    row_reason,
)

CAP = 1.5  # times the largest training error: where the panels of measured data end
STAND_IN_NOTE = "A quick run has no measured data: a synthetic problem with noise stands in for them."


def run_fig7(request: Request) -> Outcome:
    """The synthetic problems, test and training errors in one panel each."""
    rows = synthetic_rows(request)
    tick = ticker(request, sum(row.fits for row in rows))
    fitted_rows = [fit_row(request, row, tick) for row in rows]
    panels = [
        CurvePanel(f"{f.row.label}, {f.row.inputs} inputs", "RMSE", (*protocol_curves(f, "split"), *training_curves(f)))
        for f in fitted_rows
    ]
    figure = panel_figure(panels, "Figure 7: synthetic problems of many inputs")
    cells = [c for fitted in fitted_rows for c in cells_of(fitted)]
    reasons = {fitted.row.name: row_reason(fitted) for fitted in fitted_rows}
    claims = tuple(c.claim(reasons[c.row.name], "figure 7") for c in cells)
    tables = {"errors": fits_table(fitted_rows), "slopes": slopes_table(cells)}
    return Outcome(figure, tables, claims, (*DEFINITIONS, fits_note(rows)))


def run_fig8(request: Request) -> Outcome:
    """Measured data, a panel for each protocol; data that are not there are an error before the first fit."""
    rows, lacking = rows_with_data(measured_rows(request))
    if lacking:
        raise GatelabError(" ".join(lacking))
    tick = ticker(request, sum(row.fits for row in rows))
    fitted_rows = [fit_row(request, row, tick) for row in rows]
    panels = []
    for fitted in fitted_rows:
        cap = CAP * max(max(fitted.training(unit).values()) for unit in UNITS)
        label, split, paper = fitted.row.label, protocol_curves(fitted, "split"), protocol_curves(fitted, "paper")
        panels.append(CurvePanel(f"{label}: true split", "RMSE", (*split, *training_curves(fitted)), cap))
        panels.append(CurvePanel(f"{label}: paper's protocol, all rows", "RMSE on training rows", paper))
    figure = panel_figure(panels, "Figure 8: measured data", alike=True)
    cells = [c for fitted in fitted_rows for c in cells_of(fitted)]
    reasons = {fitted.row.name: protocols_reason(fitted) for fitted in fitted_rows}
    tables = {
        "errors": fits_table(fitted_rows),
        "slopes": slopes_table(cells),
        "protocols": pd.concat([gap_table(fitted) for fitted in fitted_rows], ignore_index=True),
    }
    floors = pd.concat([floors_table(fitted) for fitted in fitted_rows], ignore_index=True)
    if len(floors):
        tables["floors"] = floors
    notes = [*DEFINITIONS, SEPARATE, fits_note(rows)]
    if request.quick:
        notes.append(STAND_IN_NOTE)
    claims = tuple(c.claim(reasons[c.row.name], "figure 8") for c in cells)
    return Outcome(figure, tables, claims, tuple(notes))


@dataclass(frozen=True, eq=False)
class CurvePanel:
    """A panel: its title, the name of its errors, its curves. Errors beyond `cap` are marked at the upper edge."""

    title: str
    errors: str
    curves: tuple[Curve, ...]
    cap: float = np.inf


def protocol_curves(fitted: FittedRow, protocol: Protocol) -> tuple[Curve, ...]:
    """A curve a unit: the errors that the protocol tests by, with the paper's slope beside ours."""
    curves = []
    for unit in UNITS:
        curve = unit_curve(unit, fitted, fitted.errors(unit, protocol), fitted.slope(unit, protocol))
        paper = fitted.row.paper(unit)
        if paper is not None:
            curve = replace(curve, paper=f"{paper:.2f}")
        curves.append(curve)
    return tuple(curves)


def training_curves(fitted: FittedRow) -> tuple[Curve, ...]:
    """A dotted curve a unit: the training errors of the fits of the true split."""
    curves = [unit_curve(unit, fitted, fitted.training(unit), fitted.training_slope(unit)) for unit in UNITS]
    return tuple(replace(curve, label=f"{curve.label}, training", line=":") for curve in curves)


def unit_curve(unit: str, fitted: FittedRow, errors: dict[int, float], ours: Slope) -> Curve:
    """The errors of a unit by width with their slope; hollow where the fits take no part in it."""
    flags = {p.width: bool(p.flag) for p in fitted.curves["split"].points if p.unit == unit}
    return Curve(
        unit,
        np.array(list(errors), float),
        np.array(list(errors.values()))[:, None],
        fitted=np.array([fitted.row.every or not flags[width] for width in errors])[:, None],
        note=f"slope {ours}",
        look=unit,
    )


def panel_figure(contents: Sequence[CurvePanel], title: str, *, columns: int = 2, alike: bool = False) -> Figure:
    """The panels in rows of `columns`, each with its legend below; with `alike` those of a row have one range."""
    rows = -(-len(contents) // columns)
    entries = max(len(content.curves) for content in contents)
    with style():
        figure = new_figure(4.4 * columns, 0.3 + rows * (2.7 + 0.19 * (entries + 1)))
        panels = [Panel(figure.add_subplot(rows, columns, i + 1)) for i in range(len(contents))]
        for panel, content in zip(panels, contents, strict=True):
            draw_curves(panel, content.curves)
            panel.axes.set_xticks(spaced(content.curves[0].sizes))
            panel.set(title=content.title, xlabel="neurons n", ylabel=content.errors)
        if alike:
            for first in range(0, len(panels), columns):
                share_range(panels[first : first + columns], contents[first : first + columns])
        figure.suptitle(title)
    return figure


def spaced(sizes: Iterable[float], ratio: float = 1.25) -> list[float]:
    """Those sizes whose labels do not touch on a logarithmic axis.

    >>> spaced([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    [1, 2, 3, 4, 5, 7, 9]
    """
    chosen: list[float] = []
    for size in sizes:
        if not chosen or size >= ratio * chosen[-1]:
            chosen.append(size)
    return chosen


def share_range(row: Sequence[Panel], contents: Sequence[CurvePanel]) -> None:
    """Give a row of panels one range, which ends at the least cap that is passed; what is beyond is marked there.

    Without a cap a failure a hundred times as large as all other errors would leave them a line.
    """
    lows, highs = zip(*(panel.axes.get_ylim() for panel in row), strict=True)
    passed = [p.cap for p in contents if any((c.errors > p.cap).any() for c in p.curves)]
    top = min([max(highs), *(1.15 * cap for cap in passed)])
    for panel, content in zip(row, contents, strict=True):
        panel.set(ylim=(min(lows), top))
        for curve in content.curves:
            beyond = curve.sizes[(curve.errors > top).any(axis=1)]
            pen = Pen(look(curve.key).colour, "", marker="^", face="white")
            panel.line(beyond, np.full(len(beyond), top / 1.05), pen, order=4)
        if passed and content.cap in passed:
            panel.text("△ beyond the axis", 0.01, 0.99, within=("panel", "panel"), up="top", colour=GREY)


FIG7 = Study(
    "scaling/fig7",
    "Synthetic problems of many inputs",
    "On sin 4x sin 4y and on Friedman's problems the error of the GLU falls faster than that of the MLP.",
    run_fig7,
    long=True,
    position=7,
)


FIG8 = Study(
    "scaling/fig8",
    "Measured data",
    "On airfoil self-noise the error of the GLU falls faster than that of the MLP, on California housing as slowly.",
    run_fig8,
    long=True,
    position=8,
)
