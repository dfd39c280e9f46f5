"""Figure 7: the synthetic problems of many inputs."""

from __future__ import annotations

from gatelab.studies.error_panels import Panel, panel_figure, tested, trained
from gatelab.studies.many_inputs import Measured, measure_row, synthetic
from gatelab.studies.measure import ticker
from gatelab.studies.reasons import DEFINITIONS, fits_table, how_measured, row_reason
from gatelab.studies.study import Outcome, Request, Study
from gatelab.studies.table1_cells import cells_of, slopes_table


def run(request: Request) -> Outcome:
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


STUDY = Study(
    "scaling/fig7",
    "Synthetic problems of many inputs",
    "On sin 4x sin 4y and on Friedman's problems the error of the GLU falls faster than that of the MLP.",
    run,
    long=True,
)
