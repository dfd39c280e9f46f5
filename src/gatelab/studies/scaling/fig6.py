"""Figure 6: errors of the Gated Quadratic Unit, of relu^2 and of relu^3, and the orders that they attain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.feedforward import unit as as_unit
from gatelab.plotting.facets import Facets, Overlay
from gatelab.scaling_laws import Scaling, corrected_slope, slope
from gatelab.scaling_laws.result import local_curves
from gatelab.solve import construct, rmse
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.scaling import error_curves
from gatelab.studies.scaling.error_curves import PAPER_SLOPES, best_errors, curves_of, fit_curves

UNITS = ("mlp", "relu2", "relu3", "glu", "gqu")
BUILT = (17, 33, 65, 129, 257)  # one more than a power of two: cells of exactly halved size from one to the next
# Widths and points. At width 200 the paper's 10 000 points would add a tenth to the test error. `equal` have the
# number of parameters of 200 neurons of relu2. Quick widths are above those that the solver takes longest for.
FULL = {
    "points": 10_000, "widths": range(1, 51), "tail": (50, 70, 100, 140, 200), "tail_points": 100_000,
    "equal": {"glu": 120, "gqu": 84},
}  # fmt: skip
QUICK = {"points": 1000, "widths": (16, 24), "tail": (24, 32), "tail_points": 1000, "equal": {}}
# Where the paper speaks of the order of a unit.
ORDERS = {"mlp": "abstract, L(P) of the MLP", "glu": "abstract, L(P) of the GLU"}
ORDERS |= {"gqu": "appendix C, the slope that was hoped for"}
CURVES = Facets(
    table="curves", x="width", y="rmse", hue="unit", xlog=True, ylog=True, paper="code", xlabel="neurons n",
    lines=(Overlay("limit", "free-knot limit"),), ylabel="test RMSE", title="Figure 6: the GQU, relu² and relu³",
)  # fmt: skip
LOCAL = replace(CURVES, x="local_width", y="local_slope", ylog=False, paper="", where={"unit": UNITS}, ylabel="slope")
LOCAL = replace(LOCAL, lines=(Overlay("order", "order"),))
POWERS = replace(CURVES, x="parameters", xlabel="parameters P", lines=(), paper="", title="")
STUDY = Study(
    "scaling/fig6",
    "The Gated Quadratic Unit",
    "The GQU's error falls like n^-3.55, steeper than the GLU's but short of the hoped-for -4.",
    position=6,
    figure=(
        CURVES,
        replace(CURVES, x="parameters", xlabel="parameters P", title="against parameters"),
        replace(LOCAL, title="slopes of neighboring widths"),
    ),
    cards={
        "Order 4 of the GQU": replace(CURVES, where={"unit": ["gqu", "gqu, constructed"]}, paper="", title=""),
        "Powers without gates": replace(POWERS, where={"unit": ["gqu", "relu3"]}),
    },
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """All units at the paper's widths and at wider ones, and the constructed GQU."""
    sizes = QUICK if request.quick else FULL
    target, fine = (problem("paper-1d", n=sizes[name]) for name in ("points", "tail_points"))
    main = fit_curves(request, UNITS, target, sizes["widths"])
    wide = fit_curves(request, UNITS, fine, sizes["tail"])
    equal = [fit_curves(request, (unit,), fine, (width,)) for unit, width in sizes["equal"].items()]
    beyond = [p for part in (wide, *equal) for p in part.points if p.width > max(sizes["widths"])]
    study = Scaling(main.problem, (*main.points, *beyond))
    built = pd.DataFrame(built_row(target, width) for width in BUILT)
    ranges = {"widths": main, "tail": wide}
    slopes = {f"{sizes[n][0]}..{sizes[n][-1]}": part.slopes(flagged=True) for n, part in ranges.items()}
    return {
        "errors": study.table(),
        "wide": wide.table(),
        "slopes": pd.concat(slopes, names=["range"]).droplevel(1).reset_index(),
        "construction": built,
        "ranges": error_curves.range_slopes(main, ("gqu",)),
        "curves": curves_table(study, built),
    }


def built_row(target: Problem, width: int) -> dict[str, float]:
    """The measured and the predicted error of the constructed GQU."""
    made, size = construct("gqu", target, width), as_unit("gqu").parameter_count(width)
    row = {"width": width, "parameters": size, "test_rmse": rmse(made.network, target.test.x, target.test.y)}
    return row | {"predicted_rmse": made.predicted_rmse, "order": made.order}


