"""One check of seeds for every room: what is no whole number from 0 on is a message, not a traceback."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gatelab as gl
from gatelab.solve.solvers.varpro import varpro_many

X = np.random.default_rng(0).standard_normal((40, 3))
LINE = gl.problem("paper-1d", n=60)

CALLS: dict[str, Callable[[Any], object]] = {
    "fit": lambda s: gl.fit("glu", LINE, 2, seed=s),
    "fit, how many": lambda s: gl.fit("glu", LINE, 2, seeds=s),
    "newton": lambda s: gl.fit("glu", LINE, 2, seed=s, solver="newton", steps=1),
    "varpro": lambda s: gl.fit("swiglu", LINE, 2, seed=s, steps=1),
    "varpro alone": lambda s: varpro_many("glu", X, X[:, :1], [(1, s)], steps=1),
    "fit_many": lambda s: gl.fit_many("glu", LINE, [2], seed=s, steps=1),
    "fit_many, how many": lambda s: gl.fit_many("glu", LINE, [2], seeds=s, steps=1),
    "scaling, how many": lambda s: gl.scaling(["mlp"], LINE, widths=[2, 3], seeds=s, jobs=1),
    "problem": lambda s: gl.problem("paper-1d", n=60, seed=s),
    "from_function": lambda s: gl.Problem.from_function(np.sin, n=60, seed=s),
    "from_arrays": lambda s: gl.Problem.from_arrays(X, X[:, 0], seed=s),
    "GatedRegressor": lambda s: gl.GatedRegressor(width=1, ridge=0.0, steps=1, random_state=s).fit(X, X[:, 0]),
    "network": lambda s: gl.unit("glu").network(3, seed=s),
    "FeedForward": lambda s: gl.FeedForward(4, 8, seed=s),
    "dynamics": lambda s: gl.dynamics.train("glu", X, X[:, 0], 8, lr=1e-3, steps=1, seeds=[s]),
    "dynamics, how many": lambda s: gl.dynamics.train("glu", X, X[:, 0], 8, lr=1e-3, steps=1, seeds=s),
    "compare, how many": lambda s: gl.compare(["mlp", "glu"], (X, X[:, 0]), widths=[1, 2], seeds=s),
    "recipe": lambda s: gl.train.recipe("gpt2", "glu", "counting", size="tiny", steps=1, seed=s),
    "linearize": lambda s: gl.linearize("gelu", method="maclaurin", m=8, d=3, seed=s),
    "density": lambda s: gl.ntk.spectrum(np.diag([1.0, 2.0])).density(seed=s),
}


@pytest.mark.parametrize(
    ("name", "seed"), [*((name, -1) for name in CALLS), *(("network", seed) for seed in (1.5, "a", True))]
)
def test_seeds_are_whole_numbers(name: str, seed: object) -> None:
    with pytest.raises(gl.GatelabError, match=rf"(seeds?|random_state) is {seed!r}; give a whole number"):
        CALLS[name](seed)


@pytest.mark.parametrize("name", ["fit", "problem", "network", "GatedRegressor", "recipe"])
def test_whole_numbers_of_numpy_are_taken(name: str) -> None:
    CALLS[name](np.int64(3))
