"""`steps` means one thing in every solver, the most iterations of the network that is returned; the status agrees."""

import itertools

import pytest
from own_module import TwoLayers

import gatelab as gl
from gatelab.solve import SOLVERS
from gatelab.solve.solvers.varpro import growing_steps

LINE = gl.problem("paper-1d", n=500)
PLANE = gl.problem("sin(4*x)*sin(4*y)", n=300)


@pytest.mark.parametrize("steps", [1, 7, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 40))])
@pytest.mark.parametrize("solver", SOLVERS)
def test_no_solver_takes_more_steps_than_it_was_given(solver: str, steps: int) -> None:
    unit = {"poles": "swiglu"}.get(solver, "glu")
    fit = gl.fit(unit, LINE, 5, solver=solver, steps=steps)
    assert fit.steps == len(fit.history) <= steps
    assert fit.network.width == 5  # pyright: ignore[reportAttributeAccessIssue]
    if fit.status is gl.Status.BUDGET and solver != "varpro":  # which has a test of its own
        more = gl.fit(unit, LINE, 5, solver=solver, steps=5 * steps)
        assert more.train_rmse < fit.train_rmse


def test_a_class_of_ones_own_keeps_to_its_steps() -> None:
    few, more = (gl.fit(TwoLayers, PLANE, 3, starts=2, steps=n) for n in (1, 6))
    assert (few.steps, more.steps) == (1, 6) and few.train_rmse > more.train_rmse


@pytest.mark.parametrize("unit", ["glu", *(pytest.param(u, marks=pytest.mark.slow) for u in ("mlp", "swiglu"))])
def test_more_steps_of_varpro_are_never_worse(unit: str) -> None:
    """But for the prior on large coefficients, a share of 1e-4 at most here; below what growth takes, and beyond."""
    growth = growing_steps(6)
    how = {"starts": 1, "rounds": 4, "solver": "varpro"}
    short = [gl.fit(unit, PLANE, 6, steps=n, **how).train_rmse for n in (1, 10, growth - 1)]
    whole = [gl.fit(unit, PLANE, 6, steps=n, **how).train_rmse for n in (growth, growth + 5, 500)]
    for errors in (short, whole):
        assert all(b <= a * (1 + 1e-4) for a, b in itertools.pairwise(errors)), errors
    assert whole[-1] < short[0]


def test_steps_that_cover_the_course_of_varpro_change_nothing() -> None:
    default = gl.fit("mlp", PLANE, 4, solver="varpro", starts=2, rounds=3)
    assert default.status is gl.Status.CONVERGED
    for steps in (default.steps, 10 * default.steps):
        covered = gl.fit("mlp", PLANE, 4, solver="varpro", starts=2, rounds=3, steps=steps)
        assert covered.history == default.history
        assert covered.status is default.status


def test_the_knot_solver_uses_steps_until_it_has_settled() -> None:
    """7, 100 and 1000 steps once gave the same network and asked for more of them."""
    few, some, many = (gl.fit("glu", LINE, 2, steps=n) for n in (7, 200, 1000))
    assert (few.status, few.steps) == (gl.Status.BUDGET, 7)
    assert some.status is many.status is gl.Status.CONVERGED
    assert many.train_rmse == some.train_rmse < few.train_rmse


@pytest.mark.parametrize("width", [1, 2, 3, 12, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 5, 8))])
@pytest.mark.parametrize("unit", ["mlp", "glu"])
def test_small_networks_settle_by_themselves(unit: str, width: int) -> None:
    assert gl.fit(unit, "paper-1d", width).status is gl.Status.CONVERGED


@pytest.mark.parametrize("target", ["abs(x - 0.3)", "abs(x) + abs(x - 0.5)"])
@pytest.mark.parametrize(
    ("unit", "width"), [("mlp", 3), ("glu", 3), pytest.param("glu", 8, marks=pytest.mark.slow), ("mlp", 16)]
)
def test_a_kinked_target_is_met_between_the_rows_too(unit: str, width: int, target: str) -> None:
    """Two knots on both sides of a kink, no row between them, once passed for the exact network."""
    fit = gl.fit(unit, target, width)
    assert fit.status is gl.Status.FLOOR
    assert fit.train_rmse < 1e-13
    assert fit.test_rmse < 1e-13


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "a"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_steps_are_whole_numbers(solver: str, steps: object) -> None:
    with pytest.raises(gl.GatelabError, match=r"steps is .*; give a whole number, 1 or more"):
        gl.fit("glu", LINE, 2, solver=solver, steps=steps)
