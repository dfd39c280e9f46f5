"""The law in P and D: noisy data, every size of network with every number of data. Not a figure of the paper.

An additive law E + A/P^a + B/D^b and the noise law are fitted to the fits of each unit. The figure has the errors with
both laws, and the ratio of measured to predicted errors as P approaches D.

The noise law: with noise of deviation s on the training targets the error on clean test data has two sources that add
up in squares, the approximation error of P parameters and the estimation error from D data,

    RMSE^2 = (A / P^a)^2 + (c s)^2 P / D,      c near 1 by theory for P far below D.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import least_squares

from gatelab.arrays import Array
from gatelab.data import problem
from gatelab.feedforward import unit as as_unit
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.scaling_laws import Law, fit_law, slope
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.scaling.error_curves import fit_curves
from gatelab.studies.scaling.table1 import unflagged

NEAR_D = 0.25  # parameters over data from which on a network counts as near to interpolation
BINS = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, np.inf)
FULL: Mapping[str, Any] = {
    "units": ("mlp", "glu", "swiglu"), "widths": (2, 3, 4, 6, 8, 12, 16), "data": (200, 400, 800, 1600, 3200, 6400),
    "draws": 2, "noise": 0.5, "tests": 4000, "options": {"starts": 2, "rounds": 8, "steps": None},
}  # fmt: skip
QUICK: Mapping[str, Any] = {
    "units": ("mlp", "glu"), "widths": (1, 2, 3), "data": (100, 200, 400),
    "draws": 1, "noise": 1.0, "tests": 400, "options": {"starts": 1, "rounds": 0, "steps": 5},
}  # fmt: skip
SHARED: Mapping[str, Any] = {"row": "unit", "xlog": True, "ylog": True, "points": True}
ERRORS = Facets(
    x="parameters", y="test_rmse", hue="D", **SHARED, xlabel="parameters P", ylabel="RMSE on clean test data",
    lines=(Overlay("additive law", "E + A/P^a + B/D^b", "solid"), Overlay("noise law", "noise law")),
    marks=("left_out", "left out: P ≥ D/2"), title="The law in P and D: noisy Friedman 1",
)  # fmt: skip
RATIOS = Facets(
    x="P_over_D", y="ratio", hue="law", **SHARED, xlabel="parameters over data, P/D", ylabel="measured over law",
    levels={"1": 1.0}, marks=("left_out", "left out: P ≥ D/2"), table="ratios", title="Measured over law",
)  # fmt: skip


def figure(tables: Tables) -> Figure:
    """Errors against P for each D with both laws, and measured over predicted against P/D."""
    fits = with_laws(tables)
    fits["D"] = [f"D = {D}" for D in fits["data"]]
    return draw_figure((ERRORS, RATIOS), {"errors": fits, "ratios": ratios(fits)})


STUDY = Study(
    "scaling/law",
    "The law in parameters and data",
    "Not in the paper, which varies the network alone: here data and their noise are varied too.",
    long=True,
    position=13,
    beyond=True,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """Every fit, the laws of each unit, and the ratios of measured to predicted errors."""
    errors = fits_table(request, **(QUICK if request.quick else FULL))
    laws = pd.DataFrame(unit_laws(fits) for _, fits in errors.groupby("unit", sort=False))
    return {"laws": laws, "ratios": ratios_table(with_laws({"laws": laws, "errors": errors})), "errors": errors}


def fits_table(
    request: Request, units: Any, widths: Any, data: Any, draws: int, noise: float, tests: int, options: Any
) -> Table:
    """One row per fit: noisy ones, and at the largest D those without noise.

    Friedman 1 is not standardized, which would give every draw a different noise. The training data are drawn again
    for each draw; test data are clean and the same for every D.
    """
    plans = [(D, draw, noise, fitted_widths(units, widths, D)) for D in data for draw in range(draws)]
    plans.append((max(data), 0, 0.0, widths))
    parts = []
    for D, draw, deviation, chosen in plans:
        target = problem("friedman1", n=D, n_test=tests, noise=deviation, seed=draw, standardize=False)
        fits = fit_curves(request, units, target, chosen, **options).table()
        parts.append(fits.assign(data=D, draw=draw, noise=deviation)[["data", "draw", "noise", *fits.columns]])
    return pd.concat(parts, ignore_index=True)


def fitted_widths(units: Sequence[str], widths: Sequence[int], data: int, inputs: int = 5) -> tuple[int, ...]:
    """The widths whose networks have no more parameters than data.

    >>> fitted_widths(["mlp", "glu"], (2, 8, 12, 16), 200)
    (2, 8, 12)
    """
    return tuple(w for w in widths if max(as_unit(u).parameter_count(w, inputs) for u in units) <= data)


# ---- the laws


def noise_parts(law: Mapping[str, Any], P: Any, D: Any, noise: float) -> tuple[Array, Array]:
    """The approximation error and the estimation error of P parameters on D data, by the noise law."""
    return law["noise_A"] * P ** -law["noise_a"], law["noise_c"] * (noise * np.sqrt(P / D))


def fit_noise_law(P: Array, D: Array, L: Array, noise: float) -> dict[str, float]:
    """The noise law fitted to log L by least squares."""

    def law(x: Array) -> dict[str, float]:
        return {"noise_A": float(np.exp(x[0])), "noise_a": float(x[1]), "noise_c": float(np.exp(x[2]))}

    starts = [np.array([np.log(L.max()) + a * np.log(P.min()), a, 0.0]) for a in (0.5, 1.0, 2.0)]
    ends = (least_squares(lambda x: np.log(np.hypot(*noise_parts(law(x), P, D, noise)) / L), start) for start in starts)
    best = min(ends, key=lambda end: end.cost)
    return law(best.x) | {"noise_log_rmse": float(np.sqrt(np.mean(best.fun**2)))}


def unit_laws(fits: Table) -> dict[str, Any]:
    """The five constants of the additive law with intervals, the noise law, and the slope without noise."""
    noisy, clean = fits[fits["noise"] > 0], unflagged(fits[fits["noise"] == 0])
    used = noisy[noisy["flag"] != "interpolation"]
    P, D, L = used[["parameters", "data", "test_rmse"]].to_numpy(float).T
    law, free = fit_law(P, D, L), slope(clean["parameters"], clean["test_rmse"])
    row: dict[str, Any] = {"unit": fits["unit"].iloc[0], "fits": law.points, "left_out": len(noisy) - len(used)}
    for name, ends in law.intervals._asdict().items():
        row |= interval_columns(name, Interval(getattr(law, name), *ends))
    row |= {"log_rmse": law.rmse, **fit_noise_law(P, D, L, float(noisy["noise"].iloc[0]))}
    return row | {"noise_free_slope_P": free.value, "noise_free_low": free.low, "noise_free_high": free.high}


def with_laws(tables: Tables) -> Table:
    """The noisy fits with the predictions of both laws; fits near interpolation are marked as left out."""
    parts = []
    for row in tables["laws"].to_dict("records"):
        fits = only(tables["errors"], unit=row["unit"]).query("noise > 0")
        P, D = fits["parameters"].to_numpy(float), fits["data"].to_numpy(float)
        additive = Law(*(row[name] for name in ("E", "A", "a", "B", "b"))).predict(P, D)
        approximation, estimation = noise_parts(row, P, D, fits["noise"].iloc[0])
        predicted = {"additive law": additive, "noise law": np.hypot(approximation, estimation)}
        marks = {"P_over_D": P / D, "left_out": fits["flag"] == "interpolation"}
        parts.append(fits.assign(**marks, **predicted, noise_share=1 / (1 + (approximation / estimation) ** 2)))
    return pd.concat(parts)


def ratios(fits: Table) -> Table:
    """Measured over predicted, one row per fit and law."""
    long = fits.melt(["unit", "P_over_D", "left_out", "test_rmse"], ["additive law", "noise law"], "law", "predicted")
    return long.assign(law=long["law"].str.removesuffix(" law"), ratio=long["test_rmse"] / long["predicted"])


def ratios_table(fits: Table) -> Table:
    """Measured error over each law's, by bins of P/D: geometric mean, least and greatest."""
    long = ratios(fits)
    place, unit = np.digitize(long["P_over_D"], BINS), pd.Categorical(long["unit"], long["unit"].unique())
    long = long.assign(unit=unit, P_over_D_from=np.take(BINS, place - 1), P_over_D_to=np.take(BINS, place))
    grouped = long.groupby(["unit", "P_over_D_from", "P_over_D_to", "law"], observed=True)["ratio"]
    return grouped.agg(fits="size", mean=lambda r: np.exp(np.log(r).mean()), min="min", max="max").reset_index()


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The exponents of P and D, and the constant of the estimation error."""
    fits = with_laws(tables)
    for row in tables["laws"].to_dict("records"):
        own = only(fits, unit=row["unit"])
        free = Interval(row["noise_free_slope_P"], row["noise_free_low"], row["noise_free_high"])
        # The share of estimation in the squared error by the noise law, at two opposite corners of the table.
        corners = own[~own["left_out"]].sort_values(["parameters", "data"], ascending=[True, False])
        few, many = (float(corners["noise_share"].iloc[end]) for end in (0, -1))
        shares = "share of noise in the squared error"
        ends = {f"{shares} at the least P and the most D": few, f"{shares} at the most P and the least D": many}
        for name, size, support in (
            ("a", "P", {"slope against P without noise": free, "noise law": row["noise_a"]}),
            ("b", "D", {"by noise alone": 0.5} | ends),
        ):
            what, value = f"exponent {name} of {size}, {row['unit']}", interval_at(row, name)
            if np.isfinite(value.value):
                yield Claim.of(what, value, support=support)
            else:  # a law without that term has none
                yield Claim(what, None, support=support)
        support = {
            "fits": row["fits"],
            "RMS of log(measured over law), noise law of 3 constants": row["noise_log_rmse"],
            "additive law of 5 constants": row["log_rmse"],
        }
        side = (own["P_over_D"] >= NEAR_D).map({False: "<", True: ">="})
        for law in ("additive law", "noise law"):
            off = np.exp(np.abs(np.log(own["test_rmse"] / own[law]))).groupby(side).max()
            support |= {f"largest factor off, {law}, P/D {part} {NEAR_D}": worst for part, worst in off.items()}
        yield Claim(f"estimation error over noise (P/D)^1/2, {row['unit']}", row["noise_c"], support=support)
