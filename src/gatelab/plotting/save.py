"""Figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.files import PICTURES, either, write_whole
from gatelab.plotting.style import style

DPI = 200
# Without dates and versions equal figures give equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG (200 dpi), SVG or PDF, by the suffix of the path.

    The file appears under its name when it is complete: whoever reads it sees the old figure or the new one.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in PICTURES:
        raise GatelabError(
            f"a figure cannot be written as {target.name!r}; give a name that ends in {either(PICTURES)}"
        )

    def render(part: Path) -> None:
        with style():
            figure.savefig(part, format=kind[1:], dpi=DPI, metadata=_METADATA[kind])

    return write_whole(target, render)


def saved(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written to `path` if there is one: what every `.plot()` ends with."""
    if path is not None:
        save(figure, path)
    return figure
