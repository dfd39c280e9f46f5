"""The files that CONTRIBUTING.md shows, each put where it says: listed, conforming and of use by being there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = dict(
    re.findall(
        r'^```python title="src/gatelab/([^"]+)"\n(.*?)^```$',
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
)
HEAVY = ("torch", "scipy", "sklearn", "pandas", "matplotlib")


class Copy:
    """A copy of the package with one file more."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src" / "gatelab", folder / "gatelab", ignore=shutil.ignore_patterns("__pycache__"))
        target = folder / "gatelab" / path
        assert target.parent.is_dir() and not target.exists()
        target.write_text(SHOWN[path], encoding="utf-8")

    def python(self, code: str) -> str:
        """What a fresh Python prints that imports the copy; it must end well."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment, timeout=300)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def pytest(self, path: str, names: str) -> None:
        """Run those of the repository's tests on the copy; some must be there, and all must pass."""
        words = ["-q", "-p", "no:cacheprovider", "-k", names, str(ROOT / path)]
        self.python(f"import sys, pytest; sys.exit(pytest.main({words!r}))")

    def gatelab(self, *words: str) -> str:
        """What the command prints."""
        return self.python(f"import sys; from gatelab.cli import main; sys.argv = ['gatelab', *{words!r}]; main()")


def test_every_file_that_is_shown_is_tested_here() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert SHOWN and all(f'Copy(tmp_path, "{path}")' in tested for path in SHOWN)


def listed_without_torch(copy: Copy, words: tuple[str, ...]) -> list[str]:
    """The names that a list of the command line has, which imports nothing that computes."""
    code = f"""
import sys
from gatelab.cli import main
sys.argv = ["gatelab", *{words!r}, "--json"]
try:
    main()
except SystemExit as end:
    assert not end.code
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""
    return [row["name"] for row in json.loads(copy.python(code))]


def listed_on_the_site(copy: Copy, word: str) -> str:
    """The table of the documentation's site."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    docs = str(ROOT / "docs")
    return copy.python(f"import sys; sys.path.append({docs!r}); from site_hooks import listed; print(listed({word!r}))")


@pytest.mark.slow
def test_a_unit_is_a_file(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "feedforward/named/softplus.py")
    assert "softglu" in listed_without_torch(copy, ("units",))
    assert "| softglu | softplus(Gx+g)" in listed_on_the_site(copy, "<!-- list of units -->")
    copy.python(
        """
import gatelab as gl
assert [u.name for u in gl.units()][0] == "mlp" and "softglu" in [u.name for u in gl.units()]
gl.check_unit("softglu")
assert "softplus" in gl.feedforward.activations()
assert gl.fit("softglu", "sin4x", 6, steps=40).test_rmse < 0.3
from gatelab.feedforward.registry import describe, restore
assert restore(describe(gl.unit("softglu"))) == gl.unit("softglu")
"""
    )
    assert "softglu" in copy.gatelab("fit", "softglu", "sin4x", "--width", "3", "--points", "60")


@pytest.mark.slow
def test_a_problem_is_a_file(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "data/named/kinks.py")
    assert {"kink", "valley"} <= set(listed_without_torch(copy, ("problems",)))
    assert "| valley | a valley" in listed_on_the_site(copy, "<!-- list of problems -->")
    copy.python(
        """
import gatelab as gl
from gatelab.data import check_problem
names = [spec.name for spec in gl.problems()]
assert names[0] == "paper-1d" and names[-2:] == ["kink", "valley"]
check_problem("kink")
check_problem("valley")
assert gl.problem("valley", n=50).train.x.shape == (50, 2)
assert gl.fit("mlp", gl.problem("kink", n=200), 3).test_rmse < 1e-6
"""
    )
    assert "kink" in copy.gatelab("fit", "mlp", "kink", "--width", "2", "--points", "60")


@pytest.mark.slow
def test_a_solver_is_a_file(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "solve/solvers/lottery.py")
    copy.pytest("tests/solve/test_fit.py", "every_solver and lottery")
    copy.python(
        """
import gatelab as gl
fit = gl.fit("glu", gl.problem("sin4x", n=200), 4, solver="lottery", steps=50)
assert fit.solver == "lottery" and fit.train_rmse == fit.history[-1] <= fit.history[0]
assert fit.train_rmse == gl.fit("glu", gl.problem("sin4x", n=200), 4, solver="lottery", steps=50).train_rmse
"""
    )
    assert "lottery" in copy.gatelab("fit", "--help")
    assert "lottery" in copy.gatelab("fit", "glu", "sin4x", "--width", "3", "--points", "60", "--solver", "lottery")


@pytest.mark.slow
def test_a_linearisation_method_is_a_file(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "linearization/builders/lagrange.py")
    copy.pytest("tests/linearization/test_methods.py", "lagrange")
    copy.python(
        """
import gatelab as gl, torch
from gatelab.linearization import methods
assert "lagrange" in methods()
w, x = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.25]])
product = gl.linearize("gelu", "lagrange", degree=8, d=2).product(w, x)
assert abs(float(product) - float(torch.nn.functional.gelu(w @ x.T))) < 0.01
"""
    )
    assert "lagrange" in copy.gatelab("linearize", "gelu", "--method", "lagrange", "--d", "2")


@pytest.mark.slow
def test_a_study_is_a_file(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "studies/scaling/parabola.py")
    assert "scaling/parabola" in copy.gatelab("reproduce", "--list")
    copy.python("from gatelab.studies import all_studies; assert 'scaling/parabola' in [s.name for s in all_studies()]")
    copy.gatelab("reproduce", "scaling/parabola", "--quick", "--out", "results")
    folder = tmp_path / "results" / "scaling"
    names = {"parabola.png", "parabola.svg", "parabola.chart.json", "parabola.json", "parabola-errors.csv"}
    assert {path.name for path in folder.iterdir()} >= names
    record = json.loads((folder / "parabola.json").read_text(encoding="utf-8"))
    assert [claim["verdict"] for claim in record["claims"]] == ["reproduced"]
