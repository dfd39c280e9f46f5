"""What a recommendation rests on: numbers, and lines that say of two units which one a kind of number favours.

Numbers alone, so that the rules can be tried on numbers made by hand. A line is *decided* where the difference is more
than what the number is worth (`lines`); else it is *undecided*, whichever unit it leans to.

What a reader of a scorecard should not forget: each caveat is said where its numbers are there, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from gatelab.display import one_line
from gatelab.scorecard.measurements import ScoreInterval

LineName = Literal["error", "parameters", "FLOPs", "steps", "condition", "throughput"]
COUNTED = 1.1  # parameters and operations nearer than that are equal: widths are whole numbers
PREDICTED = 2.0  # condition numbers and steps nearer than that are equal: they are of a network before it is trained


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

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.unit}, width {self.width}, {self.parameters} parameters: test RMSE {self.rmse:.2g}"
        )


@dataclass(frozen=True)
class FittedNetwork:
    """One unit at one width; `behind` is its RMSE over that of the best network of all."""

    unit: str
    width: int
    parameters: int
    flops: int
    train_rmse: float
    rmse: ScoreInterval
    behind: ScoreInterval

    def __repr__(self) -> str:
        return one_line(self, f"{self.unit}, width {self.width}, {self.parameters} parameters: test RMSE {self.rmse}")


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

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.train_rows} training and {self.test_rows} test rows, {self.fits} fits, {self.device}"
        )


@dataclass(frozen=True)
class Growth:
    """What more parameters do for one unit: the ratio of its RMSEs at two widths, the wider over the narrower."""

    unit: str
    widths: tuple[int, int]
    parameters: tuple[int, int]
    ratio: ScoreInterval

    def __repr__(self) -> str:
        return one_line(self, f"{self.unit}, width {self.widths[0]} to {self.widths[1]}: RMSE times {self.ratio}")

    @property
    def doubled(self) -> bool:
        """Whether the step is large enough for an error that does not fall over it to be called flat."""
        return self.widths[1] >= 2 * self.widths[0]


@dataclass(frozen=True)
class LeftOut:
    """Fits of one unit at one width that do not count for the `comparison`, or for the `slope`, and why."""

    unit: str
    width: int
    parameters: int
    left_out_of: Literal["comparison", "slope"]
    reason: str

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        return f"{self.unit} of width {self.width} is left out of the {self.left_out_of}: {self.reason}"


@dataclass(frozen=True)
class Evidence:
    """All that was measured; `growth` is of the unit with the least error, None if it has one width in the budget."""

    scores: tuple[Score, ...]
    networks: tuple[FittedNetwork, ...]
    growth: Growth | None
    budget: int
    facts: Facts

    def __repr__(self) -> str:
        return one_line(
            self, f"{len(self.scores)} units, {len(self.networks)} networks, up to {self.budget} parameters"
        )

    @property
    def leader(self) -> Score:
        """The unit with the least error at the budget."""
        return min(self.scores, key=lambda s: s.rmse)

    @property
    def best(self) -> FittedNetwork:
        """The network with the least error of all."""
        return min(self.networks, key=lambda n: n.rmse.value)

    def network(self, unit: str, width: int) -> FittedNetwork:
        return next(n for n in self.networks if (n.unit, n.width) == (unit, width))


@dataclass(frozen=True)
class Contender:
    """One unit as the rules weigh it: a network of it, with its score at the budget.

    `behind` is its RMSE over the least one; `equal` says whether the rules take it for as good as that.
    """

    unit: str
    width: int
    parameters: int
    flops: int
    rmse: ScoreInterval
    behind: ScoreInterval
    equal: bool
    score: Score

    def __repr__(self) -> str:
        return one_line(self, f"{self.unit}, width {self.width}: test RMSE {self.rmse}")


@dataclass(frozen=True)
class Line:
    """One kind of evidence on two units: which one has the better number, if they differ, and if that is decided."""

    name: LineName
    favours: str | None
    decided: bool
    text: str

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.text}")


def lines(a: Contender, b: Contender) -> tuple[Line, ...]:
    """All lines on two units, the numbers of `a` first in their texts.

    Errors are decided where one cannot be told from the least and the other can (95 %); parameters and operations where
    they differ by more than a tenth; predicted steps, and condition numbers by their proved bounds, where they differ
    by more than a factor of 2; rows a second where the quartiles are apart. The condition number of a sampled kernel
    comes out too large and decides nothing.
    """
    nearer, further = sorted((a, b), key=lambda c: c.rmse.value)
    told = nearer.equal and further.behind.low > 1
    known = not (a.score.kernel_networks or b.score.kernel_networks)
    fewer = (min(a.score.steps, b.score.steps), max(a.score.steps, b.score.steps))
    return (
        _line("error", a, b, (a.rmse.value, b.rmse.value), told, (str(a.rmse), str(b.rmse))),
        _line("parameters", a, b, (a.parameters, b.parameters), _apart(a.parameters, b.parameters)),
        _line("FLOPs", a, b, (a.flops, b.flops), _apart(a.flops, b.flops)),
        _line("steps", a, b, (a.score.steps, b.score.steps), fewer[1] > PREDICTED * fewer[0]),
        _line(
            "condition",
            a,
            b,
            (_known_condition(a.score), _known_condition(b.score)),
            known and (_better_conditioned(a.score, b.score) or _better_conditioned(b.score, a.score)),
            (condition_text(a.score), condition_text(b.score)),
        ),
        _line(
            "throughput",
            a,
            b,
            (-a.score.rows_per_second, -b.score.rows_per_second),
            _quartiles_apart(a.score, b.score),
            (f"{a.score.rows_per_second:,.0f}", f"{b.score.rows_per_second:,.0f}"),
        ),
    )


def _line(
    name: LineName,
    a: Contender,
    b: Contender,
    values: tuple[float, float],
    decided: bool,
    texts: tuple[str, str] | None = None,
) -> Line:
    """The line of one number, of which less is better."""
    first, second = texts or (f"{values[0]:.3g}", f"{values[1]:.3g}")
    favours = None
    if values[0] != values[1]:
        favours = min((values[0], a.unit), (values[1], b.unit))[1]
    return Line(name, favours, decided and favours is not None, f"{first} beside {second}")


def _apart(a: float, b: float) -> bool:
    return max(a, b) > COUNTED * min(a, b)


def _better_conditioned(a: Score, b: Score) -> bool:
    return a.resolved and b.condition_low > PREDICTED * a.condition_high


def _quartiles_apart(a: Score, b: Score) -> bool:
    return a.rows_per_second_low > b.rows_per_second_high or b.rows_per_second_low > a.rows_per_second_high


def _known_condition(s: Score) -> float:
    if s.resolved:
        return s.condition
    return s.condition_low


def condition_text(s: Score) -> str:
    if s.resolved:
        return f"{s.condition:.2g}"
    return f"above {s.condition_low:.2g}"


if TYPE_CHECKING:
    from gatelab.scorecard.recommendation import Regime

FEW_TEST, FEW_TRAIN = 50, 200
OUTSIDE = 0.1
HEAVY = 0.25


class Chosen(Protocol):
    @property
    def unit(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def parameters(self) -> int: ...


def caveats(e: Evidence, regime: Regime, chosen: Chosen, equals: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of how much they may change."""
    said = [
        *_ties(equals),
        *_rows(e),
        *_ranges(e, regime),
        *_slopes(e.scores, regime, chosen.unit),
        *_kernels(e),
        *_fits(e, regime, chosen),
    ]
    return tuple(said)


