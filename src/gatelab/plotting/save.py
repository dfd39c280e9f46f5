"""Figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.plotting.style import style

SUFFIXES = (".png", ".svg")
DPI = 200
# Without dates and versions equal figures give equal files.
_METADATA: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG (200 dpi) or SVG, by the suffix of the path.

    The file appears under its name when it is complete: whoever reads it sees the old figure or the new one.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in SUFFIXES:
        raise GatelabError(
            f"a figure cannot be written as {target.name!r}; give a name that ends in {' or '.join(SUFFIXES)}"
        )

    def render(part: Path) -> None:
        with style():
            figure.savefig(part, format=kind[1:], dpi=DPI, metadata=_METADATA[kind])

    return write_whole(target, render)
