"""Figure 6: the Gated Quadratic Unit joins, with relu^2 and relu^3 beside it, and what order is attained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.feedforward import Unit, unit
from gatelab.linalg.splines import cell_data
from gatelab.plotting import GREY, Curve, look, scaling_figure
from gatelab.scaling_laws import Scaling, Slope, corrected_slope, limit, slope
from gatelab.scaling_laws.result import AXES, curves, local_curves, orders
from gatelab.solve import construct, rmse
from gatelab.solve.free_knots import Spline, density, optimise
from gatelab.solve.solution import UNLIMITED
from gatelab.solve.solvers.knots import KnotTask
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
from gatelab.studies.scaling.error_curves import (
    best_errors,
    by_newton,
    code_claims,
    code_medians,
    fit_curves,
    newton_claim,
    paper_target,
    range_slopes,
    ratio_sentence,
    slope_claims,
)
from gatelab.studies.scaling.printed import PAPER_SLOPES
from gatelab.studies.verdicts import errors_claim, near, reproduced_if, slope_claim, slope_ends
from gatelab.theory import constant

NAMES = {"relu2": "relu²", "relu3": "relu³", "glu": "GLU", "gqu": "GQU"}
UNITS = ("mlp", "relu2", "relu3", "glu", "gqu")
TAIL = (50, 70, 100, 140, 200)
EQUAL = {"glu": 120, "gqu": 84}  # as many parameters as 200 neurons of relu2, nearly as many as 200 of relu3
TAIL_POINTS = 100_000  # at width 200 the paper's 10 000 points would add a tenth to the test error
# Above the widths that are finished in their own parameters, which takes most of the time.
QUICK_WIDTHS = (16, 24)
# Units with smooth gates: beyond eight neurons what is left is the precision of the fit.
SMOOTH = ("swiglu", "geglu")
SMOOTH_WIDTHS, SMOOTH_SEEDS, SMOOTH_POINTS = (2, 3, 4, 5, 6, 8), 3, 1000
OCTAVES = ((2, 4), (4, 8))
# The limit's constant for C0 cubic splines.
C0_CUBIC = 1 / 5040
# A constant within this share of theory's is taken to be reached.
WITHIN = 0.1
QUICK_TAIL = (24, 32)
QUICK_METHOD = (16, 20, 24)
# One neuron more than a power of two: the construction then has cells of exactly halved size from one to the next.
BUILT = (17, 33, 65, 129, 257)
SIZES = {"n": "width", "P": "parameters"}  # the columns of the axes
# Where the paper speaks of the order of a unit.
ORDERS = {
    "mlp": "abstract, L(P) of the MLP",
    "glu": "abstract, L(P) of the GLU",
    "gqu": "appendix C, the slope that was hoped for",
}


def run(request: Request) -> Outcome:
    """All units at the paper's widths and at wider ones, and the GQU that is written down."""
    target = paper_target(request)
    if request.quick:
        widths, tail, tail_target = QUICK_WIDTHS, QUICK_TAIL, target
    else:
        widths, tail, tail_target = range(1, 51), TAIL, problem("paper-1d", n=TAIL_POINTS)
    effort: dict[str, Any] = {}
    smooth_widths, smooth_seeds = SMOOTH_WIDTHS, SMOOTH_SEEDS
    if request.quick:
        smooth_widths, smooth_seeds, effort = SMOOTH_WIDTHS[:3], 1, {"starts": 1, "rounds": 1}
    smooth_count = len(SMOOTH) * len(smooth_widths) * smooth_seeds
    further = len(QUICK_METHOD) if request.quick else len(EQUAL)
    tick = ticker(request, len(UNITS) * (len(widths) + len(tail)) + smooth_count + further)
    main = fit_curves(request, UNITS, target, widths, tick)
    newton = by_newton(request, ("gqu",), target, tick, QUICK_METHOD)
    wide = fit_curves(request, UNITS, tail_target, tail, tick)
    equal = [fit_curves(request, (name,), tail_target, (n,), tick) for name, n in EQUAL.items() if not request.quick]
    beyond = [p for part in (wide, *equal) for p in part.points if p.width > max(widths)]
    study = Scaling(main.problem, (*main.points, *beyond))
    built = constructed(target)
    free = without_real_roots(tail_target, tail)
    smooth_target = problem("paper-1d", n=SMOOTH_POINTS)
    smooth = fit_curves(request, SMOOTH, smooth_target, smooth_widths, tick, seeds=smooth_seeds, **effort)
    octaves = octave_slopes(smooth)
    options = {
        "paper": PAPER_SLOPES,
        "reference": {"gqu": code_medians()["gqu"]},
        "widths": (min(widths), max(widths)),
        "flagged": True,
    }
    figure = scaling_figure(
        [(label, [*curves(study, axis, **options), built_curve(built, axis)]) for axis, label in AXES.items()],
        title=f"Figure 6: the GQU, and relu², relu³ (slopes over n = {min(widths)}..{max(widths)})",
        local=local_curves(study),
        local_orders=orders(study),
    )
    ranges = range_slopes(newton, main, ("gqu",))
    claims = [*code_claims(ranges, "gqu", "figure 6"), newton_claim(newton, main, "gqu"), *slope_claims(main, "gqu")]
    claims.append(errors_claim("gqu", code_medians()["gqu"], best_errors(main, "gqu")))
    claims += [order_claim(wide, name) for name in UNITS]
    claims += free_claims(free, wide)
    claims += [octave_claim(octaves, smooth, name) for name in SMOOTH]
    claims += [built_claim(built), steeper_claim(main), *(doubling_claim(study, name) for name in ("mlp", "glu"))]
    tables = {"errors": study.table(), "slopes": slopes_table(main, wide), "construction": built}
    tables |= {"without-real-roots": free, "smooth-gates": smooth.table(), "smooth-slopes": octaves}
    tables |= {"newton": newton.table(), "ranges": ranges}
    return Outcome(figure, tables, tuple(claims), notes(study, wide))


