"""The examples run as they are, and say what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = ("data", "kernel", "slope")

pytestmark = pytest.mark.usefixtures("one_thread")


def run(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_all_examples_are_here() -> None:
    names = ("own_data", "own_model", "own_unit", "pde_allen_cahn", "pde_burgers", "pde_poisson", *NOTEBOOKS)
    assert sorted(p.stem for p in EXAMPLES.iterdir() if p.is_file()) == sorted(names)


def equation(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *sizes: str) -> float:
    """The last relative error that an example of a differential equation prints."""
    before = torch.get_default_dtype()
    said = run(name, monkeypatch, capsys, *sizes)
    torch.set_default_dtype(before)
    return float(re.findall(r"relative error (\S+)", said)[-1])


def test_poisson(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert equation("pde_poisson.py", monkeypatch, capsys, "10", "8") < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pde_burgers.py", "pde_allen_cahn.py"])
def test_equations_in_time(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert equation(name, monkeypatch, capsys, "20", "8", "300") < 0.9


def test_own_unit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = run("own_unit.py", monkeypatch, capsys)
    assert re.search(r"sine_gate +passes", said) and re.search(r"LowRankGLU +passes", said)
    errors = {n: float(e) for n, e in re.findall(r"(\w+) +n = +\d+, P = \d+ +(\S+)", said)}
    # A gate that is a sine has the target's own shape; a gate of rank one sees one direction of two.
    assert errors["sine_gate"] < errors["glu"] < errors["LowRankGLU"]


def test_own_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = run("own_data.py", monkeypatch, capsys)
    ours, line = (float(v) for v in re.search(r"GatedRegressor (\S+), a line (\S+)", said).groups())  # type: ignore[union-attr]
    assert ours > line > 0.5 and "wider is worse: the data set the error" in said


@pytest.mark.slow
def test_own_data_takes_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = "\n".join(f"{i / 60},{i % 7},{(i / 60) ** 2}" for i in range(60))
    (tmp_path / "mine.csv").write_text(f"a,b,area\n{rows}\n")
    said = run("own_data.py", monkeypatch, capsys, str(tmp_path / "mine.csv"), "area")
    assert "48 rows to train on, 12 to test on, inputs a, b" in said


def test_own_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = run("own_model.py", monkeypatch, capsys)
    found = {n: float(k) for n, k in re.findall(r"^ +(\w+) +\d+ parameters +(\S+)", said, re.M)}
    assert all(found[plain] > 1.5 * found[gated] for plain, gated in (("mlp", "glu"), ("silu", "swiglu")))
    assert len(set(re.findall(r"(\d+) parameters", said))) == 1 and "any maps need" in said


def kinds(cell: Any) -> list[Any]:
    """What a cell shows, without its numbers and without lines of progress, which depend on the machine."""
    shown = []
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "display_data" and set(data) == {"text/plain"}:
            continue
        shown.append((output.output_type, output.get("name"), tuple(sorted(data))))
    return list(dict.fromkeys(shown))  # what is printed may come in one piece or in several


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_committed_with_their_outputs(name: str) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    assert path.stat().st_size < 300_000
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert any("image/png" in o.get("data", {}) or "<img" in str(o) for cell in code for o in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run_and_show_what_they_showed(name: str, tmp_path: Path) -> None:
    book = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    before = [kinds(cell) for cell in book.cells if cell.cell_type == "code"]
    place = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=place).execute()
    assert [kinds(cell) for cell in book.cells if cell.cell_type == "code"] == before
    assert not list(tmp_path.iterdir()), "a notebook leaves no files"
