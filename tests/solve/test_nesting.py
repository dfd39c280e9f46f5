"""Networks that contain others: the embedding, starts that are never lost, and the invariants that follow."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.feedforward import Network
from gatelab.scaling_laws.curves import nested
from gatelab.scaling_laws.result import Point
from gatelab.solve.constructions import contains, embedded
from gatelab.solve.free_knots import from_network, relu_power, to_network, widened
from gatelab.solve.solvers.varpro import polynomial_losses

NAMES = ("mlp", "relu2", "relu3", "glu", "gqu", "silu", "swiglu", "gelu", "geglu", "bilinear")
UNITS = [gl.unit(name) for name in NAMES]
PAIRS = [(a, b) for a, b in itertools.product(UNITS, UNITS) if contains(a, b)]
LINE = gl.problem("paper-1d", n=400)
PLANE = gl.problem("sin(4*x)*sin(4*y)", n=200)


def test_which_unit_contains_which():
    """By hand: one more factor of the same gate, and powers of relu whose factors follow the gate."""
    larger = {f"{a.name} {b.name}" for a, b in PAIRS if a != b}
    relu = {"glu mlp", "glu relu2", "gqu mlp", "gqu relu2", "gqu relu3", "gqu glu"}
    assert larger == {*relu, "swiglu silu", "geglu gelu"}


@pytest.mark.parametrize(("d_in", "d_out"), [(1, 1), (3, 2)])
@pytest.mark.parametrize(("unit", "other"), PAIRS, ids=lambda u: u.name)
def test_an_embedded_network_is_the_same_function(unit, other, d_in, d_out):
    small = other.network(3, d_in, d_out, seed=4, init="normal")
    x = torch.randn(50, d_in, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = embedded(small, unit, 5)
    assert (wide.width, wide.unit) == (5, unit)
    torch.testing.assert_close(wide(x), small(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("unit", "other"), [(a, b) for a, b in PAIRS if b.gate_power], ids=lambda u: u.name)
def test_knots_and_lines_are_embedded_as_networks_are(unit, other):
    small = other.network(4, seed=2, init="normal")
    x = torch.linspace(-2, 2, 101, dtype=torch.float64)[:, None]
    neurons = from_network(small)
    torch.testing.assert_close(to_network(neurons, other)(x), small(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(to_network(widened(neurons, other, unit), unit)(x), small(x), rtol=1e-12, atol=1e-12)


def test_a_power_beyond_those_with_a_name():
    z = torch.linspace(-1, 2, 7, dtype=torch.float64)
    torch.testing.assert_close(relu_power(5).gate(z), z.clamp_min(0) ** 5)
    assert relu_power(3) == gl.unit("relu3").__class__("relu3")


@pytest.mark.parametrize(
    ("text", "seed"), [("paper-1d", 5), pytest.param("abs(x-0.2)*exp(x)", 0, marks=pytest.mark.slow)]
)
def test_a_unit_is_never_worse_than_the_power_of_relu_that_it_contains(text, seed):
    """Single fits, no study around them; before, the GLU was up to 1.7 and the GQU up to 7 times worse."""
    p = gl.problem(text, n=300)
    for width, unit, power in ((3, "glu", "relu2"), (14, "glu", "relu2"), (14, "gqu", "relu3")):
        own, contained = (gl.fit(u, p, width, seed=seed, starts=1) for u in (unit, power))
        assert own.train_rmse <= (1 + 1e-9) * contained.train_rmse or own.status is gl.Status.FLOOR


@pytest.mark.parametrize("width", [3, pytest.param(4, marks=pytest.mark.slow), 15])
@pytest.mark.parametrize(("unit", "other"), [("gqu", "relu2"), ("glu", "mlp"), ("relu3", "relu3")])
def test_a_start_is_never_lost_on_a_line(unit, other, width):
    """Starts that are not trained at all, so that nothing is at an optimum; three neurons and more."""
    start = gl.unit(other).network(3, seed=width, init="normal")
    with torch.no_grad():
        error = float((start(torch.from_numpy(LINE.train.x)) - torch.from_numpy(LINE.train.y)).square().mean().sqrt())
    fit = gl.fit(unit, LINE, width, start=start)
    assert fit.train_rmse < error
    again = gl.fit(unit, LINE, width + 1, start=fit)
    assert again.train_rmse <= (1 + 1e-9) * fit.train_rmse
    assert again.network.width == width + 1


@pytest.mark.parametrize(
    ("unit", "other"),
    [
        ("glu", "mlp"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("gqu", "glu"), ("swiglu", "silu"))),
        ("mlp", "mlp"),
    ],
)
def test_a_start_is_never_lost_in_a_plane(unit, other):
    start = gl.fit(other, PLANE, 3, starts=1, rounds=1)
    for steps in (None, 1):
        fit = gl.fit(unit, PLANE, 4, start=start, rounds=1, steps=steps)
        assert fit.train_rmse <= start.train_rmse
        assert fit.network.width == 4


def test_bad_starts_are_said():
    fit = gl.fit("glu", LINE, 3, steps=1)
    for unit, problem, width, start, what in (
        ("mlp", LINE, 4, fit, "does not contain"),
        ("gqu", LINE, 2, fit, "at most 2"),
        ("gqu", PLANE, 4, fit, "1 inputs"),
        ("gqu", LINE, 4, "glu", "start is str"),
    ):
        with pytest.raises(gl.GatelabError, match=what):
            gl.fit(unit, problem, width, start=start)
    flat = Network(gl.unit("mlp"), 2)
    with pytest.raises(gl.GatelabError, match="does not depend on x"):
        gl.fit("mlp", LINE, 3, start=flat)


@pytest.mark.parametrize(("text", "seed"), [("x**2 + y**2", 0), pytest.param("x*y - 3*x", 1, marks=pytest.mark.slow)])
def test_two_neurons_that_are_always_open_are_found(text, seed):
    """relu(x + c)(x - c) = x^2 - c^2 where x > -c. Exact at the rows was no news: between them it had 2e-3 and more."""
    fit = gl.fit("glu", gl.problem(text, n=300), 2, seed=seed)
    assert fit.test_rmse < 1e-10


def test_no_network_of_open_gates_passes_the_best_polynomial():
    """The bound that decides whether such networks are tried, beside numpy's own least squares."""
    from gatelab.solve.features import Standard

    data = Standard.of(PLANE.train.x, PLANE.train.y, None, torch.device("cpu"))
    x, y = data.x[:, :-1].numpy(), data.y.numpy()
    F = np.stack([x[:, 0] ** i * x[:, 1] ** j for i in range(3) for j in range(3 - i)], -1)
    left = y - F @ np.linalg.lstsq(F, y, rcond=None)[0]
    assert polynomial_losses(gl.unit("glu"), data, 2) == pytest.approx([np.sum(left**2)] * 2)
    assert polynomial_losses(gl.unit("swiglu"), data, 2) == [np.inf] * 2


