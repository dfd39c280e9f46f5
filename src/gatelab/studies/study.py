"""What a study is: a figure of the paper with its numbers, measured again, and what the comparison says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import Told, counted, one_line
from gatelab.studies.finding import Findings, no_findings

Verdict = Literal["reproduced", "exceeded", "differs", "new"]


@dataclass(frozen=True)
class Claim:
    """One statement of the paper beside ours. `because` gives the reason in measured numbers.

    The verdict is "new" where the paper has nothing to compare with. `interval` says how far ours may be off, where
    that is measured.
    """

    what: str
    paper: str
    ours: str
    verdict: Verdict
    because: str
    interval: str = ""

    def __repr__(self) -> str:
        return one_line(self, f"{self.what}: {self.verdict}")


@dataclass(frozen=True)
class Request:
    """How to run: `quick` takes few widths and points; `progress(done, total)` is called after each fit.

    `sweep` holds what `gatelab.scaling` takes beside the study's own arguments: store, backend, address, retry_failed,
    max_hours. The hours are for the whole study, from when it was asked for.
    """

    quick: bool = False
    jobs: int | None = None
    progress: Told | None = None
    sweep: Mapping[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def __repr__(self) -> str:
        return one_line(self, f"quick {self.quick}, {self.jobs} jobs")

    def sweep_now(self) -> dict[str, Any]:
        """`sweep` with the hours that are left: a study may have several sweeps, its user has one patience."""
        hours = self.sweep.get("max_hours")
        if hours is None:
            return dict(self.sweep)
        return {**self.sweep, "max_hours": max(0.0, hours - (time.monotonic() - self.began) / 3600)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a study gives."""

    figure: Figure
    tables: dict[str, pd.DataFrame]
    comparison: tuple[Claim, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.comparison), 'claim')}, {counted(len(self.tables), 'table')}")


@dataclass(frozen=True)
class Study:
    """A figure of the paper that can be run. `paper` is one sentence: what the paper shows there.

    What is `long` takes minutes on two cores, or data that not everybody has: with all the others it comes from the
    committed records. `findings` makes sentences for the top of the report out of the study's own tables.
    """

    name: str
    title: str
    paper: str
    run: Callable[[Request], Outcome]
    long: bool = False
    findings: Findings = no_findings

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.title}")
