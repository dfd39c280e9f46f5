"""The logged runs of the paper's code: medians of its seeds, and slopes by range of widths."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.studies.definition import only
from gatelab.studies.scaling.error_curves import CODE, OPTIMUM, code_claim, code_curves, code_medians, range_slopes


def test_the_papers_code_has_the_papers_slopes_for_five_to_fourteen_neurons() -> None:
    """Slopes of the medians by plain arithmetic, the table that compares both trainings, and its verdict."""
    assert [p.seed for p in code_curves().points if (p.unit, p.width) == ("mlp", 2)] == [0, 3, 4]  # errors left out
    slopes = range_slopes(code_curves(), ("mlp", "glu", "gqu"))
    expected = {"mlp": (-2.14, -2.02, -2.01, -1.72), "glu": (-3.05, -2.86, -2.88, -2.40), "gqu": (-3.40, -2.96, -2.31)}
    for name, values in expected.items():
        rows = only(slopes, unit=name, against="n", training=CODE).set_index("widths")
        assert tuple(rows["slope"].round(2)) == values
        errors = {w: e for w, e in code_medians()[name].items() if 5 <= w <= 14}
        line = np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1)[0]
        assert rows.loc["5 to 14", "slope"] == pytest.approx(line)
        assert list(rows["within_5_percent"]) == [True] + [False] * (len(values) - 1)
        assert list(only(slopes, unit=name, against="n", training=OPTIMUM)["widths"]) == list(rows.index)
    claim = code_claim(only(slopes, unit="gqu", against="n"), "gqu", "n", "figure 6")
    assert (claim.paper, round(claim.value or 0, 2), claim.verdict) == (-3.55, -3.40, "outside")
    assert claim.support["the paper's code, n = 1 to 14"] == pytest.approx(-2.31, abs=0.005)
    assert claim.outside == "the paper's slope is over n = 1 to 50, that of its code here over 5 to 14"
