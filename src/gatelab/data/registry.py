"""`problem` makes a problem of a registered name, a formula, a function or a pair of arrays.

`describe` and `restore` are for runs that are hashed, stored and computed in other processes. A problem of a name or a
formula is described by its recipe, any other by a hash of its data, which are written to the cache folder; on a cluster
every machine must see the same folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gatelab import tensors
from gatelab.arrays import Array, fingerprint
from gatelab.data.archives import cache_folder
from gatelab.data.definition import PAPER, Problem
from gatelab.data.expression import INPUTS, Expression, parse
from gatelab.data.named import CATALOGUE, DATASETS
from gatelab.data.rows import Data, Scales, checked_protocol, seeds, sizes, standardized
from gatelab.data.specification import ProblemSpec
from gatelab.data.tables import load_measured, table_fingerprint
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.plain import from_plain, to_plain

POINTS, FRIEDMAN_POINTS = 10_000, 2000
DRAWS = ("n", "n_test", "sampling", "noise")
USUAL = {"sampling": "random", "noise": 0.0, "seed": 0, "protocol": "split"}
# The options that a kind of problem does not have, and why.
REFUSED = {
    "friedman": (("interval", "sampling"), "its inputs are drawn as scikit-learn draws them"),
    "data": (("interval", "n_test", "sampling", "noise"), "its rows are measured"),
}
AnyProblem = str | Callable[..., Any] | Problem | tuple[Any, Any]
# Matches names with hyphens such as paper-1d, but also "x-pi": texts are read as formulas first.
LIKE_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
LIKE_A_FILE = re.compile(r"\.(csv|tsv|txt|dat|gz|parquet|pq|npy|npz)\s*$", re.IGNORECASE)


def problem(
    spec: AnyProblem,
    *,
    interval: tuple[float, float] | None = None,
    n: int | None = None,
    n_test: int | None = None,
    sampling: str = "random",
    noise: float = 0.0,
    seed: int = 0,
    standardize: bool | None = None,
    protocol: str = "split",
) -> Problem:
    """Make a problem of a name, a formula, a function or a pair of arrays.

    A formula in x and y has two inputs, one in x1 to x5 has five (see `parse`). A fifth of the rows of measured data
    (airfoil, california) is for testing.

    Args:
        spec: a registered name, a formula, a function of one input, a pair of arrays (x, y), or a problem.
        interval: the interval of every input; by default the registered one, [-1, 1] for formulas and functions.
        n: the number of training points, by default 10 000, 2000 for Friedman's problems and all for measured data.
        n_test: the number of test points, by default n.
        sampling: the placement of training points: "random" or "grid".
        noise: the standard deviation of noise on the training targets.
        seed: the seed of every draw and of the choice of test rows.
        standardize: inputs and targets of mean 0 and deviation 1; the default for Friedman's and measured data.
        protocol: "split", or "paper" to test on the training data, as the reference code does with Friedman's problems
            and measured data; the problem's name is then marked.

    Returns:
        A `Problem` with training data, test data and, if it is known, the function.

    >>> problem("sin(4*x)*sin(4*y)", n=100).train.x.shape
    (100, 2)
    >>> problem("friedman1", protocol="paper").name
    "friedman1 (paper's protocol)"
    """
    options: Any = {"interval": interval, "n": n, "n_test": n_test, "sampling": sampling, "noise": noise, "seed": seed}
    options |= {"standardize": standardize, "protocol": protocol}
    given = [k for k, v in options.items() if v is not None and (k not in USUAL or v != USUAL[k])]
    if isinstance(spec, Problem):
        if given:
            raise GatelabError(
                f"the problem {spec.name!r} holds its data already and takes no options; leave out"
                f" {', '.join(given)}, or give a name, a formula or a function"
            )
        return spec
    if isinstance(spec, tuple):
        if len(spec) != 2:
            raise GatelabError(f"the data are a tuple of {len(spec)}; give a pair of arrays (x, y)")
        refuse("a pair of arrays", given, DRAWS, "it has its rows")
        how: Any = {"interval": interval, "standardize": bool(standardize)}
        return Problem.from_arrays(*spec, seed=seed, protocol=protocol, **how)
    return recipe_problem(spec, options, given)


def recipe_problem(spec: Any, options: dict[str, Any], given: Sequence[str]) -> Problem:
    """The problem of a name, a formula or a function; the first two have a recipe."""
    known = CATALOGUE.get(spec.strip().lower()) if isinstance(spec, str) else None
    paper, standardize = checked_protocol(options["protocol"]), options.pop("standardize")
    make: Any = sampled_problem
    if known is not None and known.kind in REFUSED:
        refuse(known.name, given, *REFUSED[known.kind])
        make = {"friedman": friedman_problem, "data": measured_problem}[known.kind]
    task, recipe = make(known or spec, options)
    by_default = known is not None and known.standardize
    wanted = by_default if standardize is None else bool(standardize)
    if wanted:
        task = standardized(task)
    if not isinstance(spec, str):
        return task
    # Only options that differ from the default: the hashes of stored results depend on recipes.
    if wanted != by_default:
        recipe["standardise"] = wanted  # the spelling of stored recipes
    if paper:
        recipe["protocol"] = options["protocol"]
    return replace(task, recipe=recipe)


def refuse(what: str, given: Sequence[str], names: Sequence[str], why: str) -> None:
    if wrong := [name for name in given if name in names]:
        raise GatelabError(f"{what} takes no {' and no '.join(wrong)}: {why}; leave it out, or give a formula")


def plain_options(**options: Any) -> dict[str, Any]:
    """Checked options in Python's types instead of numpy's."""
    kinds = {"sampling": str, "noise": float}
    return {name: None if v is None else kinds.get(name, int)(v) for name, v in options.items()}


def sampled_problem(spec: Any, options: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem of a registered formula, a formula or a function, and its recipe."""
    if not isinstance(spec, ProblemSpec | str) and not callable(spec):
        raise GatelabError(
            f"a problem cannot be made from {type(spec).__name__}; give a registered name, a formula in x or a"
            " function, for arrays the pair (x, y) and for files Problem.from_file(path)"
        )
    interval, label = (-1.0, 1.0), None
    f: Any = spec
    if isinstance(spec, ProblemSpec):
        interval, label, f = spec.interval or interval, spec.name, parse(spec.expression)
    elif isinstance(spec, str):
        label, f = spec.strip(), formula(spec)
    defaults = {"interval": interval, "n": POINTS}
    options |= {name: value for name, value in defaults.items() if options[name] is None}
    if isinstance(spec, ProblemSpec):
        task = Problem.from_function(f, name=label, **options)
        where = f",{task.description.removeprefix(spec.name)}" * (spec.inputs > 1)
        task = replace(task, description=f"{spec.expression}: {spec.description}{where}")
    else:
        task = Problem.from_function(f, **options)
    ends = task.interval or tuple(float(end) for end in options["interval"])
    draws = {name: options[name] for name in (*DRAWS, "seed")}
    return task, {"spec": label, "interval": list(ends)} | plain_options(**draws)


