"""What is imported when: lists and help come at once because they import nothing that computes."""

import subprocess
import sys
from pathlib import Path

import pytest

import gatelab as gl
from gatelab.sweep import Record, Run, Store

HEAVY = ("torch", "scipy", "sklearn", "pandas", "matplotlib", "joblib", "transformers")


def imported(code: str, cwd: Path | None = None) -> list[str]:
    """Which of the heavy packages a fresh Python has imported after the code."""
    report = f"import sys\nprint('imported:', *(name for name in {HEAVY} if name in sys.modules))"
    words = [sys.executable, "-c", f"{code}\n{report}"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def command(*words: str) -> str:
    return f"""
import sys
from gatelab.cli import main
sys.argv = ["gatelab", *{words!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def test_help_and_lists_import_nothing_that_computes():
    """One after the other in one process: the first that imports any of them fails."""
    lists = ["--help", "fit --help", "--version", "units", "problems --json", "glossary", "glossary gap"]
    check = f"assert not [name for name in {HEAVY} if name in sys.modules], sys.argv\n"
    assert imported("".join(command(*words.split()) + check for words in lists)) == []


def test_results_need_sqlite_alone(tmp_path):
    path = tmp_path / "gatelab.db"
    run = Run("lab:fit", {"width": 1, "unit": {"name": "glu"}, "problem": {"spec": "x2"}})
    with Store(path) as store:
        store.put(Record(run, "done", {"test_rmse": 0.5}))
    commands = (["list", "--unit", "reglu"], ["show", run.key[:8]], ["prune", "--failed", "--yes"])
    assert imported("".join(command("results", *words) for words in commands), cwd=tmp_path) == []


NOTHING = f"""
import gatelab as gl, sys
def heavy(): return {{name for name in {HEAVY} if name in sys.modules}}
dir(gl); gl.GatelabError; gl.__version__
assert not heavy(), heavy()
gl.problems()
assert not heavy(), heavy()
"""


def test_import_gatelab_imports_nothing_that_computes():
    assert imported(NOTHING) == []
    assert {"GatedRegressor", "scaling"} <= set(gl.__all__)


@pytest.mark.slow
def test_a_public_name_imports_what_it_needs_when_it_is_used():
    code = """
gl.fit
assert "torch" in heavy() and "sklearn" not in heavy(), heavy()
gl.GatedRegressor
"""
    assert "sklearn" in imported(NOTHING + code)


def test_every_public_name_is_there_and_listed():
    assert {name for name in gl.__all__ if not hasattr(gl, name)} == set()
    assert set(gl.__all__) <= set(dir(gl))
    for room in (gl, gl.solve, sys.modules["gatelab.feedforward"], sys.modules["gatelab.data"]):
        assert set(room.__dict__["_places"]) <= set(room.__all__)
    with pytest.raises(AttributeError, match="module 'gatelab' has no attribute 'unitz'"):
        _ = gl.unitz  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_functions_keep_the_names_that_rooms_have_too():
    """Python binds a room's name in the package when the room is imported, by whomever; `gl.units` is the function."""
    code = """
import gatelab as gl
import gatelab.feedforward.definition, gatelab.data.definition, gatelab.scaling_laws.curves
import gatelab.linearization.registry
for name in ("units", "problems", "scaling", "linearize", "unit", "problem"):
    assert callable(getattr(gl, name)), name
from gatelab.feedforward import unit, activations
from gatelab.data import problem
assert unit("glu").name == "glu" and "relu" in activations() and problem("x2", n=10).train.n == 10
import gatelab.feedforward.gates, gatelab.feedforward.registry
assert callable(gl.units) and callable(gatelab.units) and gl.units()[0].name == "mlp"
"""
    imported(code)
