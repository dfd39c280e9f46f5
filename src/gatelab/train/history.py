"""The result of a training: losses over the steps, speed, and the step at which it diverged, if it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.plotting import look, saved
from gatelab.plotting.kernels import PlotLine, lines_figure
from gatelab.train.recipes import Recipe

COLUMNS = ("train", "test", "running", "accuracy", "averaged", "lr", "seconds")
FACTS = ("counted", "together", "parameters", "device", "diverged")


@dataclass(frozen=True, eq=False)
class History:
    """Losses after `steps` updates, in nats per sample or token; entry i of every array belongs to `steps[i]`.

    `train` and `test` are measured without augmentation on the same number of samples; their difference is the gap.
    `running` is the mean loss of the training batches since the previous entry, `accuracy` that on the test data, `lr`
    the rate of the last update, and `averaged` the test loss of averaged weights, if the recipe has them.

    `throughput` is the number of `counted` (images or tokens) per second of all models trained `together`, `parameters`
    that of one model, and `diverged` the update at which a training diverged; its entries end before that.
    """

    recipe: Recipe
    steps: NDArray[np.int64]
    train: Array
    test: Array
    running: Array
    accuracy: Array
    averaged: Array
    lr: Array
    seconds: Array
    throughput: float
    counted: str
    together: int
    parameters: int
    device: str
    diverged: int | None = None

    def __repr__(self) -> str:
        return one_line(self, str(self))

    @property
    def gap(self) -> Array:
        """Test loss minus training loss."""
        return self.test - self.train

    @property
    def points(self) -> Array:
        """Training loss and gap after the warm-up, (entries, 2); earlier ones depend on the initialization."""
        return np.stack([self.train, self.gap], 1)[self.steps >= max(1, self.recipe.warmup)]

    def table(self) -> pd.DataFrame:
        """One row per entry, with the column names of the gap's records."""
        r = self.recipe
        names = {"model": r.model, "data": r.data, "unit": r.unit.name, "optimizer": r.optimizer, "seed": r.seed}
        columns = {"step": self.steps, **{name: getattr(self, name) for name in COLUMNS}, "gap": self.gap}
        return pd.DataFrame({**{k: [v] * len(self.steps) for k, v in names.items()}, **columns})

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Training and test loss over the steps; written to `path` or drawn into your own `ax` if given."""
        steps, r = self.steps.astype(np.float64), self.recipe
        parts = (("training", self.train, "mlp"), ("test", self.test, "glu"))
        curves = [PlotLine(name, steps, losses, color=look(unit).color) for name, losses, unit in parts]
        return saved(lines_figure(curves, f"{r.model} with {r.unit.name} on {r.data}", y="loss (nats)", ax=ax), path)

    def __str__(self) -> str:
        r = self.recipe
        name = f"{r.model} with {r.unit.name} on {r.data}, {r.optimizer}, seed {r.seed}"
        if self.diverged is not None:
            return f"{name}: diverged at step {self.diverged + 1} of {r.steps}; a smaller lr than {r.lr:g} may not"
        losses = f"train {self.train[-1]:.3f}, test {self.test[-1]:.3f}, gap {self.gap[-1]:.3f}"
        accuracy = f"accuracy {self.accuracy[-1]:.1%} after {self.steps[-1]} steps"
        return f"{name}: {losses}, {accuracy}; {self.throughput:.0f} {self.counted}/s"

    def plain(self) -> dict[str, Any]:
        """The history in JSON's types, with numbers rounded to six digits; NaN becomes null."""
        return {
            "recipe": self.recipe.plain(),
            "steps": self.steps.tolist(),
            **{name: [rounded(v) for v in getattr(self, name)] for name in COLUMNS},
            "throughput": rounded(self.throughput),
            **{name: getattr(self, name) for name in FACTS},
        }

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> History:
        """Read the history that `plain` wrote."""
        absent = [None] * len(values["steps"])  # in older records
        return History(
            recipe=Recipe.from_plain(values["recipe"]),
            steps=np.array(values["steps"], np.int64),
            **{name: np.array(values.get(name, absent), float) for name in COLUMNS},  # null becomes NaN
            throughput=float(np.array(values["throughput"], float)),
            **{name: values[name] for name in FACTS},
        )


def rounded(value: float) -> float | None:
    """A number with six digits; None unless it is finite."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
