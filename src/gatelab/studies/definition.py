"""The values that studies take and return: requests, outcomes, findings, and the places of a paper."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import Compact, Listener
from gatelab.plotting.facets import Facets, Table, Tables
from gatelab.studies.claims import Claim


@dataclass(frozen=True)
class Request(Compact):
    """How to run a study.

    Attributes:
        quick: Whether to take few widths and points.
        jobs: The number of processes that fit at once; by default one per core.
        progress: Called after each fit with the number of finished fits and the total.
        sweep: Further options of `gatelab.scaling`: store, backend, address, retry_failed, max_hours. The hours are
            for the whole study and start at `began`.
        began: The time of the request, by the monotonic clock.
    """

    quick: bool = False
    jobs: int | None = None
    progress: Listener | None = None
    sweep: Mapping[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def sweep_now(self) -> dict[str, Any]:
        """`sweep` with the remaining hours: a study may run several sweeps."""
        hours = self.sweep.get("max_hours")
        if hours is None:
            return dict(self.sweep)
        return {**self.sweep, "max_hours": max(0.0, hours - (time.monotonic() - self.began) / 3600)}


@dataclass(frozen=True, eq=False)
class Outcome(Compact):
    """The result of a study.

    Attributes:
        figure: The paper's figure, drawn from our measurements.
        tables: The numbers behind it, by name.
        claims: The claims, in the order in which they are shown.
        notes: Sentences on the measurements and their conditions.
    """

    figure: Figure
    tables: dict[str, pd.DataFrame]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Finding(Compact):
    """The main result of a study, for the first screen of the report.

    Attributes:
        topic: The topic, in a few words.
        sentence: The result in one sentence.
        sizes: The sizes and the data that it holds for.
        facets: Its small figure.
        tables: The tables that the figure is drawn from.
    """

    topic: str
    sentence: str
    sizes: str
    facets: Facets
    tables: Tables = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Item:
    """One place of a paper: a row of a table, a panel of a figure, a number or a statement of the text."""

    paper: str  # the folder of its studies, such as "scaling"
    heading: str  # the table, figure, equation or section
    row: str  # the row or panel of it, or the statement
    printed: str = ""  # the number as the paper prints it; empty for a statement or a picture without one
    why: str = ""  # text that our copy of the paper lost or that stands elsewhere, or why there is nothing to measure
    measurable: bool = True  # whether a claim can answer for it; definitions and listings have no result
    missing: str = ""  # why it could be measured and was not; empty if it was

    @property
    def place(self) -> str:
        """The place as claims name it, such as "figure 2, MLP against n"."""
        return f"{self.heading}, {self.row}"


def limits(values: Any) -> list[float]:
    """The smallest and the largest value."""
    return [values.min().item(), values.max().item()]


def only(table: Table, **wanted: object) -> Table:
    """The rows in which every column has the wanted value.

    >>> only(pd.DataFrame({"unit": ["mlp", "glu"], "slope": [-2.0, -3.0]}), unit="glu")["slope"].item()
    -3.0
    """
    for column, value in wanted.items():
        table = table[table[column] == value]
    return table
