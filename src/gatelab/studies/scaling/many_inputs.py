"""The panels of figures 7 and 8: error against n on logarithmic axes, test and training, slopes in the legend.

Figure 7: the synthetic problems of many inputs.

Figure 8: measured data, under the true split and under the paper's protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.plotting import GREY, Curve, look, new_figure, style
from gatelab.plotting.curves import draw_curves
from gatelab.scaling_laws import Slope
from gatelab.studies.definition import Outcome, Request, Study
from gatelab.studies.scaling.errors import ticker
from gatelab.studies.scaling.reasons import (
    DEFINITIONS,
    SEPARATE,
    explanation,
    fits_table,
    floors_table,
    gap_table,
    how_measured,
    row_reason,
)
from gatelab.studies.scaling.rows import (
    UNITS,
    Measured,
    Protocol,
    cells_of,
    measure_row,
    present,
    real,
    slopes_table,
    synthetic,
)


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel: its title, the name of its errors, its curves. Errors beyond `cap` are marked at the upper edge."""

    title: str
    errors: str
    curves: tuple[Curve, ...]
    cap: float = np.inf


def tested(found: Measured, protocol: Protocol) -> tuple[Curve, ...]:
    """A curve a unit: the errors that the protocol tests by, with the paper's slope beside ours."""
    return tuple(_curve(unit, found, found.errors(unit, protocol), found.slope(unit, protocol), unit) for unit in UNITS)


def trained(found: Measured) -> tuple[Curve, ...]:
    """A dotted curve a unit: the training errors of the fits of the true split."""
    return tuple(
        _curve(f"{unit}, training", found, found.training(unit), found.training_slope(unit), unit) for unit in UNITS
    )


def _curve(label: str, found: Measured, errors: dict[int, float], ours: Slope, unit: str) -> Curve:
    own, paper = label == unit, found.row.paper(unit)
    flags = {p.width: bool(p.flag) for p in found.curves["split"].points if p.unit == unit}
    return Curve(
        label,
        np.array(list(errors), float),
        np.array(list(errors.values()))[:, None],
        fitted=np.array([found.row.every or not flags[width] for width in errors])[:, None],
        note=f"slope {ours}",
        paper=f"{paper:.2f}" if own and paper is not None else None,
        look=unit,
        line="-" if own else ":",
    )


def panel_figure(panels: Sequence[Panel], title: str, *, columns: int = 2, alike: bool = False) -> Figure:
    """The panels in rows of `columns`, each with its legend below; with `alike` those of a row have one range."""
    rows = -(-len(panels) // columns)
    entries = max(len(panel.curves) for panel in panels)
    with style():
        figure = new_figure(4.4 * columns, 0.3 + rows * (2.7 + 0.19 * (entries + 1)))
        for i, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, i)
            draw_curves(axes, panel.curves)
            axes.set_xticks(panel.curves[0].sizes)
            axes.set_title(panel.title)
            axes.set_xlabel("neurons n")
            axes.set_ylabel(panel.errors)
        for first in range(0, len(panels), columns) if alike else ():
            _alike(figure.axes[first : first + columns], panels[first : first + columns])
        figure.suptitle(title)
    return figure


def _alike(row: Sequence[Axes], panels: Sequence[Panel]) -> None:
    """One range for a row of panels. One failure a hundred times as large as all other errors would leave them a line:

    the range ends at the least cap that is passed, and what is beyond is marked there.
    """
    lows, highs = zip(*(axes.get_ylim() for axes in row), strict=True)
    passed = [p.cap for p in panels if any((c.errors > p.cap).any() for c in p.curves)]
    top = min([max(highs), *(1.15 * cap for cap in passed)])
    for axes, panel in zip(row, panels, strict=True):
        axes.set_ylim(min(lows), top)
        for curve in panel.curves:
            at = curve.sizes[(curve.errors > top).any(axis=1)]
            marks = {"color": look(curve.key).colour, "markerfacecolor": "white", "zorder": 4}
            axes.plot(at, np.full(len(at), top / 1.05), "^", **marks)
        if passed and panel.cap in passed:
            axes.annotate("△ beyond the axis", (0.01, 0.99), xycoords="axes fraction", ha="left", va="top", color=GREY)


def run_fig7(request: Request) -> Outcome:
    rows = synthetic(request)
    tick = ticker(request, sum(row.fits for row in rows))
    found = [measure_row(request, row, tick) for row in rows]
    panels = [Panel(_title(m), "RMSE", (*tested(m, "split"), *trained(m))) for m in found]
    figure = panel_figure(panels, "Figure 7: synthetic problems of many inputs")
    cells = [c for m in found for c in cells_of(m)]
    reasons = {m.row.name: row_reason(m) for m in found}
    claims = tuple(c.claim(reasons[c.row.name]) for c in cells)
    tables = {"errors": fits_table(found), "slopes": slopes_table(cells)}
    return Outcome(figure, tables, claims, (*DEFINITIONS, how_measured(rows)))


def _title(found: Measured) -> str:
    return f"{found.row.label}, {found.row.inputs} inputs"


FIG7 = Study(
    "scaling/fig7",
    "Synthetic problems of many inputs",
    "On sin 4x sin 4y and on Friedman's problems the error of the GLU falls faster than that of the MLP.",
    run_fig7,
    long=True,
    position=7,
)


BEYOND = 1.5  # times the largest training error: where the figure ends
STAND_IN_NOTE = "A quick run has no measured data: a synthetic problem with noise stands in for them."


def run_fig8(request: Request) -> Outcome:
    rows, lacking = present(real(request))
    if lacking:
        raise GatelabError(" ".join(lacking))
    tick = ticker(request, sum(row.fits for row in rows))
    found = [measure_row(request, row, tick) for row in rows]
    panels = []
    for m in found:
        cap = BEYOND * max(max(m.training(unit).values()) for unit in UNITS)
        panels.append(Panel(f"{m.row.label}: true split", "RMSE", (*tested(m, "split"), *trained(m)), cap))
        panels.append(Panel(f"{m.row.label}: paper's protocol, all rows", "RMSE on training rows", tested(m, "paper")))
    figure = panel_figure(panels, "Figure 8: measured data", alike=True)
    cells = [c for m in found for c in cells_of(m)]
    reasons = {m.row.name: explanation(m) for m in found}
    tables = {
        "errors": fits_table(found),
        "slopes": slopes_table(cells),
        "protocols": pd.concat([gap_table(m) for m in found], ignore_index=True),
    }
    floors = pd.concat([floors_table(m) for m in found], ignore_index=True)
    if len(floors):
        tables["floors"] = floors
    notes = (*DEFINITIONS, SEPARATE, how_measured(rows), *((STAND_IN_NOTE,) if request.quick else ()))
    return Outcome(figure, tables, tuple(c.claim(reasons[c.row.name]) for c in cells), notes)


FIG8 = Study(
    "scaling/fig8",
    "Measured data",
    "On airfoil self-noise the error of the GLU falls faster than that of the MLP, on California housing as slowly.",
    run_fig8,
    long=True,
    position=8,
)
