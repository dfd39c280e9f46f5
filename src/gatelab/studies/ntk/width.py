"""Eq. 5 and 8 as laws in d/m: to which power of d/m each is off, and with which coefficient.

By the paper's own eq. 3 and 4, K = m k1 + G k0 and K~ = (G/d) * [(m + d) k1 + G k0], K of a ReLU network with m neurons
and K~ of a ReGLU: eq. 5 is exact for a ReLU network of m + d neurons, and off by (d/m) times K~ to first order. Every
eigenvalue is off alike, so that the condition number and the angles of eq. 8 are off to second order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay
from gatelab.statistics import t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.ntk.fig4 import UNITS, cosines, drawn_kernels
from gatelab.studies.ntk.gaussian import interval, interval_cells, samples

SMALL = 1 / 32  # d/m up to which the power and the coefficient are fitted
# What is off to which power of d/m by eq. 3 and 4.
POWERS = {"eq. 5": 1, "lambda_max": 1, "lambda_min": 1, "condition": 2, "eq. 8": 2}
NAMES = {
    "eq. 5": "eq. 5, Frobenius norm",
    "lambda_max": "λ_max by eq. 5",
    "lambda_min": "λ_min by eq. 5",
    "condition": "κ by eq. 5",
    "eq. 8": "eq. 8, rms over pairs",
}


def eq5_law(share: float) -> float:
    """How far eq. 5 is off on the diagonal, over K~, at d/m = `share`: x / (1 + 2 x).

    >>> eq5_law(1.0), round(eq5_law(0.001) / 0.001, 2)
    (0.3333333333333333, 1.0)
    """
    return share / (1 + 2 * share)


def eq8_law(cosine: Array, share: float) -> Array:
    """cos(phi~) / (cos(phi) cos(theta)) - 1 of pairs with this cos(theta), at d/m = `share`.

    With s = G k0 / (d k1), which is 0 for orthogonal samples and 1 for equal ones, it is
    x^2 (1 - s) / (1 + x (2 + s) + 2 x^2 s).

    >>> eq8_law(np.array([0.0, 1.0]), 1.0)
    array([0.33333333, 0.        ])
    """
    theta = np.arccos(np.clip(cosine, -1, 1))
    away = (np.pi - theta) * cosine
    s = away / (np.sin(theta) + away)
    return share**2 * (1 - s) / (1 + share * (2 + s) + 2 * share**2 * s)


STUDY = Study(
    "ntk/width",
    "Eq. 5 and 8 as laws in d/m",
    "The kernel of ReGLU is that of ReLU times the Gram matrix, and cos φ~ = cos φ cos θ, for m much larger than d.",
    position=4.5,
    over="seed",
    figure=(
        Facets(
            table="expected", x="d_over_m", y="error", hue="quantity", xlog=True, ylog=True,
            names={"lambda_max": "λ_max", "lambda_min": "λ_min", "condition": "κ"},
            lines=(Overlay("law", "law", "dotted", hue=False),), xlabel="inputs over width, d/m",
            ylabel="relative error", title="Expected kernels; the law is (d/m)^p / (1 + 2 d/m)",
        ),
        Facets(
            table="drawn", x="d_over_m", y="error", hue="equation", xlog=True, ylog=True, points=True,
            lines=(Overlay("law", "law", "dotted"),), xlabel="inputs over width, d/m", ylabel="relative error",
            title="Drawn networks",
        ),
    ),
)  # fmt: skip


@STUDY.measure(
    "expected",
    together="quantity",
    mean="geometric",
    grid={
        "n, d": [(200, 100)],
        "d_over_m": [2.0**-k for k in range(10, -1, -1)],
        "quantity": list(NAMES),
        "seed": range(8),
    },
    quick={"n, d": [(40, 20)], "seed": range(3)},
)
def expected_errors(n: int, d: int, d_over_m: float, quantity: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """How far eq. 5 and 8 are off for expected kernels; and eq. 5 with m + d neurons, which is exact."""
    x = samples(n, d, seed)
    gram, width = x @ x.T / d, round(d / d_over_m)
    plain, gated = (kernel.numpy() for kernel in analytic(list(UNITS), x, width))
    wider = analytic("mlp", x, width + d).numpy()
    by_eq5 = gram * plain
    ours, theirs = np.linalg.eigvalsh(gated), np.linalg.eigvalsh(by_eq5)
    upper = np.triu_indices(n, 1)
    theta, phi, gated_phi = (cosines(kernel)[upper] for kernel in (gram, plain, gated))
    errors = {
        "eq. 5": np.linalg.norm(by_eq5 - gated) / np.linalg.norm(gated),
        "lambda_max": 1 - theirs[-1] / ours[-1],
        "lambda_min": 1 - theirs[0] / ours[0],
        "condition": abs(theirs[-1] / theirs[0] / (ours[-1] / ours[0]) - 1),
        "eq. 8": np.sqrt(np.mean((phi * theta - gated_phi) ** 2) / np.mean(gated_phi**2)),
    }
    exact = float(np.abs(gram * wider - gated).max() / np.abs(gated).max())
    for name in quantity:
        yield {"error": float(errors[name]), "with_m_plus_d": max(exact, 1e-300)}


@STUDY.measure(
    "drawn",
    together="equation",
    grid={
        "n, d, neurons": [(60, 20, 200_000)],
        "d_over_m": [0.125, 0.25, 0.5, 1.0, 2.0],
        "equation": ["eq. 5", "eq. 8"],
        "seed": range(8),
    },
    quick={"n, d, neurons": [(30, 10, 20_000)], "seed": range(3)},
)
def drawn_errors(
    n: int, d: int, neurons: int, d_over_m: float, equation: Sequence[str], seed: int
) -> Iterator[dict[str, float]]:
    """The same of gradients multiplied out: no formula of a kernel enters, and no expectation but the mean of draws.

    Eq. 5 is held against the trace of K~, eq. 8 against the line through cos(phi~) over cos(phi) cos(theta): both are
    linear in what was drawn for K~, so that chance does not add to them as it adds to squares.
    """
    x = samples(n, d, seed)
    gram, width = x @ x.T / d, round(d / d_over_m)
    plain, gated = drawn_kernels(x, width, seed, networks=neurons // width)
    upper = np.triu_indices(n, 1)
    theta, phi, gated_phi = (cosines(kernel)[upper] for kernel in (gram, plain, gated))
    product = phi * theta
    values = {
        "eq. 5": (1 - np.trace(gram * plain) / np.trace(gated), eq5_law(d_over_m)),
        "eq. 8": (
            np.sum(product * gated_phi) / np.sum(product**2) - 1,
            np.sum(product**2 * eq8_law(theta, d_over_m)) / np.sum(product**2),
        ),
    }
    for name in equation:
        error, law = map(float, values[name])
        yield {"error": error, "law": law, "over_law": error / law}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The laws beside the errors; powers and coefficients, fitted seed by seed."""
    share = tables["expected"]["d_over_m"]
    power = tables["expected"]["quantity"].map(POWERS)
    fits = [fitted_power(name, of_name) for name, of_name in rows["expected"].groupby("quantity", sort=False)]
    fits += [measured_over_law(name, of_name) for name, of_name in rows["drawn"].groupby("equation", sort=False)]
    return {
        "expected": tables["expected"].assign(law=share**power / (1 + 2 * share)),
        "drawn": tables["drawn"],
        "powers": pd.DataFrame(fits),
    }


