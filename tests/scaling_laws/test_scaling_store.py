"""Studies through a store: computed once, kept, resumed."""

import importlib
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.feedforward.registry import describe, restore
from gatelab.scaling_laws import scaling_runs
from gatelab.sweep import Store, plan

WIDTHS = [13, 14]


def _study(store, widths=WIDTHS, **more):
    return gl.scaling(["mlp", "glu"], gl.problem("sin4x", n=300), widths, jobs=1, store=store, **more)


def _errors(study):
    return [(p.unit, p.width, p.train_rmse, p.test_rmse, p.flag) for p in study.points]


def test_a_second_call_computes_only_what_is_missing(tmp_path):
    path = tmp_path / "runs.db"
    _study(path, WIDTHS[:1])
    runs = scaling_runs(["mlp", "glu"], gl.problem("sin4x", n=300), WIDTHS)
    assert (plan(runs, path).done, plan(runs, path).todo) == (2, 2)
    with Store(path) as store:
        before = {r.key: r.time for r in store.records()}
    whole = _study(path)
    with Store(path) as store:
        after = {r.key: r.time for r in store.records()}
    assert len(after) == 4
    assert all(after[key] == when for key, when in before.items())
    assert _errors(whole) == _errors(_study(None))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_backends_agree_to_the_bit(tmp_path, backend):
    assert _errors(_study(tmp_path / "runs.db", backend=backend)) == _errors(_study(None))


def test_networks_of_a_store_load_as_fits_and_predict_raw_values(tmp_path, monkeypatch):
    """Standardised data of one's own: what a worker restored from the store's description knows the scales too."""
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path))
    x = np.linspace(100, 400, 200)
    p = gl.Problem.from_arrays(x, 1000 + x**2, name="mine", columns=("speed",), standardize=True)
    gl.scaling(["glu"], p, [3], jobs=1, store=tmp_path / "runs.db")
    with Store(tmp_path / "runs.db") as store:
        (record,) = store.records()
        file = store.save_arrays(record.key, tmp_path / "network.safetensors")
    fit = gl.load(file)
    alone = gl.fit("glu", p, 3)
    assert isinstance(fit, gl.Fit) and fit.columns == ("speed",)
    np.testing.assert_array_equal(fit.predict(x), alone.predict(x))
    assert np.abs(fit.predict(x) - (1000 + x**2)).max() < 1
    assert (fit.test_rmse, fit.test_rmse_raw) == (record.metrics["test_rmse"], alone.test_rmse_raw)


def failing(z):
    raise FloatingPointError("no such gate")


def test_failures_are_kept_flagged_and_retried_with_a_store_and_raised_without(tmp_path):
    p = gl.problem("sin4x", n=100)
    study = gl.scaling(["mlp", failing], p, [5, 9], jobs=1, store=tmp_path / "runs.db")
    assert {(q.unit, q.flag) for q in study.points} >= {("failing", "failed")}
    assert all(np.isnan(q.test_rmse) for q in study.points if q.unit == "failing")
    assert study.slopes().query("unit == 'failing'").slope.isna().all()
    assert not study.slopes().query("unit == 'mlp'").slope.isna().any()
    assert len(study.best("failing")[0]) == 0
    study.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()
    with Store(tmp_path / "runs.db") as store:
        failed = list(store.records(status="failed"))
        assert len(failed) == 2
        assert "no such gate" in failed[0].error
    with pytest.raises(RuntimeError, match="no such gate"):
        gl.scaling([failing], p, [2], jobs=1)


def test_a_lambda_cannot_be_stored_but_can_be_run(tmp_path):
    p = gl.problem("sin4x", n=100)
    with pytest.raises(gl.GatelabError, match="move it into a module"):
        gl.scaling([lambda z: z.relu()], p, [2], store=tmp_path / "runs.db")
    assert gl.scaling([lambda z: z.relu()], p, [2], jobs=1, steps=5).points[0].train_rmse > 0


