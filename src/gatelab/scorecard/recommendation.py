"""The recommendation: one rule over measured numbers.

The best unit at the budget (or, among those as good, one also fitted at half the width) is compared with itself at half
the width or less, on the same held-out rows. More parameters help if the 95 % interval of the ratio is below 1. They do
not help if the ratio is above 1 / 1.1, or if a smaller network is better than every unit at the budget by more than
10 % or significantly. If they help, or if that is open, the rule selects the smallest error at equal parameters; if
they do not, the fewest FLOPs among networks not significantly worse than the best and within 10 % of it. Ties are
broken by FLOPs, then by speed (if the quartiles of rows per second do not overlap), then by error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from gatelab.display import Compact
from gatelab.statistics import Interval

Regime = Literal["units", "noise", "rows", "exact", "open"]
WITHIN = 1.1
ALIKE = 1.25  # the largest ratio of held-out to training error at which the remaining error counts as noise
EXACT = 1e-9  # times the target's standard deviation


@dataclass(frozen=True)
class FittedNetwork(Compact):
    """One unit at one width.

    Attributes:
        unit: the name of the unit.
        width: the number of neurons.
        parameters: their number.
        flops: operations per row.
        train_rmse: on training rows, the mean over seeds.
        rmse: on held-out rows, the mean over seeds.
        ratio: its RMSE over the smallest one, with an interval from the same held-out rows.
    """

    unit: str
    width: int
    parameters: int
    flops: int
    train_rmse: float
    rmse: Interval
    ratio: Interval

    @property
    def verdict(self) -> Literal["equal", "inconclusive", "worse"]:
        """Its error compared with the smallest: as good, significantly larger (95 %), or inconclusive."""
        if self.ratio.low > 1:
            return "worse"
        if self.ratio.value > WITHIN:
            return "inconclusive"
        return "equal"


@dataclass(frozen=True)
class Score(FittedNetwork):
    """One unit at the largest width within the budget; `ratio` is relative to the smallest error at the budget.

    Attributes:
        slope: of log RMSE against log P, NaN for too few widths.
        order: the theoretical order for one input, or None.
        limit: the free-knot limit at this width, or NaN.
        narrower: half the width or less (else the narrowest), 0 if the unit has no other width.
        growth: the RMSE divided by that at the narrower width.
        condition: the condition number of the tangent kernel with proved bounds; inf if only `low` is known.
        sampled: the number of sampled networks for the kernel of a unit without a formula, else 0.
        steps: of gradient descent, predicted.
        linear: the error of `features` features, relative to the neuron's standard deviation.
        features: their number.
        minimax: the error of a polynomial of the gate, relative to the gate's standard deviation.
        block_width: the width of the transformer's block.
        block_parameters: its parameters.
        block_flops: its operations per row.
        rows_per_second: its throughput, with quartiles.
    """

    slope: Interval
    order: int | None
    limit: float
    narrower: int
    growth: Interval
    condition: Interval
    sampled: int
    steps: float
    linear: Interval
    features: int
    minimax: float
    block_width: int
    block_parameters: int
    block_flops: int
    rows_per_second: Interval


@dataclass(frozen=True)
class Recommendation(FittedNetwork):
    """The network to take.

    Attributes:
        regime: the limit of the error: the "units", "noise", too few "rows", none ("exact"), or "open" if the fitted
            widths do not determine it.
        others: the network of every other unit that was considered.
    """

    regime: Regime
    others: tuple[FittedNetwork, ...]

    @property
    def equals(self) -> tuple[str, ...]:
        """The other units that are as good: not significantly worse than the smallest error, and within 10 % of it."""
        return tuple(n.unit for n in self.others if n.verdict == "equal")

    def __str__(self) -> str:
        return f"{self.unit} at width {self.width} ({self.parameters} parameters)"


def recommend(scores: Sequence[Score], networks: Sequence[FittedNetwork], deviation: float) -> Recommendation:
    """The unit and width that the rule at the top of this module selects.

    Args:
        scores: every unit at the budget.
        networks: every network within the budget.
        deviation: the standard deviation of the targets.

    Returns:
        A `Recommendation`.
    """
    speed = {s.unit: s.rows_per_second for s in scores}

    def cheapest(some: Sequence[FittedNetwork]) -> FittedNetwork:
        fewest = [n for n in some if n.flops == min(m.flops for m in some)]
        fastest = max((speed[n.unit] for n in fewest), key=lambda s: s.value)
        return min((n for n in fewest if speed[n.unit].high >= fastest.low), key=lambda n: n.rmse.value)

    regime = limited_by(scores, networks, deviation)
    if regime in ("units", "open"):
        considered: Sequence[FittedNetwork] = scores
        chosen = cheapest([s for s in scores if s.rmse.value == min(t.rmse.value for t in scores)])
    else:
        considered = []
        for unit in speed:
            own = [n for n in networks if n.unit == unit]
            equals = [n for n in own if n.verdict == "equal"]
            considered.append(cheapest(equals) if equals else min(own, key=lambda n: n.rmse.value))
        chosen = cheapest([n for n in considered if n.verdict == "equal"])
    network = {field.name: getattr(chosen, field.name) for field in fields(FittedNetwork)}
    return Recommendation(**network, regime=regime, others=tuple(n for n in considered if n is not chosen))


def leader_of(scores: Sequence[Score]) -> Score:
    """The best unit at the budget that was also fitted at half the width, among those as good as the best."""
    halved = [s for s in scores if s.verdict == "equal" and 0 < 2 * s.narrower <= s.width]
    return min(halved or scores, key=lambda s: s.rmse.value)


def limited_by(scores: Sequence[Score], networks: Sequence[FittedNetwork], deviation: float) -> Regime:
    """The limit of the error: the first part of the rule."""
    best, top = (min(some, key=lambda n: n.rmse.value) for some in (networks, scores))
    if best.rmse.value <= EXACT * deviation:
        return "exact"
    leader = leader_of(scores)
    if next(n for n in networks if (n.unit, n.width) == (top.unit, top.width)).verdict == "equal":
        if leader.growth.high < 1:
            return "units"
        if not 0 < 2 * leader.narrower <= leader.width or WITHIN * leader.growth.value < 1:
            return "open"
    return "noise" if best.rmse.value <= ALIKE * best.train_rmse else "rows"
