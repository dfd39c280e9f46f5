"""Files of data: where they lie, how they are downloaded, and what is in them when they are packed.

`GATELAB_DATA` names a folder that holds them; with it nothing is downloaded, ever. Without it the cache is looked into
(`GATELAB_CACHE`, or `~/.cache/gatelab`), and what is not there is downloaded once by pooch, as the original file, and
kept only if its checksum is right.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from gatelab.data.specification import Archive
from gatelab.errors import GatelabError

TIMEOUT = 30.0
ZIP_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)  # the last where it is encrypted
Progress = Callable[[int, int], None]
Writer = Callable[[str, IO[bytes]], None]


def data_folder() -> Path | None:
    """`GATELAB_DATA`, a folder of data sets for use offline; None where it is not set."""
    folder = os.environ.get("GATELAB_DATA")
    if not folder:
        return None
    return Path(folder).expanduser()


def cache_folder() -> Path:
    """`GATELAB_CACHE`, or `~/.cache/gatelab`."""
    return Path(os.environ.get("GATELAB_CACHE") or Path.home() / ".cache" / "gatelab")


def places(folder: str) -> list[Path]:
    """Where in `GATELAB_DATA` the files of a data set may lie; nowhere if it is not set."""
    base = data_folder()
    if base is None:
        return []
    return [base / folder, base]


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first of these names that is a file in one of these folders."""
    names = list(names)
    return next((path for base in folders for name in names if (path := base / name).is_file()), None)


def missing(what: str, looked_for: Iterable[object], url: str) -> GatelabError:
    """The error for a folder of the user that lacks a file."""
    return GatelabError(
        f"{what} is not in GATELAB_DATA: there is none of {', '.join(map(str, looked_for))}; put it there ({url}), or"
        " unset GATELAB_DATA to download it"
    )


def located(archive: Archive, what: str, progress: Progress | None = None, write: Writer | None = None) -> Path:
    """The file of an archive: that of `GATELAB_DATA`, else that of the cache, which is downloaded if need be.

    `write` puts into an open file what belongs there, where that is made of a part of what is at the address.
    """
    folders = places(archive.folder)
    if not folders:
        return downloaded(archive, what, progress, write)
    path = first_file(folders, archive.names)
    if path is None:
        raise missing(what, (folder / name for folder in folders for name in archive.names), archive.url)
    return path


def downloaded(archive: Archive, what: str, progress: Progress | None, write: Writer | None = None) -> Path:
    """The file in the cache, downloaded if it is not there or not what it should be."""
    import pooch  # with requests, which takes a while to import

    pooch.get_logger().setLevel("WARNING")

    def transfer(url: str, target: Any, _: Any) -> None:
        if write is not None:
            with Path(target).open("wb") as file:
                write(url, file)
            return
        bar: Any = progress and ProgressBar(progress)
        headers = {"Accept-Encoding": "identity"}  # a packed file is to come as it is
        pooch.HTTPDownloader(bar, 2**20, timeout=TIMEOUT, headers=headers)(url, target, None)
        if archive.member:
            Path(target).write_bytes(unzipped(Path(target), archive.member))

    try:
        folder, known_hash = cache_folder() / archive.folder, f"sha256:{archive.sha256}"
        way: Any = transfer
        return Path(pooch.retrieve(archive.url, known_hash, archive.file, folder, downloader=way))
    except (*ZIP_ERRORS, ValueError) as error:  # the last where the hash is another
        by_hand = archive.url.rpartition("/")[2] if archive.member else archive.file
        raise GatelabError(
            f"{what} cannot be downloaded from {archive.url} ({error}); try again, download it by hand as {by_hand}"
            " into a folder and set GATELAB_DATA to that folder, or give a file of your own"
        ) from error


class ProgressBar:
    """What pooch tells of a download, for a function of the bytes received and the bytes there are."""

    def __init__(self, report: Progress) -> None:
        self.report, self.total, self.received = report, 0, 0

    def update(self, size: int) -> None:
        self.received = min(self.received + size, self.total)
        if self.total:
            self.report(self.received, self.total)

    def reset(self) -> None:
        self.received = 0

    def close(self) -> None:
        pass


class RangeFile(io.RawIOBase):
    """A file on a server of which only the parts are transferred that are read."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.position = url, 0
        self.size = int(self.part(0, 0).headers["Content-Range"].rpartition("/")[2])

    def part(self, first: int, last: int) -> Any:
        """The server's answer with these bytes of the file."""
        import requests

        answer = requests.get(self.url, headers={"Range": f"bytes={first}-{last}"}, timeout=TIMEOUT)
        answer.raise_for_status()
        if "Content-Range" not in answer.headers:
            raise OSError("the server does not give parts of files")
        return answer

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer) -> int:  # type: ignore[override]
        end = min(self.position + len(buffer), self.size)
        if end <= self.position:
            return 0
        part = self.part(self.position, end - 1).content
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)


def unzipped(path: Path, member: str = "") -> bytes:
    """The member of a zip; the only file in it where it has no such member."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if member in names:
            return archive.read(member)
        if len(names) != 1:
            expected = f"one or {member}" if member else "one"
            raise zipfile.BadZipFile(f"there are {len(names)} files in it instead of {expected}")
        return archive.read(names[0])


def content(path: Path, url: str, member: str = "") -> bytes:
    """What is in a file, unpacked if it is gzipped, or in a zip as that member or as the only file."""
    try:
        if path.suffix == ".zip":
            return unzipped(path, member)
        raw = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(raw)
        return raw
    except ZIP_ERRORS as error:
        raise spoilt(path, error, url) from error


def checked_content(path: Path, archive: Archive) -> bytes:
    """What is in a file that a user has put somewhere, unpacked; refused if it is not what the archive must be."""
    raw = content(path, archive.url, archive.member)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != archive.sha256:
        raise GatelabError(
            f"{path} is not {archive.file}: it holds {len(raw)} bytes with sha256 {digest} instead of {archive.sha256};"
            f" copy it again from {archive.url}"
        )
    return raw


def spoilt(path: Path, why: object, url: str) -> GatelabError:
    """The error for a file that is not what it should be."""
    return GatelabError(f"{path} cannot be read ({why}); it is cut short or altered: copy it again from {url}")
