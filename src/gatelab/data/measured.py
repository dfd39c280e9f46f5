"""Measured data: airfoil self-noise and California housing, from a folder, from the cache or from where they live.

`GATELAB_DATA` names a folder that holds them; with it nothing is downloaded, ever. Without it the cache is looked into
(`GATELAB_CACHE`, or `~/.cache/gatelab`), and what is not there is downloaded once, as the original file, and kept
only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from gatelab.data.archives import cache_folder, data_folder
from gatelab.data.tables import Table, read_table
from gatelab.errors import GatelabError
from gatelab.files import write_whole

TIMEOUT = 30.0
LIMIT = 2**26


@dataclass(frozen=True)
class Dataset:
    """A data set: its shape, the files that may hold it, the first of them the original, and where that one lives."""

    name: str
    rows: int
    columns: tuple[str, ...]
    files: tuple[str, ...]
    url: str
    sha256: str
    read: Callable[[Path], Table]


def _california(path: Path) -> Table:
    """California housing in scikit-learn's columns, as such or out of the archive of StatLib's original."""
    if path.suffix.lower() != ".tgz":
        return read_table(path)
    with tarfile.open(path, mode="r:gz") as archive:
        file = archive.extractfile("CaliforniaHousing/cal_housing.data")
        raw = np.loadtxt(io.BytesIO(file.read() if file else b""), delimiter=",", ndmin=2)
    longitude, latitude, age, rooms, bedrooms, population, households, income, value = raw.T
    averages = rooms / households, bedrooms / households, population, population / households
    return Table(np.column_stack([income, age, *averages, latitude, longitude]), value[:, None] / 100_000.0)


AIRFOIL = Dataset(
    "airfoil",
    1503,
    ("frequency", "angle", "chord", "speed", "thickness"),
    ("airfoil_self_noise.dat",),
    "https://archive.ics.uci.edu/ml/machine-learning-databases/00291/airfoil_self_noise.dat",
    "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
    read_table,
)
CALIFORNIA = Dataset(
    "california",
    20640,
    ("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude", "Longitude"),
    ("cal_housing.tgz", "california_housing.csv.gz"),
    "https://ndownloader.figshare.com/files/5976036",
    "aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
    _california,
)
DATASETS = {data.name: data for data in (AIRFOIL, CALIFORNIA)}


def load(data: Dataset) -> Table:
    """The data set, every row and column, in its own units."""
    path = _found(data)
    try:
        table = data.read(path)
    except (tarfile.TarError, KeyError, ValueError, EOFError, OSError, zlib.error) as error:
        if isinstance(error, GatelabError):
            raise
        raise GatelabError(f"{path} cannot be read as {data.name} ({error}); copy it again from {data.url}") from error
    found = (*table.x.shape, table.y.shape[1])
    if found != (data.rows, len(data.columns), 1):
        raise GatelabError(
            f"{path} holds {found[0]} rows of {found[1]} inputs and {found[2]} targets, {data.name} has {data.rows} of"
            f" {len(data.columns)} and 1; copy it again from {data.url}, or fit your own file with Problem.from_file"
        )
    if table.columns and table.columns != data.columns:
        raise GatelabError(
            f"{path} has the columns {', '.join(table.columns)}, {data.name} has {', '.join(data.columns)}; give"
            " these, in this order"
        )
    return Table(table.x, table.y, data.columns)


def fingerprint(table: Table) -> str:
    """A short hash of the values, the same on every machine.

    >>> fingerprint(Table(np.ones((2, 1)), np.ones((2, 1))))
    '134e5a6677e7'
    """
    digest = hashlib.sha256()
    for values in (table.x, table.y):
        digest.update(repr(values.shape).encode() + np.ascontiguousarray(values, dtype="<f8").tobytes())
    return digest.hexdigest()[:12]


def _found(data: Dataset) -> Path:
    folder = data_folder()
    if folder is not None:
        places = [base / file for file in data.files for base in (folder / "tabular", folder)]
        for place in places:
            if place.is_file():
                return place
        raise GatelabError(
            f"{data.name} is not in GATELAB_DATA: there is none of {', '.join(map(str, places))}; put it there"
            f" ({data.url}), or unset GATELAB_DATA to download it"
        )
    cached = cache_folder() / "tabular" / data.files[0]
    if not (cached.is_file() and _sha256(cached.read_bytes()) == data.sha256):
        write_whole(cached, _downloaded(data))
    return cached


def _downloaded(data: Dataset) -> bytes:
    way_out = (
        f"download it by hand as {data.files[0]} into a folder and set GATELAB_DATA to that folder, or fit a file of"
        " your own with Problem.from_file"
    )
    try:
        with urlopen(data.url, timeout=TIMEOUT) as answer:
            content = answer.read(LIMIT)
    except (OSError, HTTPException) as error:
        raise GatelabError(f"{data.name} cannot be downloaded from {data.url} ({error}); {way_out}") from error
    if (found := _sha256(content)) != data.sha256:
        raise GatelabError(
            f"the download of {data.name} from {data.url} is cut short or altered: {len(content)} bytes with sha256"
            f" {found} instead of {data.sha256}; try again, or {way_out}"
        )
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
