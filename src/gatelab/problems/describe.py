"""Problems as plain values, for runs that are hashed, stored and computed elsewhere.

A problem made from a name or a formula is described by its recipe, which for measured data holds a hash of the values:
another version of the data is another problem. Any other problem, of a user's arrays or file, is described by a hash of
its data, which are put, once, into a cache folder under that hash: `GATELAB_CACHE`, or `~/.cache/gatelab`. On a cluster
every machine must see the same folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gatelab import tensors
from gatelab.errors import GatelabError
from gatelab.problems.data import Data
from gatelab.problems.folders import cache_folder
from gatelab.problems.problem import Problem
from gatelab.problems.registry import problem as make
from gatelab.problems.standardise import Scales


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
        made = make(**(description | {"interval": interval}))
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
