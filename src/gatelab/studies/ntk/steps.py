"""How many steps training takes: the paper's premise that they grow like κ log(1/ε), against κ without one eigenvalue.

`step_counts` has what is measured; here is what it says, and its figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, looks, new_figure, style
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
    bracket,
    last,
    numbers,
    only,
    span,
    ticker,
)
from gatelab.studies.ntk.gaussian import PAIRS, interval
from gatelab.studies.ntk.step_counts import (
    DRAWN,
    KERNELS,
    NAMES,
    PLAIN,
    PREDICTORS,
    QUICK,
    RATES,
    REMOVED,
    SHARES,
    TARGETS,
    TRAINED_UNITS,
    UNITS,
    StepCases,
    StepPlan,
    cases_table,
    exponents,
    gains_table,
    prediction_table,
    spearman,
    training_table,
)
from gatelab.studies.verdicts import NEAR, ends, number_verdict, restored, side_verdict, together

PREMISE = "1: κ log(1/ε) steps (section 2.2; formula lost, restored)"


# ---- what it says


def run(request: Request) -> Outcome:
    """Steps in closed form for every case, the gains of the paper's pairs, and networks that are trained."""
    plan = StepPlan()
    if request.quick:
        plan = QUICK
    tick = ticker(request, len(plan.draws()) + plan.pair_seeds + len(plan.trained) * len(TRAINED_UNITS))
    cases = StepCases.measured(plan, tick)
    tables = {
        "prediction": prediction_table(cases),
        "cases": cases_table(cases),
        "gains": gains_table(plan, tick),
        "training": training_table(plan, tick),
    }
    return Outcome(draw(tables), tables, claims(tables, exponents(cases)), notes(plan))


def claims(tables: Tables, in_share: Mapping[str, Interval]) -> tuple[Claim, ...]:
    """The premise in κ and in ε, who predicts, what the one eigenvalue costs, and trained networks."""
    rows = tables["prediction"]
    return (
        *(premise_claim(target, only(rows, rate=RATES[PLAIN], target=target)) for target in TARGETS),
        *(exponent_claim(target, in_share[target]) for target in TARGETS),
        *(
            contest_claim(RATES[rate], PREDICTORS[other], only(rows, rate=RATES[rate]))
            for rate, other in ((PLAIN, 1), (PLAIN, 3), (REMOVED, 1))
        ),
        *(pairs_claim(RATES[rate], only(rows, rate=RATES[rate])) for rate in (PLAIN, REMOVED)),
        cost_claim(tables["cases"]),
        *(gain_claim(last(tables["gains"], gated=gated, target="random", share=SHARES[DRAWN])) for _, gated in PAIRS),
        *(training_claim(word, only(tables["training"], kernel=word)) for word in KERNELS),
    )


def premise_claim(target: str, rows: pd.DataFrame) -> Claim:
    """The exponent of κ in the steps, which the paper's premise has as 1, at each ε."""
    own = only(rows, predictor=PREDICTORS[0])
    slopes = [Interval(*ends) for ends in own[["slope", "slope_low", "slope_high"]].to_numpy(dtype=float)]
    shares = ", ".join(f"{share:g}" for share in own["share"])
    bound = ", ".join(f"{value:.2f}" for value in own["over_bound"])
    return Claim(
        f"exponent of κ in the steps, {target} targets, rate 1/λ_max",
        PREMISE,
        f"{', '.join(f'{slope.value:.2f}' for slope in slopes)} at ε = {shares}",
        restored(together(number_verdict(1, 0, slope, NEAR) for slope in slopes)),
        f"Medians of the steps over the bound κ log(1/ε)/2 are {bound}: it is neared as ε goes to 0 and the smallest "
        f"eigenvalue is all that is left. Rank correlations over all cases are {span(own['overall'])}.",
        ", ".join(slope.ends(".2f") for slope in slopes),
        place=f"section 2.2, power of κ, {target} targets",
    )


def exponent_claim(target: str, exponent: Interval) -> Claim:
    """The exponent of log(1/ε) in the steps."""
    return Claim(
        f"exponent of log(1/ε) in the steps, {target} targets, rate 1/λ_max",
        PREMISE,
        f"{exponent.value:.2f}",
        restored(number_verdict(1, 0, exponent, NEAR)),
        f"From ε = {SHARES[0]:g} to {SHARES[-1]:g}, averaged over cases: what lies along large eigenvalues goes first.",
        exponent.ends(".2f"),
        place=f"section 2.2, power of log(1/ε), {target} targets",
    )


