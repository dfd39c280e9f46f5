"""Measured data as tables, from the file that `archives` finds or downloads."""

from __future__ import annotations

import tarfile
import zlib

from gatelab.arrays import fingerprint
from gatelab.data.archives import located
from gatelab.data.specification import Dataset
from gatelab.data.tables import Table
from gatelab.errors import GatelabError


def load(data: Dataset) -> Table:
    """The data set, every row and column, in its own units."""
    path, url = located(data.archive, data.name), data.archive.url
    try:
        table = data.read(path)
    except GatelabError:
        raise
    except (tarfile.TarError, KeyError, ValueError, EOFError, OSError, zlib.error) as error:
        raise GatelabError(f"{path} cannot be read as {data.name} ({error}); copy it again from {url}") from error
    rows, inputs, targets = (*table.x.shape, table.y.shape[1])
    if (rows, inputs, targets) != (data.rows, len(data.columns), 1):
        raise GatelabError(
            f"{path} holds {rows} rows of {inputs} inputs and {targets} targets, {data.name} has {data.rows} of"
            f" {len(data.columns)} and 1; copy it again from {url}, or fit your own file with Problem.from_file"
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
    parts = [part for values in (table.x, table.y) for part in (repr(values.shape), values.astype("<f8"))]
    return fingerprint(parts, 12)
