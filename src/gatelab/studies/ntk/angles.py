"""Angles between gradients: eq. 8 of the paper, cos(phi~) = cos(phi) cos(theta), at every width.

phi is the angle between the gradients of two samples in a ReLU network, phi~ in a ReGLU network, theta the angle
between the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import GREY, Panel, Pen, look
from gatelab.plotting.kernels import Series, draw_series, legend_below, size_ticks
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim
from gatelab.studies.ntk.gaussian import interval, interval_cells, interval_columns, samples
from gatelab.studies.verdicts import reproduced_if, unclaimed

UNITS = ("mlp", "glu")
RATIOS = (0.5, 1, 2, 5, 10, 20, 50)  # m / d
AT_ONCE = 20_000  # neurons whose gradients are in memory together
CLOSE = 0.01  # eq. 8 holds where it is off by less
LARGE_M = "the paper has m >> d, and here m = {:g} d"


@dataclass(frozen=True, eq=False)
class GradientAngles:
    """How far eq. 8 is off, (ratios, seeds): root mean square over pairs, relative to that of cos(phi~).

    `expected` is of the expected kernels, `drawn` of single networks; `middle` is the median of
    cos(phi~) / (cos(phi) cos(theta)) - 1 over the pairs of the expected kernels.
    """

    d: int
    expected: Array
    drawn: Array
    middle: Array


def cosines(K: Array) -> Array:
    """The kernel with ones on its diagonal: cosines of the angles between gradients."""
    root = np.sqrt(np.diag(K))
    return K / np.outer(root, root)


def drawn_kernels(x: Array, width: int, seed: int, *, networks: int = 1) -> tuple[Array, Array]:
    """The kernels of a ReLU and a ReGLU network with the same gates: gradients multiplied out, no expectation.

    W, P ~ N(0, 1/d), V ~ N(0, 1/m), no biases, one output.

    Samples are rows of x, the width is m, and the kernels are means over the networks.
    """
    generator = np.random.default_rng([seed, width])
    (n, d), G = x.shape, x @ x.T
    relu, reglu = np.zeros((n, n)), np.zeros((n, n))
    left = width * networks
    while left > 0:  # a mean over networks is a sum over all their neurons
        neurons = min(left, AT_ONCE)
        W, P = generator.standard_normal((2, neurons, d)) / d**0.5
        V = generator.standard_normal(neurons) / width**0.5
        gate, line = x @ W.T, x @ P.T
        h, opened = np.maximum(gate, 0), V * (gate > 0)
        relu += h @ h.T + G * (opened @ opened.T)
        hidden, by_gate, by_line = h * line, opened * line, V * h
        reglu += hidden @ hidden.T + G * (by_gate @ by_gate.T + by_line @ by_line.T)
        left -= neurons
    return relu / networks, reglu / networks


def measure_angles(n: int, d: int, seeds: int, tick: Callable[[], None]) -> GradientAngles:
    """Eq. 8 on Gaussian samples at every width over d of RATIOS, one tick a width and seed."""
    errors = np.empty((3, len(RATIOS), seeds))
    upper = np.triu_indices(n, 1)
    for i, ratio in enumerate(RATIOS):
        for seed in range(seeds):
            x = samples(n, d, seed)
            theta = cosines(x @ x.T)[upper]
            width = round(ratio * d)
            expected = [cosines(k.numpy())[upper] for k in analytic(list(UNITS), x, width)]
            drawn = [cosines(k)[upper] for k in drawn_kernels(x, width, seed)]
            for j, (phi, gated) in enumerate((expected, drawn)):
                errors[j, i, seed] = np.sqrt(np.mean((phi * theta - gated) ** 2) / np.mean(gated**2))
            errors[2, i, seed] = np.median(expected[1] / (expected[0] * theta)) - 1
            tick()
    return GradientAngles(d, *errors)


def orthogonal(ratio: float) -> float:
    """cos(phi~) / (cos(phi) cos(theta)) - 1 for nearly orthogonal samples: d^2 / (m (m + 2 d)).

    From K_0 = m k1 + G k0 and K_1 = (G/d) [(m + d) k1 + G k0], where k1 = r^2 / (2 pi d) off the diagonal and
    r^2 / (2 d) on it: the ratio is (m + d)^2 / (m (m + 2 d)).

    >>> round(orthogonal(1), 4), round(orthogonal(10), 4)
    (0.3333, 0.0083)
    """
    return 1 / (ratio * (ratio + 2))


def angles_table(angles: GradientAngles) -> pd.DataFrame:
    """A row a width: how far eq. 8 is off, in every sense."""
    rows = []
    for i, ratio in enumerate(RATIOS):
        row: dict[str, float] = {"width_over_d": ratio, "width": round(ratio * angles.d), "d": angles.d}
        for name, values in (("expected", angles.expected), ("median", angles.middle), ("drawn", angles.drawn)):
            row |= interval_cells(name, interval(values[i]))
        rows.append(row | {"orthogonal": orthogonal(ratio), "seeds": angles.expected.shape[1]})
    return pd.DataFrame(rows)


def angle_claims(angles: GradientAngles) -> list[Claim]:
    """Eq. 8 at m = d and m = 10 d in expectation, and for single networks at the greatest width."""
    claims = []
    for ratio in (1, 10):
        i = RATIOS.index(ratio)
        error, middle = percent(interval(angles.expected[i])), float(angles.middle[i].mean())
        claims.append(
            Claim(
                f"cos φ~ = cos φ cos θ (eq. 8) at m = {ratio:g} d",
                "holds (for m >> d)",
                f"off by {error.value:.2g} %",
                unclaimed(reproduced_if(interval(angles.expected[i]).high < CLOSE)),
                f"d = {angles.d}. The median pair is off by {100 * middle:.2g} %; for orthogonal samples the ratio is "
                f"(m+d)²/(m(m+2d)), off by {100 * orthogonal(ratio):.2g} %: eq. 5 drops the gradient in the factor's "
                "weights, d k1 beside m k1.",
                error.ends(".2g") + " %",
                place=f"eq. 8, m = {ratio:g} d",
                outside=LARGE_M.format(ratio),
            )
        )
    drawn, expected = percent(interval(angles.drawn[-1])), percent(interval(angles.expected[-1]))
    claims.append(
        Claim(
            f"eq. 8 for a single network at m = {RATIOS[-1]:g} d",
            "-",
            f"off by {drawn.value:.2g} %",
            "new",
            f"The expected kernels are off by {expected.value:.2g} % there. One network's "
            "cosines scatter by m^-1/2 about a mean of size 1/(π sqrt(d)): chance over signal is π sqrt(d/m), here "
            f"{np.pi / RATIOS[-1] ** 0.5:.2f}. Eq. 8 is a statement about expectations; single networks need m >> 10 d "
            "for it to be seen at all.",
            drawn.ends(".2g") + " %",
        )
    )
    return claims


def percent(share: Interval) -> Interval:
    """A share with its ends, all times 100."""
    return Interval(100 * share.value, 100 * share.low, 100 * share.high, share.level)


def eq5_claims(n: int, d: int, seeds: int) -> list[Claim]:
    """Eq. 5, K~ = K * G/d by elements, in the Frobenius norm: eq. 8 without its normalisation."""
    claims = []
    for ratio in (1, 10):
        errors = []
        for seed in range(seeds):
            x = samples(n, d, seed)
            plain, gated = (k.numpy() for k in analytic(list(UNITS), x, round(ratio * d)))
            errors.append(float(np.linalg.norm(plain * (x @ x.T) / d - gated) / np.linalg.norm(gated)))
        error = interval(errors)
        claims.append(
            Claim(
                f"the ReGLU kernel as that of ReLU times the Gram matrix (eq. 5) at m = {ratio:g} d",
                "equal (for large m)",
                f"off by {percent(error).value:.2g} %",
                unclaimed(reproduced_if(error.high < CLOSE)),
                f"In the Frobenius norm, n = {n}, d = {d}. On the diagonal, where most of it lies, (m + 2d) r⁴/(2d²) "
                f"has become (m + d) r⁴/(2d²), which lacks {100 / (ratio + 2):.2g} %.",
                percent(error).ends(".2g") + " %",
                place=f"eq. 5, m = {ratio:g} d",
                outside=LARGE_M.format(ratio),
            )
        )
    return claims


def draw_pairs(panel: Panel, d: int) -> None:
    """Eq. 8, pair by pair, at two widths."""
    x = samples(80, d, 0)
    upper = np.triu_indices(len(x), 1)
    theta = cosines(x @ x.T)[upper]
    extremes: list[float] = []
    for ratio, colour, size in ((1, look("gqu").colour, 5**0.5), (10, look("glu").colour, 3**0.5)):
        phi, gated = (cosines(k.numpy())[upper] for k in analytic(list(UNITS), x, round(ratio * d)))
        panel.points(phi * theta, gated, colour, size=size, alpha=0.6, label=f"m = {ratio:g} d", linewidths=0)
        extremes += [float(gated.min()), float(gated.max())]
    line = np.array([min(extremes), max(extremes)])
    panel.line(line, line, Pen("black", width=0.6), label="eq. 8 exactly", order=1)
    panel.set(xlabel="cos φ cos θ", ylabel="cos φ~ of ReGLU", title=f"eq. 8 for Gaussian pairs, d = {d}")
    panel.legend(loc="upper left", markerscale=2)


def draw_errors(panel: Panel, angles: GradientAngles) -> None:
    """How far eq. 8 is off against the width, measured three ways and by the formula for orthogonal samples."""
    ratios = np.array(RATIOS, float)
    theory = np.geomspace(ratios[0], ratios[-1], 60)
    series = [
        error_series("expected kernels, rms", angles.expected, look("glu").colour, "s"),
        error_series("expected kernels, median", angles.middle, look("mlp").colour, "o", ""),
        error_series("single networks, rms", angles.drawn, look("relu3").colour, "v"),
        Series("d²/(m(m+2d))", theory, 1 / (theory * (theory + 2)), line="--"),
    ]
    draw_series(panel, series)
    size_ticks(panel, RATIOS)
    panel.rule("y", CLOSE, Pen(GREY, ":", 0.8))
    panel.set(xlabel="width over inputs, m/d", ylabel="relative error of eq. 8")
    panel.set(title="how far eq. 8 is off (dotted: 1 %)")
    legend_below(panel, [s.entry() for s in series])


def error_series(label: str, values: Array, colour: str, marker: str, line: Literal["-", ""] = "-") -> Series:
    """Errors (ratios, seeds) as a curve over the width, means and intervals over seeds."""
    value, low, high = interval_columns([interval(row) for row in values])
    return Series(label, np.array(RATIOS, float), value, low=low, high=high, colour=colour, marker=marker, line=line)