def beside_paper(rate: str, other: str, statement: str, verdict: Verdict) -> tuple[str, Verdict]:
    """The paper's side of a claim and the verdict; it has nothing on other rates, nor on what knows the target."""
    if rate != RATES[PLAIN] or other == PREDICTORS[3]:
        return "-", "new"
    return statement, verdict


def contest_claim(rate: str, other: str, rows: pd.DataFrame) -> Claim:
    """Who ranks units and widths on the same rows: κ, as the paper has it, or another number."""
    own = only(rows, predictor=other)
    low, high = (own[name].to_numpy(dtype=float) for name in ("lead_low", "lead_high"))
    ahead, behind = int((low > 0).sum()), int((high < 0).sum())
    by_share = ", ".join(f"{lead:+.3f}" for lead in own["lead"])
    leads = [Interval(*row) for row in own[["lead", "lead_low", "lead_high"]].to_numpy(dtype=float)]
    verdict = together(side_verdict(lead, 0, "above") for lead in leads)
    paper, verdict = beside_paper(rate, other, "κ is the key indicator of speed (section 2.2)", verdict)
    ranks = "; ".join(f"{name} {span(only(rows, predictor=name)['within'])}" for name in PREDICTORS)
    return Claim(
        f"κ or {other}: who ranks units by their steps, rate {rate}",
        paper,
        f"κ in {ahead} of {len(own)} settings, the other in {behind}, undecided in {len(own) - ahead - behind}",
        verdict,
        f"Rank correlations with the steps over units and widths on the same rows, by target and ε: {ranks}. κ leads "
        f"by {by_share} ({' then '.join(TARGETS)} targets, ε falling). Of the pairs that the two order differently κ "
        f"is right about {span(own['right'], '.0%')}.",
        f"κ's lead in correlation, all settings: {ends(low.min(), high.max(), '.3f')}",
        place={"-": ""}.get(paper, "section 2.2, κ is the key indicator"),
    )


def pairs_claim(rate: str, rows: pd.DataFrame) -> Claim:
    """Of the paper's pairs, how often the unit of smaller κ needs fewer steps; beside it bulk κ."""
    kappa, bulk = (only(rows, predictor=name) for name in PREDICTORS[:2])
    columns = ["gated_pairs", "gated_pairs_low", "gated_pairs_high"]
    shares = [Interval(*row) for row in kappa[columns].to_numpy(dtype=float)]
    low, high = min(share.low for share in shares), max(share.high for share in shares)
    verdict = together(side_verdict(share, 0.5, "above") for share in shares)
    paper, verdict = beside_paper(rate, PREDICTORS[1], "smaller κ, faster training", verdict)
    return Claim(
        f"gated beside plain units: smaller κ, fewer steps, rate {rate}",
        paper,
        f"in {span(kappa['gated_pairs'], '.0%')} of cases, by target and ε",
        verdict,
        f"By bulk κ in {span(bulk['gated_pairs'], '.0%')}; where both are always right these pairs do not tell them "
        f"apart. Of all pairs of {len(UNITS)} units κ is right about {span(kappa['pairs'], '.0%')}, bulk κ about "
        f"{span(bulk['pairs'], '.0%')}. Equal steps count half.",
        ends(low, high, ".0%"),
        place={"-": ""}.get(paper, "section 2.2, smaller κ, faster training"),
    )


def cost_claim(cases: pd.DataFrame) -> Claim:
    """How many times fewer steps there are without the top direction, over λ_max/λ_2."""
    columns = [f"steps_{share:g}" for share in SHARES]
    plain, removed = (only(cases, rate=RATES[rate]) for rate in (PLAIN, REMOVED))
    times = (plain["κ"] / plain["bulk κ"]).to_numpy(dtype=float)
    over = plain[columns].to_numpy(dtype=float) / removed[columns].to_numpy(dtype=float) / times[:, None]
    low, middle, high = np.quantile(over, (0.025, 0.5, 0.975))
    return Claim(
        "what the largest eigenvalue costs: steps at 1/λ_max over steps without it, over λ_max/λ_2",
        "-",
        f"{middle:.2f}",
        "new",
        f"λ_max/λ_2 is {times.min():.3g} to {times.max():.3g}. The one eigenvalue costs what it takes from the rate: "
        "the other directions go at λ/λ_max a step, whatever lies along the top one.",
        f"95 % of cases: {ends(low, high)}",
    )


