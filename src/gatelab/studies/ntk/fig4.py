"""Figure 4: diagonal dominance, angles between gradients, and how far eq. 5 and 8 are off at two widths.

Eq. 5 has K~ = (G/d) * K by elements for m >> d, K of a ReLU network with m neurons and K~ of a ReGLU. Eq. 8 has
cos(phi~) = cos(phi) cos(theta): phi is the angle between the gradients of two samples in a ReLU network, phi~ in a
ReGLU network, theta the angle between the samples. Both as laws in d/m are in `width`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay, draw_panel
from gatelab.plotting.theme import style
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Tables, interval_at
from gatelab.studies.ntk.gaussian import PAPER_NAMES, WIDTH, samples

UNITS = ("mlp", "glu")
ROWS, SIDE = 100, 64  # samples and inputs of the heat maps: 8 by 8 pixels
NEURONS = 20_000  # whose gradients are in memory together
CLOSE = 0.01  # an equation holds where it is off by less
LARGE_M = "the paper has m >> d, and here m = {:g} d"
ERRORS = Facets(
    table="angles", x="width_over_d", y="expected", xlog=True, ylog=True,
    lines=(
        Overlay("median", "expected kernels, median pair", "dotted"),
        Overlay("drawn", "single networks", "solid", hue=False),
        Overlay("orthogonal", "d²/(m(m+2d))"),
    ),
    levels={"1 %": CLOSE}, xlabel="width over inputs, m/d", ylabel="relative error of eq. 8",
    title="how far eq. 8 is off",
)  # fmt: skip
PAIRS = Facets(
    x="product", y="gated", hue="width", points=True, xlabel="cos φ cos θ", ylabel="cos φ~ of ReGLU",
    lines=(Overlay("product", "eq. 8 exactly", "solid", hue=False),), title="eq. 8 for Gaussian pairs",
)  # fmt: skip


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
    """Heat maps of both units on both kinds of data, and eq. 8 next to them."""
    kernels = {data: normalised_kernels(data, 0) for data in ("Gaussian", "digits")}
    low = min(float(C.min()) for maps, _ in kernels.values() for C in maps.values())
    with style():
        drawing = Figure(figsize=(12.6, 8.4), layout="constrained")
        axes = drawing.subplots(2, 3, width_ratios=(1, 1, 1.15))
        image: Any = None
        for row, (data, (maps, groups)) in enumerate(kernels.items()):
            for panel, (unit, C) in zip(axes[row], maps.items(), strict=False):
                image = panel.imshow(C, vmin=low, vmax=1.0, cmap="viridis")
                for end in groups[:-1]:
                    panel.axhline(end - 0.5, color="white", linewidth=0.4)
                    panel.axvline(end - 0.5, color="white", linewidth=0.4)
                panel.grid(visible=False)
                mean = np.abs(off_diagonal(C)).mean()
                panel.set_title(f"{PAPER_NAMES[unit]}, {data}: mean off-diagonal {mean:.3f}")
                panel.set(xlabel="sample j", ylabel="sample i")
        label = "K_ij / sqrt(K_ii K_jj): cosine of the angle between gradients"
        drawing.colorbar(image, ax=axes[:, :2], label=label, location="bottom", shrink=0.6, aspect=40, pad=0.02)
        draw_panel(axes[0, 2], PAIRS, {"pairs": pairs(int(tables["angles"]["d"].iloc[0]))})
        draw_panel(axes[1, 2], ERRORS, tables)
        drawing.suptitle(f"Figure 4: normalized kernels (n = {ROWS}, d = {SIDE}, m = {WIDTH}) and gradient angles")
    return drawing


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


@STUDY.measure(
    "dominance", together="unit", grid={"data": ["Gaussian", "digits"], "unit": list(UNITS), "seed": range(8)}
)
def dominance(data: str, unit: Sequence[str], seed: int) -> Iterator[dict[str, float]]:
    """The mean |off-diagonal| over the diagonal, and of the gated unit how many times less it is."""
    maps, _ = normalised_kernels(data, seed)
    off = {name: float(np.abs(off_diagonal(C)).mean()) for name, C in maps.items()}
    suppression = {"mlp": np.nan, "glu": off["mlp"] / off["glu"]}
    for name in unit:
        yield {"off_diagonal": off[name], "suppression": suppression[name]}


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
    beside = {"median pair": "median", "orthogonal samples": "orthogonal"}
    for equation, column, more in (("eq. 5", "eq5", {}), ("eq. 8", "expected", beside)):
        for ratio in (1, 10):
            row = by_ratio.loc[ratio]
            yield Claim.of(
                f"relative error of {equation} at m = {ratio} d",
                interval_at(row, column),
                CLOSE,
                "below",
                place=f"{equation}, m = {ratio:g} d",
                outside=LARGE_M.format(ratio),
                support={words: row[name] for words, name in more.items()},
            )
    last = by_ratio.iloc[-1]
    yield Claim.of(
        f"relative error of eq. 8 in a single network at m = {last.name:g} d",
        interval_at(last, "drawn"),
        support={"expected kernels": last["expected"], "chance over signal, π √(d/m)": float(np.pi / last.name**0.5)},
    )
