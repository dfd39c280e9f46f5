"""What a recommendation rests on: numbers, lines that say of two units which one a kind of number favours, and caveats.

Numbers alone, so that the rules can be tried on numbers made by hand. A line is *decided* where the difference is more
than what the number is worth (`lines`); else it is *undecided*, whichever unit it leans to. Caveats are what a reader
of a scorecard should not forget: each is in the list where its numbers are there, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from gatelab.display import Compact
from gatelab.statistics import Interval

if TYPE_CHECKING:
    from gatelab.scorecard.recommendation import Regime

LineName = Literal["error", "parameters", "FLOPs", "steps", "condition", "throughput"]
COUNTED = 1.1  # parameters and operations nearer than that are equal: widths are whole numbers
PREDICTED = 2.0  # condition numbers and steps nearer than that are equal: they are of a network before it is trained
FEW_TEST, FEW_TRAIN = 50, 200
OUTSIDE = 0.1
HEAVY = 0.25


@dataclass(frozen=True)
class Score(Compact):
    """One unit at the budget; every number with an end in `_low` and one in `_high` where it has an interval.

    Attributes:
        unit: its name.
        width: the largest one within the budget.
        parameters: of the network of that width.
        slope: that of the RMSE against P, NaN where too few widths count for it.
        order: what theory has for one input, None where it has nothing.
        limit: the free-knot limit at this width, NaN where there is none.
        rmse: on test rows, the mean over seeds.
        train_rmse: the same on training rows.
        behind: the RMSE over that of the best unit, the interval from the same test rows.
        condition: the condition number of the tangent kernel, inf where it is not `resolved`.
        resolved: whether the condition number is known; else `condition_low` is all that is.
        kernel_networks: how many were sampled for the kernel of a unit without a formula, else 0.
        steps: those of gradient descent, predicted.
        linear_error: that of `linear_features` features, over the deviation.
        linear_features: how many were used.
        minimax_error: that of a polynomial of the gate, over the deviation.
        flops: operations a row of the fitted network.
        block_width: the width of the transformer's block.
        block_parameters: its parameters.
        block_flops: its operations a row.
        rows_per_second: its throughput, with quartiles.
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

    @property
    def rmse_interval(self) -> Interval:
        """The error with its interval."""
        return Interval(self.rmse, self.rmse_low, self.rmse_high)

    @property
    def behind_interval(self) -> Interval:
        """The error over that of the best unit, with its interval."""
        return Interval(self.behind, self.behind_low, self.behind_high)

    @property
    def known_condition(self) -> float:
        """The condition number, or the lower end that is all that is known."""
        if self.resolved:
            return self.condition
        return self.condition_low

    @property
    def condition_text(self) -> str:
        """The condition number as sentences have it."""
        if self.resolved:
            return f"{self.condition:.2g}"
        return f"above {self.condition_low:.2g}"

    def better_conditioned(self, other: Score) -> bool:
        """Whether the proved bounds of the condition numbers are further apart than `PREDICTED`, this one's below."""
        return self.resolved and other.condition_low > PREDICTED * self.condition_high

    def faster(self, other: Score) -> bool:
        """Whether the quartiles of rows a second are apart, this one's above."""
        return self.rows_per_second_low > other.rows_per_second_high


@dataclass(frozen=True)
class FittedNetwork(Compact):
    """One unit at one width.

    Attributes:
        unit: the name of the unit.
        width: how many neurons the network has.
        parameters: how many parameters.
        flops: operations a row.
        train_rmse: on training rows, the mean over seeds.
        rmse: on test rows, with its interval.
        behind: its RMSE over that of the best network of all.
    """

    unit: str
    width: int
    parameters: int
    flops: int
    train_rmse: float
    rmse: Interval
    behind: Interval


