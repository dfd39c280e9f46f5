"""Figures as data: the columns of a table for axes, series and panels, and their drawing with matplotlib.

A panel is a pair of values of `row` and `col`, a series a value of `hue`. Columns `y_low` and `y_high` are the interval
of a column `y`. Figures contain values of the table only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.plotting.theme import GRAY, Look, handle, log_ticks, looks, style

Table = Any  # a data frame; the stubs of pandas do not know its columns
Tables = Mapping[str, Table]
WIDTH, HEIGHT, LEGEND = 4.6, 3.4, 0.9  # inches of a panel and of the legend
DASHES: dict[str, Any] = {"solid": "-", "dashed": "--", "dotted": ":", "none": ""}


@dataclass(frozen=True)
class Overlay:
    """A further column that is drawn for every series, such as theoretical values."""

    y: str  # the column
    label: str  # its entry in the legend
    dash: str = "dashed"  # "solid", "dashed", "dotted", or "none" for points
    hue: bool = True  # whether it has the colors of the series or is gray


@dataclass(frozen=True)
class Facets(Compact):
    """A specification of a figure of a table."""

    x: str  # the column of the x axis; text gives a categorical axis
    y: str  # the column of the y axis
    hue: str = ""  # the column with the series; empty for one series
    row: str = ""  # the column with one row of panels per value
    col: str = ""  # the column with one column of panels per value
    wrap: int = 0  # the number of panels of `col` per row, without `row`; 0 for all
    table: str = ""  # the name of the table; empty for the first one of the study
    where: Mapping[str, Any] = field(default_factory=dict)  # a filter: columns with the values to draw
    xlog: bool = False  # whether the x axis is logarithmic
    ylog: bool = False  # whether the y axis is logarithmic
    xlabel: str = ""  # the name of the x axis; the column's by default
    ylabel: str = ""  # the name of the y axis; the column's by default
    title: str = ""  # the title of the whole figure
    lines: tuple[Overlay, ...] = ()  # further columns that are drawn for every series
    marks: tuple[str, str] | None = None  # a boolean column, whose true points have a ring, and its entry in the legend
    levels: Mapping[str, float] = field(default_factory=dict)  # horizontal lines by their entries in the legend
    paper: str = ""  # a column with the paper's own values, drawn as crosses
    names: Mapping[Any, str] = field(default_factory=dict)  # names of values in titles and legends
    points: bool = False  # whether series are points without lines
    smooth: bool = False  # whether series are lines without points

    def name(self, value: Any) -> str:
        return self.names.get(value, str(value))

    def looks(self, table: Table) -> dict[str, Look]:
        """Color and marker of each series by its name; those of units depend on the value, not on the name."""
        values = _levels(table, self.hue)
        shapes = looks(map(str, values))
        return {self.name(value): shapes[str(value)] for value in values}

    def line(self, look: Look) -> dict[str, Any]:
        """The arguments of matplotlib for a series."""
        marker, dash = look.marker * (not self.smooth), "-" * (not self.points)
        return {"color": look.color, "marker": marker, "linestyle": dash}

    def rows_of(self, tables: Tables) -> Table:
        """The rows to draw; raises if a column is missing."""
        table = tables[self.table or next(iter(tables))]
        columns = [self.x, self.y, self.hue, self.row, self.col, self.paper, *self.where]
        absent = sorted({c for c in columns if c} - set(table.columns))
        if absent:
            raise GatelabError(f"the table has no column {', '.join(absent)}; it has {', '.join(table.columns)}")
        for column, value in self.where.items():
            table = table[table[column].isin(value) if isinstance(value, list | tuple) else table[column] == value]
        return table

    def shape(self, tables: Tables) -> tuple[int, int]:
        """The numbers of rows and columns of panels."""
        table = self.rows_of(tables)
        rows, columns = len(_levels(table, self.row)), len(_levels(table, self.col))
        if self.wrap:
            return -(-columns // self.wrap), min(columns, self.wrap)
        return rows, columns

    def panels(self, table: Table) -> Iterator[tuple[int, int, str, Table]]:
        """Row, column, title and table of each panel."""
        for i, row in enumerate(_levels(table, self.row)):
            for j, col in enumerate(_levels(table, self.col)):
                chosen, place = table, (i, j)
                for column, value in ((self.row, row), (self.col, col)):
                    if column:
                        chosen = chosen[chosen[column] == value]
                title = ", ".join(self.name(value) for column, value in ((self.row, row), (self.col, col)) if column)
                if self.wrap:
                    place = divmod(j, self.wrap)
                yield *place, title, chosen

    def series(self, rows: Table) -> Iterator[tuple[Any, Table]]:
        """Each series of a panel: its value of `hue`, and its rows by ascending x."""
        for value in _levels(rows, self.hue):
            chosen = rows
            if self.hue:
                chosen = rows[rows[self.hue] == value]
            if pd.api.types.is_numeric_dtype(rows[self.x]):
                chosen = chosen.sort_values(self.x, kind="stable")
            yield value, chosen

    def places(self, panel: Table, value: Any, series: Table) -> Any:
        """The x of a series; on a categorical axis, points of different series are shifted."""
        names, hues = _levels(panel, self.x), _levels(panel, self.hue)
        if not self.points or len(hues) < 2 or pd.api.types.is_numeric_dtype(panel[self.x]):
            return series[self.x]
        shift = 0.6 * ((hues.index(value) + 0.5) / len(hues) - 0.5)
        return pd.Series([names.index(name) + shift for name in series[self.x]], series.index)


def _levels(table: Table, column: str) -> list[Any]:
    if not column:
        return [""]
    return list(dict.fromkeys(table[column]))


def draw_figure(facets: Facets | Sequence[Facets], tables: Tables) -> Figure:
    """Draw one figure with matplotlib; several specifications are drawn side by side."""
    parts = [facets] if isinstance(facets, Facets) else list(facets)
    rows, columns = zip(*(part.shape(tables) for part in parts), strict=True)
    with style():
        size = max(5.6, sum(WIDTH * count for count in columns)), HEIGHT * max(rows) + LEGEND
        figure = Figure(figsize=size, layout="constrained")
        places: Any = [figure]
        if len(parts) > 1:
            places = figure.subfigures(1, len(parts), width_ratios=columns)
        for part, place in zip(parts, places, strict=True):
            _draw_part(place, part, tables)
    return figure


def _draw_part(place: Any, facets: Facets, tables: Tables) -> None:
    """Panels, a legend below them and a title, in a figure or in a part of one."""
    table = facets.rows_of(tables)
    rows, columns = facets.shape(tables)
    shapes = facets.looks(table)
    grid = place.subplots(rows, columns, squeeze=False, sharex=not facets.wrap and "col")
    for i, j, title, chosen in facets.panels(table):
        _draw_rows(grid[i, j], facets, chosen, shapes)
        _finish(grid[i, j], facets, chosen, title, bottom=i == rows - 1 or facets.wrap > 0, left=j == 0)
    for axes in grid.ravel():
        if not axes.has_data():
            axes.remove()
    handles = _handles(facets, shapes)
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        fitting = int(WIDTH * columns / (0.5 + 0.07 * longest))
        place.legend(handles=handles, loc="outside lower center", ncols=max(1, min(fitting, len(handles))))
    if facets.title:
        place.suptitle(facets.title)


def draw_panel(axes: Axes, facets: Facets, tables: Tables) -> None:
    """Draw facets of one panel into given axes, with a legend."""
    table = facets.rows_of(tables)
    shapes = facets.looks(table)
    _draw_rows(axes, facets, table, shapes)
    _finish(axes, facets, table, facets.title, bottom=True, left=True)
    axes.legend(handles=_handles(facets, shapes), loc="best")


def _draw_rows(axes: Axes, facets: Facets, panel: Table, shapes: Mapping[str, Look]) -> None:
    """Every series of a panel, with its interval, further columns, marks and the paper's values."""
    low, high = f"{facets.y}_low", f"{facets.y}_high"
    for value, rows in facets.series(panel):
        look = shapes[facets.name(value)]
        x, y, color = facets.places(panel, value, rows), rows[facets.y], look.color
        if low in rows and high in rows:
            axes.errorbar(x, y, [y - rows[low], rows[high] - y], fmt="none", ecolor=color, elinewidth=1, capsize=2)
        axes.plot(x, y, **facets.line(look))
        for line in facets.lines:
            if line.y in rows and rows[line.y].notna().any():
                axes.plot(x, rows[line.y], color=color if line.hue else GRAY, linestyle=DASHES[line.dash])
        if facets.marks:
            marked = rows[facets.marks[0]].astype(bool)
            axes.plot(x[marked], y[marked], "o", color="black", markersize=9, markerfacecolor="none")
        if facets.paper:
            axes.plot(x, rows[facets.paper], "x", color=color, markersize=7, markeredgewidth=1.6)


