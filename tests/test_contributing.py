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
# The entry of the method beside its file.
ENTRY = """
from gatelab.linearization.builders.lagrange import lagrange
METHODS["lagrange"] = lagrange
"""
HEAVY = ("torch", "scipy", "sklearn", "pandas", "matplotlib")


class Copy:
    """A copy of the package with the five files more, and the entry that one of them needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src" / "gatelab", folder / "gatelab", ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in SHOWN.items():
            target = folder / "gatelab" / path
            assert target.parent.is_dir() and not target.exists()
            target.write_text(text, encoding="utf-8")
        with (folder / "gatelab" / "linearization" / "registry.py").open("a", encoding="utf-8") as registry:
            registry.write(ENTRY)

    def python(self, code: str) -> str:
        """What a fresh Python prints that imports the copy; it must end well."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment, timeout=600)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


def test_every_file_that_is_shown_is_used_here() -> None:
    assert set(SHOWN) == set(USES)


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


def test_lists_have_a_unit_and_a_problem(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert "softglu" in listed_without_torch(copy, ("units",))
    assert {"kink", "valley"} <= set(listed_without_torch(copy, ("problems",)))


UNIT = """
assert [u.name for u in gl.units()][0] == "mlp" and "softglu" in [u.name for u in gl.units()]
gl.check_unit("softglu")
assert "softplus" in gl.feedforward.activations()
assert gl.fit("softglu", gl.problem("sin4x", n=300), 6, steps=40).test_rmse < 0.3
from gatelab.feedforward.registry import describe, restore
assert restore(describe(gl.unit("softglu"))) == gl.unit("softglu")
assert "softglu" in gatelab("fit", "softglu", "sin4x", "--width", "3", "--points", "60")
"""
PROBLEM = """
from gatelab.data import check_problem
names = [spec.name for spec in gl.problems()]
assert names[0] == "paper-1d" and names[-2:] == ["kink", "valley"]
check_problem("kink")
check_problem("valley")
assert gl.problem("valley", n=50).train.x.shape == (50, 2)
assert gl.fit("mlp", gl.problem("kink", n=200), 3).test_rmse < 1e-6
assert "kink" in gatelab("fit", "mlp", "kink", "--width", "2", "--points", "60")
"""
SOLVER = """
fit = gl.fit("glu", gl.problem("sin4x", n=200), 4, solver="lottery", steps=50)
assert fit.solver == "lottery" and fit.train_rmse == fit.history[-1] <= fit.history[0]
assert fit.train_rmse == gl.fit("glu", gl.problem("sin4x", n=200), 4, solver="lottery", steps=50).train_rmse
assert "lottery" in gatelab("fit", "--help")
assert "lottery" in gatelab("fit", "glu", "sin4x", "--width", "3", "--points", "60", "--solver", "lottery")
"""
METHOD = """
import torch
from gatelab.linearization import methods
assert "lagrange" in methods()
w, x = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.25]])
product = gl.linearize("gelu", "lagrange", degree=8, d=2).product(w, x)
assert abs(float(product) - float(torch.nn.functional.gelu(w @ x.T))) < 0.01
assert "lagrange" in gatelab("linearize", "gelu", "--method", "lagrange", "--d", "2")
"""
STUDY = """
assert "scaling/parabola" in gatelab("reproduce", "--list")
from gatelab.studies import all_studies
assert "scaling/parabola" in [s.name for s in all_studies()]
gatelab("reproduce", "scaling/parabola", "--quick", "--out", "results")
"""
USES = {
    "feedforward/named/softplus.py": UNIT,
    "data/named/kinks.py": PROBLEM,
    "solve/solvers/lottery.py": SOLVER,
    "linearization/builders/lagrange.py": METHOD,
    "studies/scaling/parabola.py": STUDY,
}
BEGIN = """
import gatelab as gl
from gatelab.cli import app
from typer.testing import CliRunner

def gatelab(*words):
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    return ended.output
"""


@pytest.mark.slow
def test_what_the_files_have_is_of_use(tmp_path: Path) -> None:
    Copy(tmp_path).python(BEGIN + "".join(USES.values()))
    folder = tmp_path / "results" / "scaling"
    names = {"parabola.png", "parabola.svg", "parabola.json", "parabola-parabola.csv"}
    assert {path.name for path in folder.iterdir()} >= names
    record = json.loads((folder / "parabola.json").read_text(encoding="utf-8"))
    assert [claim["verdict"] for claim in record["claims"]] == ["reproduced"]
