"""Figures and texts to files: whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from matplotlib.figure import Figure

from gatelab.errors import GatelabError
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

    return _replace(target, render)


def write_atomically(path: str | Path, text: str) -> Path:
    """Write a text file in the same way: complete, or as it was before."""

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    return _replace(Path(path), write)


def _replace(target: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a temporary file beside the target, then move it there in one step."""
    # In the same folder, since a move between file systems is a copy and could be seen half done.
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target


def _unwritable(target: Path, error: OSError) -> GatelabError:
    return GatelabError(
        f"{target} cannot be written ({error.strerror or error}); give a path in a folder that you may write to"
    )
