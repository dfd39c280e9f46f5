"""Studies through a store: computed once, kept, resumed."""

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.scaling_laws import scaling_runs
from gatelab.solve import rmse
from gatelab.sweep import Store, plan

WIDTHS = [13, 14, 15]


def _study(store, widths=WIDTHS, **more):
    return gl.scaling(["mlp", "glu"], gl.problem("sin4x", n=300), widths, jobs=1, store=store, **more)


def _errors(study):
    return [(p.unit, p.width, p.train_rmse, p.test_rmse, p.flag) for p in study.points]


def test_a_second_call_computes_only_what_is_missing(tmp_path):
    path = tmp_path / "runs.db"
    _study(path, WIDTHS[:1])
    runs = scaling_runs(["mlp", "glu"], gl.problem("sin4x", n=300), WIDTHS)
    assert (plan(runs, path).done, plan(runs, path).todo) == (2, 4)
    with Store(path) as store:
        before = {r.key: r.time for r in store.records()}
    whole = _study(path)
    with Store(path) as store:
        after = {r.key: r.time for r in store.records()}
    assert len(after) == 6
    assert all(after[key] == when for key, when in before.items())
    assert _errors(whole) == _errors(_study(None))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_backends_agree_to_the_bit(tmp_path, backend):
    assert _errors(_study(tmp_path / "runs.db", backend=backend)) == _errors(_study(None))


def test_networks_are_kept_in_the_store(tmp_path):
    study = _study(tmp_path / "runs.db")
    p = gl.problem("sin4x", n=300)
    with Store(tmp_path / "runs.db") as store:
        for record in store.records():
            unit, width = record.arguments["unit"]["name"], record.arguments["width"]
            net = gl.unit(unit).network(width)
            net.load_state_dict({k: torch.from_numpy(v) for k, v in store.get_arrays(record.key).items()})
            point = next(q for q in study.points if (q.unit, q.width) == (unit, width))
            assert rmse(net, p.test.x, p.test.y) == point.test_rmse


def test_networks_of_a_store_load_as_fits_and_predict_raw_values(tmp_path, monkeypatch):
    """Standardised data of one's own: what a worker restored from the store's description knows the scales too."""
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path))
    x = np.linspace(100, 400, 200)
    p = gl.Problem.from_arrays(x, 1000 + x**2, name="mine", columns=("speed",), standardise=True)
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
    with Store(tmp_path / "runs.db") as store:
        failed = list(store.records(status="failed"))
        assert len(failed) == 2
        assert "no such gate" in failed[0].error
    with pytest.raises(RuntimeError, match="no such gate"):
        gl.scaling([failing], p, [2], jobs=1)


def test_a_lambda_cannot_be_stored_but_can_be_run(tmp_path):
    p = gl.problem("sin4x", n=100)
    with pytest.raises(gl.GatelabError, match="module of its own"):
        gl.scaling([lambda z: z.relu()], p, [2], store=tmp_path / "runs.db")
    assert gl.scaling([lambda z: z.relu()], p, [2], jobs=1, steps=5).points[0].train_rmse > 0


def test_max_hours_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    with pytest.raises(gl.GatelabError, match="the same call goes on"):
        _study(tmp_path / "runs.db", max_hours=1e-9)
    assert len(_study(tmp_path / "runs.db").points) == 6


@pytest.mark.slow
def test_data_of_ones_own_go_through_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "cache"))
    x = np.linspace(0, 1, 200)
    p = gl.Problem.from_arrays(x, np.sin(9 * x))
    for _ in range(2):
        study = gl.scaling("mlp", p, [3, 4], jobs=2, store=tmp_path / "runs.db")
        assert len(study.points) == 2
    with Store(tmp_path / "runs.db") as store:
        assert store.count() == 2


def test_a_study_with_failures_is_drawn(tmp_path):
    p = gl.problem("sin4x", n=100)
    study = gl.scaling(["mlp", failing], p, [5, 9], jobs=1, store=tmp_path / "runs.db")
    study.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()
    assert len(study.best("failing")[0]) == 0
