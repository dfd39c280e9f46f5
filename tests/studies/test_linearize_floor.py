"""The studies of the floor and of learned maps, in quick form."""

from __future__ import annotations

import numpy as np

from gatelab.studies.registry import study
from gatelab.studies.study import Request


def test_floor_study_puts_no_method_below_the_floor():
    outcome = study("linearize/floor").run(Request(quick=True))
    table = outcome.tables["errors"]
    assert {"optimal", "hermite", "taylor", "maclaurin", "tensorsketch", "fourier"} <= set(table["method"])
    # 400 rows and inputs: chance moves the error of the best maps by up to 7 % (long rows weigh much).
    assert (table["rmse"] > 0.93 * table["floor"]).all()
    best = table[table["method"] == "optimal"]
    assert np.allclose(best["rmse"], best["floor"], rtol=0.07)
    agreeing = [c for c in outcome.comparison if c.what.startswith("the floor at")]
    assert len(agreeing) == 4 and all(": agrees" in c.because for c in agreeing)
    assert len(outcome.figure.axes) == 3


def test_learned2d_study():
    outcome = study("linearize/learned2d").run(Request(quick=True))
    paper, ours = outcome.tables["paper-recipe"], outcome.tables["ours"]
    assert paper["mean"].is_monotonic_decreasing and paper["mean"].min() > 0.2
    assert ours["max"].max() < 0.03
    assert any("0.0822" in c.paper for c in outcome.comparison)


def test_learned16_study():
    seen = []
    outcome = study("linearize/learned16").run(
        Request(quick=True, progress=lambda done, total: seen.append((done, total)))
    )
    table = outcome.tables["errors"]
    fresh = table[table["recipe"] == "fresh"]
    assert np.allclose(fresh["rmse"], fresh["floor"], rtol=0.06)
    assert seen[-1] == (4, 4)
    assert any(c.verdict == "exceeded" for c in outcome.comparison)
