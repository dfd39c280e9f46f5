"""Figure 2: how the error of MLP and GLU falls with neurons and with parameters, by three trainings; the GQU beside.

The paper's code, our Newton in its stages and the optimum (`error_curves` says what they are) have different slopes,
and each has different slopes over different widths: a table and a row of panels have all of them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.feedforward import unit as as_unit
from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, look, new_figure, style
from gatelab.scaling_laws import Scaling
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Study,
    Tables,
    beside,
    bracket,
    last,
    only,
    stroke,
    ticker,
)
from gatelab.studies.scaling.constructions import cell_claims, construction_claims, count_claim, eq6_claim, shift_claim
from gatelab.studies.scaling.error_curves import (
    CODE,
    NEWTON,
    OPTIMUM,
    QUICK_WIDTHS,
    RANGES,
    best_errors,
    by_newton,
    code_claims,
    code_curves,
    code_medians,
    fit_curves,
    median_errors,
    newton_claim,
    paper_target,
    range_slopes,
    ratio_sentence,
    slope_claims,
    tail_slope,
    upper_half,
    widths_for,
)
from gatelab.studies.scaling.printed import GLU_FOR_MLP, PAPER_SLOPES
from gatelab.studies.scaling.printed import UNITS as ALL_UNITS
from gatelab.studies.verdicts import TOLERANCE, errors_claim, fewer_verdict

UNITS = ("mlp", "glu")
PENS = {
    CODE: Pen("#222222", marker="o", size=4.5),
    NEWTON: Pen("#D55E00", "--", 1.1, "s", 3.5, face="white"),
    OPTIMUM: Pen("#0072B2", marker="D", size=3.5),
}


def run(request: Request) -> Outcome:
    """Every unit at every width by three trainings, the paper's slopes and constructions beside them."""
    target = paper_target(request)
    widths = widths_for(request, range(1, 51))
    fits = len(ALL_UNITS) * (len(widths) + len(QUICK_WIDTHS) * request.quick)
    tick = ticker(request, fits)
    study = fit_curves(request, ALL_UNITS, target, widths, tick)
    newton = by_newton(request, ALL_UNITS, target, tick)
    slopes = range_slopes(newton, study, ALL_UNITS)
    claims = [claim for unit in UNITS for claim in code_claims(slopes, unit, "figure 2")]
    claims += [newton_claim(newton, study, unit) for unit in UNITS]
    claims += [claim for unit in UNITS for claim in slope_claims(study, unit)]
    claims += [errors_claim(unit, code_medians()[unit], best_errors(study, unit)) for unit in UNITS]
    claims.append(neurons_claim(study))
    claims += [shift_claim(unit, study) for unit in UNITS]
    claims += [claim for unit in UNITS for claim in construction_claims(unit, target, study)]
    claims += [eq6_claim(target), *cell_claims(), *(count_claim(unit) for unit in UNITS)]
    low, high = upper_half(study)
    notes = (
        f"The optimum is fitted by the knot solver to {target.train.n} points; errors are on {target.test.n} others.",
        'The paper\'s code was run at its commit "Paper version" with this target added, up to five seeds a width '
        "(results/scaling/reference.md); points are medians, strokes reach over the seeds.",
        "Our Newton in its stages is a solver of ours from the start and in the stages of that code, five seeds: "
        "medians. It is not the paper's code.",
        "Slopes by range are over the widths at which the paper's code was run, so that the three differ by training "
        "alone; the last range has every width. Brackets and strokes are 95 % intervals; of four widths they are wide.",
        *(f"{ratio_sentence(study, unit)}." for unit in UNITS),
        f"Over n = {low}..{high} the slopes are "
        + " and ".join(f"{tail_slope(study, unit)} ({unit})" for unit in UNITS)
        + "; figure 6 follows them further.",
    )
    tables = {
        "ranges": slopes,
        "errors": study.table(),
        "slopes": study.slopes(flagged=True),
        "code": code_curves().table(),
        "newton": newton.table(),
    }
    return Outcome(three_trainings(study, newton, slopes), tables, tuple(claims), notes)


