"""The recommendation: a few rules over measured numbers, each with its reason.

1. **Does more help?** The unit with the least error at the budget is held against itself at half the budget, on the
   same test rows. If its error is less with more parameters (95 % interval of the ratio below 1), and no smaller
   network is certainly better, the error is limited by the units: rule 2. Else something in the data limits it: rule 3.
2. **Least error at equal parameters.** Units whose error cannot be told from the least (95 %) are equals. Among equals
   those go whose kernel is conditioned more than twice as badly as the best one's, as far as both numbers are known;
   then the fastest is taken, where its quartiles are clear of the others'; then the least error.
3. **The cheapest that is as good.** Of all networks of all units and widths, those whose error cannot be told from the
   least (95 %) and is measured within a tenth of it are equals; the one with the fewest operations a row is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gatelab.scorecard.caveats import caveats
from gatelab.scorecard.evidence import Evidence, Network, Score

Regime = Literal["units", "noise", "rows", "exact", "open"]
BETTER = 2.0  # condition numbers nearer than that decide nothing
WITHIN = 1.1
ALIKE = 1.25  # test over training error up to which the rest is taken for noise
EXACT = 1e-9  # of the deviation


@dataclass(frozen=True)
class Recommendation:
    """Which unit, of which width, and why. `equals` are the units that could not be told from it.

    `regime` is what limits the error: the "units", "noise", too few "rows", nothing ("exact"), or "open" where only
    one width was fitted.
    """

    unit: str
    width: int
    parameters: int
    regime: Regime
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]
    equals: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.unit} of width {self.width}, {self.parameters} parameters"


def recommend(evidence: Evidence) -> Recommendation:
    """The unit and width that the rules above choose."""
    regime = limited_by(evidence)
    if regime in ("units", "open"):
        chosen, equals, reasons = _at_budget(evidence, regime)
    else:
        chosen, equals, reasons = _cheapest(evidence, regime)
    told = caveats(evidence, regime, chosen, equals)
    return Recommendation(chosen.unit, chosen.width, chosen.parameters, regime, tuple(reasons), told, equals)


def limited_by(evidence: Evidence) -> Regime:
    """Rule 1."""
    leader, best, facts = evidence.leader, evidence.best, evidence.facts
    if best.rmse.value <= EXACT * facts.deviation:
        return "exact"
    at_budget = evidence.network(leader.unit, leader.width)
    if at_budget.behind.low <= 1:
        if evidence.growth is None:
            return "open"
        if evidence.growth.high < 1:
            return "units"
    return "noise" if best.rmse.value <= ALIKE * best.train_rmse else "rows"


def _at_budget(e: Evidence, regime: Regime) -> tuple[Score, tuple[str, ...], list[str]]:
    leader = e.leader
    equals = [s for s in e.scores if s is leader or s.behind_low <= 1]
    chosen, why = break_tie(equals)
    if e.growth is not None and regime == "units":
        change = f"from half of {e.budget} parameters to all of them its error falls to {_share(e.growth.value)}"
        reasons = [
            f"more parameters still pay: {leader.unit} has the least error at the budget, and {change}"
            f" [{_share(e.growth.low)}, {_share(e.growth.high)}]; so the error at equal parameters decides"
        ]
    else:
        reasons = ["one width alone was fitted: nothing says what limits the error, and the least one decides"]
    others = [s for s in e.scores if s not in equals]
    if others:
        nearest = min(others, key=lambda s: s.behind)
        reasons.append(
            f"{_error(leader)} on test rows at {leader.parameters} parameters; the next that can be told from it, "
            f"{nearest.unit}, has {nearest.behind:.3g} times that [{nearest.behind_low:.3g}, {nearest.behind_high:.3g}]"
        )
    else:
        reasons.append(f"{_error(leader)} on test rows at {leader.parameters} parameters")
    return chosen, tuple(s.unit for s in equals if s is not chosen), reasons + why


def break_tie(equals: Sequence[Score]) -> tuple[Score, list[str]]:
    """Rule 2's order among equals: conditioning, then throughput, then error; and which of them decided."""
    if len(equals) == 1:
        return equals[0], []
    reasons = [f"{', '.join(s.unit for s in equals)} cannot be told apart by their errors on these test rows (95 %)"]
    left = list(equals)
    # Of sampled kernels the condition number is too large: it speaks against nobody.
    lowest = min(left, key=_known_condition)
    decides = lowest.resolved and not lowest.kernel_networks
    kept = [s for s in left if not decides or s.kernel_networks or s.condition_low <= BETTER * lowest.condition]
    if len(kept) < len(left):
        worse = ", ".join(f"{s.unit} {_condition(s)}" for s in left if s not in kept)
        reasons.append(
            f"conditioning speaks for {', '.join(s.unit for s in kept)}: {_condition(lowest)} beside {worse}"
        )
        left = kept
    fastest = max(left, key=lambda s: s.rows_per_second)
    if all(s is fastest or s.rows_per_second_high < fastest.rows_per_second_low for s in left) and len(left) > 1:
        slower = ", ".join(f"{s.unit} {s.rows_per_second:,.0f}" for s in left if s is not fastest)
        reasons.append(f"throughput decides: {fastest.unit} {fastest.rows_per_second:,.0f} rows a second, {slower}")
        left = [fastest]
    chosen = min(left, key=lambda s: s.rmse)
    if len(left) > 1:
        reasons.append(f"nothing else tells them apart; {chosen.unit} has the least error as measured")
    return chosen, reasons