def gain_claim(row: Mapping[str, Any]) -> Claim:
    """What gating divides the steps by, at 1/λ_max and without the top direction."""
    return Claim(
        f"what {NAMES[row['gated']]} divides {NAMES[row['plain']]}'s steps by, n = {row['n']}, d = {row['d']}",
        "-",
        f"{row['steps']:.3g} at 1/λ_max, {row['removed']:.2g} without the top direction",
        "new",
        f"Random targets, ε = {row['share']:g}; κ is divided by {row['condition']:.3g}, bulk κ by {row['bulk']:.2g}. "
        f"At 2/(λ_max + λ_min) it is {row['best']:.3g}, for gradient flow {row['flow']:.3g}, and {row['centred']:.2g} "
        "for networks less their mean output.",
        f"{ends(row['steps_low'], row['steps_high'])}, {ends(row['removed_low'], row['removed_high'], '.2g')}",
    )


def training_claim(word: str, rows: pd.DataFrame) -> Claim:
    """Measured steps over those of the closed form, and what gating divides them by."""
    logs = rows.assign(**{name: np.log(rows[name].to_numpy(dtype=float)) for name in ("measured", "predicted", "own")})
    logs = pd.DataFrame(logs.groupby(["unit", "data", "seed"])[["measured", "predicted", "own"]].mean())
    measured, predicted, start = (pd.Series(logs[name]) for name in ("measured", "predicted", "own"))
    ratio, own = (interval(np.exp((measured - other).to_numpy(dtype=float))) for other in (predicted, start))
    ranks = float(spearman(*(rows[name].to_numpy(dtype=float) for name in ("predicted", "measured"))))
    plain, gated = (pd.Series(measured.xs(unit)) for unit in ("mlp", "glu"))
    gain = interval(np.exp((plain - gated).to_numpy(dtype=float)))
    return Claim(
        f"steps of trained networks over those of the closed form, {word} kernel, rate 1/λ_max",
        "-",
        f"{ratio.value:.2f}",
        "new",
        f"{len(rows)} counts of networks of width {rows['width'].iloc[0]}, in rank correlation with the predicted ones "
        f"{ranks:.2f}. Over the steps by the kernel that each has at its start it is {own:.2f}. ReGLU divides the "
        f"measured steps of ReLU by {gain}. Intervals are over {len(logs)} networks.",
        ratio.ends(),
    )


def notes(plan: StepPlan) -> tuple[str, ...]:
    """What was computed, and what the intervals are."""
    sizes = "; ".join(f"{kind} n = {n}, d = {d}" for kind, n, d in plan.sizes)
    return (
        f"{len(UNITS)} units, widths {', '.join(map(str, plan.widths))}, {plan.seeds} draws of the rows each: {sizes}.",
        "Steps are counted in continuous time, t real in (1 - ηλ)^2t, at least 1; those of trained networks between "
        "two losses by their logarithms.",
        "Closed form: expected kernels of these widths, outputs at the start subtracted. Targets have mean 0; random "
        "ones are normal, smooth ones sin(2 u.x) + (v.x)². ε is of the loss at the start. Bulk κ is λ_2/λ_min, "
        "and λ of the target is |y|²/(y.K⁻¹y), the mean of the eigenvalues that its weights ask for.",
        "With the top direction removed its part of the loss is solved for at the start, and the rate is 1/λ_2.",
        "Intervals are percentiles over draws of the rows, all kinds and sizes together, 95 %; of gains t-intervals of "
        "logarithms over seeds, and of trained networks over networks.",
        "Gradient descent with one constant rate on all rows. What momentum, batches or adaptive rates make of the one "
        "eigenvalue is not decided here, nor is training in which the kernel changes.",
    )


# ---- figure