def constructed(target: Problem) -> pd.DataFrame:
    """The GQU of the construction: its test error beside the predicted one."""
    rows = []
    for width in BUILT:
        construction = construct("gqu", target, width)
        rows.append(
            {
                "width": width,
                "parameters": unit("gqu").parameter_count(width),
                "test_rmse": rmse(construction.network, target.test.x, target.test.y),
                "predicted_rmse": construction.predicted_rmse,
                "order": construction.order,
            }
        )
    return pd.DataFrame(rows)


class AnyRoots(KnotTask):
    """Networks of relu(Gx + g) times any quadratic, the GQU2 of the paper's code: the roots need not be real.

    At its knot t a neuron adds (x - t) times any quadratic, which is all that a C0 cubic spline can have there.
    """

    @property
    def multiplicity(self) -> int:
        """Three derivatives may jump at a knot: all but the value."""
        return 3


def any_roots_spline(target: Problem, width: int) -> Spline:
    """The best GQU2 of so many neurons, as the C0 cubic spline with free knots that it is.

    n neurons make n cells: one of them is open from the left end on, and supplies any cubic.
    """
    assert target.interval is not None
    order = np.argsort(target.train.x[:, 0])
    x, y = target.train.x[order, 0], target.train.y[order, 0]
    generator = np.random.default_rng(0)
    task = AnyRoots(Unit("relu", 2), x, y, target.interval, 0, generator, starts=4, steps=UNLIMITED)
    start, _ = task.free_spline(density(x, y, target.interval, 3), width - 1, task.starts)
    assert start is not None
    return optimise(start, steps=200)[0]


def without_real_roots(target: Problem, widths: Sequence[int]) -> pd.DataFrame:
    """The best errors of the GQU2 by width; its constant is the error times n^4 over the norm in theory's limit."""
    order = np.argsort(target.test.x[:, 0])
    x, y = target.test.x[order, 0], target.test.y[order, 0]
    norm = limit("gqu", target, 1) / constant(4)
    rows = []
    for width in widths:
        spline = any_roots_spline(target, width)
        error = float(np.sqrt(np.mean(cell_data(x, y, spline.breaks, 3).residual(spline.z) ** 2)))
        rows.append(
            {
                "width": width,
                "parameters": 6 * width + 1,
                "train_rmse": spline.rmse,
                "test_rmse": error,
                "limit": norm * C0_CUBIC * width**-4.0,
                "constant": error * width**4 / norm,
            }
        )
    return pd.DataFrame(rows)


