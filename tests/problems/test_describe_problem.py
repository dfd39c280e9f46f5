"""Problems as plain values and back, in this process and in another."""

import json
import subprocess
import sys

import numpy as np
import pytest

import gatelab as gl
from gatelab.problems.describe import describe, restore


def _same(a, b):
    assert (a.name, a.interval) == (b.name, b.interval)
    for side in ("train", "test"):
        for axis in ("x", "y"):
            np.testing.assert_array_equal(getattr(getattr(a, side), axis), getattr(getattr(b, side), axis))


@pytest.mark.parametrize(
    "made",
    [
        gl.problem("paper-1d", n=50),
        gl.problem("exp(sin(3*x))", interval=(0, 3), n=40, n_test=30, sampling="grid", noise=0.1, seed=7),
    ],
    ids=lambda p: p.name,
)
def test_names_and_formulas_travel_as_recipes(made):
    told = json.loads(json.dumps(describe(made)))
    assert "data" not in told
    _same(restore(told), made)


def test_data_travel_by_their_hash(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path))
    x = np.linspace(0, 1, 30)
    made = gl.Problem.from_arrays(x, np.sin(x), name="mine")
    told = describe(made)
    assert describe(made) == told
    assert describe(gl.Problem.from_arrays(x, np.cos(x), name="mine"))["data"] != told["data"]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    _same(restore(told), made)
    imports = "import json, sys; from gatelab.problems.describe import restore"
    code = f"{imports}; print(restore(json.loads(sys.argv[1])).train.n)"
    out = subprocess.run([sys.executable, "-c", code, json.dumps(told)], capture_output=True, text=True, check=True)
    assert int(out.stdout) == made.train.n


def test_missing_data_and_an_unwritable_cache_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "a"))
    told = {"data": "0" * 32, "name": "gone", "interval": None}
    with pytest.raises(gl.GatelabError, match="GATELAB_CACHE"):
        restore(told)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(gl.GatelabError, match="may write to"):
        describe(gl.Problem.from_arrays(np.arange(9.0), np.arange(9.0) ** 2))
