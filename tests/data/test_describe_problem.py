"""Problems as plain values and back, in this process and in another."""

import json
import subprocess
import sys

import numpy as np
import pytest

import gatelab as gl
from gatelab.data.registry import describe, restore


def _same(a, b):
    assert (a.name, a.interval, a.columns) == (b.name, b.interval, b.columns)
    for side in ("train", "test"):
        for axis in ("x", "y"):
            np.testing.assert_array_equal(getattr(getattr(a, side), axis), getattr(getattr(b, side), axis))


ONE = {"n": 10_000, "n_test": None, "sampling": "random", "noise": 0.0, "seed": 0}


WAVE = {"interval": (0, 3), "n": 9, "n_test": 8, "sampling": "grid", "noise": 1.0, "seed": 7}


@pytest.mark.parametrize(
    ("made", "recipe"),
    [
        (gl.problem("Paper-1d"), {"spec": "paper-1d", "interval": [-1.0, 1.0], **ONE}),
        (gl.problem(" sin(x) ", **WAVE), {"spec": "sin(x)", **WAVE, "interval": [0.0, 3.0]}),
        (
            gl.problem("x2", standardize=True, protocol="paper"),
            {"spec": "x2", "interval": [-1.0, 1.0], **ONE, "standardise": True, "protocol": "paper"},
        ),
        (gl.problem("x2", standardize=False), {"spec": "x2", "interval": [-1.0, 1.0], **ONE}),
        (gl.problem("x1*x2 + x3", interval=(0, 2)), {"spec": "x1*x2 + x3", "interval": [0.0, 2.0], **ONE}),
        (gl.problem("friedman2"), {"spec": "friedman2", "n": 2000, "n_test": None, "noise": 0.0, "seed": 0}),
        (
            gl.problem("friedman3", n=50, noise=0.1, seed=2, standardize=False, protocol="paper"),
            {"spec": "friedman3", "n": 50, "n_test": None, "noise": 0.1, "seed": 2}
            | {"standardise": False, "protocol": "paper"},
        ),
    ],
    ids=lambda v: v.get("spec") if isinstance(v, dict) else "",
)
def test_recipes_are_exactly_these_and_lead_back(made, recipe):
    """Hashes of stored results are made of them: a key more, and stored results are not found again."""
    assert describe(made) == recipe
    _same(restore(json.loads(json.dumps(describe(made)))), made)


def test_numbers_of_numpys_give_the_same_recipe():
    a = gl.problem("x2", n=np.int64(50), noise=np.float32(0.5), seed=np.int32(3))
    assert json.dumps(describe(a)) == json.dumps(describe(gl.problem("x2", n=50, noise=0.5, seed=3)))


def test_data_travel_by_their_hash(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path))
    x = np.linspace(0, 1, 30)
    made = gl.Problem.from_arrays(x, np.sin(x), name="mine")
    told = describe(made)
    assert describe(made) == told
    assert describe(gl.Problem.from_arrays(x, np.cos(x), name="mine"))["data"] != told["data"]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    _same(restore(told), made)
    imports = "import json, sys; from gatelab.data.registry import restore"
    code = f"{imports}; print(restore(json.loads(sys.argv[1])).train.n)"
    out = subprocess.run([sys.executable, "-c", code, json.dumps(told)], capture_output=True, text=True, check=True)
    assert int(out.stdout) == made.train.n


def test_scales_travel_with_standardized_data(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path))
    x = np.linspace(5, 9, 30)
    raw, made, other = (gl.Problem.from_arrays(k * x, np.sin(x), name="mine", standardize=k > 0) for k in (-1, 1, 2))
    told = json.loads(json.dumps(describe(made)))
    again = restore(told)
    _same(again, made)
    np.testing.assert_array_equal(again.scales.x.mean, made.scales.x.mean)
    np.testing.assert_array_equal(again.scales.y.deviation, made.scales.y.deviation)
    # Twice the input is the same standardized data, and another problem: its fits take other rows.
    assert describe(other) != told
    assert "scales" not in describe(raw) and restore(describe(raw)).scales is None


def test_missing_data_and_an_unwritable_cache_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "a"))
    told = {"data": "0" * 32, "name": "gone", "interval": None}
    with pytest.raises(gl.GatelabError, match="GATELAB_CACHE"):
        restore(told)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(gl.GatelabError, match="may write to"):
        describe(gl.Problem.from_arrays(np.arange(9.0), np.arange(9.0) ** 2))


def test_measured_data_travel_as_recipes_with_their_hash(real_data, monkeypatch, tmp_path):
    made = gl.problem("airfoil", n=100, seed=2, protocol="paper")
    told = json.loads(json.dumps(describe(made)))
    assert sorted(told) == ["content", "n", "protocol", "seed", "spec"]
    assert sorted(describe(gl.problem("airfoil"))) == ["content", "seed", "spec"]
    assert not (tmp_path / "cache").exists()
    _same(restore(told), made)
    # The data change under way: the run is refused, and planned again it is another run.
    lines = (real_data / "tabular" / "airfoil_self_noise.dat").read_text().splitlines()
    (tmp_path / "airfoil_self_noise.dat").write_text("\n".join(["801" + lines[0][3:], *lines[1:]]))
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    assert describe(gl.problem("airfoil", n=100, seed=2, protocol="paper"))["content"] != told["content"]
    with pytest.raises(gl.GatelabError, match=r"have changed.*same GATELAB_DATA"):
        restore(told | {"n": 101})  # the first is remembered
