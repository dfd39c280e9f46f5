"""Every study is run quickly once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from quick_runs import Quick, QuickRun

from gatelab.plotting import style
from gatelab.plotting.svg import MOST_BYTES, svg_text
from gatelab.studies import Outcome, Request, engine


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Outcome]:
    """The outcome of a study that reads its record in full."""
    return cache(lambda name: engine.study(name).run(Request(jobs=1)))


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    """The quick run of a study, without measured data: an attempt to read them fails.

    Its figure is drawn as SVG; pictures, which take longer than many studies, are written on demand.
    """
    runs: dict[str, QuickRun] = {}

    def run(name: str) -> QuickRun:
        if name not in runs:
            progress: list[tuple[int, int]] = []
            study = engine.study(name)
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("GATELAB_DATA", str(tmp_path_factory.mktemp("no-data")))
                outcome = study.run(Request(quick=True, jobs=1, progress=lambda d, t: progress.append((d, t))))
            torch.set_num_threads(threads)
            with style():
                assert len(svg_text(outcome.figure)) <= MOST_BYTES, f"the figure of {name} is too large for a page"
            runs[name] = QuickRun(study, outcome, tuple(progress), tmp_path_factory.mktemp("out"))
        return runs[name]

    return run
