"""Records as one table, and the same runs of two sets of records side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatelab.sweep.run import Record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RecordPair:
    """Two records of the same run, from two stores or of two units."""

    first: Record
    second: Record

    def plain(self) -> dict[str, Any]:
        """The pair for JSON: keys, arguments, statuses, metrics, and the names of those that differ."""
        pair = (self.first, self.second)
        return {
            "key": [record.key for record in pair],
            "arguments": self.first.arguments,
            "status": [record.status for record in pair],
            "differing": self.differing(),
            "metrics": [dict(record.metrics) for record in pair],
        }

    def differing(self) -> list[str]:
        """The metrics with different values, or `outcome` where one failed and the other did not."""
        a, b = self.first, self.second
        if a.status != b.status:
            return ["outcome"]
        names = []
        for name in dict.fromkeys((*a.metrics, *b.metrics)):
            x, y = a.metrics.get(name), b.metrics.get(name)
            both_nan = x != x and y != y
            if x != y and not both_nan:
                names.append(name)
        return names


@dataclass(frozen=True)
class RecordComparison:
    """The runs that two sets of records share, and the records that only one of them has."""

    pairs: tuple[RecordPair, ...]
    only_first: tuple[Record, ...]
    only_second: tuple[Record, ...]


def compare_records(
    first: Iterable[Record], second: Iterable[Record], *, ignoring: str | None = None
) -> RecordComparison:
    """Find the records of the same runs in two sets, in the order of the first set.

    Args:
        first: Records, each of another run.
        second: The records that are set beside them.
        ignoring: An argument by which the runs may differ, such as "unit"; None for runs that are equal in all.

    Returns:
        The pairs, and what is left on either side.

    >>> from gatelab.sweep import Run
    >>> glu = Record(Run("lab:fit", {"unit": "glu", "width": 8}), "done", {"rmse": 0.1})
    >>> mlp = Record(Run("lab:fit", {"unit": "mlp", "width": 8}), "done", {"rmse": 0.2})
    >>> [pair.differing() for pair in compare_records([glu], [mlp], ignoring="unit").pairs]
    [['rmse']]
    >>> len(compare_records([glu], [mlp]).pairs)
    0
    """

    def name(record: Record) -> str:
        if ignoring is None:
            return record.key
        arguments = {key: value for key, value in record.arguments.items() if key != ignoring}
        return json.dumps([record.task, arguments], sort_keys=True)

    left, right = ({name(record): record for record in records} for records in (first, second))
    return RecordComparison(
        tuple(RecordPair(left[key], right[key]) for key in left if key in right),
        tuple(record for key, record in left.items() if key not in right),
        tuple(record for key, record in right.items() if key not in left),
    )


def records_table(records: Iterable[Record]) -> pd.DataFrame:
    """Make a table with a row a record and the columns of `Record.row`.

    Columns keep their type where some records lack them; those of several types become text.

    Args:
        records: The records.

    Returns:
        The table; without records it has the columns key, task and status.
    """
    import pandas as pd

    rows = [record.row() for record in records]
    names = dict.fromkeys(name for row in rows for name in row) or ("key", "task", "status")
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    import pandas as pd

    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int} and all(v is None or v.bit_length() < 64 for v in values):
        return pd.array(values, dtype="Int64")
    if float in kinds and kinds <= {int, float}:
        return [math.nan if v is None else float(v) for v in values]
    return pd.array([None if v is None else str(v) for v in values], dtype="string")
