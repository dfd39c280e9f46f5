"""Claims with numbers, the grid engine and figures as data, on made-up numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.plain import to_plain
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, measured_rows, sections
from gatelab.studies.records import read_claim

STUDY = Study(
    "ntk/made-up",
    "Made-up numbers",
    grid={"unit": ["mlp", "glu"], "n, d": [(4, 2), (8, 2)], "seed": range(4), "q": [1, 2, 3]},
    quick={"seed": range(2)},
    over="seed",
    mean="geometric",
    figure=Facets(x="q", y="error", hue="unit", col="n", ylog=True, levels={"one": 1.0}),
)


@STUDY.measure(together="q")
def errors(unit: str, n: int, d: int, seed: int, q: tuple[int, ...]) -> Iterator[dict[str, float]]:
    for order in q:
        yield {"error": n * d / order * math.exp((seed - 1.5) / 10) * (2 if unit == "mlp" else 1)}


@STUDY.measure("widths", grid={"unit": ["glu"]}, quick={}, over="")
def widths(unit: str) -> dict[str, Any]:
    return {"width": 7, "name": unit}


@STUDY.claims
def claims(tables: dict[str, Any]) -> Iterator[Claim]:
    yield Claim("the width", float(tables["widths"]["width"].item()), paper=7.0, rule="number")


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        # Tolerances are relative: 4 % from the paper's number.
        (Claim("slope", -2.87, -2.9, -2.84, -3.0, "slope"), "reproduced"),
        (Claim("slope", -1.87, -1.9, -1.84, -2.0, "slope"), "differs"),
        # What is equal is near; a difference that is not seen decides nothing, one that is seen differs.
        (Claim("ratio", 0.962, 0.945, 0.977, 1.0, "equal"), "reproduced"),
        (Claim("ratio", 1.12, 0.99, 1.23, 1.0, "equal"), "undecided"),
        (Claim("ratio", 1.24, 1.16, 1.3, 1.0, "equal"), "differs"),
        # Only held-out errors exceed; a steeper training error differs.
        (Claim("slope", -4.0, -4.1, -3.9, -3.0, "slope"), "exceeded"),
        (Claim("slope", -4.0, -4.1, -3.9, -3.0, "slope", held_out=False), "differs"),
        # An interval with the paper's number and no fall at all decides nothing.
        (Claim("slope", -0.17, -0.73, 0.38, -0.56, "slope"), "undecided"),
        (Claim("number", 1.0, 0.5, 1.5, 1.3, "number"), "reproduced"),
        (Claim("number", 1.0, paper=1.3, rule="number"), "differs"),
        (Claim("number", 0.1, -0.4, 0.6, 0.0, "number", opposite=0.5), "undecided"),
        (Claim("exponent", 0.04, 0.03, 0.05, 0.0, "number", opposite=1.0), "reproduced"),
        (Claim("exponent", 0.04, 0.03, 0.05, 0.0, "number"), "differs"),
        (Claim("ratio", 3.6, 3.1, 4.2, 1.0, "above"), "reproduced"),
        (Claim("ratio", 1.2, 0.9, 1.5, 1.0, "above"), "undecided"),
        (Claim("ratio", 0.5, 0.4, 0.6, 1.0, "above"), "differs"),
        (Claim("ratio", 0.5, 0.4, 0.6, 1.0, "below"), "reproduced"),
        (Claim("neurons", 14.0, paper=15.0, rule="at most"), "exceeded"),
        (Claim("neurons", 15.0, paper=15.0, rule="at most"), "reproduced"),
        (Claim("neurons", 16.0, paper=15.0, rule="at most"), "differs"),
        (Claim("estimate", 1.2, rule="close"), "reproduced"),
        (Claim("estimate", 0.7, rule="close"), "differs"),
        # 785.25 was rounded twice, to 785 and to even.
        (Claim("error", 785.25, paper="7.8e+02", rule="digits"), "reproduced"),
        (Claim("error", 785.6, paper="7.8e+02", rule="digits"), "differs"),
        (Claim("row", 0.33579, paper="0.3358, 1.4577", rule="digits", support={"b": 1.45767, "c": 9}), "reproduced"),
        (Claim("row", 0.33579, paper="0.3358, 1.4577", rule="digits", support={"b": 1.4576, "c": 9}), "differs"),
        (Claim("statement", 1.0, rule="holds"), "reproduced"),
        (Claim("statement", 0.0, rule="holds"), "differs"),
        (Claim("statement", None, rule="holds"), "undecided"),
        (Claim("of ours", 3.0), "new"),
        # A statement is judged where the paper makes it, and a reconstruction is never contradicted.
        (Claim("eq. 8 at m = d", 0.3, paper=0.0, rule="number", outside="m = d, the paper has m >> d"), "outside"),
        (Claim("cell", 2.0, paper=1.0, rule="number", reconstructed=True), "undecided"),
        (Claim("cell", 1.0, paper=1.0, rule="number", reconstructed=True), "reproduced"),
    ],
)
def test_rules(claim: Claim, verdict: str) -> None:
    assert claim.verdict == verdict


def test_one_formatter_makes_all_texts() -> None:
    claim = Claim.of("gain", Interval(0.3312, 0.2, 0.4), 0.3, "number", unit="bits", support={"runs": 12, "p": 0.01234})
    assert (claim.ours, claim.theirs) == ("0.331 [0.2, 0.4] bits", "0.3 bits")
    assert claim.because == "runs: 12; p: 0.0123."
    assert (Claim("x", None).ours, Claim("x", 1.0).theirs, Claim("x", 1.0, rule="holds").ours) == ("-", "-", "holds")
    with pytest.raises(TypeError, match="needs a number of the paper"):
        _ = Claim("slope", -2.0, paper="steep", rule="slope").verdict
    assert replace(claim, note="A sentence.", support={}).because == "A sentence."
    record = json.loads(json.dumps(to_plain(claim), allow_nan=False))
    assert record["value"] == 0.3312 and record["paper"] == 0.3 and record["verdict"] == "reproduced"
    assert read_claim(record) == claim


def test_a_study_measures_its_grid_and_averages_over_seeds(tmp_path: Path) -> None:
    ticks: list[tuple[int, int]] = []
    how: dict[str, Any] = {"jobs": 1, "sweep": {"store": tmp_path / "runs.db"}}
    outcome = STUDY.run(Request(**how, progress=lambda done, total: ticks.append((done, total))))
    table = outcome.tables["made-up"]
    assert list(table["q"][:3]) == [1, 2, 3] and len(table) == 12 and set(table["seeds"]) == {4}
    row = table[(table["unit"] == "glu") & (table["n"] == 8) & (table["q"] == 2)].iloc[0]
    assert row["error"] == pytest.approx(8.0) and row["error_low"] < 8 < row["error_high"]
    assert outcome.claims[0].verdict == "reproduced" and (16, 16) in ticks
    again: list[Any] = []
    STUDY.run(Request(**how, progress=lambda *state: again.append(state)))
    assert len(again) == 17  # read from the store, cell by cell
    assert len(STUDY.run(Request(quick=True, jobs=1)).tables["made-up"]) == 12


def test_cells_are_computed_in_another_process_too() -> None:
    """One cell, for which one worker is started."""
    cell = {"unit": "glu", "n": 4, "d": 2, "seed": 1, "q": (1, 2)}
    serial, parallel = (measured_rows(f"{__name__}:errors", [cell], "q", Request(jobs=jobs)) for jobs in (1, 2))
    pd.testing.assert_frame_equal(serial, parallel)
    assert list(parallel["q"]) == [1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_cell_is_computed_after_the_hours(jobs: int) -> None:
    cells = [{"unit": "glu", "n": n, "d": 2, "seed": 1, "q": (1, 2)} for n in (4, 5)]
    with pytest.raises(GatelabError, match="stopped after 1e-12 hours with 0 of 2 cells; give a store"):
        measured_rows(f"{__name__}:errors", cells, "q", Request(jobs=jobs, sweep={"max_hours": 1e-12}))


TABLE = pd.DataFrame(
    [
        (1, "mlp", 1.0, 0.9, 1.1, 0.5, False, 1.1),
        (2, "mlp", 0.5, 0.4, 0.6, 0.2, False, 0.55),
        (1, "glu", 0.8, 0.7, 0.9, math.nan, False, 0.9),
        (2, "glu", 0.2, 0.1, 0.3, math.nan, True, 0.25),
    ],
    columns=["n", "unit", "rmse", "rmse_low", "rmse_high", "limit", "best", "printed"],
)


def test_a_figure_shows_the_columns_of_its_table() -> None:
    facets = Facets(
        "n", "rmse", "unit", xlog=True, ylog=True, lines=(Overlay("limit", "limit"),), marks=("best", "best"),
        levels={"noise": 0.1}, paper="printed", title="Errors",
    )  # fmt: skip
    figure = draw_figure(facets, {"errors": TABLE})
    axes = figure.axes[0]
    drawn = [tuple(np.asarray(line.get_ydata()).tolist()) for line in axes.lines]
    assert (1.0, 0.5) in drawn and (0.8, 0.2) in drawn and (0.5, 0.2) in drawn and (0.2,) in drawn
    assert axes.get_xscale() == axes.get_yscale() == "log"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["mlp", "glu", "limit", "noise", "best", "the paper"]


def test_panels_are_rows_and_columns() -> None:
    facets = Facets("n", "rmse", col="unit", where={"n": [1, 2]}, names={"mlp": "plain"}, points=True)
    figure = draw_figure(facets, {"errors": TABLE})
    assert [axes.get_title() for axes in figure.axes] == ["plain", "glu"] and not figure.legends
    wrapped = replace(facets, wrap=1)
    assert wrapped.shape({"errors": TABLE}) == (2, 1)
    above, below = draw_figure(wrapped, {"errors": TABLE}).axes
    assert above.get_subplotspec().rowspan.start == 0 and below.get_subplotspec().rowspan.start == 1  # pyright: ignore


def test_short_logarithmic_axes_have_plain_numbers_and_missing_columns_raise() -> None:
    with pytest.raises(GatelabError, match="no column depth; it has n, unit"):
        draw_figure(Facets("depth", "rmse"), {"errors": TABLE})
    (axes,) = draw_figure(Facets("n", "rmse", hue="unit", ylog=True), {"errors": TABLE}).axes
    assert {text.get_text() for text in axes.get_yticklabels()} >= {"0.1", "0.2", "0.5", "1"}


def test_templates_refuse_names_that_are_not_there(tmp_path: Path) -> None:
    template = tmp_path / "study.md"
    template.write_text("The slope is {{ slope | number }},\nas expected.\n\nSecond.")
    assert sections(template, slope=-2.1234)[""] == ("The slope is -2.12, as expected.", "Second.")
    with pytest.raises(Exception, match="'slope' is undefined"):
        sections(template)
    assert sections(tmp_path / "none.md") == {"": ()}