@dataclass(frozen=True)
class Facts(Compact):
    """What else bears on how far the numbers can be trusted.

    Attributes:
        train_rows: how many rows were trained on.
        test_rows: how many were set aside.
        values: how many numbers are to be fitted.
        deviation: that of the test targets.
        outside: the share of test rows beyond the range of the training rows in some input.
        heaviest: the share of the best network's squared error that one test row makes.
        unfinished: how many of the fits ran out of steps.
        fits: how many there were.
        seeds: how many of each network.
        kernel_rows: how many rows the kernels are of.
        threads: those of torch.
        device: where blocks were timed.
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
class Growth(Compact):
    """What more parameters do for one unit.

    Attributes:
        unit: its name.
        widths: the narrower and the wider one.
        parameters: of both.
        ratio: the RMSE of the wider network over that of the narrower.
    """

    unit: str
    widths: tuple[int, int]
    parameters: tuple[int, int]
    ratio: Interval

    @property
    def step(self) -> str:
        """The numbers of parameters, as sentences have them."""
        return f"{self.parameters[0]} to {self.parameters[1]}"

    @property
    def shares(self) -> str:
        """The ratio in percent, as sentences have it."""
        return f"{100 * self.ratio.value:.3g} % [{100 * self.ratio.low:.3g} %, {100 * self.ratio.high:.3g} %]"

    @property
    def doubled(self) -> bool:
        """Whether the step is large enough for an error that does not fall over it to be called flat."""
        return self.widths[1] >= 2 * self.widths[0]


@dataclass(frozen=True)
class LeftOut(Compact):
    """Fits that do not count.

    Attributes:
        unit: the name of their unit.
        width: their width.
        parameters: of such a network.
        left_out_of: the "comparison" or the "slope".
        reason: why, in a sentence.
    """

    unit: str
    width: int
    parameters: int
    left_out_of: Literal["comparison", "slope"]
    reason: str

    def __str__(self) -> str:
        return f"{self.unit} of width {self.width} is left out of the {self.left_out_of}: {self.reason}"


@dataclass(frozen=True)
class Evidence(Compact):
    """All that was measured.

    Attributes:
        scores: the units at the budget.
        networks: every network within the budget.
        growth: what more parameters do for the unit with the least error, None if it has one width in the budget.
        budget: the number of parameters at which units are compared.
        facts: what else bears on the numbers.
    """

    scores: tuple[Score, ...]
    networks: tuple[FittedNetwork, ...]
    growth: Growth | None
    budget: int
    facts: Facts

    @property
    def leader(self) -> Score:
        """The unit with the least error at the budget."""
        return min(self.scores, key=lambda s: s.rmse)

    @property
    def best(self) -> FittedNetwork:
        """The network with the least error of all."""
        return min(self.networks, key=lambda n: n.rmse.value)

    def network(self, unit: str, width: int) -> FittedNetwork:
        """The network of a unit and a width."""
        return next(n for n in self.networks if (n.unit, n.width) == (unit, width))


@dataclass(frozen=True)
class Contender(Compact):
    """One unit as the rules weigh it: a network of it, with its score at the budget.

    `behind` is its RMSE over the least one; `equal` says whether the rules take it for as good as that.
    """

    unit: str
    width: int
    parameters: int
    flops: int
    rmse: Interval
    behind: Interval
    equal: bool
    score: Score


@dataclass(frozen=True)
class Line(Compact):
    """One kind of evidence on two units.

    Attributes:
        name: the kind.
        favours: the unit with the better number, None where both have the same.
        decided: whether the difference is more than what the number is worth.
        text: both numbers.
    """

    name: LineName
    favours: str | None
    decided: bool
    text: str


def lines(a: Contender, b: Contender) -> tuple[Line, ...]:
    """All lines on two units, the numbers of `a` first in their texts.

    Errors are decided where one cannot be told from the least and the other can (95 %); parameters and operations where
    they differ by more than a tenth; predicted steps, and condition numbers by their proved bounds, where they differ
    by more than a factor of 2; rows a second where the quartiles are apart. The condition number of a sampled kernel
    comes out too large and decides nothing.
    """
    nearer, further = sorted((a, b), key=lambda c: c.rmse.value)
    pair = Pair(a, b)
    sampled = a.score.kernel_networks or b.score.kernel_networks
    fewer, more = sorted((a.score.steps, b.score.steps))
    conditioned = a.score.better_conditioned(b.score) or b.score.better_conditioned(a.score)
    return (
        pair.line(
            "error",
            (a.rmse.value, b.rmse.value),
            nearer.equal and further.behind.low > 1,
            (str(a.rmse), str(b.rmse)),
        ),
        pair.counted("parameters", (a.parameters, b.parameters)),
        pair.counted("FLOPs", (a.flops, b.flops)),
        pair.line("steps", (a.score.steps, b.score.steps), more > PREDICTED * fewer),
        pair.line(
            "condition",
            (a.score.known_condition, b.score.known_condition),
            conditioned and not sampled,
            (a.score.condition_text, b.score.condition_text),
        ),
        pair.line(
            "throughput",
            (-a.score.rows_per_second, -b.score.rows_per_second),
            a.score.faster(b.score) or b.score.faster(a.score),
            (f"{a.score.rows_per_second:,.0f}", f"{b.score.rows_per_second:,.0f}"),
        ),
    )


@dataclass(frozen=True)
class Pair:
    """Two units side by side."""

    a: Contender
    b: Contender

    def line(
        self, name: LineName, values: tuple[float, float], decided: bool, texts: tuple[str, str] | None = None
    ) -> Line:
        """The line of one number, of which less is better."""
        first, second = texts or (f"{values[0]:.3g}", f"{values[1]:.3g}")
        favours = None
        if values[0] != values[1]:
            favours = min((values[0], self.a.unit), (values[1], self.b.unit))[1]
        return Line(name, favours, decided and favours is not None, f"{first} beside {second}")

    def counted(self, name: LineName, values: tuple[float, float]) -> Line:
        """The line of a number that is counted."""
        return self.line(name, values, max(values) > COUNTED * min(values))


class Chosen(Protocol):
    """A unit of a width."""

    @property
    def unit(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def parameters(self) -> int: ...


def caveats(e: Evidence, regime: Regime, chosen: Chosen, equals: tuple[str, ...]) -> tuple[str, ...]:
    """What a reader should not forget, in the order of how much it may change."""
    sentences = []
    if equals:
        sentences.append(f"{and_list(equals)} would do as well, as far as these rows can tell")
    return (
        *sentences,
        *caveats_of_rows(e, regime),
        *caveats_of_slopes(e.scores, regime, chosen.unit),
        *caveats_of_kernels(e),
        *caveats_of_fits(e, chosen),
    )


def caveats_of_rows(e: Evidence, regime: Regime) -> list[str]:
    """What follows from the number of rows and of parameters."""
    f, sentences = e.facts, []
    if f.test_rows < FEW_TEST:
        sentences.append(f"{f.test_rows} test rows are few: another split may turn the order of near units around")
    if f.train_rows < FEW_TRAIN:
        sentences.append(f"{f.train_rows} training rows are few: with more of them larger networks may win")
    if f.heaviest > HEAVY:
        sentences.append(f"one test row makes {f.heaviest:.0%} of the best network's squared error: look at it")
    if f.outside > OUTSIDE:
        sentences.append(f"{f.outside:.0%} of the test rows lie outside the range of the training rows in some input")
    least, most = min(n.parameters for n in e.networks), max(n.parameters for n in e.networks)
    if regime in ("units", "open"):
        sentences.append(f"measured from {least} to {most} parameters; what holds beyond is extrapolation")
    else:
        sentences.append(
            f"the test rows chose among {len(e.networks)} networks: on fresh rows expect a somewhat larger error"
        )
    if 2 * most >= f.values:
        sentences.append(f"{most} parameters are more than half of the {f.values} values: such networks interpolate")
    return sentences


def caveats_of_slopes(scores: tuple[Score, ...], regime: Regime, unit: str) -> list[str]:
    """The units whose slopes were not told from that of the one chosen, where slopes say something."""
    if regime in ("noise", "rows"):
        return ["slopes over a floor say nothing of the units"]
    if regime != "units":
        return []
    mine = next(s for s in scores if s.unit == unit)
    like = [
        s.unit for s in scores if s is not mine and s.slope_low <= mine.slope_high and mine.slope_low <= s.slope_high
    ]
    if not like:
        return []
    return [
        f"the interval of {unit}'s slope overlaps with {and_list(like)}: with more parameters their order may change"
    ]


def caveats_of_kernels(e: Evidence) -> list[str]:
    """What is not known of condition numbers."""
    sentences = []
    unsure = [s.unit for s in e.scores if not s.resolved]
    if unsure:
        sentences.append(
            f"the smallest eigenvalue of {and_list(unsure)} cannot be told from zero in float64: of the condition "
            "number only a lower end is known"
        )
    sampled = [s.unit for s in e.scores if s.kernel_networks]
    if sampled:
        sentences.append(
            f"the kernel of {and_list(sampled)} is a mean over sampled networks, whose condition number comes out too "
            "large"
        )
    if e.facts.kernel_rows < e.facts.train_rows:
        sentences.append(f"kernels are of {e.facts.kernel_rows} of {e.facts.train_rows} training rows")
    return sentences


def caveats_of_fits(e: Evidence, chosen: Chosen) -> list[str]:
    """What fits and timings leave open."""
    f, sentences = e.facts, []
    if f.unfinished:
        sentences.append(
            f"{f.unfinished} of {f.fits} fits ran out of steps while still improving; gl.fit trains "
            f"{chosen.unit} of width {chosen.width} to its end"
        )
    if f.seeds < 3:
        sentences.append(f"{f.seeds} seed{'s' * (f.seeds != 1)} can show little of what is luck; --seeds 5 would")
    sentences.append(
        f"rows a second are those of this machine ({f.device}, {f.threads} of torch's threads), forward, in float32"
    )
    return sentences


def and_list(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> and_list(["mlp"]), and_list(["mlp", "glu", "gqu"])
    ('mlp', 'mlp, glu and gqu')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
