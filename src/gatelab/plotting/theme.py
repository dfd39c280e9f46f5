"""The style of figures, colors and markers of units, axes, files, and images for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.files import PICTURES, either, write_whole
from gatelab.plotting.svg import png_address, svg_text

RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.facecolor": "white",
    "figure.titlesize": 11,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so figures are equal on every machine
    "svg.fonttype": "none",  # text as text
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "savefig.facecolor": "white",
    "svg.hashsalt": "gatelab",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
GRAY = "#6b6b6b"
# For the neurons of one network.
NEURON_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D3A9B", "#222222")


@dataclass(frozen=True)
class Look:
    """The color and marker of a series."""

    color: str
    marker: str


# The palette of Okabe and Ito without yellow, which is too faint on white. Plain gates are cool, gated units are warm.
_FIXED = {
    "mlp": Look("#0072B2", "o"),
    "relu2": Look("#56B4E9", "^"),
    "relu3": Look("#009E73", "v"),
    "glu": Look("#D55E00", "s"),
    "gqu": Look("#CC79A7", "D"),
}
_OTHERS = (
    Look("#E69F00", "P"),
    Look("#5D3A9B", "X"),
    Look("#222222", "<"),
    Look("#994F00", ">"),
    Look("#117733", "h"),
    Look("#882255", "*"),
    Look("#0072B2", "d"),
    Look("#CC79A7", "p"),
)


def look(name: str, order: int = 0) -> Look:
    """The look of a unit, or for any other name, the free look number `order`.

    Args:
        name: Of the series.
        order: The number of the look, for names that are not units.

    Returns:
        Color and marker.

    >>> look("glu").marker, look("mine").marker, look("mine", 1).marker
    ('s', 'P', 'X')
    """
    return _FIXED.get(name, _OTHERS[order % len(_OTHERS)])


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for every name; names that are not units get free looks in order.

    Args:
        names: Of the series, possibly repeated.

    Returns:
        The look of each name.

    >>> [shape.marker for shape in looks(["b", "mlp", "a"]).values()]
    ['P', 'o', 'X']
    """
    distinct = list(dict.fromkeys(names))
    orders = {name: order for order, name in enumerate(name for name in distinct if name not in _FIXED)}
    return {name: look(name, orders.get(name, 0)) for name in distinct}


@contextmanager
def style() -> Iterator[None]:
    """Use gatelab's style within a block.

    Yields:
        None; matplotlib's settings are restored after the block.
    """
    with mpl.rc_context(RC):
        yield


DPI = 200
# No dates and versions, so that equal figures give equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


class NotebookFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        return _png(self, 100)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with constrained layout.

    Args:
        width: In inches.
        height: In inches.

    Returns:
        The figure, which a notebook displays.
    """
    return NotebookFigure(figsize=(width, height), layout="constrained")


@dataclass(frozen=True, eq=False)
class Canvas:
    """The axes of a plot: of a new figure (`own`), or given by the caller."""

    figure: Figure
    axes: list[Axes]
    own: bool

    def title(self, text: str) -> None:
        """Set the title of a new figure, or of a single given panel without a title."""
        if self.own:
            self.figure.suptitle(text)
        elif len(self.axes) == 1 and not self.axes[0].get_title():
            self.axes[0].set_title(text)

    def legend(self, handles: Sequence[Any] | None = None, ncols: int = 1) -> None:
        """Add a legend below a new figure, or in the last given panel; by default of the first panel's labels."""
        if handles is None:
            handles = self.axes[0].get_legend_handles_labels()[0]
        if self.own:
            self.figure.legend(handles=handles, loc="outside lower center", ncols=ncols)
        else:
            self.axes[-1].legend(handles=handles)


