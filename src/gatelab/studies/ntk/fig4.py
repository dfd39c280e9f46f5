"""Figure 4: diagonal dominance, angles between gradients, and how far eq. 5 and 8 are off, as laws in d/m.

Eq. 5 has K~ = (G/d) * K by elements for m >> d, of networks of m neurons. Eq. 8 has cos(phi~) = cos(phi) cos(theta)
for the angles between the gradients of two samples, phi~ with the gate, and theta between the samples. By the paper's
own eq. 3 and 4, K = m k1 + G k0 and K~ = (G/d) * [(m + d) k1 + G k0]: eq. 5 is exact for a ReLU network of m + d
neurons, and off by d/m to first order. Every eigenvalue is off alike: eq. 8 is off to second order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay, draw_panel
from gatelab.plotting.theme import style
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import NAMES, UNITS, WIDTH, samples

ROWS, TENTH, SIDE = 100, 10, 64  # samples of the heat maps, of each digit, and inputs: 8 by 8 pixels
NEURONS = 20_000  # in memory at the same time
DATA = ("Gaussian", "digits")
CLOSE = 0.01  # an equation holds where it is off by less
ERRORS = Facets(
    table="angles", x="width_over_d", y="expected", xlog=True, ylog=True, levels={"1 %": CLOSE},
    xlabel="width over inputs, m/d", ylabel="relative error of eq. 8", title="how far eq. 8 is off",
)  # fmt: skip
PAIRS = Facets(
    x="product", y="gated", hue="width", points=True, xlabel="cos φ cos θ", ylabel="cos φ~ of ReGLU",
    lines=(Overlay("product", "eq. 8 exactly", "solid", hue=False),), title="eq. 8 for Gaussian pairs",
)  # fmt: skip


# ---- kernels and angles


def cosines(K: Array) -> Array:
    """The kernel with ones on its diagonal: cosines of the angles between gradients."""
    root = np.sqrt(np.diag(K))
    return K / np.outer(root, root)


def pair_cosines(x: Array, kernels: Sequence[Array]) -> list[Array]:
    """cos(theta), cos(phi) and cos(phi~) of all pairs of samples, from the kernels of ReLU and ReGLU."""
    upper = np.triu_indices(len(x), 1)
    return [cosines(K)[upper] for K in (x @ x.T, *kernels)]


def expected_kernels(x: Array, width: int) -> list[Array]:
    return [kernel.numpy() for kernel in analytic(list(UNITS), x, width)]


def digits(seed: int) -> Array:
    """Ten images of each digit of scikit-learn's set, sorted by class, of mean square 1; pixels are not centered."""
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
    generator = np.random.default_rng(seed)
    rows = [generator.permutation(np.flatnonzero(labels == digit))[:TENTH] for digit in range(10)]
    x = images[np.concatenate(rows)].astype(float)
    return x / np.sqrt((x * x).mean())


def normalized_kernels(data: str, seed: int) -> dict[str, Array]:
    """The kernels of both units with ones on the diagonal."""
    x = {"digits": digits, "Gaussian": partial(samples, ROWS, SIDE)}[data](seed)
    return {unit: cosines(K) for unit, K in zip(UNITS, expected_kernels(x, WIDTH), strict=True)}


def off_diagonal(C: Array) -> Array:
    return C[~np.eye(len(C), dtype=bool)]


def drawn_kernels(x: Array, width: int, seed: int, *, networks: int = 1) -> tuple[Array, Array]:
    """Products of gradients of ReLU and ReGLU networks with the same gates, means over the networks.

    W, P ~ N(0, 1/d), V ~ N(0, 1/m), no biases, one output.
    """
    generator = np.random.default_rng([seed, width])
    (n, d), G, total = x.shape, x @ x.T, width * networks
    relu, reglu = np.zeros((n, n)), np.zeros((n, n))
    for first in range(0, total, NEURONS):  # a mean over networks is a sum over all their neurons
        neurons = min(total - first, NEURONS)
        W, P = generator.standard_normal((2, neurons, d)) / d**0.5
        V = generator.standard_normal(neurons) / width**0.5
        gate, line = x @ W.T, x @ P.T
        h, opened = np.maximum(gate, 0), V * (gate > 0)
        relu += h @ h.T + G * (opened @ opened.T)
        hidden, by_gate, by_line = h * line, opened * line, V * h
        reglu += hidden @ hidden.T + G * (by_gate @ by_gate.T + by_line @ by_line.T)
    return relu / networks, reglu / networks


