"""Files of data sets: their folders, their download by pooch, and their unpacking.

`GATELAB_DATA` is a folder of data sets; if it is set, no file is ever downloaded. Otherwise files are read from the
cache (`GATELAB_CACHE`, or `~/.cache/gatelab`), into which pooch downloads the original file once and checks its hash.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from gatelab.data.specification import Archive
from gatelab.errors import GatelabError

TIMEOUT = 30.0
ZIP_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)  # the last where it is encrypted
Progress = Callable[[int, int], None]
Reader = Callable[[str], bytes]


def data_folder() -> Path | None:
    folder = os.environ.get("GATELAB_DATA")
    return Path(folder).expanduser() if folder else None


def cache_folder() -> Path:
    return Path(os.environ.get("GATELAB_CACHE") or Path.home() / ".cache" / "gatelab")


def places(folder: str) -> list[Path]:
    """The folders of a data set in `GATELAB_DATA`; none if it is not set."""
    base = data_folder()
    return [base / folder, base] if base else []


def first_file(folders: Iterable[Path], names: Sequence[str]) -> Path | None:
    """The first of these files that exists in one of these folders."""
    return next((path for base in folders for name in names if (path := base / name).is_file()), None)


def import_pyarrow(path: object, instead: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise GatelabError(
            f"{path} needs pyarrow, which is not installed: pip install 'gatelab[parquet]', or give {instead}"
        ) from None
    return pa, pq


def missing(what: str, looked_for: Iterable[object], url: str) -> GatelabError:
    return GatelabError(
        f"{what} is not in GATELAB_DATA, which has none of {', '.join(map(str, looked_for))}; put it there ({url}), or"
        " unset GATELAB_DATA to download it"
    )


def locate(archive: Archive, what: str, progress: Progress | None = None, read: Reader | None = None) -> Path:
    """The file of an archive in `GATELAB_DATA` or in the cache, downloaded by `read` or as a whole if needed."""
    folders = places(archive.folder)
    if not folders:
        return download(archive, what, progress, read)
    path = first_file(folders, archive.names)
    if path is None:
        raise missing(what, (folder / name for folder in folders for name in archive.names), archive.url)
    return path


def download(archive: Archive, what: str, progress: Progress | None, read: Reader | None = None) -> Path:
    """The file in the cache, downloaded by `read` or as a whole if it is missing or damaged."""
    import pooch  # slow to import, with requests

    pooch.get_logger().setLevel("WARNING")

    def transfer(url: str, target: str, _: object) -> None:
        if read is not None:
            Path(target).write_bytes(read(url))
            return
        bar: Any = progress and ProgressBar(progress)
        headers = {"Accept-Encoding": "identity"}  # a compressed file stays compressed
        pooch.HTTPDownloader(bar, 2**20, timeout=TIMEOUT, headers=headers)(url, target, None)
        if archive.member:
            Path(target).write_bytes(unzip(Path(target), archive.member))

    folder, way = cache_folder() / archive.folder, cast(Any, transfer)
    try:
        return Path(pooch.retrieve(archive.url, f"sha256:{archive.sha256}", archive.file, folder, downloader=way))
    except (*ZIP_ERRORS, ValueError) as error:  # ValueError: another hash
        by_hand = archive.url.rpartition("/")[2] if archive.member else archive.file
        raise GatelabError(
            f"{what} cannot be downloaded from {archive.url} ({error}); try again, download it by hand as {by_hand}"
            " into a folder and set GATELAB_DATA to that folder, or give your own file"
        ) from error


class ProgressBar:
    """The interface of a progress bar that pooch expects, for a callback of received and total bytes."""

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
    """A file on a server; only the bytes that are read are transferred."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.position = url, 0
        self.size = int(self.part(0, 0).headers["Content-Range"].rpartition("/")[2])

    def part(self, first: int, last: int) -> Any:
        import requests

        answer = requests.get(self.url, headers={"Range": f"bytes={first}-{last}"}, timeout=TIMEOUT)
        answer.raise_for_status()
        if "Content-Range" not in answer.headers:
            raise OSError("the server does not support range requests")
        return answer

    def readable(self) -> bool:
        return True

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


def unzip(path: Path, member: str = "") -> bytes:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if member in names:
            return archive.read(member)
        if len(names) != 1:
            expected = f"one or {member}" if member else "one"
            raise zipfile.BadZipFile(f"it has {len(names)} files instead of {expected}")
        return archive.read(names[0])


def content(path: Path, url: str, member: str = "") -> bytes:
    """The content of a file, unpacked if it is a gzip or a zip."""
    try:
        if path.suffix == ".zip":
            return unzip(path, member)
        raw = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(raw)
        return raw
    except ZIP_ERRORS as error:
        raise damage_error(path, error, url) from error


def checked_content(path: Path, archive: Archive) -> bytes:
    """The content of a user's file, unpacked; refused if its hash is not that of the archive."""
    raw = content(path, archive.url, archive.member)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != archive.sha256:
        raise GatelabError(
            f"{path} is not {archive.file}: it holds {len(raw)} bytes with sha256 {digest} instead of {archive.sha256};"
            f" copy it again from {archive.url}"
        )
    return raw


def damage_error(path: Path, why: object, url: str) -> GatelabError:
    return GatelabError(f"{path} cannot be read ({why}); it is cut short or altered: copy it again from {url}")
