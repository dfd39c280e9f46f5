"""Figure 6: the Gated Quadratic Unit joins, with relu^2 and relu^3 beside it, and what order is attained."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gatelab.plotting import Curve, scaling_figure
from gatelab.problems import Problem
from gatelab.scaling import Scaling, Slope, slope
from gatelab.scaling.draw import AXES, curves, local_curves, orders
from gatelab.solve import construct, rmse
from gatelab.studies.measure import (
    best_errors,
    measured,
    paper_target,
    ratio_sentence,
    slope_claims,
    ticker,
    upper_half,
    with_reference,
)
from gatelab.studies.reference import PAPER_SLOPES, REFERENCE_RMSE, SOURCE
from gatelab.studies.study import Claim, Outcome, Request, Study
from gatelab.studies.verdicts import errors_claim, slope_claim
from gatelab.units import unit

UNITS = ("mlp", "relu2", "relu3", "glu", "gqu")
TAIL = (70, 100, 140, 200)
# Above the widths that are finished in their own parameters, which takes most of the time.
QUICK_WIDTHS = (16, 24)
QUICK_TAIL = (32,)
# One neuron more than a power of two: the construction then has cells of exactly halved size from one to the next.
BUILT = (17, 33, 65, 129, 257)


def run(request: Request) -> Outcome:
    target = paper_target(request)
    widths = QUICK_WIDTHS if request.quick else range(1, 51)
    tail = QUICK_TAIL if request.quick else TAIL
    everything = sorted({*widths, *tail})
    study = measured(request, UNITS, target, everything, ticker(request, len(UNITS) * len(everything)))
    main = Scaling(study.problem, tuple(p for p in study.points if p.width <= max(widths)))
    built = constructed(target)
    options = {
        "paper": PAPER_SLOPES,
        "reference": REFERENCE_RMSE,
        "widths": (min(widths), max(widths)),
        "flagged": True,
    }
    figure = scaling_figure(
        [(label, [*curves(study, axis, **options), _built_curve(built, axis)]) for axis, label in AXES.items()],
        title=f"Figure 6: the GQU, and relu², relu³ (slopes over n = {min(widths)}..{max(widths)})",
        local=local_curves(study),
        local_orders=orders(study),
    )
    span = (max(widths), max(tail))
    claims = [*slope_claims(main, "gqu"), errors_claim("gqu", REFERENCE_RMSE["gqu"], best_errors(main, "gqu"))]
    claims += [order_claim(study, name) for name in ("mlp", "glu")]
    claims += [tail_claim(study, span), built_claim(built)]
    tables = {
        "errors": with_reference(study),
        "slopes": _slopes(main, study, span),
        "construction": built,
    }
    return Outcome(figure, tables, tuple(claims), _notes(study, span))


def constructed(target: Problem) -> pd.DataFrame:
    """The GQU of the construction: its test error beside the predicted one."""
    rows = []
    for width in BUILT:
        made = construct("gqu", target, width)
        error = rmse(made.network, target.test.x, target.test.y)
        rows.append(
            {
                "width": width,
                "parameters": unit("gqu").parameter_count(width),
                "test_rmse": error,
                "predicted_rmse": made.predicted_rmse,
                "order": made.order,
            }
        )
    return pd.DataFrame(rows)


def _built_slope(built: pd.DataFrame, axis: str = "n") -> Slope:
    sizes = built["width"] if axis == "n" else built["parameters"]
    return slope(sizes.to_numpy(float), built["test_rmse"].to_numpy(float)[:, None])


def _built_curve(built: pd.DataFrame, axis: str) -> Curve:
    sizes = built["width" if axis == "n" else "parameters"].to_numpy(float)
    errors = built["test_rmse"].to_numpy(float)[:, None]
    note = f"slope {_built_slope(built, axis)}"
    return Curve("gqu constructed", sizes, errors, note=note, look="gqu", line=":")


def order_claim(study: Scaling, name: str) -> Claim:
    """The rate that the paper expects, beside the slope of the largest networks: an order is what a slope tends to."""
    span, order = upper_half(study), orders(study)[name]
    ours = study.slope(name, widths=span, flagged=True)
    what = f"order of the {name}, from the slope for n = {span[0]}..{span[1]}"
    return slope_claim(what, float(-order), ours, _approach(study, name, span))


def tail_claim(study: Scaling, span: tuple[int, int]) -> Claim:
    """The GQU beyond the paper's widths."""
    ours = study.slope("gqu", widths=span, flagged=True)
    what = f"slope of the gqu for n = {span[0]}..{span[1]}"
    return slope_claim(what, PAPER_SLOPES["gqu", "n"], ours, _approach(study, "gqu", span))


