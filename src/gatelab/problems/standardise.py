"""Inputs and targets in units of their own spread: mean 0 and standard deviation 1 on the training part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gatelab.display import counted, one_line, shorten
from gatelab.errors import GatelabError
from gatelab.problems.checks import Array, varying
from gatelab.problems.data import Data
from gatelab.problems.sample import Function

if TYPE_CHECKING:
    from gatelab.problems.problem import Problem

TOLD = "inputs and target standardised by the mean and standard deviation of the training part"


@dataclass(frozen=True, eq=False)
class Scale:
    """The mean and the standard deviation of each column; 1 for a column that does not vary.

    >>> scale = Scale.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> scale.shrink(np.array([[3.0, 6.0]])), scale.stretch(np.array([[1.0, 1.0]]))
    (array([[1., 1.]]), array([[3., 6.]]))
    """

    mean: Array
    deviation: Array

    def __repr__(self) -> str:
        return one_line(self, f"of {counted(len(self.mean), 'column')}")

    @classmethod
    def of(cls, rows: Array) -> Scale:
        with np.errstate(all="ignore"):
            mean = rows.mean(axis=0)
            # By the largest, since the squares of 1e-200 vanish and those of 1e200 overflow.
            largest = np.abs(rows - mean).max(axis=0)
            deviation = np.where(varying(rows), largest * ((rows - mean) / largest).std(axis=0), 1.0)
        if not (np.isfinite(mean) & np.isfinite(deviation) & (deviation > 0)).all():
            size = np.abs(rows).max()
            raise GatelabError(
                f"the mean and standard deviation of values up to {size:g} cannot be computed in double precision;"
                " rescale the columns, or do not standardise"
            )
        return cls(mean, deviation)

    def shrink(self, rows: Array) -> Array:
        return (rows - self.mean) / self.deviation

    def stretch(self, rows: Array) -> Array:
        return rows * self.deviation + self.mean


@dataclass(frozen=True, eq=False)
class Scales:
    """How the inputs and the targets of a problem were standardised, and with that the way back to raw values.

    >>> scales = Scales(Scale(np.array([1.0]), np.array([2.0])), Scale(np.array([10.0]), np.array([5.0])))
    >>> scales.x.shrink(np.array([[3.0]])), scales.y.stretch(np.array([[1.0]]))
    (array([[1.]]), array([[15.]]))
    """

    x: Scale
    y: Scale

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.x.mean), 'input')}, {counted(len(self.y.mean), 'output')}")

    def plain(self) -> dict[str, dict[str, list[float]]]:
        """As lists of numbers, which `of_plain` takes back to the last bit."""
        return {
            axis: {"mean": scale.mean.tolist(), "deviation": scale.deviation.tolist()}
            for axis, scale in (("x", self.x), ("y", self.y))
        }

    @classmethod
    def of_plain(cls, values: Mapping[str, Mapping[str, Sequence[float]]]) -> Scales:
        """The scales of such lists; KeyError, TypeError or ValueError where they are none."""
        scales = []
        for axis in ("x", "y"):
            mean, deviation = (np.array(values[axis][name], dtype=np.float64) for name in ("mean", "deviation"))
            if mean.ndim != 1 or mean.shape != deviation.shape or not (np.isfinite(mean) & (deviation > 0)).all():
                raise ValueError(f"the means and deviations of {axis} are no scale")
            scales.append(Scale(mean, deviation))
        return cls(*scales)


@dataclass(frozen=True, eq=False)
class Standardised:
    """The function between standardised inputs and standardised targets."""

    f: Function
    scales: Scales

    def __repr__(self) -> str:
        return one_line(self, f"{shorten(getattr(self.f, '__name__', str(self.f)))} between standardised columns")

    def __call__(self, x: Array) -> Array:
        return self.scales.y.shrink(self.f(self.scales.x.stretch(x)))


def standardised(problem: Problem) -> Problem:
    """The problem with inputs and targets standardised by its training part, which its `scales` undo.

    Errors are then in units of the target's spread: 1 is what the mean alone achieves.

    >>> from gatelab.problems import Problem
    >>> p = standardised(Problem.from_function(np.exp, interval=(0, 1), n=100))
    >>> bool(abs(p.train.y.mean()) < 1e-12), float(p.train.y.std().round(12)), p.test.n
    (True, 1.0, 100)
    >>> p.scales.y.stretch(p.train.y).min() >= 1
    np.True_
    """
    if problem.scales is not None:
        raise GatelabError(f"the problem {problem.name!r} is standardised already; leave standardise out")
    x, y = Scale.of(problem.train.x), Scale.of(problem.train.y)
    train = Data(x.shrink(problem.train.x), y.shrink(problem.train.y))
    paper = problem.test is problem.train
    interval = problem.interval
    if interval is not None:
        a, b = (float(x.shrink(np.array([end]))[0]) for end in interval)
        interval = (a, b)
    noise = None if problem.noise is None else float(problem.noise * np.sqrt(np.mean(y.deviation**-2.0)))
    return replace(
        problem,
        train=train,
        test=train if paper else Data(x.shrink(problem.test.x), y.shrink(problem.test.y)),
        interval=interval,
        f=None if problem.f is None else Standardised(problem.f, Scales(x, y)),
        description="; ".join(filter(None, (problem.description, TOLD))),
        scales=Scales(x, y),
        noise=noise,
    )
