"""What a notebook shows of a value: a heading, a small table, a small figure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO

from matplotlib.figure import Figure
from PIL import Image

from gatelab.plotting.style import style

DPI = 72
COLOURS = 64  # of the picture: enough for lines and letters, at a third of the size
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top;max-width:26em"


def html(
    heading: str, rows: Iterable[Sequence[str]], *, columns: Sequence[str] = (), figure: Figure | None = None
) -> str:
    """The heading, the table and the figure, side by side where there is room; every text is escaped.

    The table has the colours of the notebook, the figure a white ground of its own: both can be read in the dark.

    >>> html("a < b", [("glu", "1e-3")])[:60]
    '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items'
    >>> "a &lt; b" in html("a < b", [])
    True
    """
    lines = ([_row("th", columns)] if columns else []) + [_row("td", row) for row in rows]
    picture = "" if figure is None else f'<img alt="{escape(heading)}" src="{_picture(figure)}">'
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">'
        f"<div><strong>{escape(heading)}</strong><table>{''.join(lines)}</table></div>{picture}</div>"
    )


def _row(kind: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f'<{kind} style="{_CELL}">{escape(cell)}</{kind}>' for cell in cells) + "</tr>"


def _picture(figure: Figure) -> str:
    buffer, small = BytesIO(), BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=DPI)
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()
