"""Friedman's three regression problems, as scikit-learn draws them.

J. H. Friedman, Multivariate adaptive regression splines, The Annals of Statistics 19 (1991).

The one place where whatever a user gives becomes a problem.

Problems as plain values, for runs that are hashed, stored and computed elsewhere.

A problem made from a name or a formula is described by its recipe, which for measured data holds a hash of the values:
another version of the data is another problem. Any other problem, of a user's arrays or file, is described by a hash of
its data, which are put, once, into a cache folder under that hash: `GATELAB_CACHE`, or `~/.cache/gatelab`. On a cluster
every machine must see the same folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gatelab import tensors
from gatelab.arrays import Array
from gatelab.data.archives import cache_folder
from gatelab.data.catalogue import CATALOGUE, ProblemSpec
from gatelab.data.checks import MAX_POINTS, checked_protocol, deviation, seeds, whole
from gatelab.data.definition import PAPER, Problem
from gatelab.data.expression import INPUTS, Expression, parse
from gatelab.data.measured import DATASETS, fingerprint, load
from gatelab.data.rows import Data, Scales, standardised
from gatelab.errors import GatelabError, unknown_name

FRIEDMAN_POINTS = 2000


def friedman(
    number: int, *, n: int = FRIEDMAN_POINTS, n_test: int | None = None, noise: float = 0.0, seed: int = 0
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


POINTS = 10_000
# Covers names with hyphens such as paper-1d; "x-pi" is covered too, hence names are tried as formulas first.
_LIKE_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
AnyProblem = str | Callable[..., Any] | Problem | tuple[Any, Any]
_LIKE_A_FILE = re.compile(r"\.(csv|tsv|txt|dat|gz|parquet|pq|npy|npz)\s*$", re.IGNORECASE)


def problem(
    spec: AnyProblem,
    *,
    interval: tuple[float, float] | None = None,
    n: int | None = None,
    n_test: int | None = None,
    sampling: str = "random",
    noise: float = 0.0,
    seed: int = 0,
    standardise: bool | None = None,
    protocol: str = "split",
) -> Problem:
    """The problem that `spec` means: a registered name, a formula, a function of arrays, a pair (x, y) or a problem.

    A formula in x and y has two inputs, one in x1 to x5 has five (`parse` says more); a function has one, and
    `Problem.from_function` takes functions of several. The options are those of `Problem.from_function`; the interval
    defaults to the registered one, [-1, 1] for formulas and functions, n to 10 000.

    Friedman's problems have n = 2000 and take no interval and no sampling. Of measured data (airfoil, california) a
    fifth of the rows, chosen by the seed, is set aside for testing; n, where given, is how many of the others are
    trained on. Both are standardised by their training part unless `standardise=False`, formulas only on demand.

    A pair of arrays is what `Problem.from_arrays` makes of it; interval, seed, standardise and protocol may be given.

    `protocol="paper"` tests on the training data, as the reference code does; the problem's name then says so.

    >>> problem("paper-1d", n=100).interval
    (-1.0, 1.0)
    >>> problem("exp(sin(3*x))", interval=(0, 3), n=100).name
    'exp(sin(3*x))'
    >>> problem("sin(4*x)*sin(4*y)", n=100).train.x.shape
    (100, 2)
    >>> problem("friedman1", protocol="paper").name
    "friedman1 (paper's protocol)"
    >>> problem("rungee9")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: no problem is called 'rungee9'; did you mean 'runge9' or 'runge1' or 'runge9-2d'? ...
    """
    options = {"interval": interval, "n": n, "n_test": n_test, "sampling": sampling, "noise": noise, "seed": seed}
    if isinstance(spec, Problem):
        given = _given(options) + ["standardise"] * (standardise is not None) + ["protocol"] * (protocol != "split")
        if given:
            raise GatelabError(
                f"the problem {spec.name!r} holds its data already and takes no options; leave out"
                f" {', '.join(given)}, or give a name, a formula or a function"
            )
        return spec
    if isinstance(spec, tuple):
        return _pair(spec, options, bool(standardise), protocol)
    paper = checked_protocol(protocol)
    known = CATALOGUE.get(spec.strip().lower()) if isinstance(spec, str) else None
    if known and known.kind in _MAKERS:
        made, recipe = _MAKERS[known.kind](known, options, paper)
    else:
        made, recipe = _sampled(known or spec, options, paper)
    by_default = known is not None and known.standardise
    if standardise if standardise is not None else by_default:
        made = standardised(made)
    if not isinstance(spec, str):
        return made
    # Only what differs from the default: the hashes of stored results depend on recipes.
    if standardise is not None and bool(standardise) != by_default:
        recipe["standardise"] = bool(standardise)
    if paper:
        recipe["protocol"] = protocol
    return replace(made, recipe=recipe)


_DEFAULTS = {"interval": None, "n": None, "n_test": None, "sampling": "random", "noise": 0.0, "seed": 0}
_Made = tuple[Problem, dict[str, Any]]


def _given(options: dict[str, Any]) -> list[str]:
    """The names of the options that are not as they are by default."""
    # Identity first, since an interval may be an array, which has no one truth.
    return [k for k, v in options.items() if v is not (default := _DEFAULTS[k]) and (default is None or v != default)]


def _pair(spec: tuple[Any, ...], options: dict[str, Any], standardise: bool, protocol: str) -> Problem:
    if len(spec) != 2:
        raise GatelabError(f"the data are a tuple of {len(spec)}; give a pair of arrays (x, y)")
    if wrong := [name for name in _given(options) if name not in ("interval", "seed")]:
        raise GatelabError(f"a pair of arrays takes no {' and no '.join(wrong)}; leave it out, or give a formula")
    chosen = {name: options[name] for name in ("interval", "seed")}
    return Problem.from_arrays(*spec, **chosen, standardise=standardise, protocol=protocol)


def _sampled(spec: Any, options: dict[str, Any], paper: bool) -> _Made:
    known = spec if isinstance(spec, ProblemSpec) else None
    interval, n = options["interval"], POINTS if options["n"] is None else options["n"]
    interval = interval if interval is not None else known.interval if known and known.interval else (-1.0, 1.0)
    made = Problem.from_function(
        parse(known.expression) if known else _function(spec),
        **(options | {"interval": interval, "n": n}),
        name=known.name if known else None,
        protocol="paper" if paper else "split",
    )
    if known:
        where = f",{made.description.removeprefix(known.name)}" if known.inputs > 1 else ""
        made = replace(made, description=f"{known.expression}: {known.description}{where}")
    if not isinstance(spec, str | ProblemSpec):
        return made, {}
    ends = made.interval or tuple(float(end) for end in interval)
    told = {"spec": known.name if known else str(spec).strip(), "interval": list(ends)}
    return made, told | _plain(options | {"n": n}, ("n", "n_test", "sampling", "noise", "seed"))


def _friedman(known: ProblemSpec, options: dict[str, Any], paper: bool) -> _Made:
    _refuse(known, options, ("interval", "sampling"), "its inputs are drawn as scikit-learn draws them")
    if paper and options["n_test"] is not None:
        raise GatelabError("the paper's protocol tests on the training data; leave n_test out, or the protocol")
    chosen = {k: options[k] for k in ("n", "n_test", "noise", "seed")}
    chosen["n"] = FRIEDMAN_POINTS if chosen["n"] is None else chosen["n"]
    train, test = friedman(int(known.name[-1]), **chosen)
    f = parse(known.expression)
    told = f"{known.expression}: {known.description}"
    name = PAPER.format(known.name) if paper else known.name
    made = Problem(
        name, train, train if paper else test, f=f, description=told, columns=f.inputs, noise=float(chosen["noise"])
    )
    return made, {"spec": known.name} | _plain(chosen, tuple(chosen))


def _measured(known: ProblemSpec, options: dict[str, Any], paper: bool) -> _Made:
    _refuse(known, options, ("interval", "n_test", "sampling", "noise"), "its rows are measured")
    seed, n = options["seed"], options["n"]
    table = load(DATASETS[known.name])
    made = Problem.from_arrays(
        table.x,
        table.y,
        seed=seed,
        name=known.name,
        columns=table.columns,
        protocol="paper" if paper else "split",
    )
    recipe = {"spec": known.name, "content": fingerprint(table), "seed": int(seed)}
    if n is not None:
        n = whole("n", n, 2, made.train.n)
        # The beginning of one order: fewer rows are among more rows, as a study of the number of rows wants it.
        rows = np.random.default_rng(seeds(seed).spawn(1)[0]).permutation(made.train.n)[:n]
        train = Data(made.train.x[rows], made.train.y[rows])
        told = f"{n} of {made.description}"
        made = replace(made, train=train, test=train if paper else made.test, description=told)
        recipe["n"] = n
    return replace(made, description=f"{known.description}: {made.description}"), recipe


_MAKERS = {"friedman": _friedman, "data": _measured}


def _plain(options: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Options that have been checked, in Python's own types, whatever numbers of numpy's they were."""
    kinds = {"n": int, "n_test": int, "noise": float, "seed": int}
    return {k: v if (v := options[k]) is None else kinds.get(k, str)(v) for k in keys}


