"""Units in a language model on enwik8, from 0.4 to 26 million parameters: is a gate's gain an offset or an exponent?

The record is made on a GPU in parts (`benchmarks/gpu_ladder.py`), and this study reads whatever it has: what too few
sizes leave open is called undecided, with how many there are. A quick run reads the same with fewer draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from scipy.stats import chi2

from gatelab.display import counted
from gatelab.plotting import GREY, Entry, Look, Panel, Pen, canvas, look, looks, style
from gatelab.plotting.curves import size_text
from gatelab.scaling_laws import LadderComparisons, LadderLaws
from gatelab.scaling_laws.ladder_comparisons import more_or_fewer, percent_ends
from gatelab.scaling_laws.ladder_fits import EXPONENT, OFFSET
from gatelab.scaling_laws.ladder_losses import DRAWS, SIGNIFICANT, LadderAxis, seed_noise
from gatelab.statistics import Interval
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    Verdict,
    numbers,
    ticker,
)
from gatelab.studies.ladder.climbs import (
    AXES,
    NOUNS,
    REFERENCE,
    Frame,
    Regime,
    agreement,
    at_best_rates,
    bits_table,
    comparisons_table,
    first_rise,
    gated,
    gaussian_conditions,
    laws_of,
    laws_table,
    least_known,
    model_conditions,
    plain_frame,
    rates_table,
    regime_name,
    regimes_of,
    speed_rows,
    worth_table,
)
from gatelab.studies.records import origin, read_record, record_path
from gatelab.studies.verdicts import reproduced_if
from gatelab.train import Ladder
from gatelab.train.ladder_runs import run_of
from gatelab.train.ladders import BITS

RECORD, SPEEDS, SLOPES, KERNELS = "ladder/enwik8.json", "ladder/speed.json", "ladder/slopes.json", "ntk/models.json"
COMMAND = "python benchmarks/gpu_ladder.py results/ladder/enwik8.json --store ladder.db"
SPEED_COMMAND = "python benchmarks/gpu_ladder.py results/ladder/enwik8.json --record-only --speeds FILE"
SLOPES_COMMAND = "gatelab scale UNITS --points 400 --widths 2,4,8 --seeds 2 --json"
RIVAL, GATE = "relu2", "swiglu"  # the two that public evidence holds against each other
REPEATED = 20
QUICK_DRAWS = 60
# Al-Rfou et al. 2018 (arXiv 1808.04444): 12 layers on random windows of 512 bytes, 16 a batch; its 64 layers were
# trained for 2.5 million such batches, and the 12 layers are not said to have had fewer.
LITERATURE_BITS, LITERATURE_PARAMETERS = 1.11, 44e6


@dataclass(frozen=True, eq=False)
class Climbs:
    """What the study is made from.

    Attributes:
        ladder: The record.
        regimes: By how often the text was read.
        scores: Of the units, by the name of the score: what other rooms expect to rank them.
        speeds: Tokens a second by unit, size and loop.
        at_best: Every byte once, less what the units' learning rates are known to cost.
        least_known: Units and sizes of which only a lower end of that is known.
    """

    ladder: Ladder
    regimes: Mapping[int, Regime]
    scores: Mapping[str, Mapping[str, float]]
    speeds: Frame
    at_best: Regime
    least_known: Sequence[str]

    @property
    def once(self) -> Regime:
        """Every byte once."""
        return self.regime(1)

    def regime(self, repeats: int) -> Regime:
        """A regime; one without trainings where the record has none."""
        if repeats in self.regimes:
            return self.regimes[repeats]
        empty = self.ladder.table().iloc[:0]
        return Regime(repeats, empty, dict.fromkeys(AXES, "undecided: 0 sizes"), 0)

    @property
    def unswept(self) -> list[str]:
        """Sizes at which no learning rates were swept: those of their climbs are extrapolated."""
        swept = {size for _, size, *_ in self.ladder.sweeps()}
        sizes = dict.fromkeys(size for regime in self.regimes.values() for size in regime.sizes)
        return [size for size in sizes if size not in swept]


def run(request: Request) -> Outcome:
    """The study from the record; a quick one draws less."""
    tick = ticker(request, 3)
    draws = DRAWS
    if request.quick:
        draws = QUICK_DRAWS
    climbs = read_climbs(draws)
    tick()
    tables = tables_of(climbs)
    tick()
    figure = draw(climbs.regimes, tables["bits"])
    tick()
    return Outcome(figure, tables, claims_of(climbs, tables), notes(climbs))


def read_climbs(draws: int = DRAWS) -> Climbs:
    """The record of the ladder and those of speeds, slopes and kernels."""
    ladder = Ladder.read(record_path(RECORD, COMMAND))
    speeds = speed_rows(read_record(SPEEDS, SPEED_COMMAND))
    regimes = regimes_of(ladder, speeds, draws)
    units = list(dict.fromkeys(unit for regime in regimes.values() for unit in regime.units))
    slopes = [
        row
        for row in read_record(SLOPES, SLOPES_COMMAND, "minutes on two cores")["slopes"]
        if (row["against"], row["aggregate"]) == ("P", "best")
    ]
    scores = {
        "κ of Gaussian rows": gaussian_conditions(units),
        "κ of GPT-2": model_conditions(read_record(KERNELS, "python benchmarks/gpu_kernels.py")),
        "the slope in one dimension": {row["unit"]: row["slope"] for row in slopes},
    }
    rates = plain_frame(rates_table(ladder))
    empty = Regime(1, plain_frame(ladder.table()).iloc[:0], {}, draws)
    at_best = at_best_rates(regimes.get(1, empty), rates, speeds)
    return Climbs(ladder, regimes, scores, speeds, at_best, least_known(rates))


def tables_of(climbs: Climbs) -> dict[str, pd.DataFrame]:
    """All tables of the study."""
    references = [unit for unit in (REFERENCE, RIVAL) if unit in climbs.once.units]
    return {
        "bits": (bits := plain_frame(bits_table(climbs.regimes))).assign(swept=~bits["size"].isin(climbs.unswept)),
        "laws": laws_table(climbs.regimes),
        "worth": worth_table(climbs.regimes, references),
        "comparisons": comparisons_table(climbs.regimes),
        "regimes": regimes_table(climbs),
        "rates": rates_table(climbs.ladder),
        "agreement": agreement_table(climbs),
    }


def regimes_table(climbs: Climbs) -> pd.DataFrame:
    """A row a gated unit: its bits less those of relu2 in both regimes, at the sizes that both have, and the change."""
    rows = []
    for unit in [name for name in climbs.once.units if gated(name)]:
        row: dict[str, Any] = {"unit": unit, "rival": RIVAL}
        change = change_of(climbs, unit)
        row["sizes"] = ", ".join(change.sizes)
        for name, value in (("once", change.once), ("repeated", change.repeated), ("change", change.change)):
            if isinstance(value, str):
                row |= {name: math.nan, f"{name}_low": math.nan, f"{name}_high": math.nan, "reason": value}
            else:
                row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        rows.append(row)
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class RepeatChange:
    """A gated unit's bits less those of relu2 in the two regimes, at their common sizes; sentences where not known.

    `change` is the mean over sizes of `changes`.
    """

    sizes: tuple[str, ...]
    once: Interval | str
    repeated: Interval | str
    change: Interval | str
    changes: Mapping[str, Interval]


def change_of(climbs: Climbs, unit: str) -> RepeatChange:
    """What repeating does to the lead of a gate, size by size, each weighed by the inverse square of its reach.

    The two regimes share no batches, and sizes no seeds: their reaches add as squares.
    """
    both = [climbs.regime(repeats).common_sizes([unit, RIVAL]) for repeats in (1, REPEATED)]
    sizes = tuple(size for size in both[0] if size in both[1])
    leads_of = [climbs.regime(repeats).restricted(sizes).difference(unit, RIVAL) for repeats in (1, REPEATED)]
    once, repeated = (lead if isinstance(lead, str) else lead[0] for lead in leads_of)
    if isinstance(once, str) or isinstance(repeated, str):
        unknown = "undecided: 0 sizes in both regimes"
        return RepeatChange(sizes, unknown, unknown, unknown, {})
    changes: dict[str, Interval] = {}
    for size in sizes:
        first, second = (climbs.regime(repeats).difference(unit, RIVAL, size) for repeats in (1, REPEATED))
        if not isinstance(first, str) and not isinstance(second, str):
            apart = second[0].value - first[0].value
            reach = math.hypot(first[0].high - first[0].value, second[0].high - second[0].value)
            changes[size] = Interval(apart, apart - reach, apart + reach)
    value, reach = weighed([(own.value, own.high - own.value) for own in changes.values()])
    return RepeatChange(sizes, once, repeated, Interval(value, value - reach, value + reach), changes)


def unlike_words(values: Mapping[str, Interval]) -> str:
    """What each size says, where they differ by Cochran's Q and not all to one side: no mean is to be told then.

    A reach is that of a t-interval, more than 1.96 standard errors. Taken for so many, which makes good for their being
    estimates, chance alone makes sizes look unlike in about 5 of 100 cases.

    >>> unlike_words({"0.4M": Interval(0.0, -0.2, 0.2), "1.3M": Interval(0.1, -0.1, 0.3)})
    ''
    >>> unlike_words({"0.4M": Interval(-0.1, -0.3, 0.1), "1.3M": Interval(0.5, 0.4, 0.6)})
    'sizes differ: -0.100 at 0.4M [-0.300, +0.100], +0.500 at 1.3M [+0.400, +0.600]'
    """
    if len({one.value > 0 for one in values.values()}) < 2:
        return ""
    reaches = [(own.value, own.high - own.value) for own in values.values()]
    mean, _ = weighed(reaches)
    q = math.fsum((1.96 * (value - mean) / reach) ** 2 for value, reach in reaches)
    if chi2.sf(q, len(values) - 1) > SIGNIFICANT:
        return ""
    own = ", ".join(f"{one.value:+.3f} at {size} {one.ends('+.3f')}" for size, one in values.items())
    return f"sizes differ: {own}"


def weighed(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean of values with reaches, each by the inverse square of its reach, and the reach of the mean.

    >>> weighed([(1.0, 3.0), (2.0, 3.0)])[0], round(weighed([(1.0, 3.0), (2.0, 3.0)])[1], 3)
    (1.5, 2.121)
    """
    weights = [reach**-2 for _, reach in values]
    total = math.fsum(weights)
    return math.fsum(w * value for w, (value, _) in zip(weights, values, strict=True)) / total, total**-0.5


