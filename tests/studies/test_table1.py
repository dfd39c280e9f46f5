"""Table 1: every cell of the paper, two protocols that are never mixed, and reasons in numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.scaling_laws import Point, Scaling, Slope, scaling
from gatelab.solve import fit
from gatelab.studies import Request, study
from gatelab.studies.scaling import row_reasons
from gatelab.studies.scaling.printed import APART, PROTOCOLS, TABLE1, UNITS, Protocol, table_rows
from gatelab.studies.scaling.problem_rows import (
    LINE,
    QUICK,
    REAL,
    STAND_IN,
    SYNTHETIC,
    FittedRow,
    ProblemRow,
    SlopeCell,
    cells_of,
    fit_row,
    fits_table,
    inputs_claim,
    printed_table,
    rows_with_data,
    slopes_table,
    steeper_claim,
    trained_as_tested,
    with_paper_protocol,
)
from gatelab.studies.scaling.row_reasons import (
    fits_note,
    floor_law,
    floors_table,
    gap_table,
    outliers,
    outliers_in,
    pair_errors,
    protocols_reason,
    ridge_problem,
    row_facts,
    row_reason,
    turning_width,
    widest_gap,
)
from gatelab.studies.scaling.table1 import slope_dots

ROWS = (LINE, *SYNTHETIC, *REAL)
PRINTED = dict(table_rows(TABLE1))


def made_up(row: ProblemRow, test: float = -1.5, train: float = -2.0) -> FittedRow:
    """Test errors n^test and training errors half of n^train; all rows trained on, the paper's protocol has 0.6."""

    def study_of(name: str, share: float) -> Scaling:
        points = [
            Point(u, n, 9 * n, s, 0.5 * n**train, share * n**test, n**-2.0, 1.0, "", "converged", 0.0)
            for u in UNITS
            for n in row.widths
            for s in range(row.seeds)
        ]
        return Scaling(name, tuple(points))

    curves: dict[Protocol, Scaling] = {"split": study_of(row.name, 1.0)}
    if row.measured:
        curves["paper"] = trained_as_tested(study_of(row.name, 0.6))
    return FittedRow(row, with_paper_protocol(row, curves))


def test_every_cell_of_the_papers_table_has_a_claim_under_each_protocol() -> None:
    """Those of one and two inputs have one: the reference code tests them on points of their own."""
    cells = [c for row in ROWS for c in cells_of(made_up(row))]
    claims = {c.what: c.claim("because", "table 1") for c in cells}
    assert len(claims) == len(cells) == (len(PRINTED) * len(PROTOCOLS) - len(APART)) * len(UNITS)
    assert [row.label for row in ROWS if row.apart] == list(APART)
    for row in ROWS:
        for unit in UNITS:
            for protocol in row.protocols:
                claim = claims[f"{row.label}, {unit}, {PROTOCOLS[protocol]}"]
                printed = PRINTED[row.label][1 + UNITS.index(unit)]
                assert claim.paper == printed and claim.place == f"table 1, {claim.what}"
                assert (claim.verdict == "new") == (printed == "-")
    assert sum(c.paper is not None for c in cells) == 15 + 10


def test_the_papers_words_on_its_table_are_held_against_slopes() -> None:
    """Made-up slopes are equal for all units: no GLU is steeper, and slopes do not fall with the inputs."""
    cells = [c for row in ROWS for c in cells_of(made_up(row))]
    for protocol in PROTOCOLS:
        steeper, inputs = steeper_claim(cells, protocol), inputs_claim(cells, protocol)
        assert steeper.verdict == inputs.verdict == "differs" and steeper.ours == "0 of 7: none"
        # Slopes times their inputs over the slope of one: of training errors n^-2 over test errors n^-1.5.
        assert inputs.ours == {"split": "2.00 to 8.00", "paper": "2.00 to 10.67"}[protocol]
        assert inputs.paper == "1, by its own table 0.23 to 1.62"
    steep = [replace(c, ours=replace(c.ours, value=c.paper)) for c in cells if c.paper is not None]
    assert steeper_claim(steep, "paper").verdict == "reproduced"
    assert inputs_claim(steep, "paper").verdict == "differs"  # the paper's own table does not go as 1/d


