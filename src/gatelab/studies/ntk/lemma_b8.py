"""Lemma B.8: the spectrum of the Wishart matrix squared by elements, where n grows as d^2.

Its formula is lost in the copy that was used. Restored: for Gaussian rows and 2n/d^2 -> gamma, the eigenvalues of
(G/d) * (G/d) fill the law of Marchenko and Pastur with the shape gamma, for the products x_i x_j are d(d+1)/2 features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.stats import kstest

from gatelab.arrays import Array
from gatelab.plotting.facets import Facets, Overlay
from gatelab.statistics import t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import samples
from gatelab.studies.ntk.thm31 import matrices
from gatelab.theory.random_matrix import mp_density, mp_edges, mp_mass_at_zero

SHAPES = (0.25, 0.5)
SHAPE_NAMES = {shape: f"2n/d² = {shape:g}" for shape in SHAPES}


def sizes(inputs: Sequence[int]) -> list[tuple[float, int, int]]:
    """The shape gamma, n = gamma d^2 / 2, and d.

    >>> sizes([20])
    [(0.25, 50, 20), (0.5, 100, 20)]
    """
    return [(shape, round(shape * d**2 / 2), d) for shape in SHAPES for d in inputs]


STUDY = Study(
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
            lines=(Overlay("law", "the lemma's law", "solid"), Overlay("law_half", "law of half the shape", "dotted")),
            title="one spectrum at the largest d",
        ),
        Facets(
            table="distances", x="d", y="distance", hue="shape", xlog=True, ylog=True, names=SHAPE_NAMES,
            lines=(Overlay("distance_half", "from the law of half the shape", "dotted"),),
            xlabel="input dimension d, n = γ d²/2", ylabel="Kolmogorov's distance from the law",
            title="Lemma B.8: distance from the law",
        ),
    ),
)  # fmt: skip


@STUDY.measure("distances")
def distances(shape: float, n: int, d: int, seed: int) -> dict[str, float]:
    """Distances to the lemma's law, and to the law of half the shape, which is wrong."""
    values = square_spectrum(n, d, seed)
    return {
        "distance": largest_difference(values, shape),
        "distance_half": largest_difference(values, shape / 2),
    }


def square_spectrum(n: int, d: int, seed: int) -> Array:
    """The eigenvalues of (G/d) * (G/d), in ascending order."""
    return np.asarray(np.linalg.eigvalsh(matrices(samples(n, d, seed))[1]), np.float64)


def mp_share_below(x: Array, gamma: float) -> Array:
    """The share of eigenvalues that the law of Marchenko and Pastur has at or below x.

    >>> mp_share_below(np.array([0.2, 9.0]), 0.25).round(6).tolist()
    [0.0, 1.0]
    """
    low, high = mp_edges(gamma)
    # Points that crowd at both ends, where the density has roots.
    at = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, 4001))
    density = mp_density(at, gamma)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(at))])
    return mp_mass_at_zero(gamma) * (x >= 0) + np.interp(x, at, below)


def largest_difference(values: Array, gamma: float) -> float:
    """Kolmogorov's distance of eigenvalues from the law: between 0 and 1."""
    return float(kstest(values, lambda x: mp_share_below(x, gamma), method="asymp").statistic)


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The limits of the distances, and the spectrum of the first seed at the largest d next to both laws."""
    limits, densities = [], []
    for shape, own in rows["distances"].groupby("shape"):
        inside = np.linspace(*mp_edges(shape), 4001)
        apart = np.abs(mp_share_below(inside, shape) - mp_share_below(inside, shape / 2)).max()
        row = {"shape": shape, "laws_apart": float(apart)}
        for name in ("distance", "distance_half"):
            row |= interval_columns(name, t_interval(limit(own.pivot(index="d", columns="seed", values=name))))
        limits.append(row)
        n, d = (int(size) for size in own.iloc[-1][["n", "d"]])
        counts, _ = np.histogram(square_spectrum(n, d, 0), np.linspace(0, 4, 41))
        x = np.arange(1, 400) / 100  # the middles of the bins, and points between them for the laws
        density = np.full(len(x), np.nan)
        density[4::10] = np.where(counts > 0, counts / n * 10, np.nan)
        part = pd.DataFrame({"shape": shape, "n": n, "d": d, "eigenvalue": x, "density": density})
        densities.append(part.assign(law=mp_density(x, shape), law_half=mp_density(x, shape / 2)))
    return {"distances": tables["distances"], "limits": pd.DataFrame(limits), "densities": pd.concat(densities)}


def limit(by_seed: Table) -> Array:
    """a of a + b/d + c/d^2, an entry per seed, of distances with a row per d and a column per seed."""
    d = by_seed.index.to_numpy(float)
    design = np.stack([np.ones(len(d)), 1 / d, 1 / d**2], axis=1)
    return np.linalg.lstsq(design, by_seed.to_numpy(float), rcond=None)[0][0]


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Whether the spectrum converges to the law, and not to that of half the shape."""
    for row in tables["limits"].to_dict("records"):
        own = tables["distances"][tables["distances"]["shape"] == row["shape"]]
        first, last = own.iloc[0], own.iloc[-1]
        law = f"Marchenko and Pastur's law, 2n/d² = {row['shape']:g}"
        yield Claim.of(
            f"limit of the distance of the spectrum of (G/d)*(G/d) from {law} (lemma B.8)",
            interval_at(row, "distance"),
            0.0,
            "number",
            place=f"lemma B.8, 2n/d² = {row['shape']:g}",
            reconstructed=True,
            opposite=row["laws_apart"],
            support={
                **{f"at d = {end['d']:g}, n = {end['n']:g}": interval_at(end, "distance") for end in (first, last)},
                "limit of the distance from the law of half the shape": interval_at(row, "distance_half"),
                "distance between the two laws": row["laws_apart"],
                "deviation of r⁴/d², which the lemma has at 1": float((8 / last["d"]) ** 0.5),
            },
        )
