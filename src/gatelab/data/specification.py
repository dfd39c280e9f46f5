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
            it).

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
class Archive:
    """An original file: the folder it is kept in, its name, where it lives, and what it must be.

    Where it is the `member` of a zip, the zip lives at the address and the hash is that of the member: unpacked it is
    kept, and wherever it is found packed its content is what is checked. `others` are names that it may have in a
    folder of the user.
    """

    folder: str
    file: str
    url: str
    sha256: str
    member: str = ""
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.file, *self.others


@dataclass(frozen=True)
class Dataset:
    """Measured data: the problem's name, the file, how many rows, the names of the inputs, and what reads a file."""

    name: str
    archive: Archive
    rows: int
    columns: tuple[str, ...]
    read: Callable[[Path], Table]
