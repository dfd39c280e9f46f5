"""Claims: one number of ours beside what the paper says, and the verdict that a named rule computes from them.

A claim holds numbers. Its texts are made by one formatter, so that a table, a page and a sentence print alike. The
rules, each a function of the claim:

    number      our interval contains the paper's number, or ours is within 5 % of it
    equal       ours is within 5 % of the paper's number; further away it differs, unless the interval contains the
                number, which decides nothing: that a difference is not seen does not show that there is none
    slope       as number; 0 is the opposite of a slope, and a steeper slope of held-out errors exceeds the paper's
    above       ours lies above the paper's number; an interval on both sides of it decides nothing
    below       ours lies below it
    at most     ours is not larger; smaller exceeds
    close       ours, a ratio, is within a quarter of 1
    digits      ours is what the paper prints, to its last digit; of several numbers the others are in `support`
    holds       ours is the truth of a statement, without an interval
    new         the paper has nothing to compare with

Two conditions change what a rule says. A claim that was measured where a condition of the paper does not hold is
`outside`, whatever the rule says. A formula that our copy of the paper lost, and that we reconstructed, can be
reproduced or undecided, but not contradicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, get_args

from gatelab.display import Compact
from gatelab.plain import from_plain
from gatelab.statistics import Interval

Verdict = Literal["reproduced", "exceeded", "differs", "undecided", "outside", "new"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TOLERANCE = 0.05  # of the paper's number, which has no interval; its own slopes against n and P are 2 % apart
CLOSE = 0.25  # ratios as near as this to 1 are close


@dataclass(frozen=True)
class Claim(Compact):
    """One statement of a paper beside our number.

    Attributes:
        what: What is measured, in a few words: the title of the claim.
        value: Our number; None where there is none.
        low: The lower end of its interval; NaN where it has none.
        high: The upper end of its interval.
        paper: The number that the paper prints, or its statement in words; None where it has neither.
        rule: The rule of the verdict, one of `RULES`.
        place: Where the paper says it, as its inventory has it; several places are separated by "; ".
        unit: What follows the number: "%", "s", "bits".
        support: Further numbers that explain ours, by what they are.
        note: One sentence that is no number.
        outside: Which condition of the paper does not hold where this was measured; empty where all hold.
        reconstructed: Whether the paper's formula was lost in our copy and is a reconstruction.
        held_out: Whether the number is of rows that were not trained on.
        opposite: What the paper excludes: an interval that contains it and the paper's number decides nothing.
    """

    what: str
    value: float | None
    low: float = math.nan
    high: float = math.nan
    paper: float | str | None = None
    rule: str = "new"
    place: str = ""
    unit: str = ""
    support: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    outside: str = ""
    reconstructed: bool = False
    held_out: bool = True
    opposite: float = math.nan
    PROPERTIES: ClassVar[tuple[str, ...]] = ("verdict", "ours", "theirs", "because")

    @classmethod
    def of(cls, what: str, value: Interval, paper: float | str | None = None, rule: str = "new", **more: Any) -> Claim:
        """A claim of a number with its interval."""
        return cls(what, value.value, value.low, value.high, paper, rule, **more)

    @property
    def interval(self) -> Interval:
        return Interval(math.nan if self.value is None else self.value, self.low, self.high)

    @property
    def verdict(self) -> Verdict:
        """What the rule says, unless the claim was measured outside of the paper's conditions."""
        if self.outside:
            return "outside"
        verdict = RULES[self.rule](self)
        if self.reconstructed and verdict == "differs":
            return "undecided"
        return verdict

    @property
    def places(self) -> tuple[str, ...]:
        """The places that the claim answers."""
        return tuple(place for place in self.place.split("; ") if place)

    @property
    def ours(self) -> str:
        """Our number with its interval and unit, as every table has it."""
        if self.value is None:
            return "-"
        if self.rule == "holds":
            return "holds" if self.value else "does not hold"
        return number_text(self.interval, self.unit)

    @property
    def theirs(self) -> str:
        """What the paper says."""
        if self.paper is None:
            return "-"
        if isinstance(self.paper, str):
            return self.paper
        return number_text(self.paper, self.unit)

    @property
    def because(self) -> str:
        """The numbers behind ours, and the note."""
        numbers = "; ".join(f"{name}: {number_text(value)}" for name, value in self.support.items())
        return " ".join(part for part in (numbers and f"{numbers}.", self.note) if part)


