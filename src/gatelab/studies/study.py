"""What a study is: a figure of the paper with its numbers, measured again, and what the comparison says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

Verdict = Literal["reproduced", "exceeded", "differs"]


@dataclass(frozen=True)
class Claim:
    """One statement of the paper beside ours. `because` gives the reason in measured numbers."""

    what: str
    paper: str
    ours: str
    verdict: Verdict
    because: str


@dataclass(frozen=True)
class Request:
    """How to run: `quick` takes few widths and points; `progress(done, total)` is called after each fit."""

    quick: bool = False
    jobs: int | None = None
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a study gives."""

    figure: Figure
    tables: dict[str, pd.DataFrame]
    comparison: tuple[Claim, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A figure of the paper that can be run. `paper` is one sentence: what the paper shows there."""

    name: str
    title: str
    paper: str
    run: Callable[[Request], Outcome]