def three_trainings(study: Scaling, newton: Scaling, slopes: pd.DataFrame) -> Figure:
    """A column a unit: its errors by the three trainings above, and below their slopes by range of widths."""
    with style():
        figure = new_figure(10.0, 6.6)
        panels = [Panel(axes) for axes in figure.subplots(2, len(ALL_UNITS), height_ratios=(1.35, 1)).ravel()]
        for i, unit in enumerate(ALL_UNITS):
            draw_trainings(panels[i], unit, study, newton)
            draw_ranges(panels[i + len(ALL_UNITS)], only(slopes, unit=unit, against="n"))
        panels[0].set(ylabel="test RMSE")
        panels[len(ALL_UNITS)].set(ylabel="slope against n")
        entries = [Entry(name, pen) for name, pen in PENS.items()]
        entries += [
            Entry("the paper's slope (band: ±5 %)", Pen(GREY, ":")),
            Entry("free-knot limit", Pen(GREY, "--", 0.8)),
        ]
        figure_legend(figure, entries, ncols=len(entries))
        figure.suptitle("Figure 2: the same networks by three trainings, on 1/(1+cos²πx)")
    return figure


def draw_trainings(panel: Panel, unit: str, study: Scaling, newton: Scaling) -> None:
    """The errors of a unit against n, and a line of the paper's slope through those of its code for n = 5 to 14."""
    (low, high), code = RANGES[0], code_curves()
    panel.set(xscale="log", yscale="log")
    panel.span("x", low, high or low, "#efefef", order=0)
    widths, best = study.best(unit)
    limits = {p.width: p.limit for p in study.points if p.unit == unit}
    panel.line(widths, [limits[int(w)] for w in widths], Pen(GREY, "--", 0.8))
    for name, errors in ((OPTIMUM, dict(zip(widths, best, strict=True))), (NEWTON, median_errors(newton, unit))):
        panel.line(list(errors), list(errors.values()), Pen(PENS[name].colour, PENS[name].dash, PENS[name].width))
    sizes, seeds = code.curve(unit, flagged=True)
    medians = median_errors(code, unit)
    strokes = panel.strokes(sizes, np.nanmin(seeds, axis=1), np.nanmax(seeds, axis=1), Pen("#222222", width=1.1))
    panel.line(sizes, list(medians.values()), PENS[CODE], order=3, interval=strokes)
    inside = np.log([(w, e) for w, e in medians.items() if low <= w <= (high or w)]).mean(axis=0)
    ends, paper = np.array([2.5, 50.0]), PAPER_SLOPES[unit, "n"]
    panel.line(ends, np.exp(inside[1] + paper * (np.log(ends) - inside[0])), Pen(GREY, ":"))
    panel.text(f"paper {paper}".replace("-", "−"), 0.97, 0.95, within=("panel", "panel"), across="right", up="top")
    where = {"within": ("data", "panel"), "across": "center", "colour": GREY}
    panel.text(f"n = {low} to {high}", float(np.sqrt(low * (high or low))), 0.03, **where)
    panel.set(title=f"{unit.upper()}, P = {as_unit(unit).parameter_count(1) - 1}n + 1", xlabel="neurons n")
    panel.set(xticks=[1, 2, 5, 10, 20, 50], xticklabels=["1", "2", "5", "10", "20", "50"])
    panel.set(ylim=(best.min() / 2, 0.5))


