"""Theorem 3.1: how the extreme eigenvalues and the condition number grow with n and with d, as measured exponents.

The theorem is for n and d in proportion. It is read three ways: n grows at fixed d, d grows at fixed n, and both grow.
Kernels are those of the limit of great width. The cells of table 1, extreme eigenvalues of three matrices, are lost in
the copy that was used and are restored from the proof, and so is lemma B.8: for Gaussian rows and 2n/d^2 -> gamma, the
eigenvalues of (G/d) * (G/d) fill the law of Marchenko and Pastur with the shape gamma, for the products x_i x_j are
d(d+1)/2 features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import cumulative_trapezoid
from scipy.stats import kstest

from gatelab.arrays import Array
from gatelab.ntk import analytic, estimate
from gatelab.plotting.facets import Facets, Overlay
from gatelab.scaling_laws import local_slopes, slope
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import limits
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import NAMES, UNITS, extremes, farthest_from_1, samples, shortest
from gatelab.theory.random_matrix import mp_density, mp_edges

MATRICES = ("Wishart matrix G/d", "square of G/d by elements", "matrix of rank one r r^T/d")
WHAT = {"lambda_max": "λ_max", "lambda_min": "λ_min", "condition": "κ"}
PROPOSITIONS = {"lambda_max": "B.6", "lambda_min": "B.9"}
WALKS = {"n": "as n grows at fixed d", "d": "as d grows at fixed n", "both": "as n and d grow in proportion"}
# Theorem 3.1: exponents of n and of d.
RELU, REGLU, CONSTANT = (1, 0), (1, -1), (0, 0)
THEOREM = {
    "mlp": {"lambda_max": RELU, "lambda_min": CONSTANT, "condition": RELU},
    "glu": {"lambda_max": REGLU, "lambda_min": CONSTANT, "condition": REGLU},
}
INPUTS = (50, 71, 100, 141, 200, 283, 400)

STUDY = Study(
    "ntk/thm31",
    "Exponents of the extreme eigenvalues",
    "λ_max grows like n for ReLU and like n/d for ReGLU, λ_min like 1 for both, so that κ is Θ(n) and Θ(n/d).",
    position=7,
    quick={
        "walk, n, d": [("n", n, 20) for n in (40, 80, 160)]
        + [("d", 80, d) for d in (10, 20, 40)]
        + [("both", 4 * d, d) for d in (10, 20, 40)],
        "n, d": [(160, 40)],
        "seed": range(3),
    },
    over="seed",
    figure=Facets(
        table="extremes", x="size", y="value", hue="unit", row="quantity", col="walk", xlog=True, ylog=True,
        lines=(Overlay("ours", "our estimate"), Overlay("theorem", "slope of Theorem 3.1", "dotted")),
        names=NAMES | {"lambda_max": "λ_max/m", "lambda_min": "λ_min/m", "condition": "κ"}
        | {walk: words.removeprefix("as ") for walk, words in WALKS.items()},
        xlabel="the size that grows: n, or d", ylabel="eigenvalue of K/m, or κ",
        title="Theorem 3.1: extreme eigenvalues and condition number, infinite width",
    ),
)  # fmt: skip


@STUDY.measure(
    "extremes",
    together="quantity",
    mean="geometric",
    grid={
        "walk, n, d": [("n", n, 100) for n in (200, 283, 400, 566, 800, 1131, 1600)]
        + [("d", 800, d) for d in INPUTS]
        + [("both", 4 * d, d) for d in INPUTS],
        "unit": UNITS,
        "seed": range(5),
        "quantity": list(WHAT),
    },
)
def measure(walk: str, n: int, d: int, unit: str, seed: int, quantity: Sequence[str]) -> Iterator[dict[str, float]]:
    largest, smallest = extremes(analytic(unit, samples(n, d, seed), None))
    values = {"lambda_max": largest, "lambda_min": smallest, "condition": largest / smallest}
    for name in quantity:
        yield {"value": values[name]}


def matrices(x: Array) -> tuple[Array, Array, Array]:
    """G/d, (G/d)*(G/d) and r r^T/d of the rows of x."""
    W, r = x @ x.T / x.shape[1], np.linalg.norm(x, axis=1)
    return W, W * W, np.outer(r, r) / x.shape[1]


def restored_limits(n: int, d: int) -> tuple[tuple[float, float], ...]:
    """Largest and smallest eigenvalue of each matrix, by the proof.

    >>> restored_limits(400, 100)
    ((9.0, 0.0), (5.0, 1.0), (400.0, 0.0))
    """
    gamma = n / d
    return ((1 + gamma**0.5) ** 2, max(0.0, 1 - gamma**0.5) ** 2), (1 + gamma, 1.0), (float(n), 0.0)


@STUDY.measure("table1", together="matrix", grid={"n, d": [(1600, 400)], "matrix": MATRICES, "seed": range(5)})
def table1(n: int, d: int, matrix: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """The extreme eigenvalues of the matrices of table 1, and their limits by the proof."""
    for ends, M in zip(restored_limits(n, d), matrices(samples(n, d, seed)), strict=True):
        values = np.linalg.eigvalsh(M)
        yield {"largest": values[-1], "smallest": values[0], "largest_limit": ends[0], "smallest_limit": ends[1]}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """Both estimates and the theorem's slope, through the last measured point; the exponents of each curve."""
    parts, exponents, expect = [], [], cache(estimate)
    by_seed = rows["extremes"].groupby(["walk", "unit", "quantity"], sort=False)
    for key, part in tables["extremes"].groupby(["walk", "unit", "quantity"], sort=False):
        walk, unit, quantity = key
        sizes = part[{"both": "d"}.get(walk, walk)].to_numpy(float)
        expected = [expect(unit, int(n), int(d)) for n, d in zip(part["n"], part["d"], strict=True)]
        of_n, of_d = THEOREM[unit][quantity]
        power = {"n": of_n, "d": of_d, "both": of_n + of_d}[walk]
        part = part.assign(
            size=sizes,
            ours=[getattr(e.ours, quantity) for e in expected],
            paper=[getattr(e.paper, quantity) for e in expected],
            theorem=part["value"].iloc[-1] * (sizes / sizes[-1]) ** power,
        )
        values = by_seed.get_group(key)["value"].to_numpy().reshape(len(sizes), -1)
        exponents.append(
            {"unit": unit, "walk": walk, "quantity": quantity, "theorem": power}
            # The interval is of the scatter about the line, to which a bend contributes.
            | interval_columns("exponent", slope(sizes, values, aggregate="median"))
            | {"last_three": local_slopes(sizes[-3:], part["value"].to_numpy()[-3:], window=3)[1]}
            | {who: slope(sizes, part[who].to_numpy()).value for who in ("ours", "paper")}
        )
        parts.append(part)
    return {"exponents": pd.DataFrame(exponents), "extremes": pd.concat(parts), "table1": tables["table1"]}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    extremes = tables["extremes"].reset_index(drop=True)
    curves = dict(iter(extremes.groupby(["walk", "unit", "quantity"])))
    for row in tables["exponents"].to_dict("records"):
        curve = curves[row["walk"], row["unit"], row["quantity"]]
        yield exponent_claim(row, curve.iloc[0], curve.iloc[-1])
    yield constants_claim(*(curves["both", unit, "lambda_max"].iloc[-1] for unit in UNITS))
    for unit, quantity in product(UNITS, PROPOSITIONS):
        yield estimate_claim(unit, quantity, extremes.query("unit == @unit and quantity == @quantity"))
    for row in tables["table1"].to_dict("records"):
        yield from cell_claims(row)