def canvas(
    width: float, height: float, count: int = 1, ax: Any = None, *, rows: int = 1, sharey: bool = False
) -> Canvas:
    """A new figure of `count` panels, with its size in inches, or the given axes.

    >>> mine = Figure().subplots(1, 2)
    >>> canvas(4, 3, 2, mine).figure is mine[0].figure
    True
    >>> canvas(4, 3, 1, mine)
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: ax holds 2 axes and this plot has 1 panel; give 1 of matplotlib's axes
    """
    if ax is None:
        figure = new_figure(width, height)
        grid = figure.subplots(rows, -(-count // rows), squeeze=False, sharey=sharey)
        return Canvas(figure, list(grid.ravel()), own=True)
    parts: list[Any] = list(np.ravel(np.asarray(ax, dtype=object)))
    axes = [part for part in parts if isinstance(part, Axes)]
    if len(axes) != count or len(axes) < len(parts):
        content = f"holds {len(axes)} axes"
        if parts and not axes:
            content = f"is of type {type(ax).__name__}"
        panels = counted(count, "panel")
        raise GatelabError(f"ax {content} and this plot has {panels}; give {count} of matplotlib's axes")
    whole: Any = axes[0].figure
    return Canvas(whole.figure, axes, own=False)


def log_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis: plain numbers over less than three decades, else powers of ten."""
    low, high = axis.get_view_interval()
    if high >= 1000 * low:
        axis.set_major_locator(LogLocator(10.0 ** math.ceil((math.log10(high) - math.log10(low)) / 6), numticks=12))
        return
    locator: Any = LogLocator(10, subs=(1.0, 3.0), numticks=12)
    if high < 4 * low:
        locator = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    elif high < 100 * low:
        locator = LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=12)
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
    axis.set_minor_formatter(NullFormatter())


def size_text(value: float) -> str:
    """A number as text for a figure.

    >>> size_text(10_000), size_text(1e9), size_text(1.4e12)
    ('10000', '$10^{9}$', '$1.4\\\\times10^{12}$')
    """
    if 1e-4 <= value < 1e5:
        return f"{float(f'{value:.4g}'):g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    if float(mantissa) == 1:
        return f"${power}$"
    return f"${float(mantissa):g}\\times{power}$"


def handle(label: str, color: Any, dash: Any = "-", **look: Any) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], color=color, linestyle=dash or "none", label=label, **look)


def legend_below(axes: Any, handles: Sequence[Any] | None = None, *, distance: float = 0.16, **where: Any) -> None:
    """Add a legend below the panel, by default of labeled artists."""
    if handles is not None:
        where["handles"] = handles
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -distance), borderaxespad=0.0, **where)


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG (200 dpi), SVG or PDF, by the suffix of the path.

    The file is replaced atomically.

    Args:
        figure: To write.
        path: Of the file; its suffix is the format.

    Returns:
        The path of the file.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in PICTURES:
        raise GatelabError(
            f"a figure cannot be written as {target.name!r}; give a name that ends in {either(PICTURES)}"
        )

    def render(part: Path) -> None:
        with style():
            if kind == ".svg":
                part.write_text(svg_text(figure), encoding="utf-8")
            else:
                figure.savefig(part, format=kind[1:], dpi=DPI, metadata=_METADATA[kind])

    return write_whole(target, render)


def saved(figure: Figure, path: str | Path | None) -> Figure:
    """Write the figure to `path`, unless that is None, and return it.

    Args:
        figure: To write.
        path: Of the file, or None.

    Returns:
        The figure itself.
    """
    if path is not None:
        save(figure, path)
    return figure


NOTEBOOK_DPI = 72
COLORS = 128  # of the image, enough for lines and letters
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top;max-width:26em"


def html(
    heading: str, rows: Iterable[Sequence[str]], *, columns: Sequence[str] = (), figure: Figure | None = None
) -> str:
    """The heading, the table and the figure as HTML, with all text escaped.

    >>> "a &lt; b" in html("a < b", [])
    True
    """
    lines = [_row("th", columns)] * bool(columns) + [_row("td", row) for row in rows]
    picture = ""
    if figure is not None:
        picture = f'<img alt="{escape(heading)}" src="{png_address(_png(figure, NOTEBOOK_DPI), COLORS)}">'
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">'
        f"<div><strong>{escape(heading)}</strong><table>{''.join(lines)}</table></div>{picture}</div>"
    )


def _row(kind: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f'<{kind} style="{_CELL}">{escape(cell)}</{kind}>' for cell in cells) + "</tr>"


def _png(figure: Figure, dpi: int) -> bytes:
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi, metadata=_METADATA[".png"])
    return buffer.getvalue()
