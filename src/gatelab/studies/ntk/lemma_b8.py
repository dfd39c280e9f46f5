"""Lemma B.8: the spectrum of the Wishart matrix squared by elements, where n grows as d^2.

Its formula is lost in the copy that was used. Restored: for Gaussian rows and 2n/d^2 -> gamma, the eigenvalues of
(G/d) * (G/d) fill the law of Marchenko and Pastur with the shape gamma, for the products x_i x_j are d(d+1)/2 features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.plotting import Panel, Pen, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_histogram, draw_series, legend_below, plain_values, size_ticks
from gatelab.statistics import Interval, t_interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.gaussian import interval, interval_cells, interval_columns, matrices, samples
from gatelab.studies.verdicts import number_verdict, restored
from gatelab.theory.random_matrix import mp_density, mp_edges, mp_mass_at_zero

SHAPES = (0.25, 0.5)
INPUTS, SEEDS = (10, 14, 20, 28, 40, 56), 8
QUICK_INPUTS, QUICK_SEEDS = (8, 12, 18, 26), 3
HALF = "half the shape"
COLOURS = {0.25: look("mlp").colour, 0.5: look("glu").colour}


@dataclass(frozen=True, eq=False)
class ShapeDistances:
    """At one shape: distances (inputs, seeds) to the lemma's law, and to the law of half the shape, which is wrong.

    `spectrum` has the eigenvalues of the first seed at the most inputs.
    """

    shape: float
    inputs: tuple[int, ...]
    lemma: Array
    half: Array
    spectrum: Array

    def limit(self, distances: Array) -> Interval:
        """What distances tend to: a of a + b/d + c/d^2, fitted seed by seed, with the t-interval over seeds."""
        d = np.array(self.inputs, float)
        design = np.stack([np.ones(len(d)), 1 / d, 1 / d**2], axis=1)
        return t_interval(np.linalg.lstsq(design, distances, rcond=None)[0][0])


def run(request: Request) -> Outcome:
    """The spectrum at every size and shape beside the law of the lemma."""
    inputs, seeds = INPUTS, SEEDS
    if request.quick:
        inputs, seeds = QUICK_INPUTS, QUICK_SEEDS
    tick = ticker(request, len(SHAPES) * len(inputs) * seeds)
    measured = [measure(shape, inputs, seeds, tick) for shape in SHAPES]
    return Outcome(draw(measured), {"distances": distances_table(measured)}, tuple(map(claim, measured)), NOTES)


# ---- the law, and distances to it


def rows_for(shape: float, d: int) -> int:
    """n with 2n/d^2 = shape.

    >>> rows_for(0.5, 20)
    100
    """
    return round(shape * d**2 / 2)


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
    """Kolmogorov's distance of eigenvalues, in ascending order, from the law: between 0 and 1."""
    law, count = mp_share_below(values, gamma), len(values)
    steps = np.arange(count + 1) / count
    return float(max(np.max(steps[1:] - law), np.max(law - steps[:-1])))


def measure(shape: float, inputs: Sequence[int], seeds: int, tick: Callable[[], None]) -> ShapeDistances:
    """Distances at one shape, one tick a size and seed."""
    distances = np.empty((2, len(inputs), seeds))
    first = np.empty(0)
    for i, d in enumerate(inputs):
        for seed in range(seeds):
            values = np.asarray(np.linalg.eigvalsh(matrices(samples(rows_for(shape, d), d, seed))[1]), np.float64)
            distances[:, i, seed] = largest_difference(values, shape), largest_difference(values, shape / 2)
            if seed == 0:
                first = values
            tick()
    return ShapeDistances(shape, tuple(inputs), *distances, spectrum=first)


# ---- what it says


def distances_table(measured: Sequence[ShapeDistances]) -> pd.DataFrame:
    """A row a shape and size."""
    rows = []
    for one in measured:
        for i, d in enumerate(one.inputs):
            row = {"shape": one.shape, "d": d, "n": rows_for(one.shape, d)}
            row |= interval_cells("distance", interval(one.lemma[i]))
            rows.append(row | interval_cells("distance_half", interval(one.half[i])))
    return pd.DataFrame(rows)


