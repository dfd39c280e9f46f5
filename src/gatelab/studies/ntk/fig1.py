"""Figure 1: the spectra of the kernels of gated and plain units, and where theory has their bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.ntk import Estimate, analytic, estimate
from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import NAMES, PAIRS, WIDTH, eigenvalues, samples, unit_ratio

UNITS = tuple(unit for pair in PAIRS for unit in pair)
PANELS = {unit: " and ".join(NAMES[name] for name in pair) for pair in PAIRS for unit in pair}
THEORY = PAIRS[0]  # the theory is for homogeneous gates: relu, not gelu and silu
BINS = 24  # per decade
QUANTITIES = {"lambda_max": "largest eigenvalue", "lambda_min": "smallest eigenvalue", "condition": "condition number"}

STUDY = Study(
    "ntk/fig1",
    "Spectra of kernels, gated and plain",
    "The kernel of ReGLU has a more contracted spectrum than that of ReLU: a smaller largest and a larger smallest "
    "eigenvalue; so have GEGLU and SwiGLU.",
    position=1,
    grid={"n, d, width": [(1000, 500, WIDTH)], "unit": UNITS, "seed": range(5)},
    quick={"n, d, width": [(120, 60, WIDTH)], "seed": range(3)},
    over="seed",
    mean="geometric",
    figure=Facets(
        table="densities", x="eigenvalue", y="density", hue="unit", col="pair", xlog=True, ylog=True, points=True,
        lines=(Overlay("law", "our law of the bulk", "solid"),), names=NAMES,
        xlabel="eigenvalue over width, λ/m", ylabel="share of eigenvalues per decade of λ",
        title="Figure 1: spectra of kernels, one draw of Gaussian data",
    ),
    cards={
        "Gates and one eigenvalue": Facets(
            table="spectra", x="rank", y="eigenvalue", hue="unit", where={"unit": list(PAIRS[0])}, xlog=True, ylog=True,
            names=NAMES, smooth=True, xlabel="rank of the eigenvalue", ylabel="eigenvalue / width",
        )
    },
)  # fmt: skip


@STUDY.measure("extremes", together="unit")
def extremes(n: int, d: int, width: int, unit: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """The extreme eigenvalues of every unit over the width; `bulk` is κ without the largest eigenvalue."""
    for kernel in analytic(list(unit), samples(n, d, seed), width):
        values = eigenvalues(kernel) / width
        ratios = {"condition": values[-1] / values[0], "bulk": values[-2] / values[0]}
        yield {"lambda_max": values[-1], "lambda_min": values[0], **ratios}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """Theoretical values; the changes by a gate on equal samples; and the spectra of the first seed."""
    n, d, width = (int(value) for value in tables["extremes"].iloc[0][["n", "d", "width"]])
    kernels = analytic(list(UNITS), samples(n, d, 0), width)
    spectra = {unit: eigenvalues(kernel) / width for unit, kernel in zip(UNITS, kernels, strict=True)}
    expected = {unit: estimate(unit, n, d, width) for unit in THEORY}
    theory = pd.DataFrame([{"unit": unit, **theory_row(spectra[unit], expected[unit])} for unit in THEORY])
    ranked = [pd.DataFrame({"unit": u, "rank": np.arange(n) + 1, "eigenvalue": spectra[u][::-1]}) for u in UNITS]
    # The factors by which a gate lowers λ_max, κ and κ of the bulk, and raises λ_min.
    contractions: list[dict[str, object]] = []
    for pair in PAIRS:
        row: dict[str, object] = {"plain": pair[0], "gated": pair[1], "n": n, "d": d, "width": width}
        for name in (*QUANTITIES, "bulk"):
            row |= interval_columns(name, unit_ratio(rows["extremes"], *larger_first(name, pair), name))
        contractions.append(row)
    return {
        "extremes": tables["extremes"].merge(theory, on="unit", how="left"),
        "contractions": pd.DataFrame(contractions).assign(seeds=tables["extremes"]["seeds"].iloc[0]),
        "spectra": pd.concat(ranked),
        "densities": densities(spectra, expected),
    }


def theory_row(values: Array, expected: Estimate) -> dict[str, float]:
    """Estimates over the width, and Kolmogorov's distance of our law of the bulk from a measured spectrum."""
    scales = zip(QUANTITIES, (WIDTH, WIDTH, 1), strict=True)
    row = {f"{q}_{who}": getattr(getattr(expected, who), q) / scale for q, scale in scales for who in ("paper", "ours")}
    x = np.quantile(values, np.linspace(0.01, 0.99, 99))
    law = expected.limit_spectrum.count(x * WIDTH) / expected.n
    return row | {"distance": float(np.abs(law - np.searchsorted(values, x) / expected.n).max())}


def larger_first(quantity: str, pair: tuple[str, str]) -> tuple[str, str]:
    """A plain and a gated unit, the one with the larger number by the paper first."""
    plain, gated = pair
    if quantity == "lambda_min":
        return gated, plain
    return pair


def densities(spectra: dict[str, Array], expected: dict[str, Estimate]) -> Table:
    """Shares of eigenvalues per decade, on one set of bins, and our law."""
    everything = np.concatenate(list(spectra.values()))
    low, high = np.log10(everything.min()) - 0.1, np.log10(everything.max()) + 0.1
    edges = np.logspace(low, high, max(8, round(BINS * (high - low))))
    x = np.geomspace(edges[0], edges[-1], 4 * len(edges) - 3)  # with the middles of bins, and more for the law
    parts = []
    for unit, values in spectra.items():
        counts = np.histogram(values, edges)[0]
        shares, law = np.full(len(x), np.nan), np.full(len(x), np.nan)
        shares[2::4] = np.where(counts > 0, counts, np.nan) / len(values) / np.log10(edges[1] / edges[0])
        if unit in expected:
            law = expected[unit].density(x * WIDTH) * WIDTH * x * np.log(10)
            law[law < np.nanmin(shares) / 2] = np.nan
        parts.append(pd.DataFrame({"pair": PANELS[unit], "unit": unit, "eigenvalue": x, "density": shares, "law": law}))
    return pd.concat(parts)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    by_unit = tables["extremes"].set_index("unit")
    for row in tables["contractions"].to_dict("records"):
        pair = row["plain"], row["gated"]
        for column, what in QUANTITIES.items():
            first, second = (NAMES[unit] for unit in larger_first(column, pair))
            support = {NAMES[unit]: interval_at(by_unit.loc[unit], column) for unit in pair}
            if column == "condition":
                support["without the largest eigenvalue"] = interval_at(row, "bulk")
            title = f"{what} of {first} over that of {second}"
            place = f"figure 1, {NAMES[row['gated']]}, {what}"
            yield Claim.of(title, interval_at(row, column), 1.0, "above", place=place, support=support)
    for unit in THEORY:
        row = by_unit.loc[unit]
        support = {"one eigenvalue": 1 / row["n"]}
        for column, symbol in (("lambda_max", "λ_max"), ("lambda_min", "λ_min")):
            support[f"our {symbol} over the measured"] = row[f"{column}_ours"] / row[column]
        what = f"largest difference of shares between our law of the bulk and one spectrum, {NAMES[unit]}"
        yield Claim(what, float(row["distance"]), support=support)