def exponent_claim(row: dict[str, Any], first: Table, last: Table) -> Claim:
    """The exponent of a quantity along a walk, next to that of the theorem."""
    name, what, words = NAMES[row["unit"]], WHAT[row["quantity"]], WALKS[row["walk"]]
    ends = first, last
    support: dict[str, Any] = {f"{what} at n = {end['n']}, d = {end['d']}": interval_at(end, "value") for end in ends}
    support |= {"over the last three sizes": row["last_three"], "our estimate": row["ours"]}
    support["the paper's estimate"] = row["paper"]
    if row["quantity"] != "lambda_max":
        support["r²/d of the shortest sample at both"] = [shortest(int(end["n"]), int(end["d"])) for end in ends]
    return Claim.of(
        f"exponent of {what} of {name} {words}", interval_at(row, "exponent"), float(row["theorem"]), "number",
        place=f"theorem 3.1, {what} of {name}, {words}", reconstructed=True, opposite=float(row["theorem"] == 0),
        outside="the theorem has n and d in proportion" * (row["walk"] != "both"), support=support,
    )  # fmt: skip


def constants_claim(plain: Table, gated: Table) -> Claim:
    """n/(2 pi) and n/(4 d) next to the largest eigenvalues at the largest size in proportion."""
    leading = pd.Series({"ReLU": plain["n"] / (2 * np.pi), "ReGLU": gated["n"] / (4 * gated["d"])})
    ratios: Table = pd.Series({"ReLU": plain["value"], "ReGLU": gated["value"]}) / leading
    return Claim(
        "λ_max/m over n/(2π) (ReLU) or n/(4d) (ReGLU), n and d in proportion, whichever is farther from 1",
        float(ratios[farthest_from_1(ratios)]), paper=1.0, rule="number", place="theorem 3.1, constants of λ_max",
        reconstructed=True, support={**ratios, "n": int(plain["n"]), "d": int(plain["d"])},
    )  # fmt: skip