def free_claims(free: pd.DataFrame, wide: Scaling) -> list[Claim]:
    """The slope and the constant of the GQU2, and how much of the GQU's error its real roots cost."""
    ours = slope(free["width"].to_numpy(float), free["test_rmse"].to_numpy(float)[:, None])
    widest = free.iloc[-1]
    n, first = f"{widest['width']:.0f}", f"{free['width'].iloc[0]:.0f}"
    times = best_errors(wide, "gqu")[int(widest["width"])] / float(widest["test_rmse"])
    ratios = free["constant"] / C0_CUBIC
    told = "The search is not near enough to the limit at this width to tell the constraint from the solver."
    if abs(ratios.iloc[-1] - 1) <= WITHIN:
        told = (
            "Where roots are free the search comes that near to the limit: the rest is the constraint, not the solver."
        )
    return [
        slope_claim(
            f"slope of the GQU without the real-root constraint, n = {first}..{n}",
            None,
            ours,
            "A C0 cubic spline with free knots, by the search that the GQU has too; theory has -4 and 1/5040. The "
            f"ratio to that limit is {ratios.iloc[0]:.2f} at n = {first} and {ratios.iloc[-1]:.2f} at n = {n}.",
        ),
        Claim(
            f"constant of the GQU without the real-root constraint, n = {n}",
            "-",
            f"1/{1 / float(widest['constant']):.0f}",
            "new",
            f"Theory has 1/5040 in the limit, and 1/{1 / constant(4):.0f} for the GQU, {constant(4) / C0_CUBIC:.2f} "
            f"times as much. Measured at n = {n}, the GQU has {times:.2f} times the error. {told}",
        ),
    ]


def octave_slopes(smooth: Scaling) -> pd.DataFrame:
    """The slope from n to 2n of each unit, with its interval: a unit with an order would have it in every octave."""
    rows = []
    for name in SMOOTH:
        widths = {p.width for p in smooth.points if p.unit == name}
        for low, high in (octave for octave in OCTAVES if widths.issuperset(octave)):
            line = smooth.slope(name, widths=(low, high), flagged=True)
            ends = {"slope": line.value, "low": line.low, "high": line.high}
            rows.append({"unit": name, "from": low, "to": high, **ends})
    return pd.DataFrame(rows)


def octave_claim(octaves: pd.DataFrame, smooth: Scaling, name: str) -> Claim:
    """The local slopes of a unit with a smooth gate, which the paper leaves out."""
    rows = only(octaves, unit=name).to_dict("records")
    errors = best_errors(smooth, name)
    shown = ", ".join(f"{errors[w]:.1e} at {w}" for w in sorted(errors))
    known = [row for row in rows if np.isfinite(row["low"])]  # an octave of three widths has no interval
    against = [beside(row["low"], row["high"], -4.0, "steeper than", "flatter than") for row in known]
    told = ", ".join(f"{word} -4 from n = {row['from']}" for word, row in zip(against, known, strict=True))
    improving = sum(p.status == "budget" for p in smooth.points if p.unit == name)
    return Claim(
        f"local slopes of the {name}, by octave",
        "-",
        ", ".join(f"{row['slope']:.1f} from n = {row['from']} to {row['to']}" for row in rows),
        "new",
        "A smooth gate has no knots, and theory no order for it. Beside the -4 of cubic splines the slope is "
        f"{told or 'not known'}. Fitted by variable projection to {SMOOTH_POINTS} points, least test RMSE of the "
        f"seeds {shown}; {improving} of the fits ended by their steps, still improving.",
        ", ".join(f"[{row['low']:.1f}, {row['high']:.1f}] from n = {row['from']}" for row in known),
    )


def built_slope(built: pd.DataFrame, axis: str = "n") -> Slope:
    """The slope of the construction against n or P."""
    return slope(built[SIZES[axis]].to_numpy(float), built["test_rmse"].to_numpy(float)[:, None])


def built_curve(built: pd.DataFrame, axis: str) -> Curve:
    """The curve of the construction against n or P."""
    sizes = built[SIZES[axis]].to_numpy(float)
    errors = built["test_rmse"].to_numpy(float)[:, None]
    note = f"slope {built_slope(built, axis)}"
    return Curve("gqu constructed", sizes, errors, note=note, look="gqu", line=":")


