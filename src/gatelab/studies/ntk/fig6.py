"""Figure 6: loss crossing of gated and plain units, predicted and measured, on Gaussian data and on MNIST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.dynamics import MeasuredCrossing
from gatelab.errors import GatelabError
from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, look, new_figure, style
from gatelab.plotting.kernels import LossCurve, draw_losses, mark_crossing, plain_values, size_ticks
from gatelab.statistics import Interval
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Study,
    Tables,
    Verdict,
    only,
    stroke,
    ticker,
)
from gatelab.studies.ntk.crossing import (
    NEW_PAIRS,
    SHARES,
    CrossingData,
    CrossingRun,
    Lead,
    check_closed_form,
    closed_form_claims,
    closed_form_table,
    gaussian_data,
    mnist_data,
    predicted_leads,
    run_pairs,
)
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAIRS, PAPER_NAMES
from gatelab.studies.verdicts import reproduced_if, restored

EVERY_PAIR = (*PAIRS, *NEW_PAIRS)
NAMES = PAPER_NAMES | {"relu2": "ReLU²", "gqu": "GQU"}
NEAR = 0.15  # a predicted crossing step as near as this to the measured one agrees
DRAWN = 0.5  # the share that the panels of curves show
LEADS = (0.1, 0.25, 0.5, 1.0, 1.5, 1.9)
PAIR_COLOURS = look("mlp").colour, look("glu").colour  # of a plain unit and of a gated one
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#222222")
CHECK = {"n": 60, "d": 30, "width": 4096, "seeds": 6, "steps": 60}
QUICK_CHECK = {"n": 30, "d": 15, "width": 256, "seeds": 6, "steps": 20}


def run(request: Request) -> Outcome:
    """Figure 6: networks trained at several learning rates, beside what the closed form predicts."""
    data, notes = data_sets(request)
    shares, check = SHARES, CHECK
    if request.quick:
        shares, check = SHARES[1:3], QUICK_CHECK
    tick = ticker(request, len(data) * len(EVERY_PAIR) * len(shares) + 2)
    by_data = {data_set.name: run_pairs(data_set, EVERY_PAIR, shares, tick) for data_set in data}
    checks = check_closed_form(("mlp", "glu"), **check, tick=tick)
    leads = {data_set.name: predicted_leads(data_set, PAIRS[0], LEADS) for data_set in data}
    all_runs = [r for runs in by_data.values() for r in runs]
    claims = (
        *[claim for runs in by_data.values() for claim in pair_claims(runs)],
        *[claim for name, runs in by_data.items() for claim in rate_claims(runs, leads[name])],
        bound_claim(all_runs),
        *closed_form_claims(checks),
    )
    tables = {
        "crossings": crossings_table(all_runs),
        "curves": curves_table(all_runs),
        "closed-form": closed_form_table(checks),
    }
    return Outcome(draw(by_data), tables, claims, (NO_CAPTIONS, *notes, *size_notes(data)))


def data_sets(request: Request) -> tuple[list[CrossingData], list[str]]:
    """Gaussian data, and MNIST where it is at hand and the run is not quick; with a note on what is missing."""
    if request.quick:
        return [gaussian_data(40, 15, 256, 5)], ["Quick runs are on Gaussian data alone."]
    data = [gaussian_data(100, 30, 2048, 20)]
    try:
        return [*data, mnist_data(128, 1024, 8)], []
    except GatelabError as error:
        return data, [f"MNIST was not at hand, so that the figure is of Gaussian data alone: {error}"]


# ---- tables


def crossings_table(runs: Sequence[CrossingRun]) -> pd.DataFrame:
    """A row a pair and learning rate: predicted and measured crossings, leads and conditions."""
    rows = []
    for r in runs:
        rows.append(
            {
                "data": r.data,
                "first": r.units[0],
                "second": r.units[1],
                "lr_times_lambda_max": r.share,
                "lr": r.lr,
                "width": r.trained[0].width,
                "seeds": len(r.trained[0].seeds),
                "predicted": r.expected.step,
                "predicted_given_start": r.given_start.step,
                "measured": r.measured.step,
                "low": r.measured.low,
                "high": r.measured.high,
                "crossing_draws": r.measured.share,
                "measured_over_predicted": r.ratio,
                "measured_over_given": r.ratio_given,
                "lead_predicted": r.lead[0],
                "lead_measured": r.lead[1],
                "early_condition": r.expected.early.holds,
                "late_condition": r.expected.late.holds,
                "paper_bound": r.expected.late.bound,
            }
        )
    return pd.DataFrame(rows)


def curves_table(runs: Sequence[CrossingRun]) -> pd.DataFrame:
    """A row a step of every run: the measured loss with its interval, and the predicted one."""
    frames = []
    for r in runs:
        for unit, trained, expected in zip(r.units, r.trained, r.expected.curves, strict=True):
            low, high = trained.interval()
            frames.append(
                pd.DataFrame(
                    {
                        "data": r.data,
                        "pair": "/".join(r.units),
                        "lr_times_lambda_max": r.share,
                        "unit": unit,
                        "step": trained.steps.astype(int),
                        "measured": trained.mean,
                        "low": low,
                        "high": high,
                        "predicted": expected.at(trained.steps).loss,
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


# ---- what it says


def pair_claims(runs: Sequence[CrossingRun]) -> list[Claim]:
    """Whether each pair crosses at every learning rate; pairs that the paper does not have are new."""
    claims = []
    for pair in EVERY_PAIR:
        own = [r for r in runs if r.units == pair]
        paper = "the gated unit overtakes"
        verdict = reproduced_if(all(r.measured.step is not None and r.measured.share >= 0.95 for r in own))
        if pair in NEW_PAIRS:
            paper = "-"
            verdict = "new"
        drawn = next(r for r in own if r.share == DRAWN)
        claims.append(
            Claim(
                f"crossing of {NAMES[pair[0]]} and {NAMES[pair[1]]}, {own[0].data}",
                paper,
                f"step {steps_text(own)} (predicted {', '.join(f'{r.expected.step:.3g}' for r in own)}) at "
                f"{', '.join(f'{r.share:g}' for r in own)} / λ_max",
                verdict,
                f"{leaders(drawn)} Measured over predicted step: {ratios_text(r.ratio for r in own)}; over that "
                f"predicted from the networks' own initial outputs: {ratios_text(r.ratio_given for r in own)}. "
                f"Networks cross in at least {min(r.measured.share for r in own):.0%} of the draws of "
                f"{len(drawn.trained[0].seeds)} seeds.",
                ends_text(own),
                place=crossing_place(pair, own[0].data),
            )
        )
    return claims


def crossing_place(pair: tuple[str, str], data: str) -> str:
    """Where the paper has the crossing of a pair; the first one on Gaussian data is its corollary's early stage too.

    >>> crossing_place(("mlp", "glu"), "MNIST"), crossing_place(NEW_PAIRS[0], "MNIST")
    ('figure 6, (a) to (d): ReLU and ReGLU, MNIST', '')
    """
    if pair in NEW_PAIRS:
        return ""
    place = f"figure 6, (a) to (d): {NAMES[pair[0]]} and {NAMES[pair[1]]}, {data}"
    if pair == PAIRS[0] and data == "Gaussian":
        place += "; corollary 4.2, early stage"
    return place


def leaders(run: CrossingRun) -> str:
    """Who leads at first and who after the crossing, and the smallest eigenvalues that decide it."""
    expected = run.expected
    first, last = NAMES[str(expected.first)], NAMES[expected.changes[0].ahead]
    low, (plain, gated) = expected.late.lambda_min, (NAMES[name] for name in run.units)
    ratio = f"λ_min of {gated} is {low[1] / low[0]:.1f} times that of {plain}"
    return f"{first} leads at first, {last} after it; {ratio}."


def rate_claims(runs: Sequence[CrossingRun], leads: Sequence[Lead]) -> list[Claim]:
    """How long the early advantage of the first pair lasts, and how large it is, by learning rate."""
    own = [r for r in runs if r.units == PAIRS[0]]
    first, last = own[0], own[-1]
    name = NAMES[PAIRS[0][0]]
    times = [r.share * (r.expected.step or np.nan) for r in own]
    sizes = [r.lead[1] for r in own]
    table = ", ".join(f"{lead.size:.1%} at {lead.share:g}" for lead in leads)
    largest = max(leads, key=lambda lead: lead.size)
    shares = ", ".join(f"{r.share:g}" for r in own)
    return [
        Claim(
            f"how long {name} stays ahead, by learning rate, {first.data}",
            "a larger learning rate diminishes the early advantage",
            f"{steps_text(own)} steps at {shares} / λ_max",
            shorter_verdict(first.measured, last.measured),
            f"Learning rate times step stays ({ratios_text(times)}, predicted): to first order the rate only scales "
            "time.",
            ends_text(own),
            place=f"section 4.2, learning rate, {first.data}, how long",
        ),
        Claim(
            f"how far {name} gets ahead, by learning rate, {first.data}",
            "a larger learning rate diminishes the early advantage",
            f"at most {', '.join(f'{size:.1%}' for size in sizes)} of its loss at {shares} / λ_max",
            reproduced_if(all(b < a for a, b in pairwise(sizes))),
            f"In expectation {table} (times 1 / λ_max): largest near {largest.share:g} / λ_max, where a step ends the "
            "top direction; only beyond it, where that direction overshoots, does a larger rate cost the lead.",
            place=f"section 4.2, learning rate, {first.data}, how far",
        ),
    ]


def shorter_verdict(first: MeasuredCrossing, last: MeasuredCrossing) -> Verdict:
    """Whether the last crossing comes before the first: intervals that overlap do not decide it."""
    if last.high < first.low:
        return "reproduced"
    if last.low > first.high:
        return "differs"
    return "undecided"


def bound_claim(runs: Sequence[CrossingRun]) -> Claim:
    """The step of appendix C.2, from the two smallest eigenvalues alone, beside the crossing."""
    own = [r for r in runs if r.units == PAIRS[0] and r.share == DRAWN]
    parts, near = [], True
    for r in own:
        bound, number = r.expected.late.bound, "none"
        if bound is not None:
            number = f"{bound:.0f}"
        near = near and bound is not None and abs(bound / (r.measured.step or np.nan) - 1) < NEAR
        parts.append(f"{number} where the curves cross at {steps_text([r])} ({r.data})")
    return Claim(
        "the step from which the smallest eigenvalues alone put ReGLU ahead (appendix C.2)",
        "ln(C~/C) / (2 ln[(1 - η λ_min) / (1 - η λ~_min)]) (formula lost, restored)",
        "; ".join(parts),
        restored(reproduced_if(near)),
        "It compares two directions of n, which hold a small part of the loss when the curves cross: it says who is "
        "ahead in the end, not when that begins.",
        f"of the crossing: {ends_text(own)}",
        place="corollary 4.2, late stage",
    )


def steps_text(runs: Iterable[CrossingRun]) -> str:
    """The measured crossing steps, "none" where networks did not cross."""
    return ", ".join("none" if r.measured.step is None else f"{r.measured.step:.3g}" for r in runs)


def ends_text(runs: Iterable[CrossingRun]) -> str:
    """The intervals of the measured crossing steps."""
    measured = [r.measured for r in runs]
    return ", ".join(Interval(m.step, m.low, m.high).ends() for m in measured if m.step is not None)


def ratios_text(values: Iterable[float]) -> str:
    """Ratios in two digits, "none" where there is none.

    >>> ratios_text([1.234, float("nan")])
    '1.23, none'
    """
    return ", ".join("none" if np.isnan(v) else f"{v:.2f}" for v in values)


def size_notes(data: Sequence[CrossingData]) -> list[str]:
    """The sizes of the data sets, how networks were trained on them, and what intervals are."""
    sizes = [f"{d.name}: n = {len(d.X)}, d = {d.X.shape[1]}, width {d.width}, {d.seeds} seeds" for d in data]
    return [
        f"{'; '.join(sizes)}. Ten outputs; LeCun's weights, no biases, full-batch gradient descent, float32.",
        "Gaussian targets are standard normal. MNIST: the first training images less the mean image, scaled so that "
        "|x|^2 is d on average, as the theory of LeCun's initialisation assumes; labels one-hot less 1/10.",
        "Networks on MNIST are trained in the span of their samples, which leaves all products of samples as they are.",
        "Intervals of crossings are percentiles over draws of the seeds of both units; of curves, t-intervals; 95 %.",
    ]


# ---- figure


def draw(by_data: Mapping[str, Sequence[CrossingRun]]) -> Figure:
    """For each data set a panel of curves for every pair, and one of the crossings against the learning rate."""
    with style():
        figure = new_figure(10.2, 5.9 * len(by_data) + 0.3)
        grid = figure.add_gridspec(2 * len(by_data), 3)
        for block, runs in enumerate(by_data.values()):
            for place, pair in enumerate(EVERY_PAIR):
                panel = Panel(figure.add_subplot(grid[2 * block + place // 3, place % 3]))
                draw_pair(panel, next(r for r in runs if r.units == pair and r.share == DRAWN))
            draw_rates(Panel(figure.add_subplot(grid[2 * block + 1, 2])), runs)
        entries = [
            Entry("trained networks: mean, 95 % interval", Pen(GREY)),
            Entry("closed form", Pen(GREY, (0, (4, 2)))),
            Entry("measured crossing, 95 % interval", Pen("#222222", "", marker="o", size=5)),
            Entry("predicted crossing", Pen("#222222", "", marker="o", size=8, face="none")),
        ]
        figure_legend(figure, entries, ncols=4, handlelength=2.6)
        figure.suptitle(f"Figure 6: loss crossing, both units of a pair with the step {DRAWN:g} / λ_max")
    return figure


def draw_pair(panel: Panel, run: CrossingRun) -> None:
    """The losses of both units, trained and predicted, with both crossings."""
    curves, entries = [], []
    for unit, colour, trained, expected in zip(run.units, PAIR_COLOURS, run.trained, run.expected.curves, strict=True):
        curves.append(LossCurve(NAMES[unit], trained.steps, trained.mean, *trained.interval(), colour=colour))
        entries.append(curves[-1].entry())
        predicted = expected.at(trained.steps).loss
        curves.append(LossCurve(NAMES[unit], trained.steps, predicted, colour=colour, predicted=True))
    draw_losses(panel, curves)
    plain_values(panel)
    if run.expected.step is not None and run.expected.loss is not None:
        mark_crossing(panel, run.expected.step, run.expected.loss, hollow=True)
    if run.measured.step is not None:
        height = float(np.interp(run.measured.step, run.trained[0].steps, run.trained[0].mean))
        mark_crossing(panel, run.measured.step, height, ends=(run.measured.low, run.measured.high))
    panel.legend(entries, loc="upper right")
    panel.set(title=f"{run.data}: {NAMES[run.units[0]]} and {NAMES[run.units[1]]}")


def draw_rates(panel: Panel, runs: Sequence[CrossingRun]) -> None:
    """The step of the crossing against the learning rate, a colour a pair: predicted as lines, measured as dots."""
    panel.set(xscale="log", yscale="log")
    pairs = list(dict.fromkeys(r.units for r in runs))
    shares = sorted({r.share for r in runs})
    for order, (pair, colour) in enumerate(zip(pairs, COLOURS, strict=True)):
        own = [r for r in runs if r.units == pair]
        predicted = [r.expected.step or np.nan for r in own]
        panel.line([r.share for r in own], predicted, Pen(colour, (0, (4, 2)), 1.0))
        for r in own:
            if r.measured.step is not None:
                x = r.share * 1.05 ** (order - 2)
                ends = panel.strokes(x, r.measured.low, r.measured.high, Pen(colour, width=1.3, alpha=0.7))
                panel.line(x, r.measured.step, Pen(colour, marker="o"), interval=ends)
    size_ticks(panel, shares)
    panel.set(xlim=(shares[0] / 1.25, shares[-1] * 1.25))
    plain_values(panel)
    low, high = panel.axes.get_ylim()
    panel.set(ylim=(low / 6, high))  # room for the legend below the points
    entries = [Entry(f"{NAMES[a]}, {NAMES[b]}", Pen(c, marker="o")) for (a, b), c in zip(pairs, COLOURS, strict=True)]
    panel.legend(entries, loc="lower left", fontsize=7, ncols=2, columnspacing=0.8, handlelength=1.4)
    panel.set(xlabel="learning rate times λ_max", ylabel="step of the crossing")
    panel.set(title=f"{runs[0].data}: crossing by learning rate")


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """How near the predicted crossings are to the measured ones, all of them."""
    table = tables["crossings"].dropna(subset=["measured", "low", "high", "predicted"])
    low, predicted, high = (table[name].to_numpy(dtype=float) for name in ("low", "predicted", "high"))
    inside = int(np.count_nonzero((low <= predicted) & (predicted <= high)))
    errors = (table["predicted"] / table["measured"] - 1).abs()
    worst = table.to_dict("records")[int(np.argmax(errors))]
    pairs, rates = len(table.groupby(["first", "second"])), table["lr_times_lambda_max"].nunique()
    sentence = (
        f"The step at which a gated unit overtakes the plain one is predicted without training: {inside} of "
        f"{len(table)} predictions lie in the 95 % interval of the measured step. The worst is {errors.max():.0%} off "
        f"({NAMES[worst['first']]} and {NAMES[worst['second']]} on {worst['data']}), half are within "
        f"{errors.median():.0%}."
    )
    widths = "; ".join(
        f"{name}: width {part['width'].iloc[0]}, {part['seeds'].iloc[0]} seeds"
        for name, part in table.groupby("data", sort=False)
    )
    sizes = f"{pairs} pairs of units at {rates} learning rates. {widths}."
    first = table.to_dict("records")[0]
    pair = (first["first"], first["second"])
    curves = only(tables["curves"], data=first["data"], pair="/".join(pair), lr_times_lambda_max=DRAWN)
    strokes = []
    for unit, colour in zip(pair, PAIR_COLOURS, strict=True):
        rows = only(curves, unit=unit)
        strokes.append(stroke(NAMES[unit], rows, "step", "measured", colour))
        strokes.append(stroke("predicted", rows, "step", "predicted", colour, dashed=True))
    sketch = Sketch(f"step, {first['data']} data", "training loss", tuple(strokes), log_x=False)
    return (Finding("Crossings are predicted", sentence, sizes, sketch),)


STUDY = Study(
    "ntk/fig6",
    "Loss crossing",
    "Units without a gate lead at first and are overtaken, for ReLU, GELU and SiLU, on Gaussian data and MNIST.",
    run,
    long=True,
    findings=findings,
    position=6,
)
