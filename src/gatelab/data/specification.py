"""What a registered problem is, in plain values, for lists that need neither torch nor scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.display import one_line

if TYPE_CHECKING:
    from gatelab.data.tables import Table


@dataclass(frozen=True)
class ProblemSpec:
    """A registered problem.

    Attributes:
        name: what it is called, in small letters.
        expression: its formula, as `parse` reads it; empty for measured data.
        description: what it is, in a line.
        interval: where every input lies; None where inputs differ.
        inputs: how many there are.
        kind: "formula", "friedman" (drawn by scikit-learn) or "data" (measured: a `Dataset` of the same name is beside
            it). Friedman's and measured data are standardised unless asked otherwise.

    >>> ProblemSpec("wave", "sin(4*x)", "a wave").inputs, ProblemSpec("wave", "sin(4*x)", "a wave").standardise
    (1, False)
    """

    name: str
    expression: str
    description: str
    interval: tuple[float, float] | None = (-1.0, 1.0)
    inputs: int = 1
    kind: str = "formula"

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.description}")

    @property
    def standardise(self) -> bool:
        """Whether inputs and targets are standardised unless asked otherwise."""
        return self.kind != "formula"


@dataclass(frozen=True)
class Dataset:
    """Measured data: their shape, the files that may hold them, and where the original lives.

    Attributes:
        name: that of the problem.
        rows: how many rows there are.
        columns: the names of the inputs.
        files: the names of the files that may hold them, the original first.
        url: where the original lives.
        sha256: its checksum.
        read: makes a table of one of the files.
    """

    name: str
    rows: int
    columns: tuple[str, ...]
    files: tuple[str, ...]
    url: str
    sha256: str
    read: Callable[[Path], Table]