# ---- the figure


def figure(tables: Tables) -> Figure:
    maps = {(data, unit): C for data in DATA for unit, C in normalized_kernels(data, 0).items()}
    low = min(float(C.min()) for C in maps.values())
    with style():
        drawing = Figure(figsize=(12.6, 8.4), layout="constrained")
        axes = drawing.subplots(2, 3, width_ratios=(1, 1, 1.15))
        image: Any = None
        for panel, ((data, unit), C) in zip(axes[:, :2].flat, maps.items(), strict=True):
            image = panel.imshow(C, vmin=low, vmax=1.0, cmap="viridis")
            panel.grid(visible=False)
            if data == "digits":  # lines between the classes
                for draw_line in (panel.axhline, panel.axvline):
                    for end in range(TENTH, ROWS, TENTH):
                        draw_line(end - 0.5, color="white", linewidth=0.4)
            mean = np.abs(off_diagonal(C)).mean()
            title = f"{NAMES[unit]}, {data}: mean off-diagonal {mean:.3f}"
            panel.set(xlabel="sample j", ylabel="sample i", title=title)
        label = "K_ij / sqrt(K_ii K_jj): cosine of the angle between gradients"
        drawing.colorbar(image, ax=axes[:, :2], label=label, location="bottom", shrink=0.6, aspect=40, pad=0.02)
        draw_panel(axes[0, 2], PAIRS, {"pairs": pairs(int(tables["angles"]["d"].iloc[0]))})
        draw_panel(axes[1, 2], ERRORS, tables)
        drawing.suptitle(f"Figure 4: normalized kernels (n = {ROWS}, d = {SIDE}, m = {WIDTH}) and gradient angles")
    return drawing


def pairs(d: int) -> pd.DataFrame:
    """cos(phi~) and cos(phi) cos(theta) of pairs of samples, at two widths."""
    x, parts = samples(80, d, 0), []
    for ratio in (1, 10):
        theta, phi, gated = pair_cosines(x, expected_kernels(x, ratio * d))
        parts.append(pd.DataFrame({"width": f"m = {ratio:g} d", "product": phi * theta, "gated": gated}))
    return pd.concat(parts)


STUDY = Study(
    "ntk/fig4",
    "Heat maps and gradient angles",
    "Gating enhances the diagonal dominance of the kernel and widens gradient angles: cos φ~ = cos φ cos θ.",
    position=4,
    quick={"n, d": [(40, 20)], "seed": range(3)},
    over="seed",
    mean="geometric",
    figure=figure,
)


