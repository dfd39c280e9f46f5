"""Figure 7: the generalisation gap against the training loss, with and without a gate, under two optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t as student

from gatelab.arrays import Array
from gatelab.plotting import GREY, look, looks
from gatelab.plotting.kernels import Difference, gap_figure
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
)
from gatelab.studies.ntk.gaps import (
    MODEL_NAMES,
    NEGLIGIBLE,
    OPTIMISER_NAMES,
    SIGNIFICANT,
    clouds_of,
    ends_table,
    histories_of,
    joint_sentence,
    notes,
    runs_for,
    setting_name,
    unit_name,
)
from gatelab.studies.verdicts import ends
from gatelab.train import Comparison, Gap
from gatelab.train.comparison import Matched

PAIRS = {"mixer": ("mlp", "glu"), "vit": ("mlp", "glu"), "gpt2": ("silu", "swiglu")}


def run(request: Request) -> Outcome:
    found = runs_for(request, PAIRS)
    gates = [(s, c) for s in found.settings() for c in gate_comparisons(found, *s)]
    optimisers = [(s, c) for s in found.settings() for c in optimiser_comparisons(found, *s)]
    claims = [claim for _, c in gates for claim in (joint_claim(c), matched_claim(c), *losses_claims(found, c))]
    for setting in found.settings():
        mine = [c for s, c in optimisers if s == setting]
        if mine:
            claims.append(optimiser_claim(setting, mine, [c for s, c in gates if s == setting]))
    tables = {
        "comparisons": pd.DataFrame([c.row() for _, c in (*gates, *optimisers)]),
        "runs": ends_table(found),
    }
    figure = _figure(found, [c for _, c in gates], [c for _, c in optimisers])
    return Outcome(figure, tables, tuple(claims), notes(found))


def gate_comparisons(found: Gap, model: str, data: str) -> list[Comparison]:
    """The pair of the paper under each optimiser."""
    plain, gated = PAIRS[model]
    every = [found.compare_units(model, data, o, plain, gated) for o in found.optimisers(model, data)]
    return [c for c in every if c is not None]


def optimiser_comparisons(found: Gap, model: str, data: str) -> list[Comparison]:
    """SGD and AdamW, for each unit of the pair."""
    if not {"sgd", "adamw"} <= set(found.optimisers(model, data)):
        return []
    every = [found.compare_optimisers(model, data, unit, "sgd", "adamw") for unit in PAIRS[model]]
    return [c for c in every if c is not None]


# ---- what it says


def where_name(c: Comparison) -> str:
    model, data, last = c.where.split(", ")
    name = setting_name(model, data, last if last in OPTIMISER_NAMES else "")
    return name if last in OPTIMISER_NAMES else f"{name}, {unit_name(last)}"


def pair_name(c: Comparison) -> str:
    return f"{side_name(c.first)} and {side_name(c.second)}"


def side_name(name: str) -> str:
    return OPTIMISER_NAMES.get(name, unit_name(name))


def joint_claim(c: Comparison, paper: str = "no significant shift (its p is lost)") -> Claim:
    """Whether the clouds are from one distribution. What could not be found whatever the data are is not claimed."""
    verdict: Verdict = "reproduced" if c.joint.p > SIGNIFICANT else "differs"
    because = (
        f"{c.runs[0]} runs against {c.runs[1]}, all {c.joint.arrangements} arrangements."
        if c.joint.exact
        else f"{c.runs[0]} runs against {c.runs[1]}, {c.joint.arrangements} arrangements drawn."
    )
    because += f" Exchanging points instead would say p = {c.pointwise.p:.2g}."
    if c.joint.p <= SIGNIFICANT:
        because += " The clouds differ also where one unit is merely faster: see the gap at equal training loss."
    if c.joint.least_p > SIGNIFICANT:
        verdict = "new"
        because += " So few runs cannot show a difference at 5 %, whatever it is."
    if paper == "-":
        verdict = "new"
    return Claim(f"(loss, gap) of {pair_name(c)}, {where_name(c)}", paper, joint_sentence(c), verdict, because)


def matched_claim(c: Comparison, paper: str = "nearly indistinguishable") -> Claim:
    """The gap at equal training loss."""
    what = f"gap of {side_name(c.second)} less that of {side_name(c.first)} at equal loss, {where_name(c)}"
    m = c.matched
    if m is None:
        return Claim(what, paper, "no loss in common", "new", "The runs pass through no common training losses.")
    small = m.p > SIGNIFICANT or abs(m.relative) < NEGLIGIBLE
    verdict: Verdict = "reproduced" if small else "differs"
    because = (
        f"Training losses from {m.low_loss:.2f} to {m.high_loss:.2f}; mean gaps {m.first.mean():.3f} and "
        f"{m.second.mean():.3f}. Called indistinguishable if p > {SIGNIFICANT:g} or the difference is below "
        f"{NEGLIGIBLE:.0%} of the gap."
    )
    if m.least_p > SIGNIFICANT:
        verdict = "new"
        because += f" So few runs have no p below {m.least_p:.2g}."
    return Claim(what, paper, _moved(m), "new" if paper == "-" else verdict, because, _ends(m))


def _moved(m: Matched) -> str:
    return f"{m.difference:+.3f} nats ({m.relative:+.0%}), p = {m.p:.3g}"


def _ends(m: Matched) -> str:
    return ends(m.low, m.high, "+.3f")


def optimiser_claim(setting: tuple[str, str], optimisers: Sequence[Comparison], gates: Sequence[Comparison]) -> Claim:
    """Whether AdamW has the smaller gap, and whether that is more than the gate does."""
    what = f"AdamW less SGD at equal loss, {setting_name(*setting)}"
    paper = "smaller gap, for both units; far more than the gate changes"
    moved = [c.matched for c in optimisers if c.matched is not None]
    gated = [abs(c.matched.difference) for c in gates if c.matched is not None]
    if not moved or not gated:
        return Claim(what, paper, "no loss in common", "new", "The runs pass through no common training losses.")
    seen = [(unit_name(c.where.split(", ")[-1]), c.matched) for c in optimisers if c.matched is not None]
    ours = "; ".join(f"{unit} {_moved(m)}" for unit, m in seen)
    least, most = min(abs(m.difference) for m in moved), max(gated)
    down, more = all(m.high < 0 for m in moved), least > most
    both = "both units" if len(moved) > 1 else f"{seen[0][0]}; the other was not trained with both"
    verdict: Verdict = "reproduced" if down and more else "differs"
    if all(m.least_p > SIGNIFICANT for m in moved):
        verdict = "new"
    because = (
        f"The optimiser moves the gap by {least:.3f} nats or more, the gate by {most:.3f} or less: the optimiser "
        f"matters {'more' if more else 'no more'} than the gate. AdamW's gap is "
        f"{'the smaller one' if down else 'not clearly the smaller one'} for {both}. Learning rates of both were "
        "chosen once and not searched."
    )
    return Claim(what, paper, ours, verdict, because, ", ".join(filter(None, (_ends(m) for _, m in seen))))


def losses_claims(found: Gap, c: Comparison) -> list[Claim]:
    """The introduction: the gate speeds training up and, the gap being the same, ends at a better test loss."""
    model, data, optimiser = c.where.split(", ")
    runs = [
        [h for h in histories_of(found, model, data, unit, optimiser) if h.diverged is None and len(h.steps)]
        for unit in (c.first, c.second)
    ]
    claims = []
    for name, paper in (("train", "lower: the gate accelerates convergence"), ("test", "lower: a better total error")):
        first, second = (np.array([getattr(h, name)[-1] for h in group]) for group in runs)
        at = difference(first, second)
        least = [np.mean([getattr(h, name).min() for h in group]) for group in runs]
        verdict: Verdict = "new" if np.isnan(at.low) or min(map(len, runs)) < 3 else "differs"
        if verdict == "differs" and at.high < 0:
            verdict = "reproduced"
        claims.append(
            Claim(
                f"{'training' if name == 'train' else 'test'} loss of {side_name(c.second)} less that of "
                f"{side_name(c.first)} at the last step, {where_name(c)}",
                paper,
                f"{at.value:+.3f} nats",
                verdict,
                f"{first.mean():.3f} and {second.mean():.3f} after as many steps, the mean of {len(first)} and "
                f"{len(second)} runs; the lowest on the way are {least[0]:.3f} and {least[1]:.3f}.",
                ends(at.low, at.high, "+.3f"),
            )
        )
    return claims


class Moved(NamedTuple):
    """A difference of means with Welch's interval, 95 %."""

    value: float
    low: float
    high: float


