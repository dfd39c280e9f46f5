"""Table 1: the slopes of MLP, GLU and GQU on seven problems, under the true split and under the paper's protocol.

Its figure has a panel a unit and a line a problem, with slopes as dots and their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, look, new_figure, style
from gatelab.studies.definition import Outcome, Request, Study, ticker
from gatelab.studies.scaling.printed import PROTOCOLS, UNITS, Reading
from gatelab.studies.scaling.problem_rows import (
    SlopeCell,
    cells_of,
    fit_row,
    fits_table,
    inputs_claim,
    line_row,
    measured_rows,
    printed_table,
    rows_with_data,
    slopes_table,
    steeper_claim,
    synthetic_rows,
)
from gatelab.studies.scaling.row_reasons import (
    DEFINITIONS,
    SEPARATE,
    fits_note,
    floors_table,
    gap_table,
    outliers,
    protocols_reason,
    row_facts,
    row_reason,
)

# Protocols stand above and below the line of their problem, so that intervals do not hide each other.
SHIFTS = {"split": -0.2, "paper": 0.2}
MARKS = {"split": "o", "paper": "s"}
# An error that rises has no rate: its slope, marked at this edge, should not press the others together.
EDGE = 1.0
QUICK_NOTE = "A quick run has no measured data: airfoil and California are left out."


def run(request: Request) -> Outcome:
    """Every row that the machine has the data of; a quick run leaves measured data out."""
    # Before the first fit: data that are not there should not be missed after the last.
    real_rows, lacking = (), (QUICK_NOTE,)
    if not request.quick:
        real_rows, lacking = rows_with_data(measured_rows(request))
    rows = (line_row(request), *synthetic_rows(request), *real_rows)
    tick = ticker(request, sum(row.fits for row in rows))
    fitted_rows = [fit_row(request, row, tick) for row in rows]
    cells = [c for fitted in fitted_rows for c in cells_of(fitted)]
    measured = [fitted for fitted in fitted_rows if fitted.row.measured]
    reasons = {fitted.row.name: row_reason(fitted) for fitted in fitted_rows if not fitted.row.measured}
    reasons |= {fitted.row.name: protocols_reason(fitted) for fitted in measured}
    figure = slope_dots(cells, f"Table 1: slopes of {len(UNITS)} units on {len(rows)} problems")
    notes = [*DEFINITIONS, SEPARATE, fits_note(rows), *lacking]
    for fitted in measured:
        label = fitted.row.label
        notes += [row_facts(fitted.row).sentence(label), f"{label}. {outliers(fitted).sentence}"]
    claims = [c.claim(reasons[c.row.name], "table 1") for c in cells]
    for protocol in PROTOCOLS:
        claims += [steeper_claim(cells, protocol), inputs_claim(cells, protocol)]
    tables = {"table": printed_table(cells), "slopes": slopes_table(cells), "errors": fits_table(fitted_rows)}
    if measured:
        tables["protocols"] = pd.concat([gap_table(fitted) for fitted in measured], ignore_index=True)
        tables["floors"] = pd.concat([floors_table(fitted) for fitted in measured], ignore_index=True)
    return Outcome(figure, tables, tuple(claims), tuple(notes))


def slope_dots(cells: Sequence[SlopeCell], title: str) -> Figure:
    """Filled marks are ours, hollow ones the paper's, upright strokes what theory grants."""
    rows = list(dict.fromkeys(c.row.name for c in cells))
    labels = {c.row.name: f"{c.row.label} ({c.row.inputs}D)" for c in cells}
    with style():
        figure = new_figure(10.4, 1.5 + 0.5 * len(rows))
        panels = [Panel(axes) for axes in figure.subplots(1, len(UNITS), sharey=True)]
        for panel, unit in zip(panels, UNITS, strict=True):
            draw_slopes(panel, [c for c in cells if c.unit == unit], rows, look(unit).colour)
            panel.set(title=unit.upper(), xlabel="slope against n")
        panels[0].axes.set_yticks(range(len(rows)), [labels[name] for name in rows])
        panels[0].set(ylim=(len(rows) - 0.5, -0.5))
        figure_legend(figure, legend_entries(), ncols=5, handletextpad=0.4, columnspacing=1.6)
        figure.suptitle(title)
    return figure


def draw_slopes(panel: Panel, cells: Sequence[SlopeCell], rows: list[str], colour: str) -> None:
    """The slopes of one unit: marks with intervals, and below those of the true split what theory grants."""
    panel.rule("x", 0, Pen(GREY, width=0.6))
    faces = {"split": colour, "paper": "#9a9a9a"}
    for c in cells:
        line = rows.index(c.row.name)
        shown: Reading = c.protocol
        if c.row.apart:
            shown = "split"  # which the paper's own protocol is there
        height, face, mark = line + SHIFTS[shown] * (not c.row.apart), faces[shown], MARKS[shown]
        if np.isfinite(c.ours.low):
            ends = [c.ours.low, c.ours.high]
            panel.line(ends, [height, height], Pen(face, width=1.4), solid_capstyle="butt")
        if c.ours.value >= EDGE:
            mark = ">"
        panel.line(min(c.ours.value, 0.97 * EDGE), height, Pen(face, "", marker=mark, size=4.5), order=3)
        if c.protocol == "paper":
            draw_theory(panel, c, line)
    panel.set(xlim=(None, min(panel.axes.get_xlim()[1], EDGE)))
    panel.axes.grid(axis="y", visible=False)
    for line in range(1, len(rows)):
        panel.rule("y", line - 0.5, Pen("#e4e4e4", width=0.5), order=0)


def draw_theory(panel: Panel, cell: SlopeCell, line: int) -> None:
    """Strokes at the worst case and at what is attainable, and the paper's slope."""
    ends = [line - 0.36, line + 0.36]
    panel.line([cell.worst_case] * 2, ends, Pen("black", width=1.1), order=1)
    if cell.attainable is not None and cell.attainable != cell.worst_case:
        panel.line([cell.attainable] * 2, ends, Pen("black", ":", 1.1), order=1)
    if cell.paper is not None:
        panel.line(cell.paper, line, Pen("black", "", marker="D", size=4.5, face="white"), order=4)


def legend_entries() -> list[Entry]:
    """What the marks and strokes mean."""
    return [
        Entry(f"ours, {PROTOCOLS['split']}", Pen(look("mlp").colour, marker=MARKS["split"])),
        Entry(f"ours, {PROTOCOLS['paper']}", Pen("#9a9a9a", marker=MARKS["paper"])),
        Entry("the paper's table", Pen("black", "", marker="D", size=4.5, face="white")),
        Entry("worst case for so many inputs", Pen("black", "", marker="|", size=10)),
        Entry("attainable: a sum of ridge functions", Pen("black", ":")),
    ]


STUDY = Study(
    "scaling/table1",
    "Slopes in one and in many dimensions",
    "The slopes of the GLU are steeper than those of the MLP on every problem but California housing, and fall with "
    "the number of inputs.",
    run,
    long=True,
    position=9,
)