def _cheapest(e: Evidence, regime: Regime) -> tuple[Network, tuple[str, ...], list[str]]:
    """Rule 3."""
    best, facts = e.best, e.facts
    if regime == "exact":
        equals = [n for n in e.networks if n.rmse.value <= EXACT * facts.deviation]
    else:
        equals = [n for n in e.networks if n is best or (n.behind.low <= 1 and n.behind.value <= WITHIN)]
    chosen = min(equals, key=lambda n: (n.flops, n.rmse.value))
    others = tuple(dict.fromkeys(n.unit for n in equals if n.unit != chosen.unit))
    reasons = [_why_more_does_not_help(e, regime)]
    if chosen is not best:
        reasons.append(
            f"the least error is {best.rmse.value:.3g} [{best.rmse.low:.3g}, {best.rmse.high:.3g}], of {best.unit} of "
            f"width {best.width}; {len(equals)} of {len(e.networks)} networks cannot be told from it (95 %) and are "
            f"within a tenth of it"
        )
    dearest = max(equals, key=lambda n: n.flops)
    reasons.append(
        f"of these {chosen.unit} of width {chosen.width} is the cheapest: {chosen.flops} operations a row and RMSE "
        f"{chosen.rmse.value:.3g} [{chosen.rmse.low:.3g}, {chosen.rmse.high:.3g}]"
        + (f"; the dearest takes {dearest.flops / chosen.flops:.2g} times as many" if dearest is not chosen else "")
    )
    return chosen, others, reasons


def _why_more_does_not_help(e: Evidence, regime: Regime) -> str:
    best, leader = e.best, e.leader
    if regime == "exact":
        return f"the target is fitted to rounding (RMSE {best.rmse.value:.1g}): nothing is left to be gained"
    if e.growth is None or e.growth.high < 1:
        at = e.network(leader.unit, leader.width)
        told = (
            f"a smaller network, {best.unit} of width {best.width}, is better than all at the budget: the best of "
            f"them has {at.behind.value:.3g} times its error [{at.behind.low:.3g}, {at.behind.high:.3g}]"
        )
    else:
        g = e.growth
        told = (
            f"more parameters do not help: from half of {e.budget} to all of them the error of {leader.unit}, the best "
            f"at the budget, goes to {_share(g.value)} [{_share(g.low)}, {_share(g.high)}]"
        )
    ratio = best.rmse.value / best.train_rmse
    if regime == "noise":
        return f"{told}; test and training error of the best network are alike ({ratio:.2f}), so that noise is left"
    return f"{told}; the best network's test error is {ratio:.2g} times its training error, so that rows are too few"


def _known_condition(s: Score) -> float:
    return s.condition if s.resolved else s.condition_low


def _condition(s: Score) -> str:
    return f"{s.condition:.2g}" if s.resolved else f"above {s.condition_low:.2g}"


def _error(s: Score) -> str:
    return f"{s.unit} has RMSE {s.rmse:.3g} [{s.rmse_low:.3g}, {s.rmse_high:.3g}]"


def _share(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"
