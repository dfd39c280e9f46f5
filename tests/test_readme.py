"""Every command and every piece of Python in the README runs."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app
from gatelab.studies import engine as catalogue

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    gatelab ")]
# Studies in quick form and in this process; `scale` as it stands starts processes.
QUICK = ["--quick", "--jobs", "1"]


@pytest.mark.slow
def test_python_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 2
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
    assert len(COMMANDS) == 12
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        words += QUICK if words[0] == "reproduce" and "--list" not in words else []
        words += ["--jobs", "1"] if "--store" in words and words[0] == "scale" else []
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}\n{result.output}"
    assert (tmp_path / "gatelab-out/report.html").is_file() and (tmp_path / "card.html").is_file()