@STUDY.measure("dominance", together="unit", grid={"data": DATA, "unit": UNITS, "seed": range(8)})
def dominance(data: str, unit: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """The mean |off-diagonal| over the diagonal, and how many times smaller it is with the gate."""
    off = {name: float(np.abs(off_diagonal(C)).mean()) for name, C in normalized_kernels(data, seed).items()}
    suppression = {"mlp": np.nan, "glu": off["mlp"] / off["glu"]}
    for name in unit:
        yield {"off_diagonal": off[name], "suppression": suppression[name]}


@STUDY.measure("angles", grid={"n, d": [(200, 100)], "width_over_d": [0.5, 1, 2, 5, 10, 20, 50], "seed": range(8)})
def angles(n: int, d: int, width_over_d: float, seed: int) -> dict[str, float]:
    """How far eq. 8 (rms over pairs) and eq. 5 (Frobenius norm) are off for expected kernels, relative to ReGLU's."""
    x = samples(n, d, seed)
    plain, gated = expected_kernels(x, round(width_over_d * d))
    theta, phi, gated_phi = pair_cosines(x, [plain, gated])
    eq8 = float(np.sqrt(np.mean((phi * theta - gated_phi) ** 2) / np.mean(gated_phi**2)))
    return {"expected": eq8, "eq5": float(np.linalg.norm(x @ x.T / d * plain - gated) / np.linalg.norm(gated))}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The sum over a row outside its diagonal."""
    dominance = tables["dominance"]
    return {**tables, "dominance": dominance.assign(row_sum=dominance["off_diagonal"] * (ROWS - 1))}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for data, of_data in tables["dominance"].groupby("data", sort=False):
        of_unit = of_data.set_index("unit").loc[list(UNITS)]
        support: dict[Any, Any] = dict(of_unit["off_diagonal"].rename(NAMES))
        support[f"sum of a row's off-diagonal entries over the diagonal at n = {ROWS}"] = of_unit["row_sum"].tolist()
        title = f"mean |off-diagonal| / diagonal of ReLU over that of ReGLU, {data}"
        ratio = interval_at(of_unit.loc["glu"], "suppression")
        yield Claim.of(title, ratio, 1.0, "above", place=f"figure 4, {data}", support=support)
    by_ratio = tables["angles"].set_index("width_over_d")
    for equation, column in (("eq. 5", "eq5"), ("eq. 8", "expected")):
        for ratio in (1, 10):
            yield Claim.of(
                f"relative error of {equation} at m = {ratio} d", interval_at(by_ratio.loc[ratio], column), CLOSE,
                "below", place=f"{equation}, m = {ratio:g} d",
                outside=f"the paper has m >> d, and here m = {ratio:g} d",
            )  # fmt: skip


# ---- both equations as laws in d/m

# The power of d/m by which an equation is off, from eq. 3 and 4, and its name.
EQUATIONS = {"eq. 5": (1, "eq. 5, Frobenius norm"), "eq. 8": (2, "eq. 8, rms over pairs")}


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


WIDTHS = Study(
    "ntk/width",
    "Eq. 5 and 8 as laws in d/m",
    "The kernel of ReGLU is that of ReLU times the Gram matrix, and cos φ~ = cos φ cos θ, for m much larger than d.",
    position=4.5,
    over="seed",
    figure=Facets(
        table="drawn", x="d_over_m", y="error", hue="equation", xlog=True, ylog=True, points=True,
        lines=(Overlay("law", "law", "dotted"),), xlabel="inputs over width, d/m", ylabel="relative error",
        title="Drawn networks",
    ),
)  # fmt: skip


@WIDTHS.measure(
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
    """How far eq. 5 and 8 are off for products of gradients, without a formula for the kernel.

    Eq. 5 is compared with the trace of K~, eq. 8 with the line through cos(phi~) over cos(phi) cos(theta): both are
    linear in K~, so that chance does not add to them as it adds to squares.
    """
    x, width = samples(n, d, seed), round(d / d_over_m)
    gram, (plain, gated) = x @ x.T / d, drawn_kernels(x, width, seed, networks=neurons // width)
    theta, phi, gated_phi = pair_cosines(x, [plain, gated])
    product, of_one = phi * theta, eq8_law(theta, d_over_m)
    square = np.sum(product**2)
    errors = {"eq. 5": 1 - np.trace(gram * plain) / np.trace(gated), "eq. 8": np.sum(product * gated_phi) / square - 1}
    laws = {"eq. 5": d_over_m / (1 + 2 * d_over_m), "eq. 8": np.sum(product**2 * of_one) / square}
    for name in equation:
        yield {"error": errors[name], "law": laws[name], "over_law": errors[name] / laws[name]}


@WIDTHS.columns
def width_columns(tables: Tables, rows: Tables) -> Tables:
    """Powers and coefficients of the errors, fitted seed by seed."""
    fits = []
    for name, own in rows["drawn"].groupby("equation", sort=False):
        predicted = EQUATIONS[str(name)][0]
        power, coefficient = measured_over_law(own, predicted)
        row = interval_columns("power", power) | interval_columns("coefficient", coefficient)
        fits.append({"equation": name, "predicted": predicted, **row})
    return {**tables, "powers": pd.DataFrame(fits)}


def measured_over_law(rows: Table, predicted: int) -> tuple[Interval, Interval]:
    """The power and coefficient of drawn networks: the predicted power plus that of measured over predicted."""
    positive = rows[rows["over_law"] > 0].groupby("seed")  # some are negative by chance
    slopes = [np.polyfit(np.log(own["d_over_m"]), np.log(own["over_law"]), 1)[0] for _, own in positive]
    by_seed = rows.assign(square=rows["law"] ** 2, product=rows["error"] * rows["law"]).groupby("seed")
    coefficients = by_seed["product"].sum() / by_seed["square"].sum()
    return t_interval(predicted + np.array(slopes)), t_interval(coefficients.to_numpy())


@WIDTHS.claims
def width_claims(tables: Tables) -> Iterator[Claim]:
    for row in tables["powers"].to_dict("records"):
        support = {"coefficient": interval_at(row, "coefficient"), "predicted power": row["predicted"]}
        what = f"power of d/m by which {EQUATIONS[row['equation']][1]} is off, drawn networks"
        more = {"place": f"{row['equation']}, against d/m", "reconstructed": True, "support": support}
        yield Claim.of(what, interval_at(row, "power"), float(row["predicted"]), "number", **more)