def estimate_claim(unit: str, quantity: str, rows: Table) -> Claim:
    """Prop. B.6 and B.9 at every size of every walk: the ratio that is farthest from 1."""
    paper, ours = rows["paper"] / rows["value"], rows["ours"] / rows["value"]
    worst, proposition = farthest_from_1(paper), PROPOSITIONS[quantity]
    return Claim(
        f"the paper's estimate of {WHAT[quantity]} over the measured, {NAMES[unit]} (Prop. {proposition})",
        float(paper[worst]), paper="1, approximately", rule="close", place=f"prop. {proposition}, {NAMES[unit]}",
        reconstructed=True,
        support={
            "smallest and largest": limits(paper),
            "farthest from 1 at n and d": [int(size) for size in rows.loc[worst, ["n", "d"]]],
            "smallest and largest of our estimate": limits(ours),
        },
    )  # fmt: skip


def cell_claims(row: dict[str, Any]) -> Iterator[Claim]:
    """The two cells of a row of table 1; where the limit is 0, the interval is what rounding allows."""
    for word in ("largest", "smallest"):
        limit, measured, note = float(row[f"{word}_limit"]), interval_at(row, word), ""
        if limit == 0:
            note, rounding = "The interval is what rounding allows.", 1e-10 * row["n"]
            measured = Interval(measured.value, measured.value - rounding, measured.value + rounding)
        yield Claim.of(
            f"{word} eigenvalue of the {row['matrix']} (table 1)", measured, limit, "number", note=note,
            place=f"table 1, {row['matrix']}, {word}", reconstructed=True,
            support={"n": int(row["n"]), "d": int(row["d"])},
        )  # fmt: skip


# ---- lemma B.8: the square by elements where n grows as d^2

SHAPES = (0.25, 0.5)
SHAPE_NAMES = {shape: f"2n/d² = {shape:g}" for shape in SHAPES}


def sizes(inputs: Sequence[int]) -> list[tuple[float, int, int]]:
    """The shape gamma, n = gamma d^2 / 2, and d."""
    return [(shape, round(shape * d**2 / 2), d) for shape in SHAPES for d in inputs]


LEMMA = Study(
    "ntk/lemma-b8",
    "The Wishart matrix squared by elements",
    "Where n grows as d², the spectrum of G∘G/d² is that of Marchenko and Pastur with the shape 2n/d².",
    position=7.5,
    grid={"shape, n, d": sizes((10, 14, 20, 28, 40, 56)), "seed": range(8)},
    quick={"shape, n, d": sizes((8, 12, 18, 26)), "seed": range(3)},
    over="seed",
    mean="geometric",
    figure=(
        Facets(
            table="densities", x="eigenvalue", y="density", hue="shape", col="shape", points=True, names=SHAPE_NAMES,
            lines=(Overlay("law", "the lemma's law", "solid"),), title="one spectrum at the largest d",
        ),
        Facets(
            table="distances", x="d", y="distance", hue="shape", xlog=True, ylog=True, names=SHAPE_NAMES,
            xlabel="input dimension d, n = γ d²/2", ylabel="Kolmogorov's distance from the law",
            title="Lemma B.8: distance from the law",
        ),
    ),
)  # fmt: skip