def draw_ranges(panel: Panel, slopes: pd.DataFrame) -> None:
    """The slopes of a unit by range of widths, with intervals; the paper's as a line across."""
    ranges, paper = list(dict.fromkeys(slopes["widths"])), float(slopes["paper"].iloc[0])
    panel.span("y", paper * (1 - TOLERANCE), paper * (1 + TOLERANCE), "#efefef", order=0)
    panel.rule("y", paper, Pen(GREY, ":"), order=1)
    for shift, (name, pen) in zip((-0.18, 0.0, 0.18), PENS.items(), strict=True):
        mine = slopes[slopes["training"] == name]
        places = [ranges.index(words) + shift for words in mine["widths"]]
        strokes = panel.strokes(places, mine["low"], mine["high"], Pen(pen.colour, width=1.1))
        dots = Pen(pen.colour, "", marker=pen.marker, size=pen.size, face=pen.face)
        panel.line(places, mine["slope"], dots, order=3, interval=strokes)
    labels = [words.replace(", ", ",\n") for words in ranges]
    panel.set(xticks=range(len(ranges)), xticklabels=labels, xlabel="widths n", xlim=(-0.5, len(ranges) - 0.5))
    # Four widths leave intervals that would press everything else together: these strokes leave the panel.
    panel.set(ylim=(slopes["slope"].min() - 0.7, slopes["slope"].max() + 0.7))
    panel.axes.grid(axis="x", visible=False)


def neurons_claim(study: Scaling) -> Claim:
    """ "15 GLU neurons for 50 MLP neurons": the least GLU width below the widest MLP's error."""
    paper, mlp_width = GLU_FOR_MLP
    mlp, glu = best_errors(study, "mlp"), best_errors(study, "glu")
    compared = mlp_width if mlp_width in mlp else max(mlp)
    needed = next((w for w in sorted(glu) if glu[w] < mlp[compared]), None)
    ours, reached = f"none of those run for {compared}", ""
    if needed:
        ours, reached = f"{needed} for {compared}", f"; the glu of {needed} reaches {glu[needed]:.1e}"
    verdict = fewer_verdict(paper, needed)
    if compared != mlp_width:
        verdict = "new"  # with fewer neurons than the paper's 50 to match, its number says nothing
    return Claim(
        "GLU neurons that match the MLP",
        f"{paper} for {mlp_width}",
        ours,
        verdict,
        f"The mlp of {compared} neurons has RMSE {mlp[compared]:.1e}{reached}.",
        place="section 5, GLU neurons for 50 of the MLP",
    )


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The slopes through all widths beside the paper's, and where the errors lie against the limit."""
    errors, slopes = tables["errors"], tables["slopes"]
    laws, compared, papers = [], [], []
    narrow, wide = [], []
    for unit in UNITS:
        row = last(slopes, unit=unit, against="n", aggregate="best")
        paper = PAPER_SLOPES[unit, "n"]
        ratios = stroke(unit, only(errors, unit=unit), "width", "ratio", GREY).y
        laws.append(f"n^{row['slope']:.2f}{bracket(row['low'], row['high'])} ({unit.upper()})")
        compared.append(beside(row["low"], row["high"], paper, "steeper than", "flatter than"))
        papers.append(f"{paper}")
        narrow.append(f"{ratios[0]:.2f}")
        wide.append(f"{ratios[-1]:.2f}")
    sentence = (
        f"Trained to near their optimum, networks have errors that fall like {' and '.join(laws)}, "
        f"{' and '.join(dict.fromkeys(compared))} the paper's {' and '.join(papers)}."
    )
    sizes = (
        f"1/(1+cos²πx), n = {errors['width'].min()} to {errors['width'].max()}. The narrowest have "
        f"{' and '.join(narrow)} times the error of the limit of free knots, the widest {' and '.join(wide)}."
    )
    strokes = [stroke(unit.upper(), only(errors, unit=unit), "width", "test_rmse", look(unit).colour) for unit in UNITS]
    strokes += [stroke("limit", only(errors, unit=unit), "width", "limit", GREY, dashed=True) for unit in UNITS]
    return (Finding("Slopes at the optimum", sentence, sizes, Sketch("neurons n", "test RMSE", tuple(strokes))),)


STUDY = Study(
    "scaling/fig2",
    "L(n) and L(P) of MLP and GLU",
    "The error of the MLP falls like n^-2.13 (P^-2.18) and that of the GLU like n^-3.08 (P^-3.12) for n = 1 to 50.",
    run,
    findings=findings,
    position=2,
)