def number_text(value: Any, unit: str = "") -> str:
    """A number to three digits with its interval and unit; words as they are.

    >>> number_text(0.012345), number_text(Interval(-2.14, -2.2, -2.081)), number_text(52.0, "%"), number_text(1.5e6)
    ('0.0123', '-2.14 [-2.2, -2.08]', '52 %', '1.5e+06')
    >>> number_text([1.0, 2.5]), number_text(1234), number_text("glu")
    ('1, 2.5', '1234', 'glu')
    """
    if isinstance(value, list | tuple):
        return ", ".join(number_text(part, unit) for part in value)
    if isinstance(value, Mapping):  # an interval, read from a record
        value = from_plain(Interval, value)
    if isinstance(value, Interval):
        text = format(value, ".3g")
    elif isinstance(value, float):
        text = f"{value:.3g}"
    else:
        text = str(value)
    return f"{text} {unit}".rstrip()


def number_rule(claim: Claim) -> Verdict:
    """Reproduced where the interval contains the paper's number or ours is within 5 % of it; of 0, of its opposite.

    An interval that contains both the paper's number and its opposite decides nothing.
    """
    paper, ours = _printed(claim), claim.interval
    scale = abs(paper) or abs(claim.opposite)  # NaN where a paper's 0 has no opposite
    agrees = paper in ours or ours.value == paper or abs(ours.value - paper) <= TOLERANCE * scale
    if agrees and claim.opposite in ours:
        return "undecided"
    return _reproduced(agrees)


def equal_rule(claim: Claim) -> Verdict:
    """Reproduced within 5 % of the paper's number; further away an interval that contains it decides nothing."""
    paper, ours = _printed(claim), claim.interval
    if abs(ours.value - paper) <= TOLERANCE * abs(paper):
        return "reproduced"
    if paper in ours:
        return "undecided"
    return "differs"


def slope_rule(claim: Claim) -> Verdict:
    """As `number`, with 0 as the opposite; steeper held-out errors exceed, steeper training errors differ."""
    verdict = number_rule(replace(claim, opposite=0.0))
    if verdict == "differs" and claim.held_out and claim.interval.value < _printed(claim):
        return "exceeded"
    return verdict


def side_rule(side: Literal["above", "below"]) -> Callable[[Claim], Verdict]:
    """The rule of statements that a number lies above, or below, another."""

    def rule(claim: Claim) -> Verdict:
        paper, ours = _printed(claim), claim.interval
        if ours.known and not ours.excludes(paper):
            return "undecided"
        return _reproduced((ours.value > paper) == (side == "above"))

    return rule


def at_most_rule(claim: Claim) -> Verdict:
    """Exceeded where ours is smaller than the paper's, reproduced where it is equal."""
    paper, ours = _printed(claim), claim.interval.value
    if ours < paper:
        return "exceeded"
    return _reproduced(ours == paper)


def close_rule(claim: Claim) -> Verdict:
    """Reproduced where the ratio is within a quarter of 1, to either side."""
    return _reproduced(1 / (1 + CLOSE) <= claim.interval.value <= 1 + CLOSE)


def digits_rule(claim: Claim) -> Verdict:
    """Reproduced where our number, and those of `support` after it, round to those in the paper's words.

    A number that was rounded twice is off by up to 0.55 of its last digit.
    """
    ours = [claim.value, *claim.support.values()]
    texts = str(claim.paper).split(", ")
    off = (
        abs(number - float(text)) / 10.0 ** int(Decimal(text).as_tuple().exponent)
        for number, text in zip(ours, texts, strict=False)
    )
    return _reproduced(all(share <= 0.55 for share in off))


def holds_rule(claim: Claim) -> Verdict:
    """Reproduced where the statement holds; undecided where that is not known."""
    if claim.value is None:
        return "undecided"
    return _reproduced(bool(claim.value))


def _reproduced(agrees: bool) -> Verdict:
    return "reproduced" if agrees else "differs"


def _printed(claim: Claim) -> float:
    if not isinstance(claim.paper, float | int):
        raise TypeError(f"the rule {claim.rule!r} of {claim.what!r} needs a number of the paper, not {claim.paper!r}")
    return float(claim.paper)


RULES: dict[str, Callable[[Claim], Verdict]] = {
    "number": number_rule,
    "equal": equal_rule,
    "slope": slope_rule,
    "above": side_rule("above"),
    "below": side_rule("below"),
    "at most": at_most_rule,
    "close": close_rule,
    "digits": digits_rule,
    "holds": holds_rule,
    "new": lambda _: "new",
}


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a statement of several numbers: one that differs decides, then one that is undecided.

    >>> together(["reproduced", "undecided"]), together(["undecided", "differs"]), together(["reproduced"])
    ('undecided', 'differs', 'reproduced')
    """
    reached = set(verdicts)
    for verdict in ("differs", "undecided"):
        if verdict in reached:
            return verdict
    return "reproduced"
