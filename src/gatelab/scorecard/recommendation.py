"""The recommendation: a few rules over measured numbers, each with its reason.

1. **Does more help?** The unit with the least error at the budget is held against itself at half its width, or at the
   narrowest there is, on the same test rows. If its error is less with more parameters (95 % interval of the ratio
   below 1), and no smaller network is certainly better, the error is limited by the units: rule 2. If it is not less
   over twice the width, something in the data limits it: rule 3. Else that is open: rule 2.
2. **Least error at equal parameters.** The error counts first. Units whose error cannot be told from the least (95 %),
   and is measured no higher than that of a unit that can, are equals.
3. **The cheapest that is as good.** Of all networks of all units and widths, those whose error cannot be told from the
   least (95 %) and is measured within a tenth of it are equals. The operations a row count first: of every unit the
   equal with the fewest of them, as far as they are within a tenth of the fewest of all.
4. **The majority.** Among those that are left every two are compared by all lines of `evidence.lines`, and the one that
   no other beats by more decided lines is taken. Where lines are level, or go round in a circle, the number that counts
   first decides as it was measured.

So a unit is taken against the majority of decided lines only where the line that counts first decides, or in a circle;
and then the reason says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gatelab.display import Compact
from gatelab.scorecard.evidence import Contender, Evidence, FittedNetwork, Line, and_list, caveats, lines

Regime = Literal["units", "noise", "rows", "exact", "open"]
WITHIN = 1.1
ALIKE = 1.25  # test over training error up to which the rest is taken for noise
EXACT = 1e-9  # of the deviation
MAJORITY = "majority"


@dataclass(frozen=True)
class Rival(Compact):
    """Another unit beside the recommended one.

    Attributes:
        unit: its name.
        width: that of the network that was weighed.
        lines: all lines on the two.
        decided_by: what decided between them: the name of a line, or "majority".
        reason: the sentence that says so, with the lines for and against the recommended unit.
    """

    unit: str
    width: int
    lines: tuple[Line, ...]
    decided_by: str
    reason: str

    @property
    def votes(self) -> tuple[int, int]:
        """How many decided lines are for the recommended unit, and how many for this one."""
        return votes(self.lines, self.unit)


@dataclass(frozen=True)
class Recommendation(Compact):
    """Which unit, of which width, and why.

    Attributes:
        unit: its name.
        width: how many neurons.
        parameters: how many parameters that is.
        regime: what limits the error: the "units", "noise", too few "rows", nothing ("exact"), or "open" where the
            widths that were fitted do not tell.
        reasons: why this unit, in sentences.
        caveats: what should not be forgotten, in sentences.
        equals: the units whose error could not be told from its error.
        rivals: all other units, each with the lines for and against it.
    """

    unit: str
    width: int
    parameters: int
    regime: Regime
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]
    equals: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()

    def __str__(self) -> str:
        return f"{self.unit} of width {self.width}, {self.parameters} parameters"


def recommend(evidence: Evidence) -> Recommendation:
    """The unit and width that the rules at the top of this module choose.

    Args:
        evidence: all that was measured.

    Returns:
        A `Recommendation` with its reasons and its caveats.
    """
    regime = limited_by(evidence)
    first: Literal["error", "FLOPs"]
    if regime in ("units", "open"):
        contenders, reasons, first = contenders_at_budget(evidence), reasons_of_error(evidence, regime), "error"
    else:
        contenders, reasons, first = cheapest_contenders(evidence, regime), reasons_of_cost(evidence, regime), "FLOPs"
    chosen, rivals = weigh(contenders, first)
    equals = tuple(c.unit for c in contenders if c.equal and c is not chosen)
    return Recommendation(
        unit=chosen.unit,
        width=chosen.width,
        parameters=chosen.parameters,
        regime=regime,
        reasons=(*reasons, *(rival.reason for rival in rivals)),
        caveats=caveats(evidence, regime, chosen, equals),
        equals=equals,
        rivals=rivals,
    )


# ---- rule 1


def limited_by(evidence: Evidence) -> Regime:
    """Rule 1."""
    leader, best, growth = evidence.leader, evidence.best, evidence.growth
    if best.rmse.value <= EXACT * evidence.facts.deviation:
        return "exact"
    if evidence.network(leader.unit, leader.width).behind.low <= 1:
        if growth is not None and growth.ratio.high < 1:
            return "units"
        if growth is None or not growth.doubled:
            return "open"
    if best.rmse.value <= ALIKE * best.train_rmse:
        return "noise"
    return "rows"


# ---- rule 2


def contenders_at_budget(e: Evidence) -> list[Contender]:
    """Every unit as it is at the budget."""
    apart = min((s.rmse for s in e.scores if s.behind_low > 1), default=float("inf"))
    return [
        Contender(
            unit=s.unit,
            width=s.width,
            parameters=s.parameters,
            flops=s.flops,
            rmse=s.rmse_interval,
            behind=s.behind_interval,
            equal=s is e.leader or (s.behind_low <= 1 and s.rmse <= apart),
            score=s,
        )
        for s in e.scores
    ]


def reasons_of_error(e: Evidence, regime: Regime) -> list[str]:
    """Why the error at equal parameters counts first, and what it is."""
    leader, growth = e.leader, e.growth
    error = f"{leader.unit} has RMSE {leader.rmse_interval} on test rows at {leader.parameters} parameters"
    others = [s for s in e.scores if s is not leader and s.behind_low > 1]
    if others:
        nearest = min(others, key=lambda s: s.behind)
        error += (
            f"; the next that can be told from it, {nearest.unit}, has {nearest.behind:.3g} times that "
            f"[{nearest.behind_low:.3g}, {nearest.behind_high:.3g}]"
        )
    if growth is None:
        alone = f"within {e.budget} parameters {leader.unit} was fitted at width {leader.width} alone"
        return [f"{alone}: nothing says what limits the error, and the least one counts first", error]
    change = f"from {growth.step} parameters its error goes to {growth.shares}"
    if regime == "units":
        why = f"more parameters still pay: {leader.unit} has the least error at the budget, and {change}; so the"
    else:
        why = (
            f"what limits the error is open: {leader.unit} has the least one at the budget, and {change}, which is "
            "undecided over less than twice the width; the"
        )
    return [f"{why} error at equal parameters counts first", error]


# ---- rule 3


def cheapest_contenders(e: Evidence, regime: Regime) -> list[Contender]:
    """Of every unit the cheapest network that is as good as the best; of a unit that has none its best."""
    chosen = []
    for score in e.scores:
        own = [n for n in e.networks if n.unit == score.unit]
        equals = [n for n in own if as_good_as_best(n, e, regime)]
        if equals:
            n = min(equals, key=lambda n: (n.flops, n.rmse.value))
        else:
            n = min(own, key=lambda n: n.rmse.value)
        chosen.append(
            Contender(
                unit=n.unit,
                width=n.width,
                parameters=n.parameters,
                flops=n.flops,
                rmse=n.rmse,
                behind=n.behind,
                equal=bool(equals),
                score=score,
            )
        )
    return chosen


def as_good_as_best(n: FittedNetwork, e: Evidence, regime: Regime) -> bool:
    """Whether the rules take a network for as good as the best one."""
    if regime == "exact":
        return n.rmse.value <= EXACT * e.facts.deviation
    return n is e.best or (n.behind.low <= 1 and n.behind.value <= WITHIN)


def reasons_of_cost(e: Evidence, regime: Regime) -> list[str]:
    """Why the cost counts first, and what it is."""
    best = e.best
    equals = [n for n in e.networks if as_good_as_best(n, e, regime)]
    cheapest, dearest = min(equals, key=lambda n: n.flops), max(equals, key=lambda n: n.flops)
    reasons = [why_more_does_not_help(e, regime)]
    if len(equals) > 1:
        reasons.append(
            f"the least error is {best.rmse}, of {best.unit} of width {best.width}; {len(equals)} of {len(e.networks)} "
            "networks cannot be told from it (95 %) and are within a tenth of it; so the cheapest counts: operations a "
            f"row go from {cheapest.flops}, of {cheapest.unit} of width {cheapest.width}, to {dearest.flops}"
        )
    else:
        reasons.append(f"no other network has an error as small as {best.unit} of width {best.width}, {best.rmse}")
    return reasons


def why_more_does_not_help(e: Evidence, regime: Regime) -> str:
    """What limits the error, in a sentence."""
    best, leader, growth = e.best, e.leader, e.growth
    if regime == "exact":
        return f"the target is fitted to rounding (RMSE {best.rmse.value:.1g}): nothing is left to be gained"
    behind = e.network(leader.unit, leader.width).behind
    if growth is None or behind.low > 1:
        why = (
            f"a smaller network, {best.unit} of width {best.width}, is better than all at the budget: the best of "
            f"them has {behind.value:.3g} times its error {behind.ends()}"
        )
    else:
        why = (
            f"more parameters do not help: from {growth.step} of them the error of "
            f"{leader.unit}, the best at the budget, goes to {growth.shares}"
        )
    ratio = best.rmse.value / best.train_rmse
    if regime == "noise":
        return f"{why}; test and training error of the best network are alike ({ratio:.2f}), so that noise is left"
    return f"{why}; the best network's test error is {ratio:.2g} times its training error, so that rows are too few"


# ---- rule 4


def weigh(contenders: Sequence[Contender], first: Literal["error", "FLOPs"]) -> tuple[Contender, tuple[Rival, ...]]:
    """Which of them, by the number that counts first and the majority of decided lines; the others, with reasons."""
    left = [c for c in contenders if c.equal]
    if first == "FLOPs":
        fewest = min(c.flops for c in left)
        left = [c for c in left if c.flops <= WITHIN * fewest]
    unbeaten = [c for c in left if not any(beats(other, c) for other in left)]
    chosen = min(unbeaten or left, key=lambda c: as_measured(c, first))
    rivals = (rival_of(chosen, other, left, first) for other in contenders if other is not chosen)
    return chosen, tuple(rivals)


def as_measured(c: Contender, first: str) -> tuple[float, float]:
    """The number that counts first, and then the other one."""
    if first == "error":
        return c.rmse.value, c.flops
    return c.flops, c.rmse.value


def votes(weighed: Sequence[Line], other: str) -> tuple[int, int]:
    """How many decided lines are against a unit, and how many for it."""
    decided = [line.favours for line in weighed if line.decided]
    return len(decided) - decided.count(other), decided.count(other)


def beats(a: Contender, b: Contender) -> bool:
    """Whether more decided lines are for a than for b."""
    wins, losses = votes(lines(a, b), b.unit)
    return wins > losses


def rival_of(chosen: Contender, other: Contender, left: Sequence[Contender], first: str) -> Rival:
    """Another unit beside the chosen one, and what decided between them; `left` are those that were weighed."""
    weighed = lines(chosen, other)
    wins, losses = votes(weighed, other.unit)
    if not other.equal and other.behind.low > 1:
        decided_by = "error"
        why = f"error decides, that of {other.unit} is {other.behind} times the least and can be told from it"
    elif not other.equal:
        decided_by = "error"
        why = (
            f"error as measured decides, that of {other.unit} is {other.behind} times the least: undecided, but too "
            "far above it for an equal"
        )
    elif other not in left:
        decided_by = "FLOPs"
        why = f"FLOPs decide, {chosen.flops} beside {other.flops}, for where errors are equal the cost counts first"
    elif wins > losses:
        decided_by, why = MAJORITY, f"the majority of decided lines, {wins} to {losses}, decides"
    elif wins == losses and as_measured(chosen, first) <= as_measured(other, first):
        decided_by = first
        why = f"the decided lines are level, {wins} to {losses}, and {first} as measured decides"
    elif wins == losses:
        stronger = next(c for c in left if beats(c, other))
        decided_by = MAJORITY
        why = f"the decided lines are level, {wins} to {losses}, but {stronger.unit} has the majority of them over it"
    else:
        decided_by = first
        why = f"the majorities go round in a circle, {wins} to {losses} here, and {first} as measured decides"
    if losses > wins:
        why += f", against the majority of decided lines, {losses} to {wins}"
    reason = f"{chosen.unit} beside {other.unit} of width {other.width}: {why}{for_and_against(weighed, other.unit)}"
    return Rival(other.unit, other.width, weighed, decided_by, reason)


def for_and_against(weighed: Sequence[Line], other: str) -> str:
    """The names of the lines that are for the chosen unit, against it, and undecided."""

    def named(decided: bool, against: bool) -> str:
        names = [s.name for s in weighed if s.decided is decided and (s.favours == other) is against]
        return and_list(names)

    parts = (
        ("for it", named(decided=True, against=False)),
        ("against it", named(decided=True, against=True)),
        ("undecided", named(decided=False, against=False)),
        ("undecided, though as measured against it", named(decided=False, against=True)),
    )
    return "".join(f"; {words}: {names}" for words, names in parts if names)