def agreement_table(climbs: Climbs) -> pd.DataFrame:
    """A row a regime and score: the rank correlation with the losses, and both its intervals."""
    rows = []
    for regime in climbs.regimes.values():
        for name, scores in climbs.scores.items():
            row: dict[str, Any] = {"repeats": regime.repeats, "score": name}
            agreed = agreement(regime, scores)
            if isinstance(agreed, str):
                rows.append(row | {"sentence": agreed})
                continue
            row |= {"units": ", ".join(agreed.units), "correlation": agreed.correlation.value}
            row |= {"low": agreed.correlation.low, "high": agreed.correlation.high, "p": agreed.p}
            row |= {"units_low": agreed.over_units.low, "units_high": agreed.over_units.high}
            rows.append(row | {"sentence": agreed.sentence})
    return pd.DataFrame(rows)


# ---- claims


def claims_of(climbs: Climbs, tables: Tables) -> tuple[Claim, ...]:
    """What was measured beside what others say."""
    claims = [law_claim(climbs, repeats, axis) for repeats in (1, REPEATED) for axis in AXES]
    claims.append(single_sizes_claim(climbs.once))
    claims += [worth_claim(climbs, reference) for reference in (RIVAL, REFERENCE)]
    claims += [hypothesis_claim(climbs, repeats, unit) for repeats in (1, REPEATED) for unit in gates_of(climbs)]
    claims += [change_claim(climbs, unit) for unit in gates_of(climbs)]
    claims += [pairs_claim(climbs.regime(1), climbs.at_best), pairs_claim(climbs.regime(REPEATED))]
    claims += [rates_claim(tables["rates"]), cost_claim(tables["rates"], climbs.once.sizes)]
    claims += [rank_claim(climbs.once, name, scores) for name, scores in climbs.scores.items()]
    return (*claims, literature_claim(climbs.once, tables["bits"]))


