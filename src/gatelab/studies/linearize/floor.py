"""Error against the number of features: every method, next to the floor that no maps of m features can pass."""

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
from gatelab.plotting.facets import Facets, Overlay
from gatelab.plotting.theme import NEURON_COLORS, style
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables

SEED = 20_000  # of the rows and inputs that errors are measured on; no method has seen them
# Where w and x come from: inputs, scale of w, distribution; and where the axis of the figure ends.
LAWS: dict[str, tuple[int, float, str, float]] = {
    "d2": (2, 1.0, "normal", 3.0),
    "d16": (16, 0.25, "normal", 3.0),
    "sphere": (16, 1.0, "sphere", 1.0),
}
TITLES = {
    "d2": "d = 2, w, x ~ N(0, I)",
    "d16": "d = 16, w ~ N(0, I/16), x ~ N(0, I)",
    "sphere": "d = 16, |w| = |x| = 1",
}
# Polynomials by their degree, all others by their number of features.
POLYNOMIALS, RANDOM = "hermite minimax taylor", "maclaurin tensorsketch fourier"
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
METHODS = ("optimal", "learned", *POLYNOMIALS.split(), *RANDOM.split())


def figure(tables: Tables) -> Figure:
    """A panel for each distribution: the methods, and the floor under them."""
    with style():
        drawing = Figure(figsize=(11.6, 4.8), layout="constrained")
        entries: dict[str, Any] = {}
        for axes, (law, (*_, highest)) in zip(drawing.subplots(1, len(LAWS)), LAWS.items(), strict=True):
            floor, errors = (tables[name].query(f"law == '{law}'") for name in ("floors", "errors"))
            axes.fill_between(floor["m"], floor["floor"], color="#222222", alpha=0.07)
            entries["the floor"] = axes.plot(floor["m"], floor["floor"], color="#222222", linewidth=2)[0]
            for method, rows in errors.groupby("method", sort=False):
                k = METHODS.index(method)
                reach = [rows["rmse"] - rows["rmse_low"], rows["rmse_high"] - rows["rmse"]]
                entries[method] = axes.errorbar(
                    rows["m"], rows["rmse"], reach, fmt="PX<>hDsv"[k], color=NEURON_COLORS[k]
                )
            axes.set(xscale="log", yscale="log", xlabel="features m", title=TITLES[law])
            axes.set_ylim(0.6 * floor["floor"].min(), highest)
        drawing.axes[0].set_ylabel("RMSE")
        drawing.legend(entries.values(), entries, loc="outside lower center", ncols=len(entries))
        drawing.suptitle("GELU(w.x) as Phi(w).Psi(x): the errors of m features, and the least possible")
    return drawing


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
    "The paper has no bound to hold its maps against; here every method stands next to the least error possible.",
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
    d, scale, distribution, _ = LAWS[law]
    return floor_curve("gelu", d, list(ms), scale, 1.0, w_distribution=distribution, x_distribution=distribution)


def drawn(law: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """New rows w and inputs x, (count, d) each."""
    d, scale, distribution, _ = LAWS[law]
    W, X = torch.randn(2, count, d, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    if distribution == "sphere":
        W, X = (torch.nn.functional.normalize(rows, dim=1) for rows in (W, X))
    return W * scale, X


@STUDY.measure("errors")
def errors(law: str, method: str, size: int, rows: int, draws: int) -> dict[str, float]:
    """The RMSE of a method over all pairs of new rows and inputs; of random features with the span of draws."""
    d, scale, distribution, _ = LAWS[law]
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
    W, X = drawn(law, rows)
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
    """The floor by the number of features, and at some sizes that are asked for often."""
    parts = []
    for law, (d, *_) in LAWS.items():
        ms = np.unique(np.geomspace(1, MOST[d], 60).round().astype(int))
        parts.append(pd.DataFrame({"law": law, "m": ms, "floor": floors(law, ms.tolist())}))
    known = [{"d": d, "w_scale": s, "m": m, "floor": float(floor_curve("gelu", d, [m], s)[0])} for d, s, m in THEORY]
    return {"floors": pd.concat(parts), "theory": pd.DataFrame(known)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The floor, the best maps on it, and all other methods against it."""
    for row in tables["theory"].to_dict("records"):
        what = f"the floor at d = {row['d']}, w ~ N(0, {row['w_scale']:g}^2 I), m = {row['m']}"
        yield Claim(what, row["floor"])
    table = tables["errors"].assign(over=lambda t: t["rmse"] / t["floor"], name=lambda t: t["method"] + ", " + t["law"])
    best = table[table["method"] == "optimal"]
    far = best.loc[(best["over"] - 1).abs().idxmax()]
    yield Claim(
        "the best maps reach the floor: RMSE over it, where it is farthest", far["over"],
        support={"m": int(far["m"]), "of": far["law"], "RMSE": far["rmse"], "floor": far["floor"]},
        note="Chance in the rows makes the difference.",
    )  # fmt: skip
    others = table[~table["method"].isin(["optimal", "learned"]) & (table["floor"] > 0)]
    for which, row in (
        ("least", others.loc[others["over"].idxmin()]),
        ("largest", others.loc[others["over"].idxmax()]),
    ):
        yield Claim(
            f"polynomials and random features against the floor: the {which} RMSE over it", row["over"],
            support={"method": row["name"], "m": int(row["m"])},
        )  # fmt: skip
