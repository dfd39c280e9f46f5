"""Paths, and files that are written completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike
from os.path import realpath
from pathlib import Path
from uuid import uuid4

from gatelab.errors import GatelabError

PICTURES = (".png", ".svg", ".pdf")  # the suffixes of figures


def either(names: Sequence[str]) -> str:
    """Names as a choice.

    >>> either(PICTURES)
    '.png, .svg or .pdf'
    """
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def as_path(path: object, remedy: str) -> Path:
    """The path that a user gave."""
    if isinstance(path, str | PathLike):
        return Path(path)
    raise GatelabError(f"{path!r} is not a path; {remedy}")


def write_whole(path: str | Path, content: bytes | str | Callable[[Path], None]) -> Path:
    """Write bytes or text, or let a function write to the path that it is given; the folder is created if needed.

    The file gets its name when it is complete: a reader sees the old content or all of the new.
    """
    target = as_path(path, "give a path to write to")
    # The target of a link is written, and the link stays; a device would be replaced by a file.
    place = Path(realpath(target))
    if place.exists() and not place.is_file():
        raise GatelabError(f"{target} is a folder or a device; give the path of a file to write")
    # In the same folder, since a move between file systems is a copy, which is not atomic.
    part = place.with_name(f".{place.name}.{uuid4().hex}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(part)
        else:
            part.write_bytes(content if isinstance(content, bytes) else content.encode())
        part.replace(place)
    except OSError as error:
        raise GatelabError(
            f"{target} cannot be written ({error.strerror or error}); give a path in a folder that you may write to"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target
