"""The generalization gap of units: runs, their points (training loss, gap), and tests of differences between units."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.display import Compact, ProgressLike, counted, one_line, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.files import write_whole
from gatelab.plotting import looks, saved
from gatelab.plotting.kernels import Cloud, clouds_figure
from gatelab.train.comparison import Matched, PermutationTest, matched_gap, permutation_test
from gatelab.train.history import History
from gatelab.train.loop import train_many
from gatelab.train.members import Data
from gatelab.train.recipes import Recipe, recipe

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Comparison(Compact):
    """Two groups of runs, `first` and `second`, with a common setting `where`.

    `joint` tests the points (training loss, gap) by permutations of whole runs, `pointwise` by permutations of points,
    which are not independent. `matched` compares the gaps at equal training loss, None if there is none in common.
    """

    where: str
    first: str
    second: str
    runs: tuple[int, int]
    joint: PermutationTest
    pointwise: PermutationTest
    matched: Matched | None

    def row(self) -> dict[str, Any]:
        """The comparison as a row of a table."""
        joint, names = self.joint, {"difference": "value", "low": "low", "high": "high", "relative": "relative"}
        names |= {"standardized": "standardized", "p_matched": "p", "low_loss": "low_loss", "high_loss": "high_loss"}
        return {
            "where": self.where, "first": self.first, "second": self.second, "runs_first": self.runs[0],
            "runs_second": self.runs[1], "energy_distance": joint.distance, "energy_coefficient": joint.coefficient,
            "p": joint.p, "least_p": joint.least_p, "p_points": self.pointwise.p,
        } | {column: getattr(self.matched, name, np.nan) for column, name in names.items()}  # fmt: skip


def compare(where: str, first: str, second: str, a: Sequence[Array], b: Sequence[Array]) -> Comparison | None:
    """Compare two groups of runs of points (training loss, gap); None if a group is empty."""
    if not a or not b:
        return None
    matched = None
    with suppress(GatelabError):
        matched = matched_gap(a, b)
    joint, pointwise = permutation_test(a, b), permutation_test(a, b, exchange="points", permutations=1999)
    return Comparison(where, first, second, (len(a), len(b)), joint, pointwise, matched)


@dataclass(frozen=True, eq=False)
class Gap:
    """Runs of several units, optimizers and seeds: `histories`, and in `origin` the recorded device and date."""

    histories: tuple[History, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        settings = "; ".join(map(", ".join, self.settings()))
        return one_line(self, f"{counted(len(self.histories), 'training')}: {settings}")

    def settings(self) -> list[tuple[str, str]]:
        """The pairs (model, data), in order of appearance."""
        return list(dict.fromkeys((h.recipe.model, h.recipe.data) for h in self.histories))

    def units(self, model: str, data: str) -> list[str]:
        """The units, in order of appearance."""
        return list(dict.fromkeys(h.recipe.unit.name for h in self._of(model, data)))

    def optimizers(self, model: str, data: str) -> list[str]:
        """The optimizers, in order of appearance."""
        return list(dict.fromkeys(h.recipe.optimizer for h in self._of(model, data)))

    def runs(self, model: str, data: str, unit: str, optimizer: str) -> list[Array]:
        """The points of each run that did not diverge."""
        return [
            h.points
            for h in self._of(model, data)
            if (h.recipe.unit.name, h.recipe.optimizer) == (unit, optimizer) and h.diverged is None and len(h.points)
        ]

    def diverged(self) -> list[History]:
        """The runs that diverged."""
        return [h for h in self.histories if h.diverged is not None]

    def _of(self, model: str, data: str) -> Iterator[History]:
        return (h for h in self.histories if (h.recipe.model, h.recipe.data) == (model, data))

    def comparisons(self) -> list[Comparison]:
        """The first unit against each other one under each optimizer, then the first optimizer for each unit."""
        of_units, of_optimizers = [], []
        for setting in self.settings():
            units, optimizers = self.units(*setting), self.optimizers(*setting)
            of_units += [self.compare_units(*setting, o, units[0], u) for o, u in product(optimizers, units[1:])]
            of_optimizers += [
                self.compare_optimizers(*setting, u, optimizers[0], o) for u, o in product(units, optimizers[1:])
            ]
        return [comparison for comparison in (*of_units, *of_optimizers) if comparison is not None]

    def compare_units(self, model: str, data: str, optimizer: str, first: str, second: str) -> Comparison | None:
        """Compare two units under one optimizer; None if one of them has no run."""
        a, b = (self.runs(model, data, name, optimizer) for name in (first, second))
        return compare(f"{model}, {data}, {optimizer}", first, second, a, b)

    def compare_optimizers(self, model: str, data: str, unit: str, first: str, second: str) -> Comparison | None:
        """Compare two optimizers of one unit; None if one of them has no run."""
        a, b = (self.runs(model, data, unit, name) for name in (first, second))
        return compare(f"{model}, {data}, {unit}", first, second, a, b)

    def table(self) -> pd.DataFrame:
        """One row per comparison."""
        return pd.DataFrame([comparison.row() for comparison in self.comparisons()])

    def points(self) -> pd.DataFrame:
        """Every measurement of every run, including the warm-up and runs that diverged."""
        return pd.concat([h.table() for h in self.histories], ignore_index=True)

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """The gap against the training loss, one panel per setting, written to `path` or drawn into axes `ax`."""
        panels = [(f"{model}, {data}", self.clouds(model, data)) for model, data in self.settings()]
        return saved(clouds_figure(panels, "Generalization gap against training loss", ax=ax), path)

    def clouds(self, model: str, data: str, units: Sequence[str] | None = None) -> list[Cloud]:
        """The points of each unit and optimizer, with their colors and markers."""
        names, optimizers = units or self.units(model, data), self.optimizers(model, data)
        shapes = looks(names)
        return [
            Cloud(f"{name}, {optimizer}", runs, shapes[name].color, shapes[name].marker, hollow=i % 2 == 1)
            for name, (i, optimizer) in product(names, enumerate(optimizers))
            if (runs := self.runs(model, data, name, optimizer))
        ]

    def save(self, path: str | Path) -> Path:
        """All runs as one JSON file."""
        lines = json.dumps({"format": _FORMAT, **self.origin}, indent=1)[:-2]
        runs = ",\n  ".join(json.dumps(h.plain()) for h in self.histories)
        return write_whole(path, f'{lines},\n "runs": [\n  {runs}\n ]\n}}\n')

    @staticmethod
    def load(path: str | Path) -> Gap:
        """Read the runs that `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}, not {_FORMAT}")
            histories = tuple(History.from_plain(run) for run in content["runs"])
        except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise GatelabError(f"{path} is not a readable record of gaps ({error}); make it again") from error
        return Gap(histories, {k: v for k, v in content.items() if k not in ("format", "runs")})


def gap_recipes(
    units: Sequence[Any] = ("mlp", "glu"),
    *,
    model: str = "mixer",
    data: str | None = None,
    optimizers: Sequence[str] = ("sgd", "adamw"),
    seeds: int = 5,
    **others: Any,
) -> list[list[Recipe]]:
    """The recipes of each unit and optimizer.

    No two runs share a seed: if the unit has no effect, all runs of an optimizer are exchangeable, as the permutation
    test requires.

    Args:
        units: names or other arguments of `gl.unit`, each once.
        model: "mixer", "vit" or "gpt2".
        data: the name of the data; None for the default of the model.
        optimizers: "sgd", "adamw" or both.
        seeds: the number of runs per unit and optimizer.
        others: values of the recipes: size, steps, batch, lr and so on.

    Returns:
        A list of recipes for each unit and optimizer.

    >>> [[r.seed for r in group] for group in gap_recipes(["mlp", "glu"], optimizers=["sgd"], seeds=2)]
    [[0, 1], [2, 3]]
    """
    names = [as_unit(u).name for u in units]
    for what, values in (("units", names), ("optimizers", list(optimizers))):
        if not values or len(set(values)) < len(values):
            raise GatelabError(f"the {what} are {values}; give one or more, each once")
    whole_number("seeds", seeds, 1)
    return [
        [recipe(model, unit, data, optimizer=optimizer, seed=place * seeds + i, **others) for i in range(seeds)]
        for place, (unit, optimizer) in enumerate(product(units, optimizers))
    ]


def gap(
    units: Sequence[Any] = ("mlp", "glu"),
    *,
    model: str = "mixer",
    data: str | Data | None = None,
    optimizers: Sequence[str] = ("sgd", "adamw"),
    seeds: int = 5,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
    **others: Any,
) -> Gap:
    """Train every unit with every optimizer, to compare each unit with the first.

    Args:
        units: names or other arguments of `gl.unit`, each once.
        model: "mixer", "vit" or "gpt2".
        data: a name, or the data themselves; None for the default of the model.
        optimizers: "sgd", "adamw" or both.
        seeds: the number of runs per unit and optimizer, trained together. A p-value below 0.05 needs at least four.
        folder: for checkpoints, from which the same call resumes.
        device: as in `train_many`.
        progress: as in `train_many`.
        others: values of the recipes: size, steps, batch, lr and so on.

    Returns:
        All runs, as a `Gap`.
    """
    name, own_data = (data, None) if data is None or isinstance(data, str) else (data.name, data)
    groups = gap_recipes(units, model=model, data=name, optimizers=optimizers, seeds=seeds, **others)
    histories: list[History] = []
    with reporting(progress, "training") as report:
        for i, (first, *_) in enumerate(groups):

            def show(step: int, steps: int, text: str, i: int = i) -> None:
                if report:  # all groups have the same number of steps
                    report(i * steps + step, len(groups) * steps, text)

            name = f"{first.model}-{first.unit.name}-{first.optimizer}-"
            own_folder = folder and Path(folder) / f"{name}{first.key()}"
            histories += train_many(groups[i], folder=own_folder, data=own_data, device=device, progress=show)
    return Gap(tuple(histories))