def _points(errors):
    blank = {"parameters": 9, "test_rmse": 1.0, "limit": np.nan, "ratio": np.nan, "flag": "", "status": "converged"}
    return {
        (unit, width, seed): Point(unit, width, seed=seed, train_rmse=error, seconds=1.0, **blank)
        for (unit, width, seed), error in errors.items()
    }


TASKS = [(gl.unit(u), n, 0) for n in (4, 2) for u in ("gqu", "mlp", "glu")]
ERRORS = {
    ("mlp", 2, 0): 0.3,
    ("mlp", 4, 0): 0.4,
    ("glu", 2, 0): 0.1,
    ("glu", 4, 0): 0.05,
    ("gqu", 2, 0): 0.2,
    ("gqu", 4, 0): 0.15,
}


def test_what_breaks_an_invariant_is_named_where_nothing_can_be_done():
    points = nested(TASKS, _points(ERRORS), lambda task, source: None)
    breaks = {key: p.breaks for key, p in points.items() if p.breaks}
    assert breaks == {
        ("mlp", 4, 0): "the mlp of width 2 has 3.00e-01",
        ("gqu", 2, 0): "the glu of width 2 has 1.00e-01",
        ("gqu", 4, 0): "the glu of width 4 has 5.00e-02",
    }
    assert not any(p.start for p in points.values())
    study = gl.Scaling("made up", tuple(points.values()))
    assert len(study.broken) == 3 and "3 with a larger training error" in repr(study)
    assert set(study.table().columns) >= {"start", "breaks"}


def test_what_breaks_an_invariant_is_fitted_again_from_the_best_that_it_contains():
    points, calls = _points(ERRORS), []

    def refit(task, source):
        calls.append((task[0].name, task[1], source[0].name, source[1]))
        return replace(points[task[0].name, task[1], 0], train_rmse=0.01)

    mended = nested(TASKS, points, refit)
    assert calls == [("mlp", 4, "mlp", 2), ("glu", 4, "mlp", 4), ("gqu", 2, "glu", 2), ("gqu", 4, "mlp", 4)]
    assert mended["gqu", 2, 0].start == "the glu of width 2" and mended["gqu", 2, 0].seconds == 2.0
    assert not any(p.breaks for p in mended.values())


def test_a_study_in_a_store_keeps_what_was_fitted_again(tmp_path):
    """Where the search of single fits does miss: at width 46 relu3 had 4 % more error than at 45."""
    p = gl.problem("paper-1d", n=1000)
    how = {"jobs": 1, "progress": False}
    first, second = (gl.scaling(["gqu", "relu3"], p, [45, 46], store=tmp_path / "fits.db", **how) for _ in range(2))
    errors = [[q.train_rmse for q in study.points] for study in (first, second)]
    assert errors[0] == errors[1]
    gqu45, gqu46, relu45, relu46 = errors[0]
    assert gqu46 <= gqu45 and relu46 < relu45 and gqu46 <= relu46 and gqu45 <= relu45
    alone = gl.fit("relu3", p, 46)
    assert alone.train_rmse > relu45 and first.points[3].start == "the relu3 of width 45"
    assert [q.start for q in first.points] == [q.start for q in second.points]


def test_units_may_have_their_own_widths():
    """The glu of width 4 has no mlp of that width beside it, and starts from none."""
    study = gl.scaling(["mlp", "glu"], gl.problem("x2", n=50), {"glu": [2, 4], "mlp": [1, 2]}, jobs=1, progress=False)
    assert [(p.unit, p.width) for p in study.points] == [("mlp", 1), ("mlp", 2), ("glu", 2), ("glu", 4)]
    with pytest.raises(gl.GatelabError, match="give them for mlp, glu"):
        gl.scaling(["mlp", "glu"], "x2", {"glu": [2]})