def gates_of(climbs: Climbs) -> list[str]:
    """The gated units that climbed in any regime."""
    units = dict.fromkeys(unit for regime in climbs.regimes.values() for unit in regime.units)
    return [unit for unit in units if gated(unit)]


def law_claim(climbs: Climbs, repeats: int, axis: LadderAxis) -> Claim:
    """Whether units differ by an offset or in their exponents. The first paper says: in their exponents."""
    regime = climbs.regime(repeats)
    what = f"offset or exponent, L against {NOUNS[axis]}, {regime.name}"
    paper, laws = "an exponent: P^-3 for GLUs, P^-2 for MLPs, of regressions in one dimension", regime.law(axis)
    if isinstance(laws, str):
        return Claim(what, paper, laws, "undecided", f"{climbed_words(regime)}.")
    common = laws.laws[OFFSET.name]
    ratios = steepest_first(laws)
    because = (
        f"{laws.sentence[:1].upper()}{laws.sentence[1:]}: {ratio_words(ratios)}. They are of "
        f"{counted(len(laws.losses.parameters), 'size')}; with one exponent for all it is {common.exponent[0]:.3f}. "
        f"{limit_words(laws)} The units of a size lie {laws.common_misfit:.3f} bits off the laws together."
    )
    verdict, found, p = steeper_verdict(laws), law_words(laws), p_words(laws)
    first, last = outer_units(ratios)
    at_best = climbs.at_best.law(axis)
    if repeats == 1 and not isinstance(at_best, str):
        others = steepest_first(at_best)
        # What hangs on learning rates is not said.
        both = zip((first, last), outer_units(others), strict=True)
        first, last = ([unit for unit in own if unit in other] for own, other in both)
        because += (
            f" Less what learning rates are known to cost: {law_words(at_best)}, {p_words(at_best)}, "
            f"{ratio_words(others)}."
        )
        if at_best.verdict != laws.verdict or steeper_verdict(at_best) != verdict:
            verdict = "undecided"
        if at_best.verdict != laws.verdict:
            found = f"undecided: {laws.verdict}, but {at_best.verdict} less what learning rates cost"
        if climbs.least_known:
            verdict = "undecided"
            because += f" Of {', '.join(climbs.least_known)} only the least is known that they cost: all is open."
    spread = f"{min(r.low for r in laws.ratio):.2f} to {max(r.high for r in laws.ratio):.2f}"
    order = ""
    if found == "exponent":
        parts = [f"{unit} the steepest" for unit in first] + [f"{unit} the least steep" for unit in last]
        order = " and ".join(parts)
    ours = f"{', '.join(filter(None, (found, order)))}; ratios of exponents to their mean {spread}"
    return Claim(what, paper, ours, verdict, because, p)


def law_words(laws: LadderLaws) -> str:
    """The verdict; where one exponent is rejected and so many bits at every size are not, that."""
    factor = f"a factor of {NOUNS[laws.losses.against]} alone is rejected"
    if laws.verdict == "undecided" and laws.exponents_differ.decided:
        return f"undecided: exponents or as many bits at every size ({factor})"
    if laws.verdict == "undecided" and laws.limits_differ.decided:
        return f"undecided: one exponent is not rejected, but {factor} beside an E each"
    return laws.verdict


def limit_words(laws: LadderLaws) -> str:
    """What E is, with one exponent for all, and what it is not."""
    E = laws.laws[OFFSET.name].E
    text = f"E is {E:.2f} bits, a constant of this fit and training, not of the text"
    if E.low > LITERATURE_BITS:
        text += f": a larger model that read it for longer has {LITERATURE_BITS} (arXiv 1808.04444)"
    return f"{text}."


def p_words(laws: LadderLaws) -> str:
    """How often exponents, beside an amplitude each and an E each, and how often E seem to differ so by chance."""
    exponents = f"p {laws.exponents_differ.p:.2g}, and {laws.beyond_shifts.p:.2g} beside an E each"
    return f"{exponents}; of an E each beside offsets p {laws.limits_differ.p:.2g}"


def outer_units(ratios: Mapping[str, Interval]) -> tuple[list[str], list[str]]:
    """The steepest and the least steep unit, each where its interval lies apart from that of the next."""
    units, own = list(ratios), list(ratios.values())
    return units[:1] if own[0].low > own[1].high else [], units[-1:] if own[-1].high < own[-2].low else []


def steepest_first(laws: LadderLaws) -> dict[str, Interval]:
    """The exponents of units over their mean, the largest first."""
    return dict(sorted(zip(laws.losses.units, laws.ratio, strict=True), key=lambda pair: -pair[1].value))


def ratio_words(ratios: Mapping[str, Interval]) -> str:
    """Units and their ratios."""
    return ", ".join(f"{unit} {ratio:.2f}" for unit, ratio in ratios.items())


def steeper_verdict(laws: LadderLaws) -> Verdict:
    """Whether gates are steeper: each of them than each other unit; or there is an offset, or one is less steep."""
    if laws.verdict == "undecided":
        return "undecided"
    pairs = list(zip(laws.losses.units, laws.ratio, strict=True))
    gates = [ratio for unit, ratio in pairs if gated(unit)]
    others = [ratio for unit, ratio in pairs if not gated(unit)]
    if laws.verdict == "offset" or any(gate.high < other.low for gate in gates for other in others):
        return "differs"
    if gates and others and all(gate.low > other.high for gate in gates for other in others):
        return "reproduced"
    return "undecided"


def single_sizes_claim(regime: Regime) -> Claim:
    """Whether the answer in parameters hangs on a single size: what the others say."""
    what = f"offset or exponent with a size left out, {regime.name}"
    answers: dict[str, list[str]] = {}
    reasons: list[str] = []
    for size in regime.sizes:
        laws = laws_of(regime.points[regime.points["size"] != size], "parameters", regime.draws)
        if isinstance(laws, str):
            answers.setdefault("undecided", []).append(size)
            reasons.append(f"Without {size}: {laws}.")
        else:
            answers.setdefault(laws.verdict, []).append(size)
            ratios = ratio_words(steepest_first(laws))
            reasons.append(f"Without {size}: {law_words(laws)}, {p_words(laws)}, {ratios}.")
    ours = "; ".join(f"{verdict} without {' or '.join(sizes)}" for verdict, sizes in answers.items())
    verdict: Verdict = "undecided"
    if len(set(answers) - {"undecided"}) == 1:
        verdict = "new"
    return Claim(what, "-", ours or "undecided: 0 sizes", verdict, " ".join(reasons) or f"{climbed_words(regime)}.")


