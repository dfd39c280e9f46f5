"""Whether a file can be written, asked before hours of computing; `gatelab.files` writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gatelab.cli import interrupts
from gatelab.errors import GatelabError
from gatelab.files import either


def check_file(path: Path | None, suffixes: Sequence[str]) -> None:
    """Refuse a file that could not be written in the end."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise GatelabError(f"{path} cannot be written; give a name that ends in {either(suffixes)}")
    if path.is_dir():
        raise GatelabError(f"{path} is a folder; give the name of a file")
    check_folder(path.parent)
    interrupts.watch(path)


def check_folder(path: Path) -> None:
    """Refuse a folder that does not exist and cannot be made, or that may not be written to."""
    nearest = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not nearest.is_dir():
        raise GatelabError(f"{path} cannot be written, since {nearest} is not a folder; give another path")
    if not os.access(nearest, os.W_OK):
        raise GatelabError(f"{path} cannot be written, since {nearest} is read-only for you; give another path")
