"""What a reader of a scorecard should not forget: each caveat is said where its numbers are there, and only there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gatelab.scorecard.evidence import Evidence, Score

if TYPE_CHECKING:
    from gatelab.scorecard.recommend import Regime

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