def order_claim(wide: Scaling, name: str) -> Claim:
    """The order that theory promises, beside the slope of wide networks: an order is what a slope tends to."""
    span, order = width_span(wide), orders(wide)[name]
    ours = wide.slope(name, widths=span, flagged=True)
    because = f"n = {span[0]}..{span[1]}. {approach(wide, name, span)}"
    what = f"order of the {name}, from the slope of wide networks"
    return slope_claim(what, float(-order), ours, because, place=ORDERS.get(name, ""))


def steeper_claim(study: Scaling) -> Claim:
    """The abstract: the GQU has an even steeper L(P) than the GLU and the MLP."""
    names = ("gqu", "glu", "mlp")
    slopes = [study.slope(name, against="P", flagged=True) for name in names]
    low, high = width_span(study)
    return Claim(
        "slopes of gqu, glu and mlp against P",
        "the GQU's is steeper than the GLU's, and that than the MLP's",
        ", ".join(f"{s.value:.2f} ({name})" for s, name in zip(slopes, names, strict=True)),
        reproduced_if(slopes[0].value < slopes[1].value < slopes[2].value),
        f"The same target and n = {low}..{high} for all three.",
        ", ".join(filter(None, map(slope_ends, slopes))),
        place="abstract, GQU steeper than GLU and MLP",
    )