def _refuse(known: ProblemSpec, options: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    if wrong := [name for name in _given(options) if name in names]:
        raise GatelabError(f"{known.name} takes no {' and no '.join(wrong)}: {why}; leave it out")


def _function(spec: Any) -> Callable[..., Any]:
    if isinstance(spec, str):
        return _formula(spec)
    if callable(spec):
        return spec
    raise GatelabError(
        f"a problem cannot be made from {type(spec).__name__}; give a registered name, a formula in x or a"
        " function, for arrays the pair (x, y) and for files Problem.from_file(path)"
    )


def _formula(text: str) -> Expression:
    if _LIKE_A_FILE.search(text):
        raise GatelabError(f"{text!r} looks like a file; read it with Problem.from_file, or --data on the command line")
    try:
        return parse(text)
    except GatelabError:
        if text.strip() in INPUTS or not _LIKE_A_NAME.fullmatch(text.strip()):
            raise
    raise GatelabError(
        f"{unknown_name('problem', text.strip(), CATALOGUE)}; a formula in x is taken too, such as 'exp(sin(3*x))'"
    )


def describe(problem: Problem) -> dict[str, Any]:
    """The problem in plain values; `restore` makes it again.

    >>> describe(make("x2", n=50))["spec"]
    'x2'
    """
    if problem.recipe is not None:
        return dict(problem.recipe)
    arrays = {
        f"{side}_{axis}": np.ascontiguousarray(getattr(getattr(problem, side), axis))
        for side in ("train", "test")
        for axis in ("x", "y")
    }
    digest = hashlib.sha256(repr((problem.name, problem.interval)).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    key = digest.hexdigest()[:32]
    target = _file(key)
    if not target.exists():
        tensors.write_packed(target, tensors.pack(arrays))
    interval = None if problem.interval is None else list(problem.interval)
    description: dict[str, Any] = {"data": key, "name": problem.name, "interval": interval}
    # Only where there are any, and no names of targets: the hashes of stored results depend on it.
    if problem.columns:
        description["columns"] = list(problem.columns)
    if problem.scales is not None:
        description["scales"] = problem.scales.plain()
    return description


def restore(description: Mapping[str, Any]) -> Problem:
    """The problem that was described; the last few are kept, since a sweep asks for the same one again and again.

    >>> restore(describe(make("x2", n=50))).train.n
    50
    """
    return _restore(json.dumps(description, sort_keys=True))


@lru_cache(maxsize=4)
def _restore(text: str) -> Problem:
    description = json.loads(text)
    interval = tuple(description["interval"]) if description.get("interval") else None
    if "data" not in description:
        content = description.pop("content", None)
        made = problem(**(description | {"interval": interval}))
        if content is not None and made.recipe is not None and made.recipe["content"] != content:
            raise GatelabError(
                f"the data of {made.name!r} have changed: their hash is {made.recipe['content']}, the run was planned"
                f" with {content}; give this machine the same GATELAB_DATA, or plan the sweep again"
            )
        return made
    source = _file(description["data"])
    if not source.exists():
        raise GatelabError(
            f"the data of problem {description['name']!r} are not in {source.parent}; set GATELAB_CACHE to the folder "
            "that the sweep was started with, on every machine"
        )
    arrays = tensors.read(source, "delete it and start the sweep anew").arrays
    train, test = (Data(arrays[f"{side}_x"], arrays[f"{side}_y"]) for side in ("train", "test"))
    columns, scales = tuple(description.get("columns", ())), description.get("scales")
    return Problem(
        description["name"],
        train,
        test,
        interval,
        columns=columns,
        scales=None if scales is None else Scales.of_plain(scales),
    )


def _file(key: str) -> Path:
    return cache_folder() / "data" / f"{key}.safetensors"