def test_widths_that_are_not_the_papers_are_said() -> None:
    claims = {c.what: c.claim("because", "table 1") for row in REAL for c in cells_of(made_up(row))}
    assert claims["airfoil, mlp, paper's protocol"].outside == (
        "the paper's slope is over n = 10 to 500, ours over 2 to 32"
    )
    assert {what for what, claim in claims.items() if claim.outside} == {
        f"airfoil, {unit}, {words}" for unit in ("mlp", "glu") for words in PROTOCOLS.values()
    }


def test_the_paper_has_a_row_for_each_of_ours_and_no_more() -> None:
    assert [row.label for row in ROWS] == list(PRINTED)
    assert [row.inputs for row in ROWS] == [1, 2, 5, 4, 4, 5, 8]
    assert all(row.problem().d_in == row.inputs for row in SYNTHETIC)


def test_where_the_reference_code_tests_on_points_of_their_own_the_protocols_are_one() -> None:
    fitted = made_up(SYNTHETIC[0])
    assert fitted.curves["paper"] is fitted.curves["split"]
    (cell,) = (c for c in cells_of(fitted) if c.unit == "mlp")
    assert cell.protocol == "paper" and cell.ours.value == pytest.approx(-1.5)
    assert cell.under("split") and cell.under("paper") and not cell.under("method")
    row = printed_table(cells_of(fitted)).loc[0]
    assert row["mlp, true split"] == row["mlp, paper's protocol"]


def test_protocols_are_labelled_and_not_mixed() -> None:
    fitted = made_up(SYNTHETIC[1])
    assert set(PROTOCOLS) == set(get_args(Protocol)) == set(fitted.curves)
    slopes = {(c.unit, c.protocol): c.ours.value for c in cells_of(fitted)}
    for unit in UNITS:
        assert slopes[unit, "split"] == pytest.approx(-1.5)
        assert slopes[unit, "paper"] == pytest.approx(-2.0)
    table = slopes_table(cells_of(fitted))
    assert table.groupby("protocol")["slope"].nunique().to_dict() == {"paper": 1, "split": 1}
    assert fitted.curves["paper"].problem == problem("friedman1", n=20, protocol="paper").name


def test_of_synthetic_problems_both_protocols_are_the_same_fits() -> None:
    """What is read off as the paper's protocol equals a fit that is asked for under it."""
    row = ProblemRow("friedman1", "Friedman 1", 5, (2, 3), seeds=1, data={"n": 120}, options=QUICK)
    row_fits = fit_row(Request(jobs=1), row, lambda *_: None)
    asked = scaling(UNITS, row.problem("paper"), row.widths, jobs=1, **QUICK)
    assert row_fits.curves["paper"].problem == asked.problem
    for read, fitted in zip(row_fits.curves["paper"].points, asked.points, strict=True):
        assert read.test_rmse == fitted.test_rmse == fitted.train_rmse


def test_of_measured_data_the_protocols_train_on_different_rows() -> None:
    x = np.random.default_rng(0).uniform(size=(60, 2))
    split, paper = (Problem.from_arrays(x, x[:, 0], protocol=protocol) for protocol in PROTOCOLS)
    assert split.train.n < paper.train.n == 60 and paper.test is paper.train
    fitted = made_up(REAL[0])
    table = fits_table([fitted, made_up(SYNTHETIC[0])])
    assert set(table.loc[table["problem"] == "airfoil", "trained_on"]) == {"all rows", "training part"}
    assert set(table.loc[table["problem"] == "sin4x-sin4y", "trained_on"]) == {"training part"}
    assert REAL[0].fits == sum(table["problem"] == "airfoil")


