"""What the quick run of a study gave, for all tests that look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gatelab.studies import Outcome


@dataclass(frozen=True, eq=False)
class QuickRun:
    """What a quick study gave and wrote, and the progress that it reported."""

    outcome: Outcome
    files: tuple[Path, ...]
    progress: tuple[tuple[int, int], ...]


Quick = Callable[[str], QuickRun]
