"""Figure 4: heat maps of the normalised kernels, diagonal dominance, and the gradient angles of eq. 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import Panel, colour_bar, new_figure, style
from gatelab.plotting.kernels import draw_heat
from gatelab.plotting.panel import Mark
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
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
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAPER_NAMES, WIDTH, interval, samples
from gatelab.studies.verdicts import side_verdict

ROWS, SIDE = 100, 64  # samples and inputs of the heat maps: 8 by 8 pixels
ANGLE_ROWS, ANGLE_INPUTS, SEEDS = 200, 100, 8
QUICK_ANGLES, QUICK_SEEDS = (40, 20), 3


@dataclass(frozen=True, eq=False)
class DataKernels:
    """The normalised kernels of both units on one kind of data.

    `maps` are those of the first seed, by unit, `groups` the rows where classes end; `off` is the mean |off-diagonal|
    over the diagonal by unit, an entry a seed.
    """

    name: str
    maps: dict[str, Array]
    groups: list[int]
    off: dict[str, Array]


def run(request: Request) -> Outcome:
    """Figure 4: kernels of Gaussian samples and of digits, and angles at every width."""
    (n, d), seeds = (ANGLE_ROWS, ANGLE_INPUTS), SEEDS
    if request.quick:
        (n, d), seeds = QUICK_ANGLES, QUICK_SEEDS
    tick = ticker(request, seeds * len(RATIOS) + 2 * seeds)
    angles = measure_angles(n, d, seeds, tick)
    kernels = [measure_kernels(name, rows_of, seeds, tick) for name, rows_of in DATA.items()]
    claims = (*map(dominance_claim, kernels), *eq5_claims(n, d, seeds), *angle_claims(angles))
    tables = {"dominance": dominance_table(kernels), "angles": angles_table(angles)}
    notes = (
        NO_CAPTIONS,
        f"Intervals are t-intervals of logarithms over {seeds} seeds, 95 %.",
        f"Digits are ten images of each class of scikit-learn's 8 by 8 digits, drawn by the seed, in the order of "
        f"their classes; their pixels are not centred. Angles are of Gaussian samples, d = {angles.d}, {seeds} seeds.",
    )
    return Outcome(draw(kernels, angles), tables, claims, notes)


# ---- kernels


def gaussian_rows(seed: int) -> tuple[Array, list[int]]:
    """Samples as large as the digits, without classes."""
    return samples(ROWS, SIDE, seed), []


def digits(seed: int) -> tuple[Array, list[int]]:
    """Ten images of each digit of scikit-learn's set, in the order of their classes, of mean square 1; where each ends.

    Pixels are not centred, as images are mostly given to networks: all point into one orthant.
    """
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
    generator = np.random.default_rng(seed)
    count = ROWS // 10
    rows = np.concatenate([generator.permutation(np.flatnonzero(labels == k))[:count] for k in range(10)])
    x = images[rows].astype(float)
    return x / np.sqrt((x * x).mean()), [count * (k + 1) for k in range(10)]


DATA = {"Gaussian": gaussian_rows, "digits": digits}


def off_diagonal(C: Array) -> Array:
    """The entries of a square matrix beside its diagonal."""
    return C[~np.eye(len(C), dtype=bool)]


def measure_kernels(
    name: str, rows_of: Callable[[int], tuple[Array, list[int]]], seeds: int, tick: Callable[[], None]
) -> DataKernels:
    """Both units on one kind of data, a tick a seed."""
    off = {unit: np.empty(seeds) for unit in UNITS}
    first: tuple[dict[str, Array], list[int]] | None = None
    for seed in range(seeds):
        x, groups = rows_of(seed)
        maps = {unit: cosines(k.numpy()) for unit, k in zip(UNITS, analytic(list(UNITS), x, WIDTH), strict=True)}
        for unit, C in maps.items():
            off[unit][seed] = np.abs(off_diagonal(C)).mean()
        first = first or (maps, groups)
        tick()
    assert first is not None
    return DataKernels(name, *first, off)


def dominance_table(kernels: Sequence[DataKernels]) -> pd.DataFrame:
    """A row a kind of data and unit: what is off the diagonal, beside the diagonal."""
    rows = []
    for data in kernels:
        for unit in UNITS:
            mean = interval(data.off[unit])
            rows.append(
                {
                    "data": data.name,
                    "unit": unit,
                    "n": ROWS,
                    "d": SIDE,
                    "width": WIDTH,
                    "off_diagonal": mean.value,
                    "low": mean.low,
                    "high": mean.high,
                    "row_sum": mean.value * (ROWS - 1),
                    "seeds": len(data.off[unit]),
                }
            )
    return pd.DataFrame(rows)


# ---- what it says


def dominance_claim(data: DataKernels) -> Claim:
    """Whether the gate suppresses what is off the diagonal."""
    plain, gated = (interval(data.off[unit]) for unit in UNITS)
    less = interval(data.off["mlp"] / data.off["glu"])
    return Claim(
        f"mean |off-diagonal| / diagonal, {data.name}",
        "suppressed by the gate",
        f"ReLU {plain.value:.3f}, ReGLU {gated.value:.3f}: {less.value:.3g} times less",
        side_verdict(less, 1, "above"),
        dominance_reason(data.name, plain, gated),
        less.ends(),
        place=f"figure 4, {data.name}",
    )


def dominance_reason(name: str, plain: Interval, gated: Interval) -> str:
    """What theory expects, and whether the diagonal outweighs all the rest of its row."""
    rows = ROWS - 1
    sense = "it gains on them, but does not outweigh them"
    if rows * gated.value < 1:
        sense = "it outweighs them"
    sums = (
        f"A row's off-diagonal entries together are {rows * plain.value:.1f} times its diagonal for ReLU and "
        f"{rows * gated.value:.1f} times for ReGLU at n = {ROWS}: {sense}."
    )
    if name == "Gaussian":
        mean = (2 / (np.pi * SIDE)) ** 0.5
        return (
            f"Gaussian samples are nearly orthogonal: theory has 1/π = {1 / np.pi:.3f} for ReLU and "
            f"1/π · E|cos θ| = {mean / np.pi:.3f} for ReGLU. {sums}"
        )
    return f"Images share an orthant, so that angles between samples are small and eq. 8 takes less away. {sums}"


# ---- figure


def draw(kernels: Sequence[DataKernels], angles: GradientAngles) -> Figure:
    """Heat maps of both units on both kinds of data, and eq. 8 beside them."""
    low = min(float(C.min()) for data in kernels for C in data.maps.values())
    with style():
        figure = new_figure(10.6, 7.4)
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 1.05))
        panels: list[Panel] = []
        marks: list[Mark] = []
        for row, data in enumerate(kernels):
            for column, (unit, C) in enumerate(data.maps.items()):
                panels.append(Panel(figure.add_subplot(grid[row, column])))
                mean = np.abs(off_diagonal(C)).mean()
                title = f"{PAPER_NAMES[unit]}, {data.name}: mean off-diagonal {mean:.3f}"
                marks.append(draw_heat(panels[-1], C, title, low=low, high=1.0, groups=data.groups))
        label = "K_ij / sqrt(K_ii K_jj): cosine of the angle between gradients"
        where: dict[str, Any] = {"location": "bottom", "shrink": 0.6, "aspect": 40, "pad": 0.02}
        colour_bar(marks[-1], panels, label=label, **where)
        draw_pairs(Panel(figure.add_subplot(grid[0, 2])), angles.d)
        draw_errors(Panel(figure.add_subplot(grid[1, 2])), angles)
        figure.suptitle(f"Figure 4: normalised kernels (n = {ROWS}, d = {SIDE}, m = {WIDTH}) and gradient angles")
    return figure


STUDY = Study(
    "ntk/fig4",
    "Heat maps and gradient angles",
    "Gating enhances the diagonal dominance of the kernel and widens gradient angles: cos φ~ = cos φ cos θ.",
    run,
    position=4,
)
