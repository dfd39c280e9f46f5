"""Figure 1: the spectra of the kernels of gated and plain units, and where theory has their bulk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.arrays import Array
from gatelab.ntk import Estimate, analytic, estimate
from gatelab.plotting import GREY, look, new_figure, style
from gatelab.plotting.kernels import draw_histogram
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    Verdict,
    bracket,
    last,
    numbers,
)
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAIRS, PAPER_NAMES, WIDTH, eigenvalues, interval, samples
from gatelab.studies.progress import ticker

SIZE, QUICK_SIZE = (1000, 500), (120, 60)  # n, d
SEEDS, QUICK_SEEDS = 5, 3
BINS = 24  # a decade


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenvalues over the width in ascending order, (seeds, n), and what theory expects, where it has something."""

    unit: str
    n: int
    d: int
    eigenvalues: Array
    expected: Estimate | None

    @property
    def name(self) -> str:
        return PAPER_NAMES[self.unit]

    @property
    def largest(self) -> Array:
        return self.eigenvalues[:, -1]

    @property
    def smallest(self) -> Array:
        return self.eigenvalues[:, 0]

    @property
    def condition(self) -> Array:
        return self.largest / self.smallest

    @property
    def bulk(self) -> Array:
        """The ratio of the second largest eigenvalue to the smallest: what is left of kappa without the spike."""
        return self.eigenvalues[:, -2] / self.smallest


def run(request: Request) -> Outcome:
    n, d = QUICK_SIZE if request.quick else SIZE
    seeds = QUICK_SEEDS if request.quick else SEEDS
    tick = ticker(request, len(PAIRS) * seeds)
    found: dict[str, Spectra] = {}
    for pair in PAIRS:
        rows: list[list[Array]] = [[], []]
        for seed in range(seeds):
            for kept, kernel in zip(rows, analytic(list(pair), samples(n, d, seed), WIDTH), strict=True):
                kept.append(eigenvalues(kernel) / WIDTH)
            tick()
        for unit, kept in zip(pair, rows, strict=True):
            # Theory is for gates that are homogeneous; gelu and silu are not.
            expected = estimate(unit, n, d, WIDTH) if pair == PAIRS[0] else None
            found[unit] = Spectra(unit, n, d, np.stack(kept), expected)
    claims = [claim for pair in PAIRS for claim in _contraction(*(found[unit] for unit in pair))]
    claims.append(_density_claim([found[unit] for unit in PAIRS[0]]))
    tables = {
        "extremes": _table(list(found.values())),
        "contractions": _contractions_table([(found[plain], found[gated]) for plain, gated in PAIRS]),
        "spectra": _spectra_table(list(found.values())),
    }
    return Outcome(_figure(found), tables, tuple(claims), _notes(found["mlp"], seeds))


# ---- figure


def _figure(found: dict[str, Spectra]) -> Figure:
    everything = np.concatenate([s.eigenvalues[0] for s in found.values()])
    low, high = np.log10(everything.min()) - 0.1, np.log10(everything.max()) + 0.1
    edges = np.logspace(low, high, max(8, round(BINS * (high - low))))
    first = found["mlp"]
    with style():
        figure = new_figure(10.8, 5.0)
        panels = figure.subplots(2, len(PAIRS), sharey="row", sharex=True, height_ratios=(4, 1))
        for upper, lower, pair in zip(*panels, PAIRS, strict=True):
            _histograms(upper, [found[unit] for unit in pair], edges)
            upper.set_title(" and ".join(PAPER_NAMES[unit] for unit in pair))
            _ends(lower, [found[unit] for unit in pair])
            lower.set_xlabel("eigenvalue over width, λ/m")
        panels[0][0].set_ylabel("share of eigenvalues per decade of λ")
        figure.legend(handles=_handles(), loc="outside lower center", ncols=6)
        figure.suptitle(f"Figure 1: spectra of kernels, Gaussian data (n = {first.n}, d = {first.d}, m = {WIDTH})")
    return figure


