"""Slopes with intervals, and their references: the free-knot limit, the noise of the data, splines.

Points are (size, error) with several seeds per size, of which the best or the median is used. Intervals are Student's,
from the residuals of the line; fewer than four sizes give none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy.interpolate import make_lsq_spline

from gatelab.arrays import real_array
from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.registry import AnyProblem
from gatelab.data.rows import require_range
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.specification import check_widths
from gatelab.statistics import LEVEL, Interval, check_level, t_reach
from gatelab.theory.limits import free_knot_rmse, noise_of_data, norm_of_data, norm_of_function, sigma
from gatelab.theory.smooth_gates import singularities, smooth_error

Aggregate = Literal["best", "median"]
# Fewer sizes leave at most one degree of freedom, with an interval of 13 standard errors.
LEAST_SIZES = 4
# The solver, or noise, matters if the error exceeds by this factor its value without them.
ABOVE = 1.1


@dataclass(frozen=True, repr=False)
class Slope(Interval):
    """A log-log slope of `points` sizes: an `Interval`, with the intercept in error ~ exp(intercept) size^slope.

    >>> print(Slope(-2.1, -2.25, -1.951, intercept=0.5, points=9))
    -2.10 [-2.25, -1.95]
    >>> Slope(-2.1, np.nan, np.nan, intercept=0.5, points=3)
    Slope(-2.10, of 3 sizes, no interval below four)
    """

    # The inherited level has a default, but is keyword-only.
    intercept: float  # pyright: ignore[reportGeneralTypeIssues]
    points: int  # pyright: ignore[reportGeneralTypeIssues]
    level: float = field(default=LEVEL, kw_only=True)

    def __repr__(self) -> str:
        known = ", no interval below four" * (not self.known)
        return one_line(self, f"{self}, of {counted(self.points, 'size')}{known}")

    def __format__(self, form: str) -> str:
        return super().__format__(form or ".2f")


def slope(sizes: np.ndarray, errors: np.ndarray, *, aggregate: Aggregate = "best", level: float = LEVEL) -> Slope:
    """The log-log slope of errors against sizes, with its t-interval.

    The interval assumes independent log errors of equal variance about a line.

    Args:
        sizes: the numbers of neurons or parameters.
        errors: (sizes,) or (sizes, seeds), above 0; NaN marks an error to leave out.
        aggregate: over the seeds of a size, "best" or "median".
        level: of the interval.

    Returns:
        The slope; with fewer than four sizes its interval is NaN.

    >>> n = np.arange(10, 60)
    >>> str(slope(n, 3.0 * n[:, None] ** -2.0))
    '-2.00 [-2.00, -2.00]'
    """
    check_level(level)
    log_n, log_e = _measured(sizes, errors, aggregate)
    different = len(np.unique(log_n))
    if different < 2:
        raise GatelabError(f"a slope needs two sizes, and {different} are left after exclusions; give more")
    return line(log_n, log_e, level, known=different >= LEAST_SIZES)


def line(x: np.ndarray, y: np.ndarray, level: float = LEVEL, *, known: bool = True) -> Slope:
    """The least-squares line through y, with the t-interval of its slope if enough sizes make it `known`."""
    value, intercept = np.polyfit(x, y, 1)
    reach, points = np.nan, len(x)
    if known:
        left = y - intercept - value * x
        error = np.sqrt(left @ left / (points - 2)) / np.linalg.norm(x - x.mean())
        reach = t_reach(level, points - 2) * float(error)
    value = float(value)
    return Slope(value, value - reach, value + reach, intercept=float(intercept), points=points, level=level)


@dataclass(frozen=True)
class Decay:
    """The form in which errors fall with the size s: s^-a ("power"), exp(-a s) or exp(-a s^1/2).

    `form` has the least residuals, `rates` are the a of each form, and `p_values` those of each against the others.
    """

    form: str
    rates: dict[str, Slope]
    p_values: dict[str, float]

    def __repr__(self) -> str:
        others = " or ".join(name for name in self.accepted if name != self.form)
        return one_line(self, f"{self.form}, rate {self.rate:.3g}" + f"; {others} not rejected" * bool(others))

    @property
    def rate(self) -> Slope:
        """The rate of the form: for "exponential" that per neuron or parameter."""
        return self.rates[self.form]

    @property
    def accepted(self) -> tuple[str, ...]:
        """The forms whose p-value is not below 5 %."""
        return tuple(name for name, p in self.p_values.items() if p >= 1 - LEVEL)


def decay(sizes: np.ndarray, errors: np.ndarray) -> Decay:
    """Which of three forms errors fall in, by a test, and the rate of each form.

    A form is a line of log errors against log s, s or the root of s. Its p-value is the share of 999 curves about its
    line, with its residual variance, in which its residuals exceed those of the others by the measured ratio.

    Args:
        sizes: the numbers of neurons or parameters, five or more.
        errors: (sizes,) or (sizes, seeds), of which the smallest is used; above 0, NaN marks an error to leave out.

    Returns:
        The form with its rate, and what the test says of the others.

    >>> n = np.arange(1, 13)
    >>> decay(n, 3 * np.exp(-0.7 * n)).form, decay(n, 3 * n**-2.0).form
    ('exponential', 'power')
    """
    log_n, log_e = _measured(sizes, errors)
    count = len(np.unique(log_n))
    if count <= LEAST_SIZES:
        raise GatelabError(f"a form needs {LEAST_SIZES + 1} sizes, and {count} are left after exclusions; give more")
    axes = {"power": log_n, "exponential": np.exp(log_n), "root-exponential": np.exp(log_n / 2)}
    lines = {name: line(-x, log_e, LEVEL) for name, x in axes.items()}
    bases = [np.linalg.qr(np.stack((np.ones_like(x), x), axis=1))[0] for x in axes.values()]
    draws = np.random.default_rng(0).standard_normal((999, len(log_e)))

    def squares(curves: np.ndarray) -> np.ndarray:
        """The sums of squared residuals of curves (..., sizes), one for each form, at least those of rounding."""
        return np.stack([np.square(curves - curves @ Q @ Q.T).sum(axis=-1) + 1e-20 for Q in bases], axis=-1)

    left, p_values = squares(log_e), {}
    for i, (name, Q) in enumerate(zip(axes, bases, strict=True)):
        deviation = max(np.sqrt(left[i] / (len(log_e) - 2)), 1e-6)
        drawn = squares(Q @ (Q.T @ log_e) + deviation * draws)
        excess = drawn[:, i] / np.delete(drawn, i, axis=1).min(axis=1)
        p_values[name] = float((1 + np.sum(excess >= left[i] / np.delete(left, i).min())) / 1000)
    return Decay(list(axes)[int(np.argmin(left))], lines, p_values)


def _logarithms(sizes: Any, errors: Any, aggregate: Aggregate = "best") -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the sizes and of one error per size, NaN for errors left out."""
    if aggregate not in get_args(Aggregate):
        raise unknown_name("aggregate", str(aggregate), get_args(Aggregate))
    n, e = real_array("the array of sizes", sizes), np.atleast_2d(real_array("the array of errors", errors).T).T
    if n.ndim != 1 or e.ndim != 2 or len(n) != len(e):
        raise GatelabError(f"sizes have shape {np.shape(sizes)} and errors {np.shape(errors)}; give a row per size")
    for what, values, wrong in (("a size", n, ~(np.isfinite(n) & (n > 0))), ("an error", e, e <= 0)):
        if wrong.any():
            raise GatelabError(f"{what} is {values[wrong][0]:g}; a slope is one of logarithms: give numbers > 0 or NaN")
    return np.log(n), aggregated(np.log(e), aggregate)


