"""Files of images and text: where they lie, how they are downloaded, and how their formats are read.

`GATELAB_DATA` names a folder that holds them; with it nothing is downloaded, ever. Without it the cache is looked into,
and what is not there is downloaded once, as the original file, and kept only if its checksum is right.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Bytes
from gatelab.errors import GatelabError
from gatelab.files import write_whole


def data_folder() -> Path | None:
    """`GATELAB_DATA`, a folder of data sets for use offline; None where it is not set."""
    folder = os.environ.get("GATELAB_DATA")
    if not folder:
        return None
    return Path(folder).expanduser()


def cache_folder() -> Path:
    """`GATELAB_CACHE`, or `~/.cache/gatelab`."""
    return Path(os.environ.get("GATELAB_CACHE") or Path.home() / ".cache" / "gatelab")


TIMEOUT = 30.0
Rows = tuple[Bytes, NDArray[np.int64]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Archive:
    """An original file: the folder it is kept in, its name, where it lives, and what it must be.

    Where it is the `member` of a zip, the zip lives at the address and has `zip_size` bytes, and the hash and size are
    those of the member: unpacked it is kept, and wherever it is found packed its content is what is checked.
    """

    folder: str
    file: str
    url: str
    sha256: str
    size: int
    member: str = ""
    zip_size: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the file may have in a folder of the user."""
        if not self.member:
            return (self.file,)
        own_zip = self.url.rpartition("/")[2]
        names = self.file, f"{self.file}.gz", f"{self.file}.zip", self.member, own_zip
        return tuple(dict.fromkeys(names))  # a zip of one file is often called like the file, and so is its member


def places(folder: str) -> list[Path] | None:
    """Where in `GATELAB_DATA` the files of a data set may lie; None where it is not set."""
    base = data_folder()
    if base is None:
        return None
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


def fetched(archive: Archive, progress: Progress | None = None) -> Path:
    """The file in the cache, downloaded if it is not there or not what it should be."""
    cached = cache_folder() / archive.folder / archive.file
    if cached.is_file():
        with cached.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == archive.sha256:
                return cached
    return write_whole(cached, partial(download, archive, progress=progress))


def download(archive: Archive, target: Path, progress: Progress | None) -> None:
    """Write the original file to a path; an error says what is wrong with what came."""
    digest, received = hashlib.sha256(), 0
    way_out = f"download it by hand as {archive.names[-1]} into a folder and set GATELAB_DATA to that folder"

    def unreachable(error: Exception) -> GatelabError:
        return GatelabError(f"{archive.file} cannot be downloaded from {archive.url} ({error}); {way_out}")

    try:
        answer = urlopen(archive.url, timeout=TIMEOUT)
    except (OSError, HTTPException) as error:
        raise unreachable(error) from error
    with answer, target.open("wb") as out:
        expected = archive.zip_size or archive.size
        while received <= expected:
            try:
                block = answer.read(2**20)
            except (OSError, HTTPException) as error:
                raise unreachable(error) from error
            if not block:
                break
            out.write(block)
            digest.update(block)
            received += len(block)
            if progress:
                progress(received, expected)
    if archive.member:
        try:
            raw = unzipped(target, archive.member)
        except ZIP_ERRORS as error:
            raise GatelabError(
                f"the download of {archive.file} from {archive.url} is no whole zip: {received} bytes ({error}); try"
                f" again, or {way_out}"
            ) from error
        digest, received = hashlib.sha256(raw), len(raw)
        target.write_bytes(raw)
    if digest.hexdigest() != archive.sha256:
        raise GatelabError(
            f"the download of {archive.file} from {archive.url} is cut short or altered: {received} bytes with sha256"
            f" {digest.hexdigest()} instead of {archive.size} with {archive.sha256}; try again, or {way_out}"
        )