def difference(first: Array, second: Array) -> Moved:
    """Mean of the second less that of the first; no interval for single runs.

    >>> difference(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0])).value
    -1.0
    """
    value = float(second.mean() - first.mean())
    if min(len(first), len(second)) < 2:
        return Moved(value, np.nan, np.nan)
    parts = np.array([each.var(ddof=1) / len(each) for each in (first, second)])
    error = float(parts.sum()) ** 0.5
    freedom = parts.sum() ** 2 / (parts**2 / [len(first) - 1, len(second) - 1]).sum() if error else np.inf
    reach = float(student.ppf(0.975, freedom)) * error
    return Moved(value, value - reach, value + reach)


# ---- figure


def differences(comparisons: Sequence[Comparison]) -> list[Difference]:
    """A line for each comparison that has one."""
    rows = []
    for c in comparisons:
        if c.matched is not None:
            colour = GREY if c.second in OPTIMISER_NAMES else looks([c.first, c.second])[c.second].colour
            m = c.matched
            label = f"{side_name(c.second)} - {side_name(c.first)}\n{where_name(c)}"
            rows.append(Difference(label, m.difference, m.low, m.high, f"{m.relative:+.0%}, p {m.p:.2g}", colour))
    return rows


def _figure(found: Gap, gates: Sequence[Comparison], optimisers: Sequence[Comparison]) -> Figure:
    panels = []
    for letter, (model, data) in zip("abcdefgh", found.settings(), strict=False):
        units = [unit for unit in PAIRS[model] if unit in found.units(model, data)]
        panels.append((f"({letter}) {setting_name(model, data)}", clouds_of(found, model, data, units)))
    return gap_figure(panels, "Figure 7: generalisation gap against training loss", differences([*gates, *optimisers]))


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The gap at equal training loss of each pair of units, with the sizes of the models."""
    table = tables["comparisons"].dropna(subset=["relative", "low", "high"])
    gates = table.loc[~table["first"].isin(list(OPTIMISER_NAMES))]
    parts = [
        f"{_range(rows['relative'])} times as large with {unit_name(gated)} as with {unit_name(plain)} "
        f"({_decided(rows)})"
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
    return (Finding("The gap in whole models", sentence, _sizes(gates, tables["runs"]), sketch),)


def _range(relative: pd.Series) -> str:
    """From the least to the greatest, as shares of one."""
    low, high = (f"{1 + value:.2f}" for value in (relative.min(), relative.max()))
    return low if low == high else f"{low} to {high}"


def _sizes(rows: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The models of these comparisons, their parameters, data and seeds."""
    parts = []
    for model, data in dict.fromkeys(tuple(where.split(", ")[:2]) for where in rows["where"]):
        million = last(runs, model=model, data=data)["parameters"] / 1e6
        parts.append(f"{setting_name(model, data)} ({million:.2g} million parameters)")
    seeds = sorted({int(n) for n in (*rows["runs_first"], *rows["runs_second"])})
    return f"{', '.join(parts)}; {' to '.join(map(str, seeds))} seeds of each unit."


def _decided(rows: pd.DataFrame) -> str:
    """How many of the 95 % intervals have zero outside."""
    low, high = (rows[name].to_numpy(dtype=float) for name in ("low", "high"))
    more, less = int(np.count_nonzero(low > 0)), int(np.count_nonzero(high < 0))
    counts = {"larger": more, "smaller": less, "undecided": len(rows) - more - less}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{said} of {len(rows)} comparisons" if len(rows) > 1 else said.removeprefix("1 ")


STUDY = Study(
    "ntk/fig7",
    "The generalisation gap",
    "At equal training loss gated and plain units have the same gap; the optimiser matters more than the gate.",
    run,
    findings=findings,
    position=9,
)