def holds_at_best(climbs: Climbs, better: str, worse: str) -> bool:
    """Whether a lead over all sizes, every byte once, hangs neither on learning rates nor on the rule of variance.

    The two differ significantly less what rates cost too, and with the variance of their pair alone; and of the worse
    unit, which would gain, more than the least cost is known.
    """
    if any(name.startswith(f"{worse} at ") for name in climbs.least_known):
        return False
    return leads(climbs.at_best.difference(better, worse)) and leads(
        climbs.once.difference(better, worse, by_pair=True)
    )


def leads(apart: tuple[Interval, float] | str) -> bool:
    """Whether a difference is below zero, and significantly so."""
    return not isinstance(apart, str) and apart[0].value < 0 and apart[1] <= SIGNIFICANT


def worth_claim(climbs: Climbs, reference: str) -> Claim:
    """How many parameters the gate is worth, every byte once, and whether that falls with size."""
    regime = climbs.once
    what = f"{GATE} in parameters of {reference}, {regime.name}"
    paper = {RIVAL: "fewer: worse on all measures (nanochat, no seeds)"}.get(reference, "-")
    worth = regime.worth(GATE, reference)
    if isinstance(worth, str):
        return Claim(what, paper, worth, "undecided", f"{climbed_words(regime)}.")
    pair = (GATE, reference) if worth.overall.value > 1 else (reference, GATE)
    verdict: Verdict = "new"
    if not worth.overall.excludes(1.0) or not holds_at_best(climbs, *pair):
        verdict = "undecided"
    elif reference == RIVAL:
        verdict = reproduced_if(worth.overall.value < 1)
    because = f"{worth.sentence[:1].upper()}{worth.sentence[1:]}. {unswept_words(climbs)}".rstrip()
    trend = {"constant": "constant, to a tenth of an exponent"}.get(worth.trend, worth.trend)
    ours = f"{worth.by_size}; with size {trend}; one factor for all sizes: {more_or_fewer(worth.overall.value)}"
    return Claim(what, paper, ours, verdict, because, f"{percent_ends(worth.overall)} %")


def hypothesis_claim(climbs: Climbs, repeats: int, unit: str) -> Claim:
    """A gate against relu2: the hypothesis is that gates win when data repeat, and relu2 when they do not."""
    regime = climbs.regime(repeats)
    what = f"{unit} less {RIVAL} over all sizes, {regime.name}"
    wins = "below" if regime.repeats > 1 else "above"
    paper = {"below": "less: gates win when data repeat", "above": "more: relu2 wins when data do not repeat"}[wins]
    apart = regime.difference(unit, RIVAL)
    if regime.points.empty:
        apart = "undecided: 0 sizes"
    if isinstance(apart, str):
        return Claim(what, paper, apart, "undecided", f"{climbed_words(regime)}.")
    d, p = apart
    verdict: Verdict = "undecided"
    sizes = regime.common_sizes([unit, RIVAL])
    because = (
        f"Paired by seed at {', '.join(sizes)}; Holm's p over all pairs of units is {p:.2g}, and above "
        f"{SIGNIFICANT:g} nothing is decided."
    )
    by_size = {size: regime.difference(unit, RIVAL, size) for size in sizes}
    unlike = unlike_words({size: own[0] for size, own in by_size.items() if not isinstance(own, str)})
    if unlike:
        return Claim(what, paper, unlike, "undecided", f"{because} {course_words(climbs, unit)}".rstrip())
    own = regime.difference(unit, RIVAL, by_pair=True)
    if not isinstance(own, str):
        because += f" With the variance of this pair alone, sizes counting alike: {own[0]:+.4f}, Holm's p {own[1]:.2g}."
    pair = (unit, RIVAL) if d.value < 0 else (RIVAL, unit)
    if p <= SIGNIFICANT and leads(regime.difference(*pair, by_pair=True)):
        verdict = reproduced_if((d.value < 0) == (wins == "below"))
        if repeats == 1 and not holds_at_best(climbs, *pair):
            verdict = "undecided"
            because += f" What the learning rates of {pair[1]} cost may account for it."
    return Claim(what, paper, f"{d.value:+.4f} bits", verdict, because, d.ends("+.4f"))


def change_claim(climbs: Climbs, unit: str) -> Claim:
    """Whether a gate gains on relu2 when data repeat."""
    what = f"{unit} less {RIVAL}, repeated less once"
    paper, change = "less: gates gain where data repeat", change_of(climbs, unit)
    if isinstance(change.change, str):
        return Claim(what, paper, change.change, "undecided", f"{climbed_words(climbs.regime(REPEATED))}.")
    assert isinstance(change.once, Interval) and isinstance(change.repeated, Interval)
    because = (
        f"At {', '.join(change.sizes)}: {change.once:+.4f} bits once, {change.repeated:+.4f} repeated. The regimes "
        "share no batches: the reaches of both intervals are added as squares. Nothing was tuned again for the second "
        "regime: learning rates are those of the rule, or within a quarter of it. "
    )
    because += course_words(climbs, unit)
    unlike = unlike_words(change.changes)
    if unlike:
        return Claim(what, paper, unlike, "undecided", because)
    verdict: Verdict = "undecided"
    if change.change.excludes(0.0):
        verdict = reproduced_if(change.change.value < 0)
    return Claim(what, paper, f"{change.change.value:+.4f} bits", verdict, because, change.change.ends("+.4f"))


