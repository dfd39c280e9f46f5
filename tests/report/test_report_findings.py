"""The first screen: findings are made of the studies' own tables, call undecided what is, and are drawn legibly."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_records import write_records

from gatelab.report import build
from gatelab.report.papers import found
from gatelab.report.records import read_records
from gatelab.studies import Finding, all_studies, study, take_record
from gatelab.studies.definition import FOLDERS, no_findings


def slopes_tables(low: float, high: float) -> dict[str, pd.DataFrame]:
    units = ("mlp", "glu")
    errors = [
        {"unit": unit, "width": n, "parameters": 3 * n, "test_rmse": 1 / n, "limit": 2 / n, "ratio": 0.5}
        for unit in units
        for n in (1, 2, 4)
    ]
    slopes = [
        {"unit": unit, "against": "n", "aggregate": "best", "slope": -2.0, "low": low, "high": high} for unit in units
    ]
    return {"errors": pd.DataFrame(errors), "slopes": pd.DataFrame(slopes)}


def gap_tables(low: float, high: float) -> dict[str, pd.DataFrame]:
    base = {"first": "mlp", "second": "glu", "runs_first": 5, "runs_second": 5}
    rows = [
        base | {"where": "vit, cifar10, sgd", "difference": 0.1, "relative": 0.2, "low": low, "high": high},
        base | {"where": "vit, cifar10, adamw", "difference": 0.2, "relative": 0.4, "low": 0.1, "high": 0.3},
        base | {"where": "vit, cifar10, mlp", "first": "sgd", "difference": 9.0, "relative": 9.0, "low": 8, "high": 10},
    ]
    return {
        "comparisons": pd.DataFrame(rows),
        "runs": pd.DataFrame([{"model": "vit", "data": "cifar10", "parameters": 1_152_906}]),
    }


def one(name: str, tables: dict[str, pd.DataFrame], place: int = 0) -> Finding:
    return study(name).findings(tables)[place]


def test_every_folder_has_findings() -> None:
    assert {s.name.split("/")[0] for s in all_studies() if s.findings is not no_findings} == set(FOLDERS)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-2.1, -1.9, "flatter than the paper's -2.13 and -3.08"),
        (-2.3, -1.9, "not told apart from and flatter than the paper's -2.13 and -3.08"),
        (-4.0, -3.5, "steeper than the paper's -2.13 and -3.08"),
    ],
)
def test_slopes_are_called_what_their_intervals_decide(low: float, high: float, words: str) -> None:
    finding = one("scaling/fig2", slopes_tables(low, high))
    assert words in finding.sentence
    assert f"n^-2.00 [{low:.2f}, {high:.2f}]" in finding.sentence
    assert "n = 1 to 4" in finding.sizes


@pytest.mark.parametrize(("low", "high", "words"), [(-0.01, 0.2, "1 larger, 1 undecided"), (0.01, 0.2, "2 larger")])
def test_a_gap_whose_interval_has_zero_inside_is_undecided(low: float, high: float, words: str) -> None:
    finding = one("ntk/fig7", gap_tables(low, high))
    assert f"1.20 to 1.40 times as large with ReGLU as with ReLU ({words} of 2 comparisons)" in finding.sentence
    assert "ViT on CIFAR-10 (1.2 million parameters); 5 seeds" in finding.sizes
    (dots,) = finding.sketch.strokes
    assert dots.y == pytest.approx((20, 40))
    assert dots.low == pytest.approx((200 * low, 20))


def test_equal_parameters_are_compared_between_sizes_as_well() -> None:
    rows = []
    for unit, share, sizes in (
        ("relu2", 0.5, (10, 40)),
        ("glu", 1.0, (5, 20)),
        ("relu3", 4.0, (8,)),
        ("gqu", 1.0, (8,)),
    ):
        rows += [{"unit": unit, "width": P, "parameters": P, "test_rmse": share / P**2, "limit": 1.0} for P in sizes]
    slopes = {"unit": ["gqu"], "against": ["n"], "aggregate": ["best"], "slope": [-3.8], "low": [-4.1], "high": [-3.5]}
    width = np.array([10.0, 20.0, 40.0])
    tables = {
        "errors": pd.DataFrame(rows),
        "slopes": pd.DataFrame(slopes | {"range": ["50..200"]}),
        "construction": pd.DataFrame({"width": width.astype(int), "test_rmse": width**-4.0}),
    }
    order, powers = study("scaling/fig6").findings(tables)
    assert "is attained by a construction (slope -4.00)" in order.sentence
    assert "-3.80 [-4.10, -3.50], not told apart from -4." in order.sentence
    expected = "At 20 and 8 parameters relu² has 2 times less error than the GLU and relu³ has 4 times more error than"
    assert powers.sentence == f"{expected} the GQU."


def test_one_eigenvalue_and_the_floor_name_their_sizes() -> None:
    spectra = pd.DataFrame({"mlp": [1.0, 2.0, 300.0], "glu": [3.0, 1.0, 2.0]})
    row = {"plain": "mlp", "gated": "glu", "n": 3, "d": 7, "width": 11, "seeds": 5}
    row |= {"condition": 100.4, "condition_low": 90.0, "condition_high": 110.0}
    row |= {"bulk": 1.04, "bulk_low": 0.9, "bulk_high": 1.2}
    finding = one("ntk/fig1", {"spectra": spectra, "contractions": pd.DataFrame([row])})
    assert "by 100 [90, 110]" in finding.sentence
    assert "by 1.0 [0.9, 1.2]" in finding.sentence
    assert "n = 3 Gaussian samples of d = 7 inputs, width 11, 5 seeds" in finding.sizes
    assert finding.sketch.strokes[1].y == (3.0, 2.0, 1.0)
    errors = [("d16", "optimal", 152, 0.08, 0.07), ("d16", "hermite", 153, 0.1, 0.07), ("d2", "optimal", 5, 1.0, 1.0)]
    table = pd.DataFrame(errors, columns=["law", "method", "m", "rmse", "floor"])
    said = one("linearize/floor", {"errors": table})
    assert "No 152 features" in said.sentence
    assert "an RMSE of 0.07. The best maps have 0.08" in said.sentence
    assert "153 features 0.1." in said.sentence
    assert "d = 16" in said.sizes


def test_crossings_are_counted_from_the_committed_record(tmp_path: Path) -> None:
    take_record("ntk/fig6", tmp_path)
    with (tmp_path / "ntk" / "fig6-crossings.csv").open() as file:
        rows = list(csv.DictReader(file))
    inside = sum(float(r["low"]) <= float(r["predicted"]) <= float(r["high"]) for r in rows)
    worst = max(abs(float(r["predicted"]) / float(r["measured"]) - 1) for r in rows)
    findings, remarks = found(list(read_records(tmp_path).values()))
    assert remarks == []
    (finding,) = findings
    assert finding["address"] == "ntk-fig6" and finding["figure"].startswith("<svg")
    assert f"{inside} of {len(rows)} predictions" in finding["sentence"]
    assert f"The worst is {worst:.0%} off" in finding["sentence"]
    assert "Gaussian: width 2048, 20 seeds; MNIST: width 1024, 8 seeds." in finding["sizes"]


def test_the_report_opens_with_findings_and_ends_with_all_claims(tmp_path: Path) -> None:
    take_record("ntk/fig6", write_records(tmp_path))
    text = build(tmp_path).read_text(encoding="utf-8")
    at = [text.index(f'id="{name}"') for name in ("findings", "scaling-fig2", "ntk-fig6", "inventory", "all-claims")]
    assert at == sorted(at)
    first = text.split('id="findings"')[1].split("</section>")[0]
    assert '<a href="#ntk-fig6">Loss crossing</a>' in first
    assert first.count('class="sketch"') == 1
    # The others have tables of their own making: the page says that it has no sentence for them.
    for name in ("scaling/fig2", "linearize/table1"):
        assert f"{name} has no finding here" in first
    count = len(all_studies())
    assert f"{count - 4} of {count} studies were not run" in first