def test_theory_stands_beside_every_slope() -> None:
    cells = {(c.row.name, c.unit): c for row in ROWS for c in cells_of(made_up(row))}
    assert cells["sin4x-sin4y", "mlp"].worst_case == -1.25 and cells["sin4x-sin4y", "mlp"].attainable == -2
    assert cells["sin4x-sin4y", "gqu"].attainable == -4 and cells["friedman1", "glu"].attainable is None
    assert cells["paper-1d", "gqu"].worst_case == -4 == cells["paper-1d", "gqu"].attainable


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [(-0.60, -0.7, -0.5, "reproduced"), (-1.13, -1.2, -1.0, "exceeded"), (-0.3, -0.4, -0.2, "differs")],
)
def test_verdicts_of_cells(value: float, low: float, high: float, verdict: str) -> None:
    """The paper has -0.55; slopes within 5 % of it count as near, in many dimensions as in one."""
    assert SlopeCell(SYNTHETIC[1], "mlp", "split", Slope(value, low, high, 0.0, 5)).verdict == verdict


def test_the_printed_table_has_a_line_a_problem() -> None:
    cells = [c for row in ROWS for c in cells_of(made_up(row))]
    table = printed_table(cells)
    assert len(table) == len(ROWS)
    assert table.loc[1, "gqu, paper"] == "-" and table.loc[1, "mlp, worst case"] == "-1.25"
    assert str(table.loc[1, "mlp, true split"]).startswith("-1.50 [")


def test_the_figure_keeps_its_range_when_an_error_rises() -> None:
    cells = [c for row in SYNTHETIC for c in cells_of(made_up(row, test=2.0))]
    figure = slope_dots(cells, "Table 1")
    assert all(panel.get_xlim()[1] == 1.0 for panel in figure.axes)
    assert [panel.get_title() for panel in figure.axes] == ["MLP", "GLU", "GQU"]


def test_reasons_hold_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reasons, "UNITS", ("mlp",))
    monkeypatch.setattr(row_reasons, "pair_errors", lambda unit, widths: {n: 0.1 * n**-2.0 for n in widths})
    reason = row_reason(made_up(SYNTHETIC[0]))
    assert "mlp -2.00 (5.0 times at n = 64)" in reason
    assert "n = 8..64" in reason and "-1.50 is steeper than the worst case -1.25" in reason and "ridge" in reason
    row = replace(REAL[0], seeds=1)
    reason = protocols_reason(made_up(row, test=-0.2, train=-0.5))
    assert "the test RMSE still falls at n = 32 (0.5)" in reason and "paper's protocol reports 0.0884" in reason
    assert "a floor E + A/P^a" in reason
    assert set(floors_table(made_up(row, test=-0.2, train=-0.5))["protocol"]) == set(PROTOCOLS)


def test_two_ridges_are_the_target_and_their_errors_add_in_squares() -> None:
    x, y = np.random.default_rng(1).uniform(-1, 1, (2, 20_000))
    f = {sign: np.cos(4 * (x + sign * y)) / 2 for sign in (1, -1)}
    np.testing.assert_allclose(f[-1] - f[1], np.sin(4 * x) * np.sin(4 * y), atol=1e-12)
    line = ridge_problem(20_000)
    assert np.abs(line.train.x).max() <= 2
    # The density of x + y: 20 000 points have this quarter of the mass within 1.5 % with 99.9 % and more.
    assert np.mean(np.abs(line.train.x) < 2 - 3**0.5) == pytest.approx(0.25, abs=0.015)
    error = pair_errors("mlp", [28], 1000)[28]
    assert error == pytest.approx(2**0.5 * fit("mlp", ridge_problem(1000), 14).test_rmse)


def test_what_was_fitted_is_said_for_every_row() -> None:
    note = fits_note(ROWS)
    assert all(f"{row.label}: {len(row.widths)} widths n = {row.widths[0]}.." in note for row in ROWS)
    assert "starts 1, rounds 6" in note and "1 seed, every width" in note


