"""The demonstration on few widths, and the figure of a study."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.scaling_laws import Point, Scaling
from gatelab.studies import demo
from gatelab.studies.demonstration import SMOOTH, UNITS, rates_table, slopes_table


@pytest.mark.slow
def test_the_demo_writes_figure_table_and_record(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    demonstration = demo(tmp_path / "out", widths=[14, 20, 28], jobs=1, progress=lambda d, t: progress.append((d, t)))
    assert [p.name for p in demonstration.files] == ["demo.png", "demo.csv", "demo.json"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["demo.csv", "demo.json", "demo.png"]
    assert progress[-1] == (17, 17)
    assert len(pd.read_csv(tmp_path / "out" / "demo.csv")) == 17
    slopes = demonstration.slopes.set_index("unit")
    assert list(slopes.index) == ["mlp", "relu2", "relu3", "glu", "gqu"]
    assert slopes.loc["gqu", "slope_n"] < slopes.loc["glu", "slope_n"] < slopes.loc["mlp", "slope_n"] < -1  # pyright: ignore
    assert slopes.loc["glu", "paper_n"] == -3.08 and np.isnan(float(slopes.loc["relu2", "paper_n"]))  # pyright: ignore
    assert slopes["ratio_to_limit"].between(0.2, 1.1).all()
    assert demonstration.rates["form"].tolist() == ["too few widths"] * 2
    record = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert record["slopes"][1]["paper_n"] is None
    assert record["reason"] == demonstration.reason and "n = 14..28" in demonstration.reason


def test_smooth_gates_have_a_rate_and_no_slope() -> None:
    """Made-up errors exp(-0.6 P) of swiglu and P^-3 of gelu, and powers of the others."""
    curves = {"swiglu": lambda n: np.exp(-0.6 * (5 * n + 1)), "gelu": lambda n: (3.0 * n + 1) ** -3}
    points = [p for p in made_up(*UNITS, *SMOOTH).points if p.unit in UNITS]
    for unit, error in curves.items():
        for n in range(1, 10):
            P = (3 + 2 * (unit == "swiglu")) * n + 1
            points.append(Point(unit, n, P, 0, error(n), error(n), np.nan, np.nan, "", "", 0.0))
    study = Scaling("made up", tuple(points))
    rates = rates_table(study).set_index("unit")
    assert rates["form"].to_dict() == {"swiglu": "exponential", "gelu": "power"}
    assert rates["rate"].tolist() == pytest.approx([0.6, 3.0]) and rates["width"].tolist() == [9, 9]
    assert slopes_table(study)["unit"].tolist() == list(UNITS)
    _, by_p, local = study.plot().axes
    notes = [text.get_text() for text in by_p.get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert "swiglu: exponential, rate 0.60 [0.60, 0.60]" in notes and "gelu: slope −3.00 [−3.00, −3.00]" in notes
    assert not any("swiglu" in text.get_text() for text in local.get_legend().get_texts())  # pyright: ignore


def test_the_demo_refuses_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(GatelabError, match="give a folder"):
        demo(tmp_path / "taken", widths=[2])


def made_up(*names: str, seeds: int = 1) -> Scaling:
    points = [
        Point(u, n, 3 * n + 1, s, n**-2.0, (1 + s) * n**-2.0, np.nan if u == "mine" else n**-2.0, 1.0, "", "", 0.0)
        for u, n, s in product(names, (4, 8, 16, 32), range(seeds))
    ]
    return Scaling("made up", tuple(points))


def test_a_study_is_plotted_with_its_local_slopes(tmp_path: Path) -> None:
    path = tmp_path / "fig.png"
    other = {"mlp": {4: 0.2, 8: 0.05, 16: 0.02}}
    figure = made_up("mlp", "mine", seeds=2).plot(path, paper={("mlp", "n"): -2.13}, reference=other)
    by_n, by_p, local = figure.axes
    assert path.exists() and (by_n.get_xlabel(), by_p.get_xlabel()) == ("neurons n", "parameters P")
    assert "paper −2.13" in by_n.get_legend().get_texts()[0].get_text()  # pyright: ignore[reportOptionalMemberAccess]
    assert [list(line.get_ydata()) for line in by_n.get_lines() if line.get_marker() == "x"] == [[0.2, 0.05, 0.02]]
    np.testing.assert_allclose(np.asarray(local.get_lines()[0].get_ydata(), float), -2)
    single = Scaling("made up", made_up("mlp").points[:1])
    assert "too few points" in single.plot().axes[0].get_legend().get_texts()[0].get_text()  # pyright: ignore