def _finish(axes: Axes, facets: Facets, panel: Table, title: str, *, bottom: bool, left: bool) -> None:
    for level in facets.levels.values():
        axes.axhline(level, color=GRAY, linewidth=0.9)
    if facets.xlog:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    if facets.ylog:
        axes.set_yscale("log")
        log_ticks(axes.yaxis)
    if not pd.api.types.is_numeric_dtype(panel[facets.x]):
        names = _levels(panel, facets.x)
        axes.set_xticks(range(len(names)), [facets.name(name) for name in names])
    axes.set_title(title)
    if bottom:
        axes.set_xlabel(facets.xlabel or facets.x)
    if left:
        axes.set_ylabel(facets.ylabel or facets.y)


def _handles(facets: Facets, shapes: Mapping[str, Look]) -> list[Line2D]:
    handles: list[Line2D] = []
    if facets.hue:
        handles += [Line2D([], [], label=name, **facets.line(look)) for name, look in shapes.items()]
    handles += [handle(line.label, GRAY, DASHES[line.dash]) for line in facets.lines]
    handles += [handle(label, GRAY, linewidth=0.9) for label in facets.levels]
    if facets.marks:
        handles.append(handle(facets.marks[1], "black", "", marker="o", markersize=9, markerfacecolor="none"))
    if facets.paper:
        handles.append(handle("the paper", GRAY, "", marker="x"))
    return handles