def curves_table(study: Scaling, built: Table) -> Table:
    """The errors for the figure, with limits, local slopes and the errors of the paper's code; the construction."""
    parts, columns = [], ["unit", "width", "parameters", "rmse", "limit"]
    for unit, middles, slopes in local_curves(study):
        own = only(study.table(), unit=unit).sort_values("width").rename(columns={"test_rmse": "rmse"})[columns]
        code = own["width"].map(error_curves.code_medians().get(unit, {})).astype(float)
        order = -(as_unit(unit).order or 0)
        parts.append(own.assign(code=code, local_width=middles, local_slope=slopes, order=order))
    written = built.rename(columns={"test_rmse": "rmse", "predicted_rmse": "limit"}).assign(unit="gqu, constructed")
    return pd.concat([*parts, written[columns]], ignore_index=True)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    first = tables["slopes"]["range"].iloc[0]
    widest = int(first.partition("..")[2])
    main = tables["errors"][tables["errors"]["width"] <= widest]
    yield from error_curves.training_claims({**tables, "errors": main}, "gqu", "figure 6")
    wide = curves_of(tables["wide"])
    yield from order_claims(wide)
    tail, widest = tables["construction"].tail(3), tables["construction"].iloc[-1]
    yield Claim.of(
        f"slope of the constructed gqu, n = {tail['width'].iloc[0]} to {tail['width'].iloc[-1]}",
        slope(tail["width"], tail["test_rmse"]), PAPER_SLOPES["gqu", "n"], "slope",
        place="appendix C, steeper than observed",
        support={"RMSE of the widest": widest["test_rmse"], "predicted": widest["predicted_rmse"]},
        note="One factor equal to the gate makes the network the C1 cubic Hermite interpolant.",
    )  # fmt: skip
    lines = only(tables["slopes"], range=first, against="P", aggregate="best").set_index("unit")
    slopes = {unit: interval_at(lines.loc[unit], "slope") for unit in ("gqu", "glu", "mlp")}
    ordered = float(slopes["gqu"].value < slopes["glu"].value < slopes["mlp"].value)
    yield Claim(
        "slopes of gqu, glu and mlp against P", ordered, rule="holds", support=slopes,
        paper="the GQU's is steeper than the GLU's, and that than the MLP's",
        place="abstract, GQU steeper than GLU and MLP",
    )  # fmt: skip
    study = curves_of(tables["errors"])
    for unit, factor in (("mlp", 4.0), ("glu", 8.0)):
        errors = best_errors(study, unit)
        n = max(w for w in errors if w % 2 == 0 and w // 2 in errors)
        support = {"from n": n // 2, "to n": n, "error over the limit there": study.ratio(unit, n)}
        what, place = "factor by which twice the neurons divide the {}'s error", "section 1, {}, twice the neurons"
        more = {"rule": "number", "place": place.format(unit.upper()), "support": support}
        yield Claim(what.format(unit), errors[n // 2] / errors[n], paper=factor, **more)
    for power, gated in (("relu2", "glu"), ("relu3", "gqu")):
        curves = [only(tables["errors"], unit=unit).sort_values("parameters") for unit in (power, gated)]
        P = min(curve["parameters"].max() for curve in curves)  # the most that both reach
        logs = [np.interp(np.log(P), np.log(curve["parameters"]), np.log(curve["test_rmse"])) for curve in curves]
        what, times = f"error of the {gated} over that of {power} at equal parameters", float(np.exp(logs[1] - logs[0]))
        yield Claim(what, times, support={"parameters": int(P)})


def order_claims(wide: Scaling) -> Iterator[Claim]:
    """The slopes of wide networks, whose limit is the order; the paper has orders of three units."""
    for unit in UNITS:
        sizes, errors = wide.curve(unit, flagged=True)
        order, ends = float(-(as_unit(unit).order or 0)), [int(sizes[0]), int(sizes[-1])]
        paper: dict[str, Any] = {}
        if unit in ORDERS:
            paper = {"paper": order, "rule": "slope", "place": ORDERS[unit]}
        support: dict[str, Any] = {"by theory": order}
        if len(sizes) >= 4:
            support["with a term b/n"] = corrected_slope(sizes, errors)
        support |= {"widths": ends, "error over the limit there": [wide.ratio(unit, width) for width in ends]}
        what = f"order of the {unit}, from the slope of wide networks"
        yield Claim.of(what, wide.slope(unit, flagged=True), **paper, support=support)
