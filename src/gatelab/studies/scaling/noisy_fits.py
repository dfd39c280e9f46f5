"""Fits of noisy data that vary parameters and data alike: how they are measured, and the law that noise asks for.

With noise of deviation s on the training targets the error on clean test data has two sources that add up in squares:
what P parameters cannot represent, and what D data leave undetermined of them,

    RMSE^2 = (A / P^a)^2 + (c s)^2 P / D,      c near 1 by theory for P far below D.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from gatelab.arrays import Array
from gatelab.data import Problem, problem
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Point
from gatelab.studies.definition import Request
from gatelab.studies.scaling.error_curves import fit_curves
from gatelab.theory import estimation_rmse


@dataclass(frozen=True)
class NoisyPlan:
    """What is fitted. The data are drawn again for each draw; test data are clean and the same for every D.

    Attributes:
        units: The units.
        widths: The widths of each.
        data: How many training data, D.
        draws: How many times the data are drawn.
        noise: The deviation of the noise on the training targets.
        tests: How many test data.
        starts: The starts of each fit.
        rounds: The rounds of each fit.
        steps: The steps of each fit, None for the solver's own number.
    """

    units: tuple[str, ...] = ("mlp", "glu", "swiglu")
    widths: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16)
    data: tuple[int, ...] = (200, 400, 800, 1600, 3200, 6400)
    draws: int = 2
    noise: float = 0.5
    tests: int = 4000
    starts: int = 2
    rounds: int = 8
    steps: int | None = None

    def target(self, data: int, draw: int, noise: float | None = None) -> Problem:
        """Friedman 1 in its own units: standardised, every draw would have a noise of its own."""
        if noise is None:
            noise = self.noise
        return problem("friedman1", n=data, n_test=self.tests, noise=noise, seed=draw, standardise=False)

    def fitted_widths(self, data: int) -> tuple[int, ...]:
        """Those whose networks have no more parameters than there are data.

        >>> NoisyPlan().fitted_widths(200), NoisyPlan().fitted_widths(400)
        ((2, 3, 4, 6, 8, 12), (2, 3, 4, 6, 8, 12, 16))
        """
        inputs = 5
        most = {w: max(as_unit(u).parameter_count(w, inputs) for u in self.units) for w in self.widths}
        return tuple(w for w in self.widths if most[w] <= data)

    @property
    def how(self) -> dict[str, Any]:
        """The options of the solver."""
        return {"starts": self.starts, "rounds": self.rounds, "steps": self.steps}

    @property
    def fits(self) -> int:
        """How many fits there are, with those without noise."""
        noisy = sum(len(self.fitted_widths(D)) for D in self.data) * self.draws
        return len(self.units) * (noisy + len(self.widths))


QUICK = NoisyPlan(
    ("mlp", "glu"), (1, 2, 3), (100, 200, 400), draws=1, noise=1.0, tests=400, starts=1, rounds=0, steps=5
)


@dataclass(frozen=True)
class NoisyFit:
    """A fit of a unit to `data` points with noise, of which `draw` is the number; `point` holds its errors."""

    unit: str
    data: int
    draw: int
    point: Point

    @property
    def left_out(self) -> bool:
        """Whether the laws leave it out: its parameters are half the data or more."""
        return self.point.flag == "interpolation"


def measure_noisy(request: Request, plan: NoisyPlan, tick: Callable[..., None]) -> tuple[NoisyFit, ...]:
    """Every fit of the plan that has noise."""
    return tuple(
        NoisyFit(p.unit, D, draw, p)
        for D in plan.data
        for draw in range(plan.draws)
        for p in fit_curves(request, plan.units, plan.target(D, draw), plan.fitted_widths(D), tick, **plan.how).points
    )


@dataclass(frozen=True)
class NoiseLaw:
    """RMSE^2 = (A / P^a)^2 + (c s)^2 P / D; `rmse` is that of log RMSE."""

    A: float
    a: float
    c: float
    noise: float
    rmse: float

    def predict(self, P: Array | float, D: Array | float) -> Array:
        """The RMSE of P parameters on D data."""
        shape, estimation = self.parts(P, D)
        return np.sqrt(shape**2 + estimation**2)

    def parts(self, P: Array | float, D: Array | float) -> tuple[Array, Array]:
        """What the network cannot represent, and what the data leave undetermined."""
        P, D = np.asarray(P, float), np.asarray(D, float)
        return self.A * P**-self.a, self.c * np.asarray(estimation_rmse(self.noise, P, D))


def fit_noise_law(P: Array, D: Array, L: Array, noise: float) -> NoiseLaw:
    """The noise law of the least squares of log L.

    >>> P, D = (z.ravel() for z in np.meshgrid([10.0, 30.0, 90.0], [300.0, 1000.0, 3000.0]))
    >>> law = fit_noise_law(P, D, NoiseLaw(20.0, 1.1, 0.9, 0.5, 0.0).predict(P, D), 0.5)
    >>> round(law.A, 6), round(law.a, 6), round(law.c, 6)
    (20.0, 1.1, 0.9)
    """
    P, D, L = (np.asarray(z, float) for z in (P, D, L))

    def law(x: Array) -> NoiseLaw:
        return NoiseLaw(float(np.exp(x[0])), float(x[1]), float(np.exp(x[2])), noise, np.nan)

    def residual(x: Array) -> Array:
        return np.log(law(x).predict(P, D) / L)

    starts = [np.array([np.log(L.max()) + a * np.log(P.min()), a, 0.0]) for a in (0.5, 1.0, 2.0)]
    best = min((least_squares(residual, start) for start in starts), key=lambda end: end.cost)
    return replace(law(best.x), rmse=float(np.sqrt(np.mean(best.fun**2))))


def columns(fits: Sequence[NoisyFit]) -> tuple[Array, Array, Array]:
    """P, D and the test RMSE."""
    rows = [(f.point.parameters, f.data, f.point.test_rmse) for f in fits]
    P, D, L = np.array(rows, float).reshape(-1, 3).T
    return P, D, L