def _approach(study: Scaling, name: str, span: tuple[int, int]) -> str:
    """From which side the slope nears the order: the limit has it exactly, so the ratio to the limit decides."""
    order = orders(study)[name]
    near, far = (study.ratio(name, w) for w in span)
    way = f"approaches -{order} from above" if far > near else f"is steeper than -{order}"
    moved = "rises" if far > near else "falls"
    return (
        f"The ratio to the limit {moved} from {near:.2f} at n = {span[0]} to {far:.2f} at n = {span[1]}, "
        f"so the slope {way}."
    )


def built_claim(built: pd.DataFrame) -> Claim:
    tail = built.tail(3)
    ours = _built_slope(tail)
    last = built.iloc[-1]
    return slope_claim(
        f"slope of the constructed gqu, n = {tail['width'].iloc[0]}..{last['width']:.0f}",
        PAPER_SLOPES["gqu", "n"],
        ours,
        f"One factor equal to the gate makes the network the C1 cubic Hermite interpolant; at n = {last['width']:.0f} "
        f"its RMSE is {last['test_rmse']:.2e} where theory predicts {last['predicted_rmse']:.2e}: order 4 is attained "
        "without training.",
    )


def _slopes(main: Scaling, study: Scaling, span: tuple[int, int]) -> pd.DataFrame:
    first, second = main.slopes(flagged=True), study.slopes(widths=span, flagged=True)
    first.insert(0, "range", f"{min(p.width for p in main.points)}..{span[0]}")
    second.insert(0, "range", f"{span[0]}..{span[1]}")
    return pd.concat([first, second], ignore_index=True)


def at_equal_parameters(study: Scaling, cheap: str, dear: str) -> tuple[int, float]:
    """The greatest number of parameters that both reach, and how many times less the first one's error is there."""
    curve = {name: study.curve(name, against="P", flagged=True) for name in (cheap, dear)}
    P = min(sizes[-1] for sizes, _ in curve.values())
    logs = [np.interp(np.log(P), np.log(sizes), np.log(np.nanmin(errors, axis=1))) for sizes, errors in curve.values()]
    return int(P), float(np.exp(logs[1] - logs[0]))


def _notes(study: Scaling, span: tuple[int, int]) -> tuple[str, ...]:
    (p2, less2), (p3, less3) = (at_equal_parameters(study, *pair) for pair in (("relu2", "glu"), ("relu3", "gqu")))
    return (
        f"Crosses are RMSEs of {SOURCE}, which stops at width 35 for the GQU.",
        *(f"{ratio_sentence(study, name)}." for name in UNITS),
        f"Slopes over n = {span[0]}..{span[1]}: "
        + ", ".join(f"{name} {study.slope(name, widths=span, flagged=True)}" for name in UNITS)
        + ".",
        f"relu² and relu³ reach the errors of GLU and GQU with 3n+1 parameters: at P = {p2} relu² has {less2:.1f} "
        f"times less error than the GLU, at P = {p3} relu³ {less3:.1f} times less than the GQU.",
    )


STUDY = Study(
    "scaling/fig6",
    "The Gated Quadratic Unit",
    "The GQU's error falls like n^-3.55, steeper than the GLU's but short of the hoped-for -4.",
    run,
)
