"""What has no outline worth keeping: heat maps, level lines, surfaces. They become small PNGs within the values."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image

from gatelab.plotting.chart_series import numbers, plain

DPI = 180
MOST_CELLS = 4096
STOPS = 11


def maps(axes: Axes) -> list[dict[str, Any]]:
    """The images of a panel, and its level maps as one image that fills the panel.

    `extent` is (left, right, bottom, top); `values`, row by row from the top, are there for a reader who points at a
    cell, unless there are more than 4096 of them.
    """
    pictures: list[dict[str, Any]] = []
    for image in axes.images:
        array = np.ma.asarray(image.get_array(), float)
        values, rows = np.ma.filled(array, np.nan), image.to_rgba(array, bytes=True)
        if image.origin == "lower":
            values, rows = values[::-1], rows[::-1]
        cells = None
        if values.ndim == 2 and values.size <= MOST_CELLS:
            cells = [float(f"{v:.4g}") if np.isfinite(v) else None for v in values.ravel()]
        pictures.append(
            {
                "png": _png(np.asarray(rows, np.uint8)),
                "extent": numbers(image.get_extent()),
                "shape": list(values.shape[:2]),
                "values": cells,
            }
        )
    levels = [one for one in axes.collections if isinstance(one, ContourSet)]
    if levels:
        drawn = _drawn(axes, levels, axes.bbox)
        pictures.append({"png": drawn, "extent": numbers([*axes.get_xlim(), *axes.get_ylim()]), "values": None})
    return pictures


def picture(axes: Axes) -> dict[str, Any]:
    """A panel that is no pair of axes, such as a surface, as one picture with all but its title."""
    shown = axes.title.get_visible()
    axes.title.set_visible(False)
    try:
        box = axes.get_tightbbox()
        assert box is not None
        return {"png": _drawn(axes, [axes], box), "aspect": round(float(box.width / box.height), 3)}
    finally:
        axes.title.set_visible(shown)


def colour_bars(figure: Figure) -> tuple[list[dict[str, Any]], list[Axes]]:
    """Colour bars with the panels that they speak for, and the axes that hold them."""
    drawn = [(one, m) for one in figure.axes for m in _mappables(one)]
    bars: list[dict[str, Any]] = []
    beside: list[Axes] = []
    for _, mappable in drawn:
        bar = mappable.colorbar
        if bar is None or bar.ax in beside:
            continue
        beside.append(bar.ax)
        low, high = mappable.get_clim()
        alike = [one for one, m in drawn if m.get_cmap() == mappable.get_cmap() and m.get_clim() == (low, high)]
        stops = mappable.get_cmap()(np.linspace(0, 1, STOPS))
        bars.append(
            {
                "label": plain(bar.ax.get_ylabel() or bar.ax.get_xlabel()),
                "limits": numbers([low, high]),
                "colours": [to_hex(c) for c in stops],
                "owners": alike,
            }
        )
    panels = [one for one in figure.axes if one not in beside and one.get_visible()]
    for bar in bars:
        owners = bar.pop("owners")
        bar["panels"] = [i for i, one in enumerate(panels) if one in owners]
    return bars, beside


def _mappables(axes: Axes) -> list[ScalarMappable]:
    artists = [*axes.images, *axes.collections]
    return [one for one in artists if isinstance(one, ScalarMappable) and one.get_array() is not None]


def _drawn(axes: Axes, artists: list[Any], box: Bbox) -> str:
    """The artists alone on nothing, cut to the box (in pixels of the figure as it is)."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    before = figure.dpi
    scale = DPI / before
    try:
        figure.dpi = DPI
        width, height = (int(np.ceil(v * DPI)) for v in figure.get_size_inches())
        renderer = RendererAgg(width, height, DPI)
        for artist in artists:
            artist.draw(renderer)
        cells = np.asarray(renderer.buffer_rgba())
    finally:
        figure.dpi = before
    left, right = (round(v * scale) for v in (max(box.x0, 0), box.x1))
    low, high = (round(v * scale) for v in (max(box.y0, 0), box.y1))
    return _png(cells[max(height - high, 0) : height - low, left:right])


def _png(cells: np.ndarray) -> str:
    """A PNG as the address that holds it, of at most 256 colours: maps have no more."""
    image = Image.fromarray(np.ascontiguousarray(cells)).quantize(256, method=Image.Quantize.FASTOCTREE)
    file = BytesIO()
    image.save(file, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
