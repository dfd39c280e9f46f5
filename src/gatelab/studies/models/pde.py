"""Units for differential equations, at equal parameters: designed before it was run.

Hypotheses: smooth gates without factors (tanh, sin, SiLU, GELU) differ by less than smooth gates differ from relu^3;
factors help (SwiGLU before SiLU); the GQU of the papers, with the gate relu instead of SiLU (SiLU-GQU), fails, since
automatic differentiation does not see the jumps of its slope at knots.

Viscosity and diffusion are ten times the usual ones: one hidden layer of this size does not resolve steeper fronts.
Networks have `PARAMETERS`, to the nearest neuron, and the features and conditions of `equations`. Every `RENEW` steps
new points are drawn, the same ones for all units of a seed. The error is the relative L2 error after the last step; a
training that fails counts with 1, that of the solution 0. All pairs of units are compared by Welch's test of
logarithms, with Holm's correction over the pairs of an equation.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import ttest_ind

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.optim import LevenbergMarquardt
from gatelab.plotting.facets import Facets, Table, Tables
from gatelab.statistics import holm
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, interval_at
from gatelab.studies.models.equations import POISSON, allen_cahn, burgers

UNITS = {
    "tanh": Unit("tanh"), "sin": Unit(torch.sin, name="sin"), "silu": Unit("silu"), "gelu": Unit("gelu"),
    "relu3": Unit("relu3"), "swiglu": Unit("silu", 1), "silu-gqu": Unit("silu", 2), "gqu": Unit("relu", 2),
}  # fmt: skip
NAMES = {"silu": "SiLU", "gelu": "GELU", "relu3": "ReLU³", "swiglu": "SwiGLU", "silu-gqu": "SiLU-GQU", "gqu": "GQU"}
EQUATIONS = {"Poisson": POISSON, "Burgers": burgers(0.1 / math.pi, 0.1), "Allen-Cahn": allen_cahn(1e-3, 0.03)}
PARAMETERS, POINTS, RENEW = 120, 300, 10
STUDY = Study(
    "models/pde",
    "Units for differential equations",
    "No paper asks which unit solves differential equations.",
    beyond=True,
    long=True,
    grid={"equation": list(EQUATIONS), "steps": [40], "unit": list(UNITS), "seed": range(5)},
    quick={"equation": ["Poisson"], "steps": [4], "seed": range(2)},
    over="seed",
    mean="geometric",
    figure=Facets(
        x="unit", y="error", col="equation", ylog=True, points=True, names=NAMES, ylabel="relative L2 error",
        title="Differential equations by one hidden layer of 120 parameters",
    ),
)  # fmt: skip


@STUDY.measure()
def errors(equation: str, steps: int, unit: str, seed: int) -> dict[str, float]:
    """The error of one network, its number of parameters and the CPU time of its training."""
    posed, kind = EQUATIONS[equation], UNITS[unit]
    per_neuron = kind.parameter_count(1, posed.inputs) - 1
    network = kind.network(round((PARAMETERS - 1) / per_neuron), posed.inputs, seed=seed, init="uniform")
    optimizer = LevenbergMarquardt(network)
    sobol = torch.quasirandom.SobolEngine(2, scramble=True, seed=seed)
    known, u = posed.reference()
    began = time.process_time()
    try:
        for first in range(0, steps, RENEW):
            points = posed.points(sobol.draw(POINTS, dtype=torch.float64).clamp_min(1e-9))
            for _ in range(min(RENEW, steps - first)):
                optimizer.step(lambda p=points: posed.residual(p, posed.values(network, p)))
        with torch.no_grad():
            error = float((posed.values(network, known) - u).norm() / u.norm())
    except GatelabError:  # residuals that are not finite
        error = 1.0
    count = sum(p.numel() for p in network.parameters())
    return {"error": error, "parameters": count, "cpu_s": time.process_time() - began}


def pairs(rows: Table) -> Iterator[dict[str, Any]]:
    """All pairs of units of an equation by Welch's test of logarithms, with Holm's p."""
    for equation, own in rows.groupby("equation", sort=False):
        logs = {unit: np.log(own[own["unit"] == unit]["error"]) for unit in own["unit"].unique()}
        both = list(itertools.combinations(logs, 2))
        p = [float(np.asarray(ttest_ind(logs[a], logs[b], equal_var=False))[1]) for a, b in both]
        for (a, b), value, corrected in zip(both, p, holm(p), strict=True):
            ratio = float(np.exp(logs[a].mean() - logs[b].mean()))
            yield {"equation": equation, "unit": a, "other": b, "ratio": ratio, "p": value, "p_holm": corrected}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    return {**tables, "pairs": pd.DataFrame(pairs(rows["pde"])), "seeds": rows["pde"]}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for equation, table in tables["pde"].groupby("equation", sort=False):
        ranked = table.sort_values("error").set_index("unit")
        best = str(ranked.index[0])
        compared = tables["pairs"].query("equation == @equation and (unit == @best or other == @best)")
        ties = set(compared[compared["p_holm"] > 0.05][["unit", "other"]].to_numpy().ravel())
        names = ", ".join(NAMES.get(u, u) for u in map(str, ranked.index) if u in ties and u != best)
        support = {NAMES.get(str(u), str(u)): interval_at(row, "error") for u, row in ranked.iterrows()}
        yield Claim.of(
            f"relative L2 error of the best unit, {equation}", interval_at(ranked.iloc[0], "error"),
            support={"unit": NAMES.get(best, best), "not significantly worse": names or "none", **support}
            | {"CPU seconds of a training": float(ranked["cpu_s"].mean()), "seeds": int(ranked["seeds"].max())},
        )  # fmt: skip
