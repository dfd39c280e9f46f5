"""Names, formulas, functions and problems all lead to a problem, and what leads to none is told so."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.errors import GatelabError
from gatelab.problems import Problem, parse, problem, problems

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


def test_the_registered_names():
    assert [spec.name for spec in problems()] == list(TWINS)
    for spec in problems():
        assert spec.description
        assert spec.interval == (-1.0, 1.0)


@pytest.mark.parametrize("name", TWINS)
def test_registered_targets_are_what_they_say(name):
    p = problem(name, n=500, n_test=100)
    assert (p.name, p.interval, p.train.n, p.test.n) == (name, (-1.0, 1.0), 500, 100)
    np.testing.assert_allclose(p.train.y, TWINS[name](p.train.x), rtol=1e-13, atol=1e-15)
    assert p.description.startswith(p.f.text)


def test_defaults_and_options():
    p = problem("paper-1d")
    assert (p.train.n, p.test.n) == (10_000, 10_000)
    q = problem("paper-1d", interval=(0, 1), n=30, n_test=20, sampling="grid", noise=0.1, seed=4)
    twin = Problem.from_function(
        parse("1/(1+cos(pi*x)**2)"), interval=(0, 1), n=30, n_test=20, sampling="grid", noise=0.1, seed=4
    )
    assert np.array_equal(q.train.y, twin.train.y)
    assert np.array_equal(q.test.x, twin.test.x)


def test_formulas():
    p = problem("exp(sin(3*x))", interval=(0, 3), n=100)
    assert (p.name, p.interval) == ("exp(sin(3*x))", (0.0, 3.0))
    np.testing.assert_allclose(p.train.y, np.exp(np.sin(3 * p.train.x)), rtol=1e-14)
    for text in ("x", " x ", "x-pi", "-x", "pi-x"):
        assert problem(text, n=10).d_in == 1


def test_a_name_wins_over_a_formula_and_case_does_not_matter():
    assert problem(" Paper-1D ", n=10).name == "paper-1d"
    assert problem("atan", n=10).name == "atan"


def test_functions_and_problems():
    p = problem(np.tanh, n=10)
    assert p.name == "tanh"
    assert problem(p) is p
    assert problem(parse("x**2"), n=10).name == "x**2"


@pytest.mark.parametrize(
    "options",
    [
        {"n": 10},
        {"seed": 1},
        {"interval": np.array([0, 1])},
        {"n_test": 5},
        {"sampling": "grid"},
        {"noise": 0.1},
    ],
)
def test_a_problem_takes_no_options(options):
    with pytest.raises(GatelabError, match="takes no options"):
        problem(problem("x2", n=10), **options)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("papr-1d", "no problem is called 'papr-1d'; did you mean 'paper-1d'.*formula in x"),
        ("paper_1d", "did you mean 'paper-1d'"),
        ("runge-9", "did you mean.*'runge9'"),
        ("sin", "no problem is called 'sin'.*Known: atan.*formula in x"),
        ("y", "no problem is called 'y'"),
        ("sine(x)", "no function in an expression is called 'sine'"),
        ("y+1", "no name in an expression is called 'y'"),
        ("x^2", "write a power"),
        ("", "empty"),
        ("3", "constant = 3"),
        ("pi", "constant = 3.14159"),
        ("log(x)", "not finite"),
        ("__import__('os')", "__import__"),
        (np.zeros(3), "from ndarray.*from_arrays"),
        (None, "from NoneType"),
        (3, "from int"),
    ],
)
def test_refuses(spec, says):
    with pytest.raises(GatelabError, match=says):
        problem(spec, n=20)
