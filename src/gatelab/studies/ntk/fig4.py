"""Figure 4: heat maps of the normalised kernels, diagonal dominance, and the gradient angles of eq. 8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import new_figure, style
from gatelab.plotting.kernels import draw_heat
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.ntk.angles import (
    RATIOS,
    UNITS,
    GradientAngles,
    angle_claims,
    angles_table,
    cosines,
    draw_errors,
    draw_pairs,
    eq5_claims,
    measure_angles,
)
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAPER_NAMES, WIDTH, LogInterval, interval, samples
from gatelab.studies.progress import ticker

ROWS, SIDE = 100, 64  # samples and inputs of the heat maps: 8 by 8 pixels
ANGLE_ROWS, ANGLE_INPUTS, SEEDS = 200, 100, 8
QUICK_ANGLES, QUICK_SEEDS = (40, 20), 3


def run(request: Request) -> Outcome:
    n, d = QUICK_ANGLES if request.quick else (ANGLE_ROWS, ANGLE_INPUTS)
    seeds = QUICK_SEEDS if request.quick else SEEDS
    tick = ticker(request, seeds * len(RATIOS) + 2 * seeds)
    angles = measure_angles(n, d, seeds, tick)
    pictures, dominance = _pictures(seeds, tick)
    figure = _figure(pictures, angles)
    claims = (*_dominance_claims(dominance), *eq5_claims(n, d, seeds), *angle_claims(angles))
    tables = {"dominance": _dominance_table(dominance), "angles": angles_table(angles)}
    return Outcome(figure, tables, claims, _notes(angles, dominance))


# ---- heat maps


def off_diagonal(C: Array) -> Array:
    return C[~np.eye(len(C), dtype=bool)]


def digits(seed: int) -> tuple[Array, list[int]]:
    """Ten images of each digit of scikit-learn's set, in the order of their classes, of mean square 1; where each ends.

    Pixels are not centred, as images are mostly given to networks: all point into one orthant.
    """
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
    generator = np.random.default_rng(seed)
    each = ROWS // 10
    rows = np.concatenate([generator.permutation(np.flatnonzero(labels == k))[:each] for k in range(10)])
    x = images[rows].astype(float)
    return x / np.sqrt((x * x).mean()), [each * (k + 1) for k in range(10)]


def _pictures(
    seeds: int, tick: Callable[[], None]
) -> tuple[dict[str, tuple[list[Array], list[int]]], dict[str, dict[str, Array]]]:
    """The kernels of the first seed to be drawn, and mean |off-diagonal| over diagonal of every seed."""
    drawn: dict[str, tuple[list[Array], list[int]]] = {}
    dominance = {data: {unit: np.empty(seeds) for unit in UNITS} for data in DATA}
    for data, of in DATA.items():
        for seed in range(seeds):
            x, groups = of(seed)
            made = [cosines(k.numpy()) for k in analytic(list(UNITS), x, WIDTH)]
            for unit, C in zip(UNITS, made, strict=True):
                dominance[data][unit][seed] = np.abs(off_diagonal(C)).mean()
            drawn.setdefault(data, (made, groups))
            tick()
    return drawn, dominance


def _gaussian(seed: int) -> tuple[Array, list[int]]:
    return samples(ROWS, SIDE, seed), []


DATA = {"Gaussian": _gaussian, "digits": digits}


# ---- figure


def _figure(pictures: dict[str, tuple[list[Array], list[int]]], angles: GradientAngles) -> Figure:
    low = min(float(C.min()) for made, _ in pictures.values() for C in made)
    with style():
        figure = new_figure(10.6, 7.4)
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 1.05))
        maps: list[Axes] = []
        shown = None
        for row, (data, (made, groups)) in enumerate(pictures.items()):
            for column, (unit, C) in enumerate(zip(UNITS, made, strict=True)):
                panel = figure.add_subplot(grid[row, column])
                off = np.abs(off_diagonal(C)).mean()
                title = f"{PAPER_NAMES[unit]}, {data}: mean off-diagonal {off:.3f}"
                shown = draw_heat(panel, C, title, low=low, high=1.0, groups=groups)
                maps.append(panel)
        assert shown is not None
        bar = figure.colorbar(shown, ax=maps, location="bottom", shrink=0.6, aspect=40, pad=0.02)
        bar.set_label("K_ij / sqrt(K_ii K_jj): cosine of the angle between gradients")
        draw_pairs(figure.add_subplot(grid[0, 2]), angles.d)
        draw_errors(figure.add_subplot(grid[1, 2]), angles)
        figure.suptitle(f"Figure 4: normalised kernels (n = {ROWS}, d = {SIDE}, m = {WIDTH}) and gradient angles")
    return figure


# ---- what it says


def _dominance_claims(dominance: dict[str, dict[str, Array]]) -> list[Claim]:
    claims = []
    for data, values in dominance.items():
        plain, gated = (interval(values[unit]) for unit in UNITS)
        less = interval(values["mlp"] / values["glu"])
        verdict: Verdict = "reproduced" if less.low > 1 else "differs"
        claims.append(
            Claim(
                f"mean |off-diagonal| / diagonal, {data}",
                "suppressed by the gate",
                f"ReLU {plain.value:.3f}, ReGLU {gated.value:.3f}: {less.value:.3g} times less",
                verdict,
                _dominance_reason(data, plain, gated),
                less.ends,
            )
        )
    return claims


def _dominance_reason(data: str, plain: LogInterval, gated: LogInterval) -> str:
    rows = ROWS - 1
    strict = (
        f"A row's off-diagonal entries together are {rows * plain.value:.1f} times its diagonal for ReLU and "
        f"{rows * gated.value:.1f} times for ReGLU at n = {ROWS}: "
    )
    sense = "it outweighs them" if rows * gated.value < 1 else "it gains on them, but does not outweigh them"
    if data == "Gaussian":
        mean = (2 / (np.pi * SIDE)) ** 0.5
        return (
            f"Gaussian samples are nearly orthogonal: theory has 1/π = {1 / np.pi:.3f} for ReLU and "
            f"1/π · E|cos θ| = {mean / np.pi:.3f} for ReGLU. {strict}{sense}."
        )
    return (
        f"Images share an orthant, so that angles between samples are small and eq. 8 takes less away. {strict}{sense}."
    )


def _dominance_table(dominance: dict[str, dict[str, Array]]) -> pd.DataFrame:
    rows = []
    for data, values in dominance.items():
        for unit in UNITS:
            found = interval(values[unit])
            rows.append(
                {
                    "data": data,
                    "unit": unit,
                    "n": ROWS,
                    "d": SIDE,
                    "width": WIDTH,
                    "off_diagonal": found.value,
                    "low": found.low,
                    "high": found.high,
                    "row_sum": found.value * (ROWS - 1),
                    "seeds": found.seeds,
                }
            )
    return pd.DataFrame(rows)


def _notes(angles: GradientAngles, dominance: dict[str, dict[str, Array]]) -> tuple[str, ...]:
    seeds = angles.expected.shape[1]
    return (
        NO_CAPTIONS,
        f"Intervals are t-intervals of logarithms over {len(dominance['Gaussian']['mlp'])} seeds, 95 %.",
        f"Digits are ten images of each class of scikit-learn's 8 by 8 digits, drawn by the seed, in the order of "
        f"their classes; their pixels are not centred. Angles are of Gaussian samples, d = {angles.d}, {seeds} seeds.",
    )


STUDY = Study(
    "ntk/fig4",
    "Heat maps and gradient angles",
    "Gating enhances the diagonal dominance of the kernel and widens gradient angles: cos φ~ = cos φ cos θ.",
    run,
    position=4,
)
