"""Measured data, from a folder, from the cache or from where they live.

`GATELAB_DATA` names a folder that holds them; with it nothing is downloaded, ever. Without it the cache is looked into
(`GATELAB_CACHE`, or `~/.cache/gatelab`), and what is not there is downloaded once, as the original file, and kept
only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from gatelab.arrays import fingerprint
from gatelab.data.archives import cache_folder, data_folder
from gatelab.data.specification import Dataset
from gatelab.data.tables import Table
from gatelab.errors import GatelabError
from gatelab.files import write_whole

TIMEOUT = 30.0
LIMIT = 2**26


def load(data: Dataset) -> Table:
    """The data set, every row and column, in its own units."""
    path = file_of(data)
    try:
        table = data.read(path)
    except (tarfile.TarError, KeyError, ValueError, EOFError, OSError, zlib.error) as error:
        if isinstance(error, GatelabError):
            raise
        raise GatelabError(f"{path} cannot be read as {data.name} ({error}); copy it again from {data.url}") from error
    rows, inputs, targets = (*table.x.shape, table.y.shape[1])
    if (rows, inputs, targets) != (data.rows, len(data.columns), 1):
        raise GatelabError(
            f"{path} holds {rows} rows of {inputs} inputs and {targets} targets, {data.name} has {data.rows} of"
            f" {len(data.columns)} and 1; copy it again from {data.url}, or fit your own file with Problem.from_file"
        )
    if table.columns and table.columns != data.columns:
        raise GatelabError(
            f"{path} has the columns {', '.join(table.columns)}, {data.name} has {', '.join(data.columns)}; give"
            " these, in this order"
        )
    return Table(table.x, table.y, data.columns)


def table_fingerprint(table: Table) -> str:
    """A short hash of the values, the same on every machine.

    >>> import numpy as np
    >>> table_fingerprint(Table(np.ones((2, 1)), np.ones((2, 1))))
    '134e5a6677e7'
    """
    return fingerprint(
        (part for values in (table.x, table.y) for part in (repr(values.shape), values.astype("<f8"))), 12
    )


def file_of(data: Dataset) -> Path:
    """The file that holds a data set, downloaded if need be and allowed."""
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
    if not (cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == data.sha256):
        write_whole(cached, download(data))
    return cached


def download(data: Dataset) -> bytes:
    """The original file of a data set from where it lives."""
    way_out = (
        f"download it by hand as {data.files[0]} into a folder and set GATELAB_DATA to that folder, or fit a file of"
        " your own with Problem.from_file"
    )
    try:
        with urlopen(data.url, timeout=TIMEOUT) as answer:
            content = answer.read(LIMIT)
    except (OSError, HTTPException) as error:
        raise GatelabError(f"{data.name} cannot be downloaded from {data.url} ({error}); {way_out}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != data.sha256:
        raise GatelabError(
            f"the download of {data.name} from {data.url} is cut short or altered: {len(content)} bytes with sha256"
            f" {digest} instead of {data.sha256}; try again, or {way_out}"
        )
    return content