OWN = """from helpers_of_the_unit import *
SCALE = 1.0
TABLE = {"shift": 0.0}
TABLE["shift"] = 0.25
def helper(z):
    from late_helpers import bend
    return SCALE * bend(z + TABLE["shift"]) ** POWER
def own(z): return helper(z)  # a remark
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "again"),
    [
        ("units", "return helper(z)", "return 2 + helper(z).sin()", True),
        ("units", "SCALE * bend(", "SCALE + bend(", True),
        ("units", "SCALE = 1.0", "SCALE = 5.0", True),
        ("helpers", "POWER = 2", "POWER = 3", True),
        ("late", "z.relu()", "z.tanh()", True),
        ("units", '["shift"] = 0.25', '["shift"] = 0.75', True),
        ("units", "# a remark", "#  another", False),
    ],
    ids=["itself", "its helper", "its constant", "import *", "import inside", "an entry", "a remark"],
)
def test_a_store_knows_a_unit_of_ones_own_by_its_source(tmp_path, monkeypatch, file, old, new, again):
    """A changed unit is computed again, not answered with what the store has of the one that it was."""
    names = {"units": "units_of_mine", "helpers": "helpers_of_the_unit", "late": "late_helpers"}
    files = {kind: tmp_path / f"{name}.py" for kind, name in names.items()}
    files["units"].write_text(OWN)
    files["helpers"].write_text("POWER = 2\n")
    files["late"].write_text("def bend(z): return z.relu()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def study():
        for name in names.values():
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        own = importlib.import_module("units_of_mine").own
        result = gl.scaling([own], gl.problem("sin4x", n=60), [2], jobs=1, store=tmp_path / "runs.db", steps=3)
        with Store(tmp_path / "runs.db") as store:
            return result.points[0].test_rmse, store.count()

    first = study()
    files[file].write_text(files[file].read_text().replace(old, new))
    second = study()
    assert (second != first) == again and second[1] == 1 + again
    assert (second[0] != first[0]) == again


def test_a_run_of_a_unit_that_has_changed_since_it_was_planned_is_refused(tmp_path, monkeypatch):
    (tmp_path / "late_units.py").write_text("def own(z): return z.relu()\n")
    monkeypatch.syspath_prepend(tmp_path)
    description = describe(gl.unit(importlib.import_module("late_units").own))
    assert restore(description).name == "own"
    with pytest.raises(GatelabError, match="the source of the unit 'own' has changed since this run was planned"):
        restore({**description, "source": "0" * 16})


def test_a_file_that_has_changed_since_its_import_is_refused(tmp_path, monkeypatch):
    (tmp_path / "set_later.py").write_text("POWER = 2\ndef own(z): return z.relu() ** POWER\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("set_later")
    (tmp_path / "set_later.py").write_text("POWER = 2\ndef own(z): return z.tanh() ** POWER\n")
    with pytest.raises(GatelabError, match=r"set_later\.py has changed since it was imported"):
        describe(gl.unit(module.own))


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_that_were_replaced_are_fitted_and_not_those_of_the_recipe(tmp_path, in_place):
    p = gl.problem("sin4x", n=60)
    gl.scaling("mlp", p, [2], jobs=1, store=tmp_path / "runs.db")
    if in_place:
        p.train.y[:] *= 5
    else:
        p = replace(p, train=replace(p.train, y=5 * p.train.y))
    expected = gl.fit("mlp", p, 2, progress=False).train_rmse
    for store in (None, tmp_path / "runs.db"):
        assert gl.scaling("mlp", p, [2], jobs=1, store=store).points[0].train_rmse == pytest.approx(expected)


def test_keys_of_named_units_stay_and_compiled_functions_have_no_source():
    assert describe(gl.unit("swiglu")) == {"name": "swiglu", "gate": "silu", "factors": 1}
    assert describe(gl.unit(torch.nn.functional.gelu)).keys() == {"name", "import"}


def test_a_unit_without_source_is_refused_with_a_store(monkeypatch):
    module = types.ModuleType("typed_in")
    exec("def own(z): return z.relu()", module.__dict__)
    monkeypatch.setitem(sys.modules, "typed_in", module)
    with pytest.raises(GatelabError, match="the source of the unit 'own' cannot be read"):
        describe(gl.unit(module.own))
