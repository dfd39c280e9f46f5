"""Names, formulas, functions and problems all lead to a problem, and what leads to none is told so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import datasets

from gatelab.data import Problem, ProblemSpec, check_problem, parse, problem, problems
from gatelab.data.named import CATALOGUE
from gatelab.errors import GatelabError

TWINS = {
    "paper-1d": lambda x: 1 / (1 + np.cos(np.pi * x) ** 2),
    "x2": lambda x: x**2,
    "x3": lambda x: x**3,
    "cos4x": lambda x: np.cos(4 * x),
    "sin4x": lambda x: np.sin(4 * x),
    "sin4x2": lambda x: np.sin(4 * (x - 1) ** 2),
    "runge1": lambda x: 1 / (1 + x**2),
    "runge9": lambda x: 1 / (1 + 9 * x**2),
    "atan": np.arctan,
}


PLANES = {
    "x2-y2": lambda x, y: x**2 + y**2,
    "x3-y3": lambda x, y: x**3 + y**3,
    "cos4x-cos4y": lambda x, y: np.cos(4 * x) * np.cos(4 * y),
    "sin4x-sin4y": lambda x, y: np.sin(4 * x) * np.sin(4 * y),
    "sin4x-sin4y-r2": lambda x, y: np.sin(4 * x) * np.sin(4 * y) * (x**2 + y**2),
    "runge1-2d": lambda x, y: 1 / (1 + x**2 + y**2),
    "runge9-2d": lambda x, y: 1 / (1 + 9 * x**2 + 9 * y**2),
    "atan-2d": lambda x, y: np.arctan(x) + np.arctan(y),
}
FRIEDMAN = {"friedman1": 5, "friedman2": 4, "friedman3": 4}
MEASURED = {"airfoil": 5, "california": 8}


def test_the_registered_names():
    known = {**dict.fromkeys(TWINS, 1), **dict.fromkeys(PLANES, 2), **FRIEDMAN, **MEASURED}
    ours = [spec for spec in problems() if spec.name in known]
    assert [spec.name for spec in problems()][: len(ours)] == [spec.name for spec in ours]
    assert {spec.name: spec.inputs for spec in ours} == known
    for spec in ours:
        assert (spec.expression == "") == (spec.name in MEASURED)
        assert spec.interval == (-1.0, 1.0) or spec.name in {**FRIEDMAN, **MEASURED}


@pytest.mark.parametrize("name", [spec.name for spec in problems()])
def test_every_problem_conforms(name):
    check_problem(name)


def test_what_does_not_conform_is_said(monkeypatch):
    for spec, says in (
        (ProblemSpec("wrong", "x + y", "two inputs"), "has 1 inputs, its formula has x, y"),
        (ProblemSpec("wrong", "", "measured", inputs=2, kind="data"), "has no Dataset of that name"),
        (ProblemSpec("wrong", "x**2", ""), "has no description"),
    ):
        monkeypatch.setitem(CATALOGUE, "wrong", spec)
        with pytest.raises(AssertionError, match=says):
            check_problem("wrong")


@pytest.mark.parametrize("name", [*TWINS, *PLANES])
def test_registered_targets_are_what_they_say(name):
    p = problem(name, n=500, n_test=100)
    plane = name in PLANES
    assert (p.name, p.d_in, p.train.n, p.test.n) == (name, 1 + plane, 500, 100)
    assert p.interval == (None if plane else (-1.0, 1.0))
    expected = (PLANES if plane else TWINS)[name](*p.train.x.T)
    np.testing.assert_allclose(p.train.y[:, 0], expected, rtol=1e-13, atol=1e-15)
    assert p.description.startswith(f"{p.f.text}: ") and p.description.endswith(", on [-1, 1]^2") == plane
    assert np.abs(p.train.x).max() <= 1 < np.abs(problem(name, n=50, interval=(-3, 2)).train.x).max()


@pytest.mark.parametrize("name", FRIEDMAN)
def test_friedman_is_scikit_learns(name):
    make = getattr(datasets, f"make_{name}")
    options = {"n_features": 5} if name == "friedman1" else {}
    raw = problem(name, standardize=False, seed=3, noise=0.5)
    x, y = make(2000, noise=0.5, random_state=3, **options)
    assert np.array_equal(raw.train.x, x)
    assert np.array_equal(raw.train.y[:, 0], y)
    assert (raw.d_in, raw.test.n, raw.columns) == (FRIEDMAN[name], 2000, tuple(f"x{i + 1}" for i in range(raw.d_in)))
    # The test rows are others, and clean: the formula itself.
    np.testing.assert_allclose(raw.test.y[:, 0], raw.f(raw.test.x), rtol=1e-12)
    assert not {r.tobytes() for r in raw.train.x} & {r.tobytes() for r in raw.test.x}
    residual = raw.train.y[:, 0] - raw.f(raw.train.x)
    assert abs(residual.std() - 0.5) < 0.04  # five standard errors
    assert np.array_equal(raw.test.x, problem(name, standardize=False, seed=3).test.x)


@pytest.mark.parametrize("name", FRIEDMAN)
def test_friedman_is_standardized_by_default(name):
    p, raw = problem(name), problem(name, standardize=False)
    np.testing.assert_allclose(p.train.x.std(axis=0), 1)
    np.testing.assert_allclose(p.train.y.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(p.test.x * raw.train.x.std(axis=0) + raw.train.x.mean(axis=0), raw.test.x, atol=1e-9)
    np.testing.assert_allclose(p.f(p.test.x), p.test.y[:, 0], atol=1e-12)
    assert "standardized" in p.description and "standardized" not in raw.description


def test_formulas():
    p = problem("exp(sin(3*x))", interval=(0, 3), n=100)
    assert (p.name, p.interval) == ("exp(sin(3*x))", (0.0, 3.0))
    np.testing.assert_allclose(p.train.y, np.exp(np.sin(3 * p.train.x)), rtol=1e-14)
    for text in (" x ", "x-pi", "-x"):
        assert problem(text, n=10).d_in == 1
    p = problem(np.tanh, n=10)
    assert p.name == "tanh" and problem(p) is p
    assert problem(parse("x**2"), n=10).name == "x**2"


@pytest.mark.parametrize(
    "options", [{"n": 10}, {"seed": 1}, {"interval": np.array([0, 1])}, {"standardize": False}, {"protocol": "paper"}]
)
def test_a_problem_takes_no_options(options):
    with pytest.raises(GatelabError, match=f"takes no options; leave out {next(iter(options))}, or"):
        problem(problem("x2", n=10), **options)


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("friedman1", {"interval": (0, 1)}, "friedman1 takes no interval: its inputs are drawn"),
        ("friedman1", {"sampling": "grid"}, "friedman1 takes no sampling: its inputs are drawn"),
        ("friedman1", {"seed": 2**32}, "seed is"),
        ("friedman1", {"n": 1}, "n is 1"),
        ("friedman1", {"noise": -1}, "noise is -1"),
        ("airfoil", {"n_test": 5, "noise": 0.1}, "airfoil takes no n_test and no noise: its rows are measured"),
        ("papr-1d", {}, "no problem is called 'papr-1d'; did you mean 'paper-1d'.*formula in x"),
        ("sin", {}, "no problem is called 'sin'.*Known: airfoil, atan.*formula in x"),
        ("y", {}, "has y but not x"),
        ("x2-y3", {}, "no problem is called 'x2-y3'; did you mean.*'x2-y2'"),
        ("houses.csv", {}, "'houses.csv' looks like a file; read it with Problem.from_file"),
        ("3", {}, "constant = 3"),
        ("__import__('os')", {}, "__import__"),
        (np.zeros(3), {}, r"from ndarray.*the pair \(x, y\)"),
        (None, {}, "from NoneType"),
    ],
)
def test_refuses(spec, options, says):
    with pytest.raises(GatelabError, match=says):
        problem(spec, **{"n": 20, **options})


def test_a_pair_of_arrays_is_a_problem():
    x = np.linspace(0, 3, 40)
    p = problem((x, np.sin(x)), seed=1, interval=(-1, 4))
    assert (p.train.n, p.test.n, p.interval) == (32, 8, (-1.0, 4.0))
    assert np.array_equal(p.train.x, Problem.from_arrays(x, np.sin(x), seed=1).train.x)
    assert problem((x, np.sin(x)), standardize=True).train.y.std() == pytest.approx(1)
    with pytest.raises(GatelabError, match="a pair of arrays takes no n and no noise"):
        problem((x, x), n=10, noise=0.1)
    with pytest.raises(GatelabError, match="a tuple of 3; give a pair"):
        problem((x, x, x))