def _ties(equals: tuple[str, ...]) -> list[str]:
    return [f"{and_list(equals)} would do as well, as far as these rows can tell"] if equals else []


def _rows(e: Evidence) -> list[str]:
    f, said = e.facts, []
    if f.test_rows < FEW_TEST:
        said.append(f"{f.test_rows} test rows are few: another split may turn the order of near units around")
    if f.train_rows < FEW_TRAIN:
        said.append(f"{f.train_rows} training rows are few: with more of them larger networks may win")
    if f.heaviest > HEAVY:
        said.append(f"one test row makes {f.heaviest:.0%} of the best network's squared error: look at it")
    if f.outside > OUTSIDE:
        said.append(f"{f.outside:.0%} of the test rows lie outside the range of the training rows in some input")
    return said


def _ranges(e: Evidence, regime: Regime) -> list[str]:
    least, most = min(n.parameters for n in e.networks), max(n.parameters for n in e.networks)
    said = []
    if regime in ("units", "open"):
        said.append(f"measured from {least} to {most} parameters; what holds beyond is extrapolation")
    else:
        said.append(
            f"the test rows chose among {len(e.networks)} networks: on fresh rows expect a somewhat larger error"
        )
    if 2 * most >= e.facts.values:
        said.append(f"{most} parameters are more than half of the {e.facts.values} values: such networks interpolate")
    return said


def _slopes(scores: tuple[Score, ...], regime: Regime, unit: str) -> list[str]:
    """The units whose slopes were not told from that of the one chosen, where slopes say something."""
    if regime != "units":
        return ["slopes over a floor say nothing of the units"] if regime in ("noise", "rows") else []
    mine = next(s for s in scores if s.unit == unit)
    like = [
        s.unit for s in scores if s is not mine and s.slope_low <= mine.slope_high and mine.slope_low <= s.slope_high
    ]
    if not like:
        return []
    return [
        f"the interval of {unit}'s slope overlaps with {and_list(like)}: with more parameters their order may change"
    ]


def _kernels(e: Evidence) -> list[str]:
    said = []
    unsure = [s.unit for s in e.scores if not s.resolved]
    if unsure:
        said.append(
            f"the smallest eigenvalue of {and_list(unsure)} cannot be told from zero in float64: of the condition "
            "number only a lower end is known"
        )
    sampled = [s.unit for s in e.scores if s.kernel_networks]
    if sampled:
        said.append(
            f"the kernel of {and_list(sampled)} is a mean over sampled networks, whose condition number comes out too "
            "large"
        )
    if e.facts.kernel_rows < e.facts.train_rows:
        said.append(f"kernels are of {e.facts.kernel_rows} of {e.facts.train_rows} training rows")
    return said


def _fits(e: Evidence, regime: Regime, chosen: Chosen) -> list[str]:
    f, said = e.facts, []
    if f.unfinished:
        said.append(
            f"{f.unfinished} of {f.fits} fits ran out of steps while still improving; gl.fit trains "
            f"{chosen.unit} of width {chosen.width} to its end"
        )
    if f.seeds < 3:
        said.append(f"{f.seeds} seed{'s' * (f.seeds != 1)} show little of what is luck; --seeds 5 would")
    said.append(
        f"rows a second are those of this machine ({f.device}, {f.threads} of torch's threads), forward, in float32"
    )
    return said


def and_list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