def friedman_problem(known: ProblemSpec, options: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """One of Friedman's problems, and its recipe.

    The training rows are those of scikit-learn with `random_state=seed`; test rows are drawn independently, without
    noise.
    """
    from sklearn import datasets  # slow to import

    paper = checked_protocol(options["protocol"], n_test=options["n_test"])
    n, test_points = sizes(FRIEDMAN_POINTS if options["n"] is None else options["n"], options["n_test"])
    noise = real_number("noise", options["noise"], least=0)
    seed = whole_number("seed", options["seed"], 0, 2**32 - 1)
    recipe = {"spec": known.name} | plain_options(n=n, n_test=options["n_test"], noise=noise, seed=seed)
    make: Any = getattr(datasets, f"make_{known.name}")
    shape = {"n_features": known.inputs} if known.name == "friedman1" else {}
    train = test = Data(*make(n, noise=noise, random_state=seed, **shape))
    if not paper:
        apart = np.random.RandomState(np.random.MT19937(seeds(seed).spawn(1)[0]))
        test = Data(*make(test_points, noise=0.0, random_state=apart, **shape))
    name = PAPER.format(known.name) if paper else known.name
    f, description = parse(known.expression), f"{known.expression}: {known.description}"
    return Problem(name, train, test, f=f, description=description, columns=f.inputs, noise=noise), recipe


def measured_problem(known: ProblemSpec, options: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Measured data, some of its training rows if n is given, and the recipe."""
    table, n, split = load_measured(DATASETS[known.name]), options["n"], {k: options[k] for k in ("seed", "protocol")}
    task = Problem.from_arrays(table.x, table.y, name=known.name, columns=table.columns, **split)
    recipe = {"spec": known.name, "content": table_fingerprint(table), "seed": int(options["seed"])}
    if n is not None:
        n = whole_number("n", n, 2, task.train.n)
        # The first rows of a fixed permutation, so that smaller selections are subsets of larger ones.
        rows = np.random.default_rng(seeds(options["seed"]).spawn(1)[0]).permutation(task.train.n)[:n]
        train = Data(task.train.x[rows], task.train.y[rows])
        test = train if task.test is task.train else task.test  # the paper's protocol
        task = replace(task, train=train, test=test, description=f"{n} of {task.description}")
        recipe["n"] = n
    return replace(task, description=f"{known.description}: {task.description}"), recipe


def formula(text: str) -> Expression:
    """The formula of a text; the error for other texts suggests a file or a registered name."""
    if LIKE_A_FILE.search(text):
        raise GatelabError(f"{text!r} looks like a file; read it with Problem.from_file, or --data on the command line")
    try:
        return parse(text)
    except GatelabError:
        if text.strip() in INPUTS or not LIKE_A_NAME.fullmatch(text.strip()):
            raise
    raise GatelabError(
        f"{unknown_name('problem', text.strip(), CATALOGUE)}; a formula in x is accepted too, such as 'exp(sin(3*x))'"
    )


def describe(problem: Problem) -> dict[str, Any]:
    """The problem in plain values, which `restore` reads."""
    arrays = arrays_of(problem)
    if problem.recipe is not None:
        twin = restore(problem.recipe)  # `replace` may have changed the rows or the interval
        if twin.interval == problem.interval and all(map(np.array_equal, arrays.values(), arrays_of(twin).values())):
            return dict(problem.recipe)
    content = [part for name, array in sorted(arrays.items()) for part in (f"{name}{array.shape}", array)]
    key = fingerprint([repr((problem.name, problem.interval)), *content], 32)
    target = cached_data(key)
    if not target.exists():
        tensors.write_packed(target, tensors.pack(arrays))
    description = {"data": key, "name": problem.name, "interval": to_plain(problem.interval)}
    # Only if there are any, and without the names of targets: the hashes of stored results depend on it.
    if problem.columns:
        description["columns"] = list(problem.columns)
    if problem.scales is not None:
        description["scales"] = to_plain(problem.scales)
    return description


def arrays_of(problem: Problem) -> dict[str, Array]:
    train, test = problem.train, problem.test
    return {"train_x": train.x, "train_y": train.y, "test_x": test.x, "test_y": test.y}


def restore(description: Mapping[str, Any]) -> Problem:
    """The problem of a description; the last few are cached, since a sweep restores the same one for every run."""
    return restored(json.dumps(description, sort_keys=True))


@lru_cache(maxsize=4)
def restored(text: str) -> Problem:
    description = json.loads(text)
    interval = tuple(description.get("interval") or ()) or None
    if "data" not in description:
        content, standardize = description.pop("content", None), description.pop("standardise", None)
        task = problem(**(description | {"interval": interval, "standardize": standardize}))
        if content is not None and task.recipe is not None and task.recipe["content"] != content:
            raise GatelabError(
                f"the data of {task.name!r} have changed: their hash is {task.recipe['content']}, the run was planned"
                f" with {content}; give this machine the same GATELAB_DATA, or plan the sweep again"
            )
        return task
    source = cached_data(description["data"])
    if not source.exists():
        raise GatelabError(
            f"the data of problem {description['name']!r} are not in {source.parent}; set GATELAB_CACHE to the folder "
            "that the sweep was started with, on every machine"
        )
    arrays = tensors.read(source, "delete it and start the sweep anew").arrays
    train, test = (Data(arrays[f"{side}_x"], arrays[f"{side}_y"]) for side in ("train", "test"))
    scales = from_plain(Scales | None, description.get("scales"))  # pyright: ignore[reportArgumentType]
    columns = tuple(description.get("columns", ()))
    return Problem(description["name"], train, test, interval=interval, columns=columns, scales=scales)


def cached_data(key: str) -> Path:
    return cache_folder() / "data" / f"{key}.safetensors"


def check_problem(name: str) -> None:
    """Check a registered problem; raises an `AssertionError` if its specification is inconsistent.

    The rows of measured data are not checked, since they may not be available.

    Args:
        name: the name of the problem.
    """
    if name not in CATALOGUE:
        raise unknown_name("problem", name, CATALOGUE)
    spec = CATALOGUE[name]
    assert spec.name == spec.name.strip().lower(), f"the name {spec.name!r} is not in small letters"
    assert spec.description, f"{name} has no description"
    if spec.kind == "data":
        assert name in DATASETS, f"{name} is measured, but its file has no Dataset of that name"
        columns = DATASETS[name].columns
        assert len(columns) == spec.inputs, f"{name} has {spec.inputs} inputs and the columns {columns}"
        return
    inputs = parse(spec.expression).inputs
    assert len(inputs) == spec.inputs, f"{name} has {spec.inputs} inputs, its formula has {', '.join(inputs)}"
    task, again, other = (problem(name, n=50, n_test=20, seed=seed) for seed in (0, 0, 1))
    assert task.train.x.shape == (50, spec.inputs), f"{name} gave inputs of shape {task.train.x.shape}"
    assert np.array_equal(task.train.y, again.train.y), f"{name} gave other rows for the same seed"
    assert not np.array_equal(task.train.x, other.train.x), f"{name} gave the same rows for two seeds"
    assert np.array_equal(restore(describe(task)).test.y, task.test.y), f"{name} does not come back from its recipe"
    assert task.f is not None
    values = task.f(task.test.x).reshape(task.test.y.shape)
    assert np.allclose(values, task.test.y, atol=1e-9), f"the test rows of {name} are not those of its formula"
