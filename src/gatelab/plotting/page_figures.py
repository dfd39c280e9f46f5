"""Facets as a figure of plotly's, in plain values: what a page draws, with its numbers under the pointer.

Panels are axes of plotly's grid. Colors of lines are those of the files; text, grid and ground take those of the page.
"""

from __future__ import annotations

from typing import Any

from gatelab.plain import to_plain
from gatelab.plotting.facets import Facets, Table, Tables
from gatelab.plotting.theme import GREY, looks

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "P": "cross",
    "X": "x",
    "h": "hexagon",
    "*": "star",
}
DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
PANEL = 300  # pixels of a panel's height


def plotly_figure(facets: Facets, tables: Tables) -> dict[str, Any]:
    """The figure as the `data` and `layout` that `Plotly.newPlot` takes.

    Args:
        facets: What is drawn.
        tables: The tables by name.

    Returns:
        Plain values, ready for JSON.
    """
    table = facets.rows_of(tables)
    panels = list(facets.panels(table))
    rows, columns = 1 + max(p[0] for p in panels), 1 + max(p[1] for p in panels)
    values = list(dict.fromkeys(table[facets.hue])) if facets.hue else [""]
    shapes = looks(map(facets.name, values))
    figure = {"data": [], "layout": _layout(facets, rows, columns)}
    for i, j, title, chosen in panels:
        number = i * columns + j + 1
        axes = {"xaxis": f"x{number}" if number > 1 else "x", "yaxis": f"y{number}" if number > 1 else "y"}
        for value, series in facets.series(chosen):
            name = facets.name(value)
            figure["data"] += [trace | axes for trace in _traces(facets, series, name, shapes[name], number == 1)]
        _set_axes(figure["layout"], facets, number, title, bottom=i == rows - 1, left=j == 0)
    return to_plain(figure)


def _layout(facets: Facets, rows: int, columns: int) -> dict[str, Any]:
    return {
        "title": {"text": facets.title},
        "grid": {"rows": rows, "columns": columns, "pattern": "independent", "ygap": 0.28, "xgap": 0.12},
        "height": PANEL * rows + 120,
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.12},
        "annotations": [],
        "shapes": [],
        "hovermode": "closest",
    }


def _set_axes(layout: dict[str, Any], facets: Facets, number: int, title: str, *, bottom: bool, left: bool) -> None:
    key = str(number) if number > 1 else ""
    layout[f"xaxis{key}"] = {"type": "log" if facets.xlog else "-", "title": {"text": _label(facets.xlabel, bottom)}}
    layout[f"yaxis{key}"] = {"type": "log" if facets.ylog else "-", "title": {"text": _label(facets.ylabel, left)}}
    where = {"xref": f"x{key} domain", "yref": f"y{key} domain", "showarrow": False}
    layout["annotations"].append({"text": title, "x": 0.5, "y": 1.08, **where})
    for level in facets.levels.values():
        line = {"type": "line", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": {"color": GREY, "width": 1}}
        layout["shapes"].append({**line, "xref": f"x{key} domain", "yref": f"y{key}"})


def _label(text: str, shown: bool) -> str:
    return text if shown else ""


def _traces(facets: Facets, rows: Table, name: str, look: Any, legend: bool) -> list[dict[str, Any]]:
    """The traces of one series: its points with intervals, its overlays, its rings, the paper's crosses."""
    x, y = rows[facets.x], rows[facets.y]
    low, high = f"{facets.y}_low", f"{facets.y}_high"
    base = {"type": "scatter", "legendgroup": name, "hovertemplate": f"{name}<br>%{{x:.4g}}: %{{y:.4g}}<extra></extra>"}
    main: dict[str, Any] = {
        **base,
        "x": x,
        "y": y,
        "name": name,
        "mode": "markers" if facets.points else "lines+markers",
        "marker": {"symbol": SYMBOLS[look.marker], "color": look.colour},
        "line": {"color": look.colour},
        "showlegend": legend and bool(facets.hue),
    }
    if low in rows and high in rows:
        main["error_y"] = {"type": "data", "array": rows[high] - y, "arrayminus": y - rows[low], "color": look.colour}
    traces = [main]
    for overlay in facets.lines:
        if overlay.y in rows and rows[overlay.y].notna().any():
            line = {"color": look.colour if overlay.hue else GREY, "dash": DASHES.get(overlay.dash, "solid")}
            mode = "markers" if overlay.dash == "none" else "lines"
            traces.append({**base, "x": x, "y": rows[overlay.y], "mode": mode, "line": line, "showlegend": False})
    if facets.marks:
        ringed = rows[rows[facets.marks[0]].astype(bool)]
        ring = {"symbol": "circle-open", "size": 13, "color": GREY}
        points = {"x": ringed[facets.x], "y": ringed[facets.y], "mode": "markers", "marker": ring}
        traces.append({**base, **points, "showlegend": False})
    if facets.paper:
        cross = {"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": look.colour}}
        points = {"x": x, "y": rows[facets.paper], "mode": "markers", "marker": cross}
        traces.append({**base, **points, "showlegend": False})
    return traces
