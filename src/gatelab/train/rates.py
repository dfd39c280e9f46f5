"""Learning rates: the best of a sweep, the excess loss of another, extensions of a sweep, and a rule across sizes.

A sweep is a list of learning rates in any order, with a loss for each, NaN if the training diverged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError
from gatelab.statistics import Interval, t_interval

FACTOR = 2.0  # between two learning rates of a sweep
WIDTH, STEPS = 128, 1000  # d_model and number of updates to which the scales of a rule refer


def rounded_rate(rate: float, digits: int = 3) -> float:
    """A learning rate rounded to a few digits, so that equal rates have equal keys in a store."""
    return float(f"{rate:.{digits}g}")


def best_rate(lrs: Sequence[float], losses: Sequence[float]) -> float:
    """The learning rate of least loss, by a parabola in log lr through the best of them and its two neighbors."""
    return rate_and_curvature(lrs, losses)[0]


def rate_and_curvature(lrs: Sequence[float], losses: Sequence[float]) -> tuple[float, float]:
    """The best rate, and half the second derivative of the parabola in log lr; NaN without a parabola."""
    order = np.argsort(lrs)
    rates, values = np.asarray(lrs, float)[order], np.asarray(losses, float)[order]
    if np.isnan(values).all():
        raise GatelabError(f"every training at the learning rates {rates.tolist()} diverged; give smaller ones")
    best = int(np.nanargmin(values))
    if at_end(lrs, losses) or not np.isfinite(values[best - 1 : best + 2]).all():
        return float(rates[best]), math.nan
    x = np.log(rates[best - 1 : best + 2])
    curvature, slope, _ = np.polyfit(x - x[1], values[best - 1 : best + 2], 2)
    return float(np.exp(x[1] - slope / (2 * curvature))), float(curvature)


def at_end(lrs: Sequence[float], losses: Sequence[float]) -> int:
    """-1 or 1 if the best rate is the smallest or the largest of the sweep, diverged ones included, else 0."""
    best = int(np.argmin(np.where(np.isnan(losses), np.inf, losses)[np.argsort(lrs)]))
    return -1 if best == 0 else int(best == len(losses) - 1)


def excess(lr: float, lrs: Sequence[float], losses: Sequence[float]) -> float:
    """The loss at a rate minus the least loss, by the parabola in log lr.

    If the best rate is at an end: the difference of the measured losses, or NaN for a rate outside the sweep.
    """
    best, curvature = rate_and_curvature(lrs, losses)
    if at_end(lrs, losses) and lr in lrs:
        return losses[list(lrs).index(lr)] - float(np.nanmin(losses))
    return curvature * math.log(lr / best) ** 2


def further_rates(lrs: Sequence[float], losses: Sequence[float], count: int, digits: int = 3) -> list[float]:
    """`count` rates beyond the end of a sweep at which its best rate is; none if it is not at an end."""
    end = at_end(lrs, losses)
    edge = {-1: min(lrs), 0: 0.0, 1: max(lrs)}[end]
    return [rounded_rate(edge * FACTOR ** (k * end), digits) for k in range(1, count * abs(end) + 1)]


@dataclass(frozen=True)
class RateRule:
    """lr = scale_unit (d_model / 128)^-exponent (steps / 1000)^-steps_exponent, the exponents one for all units.

    Attributes:
        scales: the learning rate of each unit at d_model = 128 and 1000 steps.
        exponent: with an interval over units; NaN ends if fewer than two units have several widths.
        steps_exponent: 0 if the number of steps was not varied.
    """

    scales: Mapping[str, float]
    exponent: Interval
    steps_exponent: float = 0.0

    def __repr__(self) -> str:
        rates = ", ".join(f"{shorten(unit)} {rate:.3g}" for unit, rate in self.scales.items())
        return one_line(self, f"d_model^-{self.exponent:.2f}: {rates}")

    def rate(self, unit: str, d_model: int, steps: float = STEPS, digits: int = 3) -> float:
        """The learning rate of a unit at a width and a number of steps, rounded to a few digits."""
        by_width, by_steps = (d_model / WIDTH) ** -self.exponent.value, (steps / STEPS) ** -self.steps_exponent
        return rounded_rate(self.scales[unit] * by_width * by_steps, digits)

    @staticmethod
    def of(rates: Iterable[tuple[str, int, float] | tuple[str, int, float, int]]) -> RateRule:
        """Fit the rule to rows (unit, d_model, best lr) or (unit, d_model, best lr, steps): least squares in log lr.

        >>> rule = RateRule.of([("a", 128, 4e-3), ("a", 256, 2e-3), ("b", 128, 8e-3), ("b", 256, 4e-3)])
        >>> round(rule.exponent.value, 6), rule.rate("b", 512)
        (1.0, 0.002)
        """
        rows: list[Any] = [(*row, STEPS)[:4] for row in rates]
        units = np.array([unit for unit, *_ in rows])
        x = np.log([(d_model / WIDTH, steps / STEPS) for _, d_model, _, steps in rows]).reshape(-1, 2)
        y = np.log([lr for _, _, lr, _ in rows])
        masks = {unit: units == unit for unit in dict.fromkeys(units.tolist())}
        # Centered per unit: a column that no unit varies becomes 0, and so does its exponent.
        dx, dy = x.copy(), y.copy()
        for own in masks.values():
            dx[own], dy[own] = dx[own] - x[own].mean(axis=0), dy[own] - y[own].mean()
        slopes = np.linalg.lstsq(dx, dy, rcond=None)[0]
        varied = [own for own in masks.values() if np.ptp(x[own, 0]) > 0]
        each = np.array([np.linalg.lstsq(dx[own], dy[own], rcond=None)[0][0] for own in varied])
        value, reach = -float(slopes[0]), math.nan
        if len(each) > 1:
            over_units = t_interval(each)
            reach = over_units.high - over_units.value
        scales = {unit: math.exp(float(np.mean(y[own] - x[own] @ slopes))) for unit, own in masks.items()}
        return RateRule(scales, Interval(value, value - reach, value + reach), -float(slopes[1]))
