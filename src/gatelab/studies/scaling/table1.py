"""The figure of table 1: a panel a unit, a line a problem, slopes as dots with their intervals.

Table 1: the slopes of MLP, GLU and GQU on seven problems, under the true split and under the paper's protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.plotting import GREY, look, new_figure, style
from gatelab.studies.definition import Outcome, Request, Study
from gatelab.studies.scaling.errors import ticker
from gatelab.studies.scaling.reasons import (
    DEFINITIONS,
    SEPARATE,
    explanation,
    facts,
    fits_table,
    floors_table,
    gap_table,
    how_measured,
    outliers,
    row_reason,
)
from gatelab.studies.scaling.rows import (
    PROTOCOLS,
    UNITS,
    Measured,
    SlopeCell,
    cells_of,
    inputs_claim,
    line,
    measure_row,
    present,
    printed_table,
    real,
    slopes_table,
    steeper_claim,
    synthetic,
)

# Protocols stand above and below the line of their problem, so that intervals do not hide each other.
_SHIFT = {"split": -0.2, "paper": 0.2}
# An error that rises has no rate: its slope, marked at this edge, should not press the others together.
_END = 1.0
_MARK = {"split": "o", "paper": "s"}


def slope_dots(cells: Sequence[SlopeCell], title: str) -> Figure:
    """Filled marks are ours, hollow ones the paper's, upright strokes what theory grants."""
    rows = list(dict.fromkeys(c.row.name for c in cells))
    labels = {c.row.name: f"{c.row.label} ({c.row.inputs}D)" for c in cells}
    with style():
        figure = new_figure(10.4, 1.5 + 0.5 * len(rows))
        panels = figure.subplots(1, len(UNITS), sharey=True)
        for panel, unit in zip(panels, UNITS, strict=True):
            _draw(panel, [c for c in cells if c.unit == unit], rows, look(unit).colour)
            panel.set_title(unit.upper())
            panel.set_xlabel("slope against n")
        panels[0].set_yticks(range(len(rows)), [labels[name] for name in rows])
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(handles=_handles(), loc="outside lower center", ncols=5, handletextpad=0.4, columnspacing=1.6)
        figure.suptitle(title)
    return figure


def _draw(panel: Axes, cells: Sequence[SlopeCell], rows: list[str], colour: str) -> None:
    panel.axvline(0, color=GREY, linewidth=0.6)
    for c in cells:
        place = rows.index(c.row.name)
        at = place + _SHIFT[c.protocol]
        face = colour if c.protocol == "split" else "#9a9a9a"
        if np.isfinite(c.ours.low):
            panel.plot([c.ours.low, c.ours.high], [at, at], color=face, linewidth=1.4, solid_capstyle="butt", zorder=2)
        inside = c.ours.value < _END
        mark = _MARK[c.protocol] if inside else ">"
        panel.plot(min(c.ours.value, 0.97 * _END), at, mark, color=face, markersize=4.5, zorder=3)
        if c.protocol == "split":
            _strokes(panel, c, place)
    panel.set_xlim(right=min(panel.get_xlim()[1], _END))
    panel.grid(axis="y", visible=False)
    for place in range(1, len(rows)):
        panel.axhline(place - 0.5, color="#e4e4e4", linewidth=0.5, zorder=0)


def _strokes(panel: Axes, cell: SlopeCell, place: int) -> None:
    panel.plot([cell.worst_case] * 2, [place - 0.36, place + 0.36], color="black", linewidth=1.1, zorder=1)
    if cell.attainable is not None and cell.attainable != cell.worst_case:
        ends = [place - 0.36, place + 0.36]
        panel.plot([cell.attainable] * 2, ends, color="black", linewidth=1.1, linestyle=":", zorder=1)
    if cell.paper is not None:
        marks = {"color": "black", "markerfacecolor": "white", "markersize": 4.5, "markeredgewidth": 1.0, "zorder": 4}
        panel.plot(cell.paper, place, "D", **marks)


def _handles() -> list[Line2D]:
    hollow = {"marker": "D", "markerfacecolor": "white", "markersize": 4.5, "linestyle": "none"}
    strokes = {"marker": "|", "markersize": 10, "linestyle": "none", "color": "black"}
    return [
        Line2D([], [], color=look("mlp").colour, marker=_MARK["split"], label=f"ours, {PROTOCOLS['split']}"),
        Line2D([], [], color="#9a9a9a", marker=_MARK["paper"], label=f"ours, {PROTOCOLS['paper']}"),
        Line2D([], [], color="black", label="the paper's table", **hollow),
        Line2D([], [], label="worst case for so many inputs", **strokes),
        Line2D([], [], color="black", linestyle=":", label="attainable: a sum of ridge functions"),
    ]


def run(request: Request) -> Outcome:
    # Before the first fit: data that are not there should not be missed after the last.
    measured_rows, lacking = ((), (QUICK_NOTE,)) if request.quick else present(real(request))
    rows = (line(request), *synthetic(request), *measured_rows)
    tick = ticker(request, sum(row.fits for row in rows))
    found = [measure_row(request, row, tick) for row in rows]
    cells = [c for m in found for c in cells_of(m)]
    reasons = {m.row.name: explanation(m) if m.row.measured else row_reason(m) for m in found}
    figure = slope_dots(cells, f"Table 1: slopes of {len(UNITS)} units on {len(rows)} problems")
    measured = [m for m in found if m.row.measured]
    notes = (*DEFINITIONS, SEPARATE, how_measured(rows), *lacking, *_counts(cells), *_of_data(measured))
    tables = {"table": printed_table(cells), "slopes": slopes_table(cells), "errors": fits_table(found)}
    claims = [c.claim(reasons[c.row.name]) for c in cells]
    for protocol in PROTOCOLS:
        claims += [steeper_claim(cells, protocol), inputs_claim(cells, protocol)]
    return Outcome(figure, tables | _data_tables(measured), tuple(claims), tuple(notes))


QUICK_NOTE = "A quick run has no measured data: airfoil and California are left out."


def _data_tables(measured: Sequence[Measured]) -> dict[str, pd.DataFrame]:
    if not measured:
        return {}
    gaps = pd.concat([gap_table(m) for m in measured], ignore_index=True)
    return {"protocols": gaps, "floors": pd.concat([floors_table(m) for m in measured], ignore_index=True)}


def _of_data(measured: Sequence[Measured]) -> list[str]:
    """What the rows of measured data say, and where the test error lies."""
    return [
        sentence
        for m in measured
        for sentence in (facts(m.row).sentence(m.row.label), f"{m.row.label}. {outliers(m).sentence}")
    ]


def _counts(cells: Sequence[SlopeCell]) -> list[str]:
    """How many of the paper's slopes are exceeded, by protocol and kind of data, never mixed."""
    said = []
    for kind, measured in (("synthetic problems", False), ("measured data", True)):
        for protocol, words in (("split", "the true split"), ("paper", "the paper's protocol")):
            mine = [c for c in cells if c.row.measured == measured and c.protocol == protocol and c.paper is not None]
            if mine:
                steeper = sum(c.ours.value < c.paper for c in mine if c.paper is not None)
                said.append(f"On {kind} {steeper} of {len(mine)} slopes are steeper than the paper's under {words}.")
    return said


STUDY = Study(
    "scaling/table1",
    "Slopes in one and in many dimensions",
    "The slopes of the GLU are steeper than those of the MLP on every problem but California housing, and fall with "
    "the number of inputs.",
    run,
    long=True,
    position=9,
)
