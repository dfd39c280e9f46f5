"""Figure 7: the generalisation gap against the training loss, with and without a gate, under two optimisers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.plotting import GREY, look, looks
from gatelab.plotting.kernels import Difference, gap_figure
from gatelab.statistics import LEVEL, Interval, t_reach
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
    last,
    numbers,
    span,
)
from gatelab.studies.ntk.gaps import (
    MODEL_NAMES,
    NEGLIGIBLE,
    OPTIMISER_NAMES,
    SIGNIFICANT,
    clouds_of,
    ends_table,
    finished_runs,
    notes,
    runs_for,
    setting_name,
    unit_name,
)
from gatelab.studies.ntk.printed import PANELS, RECORDED
from gatelab.studies.verdicts import reproduced_if, side_verdict
from gatelab.train import Comparison, Gap
from gatelab.train.comparison import Matched

PAIRS = {"mixer": ("mlp", "glu"), "vit": ("mlp", "glu"), "gpt2": ("silu", "swiglu")}
# The settings at which the paper's inventory has the record, with the optimiser and without it.
SETTINGS = {*RECORDED, *(setting.rpartition(", ")[0] for setting in RECORDED)}


def run(request: Request) -> Outcome:
    """Figure 7 from the record, or from small models that are trained now."""
    gap = runs_for(request, PAIRS)
    gates = [(s, c) for s in gap.settings() for c in gate_comparisons(gap, *s)]
    optimisers = [(s, c) for s in gap.settings() for c in optimiser_comparisons(gap, *s)]
    claims: list[Claim] = []
    for _, c in gates:
        at_equal_loss = recorded_place("section 5, gap at equal loss", where_name(c))
        claims += [joint_claim(c, place=joint_place(where_name(c))), matched_claim(c, place=at_equal_loss)]
        claims += losses_claims(gap, c)
    for setting in gap.settings():
        of_setting = [c for s, c in optimisers if s == setting]
        if of_setting:
            claims.append(optimiser_claim(setting, of_setting, [c for s, c in gates if s == setting]))
    comparisons = [c for _, c in (*gates, *optimisers)]
    tables = {"comparisons": pd.DataFrame([c.row() for c in comparisons]), "runs": ends_table(gap)}
    return Outcome(draw(gap, comparisons), tables, tuple(claims), notes(gap))


def gate_comparisons(gap: Gap, model: str, data: str) -> list[Comparison]:
    """The pair of the paper under each optimiser."""
    plain, gated = PAIRS[model]
    comparisons = [gap.compare_units(model, data, o, plain, gated) for o in gap.optimisers(model, data)]
    return [c for c in comparisons if c is not None]


def optimiser_comparisons(gap: Gap, model: str, data: str) -> list[Comparison]:
    """SGD and AdamW, for each unit of the pair."""
    if not {"sgd", "adamw"} <= set(gap.optimisers(model, data)):
        return []
    comparisons = [gap.compare_optimisers(model, data, unit, "sgd", "adamw") for unit in PAIRS[model]]
    return [c for c in comparisons if c is not None]


def difference(first: Array, second: Array) -> Interval:
    """Mean of the second less that of the first, with Welch's interval; no interval for single runs.

    >>> difference(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0])).value
    -1.0
    """
    value = float(second.mean() - first.mean())
    if min(len(first), len(second)) < 2:
        return Interval(value, np.nan, np.nan)
    parts = np.array([group.var(ddof=1) / len(group) for group in (first, second)])
    error = float(parts.sum()) ** 0.5
    if error == 0:
        return Interval(value, value, value)
    freedom = parts.sum() ** 2 / (parts**2 / [len(first) - 1, len(second) - 1]).sum()
    reach = t_reach(LEVEL, freedom) * error
    return Interval(value, value - reach, value + reach)


# ---- what it says


def where_name(c: Comparison) -> str:
    """The setting of a comparison, and the optimiser or the unit that both its sides have."""
    model, data, common = c.where.split(", ")
    if common in OPTIMISER_NAMES:
        return setting_name(model, data, common)
    return f"{setting_name(model, data)}, {unit_name(common)}"


def side_name(name: str) -> str:
    """A unit or an optimiser as the paper writes it."""
    return OPTIMISER_NAMES.get(name, unit_name(name))


def recorded_place(words: str, setting: str) -> str:
    """Words of the paper's inventory with a setting behind them; small models of a quick run have no place in it.

    >>> recorded_place("section 1, test loss", "ViT on CIFAR-10, SGD"), recorded_place("section 1, test loss", "ViT")
    ('section 1, test loss, ViT on CIFAR-10, SGD', '')
    """
    if setting not in SETTINGS:
        return ""
    return f"{words}, {setting}"


def joint_place(setting: str) -> str:
    """Where the paper has the joint distribution of loss and gap in a setting.

    >>> joint_place("ViT on CIFAR-10, SGD"), joint_place("ViT on digits, SGD")
    ('figure 7, (c) ViT on CIFAR-10, SGD', '')
    """
    if setting in PANELS:
        return f"figure 7, {PANELS[setting]} {setting}"
    return recorded_place("section 5, joint distribution", setting)


def joint_claim(c: Comparison, paper: str = "no significant shift (its p is lost)", *, place: str = "") -> Claim:
    """Whether the clouds are from one distribution. What could not be found whatever the data are is not claimed."""
    arrangements = f"{c.joint.arrangements} arrangements drawn"
    if c.joint.exact:
        arrangements = f"all {c.joint.arrangements} arrangements"
    because = f"{c.runs[0]} runs against {c.runs[1]}, {arrangements}."
    because += f" Exchanging points instead would say p = {c.pointwise.p:.2g}."
    verdict = reproduced_if(c.joint.p > SIGNIFICANT)
    if c.joint.p <= SIGNIFICANT:
        because += " The clouds differ also where one unit is merely faster: see the gap at equal training loss."
    if c.joint.least_p > SIGNIFICANT:
        verdict = "new"
        because += " So few runs cannot show a difference at 5 %, whatever it is."
    if paper == "-":
        verdict = "new"
    what = f"(loss, gap) of {side_name(c.first)} and {side_name(c.second)}, {where_name(c)}"
    ours = f"p = {c.joint.p:.2g} (least possible {c.joint.least_p:.2g}), energy coefficient {c.joint.coefficient:.3f}"
    return Claim(what, paper, ours, verdict, because, place=place)


def matched_claim(c: Comparison, paper: str = "nearly indistinguishable", *, place: str = "") -> Claim:
    """The gap at equal training loss."""
    what = f"gap of {side_name(c.second)} less that of {side_name(c.first)} at equal loss, {where_name(c)}"
    m = c.matched
    if m is None:
        return no_common_loss(what, paper, place)
    verdict = matched_verdict(m)
    because = (
        f"Training losses from {m.low_loss:.2f} to {m.high_loss:.2f}; mean gaps {m.first.mean():.3f} and "
        f"{m.second.mean():.3f}. Called indistinguishable if the difference is below {NEGLIGIBLE:.0%} of "
        f"the gap, undecided if it is not and p > {SIGNIFICANT:g}."
    )
    if m.least_p > SIGNIFICANT:
        verdict = "new"
        because += f" So few runs have no p below {m.least_p:.2g}."
    if paper == "-":
        verdict = "new"
    return Claim(what, paper, shift(m), verdict, because, shift_ends(m), place)


def matched_verdict(m: Matched) -> Verdict:
    """Gaps that are nearly equal are; a larger difference differs where it is significant, and decides nothing else."""
    if abs(m.relative) < NEGLIGIBLE:
        return "reproduced"
    if m.p > SIGNIFICANT:
        return "undecided"
    return "differs"


def no_common_loss(what: str, paper: str, place: str) -> Claim:
    """The claim where runs cannot be compared at equal loss."""
    because = "The runs pass through no common training losses."
    return Claim(what, paper, "no loss in common", "new", because, place=place)


def shift(m: Matched) -> str:
    """A difference of gaps in nats and as a share, with its p."""
    return f"{m.difference:+.3f} nats ({m.relative:+.0%}), p = {m.p:.3g}"


def shift_ends(m: Matched) -> str:
    """The interval of that difference, as a claim has it."""
    return Interval(m.difference, m.low, m.high).ends("+.3f")


def optimiser_claim(setting: tuple[str, str], optimisers: Sequence[Comparison], gates: Sequence[Comparison]) -> Claim:
    """Whether AdamW has the smaller gap, and whether that is more than the gate does."""
    what = f"AdamW less SGD at equal loss, {setting_name(*setting)}"
    paper = "smaller gap, for both units; far more than the gate changes"
    place = recorded_place("section 5, SGD and AdamW", setting_name(*setting))
    shifts = {unit_name(c.where.split(", ")[-1]): c.matched for c in optimisers if c.matched is not None}
    by_gate = [abs(c.matched.difference) for c in gates if c.matched is not None]
    if not shifts or not by_gate:
        return no_common_loss(what, paper, place)
    least, most = min(abs(m.difference) for m in shifts.values()), max(by_gate)
    down, more = all(m.high < 0 for m in shifts.values()), least > most
    units, smaller, matters = "both units", "the smaller one", "more"
    if len(shifts) == 1:
        units = f"{next(iter(shifts))}; the other was not trained with both"
    if not down:
        smaller = "not clearly the smaller one"
    if not more:
        matters = "no more"
    verdict = reproduced_if(down and more)
    if all(m.least_p > SIGNIFICANT for m in shifts.values()):
        verdict = "new"
    because = (
        f"The optimiser moves the gap by {least:.3f} nats or more, the gate by {most:.3f} or less: the optimiser "
        f"matters {matters} than the gate. AdamW's gap is {smaller} for {units}. Learning rates of both were chosen "
        "once and not searched."
    )
    ours = "; ".join(f"{unit} {shift(m)}" for unit, m in shifts.items())
    intervals = ", ".join(filter(None, map(shift_ends, shifts.values())))
    return Claim(what, paper, ours, verdict, because, intervals, place)


def losses_claims(gap: Gap, c: Comparison) -> list[Claim]:
    """The introduction: the gate speeds training up and, the gap being the same, ends at a better test loss."""
    model, data, optimiser = c.where.split(", ")
    runs = [finished_runs(gap, model, data, unit, optimiser) for unit in (c.first, c.second)]
    claims = []
    for loss, word, paper in (
        ("train", "training", "lower: the gate accelerates convergence"),
        ("test", "test", "lower: a better total error"),
    ):
        first, second = (np.array([getattr(h, loss)[-1] for h in group]) for group in runs)
        change = difference(first, second)
        least = [np.mean([getattr(h, loss).min() for h in group]) for group in runs]
        verdict: Verdict = "new"
        if change.known and min(map(len, runs)) >= 3:
            verdict = side_verdict(change, 0, "below")
        claims.append(
            Claim(
                f"{word} loss of {side_name(c.second)} less that of {side_name(c.first)} at the last step, "
                f"{where_name(c)}",
                paper,
                f"{change.value:+.3f} nats",
                verdict,
                f"{first.mean():.3f} and {second.mean():.3f} after as many steps, the mean of {len(first)} and "
                f"{len(second)} runs; the lowest on the way are {least[0]:.3f} and {least[1]:.3f}.",
                change.ends("+.3f"),
                place=recorded_place(f"section 1, {word} loss", where_name(c)),
            )
        )
    return claims


# ---- figure


def draw(gap: Gap, comparisons: Sequence[Comparison]) -> Figure:
    """A plane for each model and data set, the pair of the paper in it, and the differences at equal loss."""
    panels = []
    for letter, (model, data) in zip("abcdefgh", gap.settings(), strict=False):
        units = [unit for unit in PAIRS[model] if unit in gap.units(model, data)]
        panels.append((f"({letter}) {setting_name(model, data)}", clouds_of(gap, model, data, units)))
    return gap_figure(panels, "Figure 7: generalisation gap against training loss", differences(comparisons))


def differences(comparisons: Sequence[Comparison]) -> list[Difference]:
    """A line for each comparison that has one; optimisers are grey."""
    rows = []
    for c in comparisons:
        m = c.matched
        if m is not None:
            colour = GREY
            if c.second not in OPTIMISER_NAMES:
                colour = looks([c.first, c.second])[c.second].colour
            label = f"{side_name(c.second)} - {side_name(c.first)}\n{where_name(c)}"
            rows.append(Difference(label, m.interval, f"{m.relative:+.0%}, p {m.p:.2g}", colour))
    return rows


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The gap at equal training loss of each pair of units, with the sizes of the models."""
    table = tables["comparisons"].dropna(subset=["relative", "low", "high"])
    gates = table.loc[~table["first"].isin(list(OPTIMISER_NAMES))]
    parts = [
        f"{span(1 + rows['relative'])} times as large with {unit_name(gated)} as with {unit_name(plain)} "
        f"({decided(rows)})"
        for (plain, gated), rows in gates.groupby(["first", "second"], sort=False)
    ]
    sentence = f"At equal training loss the gap between test and training loss is {', and '.join(parts)}."
    share = gates["relative"] / gates["difference"]
    models, _, optimisers = zip(*(where.split(", ") for where in gates["where"]), strict=True)
    dots = Stroke(
        "",
        numbers(range(len(gates))),
        numbers(100 * gates["relative"]),
        look("glu").colour,
        marks=True,
        low=numbers(100 * gates["low"] * share),
        high=numbers(100 * gates["high"] * share),
    )
    places = tuple(
        f"{MODEL_NAMES.get(model, model)}\n{OPTIMISER_NAMES.get(o, o)}"
        for model, o in zip(models, optimisers, strict=True)
    )
    sketch = Sketch("", "gap, gated less plain, %", (dots,), log_x=False, log_y=False, places=places, level=0.0)
    return (Finding("The gap in whole models", sentence, sizes_of(gates, tables["runs"]), sketch),)