class RangeFile(io.RawIOBase):
    """A file on a server of which only the parts are transferred that are read."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.position = url, 0
        _, span = self.part("bytes=0-0")
        self.size = int(span.rpartition("/")[2])

    def part(self, part: str) -> tuple[bytes, str]:
        """A part of the file, and where the server says that it lies."""
        with urlopen(Request(self.url, headers={"Range": part}), timeout=TIMEOUT) as answer:
            span = answer.headers.get("Content-Range")
            if span is None:
                raise OSError("the server does not give parts of files")
            return answer.read(), span

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
        part, _ = self.part(f"bytes={self.position}-{end - 1}")
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)


ZIP_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)  # the last where it is encrypted


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
            f"{path} is not {archive.file}: it holds {len(raw)} bytes with sha256 {digest} instead of {archive.size}"
            f" with {archive.sha256}; copy it again from {archive.url}"
        )
    return raw


def spoilt(path: Path, why: object, url: str) -> GatelabError:
    """The error for a file that is not what it should be."""
    return GatelabError(f"{path} cannot be read ({why}); it is cut short or altered: copy it again from {url}")


def read_idx(path: Path, dimensions: int, url: str) -> Bytes:
    """An idx file of bytes: two zeros, the type 8, the number of dimensions, each as four bytes, then the values."""
    raw = content(path, url)
    head = 4 + 4 * dimensions
    if len(raw) < head or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise spoilt(path, f"it is no idx file of bytes in {dimensions} dimensions", url)
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != int(np.prod(shape, dtype=np.int64)):
        raise spoilt(path, f"its head says {shape}, and {len(raw) - head} bytes follow", url)
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


RECORD = 1 + 3 * 32 * 32


def cifar_rows(raw: bytes, path: Path, url: str, rows: int | None) -> Rows:
    """CIFAR-10's binary layout: a byte for the label, then the red, green and blue planes of 32 x 32."""
    if not raw or len(raw) % RECORD or (rows and len(raw) != rows * RECORD):
        expected = f"{rows or 'whole'} records"
        raise spoilt(path, f"{len(raw)} bytes are not {expected} of {RECORD}", url)
    records = np.frombuffer(raw, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise spoilt(path, f"a label is {labels.max()}, they are 0 to 9", url)
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def tar_members(path: Path, names: Iterable[str], url: str) -> dict[str, bytes]:
    """Files of a tar.gz by their last names."""
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            members = {member.name.rpartition("/")[2]: member for member in archive.getmembers() if member.isfile()}
            return {name: file.read() for name in names if (file := archive.extractfile(members[name])) is not None}
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError) as error:
        raise spoilt(path, error, url) from error


TRAIN_IMAGE = re.compile(r"(?:.*/)?train/([^/]+)/images/[^/]+\.JPEG", re.IGNORECASE)
VAL_IMAGE = re.compile(r"(?:.*/)?val/images/([^/]+\.JPEG)", re.IGNORECASE)


def read_tiny_imagenet(path: Path, url: str) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Training and validation images of Tiny ImageNet, from its folder or its zip, and the names of its classes."""
    try:
        if path.is_dir():
            tree = {f.relative_to(path).as_posix(): f.read_bytes for f in path.rglob("*") if f.is_file()}
            return read_image_tree(tree, path, url)
        archive = zipfile.ZipFile(path)
        return read_image_tree({name: partial(archive.read, name) for name in archive.namelist()}, path, url)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise spoilt(path, error, url) from error


def read_image_tree(
    tree: Mapping[str, Callable[[], bytes]], path: Path, url: str
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """The same from the files by their names below the root of the data set, each with the function that reads it."""
    train = {name: match[1] for name in sorted(tree) if (match := TRAIN_IMAGE.fullmatch(name))}
    val = {match[1]: name for name in sorted(tree) if (match := VAL_IMAGE.fullmatch(name))}
    notes = next((name for name in tree if name.endswith("val/val_annotations.txt")), None)
    if not train or not val or notes is None:
        raise spoilt(
            path, "there is no train/<class>/images/*.JPEG, or no val/images/*.JPEG and val/val_annotations.txt", url
        )
    classes = tuple(sorted(set(train.values())))
    number = {name: i for i, name in enumerate(classes)}
    labels = {}
    for line in tree[notes]().decode().splitlines():
        file, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in number:
            raise spoilt(path, f"val_annotations.txt has the line {line!r}, whose class is not in train", url)
        labels[file] = number[wnid]
    unlabelled = sorted(set(val) - set(labels))
    if unlabelled:
        raise spoilt(path, f"val_annotations.txt does not name {unlabelled[0]}", url)
    images = decoded_images([*train, *val.values()], tree, path, url)
    y_train = np.array([number[wnid] for wnid in train.values()])
    return (images[: len(train)], y_train), (images[len(train) :], np.array([labels[f] for f in val])), classes


def decoded_images(names: Sequence[str], tree: Mapping[str, Callable[[], bytes]], path: Path, url: str) -> Bytes:
    """The images of these names as (N, 3, H, W); Pillow decodes beside Python, so threads do help."""
    from PIL import Image  # with matplotlib; 30 ms that only this data set needs

    from gatelab.interrupts import on_threads  # with torch, which lists of problems do without

    def decoded(name: str) -> Bytes:
        try:
            with Image.open(io.BytesIO(tree[name]())) as image:
                return np.asarray(image.convert("RGB")).transpose(2, 0, 1)  # some of them are grey
        except (OSError, SyntaxError, zlib.error, zipfile.BadZipFile) as error:
            raise spoilt(path / name, error, url) from error

    first = decoded(names[0])
    images = np.empty((len(names), *first.shape), np.uint8)

    def place_many(start: int) -> None:
        for i in range(start, min(start + 64, len(names))):
            image = decoded(names[i])
            if image.shape != first.shape:
                raise spoilt(path / names[i], f"it has the shape {image.shape}, others {first.shape}", url)
            images[i] = image

    for _ in on_threads(place_many, range(0, len(names), 64), threads=os.cpu_count() or 1):
        pass
    return images
