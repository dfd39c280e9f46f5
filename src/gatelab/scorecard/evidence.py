"""What a recommendation rests on: numbers alone, so that rules can be tried on numbers made by hand."""

from __future__ import annotations

from dataclasses import dataclass

from gatelab.scorecard.paired import Estimate


@dataclass(frozen=True)
class Score:
    """One unit at the budget.

    `rmse` is on test rows, the mean over seeds, with its interval; `behind` is that over the best unit's, the interval
    from the same test rows. `slope` is that of the RMSE against P; `order` what theory has for one input, `limit` the
    free-knot limit at this width, NaN where there is none. `condition` is inf and `condition_low` all that is known
    where not `resolved`; `kernel_networks` were sampled for a unit without a formula. `steps` of gradient descent are
    predicted. `linear_error` is that of `linear_features` features and `minimax_error` that of a polynomial, over the
    deviation. `flops` are those of the fitted network a row; what begins with `block` and `rows_per_second`, with its
    quartiles, are of the transformer's block.
    """

    unit: str
    width: int
    parameters: int
    slope: float
    slope_low: float
    slope_high: float
    order: int | None
    limit: float
    rmse: float
    rmse_low: float
    rmse_high: float
    train_rmse: float
    behind: float
    behind_low: float
    behind_high: float
    condition: float
    condition_low: float
    condition_high: float
    resolved: bool
    kernel_networks: int
    steps: float
    linear_error: float
    linear_low: float
    linear_high: float
    linear_features: int
    minimax_error: float
    flops: int
    block_width: int
    block_parameters: int
    block_flops: int
    rows_per_second: float
    rows_per_second_low: float
    rows_per_second_high: float


@dataclass(frozen=True)
class Network:
    """One unit at one width; `behind` is its RMSE over that of the best network of all."""

    unit: str
    width: int
    parameters: int
    flops: int
    train_rmse: float
    rmse: Estimate
    behind: Estimate


@dataclass(frozen=True)
class Facts:
    """What else bears on how far the numbers can be trusted.

    `values` are the numbers to be fitted, `deviation` that of the test targets, `outside` the share of test rows beyond
    the range of the training rows in some input, `heaviest` the share of the best network's squared error that one
    test row makes, `unfinished` how many of `fits` ran out of steps.
    """

    train_rows: int
    test_rows: int
    values: int
    deviation: float
    outside: float
    heaviest: float
    unfinished: int
    fits: int
    seeds: int
    kernel_rows: int
    threads: int
    device: str


@dataclass(frozen=True)
class Evidence:
    """`growth` is the RMSE of the best unit at the budget over that at half the budget; None without such a width."""

    scores: tuple[Score, ...]
    networks: tuple[Network, ...]
    growth: Estimate | None
    budget: int
    facts: Facts

    @property
    def leader(self) -> Score:
        """The unit with the least error at the budget."""
        return min(self.scores, key=lambda s: s.rmse)

    @property
    def best(self) -> Network:
        """The network with the least error of all."""
        return min(self.networks, key=lambda n: n.rmse.value)

    def network(self, unit: str, width: int) -> Network:
        return next(n for n in self.networks if (n.unit, n.width) == (unit, width))