def sizes_of(rows: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The models of these comparisons, their parameters, data and seeds."""
    parts = []
    for model, data in dict.fromkeys(tuple(where.split(", ")[:2]) for where in rows["where"]):
        million = last(runs, model=model, data=data)["parameters"] / 1e6
        parts.append(f"{setting_name(model, data)} ({million:.2g} million parameters)")
    seeds = sorted({int(n) for n in (*rows["runs_first"], *rows["runs_second"])})
    return f"{', '.join(parts)}; {' to '.join(map(str, seeds))} seeds of each unit."


def decided(rows: pd.DataFrame) -> str:
    """How many of the 95 % intervals have zero outside."""
    low, high = (rows[name].to_numpy(dtype=float) for name in ("low", "high"))
    more, less = int(np.count_nonzero(low > 0)), int(np.count_nonzero(high < 0))
    counts = {"larger": more, "smaller": less, "undecided": len(rows) - more - less}
    if len(rows) == 1:
        return next(word for word, count in counts.items() if count)
    parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{parts} of {len(rows)} comparisons"


STUDY = Study(
    "ntk/fig7",
    "The generalisation gap",
    "At equal training loss gated and plain units have the same gap; the optimiser matters more than the gate.",
    run,
    findings=findings,
    position=9,
)


# ---- appendix D: every model, data set and optimiser, with units that the paper did not try

NEW = ("gqu", "relu2")


def run_appendix_d(request: Request) -> Outcome:
    """Appendix D from the record, or from small models that are trained now."""
    gap = runs_for(request, {"vit": (*PAIRS["vit"], *NEW), "gpt2": (*PAIRS["gpt2"], *NEW)})
    comparisons = gap.comparisons()
    claims: list[Claim] = []
    for c in comparisons:
        if c.second in NEW:
            claims += [joint_claim(c, paper="-"), matched_claim(c, paper="-")]
        else:
            claims += [joint_claim(c), matched_claim(c)]
    tables = {
        "comparisons": pd.DataFrame([c.row() for c in (*comparisons, *gap.optimiser_comparisons())]),
        "runs": ends_table(gap),
    }
    return Outcome(draw_all(gap, comparisons), tables, tuple(claims), notes(gap))


def draw_all(gap: Gap, comparisons: Sequence[Comparison]) -> Figure:
    """A plane for each model, data set and optimiser, all units in it, and the differences at equal loss."""
    panels = []
    for model, data in gap.settings():
        for optimiser in gap.optimisers(model, data):
            clouds = clouds_of(gap, model, data, gap.units(model, data), optimiser)
            panels.append((setting_name(model, data, optimiser), clouds))
    title = "Appendix D: generalisation gap against training loss, all units"
    return gap_figure(panels, title, differences(comparisons))


APPENDIX_D = Study(
    "ntk/appendix-d",
    "The generalisation gap of more units",
    "For the same training error a gate has limited influence on the generalisation gap.",
    run_appendix_d,
    position=10,
    beyond=True,
)
