"""Figure 6: loss crossing of gated and plain units, predicted and measured, on Gaussian data and on MNIST."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.errors import GatelabError
from gatelab.plotting import GREY, look, new_figure, style
from gatelab.plotting.kernels import LossCurve, draw_losses, mark_crossing, plain_values, size_ticks
from gatelab.studies.definition import Claim, Finding, Outcome, Request, Sketch, Study, Tables, Verdict, only, stroke
from gatelab.studies.ntk.crossing import (
    NEW_PAIRS,
    PAIRS,
    SHARES,
    CrossingData,
    CrossingRun,
    check_closed_form,
    closed_form_claims,
    closed_form_table,
    gaussian_data,
    mnist_data,
    predicted_leads,
    run_pairs,
)
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAPER_NAMES
from gatelab.studies.progress import ticker
from gatelab.studies.verdicts import ends

EVERY_PAIR = (*PAIRS, *NEW_PAIRS)
NAMES = PAPER_NAMES | {"relu2": "ReLU²", "gqu": "GQU"}
NEAR = 0.15  # a predicted crossing step as near as this to the measured one agrees
DRAWN = 0.5  # the share that the panels of curves show
LEADS = (0.1, 0.25, 0.5, 1.0, 1.5, 1.9)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#222222")


def run(request: Request) -> Outcome:
    data, notes = _data(request)
    shares = SHARES[1:3] if request.quick else SHARES
    tick = ticker(request, len(data) * len(EVERY_PAIR) * len(shares) + 2)
    runs = [one for each in data for one in run_pairs(each, EVERY_PAIR, shares, tick)]
    size = (30, 15, 256, 6, 20) if request.quick else (60, 30, 4096, 6, 60)
    checks = check_closed_form(("mlp", "glu"), *size, tick)
    leads = {each.name: predicted_leads(each, PAIRS[0], LEADS) for each in data}
    claims = (
        *[c for each in data for c in _pair_claims([r for r in runs if r.data == each.name])],
        *[c for each in data for c in _rate_claims([r for r in runs if r.data == each.name], leads[each.name])],
        _bound_claim(runs),
        *closed_form_claims(checks),
    )
    tables = {"crossings": _crossings(runs), "curves": _curves(runs), "closed-form": closed_form_table(checks)}
    return Outcome(_figure(data, runs), tables, claims, (NO_CAPTIONS, *notes, *_notes(data)))


def _data(request: Request) -> tuple[list[CrossingData], list[str]]:
    if request.quick:
        return [gaussian_data(40, 15, 256, 5)], ["Quick runs are on Gaussian data alone."]
    data = [gaussian_data(100, 30, 2048, 20)]
    try:
        return [*data, mnist_data(128, 1024, 8)], []
    except GatelabError as error:
        return data, [f"MNIST was not at hand, so that the figure is of Gaussian data alone: {error}"]


# ---- figure


def _figure(data: Sequence[CrossingData], runs: Sequence[CrossingRun]) -> Figure:
    with style():
        figure = new_figure(10.2, 5.9 * len(data) + 0.3)
        grid = figure.add_gridspec(2 * len(data), 3)
        for block, each in enumerate(data):
            own = [r for r in runs if r.data == each.name]
            for place, pair in enumerate(EVERY_PAIR):
                panel = figure.add_subplot(grid[2 * block + place // 3, place % 3])
                _draw_pair(panel, next(r for r in own if r.units == pair and r.share == DRAWN))
            _draw_rates(figure.add_subplot(grid[2 * block + 1, 2]), own)
        figure.legend(handles=_legend(), loc="outside lower center", ncols=4, handlelength=2.6)
        figure.suptitle(f"Figure 6: loss crossing, both units of a pair with the step {DRAWN:g} / λ_max")
    return figure


def _legend() -> list[Line2D]:
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "#222222"}
    return [
        Line2D([], [], color=GREY, label="trained networks: mean, 95 % interval"),
        Line2D([], [], color=GREY, linestyle=(0, (4, 2)), label="closed form"),
        Line2D([], [], label="measured crossing, 95 % interval", markersize=5, **dot),
        Line2D([], [], label="predicted crossing", markersize=8, markerfacecolor="none", **dot),
    ]


def _colours() -> tuple[str, str]:
    return look("mlp").colour, look("glu").colour


def _draw_pair(panel: Axes, one: CrossingRun) -> None:
    curves, handles = [], []
    for unit, colour, trained, expected in zip(one.units, _colours(), one.trained, one.expected.curves, strict=True):
        curves.append(LossCurve(NAMES[unit], trained.steps, trained.mean, *trained.interval(), colour=colour))
        handles.append(curves[-1].handle())
        predicted = expected.at(trained.steps).loss
        curves.append(LossCurve(NAMES[unit], trained.steps, predicted, colour=colour, predicted=True))
    draw_losses(panel, curves)
    plain_values(panel)
    if one.expected.step is not None and one.expected.loss is not None:
        mark_crossing(panel, one.expected.step, one.expected.loss, hollow=True)
    if one.measured.step is not None:
        height = float(np.interp(one.measured.step, one.trained[0].steps, one.trained[0].mean))
        panel.hlines(height, one.measured.low, one.measured.high, color="#222222", linewidth=1.4, zorder=5)
        mark_crossing(panel, one.measured.step, height)
    panel.legend(handles=handles, loc="upper right")
    panel.set_title(f"{one.data}: {NAMES[one.units[0]]} and {NAMES[one.units[1]]}")


def _draw_rates(panel: Axes, runs: Sequence[CrossingRun]) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    pairs = list(dict.fromkeys(r.units for r in runs))
    shares = sorted({r.share for r in runs})
    for order, (pair, colour) in enumerate(zip(pairs, COLOURS, strict=True)):
        own = [r for r in runs if r.units == pair]
        panel.plot(
            [r.share for r in own],
            [r.expected.step or np.nan for r in own],
            color=colour,
            linestyle=(0, (4, 2)),
            lw=1.0,
        )
        for r in own:
            if r.measured.step is not None:
                x = r.share * 1.05 ** (order - 2)
                panel.vlines(x, r.measured.low, r.measured.high, color=colour, linewidth=1.3, alpha=0.7)
                panel.plot([x], [r.measured.step], marker="o", color=colour, markersize=4)
    size_ticks(panel, shares)
    panel.set_xlim(shares[0] / 1.25, shares[-1] * 1.25)
    plain_values(panel)
    handles = [
        Line2D([], [], color=c, marker="o", label=f"{NAMES[a]}, {NAMES[b]}")
        for (a, b), c in zip(pairs, COLOURS, strict=True)
    ]
    low, high = panel.get_ylim()
    panel.set_ylim(low / 6, high)  # room for the legend below the points
    panel.legend(handles=handles, loc="lower left", fontsize=7, ncols=2, columnspacing=0.8, handlelength=1.4)
    panel.set_xlabel("learning rate times λ_max")
    panel.set_ylabel("step of the crossing")
    panel.set_title(f"{runs[0].data}: crossing by learning rate")


# ---- what it says


def _pair_claims(runs: Sequence[CrossingRun]) -> list[Claim]:
    claims = []
    for pair in EVERY_PAIR:
        own = [r for r in runs if r.units == pair]
        seen = all(r.measured.step is not None and r.measured.share >= 0.95 for r in own)
        verdict: Verdict = "new" if pair in NEW_PAIRS else "reproduced" if seen else "differs"
        at = next(r for r in own if r.share == DRAWN)
        claims.append(
            Claim(
                f"crossing of {NAMES[pair[0]]} and {NAMES[pair[1]]}, {own[0].data}",
                "-" if pair in NEW_PAIRS else "the gated unit overtakes",
                f"step {_steps(own)} (predicted {', '.join(f'{r.expected.step:.3g}' for r in own)}) at "
                f"{', '.join(f'{r.share:g}' for r in own)} / λ_max",
                verdict,
                f"{_who(at)} Measured over predicted step: {_list(r.ratio for r in own)}; over that predicted from the "
                f"networks' own initial outputs: {_list(r.ratio_given for r in own)}. Networks cross in at least "
                f"{min(r.measured.share for r in own):.0%} of the draws of {len(at.trained[0].seeds)} seeds.",
                _ends(own),
            )
        )
    return claims


def _steps(runs: Iterable[CrossingRun]) -> str:
    return ", ".join("none" if r.measured.step is None else f"{r.measured.step:.3g}" for r in runs)


def _ends(runs: Iterable[CrossingRun]) -> str:
    return ", ".join(ends(r.measured.low, r.measured.high) for r in runs if r.measured.step is not None)


def _who(one: CrossingRun) -> str:
    found = one.expected
    first, last = NAMES[str(found.first)], NAMES[found.changes[0].ahead]
    low, (plain, gated) = found.late.lambda_min, (NAMES[name] for name in one.units)
    ratio = f"λ_min of {gated} is {low[1] / low[0]:.1f} times that of {plain}"
    return f"{first} leads at first, {last} after it; {ratio}."


def _list(values: Iterable[float]) -> str:
    return ", ".join("none" if np.isnan(v) else f"{v:.2f}" for v in values)


def _rate_claims(runs: Sequence[CrossingRun], leads: Sequence[tuple[float, float | None, float]]) -> list[Claim]:
    """How long the early advantage of the first pair lasts, and how large it is, by learning rate."""
    own = [r for r in runs if r.units == PAIRS[0]]
    first, last = own[0], own[-1]
    name = NAMES[PAIRS[0][0]]
    times = [r.share * (r.expected.step or np.nan) for r in own]
    sizes = [r.lead[1] for r in own]
    table = ", ".join(f"{lead:.1%} at {share:g}" for share, _, lead in leads)
    largest = max(leads, key=lambda row: row[2])
    at = ", ".join(f"{r.share:g}" for r in own)
    return [
        Claim(
            f"how long {name} stays ahead, by learning rate, {first.data}",
            "a larger learning rate diminishes the early advantage",
            f"{_steps(own)} steps at {at} / λ_max",
            "reproduced" if last.measured.high < first.measured.low else "differs",
            f"Learning rate times step stays ({_list(times)}, predicted): to first order the rate only scales time.",
            _ends(own),
        ),
        Claim(
            f"how far {name} gets ahead, by learning rate, {first.data}",
            "a larger learning rate diminishes the early advantage",
            f"at most {', '.join(f'{size:.1%}' for size in sizes)} of its loss at {at} / λ_max",
            "reproduced" if all(b < a for a, b in pairwise(sizes)) else "differs",
            f"In expectation {table} (times 1 / λ_max): largest near {largest[0]:g} / λ_max, where a step ends the top "
            "direction; only beyond it, where that direction overshoots, does a larger rate cost the lead.",
        ),
    ]


def _bound_claim(runs: Sequence[CrossingRun]) -> Claim:
    """The step of appendix C.2, from the two smallest eigenvalues alone, beside the crossing."""
    own = [r for r in runs if r.units == PAIRS[0] and r.share == DRAWN]
    said = [
        f"{'none' if r.expected.late.bound is None else f'{r.expected.late.bound:.0f}'} where the curves cross at "
        f"{_steps([r])} ({r.data})"
        for r in own
    ]
    bounds = [r.expected.late.bound for r in own]
    near = all(
        b is not None and abs(b / (r.measured.step or np.nan) - 1) < NEAR for b, r in zip(bounds, own, strict=True)
    )
    return Claim(
        "the step from which the smallest eigenvalues alone put ReGLU ahead (appendix C.2)",
        "ln(C~/C) / (2 ln[(1 - η λ_min) / (1 - η λ~_min)])",
        "; ".join(said),
        "reproduced" if near else "differs",
        "It compares two directions of n, which hold a small part of the loss when the curves cross: it says who is "
        "ahead in the end, not when that begins.",
        f"of the crossing: {_ends(own)}",
    )


def _crossings(runs: Sequence[CrossingRun]) -> pd.DataFrame:
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
                "predicted_given_start": r.given.step,
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


def _curves(runs: Sequence[CrossingRun]) -> pd.DataFrame:
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


def _notes(data: Sequence[CrossingData]) -> list[str]:
    sizes = [f"{d.name}: n = {len(d.X)}, d = {d.X.shape[1]}, width {d.width}, {d.seeds} seeds" for d in data]
    return [
        f"{'; '.join(sizes)}. Ten outputs; LeCun's weights, no biases, full-batch gradient descent, float32.",
        "Gaussian targets are standard normal. MNIST: the first training images less the mean image, scaled so that "
        "|x|^2 is d on average, as the theory of LeCun's initialisation assumes; labels one-hot less 1/10.",
        "Networks on MNIST are trained in the span of their samples, which leaves all products of samples as they are.",
        "Intervals of crossings are percentiles over draws of the seeds of both units; of curves, t-intervals; 95 %.",
    ]


def findings(tables: Tables) -> tuple[Finding, ...]:
    """How near the predicted crossings are to the measured ones, all of them."""
    table = tables["crossings"].dropna(subset=["measured", "low", "high", "predicted"])
    low, predicted, high = (table[name].to_numpy(dtype=float) for name in ("low", "predicted", "high"))
    inside = int(np.count_nonzero((low <= predicted) & (predicted <= high)))
    off = (table["predicted"] / table["measured"] - 1).abs()
    worst = table.to_dict("records")[int(np.argmax(off))]
    pairs, rates = len(table.groupby(["first", "second"])), table["lr_times_lambda_max"].nunique()
    sentence = (
        f"The step at which a gated unit overtakes the plain one is predicted without training: {inside} of "
        f"{len(table)} predictions lie in the 95 % interval of the measured step. The worst is {off.max():.0%} off "
        f"({NAMES[worst['first']]} and {NAMES[worst['second']]} on {worst['data']}), half are within "
        f"{off.median():.0%}."
    )
    where = "; ".join(
        f"{name}: width {part['width'].iloc[0]}, {part['seeds'].iloc[0]} seeds"
        for name, part in table.groupby("data", sort=False)
    )
    sizes = f"{pairs} pairs of units at {rates} learning rates. {where}."
    first = table.to_dict("records")[0]
    pair = (first["first"], first["second"])
    curves = only(tables["curves"], data=first["data"], pair="/".join(pair), lr_times_lambda_max=DRAWN)
    strokes = []
    for unit, colour in zip(pair, _colours(), strict=True):
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
