"""What every registered problem owes its users; the tests run this over all of them."""

from __future__ import annotations

import numpy as np

from gatelab.data.catalogue import CATALOGUE, DATASETS
from gatelab.data.expression import parse
from gatelab.data.registry import describe, problem, restore
from gatelab.errors import unknown_name


def check_problem(name: str) -> None:
    """Check that a registered problem is what it says; an `AssertionError` says what is wrong.

    Of measured data the description is checked alone, since they may not be at hand.

    Args:
        name: that of the problem.

    >>> check_problem("paper-1d")
    """
    if name not in CATALOGUE:
        raise unknown_name("problem", name, CATALOGUE)
    spec = CATALOGUE[name]
    assert spec.name == spec.name.strip().lower(), f"the name {spec.name!r} is not in small letters"
    assert spec.description, f"{name} has no description"
    if spec.kind == "data":
        assert name in DATASETS, f"{name} is measured, but its file has no Dataset of that name"
        columns = DATASETS[name].columns
        assert len(columns) == spec.inputs, f"{name} says {spec.inputs} inputs and has the columns {columns}"
        return
    inputs = parse(spec.expression).inputs
    assert len(inputs) == spec.inputs, f"{name} says {spec.inputs} inputs, its formula has {', '.join(inputs)}"
    task, again, other = (problem(name, n=50, n_test=20, seed=seed) for seed in (0, 0, 1))
    assert task.train.x.shape == (50, spec.inputs), f"{name} gave inputs of shape {task.train.x.shape}"
    assert np.array_equal(task.train.y, again.train.y), f"{name} gave other rows for the same seed"
    assert not np.array_equal(task.train.x, other.train.x), f"{name} gave the same rows for two seeds"
    assert np.array_equal(restore(describe(task)).test.y, task.test.y), f"{name} does not come back from its recipe"
    assert task.f is not None
    values = task.f(task.test.x).reshape(task.test.y.shape)
    assert np.allclose(values, task.test.y, atol=1e-9), f"the test rows of {name} are not those of its formula"
