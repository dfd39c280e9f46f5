"""Table 1, figures 7 and 8: two protocols that are never mixed, claims from tables alone, and the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.scaling_laws import scaling
from gatelab.statistics import Interval
from gatelab.studies import Request, study
from gatelab.studies.definition import only
from gatelab.studies.scaling.error_curves import UNITS
from gatelab.studies.scaling.table1 import (
    ALL,
    APART,
    LINE,
    PROTOCOLS,
    QUICK,
    SPLIT,
    STAND_IN,
    SYNTHETIC,
    TABLED,
    ProblemRow,
    fit_rows,
    median_slope,
    medians,
    printed_table,
    problem_claims,
    slope_claims,
    slopes_figure,
    slopes_table,
)


def made_up(*rows: ProblemRow, test: float = -1.5, train: float = -2.0) -> pd.DataFrame:
    """Test errors n^test and training errors half of n^train; with all rows trained on both are 0.3 n^train."""
    fits = [
        (row.name, part, unit, n, 9 * n, seed, *((0.3 * n**train,) * 2 if part == ALL else (0.5 * n**train, n**test)))
        for row in rows
        for part in ((SPLIT, ALL) if row.measured else (SPLIT,))
        for unit in UNITS
        for n in row.widths
        for seed in range(row.seeds)
    ]
    names = ["problem", "trained_on", "unit", "width", "parameters", "seed", "train_rmse", "test_rmse"]
    return pd.DataFrame(fits, columns=names).assign(flag=np.nan)  # as a record has what is empty


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    return tables_of(made_up(*TABLED), TABLED)


def tables_of(errors: pd.DataFrame, rows: Sequence[ProblemRow]) -> dict[str, Any]:
    return {"slopes": slopes_table(errors, rows), "errors": errors}


def test_every_cell_of_the_papers_table_has_a_claim_under_each_protocol(tables: dict[str, Any]) -> None:
    claims = {claim.what: claim for claim in slope_claims(tables, "table 1")}
    assert len(claims) == len(tables["slopes"]) == (len(TABLED) * len(PROTOCOLS) - len(APART)) * len(UNITS)
    for row in TABLED:
        for unit in UNITS:
            for protocol in row.readings:
                claim = claims[f"{row.label}, {unit}, {PROTOCOLS[protocol]}"]
                assert claim.place == f"table 1, {claim.what}"
                assert (claim.verdict == "new") == (claim.paper == "-") == (row.paper(unit) is None)
                trains = protocol == "paper" and row.label not in APART
                assert claim.value == pytest.approx(-2.0 if trains else -1.5) and claim.held_out is not trains
    assert claims["Friedman 1, mlp, paper's protocol"].verdict == "differs"  # training errors exceed nothing
    assert claims["Friedman 1, mlp, true split"].verdict == "exceeded"
    support = claims["airfoil, gqu, paper's protocol"].support
    assert isinstance(support["slope on rows held out"], Interval)
    outside = {what: claim for what, claim in claims.items() if claim.verdict == "outside"}
    assert set(outside) == {f"airfoil, {unit}, {words}" for unit in ("mlp", "glu") for words in PROTOCOLS.values()}
    assert "10 to 500" in outside["airfoil, mlp, true split"].outside
    # Figures have the paper's protocol alone, and no dashes; a variant is not compared with the paper.
    assert sum(bool(claim.place) for claim in slope_claims(tables, "figure 7")) == 15
    variant = slope_claims(tables_of(made_up(STAND_IN.quick()), [STAND_IN.quick()]), "figure 8")
    assert {(claim.verdict, claim.place) for claim in variant} == {("new", "")}


def test_the_papers_words_on_its_table_are_compared_with_slopes(tables: dict[str, Any]) -> None:
    """Made-up slopes are equal for all units: no GLU is steeper, and slopes do not fall with the inputs."""
    for protocol, farthest in (("split", 8.0), ("paper", 8 * 2 / 1.5)):
        steeper, inputs = problem_claims(tables["slopes"], protocol)
        assert (steeper.value, steeper.paper, steeper.verdict) == (0.0, 6.0, "differs")
        assert inputs.value == pytest.approx(farthest) and inputs.verdict == "differs"
        printed = inputs.support["least and greatest of the paper's table"]
        assert [round(value, 2) for value in printed] == [0.23, 1.62]
    slopes = tables["slopes"]
    steeper, inputs = problem_claims(slopes.assign(slope=slopes["paper"].fillna(-4.0)), "paper")
    assert steeper.verdict == "reproduced" and steeper.ours == "6 of 6"
    assert inputs.verdict == "differs"  # the paper's own table does not go as 1/d


def test_flagged_fits_take_no_part_in_slopes_except_with_one_input() -> None:
    fits = made_up(LINE, SYNTHETIC[1])
    wide = fits["width"] == 32
    fits["flag"], fits["test_rmse"] = np.where(wide, "interpolation", ""), fits["test_rmse"].where(~wide, 10.0)
    slopes = slopes_table(fits, (LINE, SYNTHETIC[1])).set_index(["problem", "unit", "protocol"])
    cell = slopes.loc["friedman1", "mlp", "split"]
    assert cell["slope"] == pytest.approx(-1.5) and cell["fits_left_out"] == 2
    assert slopes.loc["paper-1d", "mlp", "paper"]["slope"] > -1.45


def test_medians_are_of_logarithms() -> None:
    fits = made_up(SYNTHETIC[1])
    fits["test_rmse"] *= np.where(fits["seed"] == 0, 4.0, 1.0)
    curve = only(medians(fits), unit="mlp")
    np.testing.assert_allclose(curve["test_rmse"], 2 * curve["width"] ** -1.5)
    assert median_slope(only(fits, unit="mlp")).value == pytest.approx(-1.5)


def test_theory_stands_next_to_every_slope(tables: dict[str, Any]) -> None:
    cells = tables["slopes"].drop_duplicates(["problem", "unit"]).set_index(["problem", "unit"])
    assert tuple(cells.loc["sin4x-sin4y", "mlp"][["worst_case", "attainable"]]) == (-1.25, -2)
    assert cells.loc["sin4x-sin4y", "gqu"]["attainable"] == -4 and np.isnan(cells.loc["friedman1", "glu"]["attainable"])
    table = printed_table(tables["slopes"])
    assert (
        len(table) == len(TABLED) and table.loc[1, "gqu, paper"] == "-" and table.loc[1, "mlp, worst case"] == "-1.25"
    )
    assert table.loc[1, "mlp, true split"] == table.loc[1, "mlp, paper's protocol"] == "-1.50 [-1.50, -1.50]"


def test_the_figure_keeps_its_range_when_an_error_rises() -> None:
    panels = slopes_figure(tables_of(made_up(*SYNTHETIC, test=2.0), SYNTHETIC)).axes
    assert all(1.0 <= panel.get_ylim()[1] < 1.5 for panel in panels)


def test_of_synthetic_problems_both_protocols_are_the_same_fits() -> None:
    """What is read off as the paper's protocol equals a fit that is asked for under it."""
    row = replace(SYNTHETIC[1], widths=(2, 3), seeds=1, data={"n": 120}, options=QUICK)
    fits = fit_rows(Request(jobs=1), [row])
    asked = scaling(UNITS, row.problem(ALL), row.widths, jobs=1, **QUICK).table()
    np.testing.assert_array_equal(fits["train_rmse"], asked["test_rmse"])


def test_data_that_are_not_there_are_said_before_any_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    with pytest.raises(GatelabError, match="GATELAB_DATA"):
        study("scaling/fig8").run(Request(progress=lambda *_: pytest.fail("a fit was made")))