def doubling_claim(study: Scaling, name: str) -> Claim:
    """The introduction: twice the neurons quarter the MLP's error and divide the GLU's by eight."""
    errors = best_errors(study, name)
    wide = max(w for w in errors if w % 2 == 0 and w // 2 in errors)
    times, order = errors[wide // 2] / errors[wide], orders(study)[name]
    return Claim(
        f"what twice the neurons divide the {name}'s error by",
        f"{2**order}",
        f"{times:.2f}",
        reproduced_if(near(order, float(np.log2(times)))),
        f"From n = {wide // 2} to {wide}: {errors[wide // 2]:.2e} and {errors[wide]:.2e}. The ratio to the limit is "
        f"{study.ratio(name, wide // 2):.2f} and {study.ratio(name, wide):.2f}.",
        place=f"section 1, {name.upper()}, twice the neurons",
    )


def width_span(study: Scaling) -> tuple[int, int]:
    """The least and the greatest width."""
    widths = [p.width for p in study.points]
    return min(widths), max(widths)


def approach(study: Scaling, name: str, span: tuple[int, int]) -> str:
    """From which side the slope nears the order: the limit has it exactly, so the ratio to the limit decides."""
    order = orders(study)[name]
    first, last = (study.ratio(name, w) for w in span)
    ends = f"from {first:.2f} at n = {span[0]} to {last:.2f} at n = {span[1]}"
    if last > first:
        return f"The ratio to the limit rises {ends}, so the slope approaches -{order} from above."
    return f"The ratio to the limit falls {ends}, so the slope is steeper than -{order}."


def built_claim(built: pd.DataFrame) -> Claim:
    """The slope of the constructed GQU beside the one that the paper observed."""
    tail, widest = built.tail(3), built.iloc[-1]
    width = f"{widest['width']:.0f}"
    return slope_claim(
        f"slope of the constructed gqu, n = {tail['width'].iloc[0]}..{width}",
        PAPER_SLOPES["gqu", "n"],
        built_slope(tail),
        f"One factor equal to the gate makes the network the C1 cubic Hermite interpolant; at n = {width} its RMSE "
        f"is {widest['test_rmse']:.2e} where theory predicts {widest['predicted_rmse']:.2e}: order 4 is attained "
        "without training.",
        place="appendix C, steeper than observed",
    )


def slopes_table(main: Scaling, wide: Scaling) -> pd.DataFrame:
    """The slopes at the paper's widths and at wider ones, with their ranges."""
    parts = []
    for study in (main, wide):
        part = study.slopes(flagged=True)
        part.insert(0, "range", "..".join(map(str, width_span(study))))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def at_equal_parameters(errors: pd.DataFrame, cheap: str, dear: str) -> tuple[int, float]:
    """The greatest number of parameters that both reach, and how many times less the first one's error is there."""
    curves = [stroke(name, only(errors, unit=name), "parameters", "test_rmse", GREY) for name in (cheap, dear)]
    P = min(curve.x[-1] for curve in curves)
    logs = [np.interp(np.log(P), np.log(curve.x), np.log(curve.y)) for curve in curves]
    return int(P), float(np.exp(logs[1] - logs[0]))


def notes(study: Scaling, wide: Scaling) -> tuple[str, ...]:
    """Ratios to the limit, powers beside gated units at equal parameters, and slopes with a term for small n."""
    table = study.table()
    (p2, less2), (p3, less3) = (at_equal_parameters(table, *pair) for pair in (("relu2", "glu"), ("relu3", "gqu")))
    low, high = width_span(wide)
    sentences = [
        "Crosses are GQUs trained by the paper's code: the median of the logged seeds.",
        *(f"{ratio_sentence(study, name)}." for name in UNITS),
        f"In one dimension relu² and relu³ reach the errors of GLU and GQU with 3n+1 parameters: at P = {p2} relu² has "
        f"{less2:.1f} times less error than the GLU, at P = {p3} relu³ {less3:.1f} times less than the GQU.",
    ]
    if len({p.width for p in wide.points}) >= 4:
        corrected = ", ".join(f"{name} {corrected_slope(*wide.curve(name, flagged=True)):.2f}" for name in UNITS)
        sentences.append(
            f"With a term b/n in log error = a + s log n + b/n the slopes for n = {low}..{high} are {corrected}."
        )
    return tuple(sentences)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """That order 4 is reached, and that powers without gates do as well."""
    return order_finding(tables), parameters_finding(tables["errors"])


def order_finding(tables: Tables) -> Finding:
    """Order 4: by the construction, and how far training has come towards it."""
    built, errors = tables["construction"], only(tables["errors"], unit="gqu")
    wide = last(tables["slopes"], unit="gqu", against="n", aggregate="best")
    tail = built.tail(3)
    by_hand = built_slope(tail).value
    reached = "is not yet reached"
    if by_hand <= -3.95:
        reached = "is attained"
    near = beside(wide["low"], wide["high"], -4.0, "steeper than", "still short of")
    sentence = (
        f"Order 4 of the Gated Quadratic Unit, for which the paper measured {PAPER_SLOPES['gqu', 'n']}, {reached} by a "
        f"construction (slope {by_hand:.2f}). Trained networks have {wide['slope']:.2f}"
        f"{bracket(wide['low'], wide['high'])}, {near} -4."
    )
    sizes = (
        f"1/(1+cos²πx); constructed with n = {tail['width'].iloc[0]} to {tail['width'].iloc[-1]}, trained with n = "
        f"{wide['range'].replace('..', ' to ')}."
    )
    strokes = (
        stroke("trained", errors, "width", "test_rmse", look("gqu").colour),
        stroke("constructed", built, "width", "test_rmse", look("glu").colour, marks=True),
        stroke("limit", errors, "width", "limit", GREY, dashed=True),
    )
    return Finding("Order 4 of the GQU", sentence, sizes, Sketch("neurons n", "test RMSE", strokes))


def parameters_finding(errors: pd.DataFrame) -> Finding:
    """Plain units of higher powers beside the gated ones, at as many parameters."""
    parts, most = [], []
    for cheap, dear in (("relu2", "glu"), ("relu3", "gqu")):
        P, less = at_equal_parameters(errors, cheap, dear)
        word = "less" if less > 1 else "more"
        parts.append(f"{NAMES[cheap]} has {max(less, 1 / less):.2g} times {word} error than the {NAMES[dear]}")
        most.append(P)
    sentence = f"At {' and '.join(dict.fromkeys(map(str, most)))} parameters {' and '.join(parts)}."
    sizes = "1/(1+cos²πx), one input; the powers take 3n+1 parameters, GLU and GQU 5n+1 and 7n+1."
    strokes = tuple(
        stroke(NAMES[name], only(errors, unit=name), "parameters", "test_rmse", look(name).colour)
        for name in ("gqu", "relu3")
    )
    return Finding("Powers without gates", sentence, sizes, Sketch("parameters P", "test RMSE", strokes))


STUDY = Study(
    "scaling/fig6",
    "The Gated Quadratic Unit",
    "The GQU's error falls like n^-3.55, steeper than the GLU's but short of the hoped-for -4.",
    run,
    findings=findings,
    position=6,
)
