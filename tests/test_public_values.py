"""What a notebook shows of every public value: one line, a table, a figure; and plots that go where they are sent."""

from __future__ import annotations

import ast
import re
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import gatelab as gl
from gatelab.errors import GatelabError
from public_values import ROOMS, public_values

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF-"}
SHOWN = ("Fit", "Law", "Linearization", "Problem", "Scaling", "Scorecard", "Spectrum")


def plotted() -> dict[str, Any]:
    without = ("given law", "optimal linearisation", "random linearisation")
    return {n: v for n, v in public_values().items() if hasattr(v, "plot") and n not in without}


@pytest.fixture
def no_windows():
    assert not plt.get_fignums()
    yield
    assert not plt.get_fignums()


@pytest.mark.slow
def test_there_is_a_value_of_every_public_class() -> None:
    """Every dataclass that a room exports, so that a new one cannot be left out."""
    have = {type(v) for v in public_values().values()}
    exported = {
        value
        for room in map(import_module, ROOMS)
        for name in room.__all__
        if isinstance(value := getattr(room, name), type) and is_dataclass(value)
    }
    assert len(exported) > 50
    assert sorted(c.__qualname__ for c in exported - have) == []


def test_every_value_is_one_short_line() -> None:
    lines = {name: repr(value) for name, value in public_values().items()}
    assert {n: t for n, t in lines.items() if len(t) > 120 or "\n" in t} == {}
    arrays = {n: t for n, t in lines.items() if re.search(r"array\(|tensor\(|<function|<built-in|0x[0-9a-f]{6}", t)}
    assert arrays == {}


@pytest.mark.slow
@pytest.mark.usefixtures("no_windows")
def test_html_has_a_table_and_a_small_picture() -> None:
    without_figure = {"given law", "spectrum of an operator", "optimal linearisation", "random linearisation"}
    for name, value in public_values().items():
        if type(value).__name__ not in SHOWN or not hasattr(value, "_repr_html_"):
            continue
        page = value._repr_html_()
        assert page.count("<tr>") >= 2 and page.count("<div") == page.count("</div>"), name
        assert ("data:image/png;base64," in page) == (name not in without_figure), name
        assert len(page) < 80_000, name


def test_html_is_escaped() -> None:
    hostile = "<script>alert(1)</script>&"
    problem = gl.Problem.from_arrays(np.arange(9.0), np.arange(9.0) ** 2, name=hostile, columns=(hostile,))
    pages = problem._repr_html_(), gl.fit("mlp", problem, 1, solver="adam", steps=2)._repr_html_()
    assert all("<script" not in page and "&lt;script&gt;" in page for page in pages)


def test_many_rows_are_thinned() -> None:
    x = np.random.default_rng(0).uniform(size=200_000)
    figure = gl.Problem.from_arrays(x, x**2).plot()
    assert all(len(line.get_xdata()) <= 2000 for line in figure.axes[0].lines)


def test_every_plot_of_the_package_is_tried_here() -> None:
    source = Path(gl.__file__).parent
    classes = {
        node.name
        for path in source.rglob("*.py")
        if "def plot(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(f, ast.FunctionDef) and f.name == "plot" for f in node.body)
    }
    assert classes == {type(v).__name__ for v in plotted().values()}


@pytest.mark.slow
@pytest.mark.usefixtures("no_windows")
@pytest.mark.parametrize("suffix", MAGIC)
def test_plots_are_written(tmp_path: Path, suffix: str) -> None:
    """All as SVG, which is the quickest; how a figure is written in other forms does not depend on what it shows."""
    values = list(plotted().items())
    if suffix != ".svg":
        values = values[:3]
    for i, (name, value) in enumerate(values):
        path = tmp_path / f"{i}{suffix}"
        assert isinstance(value.plot(path), Figure), name  # the path is the first argument
        assert path.read_bytes().startswith(MAGIC[suffix]), name


@pytest.mark.slow
@pytest.mark.usefixtures("no_windows")
def test_plots_go_into_given_axes() -> None:
    for name, value in plotted().items():
        count = panels()[name]
        mine = Figure()
        axes = mine.subplots(1, count, squeeze=False)
        assert value.plot(ax=axes if count > 1 else axes[0, 0]) is mine, name
        assert len(mine.axes) == count and mine.get_suptitle() == "", name
        assert all(panel.has_data() or panel.texts for panel in axes.ravel()), name
        mine.draw_without_rendering()


@cache
def panels() -> dict[str, int]:
    """How many panels the plot of each value has."""
    return {name: len(value.plot().axes) for name, value in plotted().items()}


def test_the_wrong_number_of_axes_is_an_error_that_says_how_many() -> None:
    for name, value in plotted().items():
        count = panels()[name]
        with pytest.raises(GatelabError, match=rf"ax holds {count + 1} axes and this plot has {count} panels?; give"):
            value.plot(ax=list(Figure().subplots(1, count + 1)))
        with pytest.raises(GatelabError, match=f"ax is of type str and this plot has {count} panel"):
            value.plot(ax="here")
        assert name


def test_other_endings_are_refused(tmp_path: Path) -> None:
    for name, value in plotted().items():
        with pytest.raises(GatelabError, match=r"give a name that ends in \.png, \.svg or \.pdf"):
            value.plot(tmp_path / "figure.bmp")
        assert not list(tmp_path.iterdir()), name


def test_a_notebook_shows_figures_without_pyplot() -> None:
    png = public_values()["fit"].plot()._repr_png_()
    assert png.startswith(MAGIC[".png"])


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(GatelabError, match="not fitted"):
        public_values()["given law"].plot()
    with pytest.raises(GatelabError, match="not give a polynomial"):
        gl.linearize("gelu", "tangent", reference=torch.ones(4)).plot()
