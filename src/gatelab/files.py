"""Files: whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike
from os.path import realpath
from pathlib import Path
from uuid import uuid4

from gatelab.errors import GatelabError

PICTURES = (".png", ".svg", ".pdf")  # how the names of figures end


def either(names: Sequence[str]) -> str:
    """Names as a choice.

    >>> either(PICTURES)
    '.png, .svg or .pdf'
    """
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def as_path(path: object, remedy: str) -> Path:
    """A path that a user gives; what is none is refused with the remedy."""
    if isinstance(path, str | PathLike):
        return Path(path)
    raise GatelabError(f"{path!r} is no path; {remedy}")


def write_whole(path: str | Path, content: bytes | str | Callable[[Path], None]) -> Path:
    """Write bytes, text, or whatever a function puts into the file it is given; make the folder if need be.

    The file appears under its name when it is complete: whoever reads it sees what was there before, or all of it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "new" / "a.txt", "all of it").read_text()
    'all of it'
    """
    target = as_path(path, "give a path to write to")
    # What a link points to is written, and the link stays; a device would be replaced by a file.
    place = Path(realpath(target))
    if place.exists() and not place.is_file():
        raise GatelabError(f"{target} is a folder or a device and no file; give the path of a file to write")
    # In the same folder, since a move between file systems is a copy and could be seen half done.
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
