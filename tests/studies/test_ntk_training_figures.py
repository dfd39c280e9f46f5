"""Figures 5 and 6: they run quickly, write what they promise, and their verdicts follow their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from quick_runs import Quick

from gatelab.studies import Request
from gatelab.studies.ntk.crossing import NEW_PAIRS, ClosedFormCheck, closed_form_claims
from gatelab.studies.ntk.fig5 import TARGETS, path, two_samples
from gatelab.studies.ntk.fig6 import data_sets
from gatelab.studies.ntk.gaussian import PAIRS

PANELS = {"fig5": 6, "fig6": 6}


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
    assert [c.verdict for c in quick("ntk/fig5").outcome.comparison] == ["reproduced"] * 3


@pytest.mark.slow
def test_figure_6_compares_measured_with_predicted_crossings(quick: Quick) -> None:
    table = quick("ntk/fig6").outcome.tables["crossings"]
    assert set(zip(table["first"], table["second"], strict=True)) == {*PAIRS, *NEW_PAIRS}
    assert (table["seeds"] >= 5).all()
    relu = table[(table["first"] == "mlp") & (table["second"] == "glu")]
    np.testing.assert_allclose(relu["measured"] / relu["predicted"], relu["measured_over_predicted"])
    # Given the initial outputs the closed form says where networks of width 256 cross, to 15 %.
    assert (np.abs(relu["measured_over_given"] - 1) < 0.15).all()


def test_without_mnist_the_study_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    data, notes = data_sets(Request())
    assert [d.name for d in data] == ["Gaussian"] and "MNIST was not at hand" in notes[0]


def test_a_closed_form_that_fails_is_not_reproduced() -> None:
    measured = np.array([10.0, 5.0])
    good = dict.fromkeys(("paper", "exact", "finite", "given", "own"), measured * 1.001)
    noise = np.array([0.5, 0.3])
    checks = [ClosedFormCheck("mlp", 9, 3, 50, 6, measured, p, noise) for p in (good, good | {"paper": measured * 1.2})]
    assert [c.verdict for c in closed_form_claims(checks)] == ["reproduced", "undecided"]
