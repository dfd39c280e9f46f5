"""Specifications of registered problems, without torch and scikit-learn, so that lists are fast."""

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
        name: its name, in lower case.
        expression: its formula for `parse`; empty for measured data.
        description: a one-line description.
        interval: the interval of every input; None if they differ.
        inputs: the number of inputs.
        kind: "formula", "friedman" (drawn by scikit-learn) or "data" (measured, with a `Dataset` of the same name).
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
    def standardize(self) -> bool:
        """Whether inputs and targets are standardized by default."""
        return self.kind != "formula"


@dataclass(frozen=True)
class Archive:
    """An original file: its folder, its name, its address and its hash.

    If it is the `member` of a zip, the address is that of the zip and the hash that of the member. `others` are further
    names of the file in a user's folder.
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
    """Measured data: the problem's name, its file, the number of rows, the names of the inputs, and its reader."""

    name: str
    archive: Archive
    rows: int
    columns: tuple[str, ...]
    read: Callable[[Path], Table]
