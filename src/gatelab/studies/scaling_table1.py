"""Table 1: the slopes of MLP, GLU and GQU on seven problems, under the true split and under the paper's protocol."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gatelab.studies.many_inputs import PROTOCOLS, UNITS, Measured, line, measure_row, present, real, synthetic
from gatelab.studies.measure import ticker
from gatelab.studies.real_data import explanation, facts, floors_table, gap_table, outliers
from gatelab.studies.reasons import DEFINITIONS, SEPARATE, fits_table, how_measured, row_reason
from gatelab.studies.slope_dots import slope_dots
from gatelab.studies.study import Outcome, Request, Study
from gatelab.studies.table1_cells import Cell, cells_of, inputs_claim, printed_table, slopes_table, steeper_claim


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


def _counts(cells: Sequence[Cell]) -> list[str]:
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
)
