"""Error against the number of features: every method, compared with the least error of any m features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.feedforward import activation
from gatelab.linearization import floor_curve, linearize
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables

SEED = 20_000  # of the held-out rows and inputs
# The distributions of w and x: number of inputs, scale of w, kind.
LAWS = {"d2": (2, 1.0, "normal"), "d16": (16, 0.25, "normal"), "sphere": (16, 1.0, "sphere")}
TITLES = {
    "d2": "d = 2, w, x ~ N(0, I)",
    "d16": "d = 16, w ~ N(0, I/16), x ~ N(0, I)",
    "sphere": "d = 16, |w| = |x| = 1",
}
# Polynomials by their degree, all others by their number of features.
POLYNOMIALS, RANDOM = "hermite minimax taylor", "maclaurin tensorsketch"
OPTIMAL = (1, 17, 40, 80, 152, 1000, 3893)
SIZES = {
    "d2": {"optimal": (1, 2, 4, 5, 8, 16, 32), "learned": (5, 8, 16), POLYNOMIALS: (1, 2, 4, 6, 8, 10)},
    "d16": {"optimal": OPTIMAL, "learned": (152,), POLYNOMIALS: (1, 2, 4)},
    "sphere": {"optimal": OPTIMAL, POLYNOMIALS: (1, 2, 4), RANDOM: (80, 272, 1040, 4112)},  # 16 are the linear part
}
QUICK = {
    "d2": {"optimal": (5, 16), POLYNOMIALS: (2, 4)},
    "d16": {"optimal": (17, 152), POLYNOMIALS: (2,)},
    "sphere": {"optimal": (17, 152), POLYNOMIALS: (2,), RANDOM: (80,)},
}
THEORY = ((2, 1.0, 16), (16, 1.0, 152), (16, 0.25, 152), (16, 0.25, 3893))  # d, scale of w, m
# By the number of inputs: steps of training, and the features up to which the floor is drawn.
STEPS, MOST = {2: 1000, 16: 200}, {2: 64, 16: 4112}


def figure(tables: Tables) -> Figure:
    """The errors of every method, and the floor at every m, which is drawn with the best maps."""
    facets = Facets(
        x="m", y="rmse", hue="method", col="law", xlog=True, ylog=True, points=True, names=TITLES,
        lines=(Overlay("floor", "the floor", "solid", hue=False),), xlabel="features m", ylabel="RMSE",
        title="GELU(w.x) as Phi(w).Psi(x): the errors of m features, and the least possible",
    )  # fmt: skip
    errors, floors = tables["errors"], tables["floors"].assign(method="optimal")
    errors = errors.assign(floor=errors["floor"].where(errors["method"] == "optimal"))
    return draw_figure(facets, {"errors": pd.concat([errors, floors])})


def points(sizes: Mapping[str, Mapping[str, Sequence[int]]]) -> list[tuple[str, str, int]]:
    """Distribution, method and size of every point."""
    return [
        (law, method, size)
        for law, of_law in sizes.items()
        for methods, of_methods in of_law.items()
        for size in of_methods
        for method in methods.split()
    ]


STUDY = Study(
    "linearize/floor",
    "What m features can do",
    "The paper has no lower bound for its maps; here every method is compared with the least possible error.",
    position=6,
    beyond=True,
    grid={"law, method, size": points(SIZES), "rows, draws": [(2000, 3)]},
    quick={"law, method, size": points(QUICK), "rows, draws": [(400, 2)]},
    figure=figure,
    cards={
        "A floor under every method": Facets(
            table="errors", x="m", y="rmse", hue="method", where={"law": "d16", "method": ["optimal", "hermite"]},
            xlog=True, ylog=True, points=True, names={"optimal": "best maps"}, xlabel="features m", ylabel="RMSE",
            lines=(Overlay("floor", "the floor", hue=False),),
        )
    },
)  # fmt: skip


def floors(law: str, ms: Sequence[int]) -> Array:
    """The least error that maps of m features can have."""
    d, scale, distribution = LAWS[law]
    return floor_curve("gelu", d, list(ms), scale, 1.0, w_distribution=distribution, x_distribution=distribution)


def held_out_rows(law: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """New rows w and inputs x, (count, d) each."""
    d, scale, distribution = LAWS[law]
    W, X = torch.randn(2, count, d, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    if distribution == "sphere":
        W, X = (torch.nn.functional.normalize(rows, dim=1) for rows in (W, X))
    return W * scale, X


@STUDY.measure("errors")
def errors(law: str, method: str, size: int, rows: int, draws: int) -> dict[str, float]:
    """The RMSE of a method over all pairs of new rows and inputs; of random features with the span of draws."""
    d, scale, distribution = LAWS[law]
    deviation = scale * (1 / math.sqrt(d) if distribution == "sphere" else math.sqrt(d))  # of w.x
    if d > 2:
        rows = min(rows, 1000)
    options: dict[str, list[dict[str, Any]]] = {
        "optimal": [{"m": size, "w_scale": scale, "w_distribution": distribution, "x_distribution": distribution}],
        "learned": [{"m": size, "w_scale": scale, "steps": STEPS[d]}],
        "hermite": [{"degree": size, "scale": deviation}],
        "minimax": [{"degree": size, "interval": 4 * deviation}],
        "taylor": [{"degree": size}],
    }
    seeds = [{"m": size, "seed": seed} for seed in range(draws)]
    W, X = held_out_rows(law, rows)
    exact = activation("gelu")(X @ W.T)
    found = []
    for one in options.get(method, seeds):
        maps = linearize("gelu", method, d=d, **one)
        found.append((maps.m, float((maps.product(W, X) - exact).square().mean().sqrt())))
    m, each = found[0][0], np.array([error for _, error in found])
    ends = {"rmse_low": each.min(), "rmse_high": each.max()}
    return {"m": m, "rmse": np.sqrt((each**2).mean()), **ends, "floor": floors(law, [m])[0], "rows": rows}


@STUDY.tables
def theory(request: Request) -> Tables:
    """The floor by the number of features, and at some common sizes."""
    parts = []
    for law, (d, *_) in LAWS.items():
        ms = np.unique(np.geomspace(1, MOST[d], 60).round().astype(int))
        parts.append(pd.DataFrame({"law": law, "m": ms, "floor": floors(law, ms.tolist())}))
    known = [{"d": d, "w_scale": s, "m": m, "floor": float(floor_curve("gelu", d, [m], s)[0])} for d, s, m in THEORY]
    return {"floors": pd.concat(parts), "theory": pd.DataFrame(known)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The floor, the error of the best maps over it, and those of all other methods."""
    for row in tables["theory"].to_dict("records"):
        yield Claim(f"the floor at d = {row['d']}, w ~ N(0, {row['w_scale']:g}^2 I), m = {row['m']}", row["floor"])
    table = tables["errors"].assign(over=lambda t: t["rmse"] / t["floor"], name=lambda t: t["method"] + ", " + t["law"])
    best = table[table["method"] == "optimal"]
    far = best.loc[(best["over"] - 1).abs().idxmax()]
    yield Claim(
        "the best maps reach the floor: RMSE over it, where it is farthest", far["over"],
        support={"m": int(far["m"]), "of": far["law"], "RMSE": far["rmse"], "floor": far["floor"]},
        note="Chance in the rows makes the difference.",
    )  # fmt: skip
    others = table[~table["method"].isin(["optimal", "learned"]) & (table["floor"] > 0)]
    for which, place in (("least", others["over"].idxmin()), ("largest", others["over"].idxmax())):
        what, row = f"polynomials and random features against the floor: the {which} RMSE over it", others.loc[place]
        yield Claim(what, row["over"], support={"method": row["name"], "m": int(row["m"])})