def _measured(sizes: Any, errors: Any, aggregate: Aggregate = "best") -> tuple[np.ndarray, np.ndarray]:
    """The logarithms without errors left out."""
    log_n, log_e = _logarithms(sizes, errors, aggregate)
    return log_n[np.isfinite(log_e)], log_e[np.isfinite(log_e)]


def corrected_slope(sizes: np.ndarray, errors: np.ndarray) -> float:
    """The slope s of log error = a + s log n + b/n: an estimate of the asymptotic order.

    Networks approach their limit like a power law times 1 + O(1/n), which biases a plain slope.

    Args:
        sizes: the numbers of neurons, four or more.
        errors: (sizes,) or (sizes, seeds), of which the smallest is used; NaN marks an error to leave out.

    Returns:
        The slope s.

    >>> n = np.arange(50, 201, 10)
    >>> plain, corrected = slope(n, n**-4.0 * np.exp(-10 / n)).value, corrected_slope(n, n**-4.0 * np.exp(-10 / n))
    >>> round(plain, 2), round(corrected, 2)
    (-3.9, -4.0)
    """
    log_n, log_e = _measured(sizes, errors)
    if len(np.unique(log_n)) < 4:
        raise GatelabError(f"a corrected slope needs four sizes, and {len(log_n)} are left after exclusions; give more")
    design = np.stack((np.ones(len(log_n)), log_n, np.exp(-log_n)), axis=1)
    return float(np.linalg.lstsq(design, log_e, rcond=None)[0][1])


