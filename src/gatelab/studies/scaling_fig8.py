"""Figure 8: measured data, under the true split and under the paper's protocol."""

from __future__ import annotations

import pandas as pd

from gatelab.errors import GatelabError
from gatelab.studies.error_panels import Panel, panel_figure, tested, trained
from gatelab.studies.many_inputs import UNITS, measure_row, present, real
from gatelab.studies.measure import ticker
from gatelab.studies.real_data import explanation, floors_table, gap_table
from gatelab.studies.reasons import DEFINITIONS, SEPARATE, fits_table, how_measured
from gatelab.studies.study import Outcome, Request, Study
from gatelab.studies.table1_cells import cells_of, slopes_table

BEYOND = 1.5  # times the largest training error: where the figure ends
STAND_IN_NOTE = "A quick run has no measured data: a synthetic problem with noise stands in for them."


def run(request: Request) -> Outcome:
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


STUDY = Study(
    "scaling/fig8",
    "Measured data",
    "On airfoil self-noise the error of the GLU falls faster than that of the MLP, on California housing as slowly.",
    run,
    long=True,
)
