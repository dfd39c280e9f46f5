"""Every study run once, quickly, for all tests that look at what it gave."""

from __future__ import annotations

import pytest
import torch
from quick_runs import Quick, QuickRun

from gatelab.studies import reproduce


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    """The quick run of a study, without measured data: an attempt to read them fails."""
    runs: dict[str, QuickRun] = {}

    def run(name: str) -> QuickRun:
        if name not in runs:
            progress: list[tuple[int, int]] = []
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("GATELAB_DATA", str(tmp_path_factory.mktemp("no-data")))
                out = tmp_path_factory.mktemp("out")
                done = reproduce(name, out, quick=True, jobs=1, progress=lambda d, t: progress.append((d, t)))
            torch.set_num_threads(threads)
            runs[name] = QuickRun(done.outcome, tuple(done.files), tuple(progress))
        return runs[name]

    return run
