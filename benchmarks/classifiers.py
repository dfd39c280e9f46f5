"""GatedClassifier and its peers on tables: `python -m benchmarks.classifiers`; its options are in `tables.py`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Table
from benchmarks.tables import RESULTS, command, present_and_recorded

RECORD = RESULTS / "classifiers.json"
QUICK = "wine"  # the set that `make bench` fits


def run() -> Iterator[Table]:
    """The present code and boosting on a quick set, which is not recorded; then the tables of the record."""
    yield from present_and_recorded("classes", RECORD, QUICK)


if __name__ == "__main__":
    command("classes", RECORD)
