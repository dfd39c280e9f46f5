"""The first screen: findings are made of the studies' own tables, call undecided what is, and are drawn legibly."""

from __future__ import annotations

import csv
import re
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from report_records import write_records

from gatelab.report import build
from gatelab.report.findings import draw, found
from gatelab.report.records import read_records
from gatelab.studies import Finding, Sketch, Stroke, all_studies, study, take_record
from gatelab.studies.definition import FOLDERS, no_findings


def one(name: str, tables: dict[str, pd.DataFrame], place: int = 0) -> Finding:
    return study(name).findings(tables)[place]


def test_every_folder_has_findings() -> None:
    assert {s.name.split("/")[0] for s in all_studies() if s.findings is not no_findings} == set(FOLDERS)


def test_crossings_are_counted_from_the_committed_record(tmp_path: Path) -> None:
    take_record("ntk/fig6", tmp_path)
    with (tmp_path / "ntk" / "fig6-crossings.csv").open() as file:
        rows = list(csv.DictReader(file))
    inside = sum(float(r["measured_low"]) <= float(r["predicted"]) <= float(r["measured_high"]) for r in rows)
    worst = max(abs(float(r["predicted"]) / float(r["measured"]) - 1) for r in rows)
    findings, remarks = found(list(read_records(tmp_path).values()))
    assert remarks == []
    ((record, finding),) = findings
    assert record.study == "ntk/fig6"
    assert f"{inside} of {len(rows)} predictions" in finding.sentence
    assert f"The worst is {100 * worst:.0f} % off" in finding.sentence
    assert (
        "Gaussian: n = 100, d = 30, width 2048, 20 seeds; MNIST: n = 128, d = 784, width 1024, 8 seeds."
        in finding.sizes
    )


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


def sketch(**changed: object) -> Sketch:
    x = (1.0, 10.0, 100.0)
    lines = tuple(Stroke(name, x, (1.0, 0.1, 0.01 * k), "#D55E00") for name, k in (("a", 1.0), ("b<", 1.1), ("c", 1.2)))
    return Sketch(**({"x": "size", "y": "error", "strokes": lines} | changed))  # pyright: ignore[reportArgumentType]


def test_names_in_a_sketch_do_not_touch_and_stay_inside() -> None:
    drawn = draw(sketch())
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="start">([^<]+)</text>', drawn)
    names = {name: (float(x), float(y)) for x, y, name in texts if name != "error"}
    assert set(names) == {"a", "b&lt;", "c"}
    assert min(abs(p[1] - q[1]) for p, q in combinations(names.values(), 2)) >= 12.9
    assert all(0 < x < 280 - 6 and 0 < y < 136 for x, y in names.values())


def test_a_sketch_places_values_on_both_kinds_of_axis() -> None:
    (line,) = set(re.findall(r'class="line" d="(M[^h"]+)"', draw(sketch(strokes=sketch().strokes[:1]))))
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, p.split(","))) for p in line[1:].split("L")]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)  # decades are equal on a logarithmic axis
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.11)
    places = draw(
        sketch(
            strokes=(Stroke("", (0.0, 1.0), (5.0, -5.0), "#D55E00", marks=True, low=(1.0, -9.0), high=(9.0, -1.0)),),
            log_x=False,
            log_y=False,
            places=("ViT\nSGD", "Mixer"),
            level=0.0,
        )
    )
    level = float(re.findall(r'class="level" d="M[\d.]+,([\d.]+)', places)[0])
    heights = [float(v) for v in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', places)]
    assert heights[0] < level < heights[1]
    assert "Mixer</text>" in places
