"""Claims: a number that we measured, the paper's number, and the verdict that a named rule computes from both.

A claim holds numbers, and one formatter makes its texts. The rules:

    number      our interval contains the paper's number, or ours is within 5 % of it; an interval that also contains
                the `opposite` of the claim is undecided
    equal       ours is within 5 % of the paper's number; further away it differs, unless the interval contains the
                number, which is undecided: a difference that is not significant does not show equality
    slope       as number, with 0 as the opposite; a steeper slope of held-out errors exceeds the paper's
    above       ours lies above the paper's number; an interval on both sides of it is undecided
    below       ours lies below it
    at most     ours is not larger; smaller exceeds
    close       ours, a ratio, is within a quarter of 1, to either side
    digits      ours, and further numbers in `support`, round to the digits that the paper prints; a number that was
                rounded twice is off by up to 0.55 of its last digit
    holds       ours is the truth of a statement, without an interval
    new         the paper has no number to compare with

A claim that was measured where a condition of the paper does not hold is `outside`. A formula that our copy lost, and
that we reconstructed, can be reproduced or undecided, but not contradicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    """One statement of a paper and our number for it.

    Attributes:
        what: The title of the claim: the quantity, in a few words.
        value: Our number; None if there is none.
        low: The lower end of its interval; NaN if it has none.
        high: The upper end of its interval.
        paper: The number that the paper prints, or its statement in words; None if it has neither.
        rule: The rule of the verdict, one of `RULES`.
        place: The place in the paper, as its inventory names it; several places are separated by "; ".
        unit: The unit of the number: "%", "s", "bits".
        support: Further numbers that explain ours, by name.
        note: One sentence in addition to the numbers.
        outside: The condition of the paper that does not hold where this was measured; empty if all hold.
        reconstructed: Whether the paper's formula was lost in our copy and is a reconstruction.
        held_out: Whether the number is of rows that were not trained on.
        opposite: The value that the paper excludes: an interval that contains it and the paper's number is undecided.
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
        """The verdict of the rule, unless the claim was measured outside of the paper's conditions."""
        if self.outside:
            return "outside"
        answer = RULES[self.rule](self)
        if isinstance(answer, str):
            return answer
        if self.reconstructed and not answer:
            return "undecided"
        return "reproduced" if answer else "differs"

    @property
    def places(self) -> tuple[str, ...]:
        """The places that the claim answers."""
        return tuple(place for place in self.place.split("; ") if place)

    @property
    def ours(self) -> str:
        """Our number with its interval and unit, as text."""
        if self.value is None:
            return "-"
        if self.rule == "holds":
            return "holds" if self.value else "does not hold"
        return number_text(self.interval, self.unit)

    @property
    def theirs(self) -> str:
        """The paper's number or statement, as text."""
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
    text = format(value, ".3g") if isinstance(value, Interval | float) else str(value)
    return f"{text} {unit}".rstrip()


def number_rule(claim: Claim) -> Verdict | bool:
    paper, ours = _printed(claim), claim.interval
    scale = abs(paper) or abs(claim.opposite)  # NaN where a paper's 0 has no opposite
    agrees = paper in ours or ours.value == paper or abs(ours.value - paper) <= TOLERANCE * scale
    return "undecided" if agrees and claim.opposite in ours else agrees


def equal_rule(claim: Claim) -> Verdict | bool:
    paper, ours = _printed(claim), claim.interval
    agrees = abs(ours.value - paper) <= TOLERANCE * abs(paper)
    return "undecided" if paper in ours and not agrees else agrees


def slope_rule(claim: Claim) -> Verdict | bool:
    answer = number_rule(replace(claim, opposite=0.0))
    steeper = claim.held_out and claim.interval.value < _printed(claim)
    return "exceeded" if steeper and not answer else answer


def side_rule(claim: Claim) -> Verdict | bool:
    paper, ours = _printed(claim), claim.interval
    if ours.known and not ours.excludes(paper):
        return "undecided"
    return (ours.value > paper) == (claim.rule == "above")


def at_most_rule(claim: Claim) -> Verdict | bool:
    paper, ours = _printed(claim), claim.interval.value
    return "exceeded" if ours < paper else ours == paper


def digits_rule(claim: Claim) -> bool:
    ours, papers = [claim.value, *claim.support.values()], map(Decimal, str(claim.paper).split(", "))
    return all(abs(ours[i] - float(p)) <= 0.55 * 10.0 ** int(p.as_tuple().exponent) for i, p in enumerate(papers))


def _printed(claim: Claim) -> float:
    if not isinstance(claim.paper, float | int):
        raise TypeError(f"the rule {claim.rule!r} of {claim.what!r} needs a number of the paper, not {claim.paper!r}")
    return float(claim.paper)


# A verdict, or whether the claim is reproduced.
RULES: dict[str, Callable[[Claim], Verdict | bool]] = {
    "number": number_rule,
    "equal": equal_rule,
    "slope": slope_rule,
    "above": side_rule,
    "below": side_rule,
    "at most": at_most_rule,
    "close": lambda claim: 1 / (1 + CLOSE) <= claim.interval.value <= 1 + CLOSE,
    "digits": digits_rule,
    "holds": lambda claim: "undecided" if claim.value is None else bool(claim.value),
    "new": lambda _: "new",
}
