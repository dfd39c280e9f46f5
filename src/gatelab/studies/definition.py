"""What goes through a study: how it is run, what it gives, what it says to a reader in a hurry, places of a paper."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import Compact, Listener
from gatelab.plotting.facets import Facets, Tables
from gatelab.studies.claims import Claim


@dataclass(frozen=True)
class Request(Compact):
    """How to run a study.

    Attributes:
        quick: Whether to take few widths and points.
        jobs: How many processes fit at once; by default as many as there are cores.
        progress: Called after each fit with how many are finished and how many there are.
        sweep: What `gatelab.scaling` takes beside the study's own arguments: store, backend, address, retry_failed,
            max_hours. The hours are for the whole study, from when it was asked for.
        began: When it was asked for, by a clock that only goes forward.
    """

    quick: bool = False
    jobs: int | None = None
    progress: Listener | None = None
    sweep: Mapping[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def sweep_now(self) -> dict[str, Any]:
        """`sweep` with the hours that are left: a study may have several sweeps, its user has one patience."""
        hours = self.sweep.get("max_hours")
        if hours is None:
            return dict(self.sweep)
        return {**self.sweep, "max_hours": max(0.0, hours - (time.monotonic() - self.began) / 3600)}


@dataclass(frozen=True, eq=False)
class Outcome(Compact):
    """What a study gives.

    Attributes:
        figure: The paper's figure, drawn from what we measured.
        tables: The numbers behind it, by name.
        claims: The claims, in the order in which they are shown.
        notes: Sentences on what was measured and how.
    """

    figure: Figure
    tables: dict[str, pd.DataFrame]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Finding(Compact):
    """What a study says to a reader in a hurry.

    Attributes:
        topic: What it is about, in a few words.
        sentence: What was measured; what the numbers do not decide is called undecided.
        sizes: The sizes and the data that it is true of.
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
    """What a paper shows at a place: a row of a table, a panel of a figure, a number or a statement of the text.

    Attributes:
        paper: The folder of the paper's studies, such as "scaling".
        heading: The table, figure, equation or section.
        row: The row or panel of it, or what is said there.
        printed: The number as the paper prints it; empty where there is a statement or a picture without one.
        why: What is lost in our copy of the paper or stands elsewhere, or why there is nothing to measure.
        measurable: Whether a claim can answer for it; definitions and listings have no result of their own.
        missing: Why it could be measured and was not; empty where it was.
    """

    paper: str
    heading: str
    row: str
    printed: str = ""
    why: str = ""
    measurable: bool = True
    missing: str = ""

    @property
    def place(self) -> str:
        """The place as claims name it.

        >>> Item("scaling", "figure 2", "MLP against n", "-2.13").place
        'figure 2, MLP against n'
        """
        return f"{self.heading}, {self.row}"


def only(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows in which every column has the wanted value; that there are none is an error.

    >>> only(pd.DataFrame({"unit": ["mlp", "glu"], "slope": [-2.0, -3.0]}), unit="glu")["slope"].item()
    -3.0
    """
    rows = table
    for column, value in wanted.items():
        rows = rows.loc[rows[column] == value]
    if rows.empty:
        raise KeyError(", ".join(f"{column} {value}" for column, value in wanted.items()))
    return rows


def ticker(request: Request, total: int) -> Callable[..., None]:
    """Count what is finished and report it to whoever asked for the study.

    >>> tick = ticker(Request(progress=lambda done, total: print(f"{done} of {total}")), 2)
    >>> tick()
    1 of 2
    """
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1
        if request.progress:
            request.progress(count, total)

    return tick
