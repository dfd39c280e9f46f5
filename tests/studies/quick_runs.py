"""The outcome of the quick run of a study, shared by all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from gatelab.studies import Outcome, Study
from gatelab.studies.reproduction import write_outcome

# Longer quick runs, whose tests are left to make test-all.
LONGER = ("scaling/fig2", "scaling/fig6", "scaling/fig7", "scaling/fig8", "scaling/table1")
LONGER += ("scaling/fig4", "scaling/fig5")
LONGER += ("ntk/fig1", "ntk/fig2", "ntk/fig6", "ntk/fig7", "ntk/orders", "ntk/thm31", "ntk/steps")
LONGER += ("linearize/learned2d", "linearize/learned16", "linearize/transformer")
LONGER += ("linearize/encrypted",)


@dataclass(frozen=True, eq=False)
class QuickRun:
    """The outcome of a quick study, the progress that it reported, and the files that `reproduce` writes."""

    study: Study
    outcome: Outcome
    progress: tuple[tuple[int, int], ...]
    out: Path

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Written when they are asked for."""
        folder = self.out / Path(self.study.name).parent
        folder.mkdir()
        return tuple(folder / name for name in write_outcome(self.study, self.outcome, folder, quick=True, seconds=0.0))


Quick = Callable[[str], QuickRun]


def each_study(names: Iterable[str]) -> pytest.MarkDecorator:
    """A test for each study, those with longer quick runs marked slow."""
    parameters: list[Any] = [pytest.param(n, marks=pytest.mark.slow) if n in LONGER else n for n in names]
    return pytest.mark.parametrize("name", parameters)
