"""Figures 7 and 8: synthetic problems of many inputs; measured data under the true split and the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.scaling.problem_rows import ALL, REAL, ROWS, SPLIT, STAND_IN, SYNTHETIC, fit_rows
from gatelab.studies.scaling.row_claims import slope_claims
from gatelab.studies.scaling.row_slopes import medians, row_tables, unflagged

CAP = 1.5  # times the largest training error: where the panels of measured data end
CURVES = Facets(
    x="width", y="rmse", hue="unit", col="label", wrap=2, xlog=True, ylog=True, xlabel="neurons n", ylabel="RMSE",
    lines=(Overlay("training", "training errors", "dotted"),), marks=("marked", "left out of the slope"),
    title="Figure 7: synthetic problems of many inputs",
)  # fmt: skip
PROTOCOLS = replace(
    CURVES, row="label", col="protocol", wrap=0, marks=("marked", "beyond the axis"), title="Figure 8: measured data"
)


def curves(errors: Table, trained_on: str) -> Table:
    """Medians over seeds with the labels of the figures."""
    flagged = errors.assign(marked=~errors.index.isin(unflagged(errors).index))
    flags = flagged.groupby(["problem", "trained_on", "unit", "width"])["marked"].any().reset_index()
    labels = {name: f"{row.label}, {row.inputs} inputs" for name, row in ROWS.items()}
    made = only(medians(errors), trained_on=trained_on).merge(flags)
    return made.assign(label=made["problem"].map(labels), rmse=made["test_rmse"], training=made["train_rmse"])


def synthetic_figure(tables: Tables) -> Figure:
    return draw_figure(CURVES, {"curves": curves(tables["errors"], SPLIT)})


def measured_figure(tables: Tables) -> Figure:
    """Test and training errors of the true split; errors of the paper's protocol next to them."""
    split = curves(tables["errors"], SPLIT).assign(protocol="true split")
    cap = CAP * split.groupby("problem")["training"].transform("max")
    split = split.assign(rmse=np.minimum(split["rmse"], cap), marked=split["rmse"] > cap)
    paper = curves(tables["errors"], ALL).assign(protocol="paper's protocol", training=np.nan, marked=False)
    return draw_figure(PROTOCOLS, {"curves": pd.concat([split, paper])})


FIG7 = Study(
    "scaling/fig7",
    "Synthetic problems of many inputs",
    "On sin 4x sin 4y and on Friedman's problems the error of the GLU falls faster than that of the MLP.",
    long=True,
    position=7,
    figure=synthetic_figure,
)
FIG8 = Study(
    "scaling/fig8",
    "Measured data",
    "On airfoil self-noise the error of the GLU falls faster than that of the MLP, on California housing as slowly.",
    long=True,
    position=8,
    figure=measured_figure,
)


@FIG7.tables
def synthetic_tables(request: Request) -> Tables:
    rows = [row.quick() for row in SYNTHETIC] if request.quick else SYNTHETIC
    made = row_tables(fit_rows(request, rows), rows)
    return {name: made[name] for name in ("errors", "slopes")}


@FIG8.tables
def measured_tables(request: Request) -> Tables:
    """Measured data; a synthetic problem with noise stands in for them in a quick run."""
    rows = [STAND_IN.quick()] if request.quick else REAL
    return row_tables(fit_rows(request, rows), rows)


@FIG7.claims
def synthetic_claims(tables: Tables) -> Iterator[Claim]:
    return slope_claims(tables, "figure 7")


@FIG8.claims
def measured_claims(tables: Tables) -> Iterator[Claim]:
    return slope_claims(tables, "figure 8")