def _histograms(panel: Axes, pair: Sequence[Spectra], edges: Array) -> None:
    """Shares a decade on a logarithmic axis: the spike, one eigenvalue in n, would else not be seen."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    least = 1 / (pair[0].n * np.log10(edges[1] / edges[0]))
    for s, role in zip(pair, ROLES, strict=True):
        colour = look(role).colour
        draw_histogram(panel, s.eigenvalues[0], edges, colour=colour, scale=least)
        if s.expected is not None:
            x = np.geomspace(edges[0], edges[-1], 500)
            panel.plot(x, s.expected.density(x * WIDTH) * WIDTH * x * np.log(10), color=colour, linewidth=1.4)
    panel.set_ylim(least / 2, 12)


def _ends(panel: Axes, pair: Sequence[Spectra]) -> None:
    """The extremes on a line each, measured over estimated."""
    for place, (s, role) in enumerate(zip(pair, ROLES, strict=True)):
        colour = look(role).colour
        for values in (s.smallest, s.largest):
            at = interval(values)
            panel.plot([at.low, at.high], [place] * 2, color=colour, linewidth=2.4, solid_capstyle="butt")
            panel.plot(at.value, place, "o", color=colour, markersize=4)
        for kind, marker, size in (("ours", "|", 13), ("paper", "x", 5)):
            known = getattr(s.expected, kind, None)
            if known is not None:
                ends = np.array([known.lambda_min, known.lambda_max]) / WIDTH
                marks = {"color": "black", "markersize": size, "markeredgewidth": 1.0, "zorder": 4}
                panel.plot(ends, [place] * 2, marker, **marks)
    panel.set_ylim(len(pair) - 0.4, -0.6)
    panel.set_yticks(range(len(pair)), ["plain", "gated"])
    panel.grid(axis="y", visible=False)


ROLES = ("mlp", "glu")


def _handles() -> list[Line2D]:
    square: dict[str, Any] = {"marker": "s", "linestyle": "none", "markersize": 7, "alpha": 0.6}
    bare: dict[str, Any] = {"linestyle": "none", "color": "black"}
    return [
        Line2D([], [], color=look("mlp").colour, label="plain, one draw", **square),
        Line2D([], [], color=look("glu").colour, label="gated, one draw", **square),
        Line2D([], [], color=GREY, linewidth=1.4, label="our law of the bulk"),
        Line2D([], [], marker="o", color=GREY, label="extremes over seeds", linewidth=2.4),
        Line2D([], [], marker="|", markersize=10, label="our estimate", **bare),
        Line2D([], [], marker="x", label="the paper's estimate", **bare),
    ]


# ---- what it says


def _contraction(plain: Spectra, gated: Spectra) -> list[Claim]:
    largest = interval(plain.largest / gated.largest)
    smallest = interval(gated.smallest / plain.smallest)
    condition = interval(plain.condition / gated.condition)
    pair = f"{gated.name} against {plain.name}"
    n, d = plain.n, plain.d
    theory = (
        f" Theorem 3.1 has mn/(2π) = {n / (2 * np.pi):.0f} m and mn/(4d) = {n / (4 * d):.2f} m, a ratio of 2d/π = "
        f"{2 * d / np.pi:.0f}; the bulk adds what the theorem drops, since n/d = {n / d:g} is no large number."
        if plain.expected is not None
        else ""
    )
    without = interval(plain.bulk / gated.bulk)
    return [
        Claim(
            f"largest eigenvalue, {pair}",
            "smaller",
            f"{largest.value:.3g} times smaller",
            _more(largest.low),
            f"λ_max/m is {interval(plain.largest)} for {plain.name} and {interval(gated.largest)} for {gated.name}."
            + theory,
            largest.ends,
        ),
        Claim(
            f"smallest eigenvalue, {pair}",
            "larger",
            f"{smallest.value:.3g} times larger",
            _more(smallest.low),
            f"λ_min/m is {interval(plain.smallest)} for {plain.name} and {interval(gated.smallest)} for {gated.name}.",
            smallest.ends,
        ),
        Claim(
            f"condition number, {pair}",
            "smaller",
            f"{condition.value:.3g} times smaller",
            _more(condition.low),
            f"κ is {interval(plain.condition)} and {interval(gated.condition)}. Without the one eigenvalue "
            f"that the mean of {plain.name} brings, the contraction is {without} times.",
            condition.ends,
        ),
    ]


def _more(low: float) -> Verdict:
    return "reproduced" if low > 1 else "differs"


def distance(s: Spectra) -> float:
    """The greatest difference between the share of eigenvalues below x, measured and by our law, spike included."""
    assert s.expected is not None
    x = np.quantile(s.eigenvalues[0], np.linspace(0.01, 0.99, 99))
    shares = np.searchsorted(s.eigenvalues[0], x) / s.n
    return float(np.abs(s.expected.law.count(x * WIDTH) / s.n - shares).max())


def _density_claim(pair: Sequence[Spectra]) -> Claim:
    off = [distance(s) for s in pair]
    said = ", ".join(f"{s.name} {value:.4f}" for s, value in zip(pair, off, strict=True))
    ratios = "; ".join(
        f"{s.name} λ_max {s.expected.ours.lambda_max / WIDTH / interval(s.largest).value:.2f} and λ_min "
        f"{s.expected.ours.lambda_min / WIDTH / interval(s.smallest).value:.2f} times the measured"
        for s in pair
        if s.expected is not None
    )
    return Claim(
        "distance of our law of the bulk from the measured distribution (greatest difference of shares)",
        "-",
        said,
        "new",
        f"One draw of n = {pair[0].n}: a step is {1 / pair[0].n:.4f}. Lengths of samples and all degrees of the kernel "
        f"are kept. Our extremes are {ratios}.",
    )


def _table(found: Sequence[Spectra]) -> pd.DataFrame:
    rows = []
    for s in found:
        row: dict[str, object] = {"unit": s.unit, "n": s.n, "d": s.d, "width": WIDTH, "seeds": len(s.eigenvalues)}
        values = {"lambda_max": s.largest, "lambda_min": s.smallest, "condition": s.condition}
        for name, each in values.items():
            at = interval(each)
            row |= {name: at.value, f"{name}_low": at.low, f"{name}_high": at.high}
            for who in ("paper", "ours"):
                kind = getattr(s.expected, who, None)
                scale = 1 if name == "condition" else WIDTH
                row[f"{name}_{who}"] = None if kind is None else getattr(kind, name) / scale
        rows.append(row)
    return pd.DataFrame(rows)


def _contractions_table(pairs: Sequence[tuple[Spectra, Spectra]]) -> pd.DataFrame:
    """What gating divides the condition number by, with the largest eigenvalue and without it."""
    rows = []
    for plain, gated in pairs:
        row: dict[str, object] = {"plain": plain.unit, "gated": gated.unit, "n": plain.n, "d": plain.d, "width": WIDTH}
        row["seeds"] = len(plain.eigenvalues)
        for name in ("condition", "bulk"):
            at = interval(getattr(plain, name) / getattr(gated, name))
            row |= {name: at.value, f"{name}_low": at.low, f"{name}_high": at.high}
        rows.append(row)
    return pd.DataFrame(rows)


def _spectra_table(found: Sequence[Spectra]) -> pd.DataFrame:
    """The spectra of the first seed, which are those drawn."""
    return pd.DataFrame({s.unit: s.eigenvalues[0] for s in found})


def _notes(first: Spectra, seeds: int) -> tuple[str, ...]:
    return (
        NO_CAPTIONS,
        f"n = {first.n}, d = {first.d}, m = {WIDTH}; eigenvalues are those of K/m. Intervals are t-intervals of "
        f"logarithms over {seeds} seeds, 95 %; units of a pair see the same samples.",
        "There is theory for relu gates alone, whose kernels are functions of lengths times functions of angles.",
    )


def findings(tables: Tables) -> tuple[Finding, ...]:
    """What gating does to the condition number, and how much of that is one eigenvalue."""
    plain, gated = PAIRS[0]
    row = last(tables["contractions"], plain=plain, gated=gated)
    sentence = (
        f"A gate divides the condition number of a {PAPER_NAMES[plain]} network's kernel by {row['condition']:.0f}"
        f"{bracket(row['condition_low'], row['condition_high'], '.0f')}. Without one eigenvalue, that of the mean of "
        f"the activations, it divides it by {row['bulk']:.1f}{bracket(row['bulk_low'], row['bulk_high'], '.1f')}."
    )
    sizes = (
        f"n = {row['n']} Gaussian samples of d = {row['d']} inputs, width {row['width']}, {row['seeds']} seeds; the "
        "figure has one of them."
    )
    ranks = np.arange(1, len(tables["spectra"]) + 1)
    strokes = tuple(
        Stroke(PAPER_NAMES[unit], numbers(ranks), numbers(np.sort(tables["spectra"][unit])[::-1]), look(role).colour)
        for unit, role in zip((plain, gated), ROLES, strict=True)
    )
    sketch = Sketch("rank of the eigenvalue", "eigenvalue / width", strokes)
    return (Finding("Gates and one eigenvalue", sentence, sizes, sketch),)


STUDY = Study(
    "ntk/fig1",
    "Spectra of kernels, gated and plain",
    "The kernel of ReGLU has a more contracted spectrum than that of ReLU: a smaller largest and a larger smallest "
    "eigenvalue; so have GEGLU and SwiGLU.",
    run,
    findings=findings,
    position=1,
)