def local_slopes(sizes: np.ndarray, errors: np.ndarray, *, window: int = 5) -> np.ndarray:
    """The slope of the line through neighboring sizes, for each size.

    Args:
        sizes: the numbers of neurons or parameters, in order.
        errors: one for each size; NaN marks an error to leave out.
        window: the number of sizes per line.

    Returns:
        A slope for each size; NaN with fewer than two errors.

    >>> local_slopes(np.array([1, 2, 4, 8, 16]), np.array([1, 1 / 4, 1 / 16, 1 / 64, 1 / 256.0])).round(6)
    array([-2., -2., -2., -2., -2.])
    """
    log_n, log_e = _logarithms(sizes, errors)
    out = np.full(len(log_n), np.nan)
    reach = whole_number("window", window, 2) // 2
    for i in range(len(log_n)):
        near = slice(max(0, i - reach), i + reach + 1)
        ok = np.isfinite(log_e[near])
        if len(np.unique(log_n[near][ok])) >= 2:
            out[i] = np.polyfit(log_n[near][ok], log_e[near][ok], 1)[0]
    return out


def aggregated(log_e: np.ndarray, aggregate: Aggregate) -> np.ndarray:
    """The minimum or the median of the finite values along the last axis; NaN if there are none."""
    measured = np.ma.masked_invalid(log_e)
    chosen = measured.min(axis=-1) if aggregate == "best" else np.ma.median(measured, axis=-1)
    return np.ma.filled(chosen, np.nan)


def limit(unit: str | AnyUnit | Callable[..., Any], problem: AnyProblem, width: Any) -> Any:
    """The free-knot limit c_m n^-m ||f^(m)||_{L_sigma} / sqrt(|I|): the asymptotic RMSE of the best n cells.

    Args:
        unit: a unit whose gate is a power of relu, which has an algebraic rate.
        problem: with one input and one output. The norm is that of its function, if it has one, else estimated from
            its training data; data that are too noisy or have a kink raise an error.
        width: a number of neurons, or an array of them.

    Returns:
        A number, or an array of the shape of `width`.

    >>> float(f"{limit('glu', 'paper-1d', 50):.3e}")
    1.068e-05
    """
    chosen, target = as_unit(unit), as_problem(problem)
    if chosen.order is None:
        raise GatelabError(f"{chosen.name!r} has no known algebraic rate, so no limit; look at its local slopes")
    if target.interval is None or target.d_out != 1:
        raise GatelabError(f"problem {target.name!r} has no free-knot limit; give one with one input and one output")
    require_range(target.train.x, target.train.y)
    widths = np.vectorize(check_width, otypes=[float])(np.asarray(width, dtype=object))
    (a, b), order = target.interval, chosen.order
    if target.f is not None:
        norm = norm_of_function(target.f, (a, b), order, sigma(order))
    else:
        norm = norm_of_data(target.train.x[:, 0], target.train.y[:, 0], (a, b), order, sigma(order))
    value = free_knot_rmse(norm, widths, order, b - a)
    if np.ndim(width) == 0:
        return float(value)
    return value


