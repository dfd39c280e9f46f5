"""Figure 4, and eq. 5 and 8: diagonal dominance, angles between gradients, and how far the two equations are off.

Eq. 5 has K~ = (G/d) * K by elements for m >> d, K of a ReLU network with m neurons and K~ of a ReGLU. By the paper's
own eq. 3 and 4, K = m k1 + G k0 and K~ = (G/d) * [(m + d) k1 + G k0]: eq. 5 is exact for a ReLU network of m + d
neurons, and off by (d/m) times K~ to first order. Every eigenvalue is off alike, so that the condition number and the
angles of eq. 8, cos(phi~) = cos(phi) cos(theta), are off to second order alone. phi is the angle between the gradients
of two samples in a ReLU network, phi~ in a ReGLU network, theta the angle between the samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import Panel, colour_bar, new_figure, style
from gatelab.plotting.facets import Facets, Overlay, draw_panel
from gatelab.plotting.kernels import draw_heat
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import GridStudy, Tables, interval_at
from gatelab.studies.ntk.gaussian import PAPER_NAMES, WIDTH, interval, samples

UNITS = ("mlp", "glu")
ROWS, SIDE = 100, 64  # samples and inputs of the heat maps: 8 by 8 pixels
NEURONS = 20_000  # whose gradients are in memory together
CLOSE = 0.01  # an equation holds where it is off by less
SMALL = 1 / 32  # d/m up to which the power and the coefficient are fitted
LARGE_M = "the paper has m >> d, and here m = {:g} d"
# What is off to which power of d/m by eq. 3 and 4.
POWERS = {"eq. 5": 1, "lambda_max": 1, "lambda_min": 1, "condition": 2, "eq. 8": 2}
NAMES = {
    "eq. 5": "eq. 5, Frobenius norm",
    "lambda_max": "λ_max by eq. 5",
    "lambda_min": "λ_min by eq. 5",
    "condition": "κ by eq. 5",
    "eq. 8": "eq. 8, rms over pairs",
}
ERRORS = Facets(
    table="angles",
    x="width_over_d",
    y="expected",
    xlog=True,
    ylog=True,
    lines=(
        Overlay("median", "expected kernels, median pair", "none"),
        Overlay("drawn", "single networks", "dotted"),
        Overlay("orthogonal", "d²/(m(m+2d))"),
    ),
    levels={"1 %": CLOSE},
    xlabel="width over inputs, m/d",
    ylabel="relative error of eq. 8",
    title="how far eq. 8 is off",
)


def cosines(K: Array) -> Array:
    """The kernel with ones on its diagonal: cosines of the angles between gradients."""
    root = np.sqrt(np.diag(K))
    return K / np.outer(root, root)


def digits(seed: int) -> tuple[Array, list[int]]:
    """Ten images of each digit of scikit-learn's set, in the order of their classes, of mean square 1; where each ends.

    Pixels are not centered, as images are mostly given to networks: all point into one orthant.
    """
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
    generator = np.random.default_rng(seed)
    count = ROWS // 10
    rows = np.concatenate([generator.permutation(np.flatnonzero(labels == k))[:count] for k in range(10)])
    x = images[rows].astype(float)
    return x / np.sqrt((x * x).mean()), [count * (k + 1) for k in range(10)]


def normalised_kernels(data: str, seed: int) -> tuple[dict[str, Array], list[int]]:
    """The normalised kernels of both units, and the rows where classes end."""
    x, groups = digits(seed) if data == "digits" else (samples(ROWS, SIDE, seed), [])
    kernels = analytic(list(UNITS), x, WIDTH)
    return {unit: cosines(kernel.numpy()) for unit, kernel in zip(UNITS, kernels, strict=True)}, groups


def off_diagonal(C: Array) -> Array:
    """The entries of a square matrix beside its diagonal."""
    return C[~np.eye(len(C), dtype=bool)]


def drawn_kernels(x: Array, width: int, seed: int, *, networks: int = 1) -> tuple[Array, Array]:
    """The kernels of a ReLU and a ReGLU network with the same gates: gradients multiplied out, no expectation.

    W, P ~ N(0, 1/d), V ~ N(0, 1/m), no biases, one output. The kernels are means over the networks.
    """
    generator = np.random.default_rng([seed, width])
    (n, d), G = x.shape, x @ x.T
    relu, reglu = np.zeros((n, n)), np.zeros((n, n))
    left = width * networks
    while left > 0:  # a mean over networks is a sum over all their neurons
        neurons = min(left, NEURONS)
        W, P = generator.standard_normal((2, neurons, d)) / d**0.5
        V = generator.standard_normal(neurons) / width**0.5
        gate, line = x @ W.T, x @ P.T
        h, opened = np.maximum(gate, 0), V * (gate > 0)
        relu += h @ h.T + G * (opened @ opened.T)
        hidden, by_gate, by_line = h * line, opened * line, V * h
        reglu += hidden @ hidden.T + G * (by_gate @ by_gate.T + by_line @ by_line.T)
        left -= neurons
    return relu / networks, reglu / networks


def figure(tables: Tables) -> Figure:
    """Heat maps of both units on both kinds of data, and eq. 8 beside them."""
    kernels = {data: normalised_kernels(data, 0) for data in ("Gaussian", "digits")}
    low = min(float(C.min()) for maps, _ in kernels.values() for C in maps.values())
    with style():
        drawing = new_figure(10.6, 7.4)
        grid = drawing.add_gridspec(2, 3, width_ratios=(1, 1, 1.05))
        panels: list[Panel] = []
        marks: list[Any] = []
        for row, (data, (maps, groups)) in enumerate(kernels.items()):
            for column, (unit, C) in enumerate(maps.items()):
                panels.append(Panel(drawing.add_subplot(grid[row, column])))
                mean = np.abs(off_diagonal(C)).mean()
                title = f"{PAPER_NAMES[unit]}, {data}: mean off-diagonal {mean:.3f}"
                marks.append(draw_heat(panels[-1], C, title, low=low, high=1.0, groups=groups))
        label = "K_ij / sqrt(K_ii K_jj): cosine of the angle between gradients"
        where: dict[str, Any] = {"location": "bottom", "shrink": 0.6, "aspect": 40, "pad": 0.02}
        colour_bar(marks[-1], panels, label=label, **where)
        draw_panel(drawing.add_subplot(grid[0, 2]), PAIRS, {"pairs": pairs(int(tables["angles"]["d"].iloc[0]))})
        draw_panel(drawing.add_subplot(grid[1, 2]), ERRORS, tables)
        drawing.suptitle(f"Figure 4: normalised kernels (n = {ROWS}, d = {SIDE}, m = {WIDTH}) and gradient angles")
    return drawing


PAIRS = Facets(
    x="product", y="gated", hue="width", points=True, xlabel="cos φ cos θ", ylabel="cos φ~ of ReGLU",
    lines=(Overlay("product", "eq. 8 exactly", "solid", hue=False),), title="eq. 8 for Gaussian pairs",
)  # fmt: skip


def pairs(d: int) -> pd.DataFrame:
    """cos(phi~) and cos(phi) cos(theta) of pairs of samples, at two widths."""
    x = samples(80, d, 0)
    upper = np.triu_indices(len(x), 1)
    theta = cosines(x @ x.T)[upper]
    parts = []
    for ratio in (1, 10):
        phi, gated = (cosines(k.numpy())[upper] for k in analytic(list(UNITS), x, round(ratio * d)))
        parts.append(pd.DataFrame({"width": f"m = {ratio:g} d", "product": phi * theta, "gated": gated}))
    return pd.concat(parts)


STUDY = GridStudy(
    "ntk/fig4",
    "Heat maps and gradient angles",
    "Gating enhances the diagonal dominance of the kernel and widens gradient angles: cos φ~ = cos φ cos θ.",
    position=4,
    quick={"n, d": [(40, 20)], "seed": range(3)},
    over="seed",
    mean="geometric",
    figure=figure,
)


@STUDY.measure(
    "dominance", together="unit", grid={"data": ["Gaussian", "digits"], "unit": list(UNITS), "seed": range(8)}
)
def dominance(data: str, unit: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """The mean |off-diagonal| over the diagonal, and of the gated unit how many times less it is."""
    maps, _ = normalised_kernels(data, seed)
    off = {name: float(np.abs(off_diagonal(C)).mean()) for name, C in maps.items()}
    for name in unit:
        yield {"off_diagonal": off[name], "suppression": off["mlp"] / off["glu"] if name == "glu" else np.nan}


@STUDY.measure("angles", grid={"n, d": [(200, 100)], "width_over_d": [0.5, 1, 2, 5, 10, 20, 50], "seed": range(8)})
def angles(n: int, d: int, width_over_d: float, seed: int) -> dict[str, float]:
    """How far eq. 8 is off, relative to cos(phi~), for expected kernels and for a single network; and eq. 5."""
    x = samples(n, d, seed)
    upper = np.triu_indices(n, 1)
    theta = cosines(x @ x.T)[upper]
    width = round(width_over_d * d)
    plain, gated = (k.numpy() for k in analytic(list(UNITS), x, width))
    expected = [cosines(k)[upper] for k in (plain, gated)]
    drawn = [cosines(k)[upper] for k in drawn_kernels(x, width, seed)]
    errors = {
        name: float(np.sqrt(np.mean((phi * theta - gated_phi) ** 2) / np.mean(gated_phi**2)))
        for name, (phi, gated_phi) in (("expected", expected), ("drawn", drawn))
    }
    middle = float(np.median(expected[1] / (expected[0] * theta)) - 1)
    return {
        **errors,
        "median": middle,
        "eq5": float(np.linalg.norm(plain * (x @ x.T) / d - gated) / np.linalg.norm(gated)),
    }


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The sum over a row beside its diagonal; the error of eq. 8 for orthogonal samples, d^2 / (m (m + 2 d))."""
    ratio = tables["angles"]["width_over_d"]
    return {
        "dominance": tables["dominance"].assign(row_sum=tables["dominance"]["off_diagonal"] * (ROWS - 1)),
        "angles": tables["angles"].assign(
            width=(ratio * tables["angles"]["d"]).round(), orthogonal=1 / (ratio * (ratio + 2))
        ),
    }


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Whether the gate suppresses what is off the diagonal, and how far eq. 5 and 8 are off."""
    for data, of_data in tables["dominance"].groupby("data", sort=False):
        plain, gated = (of_data[of_data["unit"] == unit].iloc[0] for unit in UNITS)
        yield Claim.of(
            f"mean |off-diagonal| / diagonal of ReLU over that of ReGLU, {data}",
            interval_at(gated, "suppression"),
            1.0,
            "above",
            place=f"figure 4, {data}",
            support={
                "ReLU": plain["off_diagonal"],
                "ReGLU": gated["off_diagonal"],
                f"sum of a row's off-diagonal entries over the diagonal at n = {ROWS}": [
                    plain["row_sum"], gated["row_sum"],
                ],
            },
        )  # fmt: skip
    by_ratio = tables["angles"].set_index("width_over_d")
    for equation, column in (("eq. 5", "eq5"), ("eq. 8", "expected")):
        for ratio in (1, 10):
            row = by_ratio.loc[ratio]
            yield Claim.of(
                f"relative error of {equation} at m = {ratio} d",
                interval_at(row, column),
                CLOSE,
                "below",
                place=f"{equation}, m = {ratio:g} d",
                outside=LARGE_M.format(ratio),
                support={"median pair": row["median"], "orthogonal samples": row["orthogonal"]}
                if column == "expected"
                else {},
            )
    last = by_ratio.iloc[-1]
    yield Claim.of(
        f"relative error of eq. 8 in a single network at m = {last.name:g} d",
        interval_at(last, "drawn"),
        support={"expected kernels": last["expected"], "chance over signal, π √(d/m)": float(np.pi / last.name**0.5)},
    )


# ---- eq. 5 and 8 as laws in d/m


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


WIDTHS = GridStudy(
    "ntk/width",
    "Eq. 5 and 8 as laws in d/m",
    "The kernel of ReGLU is that of ReLU times the Gram matrix, and cos φ~ = cos φ cos θ, for m much larger than d.",
    position=4.5,
    over="seed",
    figure=Facets(
        table="expected", x="d_over_m", y="error", hue="quantity", xlog=True, ylog=True, names=NAMES,
        lines=(Overlay("law", "(d/m)^p / (1 + 2 d/m)", "dotted", hue=False),), xlabel="inputs over width, d/m",
        ylabel="relative error", title="Eq. 5 and 8 against d/m, expected kernels",
    ),
)  # fmt: skip


@WIDTHS.measure(
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


@WIDTHS.columns
def laws(tables: Tables, rows: Tables) -> Tables:
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


def fitted_power(name: str, rows: pd.DataFrame) -> dict[str, Any]:
    """p and c of errors c x^p / (1 + 2 x)^b at small x = d/m, fitted seed by seed."""
    small = rows[rows["d_over_m"] <= SMALL].pivot(index="d_over_m", columns="seed", values="error")
    x = small.index.to_numpy(float)
    design = np.stack([np.ones(len(x)), np.log(x), np.log1p(2 * x)], axis=1)
    logs = np.linalg.lstsq(design, np.log(small.to_numpy()), rcond=None)[0]
    return fit_row(name, "expected kernels", t_interval(logs[1]), interval(np.exp(logs[0])))


def measured_over_law(name: str, rows: pd.DataFrame) -> dict[str, Any]:
    """The power and coefficient of drawn networks: what is left of the power is that of measured over predicted."""
    ratios = rows.pivot(index="d_over_m", columns="seed", values="over_law")
    x = np.log(ratios.index.to_numpy(float))
    slopes = []
    for of_seed in ratios.to_numpy().T:
        positive = of_seed > 0  # those that chance made negative count for nothing
        slopes.append(np.polyfit(x[positive], np.log(of_seed[positive]), 1)[0])
    by_seed = rows.assign(square=rows["law"] ** 2, product=rows["error"] * rows["law"]).groupby("seed")
    coefficient = t_interval((by_seed["product"].sum() / by_seed["square"].sum()).to_numpy())
    return fit_row(name, "drawn networks", t_interval(POWERS[name] + np.array(slopes)), coefficient)


def fit_row(name: str, kernels: str, power: Interval, coefficient: Interval) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": name, "kernels": kernels, "predicted": POWERS[name]}
    for column, value in (("power", power), ("coefficient", coefficient)):
        row |= {column: value.value, f"{column}_low": value.low, f"{column}_high": value.high}
    return row


@WIDTHS.claims
def law_claims(tables: Tables) -> Iterator[Claim]:
    """Powers and coefficients, in drawn networks beside those that follow from the paper's lost eq. 3 and 4."""
    for row in tables["powers"].to_dict("records"):
        drawn = row["kernels"] == "drawn networks"
        yield Claim.of(
            f"power of d/m by which {NAMES[row['quantity']]} is off, {row['kernels']}",
            interval_at(row, "power"),
            float(row["predicted"]) if drawn else None,
            "number" if drawn else "new",
            place=f"{row['quantity']}, against d/m" if drawn else "",
            reconstructed=drawn,
            support={"coefficient": interval_at(row, "coefficient"), "predicted power": row["predicted"]},
        )
    yield Claim(
        "largest error of eq. 5 with a ReLU network of m + d neurons, over the largest entry",
        float(tables["expected"]["with_m_plus_d"].max()),
        note="K~ of m neurons is (G/d) * K of m + d neurons at every width.",
    )
