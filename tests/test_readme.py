"""Every command and every piece of Python in the README runs."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app
from gatelab.studies import Outcome, Request
from gatelab.studies import definition as catalogue

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CORRECTIONS = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    gatelab ")]
# Studies in quick form and in this process; `scale` as it stands starts processes.
QUICK = ["--quick", "--jobs", "1"]


@pytest.mark.slow
def test_python_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["fit"].test_rmse < 1.1 * gl.limit("glu", "exp(sin(3*x))", 25)
    assert (tmp_path / "slopes.png").stat().st_size > 10_000


@pytest.mark.slow
def test_commands_in_the_readme_run(tmp_path, monkeypatch):
    """In their order and in one folder: later ones read what earlier ones wrote. `all` is three studies here."""
    monkeypatch.chdir(tmp_path)
    few = ("scaling/fig2", "scaling/fig3", "linearize/table2")
    studies = {name: catalogue.study(name) for name in few}
    monkeypatch.setattr(catalogue, "studies_by_name", lambda: studies)
    (tmp_path / "points.csv").write_text("x,y\n" + "\n".join(f"{i / 100},{(i / 100) ** 2}" for i in range(100)))
    assert len(COMMANDS) == 17
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        words += QUICK if words[0] == "reproduce" and "--list" not in words else []
        words += ["--jobs", "1"] if "--store" in words and words[0] == "scale" else []
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}\n{result.output}"
    assert (tmp_path / "gatelab-out/report.html").is_file() and (tmp_path / "card.html").is_file()


def test_slopes_in_many_dimensions_are_those_of_the_record():
    """Every slope of the paragraphs on table 1, in the README and among the corrections, to its digits."""
    record = json.loads((Path(__file__).parents[1] / "results/scaling/table1.json").read_text(encoding="utf-8"))
    ours = {claim["what"]: (claim["ours"], claim["interval"]) for claim in record["claims"]}

    def slopes(row: str, protocol: str = "paper's protocol") -> list[str]:
        return [ours[f"{row}, {unit}, {protocol}"][0] for unit in ("mlp", "glu", "gqu")]

    text = " ".join(README.split())
    first, third, waves = (slopes(row) for row in ("Friedman 1", "Friedman 3", "sin 4x sin 4y"))
    assert "slopes of {} (MLP), {} (GLU) and {} (GQU)".format(*first) in text
    assert "his third: {}, {} and {}".format(*third) in text
    assert "sin 4x sin 4y: {}, {} and {}".format(*waves) in text
    split = {row: slopes(row, "true split") for row in ("Friedman 3", "airfoil")}
    assert f"Friedman's third problem: {third[0]} becomes {split['Friedman 3'][0]}" in text
    assert f"airfoil, n = 2 to 32: {slopes('airfoil')[0]} becomes {split['airfoil'][0]}" in text
    assert f"the GLU's {slopes('airfoil')[1]} becomes {split['airfoil'][1]}" in text
    assert "undecided: {} {}".format(*ours["Friedman 3, glu, true split"]) in text
    corrections = (Path(__file__).parents[1] / "docs/corrections.md").read_text(encoding="utf-8")
    assert f"{waves[0]} / {waves[1]} and {first[0]} / {first[1]} (MLP / GLU)" in corrections


@pytest.fixture(scope="module")
def method() -> Outcome:
    """The study of our Newton in the stages of the paper's code, from its record."""
    return catalogue.study("scaling/method").run(Request())


def test_slopes_by_our_newton_are_those_of_the_record(method: Outcome):
    """The medians of five seeds, a line through all widths that were run; networks of one width are one point."""
    record = json.loads((Path(__file__).parents[1] / "results/scaling/paper-method.json").read_text(encoding="utf-8"))
    study = gl.Scaling.from_json(json.dumps(record["curves"]["paper-1d"]))
    claims = {claim.what: claim for claim in method.comparison}
    text = " ".join(README.split())
    for unit, paper in (("mlp", "-2.13"), ("glu", "-3.08"), ("gqu", "-3.55")):
        widths = sorted({p.width for p in study.points if p.unit == unit})
        points = [[p.test_rmse for p in study.points if (p.unit, p.width) == (unit, width)] for width in widths]
        assert {len(errors) for errors in points} == {5} and (widths[0], widths[-1]) == (1, 50)
        slope = np.polyfit(np.log(widths), np.log([np.median(errors) for errors in points]), 1)[0]
        claim = claims[f"1/(1+cos²πx), {unit}, our Newton in its stages"]
        assert claim.ours == f"{slope:.2f}" and claim.paper == paper
        assert f"{claim.ours} {claim.interval} ({unit.upper()})" in text and f"{paper} ({unit.upper()})" in text
        assert f"{claim.ours} {claim.interval}" in CORRECTIONS
        assert widths == list(range(1, 51))
    assert "Over all widths 1 to 50, five seeds, its slopes are" in text


def test_how_many_slopes_our_newton_gives_is_counted_by_the_study(method: Outcome):
    claims = {claim.what: claim for claim in method.comparison}
    verdicts = [claim.verdict for claim in method.comparison if claim.place.startswith("table 1")]
    pairs = method.tables["pairs"].set_index(["problem", "unit"])
    synthetic = pairs.loc[["sin4x-sin4y", "friedman1", "friedman2", "friedman3"], "times_at_greatest_width"]
    text, times = " ".join(README.split()), f"{synthetic.min():.1f} to {synthetic.max():.0f} times the error"
    counts = f"slopes are reproduced and {verdicts.count('differs')} differ"
    assert len(verdicts) == 15 and set(verdicts) == {"reproduced", "differs"}
    assert f"{verdicts.count('reproduced')} of the paper's 15 {counts}" in text
    assert f"{verdicts.count('reproduced')} of the 15 {counts}" in CORRECTIONS
    assert f"{times} at the optimum" in text and f"{times} at the optimum" in CORRECTIONS
    steeper = int((pairs["optimum"] < pairs["method_common"]).sum())
    assert f"over the same widths the optimum is steeper for {steeper} of 15" in text
    theirs = [claims[f"airfoil, {unit}, our Newton in its stages"].ours for unit in ("mlp", "glu")]
    best = [claims[f"airfoil, {unit}, at the optimum over the paper's range"].ours for unit in ("mlp", "glu")]
    assert "our Newton has {} (MLP) and {} (GLU), the optimum {} and {}".format(*theirs, *best) in text
    assert "our Newton {1} and {0}, the optimum {3} and {2}.".format(*theirs, *best) in CORRECTIONS