def predicted_rate(unit: str | AnyUnit, problem: AnyProblem, widths: Any) -> float:
    """The conjectured rate per parameter of a unit with a silu or sigmoid gate, from the poles of the target.

    It is the slope of the logarithm of `gatelab.theory.smooth_error` over the widths, positive if errors fall: compare
    it with the rate of `decay`.

    Args:
        unit: with a silu or sigmoid gate and at most one factor.
        problem: with one input and a function.
        widths: two or more numbers of neurons.

    Returns:
        The rate, in natural logarithms.

    >>> round(predicted_rate("swiglu", "paper-1d", range(3, 9)), 2)
    0.71
    """
    chosen, target = as_unit(unit), as_problem(problem)
    sizes = np.array(check_widths(widths))
    if not isinstance(chosen, Unit) or chosen.gate.name not in ("silu", "sigmoid") or chosen.factors > 1:
        raise GatelabError(f"{chosen.name!r} has no predicted rate; give a silu or sigmoid gate and at most one factor")
    if target.f is None or target.interval is None or len(set(sizes.tolist())) < 2:
        raise GatelabError("a predicted rate needs a function of one input and two widths; give them")
    found = singularities(target.f, target.interval)
    if not found.poles:
        raise GatelabError(f"problem {target.name!r} has no poles nearby: its decay is {found.decline}, without a rate")
    errors = smooth_error(found.poles, target.interval, chosen.factors, sizes)
    parameters = [chosen.parameter_count(width) for width in sizes.tolist()]
    return float(-np.polyfit(parameters, np.log(errors), 1)[0])


def noise_of(problem: Problem) -> float | None:
    """The standard deviation of the noise on the training targets: known, or estimated for one input; else None.

    >>> noise_of(as_problem("sin4x", n=200, noise=0.1))
    0.1
    """
    if problem.noise is not None or problem.interval is None or problem.d_out != 1:
        return problem.noise
    return noise_of_data(problem.train.x[:, 0], problem.train.y[:, 0], problem.interval)


def noise_rmse(problem: Problem, noise: float, parameters: int) -> float:
    """The part of the test RMSE due to noise, for the best fit with P parameters to N values.

    It is sigma (P/N)^1/2 on clean test points, sigma (1 + P/N)^1/2 on rows as noisy as the training rows, and
    sigma (1 - P/N)^1/2 on these themselves, the paper's protocol.

    >>> round(noise_rmse(as_problem("sin4x", n=400, noise=0.1), 0.1, 16), 6)
    0.02
    """
    estimation = noise * float(np.sqrt(parameters / (problem.train.n * problem.d_out)))
    if problem.test is problem.train:
        return float(np.sqrt(max(noise**2 - estimation**2, 0.0)))
    if problem.f is not None:
        return estimation
    return float(np.hypot(noise, estimation))


def set_by_noise(error: float, floor: float) -> bool:
    """Whether an error would be smaller by a tenth or more without the part due to noise.

    >>> set_by_noise(1.0, 0.4), set_by_noise(1.0, 0.5)
    (False, True)
    """
    return floor**2 > (1 - ABOVE**-2) * error**2


def spline_baseline(degree: int, problem: AnyProblem, nodes: int) -> tuple[float, float]:
    """The least-squares spline with equally spaced control nodes: the paper's baseline (fig. 5).

    Args:
        degree: 1, 2 or 3.
        problem: with one input.
        nodes: the number of control nodes, including the ends.

    Returns:
        Its training and test RMSE.

    >>> train, test = spline_baseline(1, "paper-1d", 50)
    >>> f"{test:.1e}"
    '5.4e-04'
    """
    target = as_problem(problem)
    if degree not in (1, 2, 3):
        raise GatelabError(f"degree is {degree}; give 1, 2 or 3")
    nodes = whole_number("nodes", nodes, 2)
    if target.interval is None:
        raise GatelabError(f"problem {target.name!r} has {target.d_in} inputs; give one with one input")
    a, b = target.interval
    inner = np.linspace(a, b, nodes)[1:-1]
    knots = np.concatenate((np.full(degree + 1, a), inner, np.full(degree + 1, b)))
    rank = np.argsort(target.train.x[:, 0], kind="stable")
    try:
        fitted = make_lsq_spline(target.train.x[rank, 0], target.train.y[rank, 0], knots, degree)
    except (ValueError, np.linalg.LinAlgError):
        raise GatelabError(f"{target.train.n} points do not determine {nodes} nodes; give more data") from None
    train, test = (
        float(np.sqrt(np.mean(np.square(fitted(d.x[:, 0]) - d.y[:, 0])))) for d in (target.train, target.test)
    )
    return train, test