def course_words(climbs: Climbs, unit: str) -> str:
    """What a unit has more than relu2 where the text repeats, at the largest size: at the end, and at its lowest."""
    lowest = lowest_bits(climbs.ladder, REPEATED)
    sizes = [size for size in climbs.regime(REPEATED).common_sizes([unit, RIVAL]) if (unit, size) in lowest]
    if not sizes:
        return ""
    apart, ends = (lowest[unit, sizes[-1]][i] - lowest[RIVAL, sizes[-1]][i] for i in (0, 1))
    return (
        f"No training stops early: at {sizes[-1]} {unit} less {RIVAL} is {ends:+.3f} bits at the end, and {apart:+.3f} "
        "at the lowest of the few steps that were measured, on the same text."
    )


def lowest_bits(ladder: Ladder, repeats: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Of each unit and size the means over seeds of the lowest loss of a course and of its last."""
    own = plain_frame(ladder.regime(repeats))
    counting = set(zip(own["unit"], own["size"], own["lr"], strict=True))
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for record in ladder.records:
        run = run_of(record.arguments)
        unit, size = run.recipe.unit.name, run.recipe.size
        if (run.part, run.repeats) == ("test", repeats) and (unit, size, run.lrs[0]) in counting:
            course = np.array(record.metrics["course"], float) / BITS
            found[unit, size] = float(course.min(axis=1).mean()), float(course[:, -1].mean())
    return found


def pairs_claim(regime: Regime, at_best: Regime | None = None) -> Claim:
    """How many comparisons are significant by each rule of variance, and less what learning rates are known to cost."""
    what = f"pairs of units that differ significantly, {regime.name}"
    comparisons, by_pair = regime.comparisons, regime.pair_comparisons
    if regime.points.empty:
        comparisons = "undecided: 0 sizes"
    if isinstance(comparisons, str) or isinstance(by_pair, str):
        return Claim(what, "-", str(comparisons), "undecided", f"{climbed_words(regime)}.")
    decided = [row for row in comparisons.rows if row.parameters is None and row.decided]
    names = "; ".join(
        f"{row.first} - {row.second} {row.difference.value:+.3f} {row.difference.ends('+.3f')}" for row in decided
    )
    verdict: Verdict = "undecided"
    if decided_in_both(comparisons, by_pair):
        verdict = "new"
    because = (
        f"Over all sizes, pooled: {names or 'none'}. Paired by seed, Holm's correction over each family, at 5 %. "
        f"{weights_words(regime)} A pair of three seeds has two degrees of freedom by itself; to pool takes all units "
        "to scatter alike."
    )
    (overall, single), (own, own_single) = significant(comparisons), significant(by_pair)
    ours = f"{overall} over all sizes and {single} at single sizes with the variance pooled over all pairs of a size"
    if at_best is not None and not isinstance(at_best.comparisons, str):
        ours += f" ({len(decided_in_both(comparisons, at_best.comparisons))} less what learning rates cost too)"
    ours += f", {own} and {own_single} with that of each pair alone and sizes counting alike"
    return Claim(what, "-", ours, verdict, because)


def significant(comparisons: LadderComparisons) -> tuple[str, str]:
    """How many pairs of how many differ significantly: over all sizes, and at single sizes."""
    over, at = ([row.decided for row in comparisons.rows if (row.parameters is None) == every] for every in (1, 0))
    return f"{sum(over)} of {len(over)}", f"{sum(at)} of {len(at)}"


def weights_words(regime: Regime) -> str:
    """How much the two sizes that count most do in a mean over all."""
    losses = regime.losses
    if isinstance(losses, str):
        return ""
    weights = 1 / np.maximum(seed_noise(losses).own_variance, 1e-300)
    shares = dict(zip(regime.sizes, (weights / weights.sum()).tolist(), strict=True))
    first = sorted(sorted(shares, key=lambda size: -shares[size])[:2], key=regime.sizes.index)
    part = sum(shares[size] for size in first)
    return f"Sizes count by how little their seeds differ: {' and '.join(first)} for {100 * part:.0f} %."


def rates_claim(rates: Frame) -> Claim:
    """How far the best learning rates of units lie apart."""
    spreads = {
        size: (float(own["best"].max() / own["best"].min()), own)
        for size, own in rates.groupby("size", sort=False)
        if len(own) > 1
    }
    what, paper = "best learning rates of units, largest over smallest", "a GLU fails at another unit's rate (marin)"
    if not spreads:
        return Claim(what, paper, "undecided: no size with 2 units", "undecided", "Rates were not swept.")
    ours = ", ".join(f"{spread:.1f} at {size}" for size, (spread, _) in spreads.items())
    parts = [
        f"{size}: {', '.join(f'{u} {lr:.2g}' for u, lr in zip(own['unit'], own['best'], strict=True))}"
        for size, (_, own) in spreads.items()
    ]
    because = f"By a parabola in log lr, one seed a rate. {'; '.join(parts)}."
    return Claim(what, paper, ours, "new", because)


def decided_in_both(first: LadderComparisons, second: LadderComparisons) -> list[tuple[str, str]]:
    """Pairs of units that differ significantly over all sizes, and in the same order, in both."""
    signs = []
    for comparisons in (first, second):
        decided = [row for row in comparisons.rows if row.parameters is None and row.decided]
        signs.append({(row.first, row.second): row.difference.value > 0 for row in decided})
    return [pair for pair, sign in signs[0].items() if signs[1].get(pair) == sign]


def unswept_words(climbs: Climbs) -> str:
    """Sizes without a sweep, and what units gained there that climbed them again at lower rates."""
    sentences = []
    for size in climbs.unswept:
        table = plain_frame(climbs.ladder.trainings)
        here = table[(table["part"] == "test") & (table["repeats"] == 1) & (table["size"] == size)]
        regime = plain_frame(climbs.ladder.regime(1))
        counting = regime[regime["size"] == size].groupby("unit", sort=False)["lr"].last()
        gains = []
        for unit, lr in counting.items():
            own = here[(here["unit"] == unit) & (here["lr"] >= lr)]
            means = own.groupby("lr")["loss"].apply(lambda losses: float(np.mean(losses)) / BITS)
            gains += [means.iloc[1] - means.iloc[0]] if len(means) > 1 else []
        text = f"{size} has no sweep of learning rates"
        if gains:
            text += (
                f": {len(gains)} of its {len(counting)} units were trained again at lower rates and gained "
                f"{min(gains):.3f} to {max(gains):.3f} bits, and the best rates may be lower still"
            )
        sentences.append(f"{text}.")
    return " ".join(sentences)


def cost_claim(rates: Frame, sizes: Sequence[str] = ()) -> Claim:
    """What the learning rates of the climbs cost where they were swept, and at which of the sizes they were not."""
    what = "loss at the climbs' learning rates above that at the best, in the sweeps that the rates come from"
    if rates.empty:
        return Claim(what, "-", "undecided: 0 sizes", "undecided", "No rates were swept.")
    inside, ends = rates[rates["end"] == 0], rates[rates["end"] != 0]

    def words(own: Frame) -> str:
        parts = [f"{row.unit} at {row.size} {row.excess:.4f} ({row.factor:.2f} times it)" for row in own.itertuples()]
        return ", ".join(parts)

    because, ours = "In bits, one seed a rate, and the rate over the best one.", "undecided: all best rates at an end"
    if len(inside):
        because += f" By a parabola: {words(inside)}."
        most = inside.groupby("size", sort=False)["excess"].max()
        ours = f"at most {', '.join(f'{cost:.4f} at {size}' for size, cost in most.items())}"
    if len(ends):
        least = ", ".join(f"{row.unit} at {row.size} {row.excess:.4f}" for row in ends.itertuples())
        because += f" Where the best rate lies at an end of the sweep, at least: {words(ends)}."
        ours += f"; at least, the best rate being at an end of its sweep: {least}"
    unknown = [size for size in sizes if size not in set(rates["size"])]
    if unknown:
        ours += f"; not known at {', '.join(unknown)}"
    verdict: Verdict = "new" if len(inside) else "undecided"
    return Claim(what, "-", ours, verdict, because)


def rank_claim(regime: Regime, name: str, scores: Mapping[str, float]) -> Claim:
    """Whether a score of another room ranks the units as the ladder does."""
    what = f"rank correlation of {name} with the loss, {regime.name}"
    paper = "positive: better conditioned, or steeper, is better"
    agreed = agreement(regime, scores)
    if isinstance(agreed, str):
        return Claim(what, paper, agreed, "undecided", f"{climbed_words(regime)}.")
    verdict: Verdict = "undecided"
    if agreed.p <= SIGNIFICANT:
        verdict = reproduced_if(agreed.correlation.value > 0)
    rows = sorted(zip(agreed.units, agreed.losses, agreed.scores, strict=True), key=lambda row: row[1])
    listed = ", ".join(f"{unit} {loss:.3f} ({score:.3g})" for unit, loss, score in rows)
    because = (
        f"Mean bits over the common sizes, each by the inverse of what its seeds differ by, and the score: {listed}. "
        f"{agreed.sentence}."
    )
    interval = f"over seeds {agreed.correlation.ends('.2f')}, over units {agreed.over_units.ends('.2f') or 'none'}"
    return Claim(what, paper, f"{agreed.correlation.value:.2f}", verdict, because, interval)


def literature_claim(regime: Regime, bits: Frame) -> Claim:
    """The best model of the largest size beside a larger one of the literature."""
    what = "bits a byte of the best model of the largest size"
    paper = f"{LITERATURE_BITS} ({LITERATURE_PARAMETERS / 1e6:.0f} M parameters, arXiv 1808.04444)"
    own = bits[(bits["repeats"] == 1) & bits["bits"].notna()]
    if own.empty:
        return Claim(what, paper, "undecided: 0 sizes", "undecided", f"{climbed_words(regime)}.")
    largest = own[own["size"] == regime.sizes[-1]]
    best = largest.loc[largest["bits"].idxmin()]
    because = (
        f"{best['unit']} with {best['parameters'] / 1e6:.2g} M parameters without embedding, mean of "
        f"{best['seeds'] - best['diverged']} seeds, after {best['tokens'] / 1e6:.0f} M bytes, each read once. The "
        "paper's 12 layers read random windows of 512 bytes, 16 a batch, with dropout and auxiliary losses; its 64 "
        "layers took 2.5 million such batches, 20 G bytes or 228 passes. It gives no figure for one pass, so that none "
        f"is beside ours. Of {counted(len(largest), 'unit')} at this size the best was taken, which favours it."
    )
    return Claim(what, paper, f"{best['bits']:.3f}", "new", because, Interval(0, best["low"], best["high"]).ends(".3f"))


def climbed_words(regime: Regime) -> str:
    """Which units climbed at which sizes.

    >>> empty = pd.DataFrame(columns=["unit", "size", "parameters"])
    >>> climbed_words(Regime(20, empty, {}, 0))
    'Nothing has climbed yet with a 20th of the text 20 times'
    """
    if regime.points.empty:
        return f"Nothing has climbed yet with {regime_name(regime.repeats)}"
    groups: dict[tuple[str, ...], list[str]] = {}
    for size in regime.sizes:
        units = tuple(dict.fromkeys(regime.points[regime.points["size"] == size]["unit"]))
        groups.setdefault(units, []).append(size)
    parts = [f"{counted(len(units), 'unit')} at {', '.join(sizes)}" for units, sizes in groups.items()]
    return f"Climbed with {regime_name(regime.repeats)}: {'; '.join(parts)}"


def notes(climbs: Climbs) -> tuple[str, ...]:
    """How it was measured, and what is left out."""
    facts = dict(climbs.ladder.facts)
    lines = [origin(facts)]
    lines += [f"{climbed_words(regime)}." for regime in climbs.regimes.values()]
    lines += [
        f"A decoder with RMS norms, rotary positions and a head of its own reads bytes, {facts['batch']} windows of "
        f"{facts['context']} a batch, {facts['steps']} steps of {facts['optimiser']}; glu is the ReGLU. Units have "
        "equal parameters and operations, the same batches for the same seed, and learning rates of their own.",
        "Intervals are 95 %: of bits a byte Student's t over seeds; of differences paired by seed, with the variance "
        "of all pairs of a size, by whose inverse sizes count in a mean over all; of laws a bootstrap over seeds. A "
        "unit enters a law with three sizes of two seeds or more.",
        "The best unit of a size is chosen by the same losses, so that what lies above it is a little too large.",
        "GPU seconds are those of a training among three that are trained together on an idle device "
        f"(results/{SPEEDS}: {', '.join(dict.fromkeys(climbs.speeds['unit']))}); units without speeds are not shown.",
    ]
    table = plain_frame(climbs.ladder.trainings)
    diverged = table[table["diverged"].notna() & (table["part"] == "test")]
    if len(diverged):
        told = [f"{p.unit} at {p.size}, lr {p.lr:.3g}, seed {p.seed}" for p in diverged.itertuples()]
        lines.append(f"Diverged, marked and left out: {'; '.join(told)}.")
    for regime in climbs.regimes.values():
        laws = regime.law()
        if isinstance(laws, LadderLaws) and laws.losses.left_out:
            lines.append(f"Left out of laws, {regime.name}: {'; '.join(laws.losses.left_out)}.")
    return tuple(lines)


# ---- in a few words


def headline(climbs: Climbs, tables: Tables) -> str:
    """What came out so far where every byte is read once, and what repeating changes, as a paragraph."""
    regime, bits = climbs.once, plain_frame(tables["bits"])
    trainings = sum(len(r.points) for r in climbs.regimes.values())
    sentences = [
        f"{counted(trainings, 'training')} on an {climbs.ladder.facts['device']}, enwik8 byte by byte; units have "
        f"equal parameters and operations, and learning rates of their own. {climbed_words(regime)}."
    ]
    sentences += [f"At {ranking(regime, bits, size)}." for size in regime.common_sizes(regime.units)[-1:]]
    sentences.append(unswept_words(climbs))
    if not isinstance(regime.comparisons, str):
        words = "Pairs of units that differ significantly:"
        sentences += [claim_words(words, pairs_claim(regime, climbs.at_best)), weights_words(regime)]
    sentences.append(claim_words("An offset or an exponent, by these losses:", law_claim(climbs, 1, "parameters")))
    sentences += [limit_words(laws) for laws in (regime.law(),) if not isinstance(laws, str)]
    if climbs.least_known:
        sentences.append(f"That is open: of {', '.join(climbs.least_known)} rates were not swept far enough.")
    worth = regime.worth(GATE, RIVAL)
    if isinstance(worth, str):
        sentences.append(f"What {GATE} is worth in parameters of {RIVAL} is {worth}.")
    else:
        sentences.append(f"{worth.sentence[:1].upper()}{worth.sentence[1:]}.")
    cost = "What the learning rates of these climbs cost in their sweeps, in bits:"
    change = f"What a text that is read {REPEATED} times changes of {GATE} less {RIVAL}, in bits:"
    sentences.append(claim_words(cost, cost_claim(tables["rates"], regime.sizes)))
    sentences += [claim_words(change, change_claim(climbs, GATE)), course_words(climbs, GATE)]
    return " ".join(sentence for sentence in sentences if sentence)


def details(climbs: Climbs, tables: Tables) -> str:
    """How far seeds differ, and what came out where the text repeats, as a paragraph."""
    return " ".join([scatter_words(climbs.once), *repeating_words(climbs, plain_frame(tables["bits"]))])


def repeating_words(climbs: Climbs, bits: Frame) -> list[str]:
    """What came out where the text repeats, in sentences."""
    repeated = climbs.regime(REPEATED)
    sentences = [f"{climbed_words(repeated)}."]
    if repeated.points.empty:
        return sentences
    sentences += [f"There, at {ranking(repeated, bits, size)}." for size in repeated.common_sizes(repeated.units)[-1:]]
    rise = first_rise(repeated.points)
    if rise is not None:
        sentences.append(f"Losses rise there from {rise[0]} to {rise[1]}: the text is learnt by heart.")
    return [*sentences, claim_words(f"{GATE} less {RIVAL} over these sizes:", hypothesis_claim(climbs, REPEATED, GATE))]


def ranking(regime: Regime, bits: Frame, size: str) -> str:
    """The units of a size, best first, and whether the first and the last are told apart."""
    own = bits[(bits["repeats"] == regime.repeats) & (bits["size"] == size)].sort_values("bits")
    listed = ", ".join(f"{row['unit']} {bits_words(row)}" for _, row in own.iterrows())
    return (
        f"{size} parameters they have, in bits a byte, {listed}; the first and the last are {told_apart(own.iloc[-1])}"
    )


def claim_words(words: str, claim: Claim) -> str:
    """A claim as a sentence that begins with some words."""
    interval = f", {claim.interval}" if claim.interval else ""
    return f"{words} {claim.ours}{interval}."


def scatter_words(regime: Regime) -> str:
    """By how much seeds differ at each size: the standard deviation of bits, pooled over the units."""
    groups = regime.points.groupby(["size", "unit"])["bits"]
    variance = groups.var().groupby(level="size").mean()
    parts = ", ".join(f"{math.sqrt(variance[size]):.3f} at {size}" for size in regime.sizes)
    return f"Seeds differ by a standard deviation of {parts} bits."


def bits_words(row: Frame) -> str:
    """Bits a byte with their interval."""
    return format(Interval(row["bits"], row["low"], row["high"]), ".3f")


def excess_words(row: Frame) -> str:
    """What lies above the best unit of the size, with its interval and whether Holm's p decides it."""
    above = Interval(row["excess"], row["excess_low"], row["excess_high"])
    return f"{above:+.3f}, {told_apart(row)}"


# ---- figure


def draw(regimes: Mapping[int, Regime], bits: Frame) -> Figure:
    """A row a regime: bits against parameters with intervals and laws, and what each unit lies above the best."""
    units = list(dict.fromkeys(bits["unit"]))
    appearance = looks(units)
    with style():
        place = canvas(8.6, 0.6 + 3.5 * len(regimes), 2 * len(regimes), rows=len(regimes))
        entries = [Entry(unit, Pen(own.colour, marker=own.marker)) for unit, own in appearance.items()]
        for row, regime in enumerate(regimes.values()):
            left, right = place.panels[2 * row : 2 * row + 2]
            own = bits[bits["repeats"] == regime.repeats]
            law = draw_losses(left, regime, own, appearance)
            draw_excess(right, regime, own, appearance)
            for panel in (left, right):
                size_axis(panel, own)
            if law and row == 0:
                entries.append(Entry(law, Pen(GREY, width=1.0)))
        place.legend(entries, ncols=min(len(entries), 5))
        place.title("Units in a language model on enwik8")
    return place.figure


def draw_losses(panel: Panel, regime: Regime, own: Frame, appearance: Mapping[str, Look]) -> str:
    """Bits with t-intervals over seeds and the fitted law; its name, or nothing where there is none."""
    panel.set(xscale="log", xlabel="parameters", ylabel="bits a byte", title=regime.name)
    laws, name = regime.law(), ""
    for unit, rows in own.groupby("unit", sort=False):
        look_of, rows = appearance[str(unit)], rows.sort_values("parameters")
        x = rows["parameters"].to_numpy(float)
        if isinstance(laws, LadderLaws) and unit in laws.losses.units:
            form = EXPONENT.name if laws.verdict == "exponent" else OFFSET.name
            along = np.geomspace(rows["parameters"].min() / 1.1, rows["parameters"].max() * 1.1, 100)
            panel.line(along, laws.laws[form].predict(str(unit), along), Pen(look_of.colour, width=1.0, alpha=0.8))
            name = {EXPONENT.name: "law, an exponent each", OFFSET.name: "law, one exponent"}[form]
        else:
            panel.line(x, rows["bits"], Pen(look_of.colour, ":", 0.8, alpha=0.6))
        known = np.isfinite(rows["low"].to_numpy(float))
        strokes = panel.strokes(x[known], rows["low"][known], rows["high"][known], Pen(look_of.colour, width=1.1))
        panel.line(x, rows["bits"], dots(look_of), interval=strokes, order=3)
    return name


def draw_excess(panel: Panel, regime: Regime, own: Frame, appearance: Mapping[str, Look]) -> None:
    """Bits above the best unit of each size, paired by seed."""
    label = "parameters, units side by side"
    panel.set(xscale="log", xlabel=label, ylabel="bits above the best unit of the size", title=regime.name)
    panel.rule("y", 0.0, Pen(GREY, "-", 0.8), order=1)
    for unit, rows in own.groupby("unit", sort=False):
        look_of, rows = appearance[str(unit)], rows.sort_values("parameters").dropna(subset=["excess"])
        order = list(appearance).index(str(unit)) - (len(appearance) - 1) / 2
        x = rows["parameters"].to_numpy(float) * 1.035**order  # so that the intervals of units can be told apart
        panel.line(x, rows["excess"], Pen(look_of.colour, width=0.8, alpha=0.5))
        known = np.isfinite(rows["excess_low"].to_numpy(float))
        low, high = rows["excess_low"][known], rows["excess_high"][known]
        strokes = panel.strokes(x[known], low, high, Pen(look_of.colour, width=1.1))
        panel.line(x, rows["excess"], dots(look_of), interval=strokes, order=3)


def size_axis(panel: Panel, own: Frame) -> None:
    """A tick a size."""
    own = own.assign(size=own["size"].where(own["swept"], own["size"] + "*"))
    named = own.groupby("size")["parameters"].mean()
    if not own["swept"].all():
        panel.set(xlabel=f"{panel.axes.get_xlabel()} (*: no sweep of rates)")
    axis = panel.axes.xaxis
    panel.axes.set_xticks(named.to_numpy(float))
    axis.set_major_formatter(FuncFormatter(lambda value, _: nearest_size(named, value)))
    axis.set_minor_locator(NullLocator())


def nearest_size(named: Frame, value: float) -> str:
    """The name of the size that has about so many parameters; the number where none has."""
    for size, parameters in named.items():
        if math.isclose(parameters, value, rel_tol=1e-3):
            return str(size)
    return size_text(value)


def dots(look_of: Look) -> Pen:
    """Markers alone."""
    return Pen(look_of.colour, "", marker=look_of.marker, size=4, edge=0.9)


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The best and the worst unit at the smallest and the largest size with all units, and what the law says."""
    bits, laws = plain_frame(tables["bits"]), plain_frame(tables["laws"])
    once = bits[bits["repeats"] == 1].dropna(subset=["bits"])
    if once.empty:
        return ()
    counts = once.groupby("size")["unit"].nunique()
    sizes = list(dict.fromkeys(once.sort_values("parameters")["size"]))
    full = [size for size in sizes if counts[size] == counts.max()]
    parts = []
    for size in dict.fromkeys([full[0], full[-1]]):
        own = once[once["size"] == size].sort_values("bits")
        first, last = own.iloc[0], own.iloc[-1]
        sweep = "" if first["swept"] else " (no sweep of learning rates)"
        parts.append(
            f"at {size} parameters{sweep} {first['unit']} has {first['bits']:.3f} bits a byte and {last['unit']} "
            f"{last['bits']:.3f} ({told_apart(last)})"
        )
    verdict = laws[(laws["repeats"] == 1) & (laws["against"] == "parameters")]["verdict"].iloc[0]
    sentence = f"Of {counts.max()} units in a language model {', and '.join(parts)}. Offset or exponent: {verdict}."
    strokes = [
        Stroke(
            str(unit),
            numbers(rows["parameters"]),
            numbers(rows["bits"]),
            look(str(unit), order).colour,
            low=numbers(rows["low"].fillna(rows["bits"])),
            high=numbers(rows["high"].fillna(rows["bits"])),
        )
        for order, (unit, rows) in enumerate(once.sort_values("parameters").groupby("unit", sort=False))
        if unit in (REFERENCE, RIVAL, GATE)
    ]
    seeds = sorted({int(n) for n in once["seeds"]})
    words = f"enwik8, {sizes[0]} to {sizes[-1]} parameters, {' to '.join(map(str, seeds))} seeds, every byte once."
    sketch = Sketch("parameters", "bits a byte", tuple(strokes), log_y=False)
    return (Finding("Which unit, in a language model", sentence, words, sketch),)


def told_apart(row: Frame) -> str:
    """Whether what lies above the best unit is decided."""
    if row["p_holm"] <= SIGNIFICANT:
        return "told apart"
    return "undecided"


STUDY = Study(
    "ladder/enwik8",
    "Units in a language model: the ladder",
    "No paper has it: public runs contradict each other on whether a gate is better, and none has intervals.",
    run,
    findings=findings,
    position=1,
    beyond=True,
)
