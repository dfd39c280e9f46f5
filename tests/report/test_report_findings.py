"""The first screen: findings are made of the studies' own tables, call undecided what is, and are drawn legibly."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from report_records import write_records

from gatelab.plotting.svg import svg_text
from gatelab.report import build
from gatelab.report.papers import found, read_records
from gatelab.studies import all_studies, take_record
from gatelab.studies.engine import FOLDERS


def test_every_folder_has_findings() -> None:
    assert {s.name.split("/")[0] for s in all_studies() if s.cards} == set(FOLDERS)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed record of the loss crossings, with an empty figure, since drawing it takes most of the time."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gatelab.studies.reproduction.save", lambda figure, path: path.write_text(svg_text(Figure())))
        take_record("ntk/fig6", folder)
    return folder


def test_crossings_are_counted_from_the_committed_record(recorded: Path) -> None:
    with (recorded / "ntk" / "fig6-crossings.csv").open() as file:
        rows = list(csv.DictReader(file))
    inside = sum(float(r["measured_low"]) <= float(r["predicted"]) <= float(r["measured_high"]) for r in rows)
    worst = max(abs(float(r["predicted"]) / float(r["measured"]) - 1) for r in rows)
    findings, remarks = found(list(read_records(recorded).values()))
    assert remarks == []
    (finding,) = findings
    assert finding["address"] == "ntk-fig6" and finding["figure"].startswith("<svg")
    assert f"{inside} of {len(rows)} predictions" in finding["sentence"]
    assert f"The worst is {100 * worst:.0f} % off" in finding["sentence"]
    sizes = "Gaussian: n = 100, d = 30, width 2048, 20 seeds; MNIST: n = 128, d = 784, width 1024, 8 seeds."
    assert sizes in finding["sizes"]


def test_the_report_opens_with_findings_and_ends_with_all_claims(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, write_records(tmp_path), dirs_exist_ok=True)
    text = build(tmp_path).read_text(encoding="utf-8")
    at = [text.index(f'id="{name}"') for name in ("findings", "scaling-fig2", "ntk-fig6", "inventory", "all-claims")]
    assert at == sorted(at)
    first = text.split('id="findings"')[1].split("</section>")[0]
    assert first.count('class="sketch"') == 1
    # The others have tables of their own making: the page says that it has no sentence for them.
    for name in ("scaling/fig2", "linearize/table1"):
        assert f"{name} has no finding here" in first
    count = len(all_studies())
    assert f"{count - 4} of {count} studies were not run" in first
