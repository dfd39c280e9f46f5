"""Figure 5: MLP and GLU, with frozen and with trained gates, next to splines with the same number of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from gatelab.plotting.facets import Facets
from gatelab.scaling_laws import slope, spline_baseline
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, limits
from gatelab.studies.engine import Study, Tables
from gatelab.studies.scaling.error_curves import best_errors, fit_curves, paper_target, widths_of

SPLINES = {1: "linear spline", 2: "quadratic spline", 3: "cubic spline"}
COUNTERPART = {"mlp": "linear spline", "glu": "quadratic spline"}
SOLVERS = {"": "auto", ", frozen": "frozen"}  # of trained and of frozen gates, by the end of a curve's name
PLATEAU = 10  # neurons from which on all curves have left their first plateau
STUDY = Study(
    "scaling/fig5",
    "Networks beside splines",
    "MLP and GLU have errors and orders like those of linear and quadratic splines, and slightly smaller errors.",
    position=5,
    figure=Facets(
        table="errors", x="width", y="test_rmse", hue="curve", xlog=True, ylog=True, ylabel="test RMSE",
        xlabel="neurons n, or nodes of a spline", title="Figure 5: networks and splines on 1/(1+cos²πx)",
    ),
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The errors of both units with trained and with frozen gates, and of splines, at every width."""
    target = paper_target(request)
    widths = widths_of(request, 2)
    curves: dict[str, dict[int, float]] = {}
    for gates, solver in SOLVERS.items():
        study = fit_curves(request, list(COUNTERPART), target, widths, solver=solver)
        curves |= {f"{unit}{gates}": best_errors(study, unit) for unit in COUNTERPART}
    for degree, name in SPLINES.items():
        curves[name] = {nodes: spline_baseline(degree, target, nodes)[1] for nodes in widths}
    errors = pd.DataFrame(curves).rename_axis("width").reset_index()
    return {"errors": errors.melt("width", var_name="curve", value_name="test_rmse")[["curve", "width", "test_rmse"]]}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    errors = tables["errors"].pivot(index="width", columns="curve", values="test_rmse")
    widest = int(errors.index.max())
    best, upper, later = errors.loc[widest], errors.loc[widest // 2 :], errors.loc[PLATEAU:]
    rates, half = {curve: slope(upper.index, upper[curve]) for curve in errors}, f"n = {widest // 2} to {widest}"
    for unit, spline in COUNTERPART.items():
        trained, frozen = (f"{unit}{gates}" for gates in SOLVERS)
        moved, still = later[trained] / later[spline], later[frozen] / later[spline]
        yield Claim(
            f"error of the {unit} over that of the {spline}, median over n >= {PLATEAU}", float(moved.median()),
            paper=1.0, rule="below", place=f"figure 5, {unit.upper()}, error",
            support={"smallest and largest": limits(moved), "frozen": float(still.median())},
            note="The paper has comparable, slightly smaller errors.",
        )  # fmt: skip
        order, panel = {"mlp": (-2.0, "a"), "glu": (-3.0, "d")}[unit]
        what, place = f"rate of the {unit} with frozen gates, {half}", f"figure 4, ({panel}), rate"
        support = {f"error over that of trained gates, n = {widest}": float(best[frozen] / best[trained])}
        yield Claim.of(what, rates[frozen], order, "slope", place=place, support=support)
        ratios = [rates[curve].value / rates[spline].value for curve in (frozen, trained)]
        yield Claim(
            f"slope of the {unit} over that of the {spline}, {half}, farther of two",
            max(ratios, key=lambda ratio: abs(ratio - 1)), paper=1.0, rule="number",
            place=f"figure 5, {unit.upper()}, order",
            support={curve: rates[curve] for curve in (frozen, trained, spline)},
            note="The paper has similar orders. n nodes make n - 1 cells, which makes splines of few nodes steeper.",
        )  # fmt: skip
    times, note = best["glu"] / best["cubic spline"], "The cubic spline is not in the paper's figure."
    yield Claim(f"error of the trained glu over that of the cubic spline, n = {widest}", float(times), note=note)
