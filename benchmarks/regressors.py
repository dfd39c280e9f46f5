"""GatedRegressor and its peers on tables: `python -m benchmarks.regressors`; its options are in `tables.py`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Table
from benchmarks.tables import RESULTS, command, present_and_recorded

RECORD = RESULTS / "regressors.json"
QUICK = "diabetes"  # the set that `make bench` fits


def run() -> Iterator[Table]:
    """The present code and boosting on a quick set, which is not recorded; then the tables of the record."""
    yield from present_and_recorded("regression", RECORD, QUICK)


if __name__ == "__main__":
    command("regression", RECORD)
