"""Friedman's three regression problems, as scikit-learn draws them.

J. H. Friedman, Multivariate adaptive regression splines, The Annals of Statistics 19 (1991).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gatelab.problems.checks import MAX_POINTS, Array, deviation, seeds, whole
from gatelab.problems.data import Data

POINTS = 2000


def friedman(
    number: int, *, n: int = POINTS, n_test: int | None = None, noise: float = 0.0, seed: int = 0
) -> tuple[Data, Data]:
    """Training and test data of `make_friedman1` (with 5 inputs), `2` or `3`.

    The training rows are those of scikit-learn with `random_state=seed`; the test rows, n unless given, are a draw of
    their own and carry no noise.

    >>> train, test = friedman(1, n=100)
    >>> train.x.shape, test.n
    ((100, 5), 100)
    """
    n = whole("n", n, 2, MAX_POINTS)
    n_test = n if n_test is None else whole("n_test", n_test, 2, MAX_POINTS)
    noise = deviation(noise)
    seed = whole("seed", seed, 0, 2**32 - 1)
    apart = np.random.RandomState(np.random.MT19937(seeds(seed).spawn(1)[0]))
    return Data(*_draw(number, n, noise, seed)), Data(*_draw(number, n_test, 0.0, apart))


def _draw(number: int, n: int, noise: float, state: Any) -> tuple[Array, Array]:
    # Imported here, since it takes longer than all of ours.
    from sklearn import datasets

    make: Any = getattr(datasets, f"make_friedman{number}")
    options = {"n_features": 5} if number == 1 else {}
    return make(n, noise=noise, random_state=state, **options)