def draw(tables: Tables) -> Figure:
    """A row a target: steps against κ and bulk κ, those without the top direction, and rank correlations."""
    cases, column = tables["cases"], f"steps_{SHARES[DRAWN]:g}"
    panels = (
        (PLAIN, 0, "whole", "rate 1/λ_max"),
        (PLAIN, 1, "", "rate 1/λ_max"),
        (REMOVED, 1, "centred", "top removed, rate 1/λ_2"),
    )
    shapes = looks(UNITS)
    with style():
        figure = new_figure(13.2, 6.8)
        for row, target in zip(figure.subplots(2, 4), TARGETS, strict=True):
            for axes, (rate, predictor, kernel, title) in zip(row, panels, strict=False):
                panel, own = Panel(axes), only(cases, rate=RATES[rate], target=target)
                for unit in UNITS:
                    part = only(own, unit=unit)
                    pen = Pen(shapes[unit].colour, "", marker=shapes[unit].marker, size=3.5, alpha=0.7)
                    panel.line(part[PREDICTORS[predictor]], part[column], pen)
                if kernel:
                    real = only(tables["training"], kernel=kernel, target=target, share=SHARES[DRAWN])
                    panel.line(real["condition"], real["measured"], TRAINED_PEN, order=4)
                reach = np.array([own[PREDICTORS[predictor]].min(), own[PREDICTORS[predictor]].max()])
                panel.line(reach, 0.5 * reach * np.log(1 / SHARES[DRAWN]), BOUND_PEN)
                panel.set(xscale="log", yscale="log", xlabel=XLABELS[predictor], title=f"{target} targets, {title}")
                panel.set(ylabel=f"steps to ε = {SHARES[DRAWN]:g}")
            draw_correlations(Panel(row[-1]), only(tables["prediction"], target=target))
            row[-1].set_title(f"{target} targets, rank correlation")
        entries = [Entry(NAMES[u], Pen(shapes[u].colour, "", marker=shapes[u].marker)) for u in UNITS]
        entries += [
            Entry("trained networks (third column: less their mean output)", TRAINED_PEN),
            Entry("κ log(1/ε)/2, or bulk κ", BOUND_PEN),
        ]
        figure_legend(figure, entries, ncols=10, columnspacing=1.0, handletextpad=0.4)
        figure.suptitle("Steps of gradient descent against the condition number, with and without its one eigenvalue")
    return figure


def draw_correlations(panel: Panel, rows: pd.DataFrame) -> None:
    """Rank correlations over units and widths on the same rows, against ε."""
    for order, (rate, predictor, pen) in enumerate(CORRELATIONS):
        own = only(rows, rate=RATES[rate], predictor=PREDICTORS[predictor])
        x, stroke = own["share"] * 1.25 ** (order - 1.5), Pen(pen.colour, width=1.6, alpha=0.6)
        strokes = panel.strokes(x, own["within_low"], own["within_high"], stroke)
        label = f"{PREDICTORS[predictor]}, {('1/λ_max', '', 'top removed')[rate]}"
        panel.line(x, own["within"], pen, label=label, interval=strokes)
    panel.set(xscale="log", xlabel="ε", ylabel="mean over draws of rows")
    panel.legend(loc="lower left", fontsize=7)


XLABELS = ("κ = λ_max/λ_min", "bulk κ = λ_2/λ_min")
BOUND_PEN = Pen(GREY, "--", 1.1)
TRAINED_PEN = Pen("black", "", marker="o", size=6, face="none", edge=0.8)
CORRELATIONS = (
    (PLAIN, 0, Pen("#0072B2", marker="o")),
    (PLAIN, 1, Pen("#D55E00", marker="s")),
    (REMOVED, 0, Pen("#0072B2", "--", marker="o", face="white")),
    (REMOVED, 1, Pen("#D55E00", "--", marker="s", face="white")),
)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """What gating gains in steps, with the largest eigenvalue and without it."""
    own = only(tables["gains"], gated=PAIRS[0][1], target="random")
    row = last(own, share=SHARES[DRAWN])
    sentence = (
        f"A gate divides a ReLU network's steps to ε = {row['share']:g} by {row['steps']:.0f}"
        f"{bracket(row['steps_low'], row['steps_high'], '.0f')} where κ falls {row['condition']:.0f} times; with the "
        f"top direction solved for and the rate set by the next, by {row['removed']:.2f}"
        f"{bracket(row['removed_low'], row['removed_high'])} where bulk κ falls {row['bulk']:.1f} times."
    )
    sizes = f"n = {row['n']} Gaussian rows of d = {row['d']}, width {row['width']}, {row['seeds']} seeds, closed form."
    strokes = tuple(
        Stroke(label, numbers(own["share"]), numbers(own[column]), colour)
        for label, column, colour in (("rate 1/λ_max", "steps", "#0072B2"), ("top removed", "removed", "#D55E00"))
    )
    sketch = Sketch("ε, of the loss at the start", "steps of ReLU over ReGLU", strokes)
    return (Finding("κ, training and one eigenvalue", sentence, sizes, sketch),)


STUDY = Study(
    "ntk/steps",
    "Steps to an accuracy against κ",
    "Achieving error ε takes κ log(1/ε) iterations (section 2.2): a premise that the paper takes from others.",
    run,
    long=True,
    findings=findings,
    position=8.5,
)