@LEMMA.measure("distances")
def distances(shape: float, n: int, d: int, seed: int) -> dict[str, float]:
    return {"distance": largest_difference(square_spectrum(n, d, seed), shape)}


def square_spectrum(n: int, d: int, seed: int) -> Array:
    return np.asarray(np.linalg.eigvalsh(matrices(samples(n, d, seed))[1]), np.float64)


def mp_share_below(x: Array, gamma: float) -> Array:
    """The share of eigenvalues that the law of Marchenko and Pastur has at or below x.

    >>> mp_share_below(np.array([0.2, 9.0]), 0.25).round(6).tolist()
    [0.0, 1.0]
    """
    low, high = mp_edges(gamma)
    # Points that crowd at both ends, where the density has roots.
    at = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, 4001))
    below = cumulative_trapezoid(mp_density(at, gamma), at, initial=0)
    return max(0.0, 1 - 1 / gamma) * (x >= 0) + np.interp(x, at, below)


def largest_difference(values: Array, gamma: float) -> float:
    """Kolmogorov's distance of eigenvalues from the law."""
    return float(kstest(values, lambda x: mp_share_below(x, gamma), method="asymp").statistic)


@LEMMA.columns
def lemma_columns(tables: Tables, rows: Tables) -> Tables:
    """The limits of the distances, that of the law from the one of half the shape, and the spectrum of one seed."""
    limit_rows, densities = [], []
    for shape, own in rows["distances"].groupby("shape"):
        inside = np.linspace(*mp_edges(shape), 4001)
        apart = np.abs(mp_share_below(inside, shape) - mp_share_below(inside, shape / 2)).max()
        by_seed = own.pivot(index="d", columns="seed", values="distance")  # a + b/d + c/d^2 of each seed
        fits = np.polynomial.polynomial.polyfit(1 / by_seed.index.to_numpy(float), by_seed.to_numpy(float), 2)
        distance = t_interval(fits[0])
        limit_rows.append({"shape": shape, "laws_apart": float(apart), **interval_columns("distance", distance)})
        n, d = (int(size) for size in own.iloc[-1][["n", "d"]])
        counts, _ = np.histogram(square_spectrum(n, d, 0), np.linspace(0, 4, 41))
        x = np.arange(1, 400) / 100  # the middles of the bins, and points between them for the law
        density = np.full(len(x), np.nan)
        density[4::10] = np.where(counts > 0, counts / n * 10, np.nan)
        columns = {"eigenvalue": x, "density": density, "law": mp_density(x, shape)}
        densities.append(pd.DataFrame({"shape": shape, "n": n, "d": d, **columns}))
    return {"distances": tables["distances"], "limits": pd.DataFrame(limit_rows), "densities": pd.concat(densities)}


@LEMMA.claims
def lemma_claims(tables: Tables) -> Iterator[Claim]:
    for row in tables["limits"].to_dict("records"):
        own = tables["distances"][tables["distances"]["shape"] == row["shape"]]
        first, last = own.iloc[0], own.iloc[-1]
        law = f"Marchenko and Pastur's law, 2n/d² = {row['shape']:g}"
        support: dict[str, Any] = {
            f"at d = {end['d']:g}, n = {end['n']:g}": interval_at(end, "distance") for end in (first, last)
        }
        support["distance of the law from that of half the shape"] = row["laws_apart"]
        support["deviation of r⁴/d², which the lemma has at 1"] = float((8 / last["d"]) ** 0.5)
        yield Claim.of(
            f"limit of the distance of the spectrum of (G/d)*(G/d) from {law} (lemma B.8)",
            interval_at(row, "distance"), 0.0, "number", place=f"lemma B.8, 2n/d² = {row['shape']:g}",
            reconstructed=True, opposite=row["laws_apart"], support=support,
        )  # fmt: skip