def claim(one: ShapeDistances) -> Claim:
    """Whether the spectrum goes to the law: what its distance tends to as sizes grow.

    The opposite of going to the law is here going to that of half the shape, which has its own distance from it.
    """
    limit, wrong = one.limit(one.lemma), one.limit(one.half)
    first, last = (interval(one.lemma[i]) for i in (0, -1))
    n, d = rows_for(one.shape, one.inputs[-1]), one.inputs[-1]
    return Claim(
        f"distance of the spectrum of (G/d)*(G/d) from Marchenko and Pastur's law, 2n/d² = {one.shape:g} (lemma B.8)",
        f"0 in the limit, shape 2n/d² = {one.shape:g} (formula lost, restored)",
        f"{limit.value:.3f} in the limit, {last.value:.3f} at d = {d}",
        restored(number_verdict(0, law_distance(one.shape), limit)),
        f"Kolmogorov's distance, {first.value:.3f} at d = {one.inputs[0]}, n = {rows_for(one.shape, one.inputs[0])}, "
        f"and {last.value:.3f} at d = {d}, n = {n}; its limit is a of a + b/d + c/d². From the law of {HALF} it tends "
        f"to {wrong:.3f}, where the two laws are {law_distance(one.shape):.3f} apart. What is left at these sizes are "
        f"the lengths of the rows: r⁴/d² on the diagonal has the deviation {(8 / d) ** 0.5:.2f}, and the lemma has 1.",
        limit.ends(".3f"),
        place=f"lemma B.8, 2n/d² = {one.shape:g}",
    )


def law_distance(shape: float) -> float:
    """Kolmogorov's distance between the laws of a shape and of half of it.

    >>> round(law_distance(0.5), 2)
    0.15
    """
    x = np.linspace(*mp_edges(shape), 4001)
    return float(np.abs(mp_share_below(x, shape) - mp_share_below(x, shape / 2)).max())


NOTES = (
    "The lemma is for n of the order of d², theorem 3.1 for n of the order of d, where the shape goes to 0 and the law "
    "to the single value 1: proposition B.9 puts sizes of the second kind into the lemma's ends.",
    "One eigenvalue, n/d, stands above the bulk, as the mean of a kernel does; a limit of shares does not see it.",
    "Intervals are t-intervals over seeds, of the distances in the figure of their logarithms; 95 %.",
)


# ---- figure


def draw(measured: Sequence[ShapeDistances]) -> Figure:
    """The spectra at the most inputs beside the law, and distances against d."""
    with style():
        figure = new_figure(11.0, 4.3)
        panels = list(map(Panel, figure.subplots(1, 1 + len(measured))))
        for panel, one in zip(panels, measured, strict=False):
            draw_spectrum(panel, one)
        draw_distances(panels[-1], measured)
        figure.suptitle("Lemma B.8: the Wishart matrix squared by elements, and the law of Marchenko and Pastur")
    return figure


def draw_spectrum(panel: Panel, one: ShapeDistances) -> None:
    """Eigenvalues of one draw as a histogram, and the density of the lemma."""
    edges = np.linspace(0, 4, 41)
    x = np.linspace(0.001, 4, 800)
    draw_histogram(panel, one.spectrum, edges, colour=COLOURS[one.shape], scale=10 / len(one.spectrum))
    panel.line(x, mp_density(x, one.shape), Pen("black"), label=f"shape {one.shape:g}, the lemma")
    panel.line(x, mp_density(x, one.shape / 2), Pen("black", ":"), label=f"shape {one.shape / 2:g}")
    d = one.inputs[-1]
    panel.set(
        xlabel="eigenvalue", ylabel="density", title=f"n = {rows_for(one.shape, d)}, d = {d}, 2n/d² = {one.shape:g}"
    )
    panel.legend(loc="upper right")


def draw_distances(panel: Panel, measured: Sequence[ShapeDistances]) -> None:
    """Distances from the law and from that of half the shape."""
    series = []
    for one in measured:
        x = np.array(one.inputs, float)
        lines: tuple[tuple[Array, str, Literal["-", ":"]], ...] = ((one.lemma, "the lemma", "-"), (one.half, HALF, ":"))
        for values, words, line in lines:
            value, low, high = interval_columns([interval(row) for row in values])
            label = f"2n/d² = {one.shape:g}, {words}"
            series.append(Series(label, x, value, low, high, colour=COLOURS[one.shape], marker="o", line=line))
    draw_series(panel, series)
    size_ticks(panel, measured[0].inputs)
    plain_values(panel)
    panel.set(xlabel="input dimension d, n = γ d²/2", ylabel="Kolmogorov's distance", title="distance from the law")
    legend_below(panel, [s.entry() for s in series])


STUDY = Study(
    "ntk/lemma-b8",
    "The Wishart matrix squared by elements",
    "Where n grows as d², the spectrum of G∘G/d² is that of Marchenko and Pastur with the shape 2n/d².",
    run,
    position=7.5,
)
