"""Figure 5 runs quickly, writes what it promises, and its verdicts follow its numbers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick

from gatelab.studies.ntk.fig5 import TARGETS, path, two_samples

PANELS = {"fig5": 6}


@pytest.mark.slow
@pytest.mark.parametrize("stem", PANELS)
def test_a_quick_study_writes_its_files(stem: str, quick: Quick) -> None:
    done = quick(f"ntk/{stem}")
    folder = done.files[0].parent
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in done.files)
    for key, table in done.outcome.tables.items():
        assert len(pd.read_csv(folder / f"{stem}-{key}.csv")) == len(table) > 0
    record = json.loads((folder / f"{stem}.json").read_text())
    assert not any("nan" in c[part].lower() for c in record["claims"] for part in ("because", "ours"))
    assert done.progress == tuple((i + 1, len(done.progress)) for i in range(len(done.progress)))
    figure = done.outcome.figure
    assert len(figure.axes) == PANELS[stem] and all(p.get_lines() for p in figure.axes)
    assert figure.get_suptitle().startswith(f"Figure {stem[3:]}:")


def test_figure_5_is_gradient_descent_on_two_samples(quick: Quick) -> None:
    x = two_samples()
    assert np.linalg.norm(x, axis=1) == pytest.approx([2**0.5] * 2)
    K = np.array([[2.0, 1.0], [1.0, 2.0]])
    outputs = path(K, 0.1, 5, np.zeros(2))
    f = np.zeros(2)
    for t in range(6):
        np.testing.assert_allclose(outputs[t], f, atol=1e-14)
        f = f - 0.1 * K @ (f - TARGETS)
    assert [c.verdict for c in quick("ntk/fig5").outcome.claims] == ["reproduced"] * 3
