"""Medians, slopes and floors of the fits of table 1, figures 7 and 8: one definition of each, from the table of fits.

A median is that of the logarithms over seeds. A slope is fitted to the medians of unflagged fits; with one input no fit
is left out, as in figure 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Slope, fit_law, slope
from gatelab.studies.definition import only
from gatelab.studies.engine import Table
from gatelab.studies.scaling.error_curves import UNITS
from gatelab.studies.scaling.problem_rows import ALL, SPLIT, ProblemRow
from gatelab.theory import ridge_rate, worst_case_rate


def medians(fits: Table) -> Table:
    """Test and training errors per width: medians of the logarithms over seeds, as slopes take them."""
    keys = [fits[key] for key in ("problem", "trained_on", "unit", "width", "parameters")]
    logs = np.log(fits[["train_rmse", "test_rmse"]])
    return np.exp(logs.groupby(keys, sort=False).median()).reset_index()


def median_slope(fits: Table, error: str = "test_rmse") -> Slope:
    """The slope against n of the medians of one unit's fits."""
    curve = medians(fits)
    return slope(curve["width"].to_numpy(float), curve[error].to_numpy(float))


def unflagged(fits: Table) -> Table:
    """The fits that take part in slopes; the empty flag is NaN in a table from a file."""
    return fits[fits["flag"].isna() | (fits["flag"] == "")]


def row_tables(errors: Table, rows: Sequence[ProblemRow]) -> dict[str, Table]:
    """The fits and their slopes; of measured data also the errors of both protocols, and their floors."""
    tables = {"slopes": slopes_table(errors, rows), "errors": errors}
    measured = [row for row in rows if row.measured]
    if measured:
        tables["protocols"] = protocols_table(errors)
        floors = pd.DataFrame(floor for row in measured for floor in row_floors(errors, row))
        if len(floors):  # few widths determine none
            tables["floors"] = floors
    return tables


def slopes_table(errors: Table, rows: Iterable[ProblemRow]) -> Table:
    """One row per problem, unit and protocol. Flagged fits are left out, except with one input, as in figure 2."""
    cells = []
    for row in rows:
        for unit in UNITS:
            for protocol, (trained_on, error) in row.readings.items():
                fits = only(errors, problem=row.name, unit=unit, trained_on=trained_on)
                chosen = unflagged(fits) if row.inputs > 1 else fits
                cell = slope_cell(row, unit, protocol, median_slope(chosen, error), row.widths)
                cells.append(cell | {"seeds": row.seeds, "fits_left_out": len(fits) - len(chosen)})
    return pd.DataFrame(cells)


def slope_cell(row: ProblemRow, unit: str, protocol: str, ours: Slope, widths: Sequence[int]) -> dict[str, Any]:
    """A slope next to the paper's, the rate of the hardest target, and the rate that is attainable for this target."""
    degree = as_unit(unit).degree
    assert degree is not None
    return {
        "problem": row.name,
        "inputs": row.inputs,
        "unit": unit,
        "protocol": protocol,
        "paper": row.paper(unit),
        "slope": ours.value,
        "low": ours.low,
        "high": ours.high,
        "worst_case": -worst_case_rate(degree, row.inputs),
        "attainable": -ridge_rate(degree) if row.ridge or row.inputs == 1 else np.nan,
        "widths": f"{widths[0]}..{widths[-1]}",
    }


def protocols_table(errors: Table) -> Table:
    """Medians of the three errors per unit and width, and the gap between test and training."""
    keys, curve = ["problem", "unit", "width", "parameters"], medians(errors)
    split, every = (only(curve, trained_on=part)[[*keys, "train_rmse", "test_rmse"]] for part in (SPLIT, ALL))
    split = split.rename(columns={"train_rmse": "split_train_rmse", "test_rmse": "split_test_rmse"})
    split["test_over_train"] = split["split_test_rmse"] / split["split_train_rmse"]
    return split.merge(every.drop(columns="test_rmse").rename(columns={"train_rmse": "paper_protocol_rmse"}), on=keys)


def row_floors(errors: Table, row: ProblemRow) -> Iterator[dict[str, Any]]:
    """E of E + A/P^a, fitted to each unit under each protocol, where there are enough widths for it."""
    for protocol, (trained_on, error) in row.readings.items():
        for unit in UNITS:
            fits = unflagged(only(errors, problem=row.name, unit=unit, trained_on=trained_on))
            with suppress(GatelabError):
                law = fit_law(fits["parameters"], np.ones(len(fits)), fits[error])
                low, high = law.intervals.E
                names = {"problem": row.name, "unit": unit, "protocol": protocol}
                yield names | {"E": law.E, "low": low, "high": high, "exponent": law.a, "points": law.points}