def fitted_power(name: str, rows: Table) -> dict[str, Any]:
    """p and c of errors c x^p / (1 + 2 x)^b at small x = d/m, fitted seed by seed."""
    small = rows[rows["d_over_m"] <= SMALL].pivot(index="d_over_m", columns="seed", values="error")
    x = small.index.to_numpy(float)
    design = np.stack([np.ones(len(x)), np.log(x), np.log1p(2 * x)], axis=1)
    logs = np.linalg.lstsq(design, np.log(small.to_numpy()), rcond=None)[0]
    row = {"quantity": name, "kernels": "expected kernels", "predicted": POWERS[name]}
    return row | interval_cells("power", t_interval(logs[1])) | interval_cells("coefficient", interval(np.exp(logs[0])))


def measured_over_law(name: str, rows: Table) -> dict[str, Any]:
    """The power and coefficient of drawn networks: what is left of the power is that of measured over predicted."""
    ratios = rows.pivot(index="d_over_m", columns="seed", values="over_law")
    x = np.log(ratios.index.to_numpy(float))
    slopes = []
    for of_seed in ratios.to_numpy().T:
        positive = of_seed > 0  # those that chance made negative count for nothing
        slopes.append(np.polyfit(x[positive], np.log(of_seed[positive]), 1)[0])
    by_seed = rows.assign(square=rows["law"] ** 2, product=rows["error"] * rows["law"]).groupby("seed")
    coefficient = t_interval((by_seed["product"].sum() / by_seed["square"].sum()).to_numpy())
    row = {"quantity": name, "kernels": "drawn networks", "predicted": POWERS[name]}
    power = t_interval(POWERS[name] + np.array(slopes))
    return row | interval_cells("power", power) | interval_cells("coefficient", coefficient)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Powers and coefficients, in drawn networks beside those that follow from the paper's lost eq. 3 and 4."""
    for row in tables["powers"].to_dict("records"):
        said: dict[str, Any] = {}
        if row["kernels"] == "drawn networks":
            place = f"{row['quantity']}, against d/m"
            said = {"paper": float(row["predicted"]), "rule": "number", "place": place, "reconstructed": True}
        yield Claim.of(
            f"power of d/m by which {NAMES[row['quantity']]} is off, {row['kernels']}",
            interval_at(row, "power"),
            support={"coefficient": interval_at(row, "coefficient"), "predicted power": row["predicted"]},
            **said,
        )
    yield Claim(
        "largest error of eq. 5 with a ReLU network of m + d neurons, over the largest entry",
        float(tables["expected"]["with_m_plus_d"].max()),
        note="K~ of m neurons is (G/d) * K of m + d neurons at every width.",
    )