def test_where_the_test_error_turns() -> None:
    assert turning_width({2: 0.5, 4: 0.4, 8: 0.45}) == 4
    assert turning_width({2: 0.5, 4: 0.4, 8: 0.3}) is None


def test_floors_need_six_widths_and_are_found() -> None:
    row = REAL[0]
    points = [
        Point("mlp", n, 7 * n + 1, 0, 0.1, 0.3 + 2 / (7 * n + 1), np.nan, np.nan, "", "converged", 0.0)
        for n in row.widths
    ]
    law = floor_law(Scaling("airfoil", tuple(points)), "mlp")
    assert law is not None and abs(law.E - 0.3) < 0.01
    assert floor_law(Scaling("airfoil", tuple(points[:4])), "mlp") is None


def test_the_gap_is_that_of_one_fit_and_not_of_two_protocols() -> None:
    table = gap_table(made_up(REAL[0]))
    np.testing.assert_allclose(
        table["test_over_train"].to_numpy(float), 2 * table["width"].to_numpy(float) ** (-1.5 + 2.0)
    )


def test_facts_count_repeated_rows_and_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([[0.0, 0], [0, 0], [1, 0], [2, 1], [3, 1], [4, 2]])
    y = np.array([1.0, 3.0, 5.0, 5.0, 5.0, 2.0])
    data = Problem.from_arrays(x, y, protocol="paper", columns=("frequency", "angle"))
    monkeypatch.setattr(ProblemRow, "problem", lambda *_: data)
    facts = row_facts(ProblemRow("airfoil", "airfoil", 2, (2,)))
    assert (facts.rows, facts.repeated, facts.spread, facts.at_maximum, facts.settings) == (6, 2, 1.0, 3, 3)
    sentence = facts.sentence("airfoil")
    assert (
        "2 share their inputs" in sentence
        and "3 have the largest target, 50.0%" in sentence
        and "3 settings" in sentence
    )


def test_outliers_carry_their_share() -> None:
    x = np.arange(100) / 1e3
    x[7] += 9.0
    target = Problem.from_arrays(np.arange(5.0), np.arange(5.0) ** 2, test=(x, x + 1))
    values = target.test.y + 0.1
    values[7] += 10.0
    outlying = outliers_in(target, values, "glu", 8)
    assert outlying.share == outlying.alone == pytest.approx(10.1**2 / (10.1**2 + 99 * 0.01))
    assert outlying.without == pytest.approx(0.1) and outlying.reach == pytest.approx(9.007)
    assert "glu of 8 neurons" in outlying.sentence


def test_the_fit_that_is_looked_at_is_that_of_the_study() -> None:
    row = replace(STAND_IN, widths=(2,), seeds=1, data={"n": 120, "noise": 1.0}, options=QUICK)
    fitted = fit_row(Request(jobs=1), row, lambda *_: None)
    assert outliers(fitted).rmse == pytest.approx(widest_gap(fitted.curves["split"]).test_rmse)


def test_the_widest_gap_is_looked_for_among_small_networks() -> None:
    def point(width: int, test: float) -> Point:
        return Point("gqu", width, 9 * width, 0, 0.5, test, np.nan, np.nan, "", "converged", 0.0)

    assert widest_gap(Scaling("made up", (point(2, 0.6), point(8, 0.9), point(16, 5.0)))).width == 8
    assert widest_gap(Scaling("made up", (point(16, 5.0),))).width == 16


def test_data_that_are_not_there_are_said_before_any_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    at_hand, lacking = rows_with_data((*SYNTHETIC[:1], *REAL))
    assert [row.name for row in at_hand] == ["sin4x-sin4y"]
    assert len(lacking) == 2 and all("is left out" in said and "GATELAB_DATA" in said for said in lacking)
    with pytest.raises(GatelabError, match="California is left out"):
        study("scaling/fig8").run(Request(progress=lambda *_: pytest.fail("a fit was made")))


def test_a_stand_in_is_not_compared_with_the_paper() -> None:
    assert all(STAND_IN.paper(unit) is None for unit in UNITS)
