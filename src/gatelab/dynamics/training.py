"""What a training of two-layer networks gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from gatelab.display import counted, one_line
from gatelab.dynamics.inputs import Array
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Training:
    """Losses of networks of one unit, a row a seed: `losses` is (seeds, recorded steps).

    With several learning rates it is (rates, seeds, recorded steps), and so is all else that has a row a seed.
    `test_losses` is None without test data. `diverged` is the step at which a network's loss was no longer finite, or
    a million times what it was at the start, and -1 where it never was; from there on its losses are infinite.
    `start` are the outputs before the first step, (seeds, n, outputs).
    """

    unit: str
    width: int
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: Array
    losses: Array
    test_losses: Array | None
    diverged: np.ndarray
    start: Array
    seconds: float

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.unit}, width {self.width}: {counted(len(self.seeds), 'seed')}, {counted(len(self.lrs), 'rate')}, "
            f"{self.steps[-1]:.0f} steps",
        )

    @property
    def mean(self) -> Array:
        """The mean over the seeds, infinite where one diverged."""
        return self.losses.mean(axis=-2)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The t-interval of the mean over the seeds; NaN for a single one."""
        count = len(self.seeds)
        if count < 2:
            empty = np.full_like(self.mean, np.nan)
            return empty, empty
        with np.errstate(invalid="ignore"):
            reach = student.ppf(0.5 + level / 2, count - 1) * self.losses.std(axis=-2, ddof=1) / count**0.5
        return self.mean - reach, self.mean + reach

    def at(self, lr: float) -> Training:
        """Of several learning rates the one nearest to `lr`."""
        if self.losses.ndim == 2:
            raise GatelabError("this training has one learning rate; its losses are `losses`")
        i = int(np.argmin(np.abs(np.log(np.array(self.lrs) / lr))))
        test = None if self.test_losses is None else self.test_losses[i]
        return Training(
            self.unit,
            self.width,
            (self.lrs[i],),
            self.seeds,
            self.steps,
            self.losses[i],
            test,
            self.diverged[i],
            self.start,
            self.seconds,
        )

    def table(self) -> pd.DataFrame:
        """A row for every learning rate, seed and recorded step."""
        losses = self.losses.reshape(len(self.lrs), len(self.seeds), len(self.steps))
        index = pd.MultiIndex.from_product([self.lrs, self.seeds, self.steps], names=["lr", "seed", "step"])
        columns = {"loss": losses.ravel()}
        if self.test_losses is not None:
            columns["test_loss"] = self.test_losses.ravel()
        return pd.DataFrame(columns, index=index).reset_index()

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """The mean with its interval, a curve a rate; written to `path` or drawn into your own `ax` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.dynamics import Curve, losses_figure

        parts = [self] if self.losses.ndim == 2 else [self.at(lr) for lr in self.lrs]
        curves = [Curve(f"lr {p.lrs[0]:.3g}", p.steps, p.mean, *p.interval()) for p in parts]
        title = f"{self.unit} of width {self.width}, {len(self.seeds)} seeds"
        return saved(losses_figure(curves, title, ax=ax), path)
