"""Figure 1: the spectra of the kernels of gated and plain units, and where theory has their bulk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import Estimate, analytic, estimate
from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, look, new_figure, style
from gatelab.plotting.kernels import draw_histogram
from gatelab.statistics import Interval
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    bracket,
    last,
    numbers,
    ticker,
)
from gatelab.studies.ntk.gaussian import (
    NO_CAPTIONS,
    PAIRS,
    PAPER_NAMES,
    WIDTH,
    eigenvalues,
    interval,
    interval_cells,
    samples,
)
from gatelab.studies.verdicts import side_verdict

SIZE, QUICK_SIZE = (1000, 500), (120, 60)  # n, d
SEEDS, QUICK_SEEDS = 5, 3
BINS = 24  # a decade
ROLES = ("mlp", "glu")  # whose colours plain and gated units have
QUANTITIES = {"lambda_max": "largest", "lambda_min": "smallest", "condition": "condition"}


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
        """What the paper calls the unit."""
        return PAPER_NAMES[self.unit]

    @property
    def largest(self) -> Array:
        """The largest eigenvalue over the width, an entry a seed."""
        return self.eigenvalues[:, -1]

    @property
    def smallest(self) -> Array:
        """The smallest eigenvalue over the width, an entry a seed."""
        return self.eigenvalues[:, 0]

    @property
    def condition(self) -> Array:
        """The condition number, an entry a seed."""
        return self.largest / self.smallest

    @property
    def bulk(self) -> Array:
        """The ratio of the second largest eigenvalue to the smallest: what is left of kappa without the spike."""
        return self.eigenvalues[:, -2] / self.smallest


def run(request: Request) -> Outcome:
    """Figure 1: all eigenvalues of the three pairs of units, on the same samples."""
    (n, d), seeds = SIZE, SEEDS
    if request.quick:
        (n, d), seeds = QUICK_SIZE, QUICK_SEEDS
    tick = ticker(request, len(PAIRS) * seeds)
    spectra = {s.unit: s for pair in PAIRS for s in measure(pair, n, d, seeds, tick)}
    pairs = [(spectra[plain], spectra[gated]) for plain, gated in PAIRS]
    claims = [claim for plain, gated in pairs for claim in contraction_claims(plain, gated)]
    claims.append(density_claim(pairs[0]))
    tables = {
        "extremes": extremes_table(list(spectra.values())),
        "contractions": contractions_table(pairs),
        # The spectra of the first seed, which are those drawn.
        "spectra": pd.DataFrame({s.unit: s.eigenvalues[0] for s in spectra.values()}),
    }
    notes = (
        NO_CAPTIONS,
        f"n = {n}, d = {d}, m = {WIDTH}; eigenvalues are those of K/m. Intervals are t-intervals of logarithms over "
        f"{seeds} seeds, 95 %; units of a pair see the same samples.",
        "There is theory for relu gates alone, whose kernels are functions of lengths times functions of angles.",
    )
    return Outcome(draw(pairs), tables, tuple(claims), notes)


def measure(pair: tuple[str, str], n: int, d: int, seeds: int, tick: Callable[[], None]) -> list[Spectra]:
    """The spectra of both units of a pair, with what theory expects of the first pair."""
    rows: dict[str, list[Array]] = {unit: [] for unit in pair}
    for seed in range(seeds):
        for unit, kernel in zip(pair, analytic(list(pair), samples(n, d, seed), WIDTH), strict=True):
            rows[unit].append(eigenvalues(kernel) / WIDTH)
        tick()
    # Theory is for gates that are homogeneous; gelu and silu are not.
    expected: dict[str, Estimate] = {}
    if pair == PAIRS[0]:
        expected = {unit: estimate(unit, n, d, WIDTH) for unit in pair}
    return [Spectra(unit, n, d, np.stack(rows[unit]), expected.get(unit)) for unit in pair]


# ---- tables


def extremes_table(spectra: Sequence[Spectra]) -> pd.DataFrame:
    """A row a unit: extreme eigenvalues and condition number, measured and estimated."""
    rows = []
    for s in spectra:
        row: dict[str, object] = {"unit": s.unit, "n": s.n, "d": s.d, "width": WIDTH, "seeds": len(s.eigenvalues)}
        for name, quantity in QUANTITIES.items():
            row |= interval_cells(name, interval(getattr(s, quantity)))
            for who in ("paper", "ours"):
                row[f"{name}_{who}"] = estimated(s, who, name)
        rows.append(row)
    return pd.DataFrame(rows)


def estimated(s: Spectra, who: str, name: str) -> float | None:
    """What the paper or we expect of the kernel over its width; None where there is no theory."""
    expected = getattr(s.expected, who, None)
    if expected is None:
        return None
    if name == "condition":
        return expected.condition
    return getattr(expected, name) / WIDTH


def contractions_table(pairs: Sequence[tuple[Spectra, Spectra]]) -> pd.DataFrame:
    """What gating divides the condition number by, with the largest eigenvalue and without it."""
    rows = []
    for plain, gated in pairs:
        row: dict[str, object] = {"plain": plain.unit, "gated": gated.unit, "n": plain.n, "d": plain.d, "width": WIDTH}
        row["seeds"] = len(plain.eigenvalues)
        for name in ("condition", "bulk"):
            row |= interval_cells(name, interval(getattr(plain, name) / getattr(gated, name)))
        rows.append(row)
    return pd.DataFrame(rows)


# ---- what it says


def contraction_claims(plain: Spectra, gated: Spectra) -> list[Claim]:
    """The largest eigenvalue, the smallest and the condition number of a gated unit against the plain one."""
    largest = interval(plain.largest / gated.largest)
    smallest = interval(gated.smallest / plain.smallest)
    condition = interval(plain.condition / gated.condition)
    without = interval(plain.bulk / gated.bulk)
    pair = f"{gated.name} against {plain.name}"
    n, d = plain.n, plain.d
    theory = ""
    if plain.expected is not None:
        theory = (
            f" Theorem 3.1 has mn/(2π) = {n / (2 * np.pi):.0f} m and mn/(4d) = {n / (4 * d):.2f} m, a ratio of 2d/π = "
            f"{2 * d / np.pi:.0f}; the bulk adds what the theorem drops, since n/d = {n / d:g} is no large number."
        )

    def claim(what: str, change: str, times: Interval, because: str) -> Claim:
        return Claim(
            f"{what}, {pair}",
            change,
            f"{times.value:.3g} times {change}",
            side_verdict(times, 1, "above"),
            because,
            times.ends(),
            place=f"figure 1, {gated.name}, {what}",
        )

    return [
        claim(
            "largest eigenvalue",
            "smaller",
            largest,
            f"λ_max/m is {interval(plain.largest)} for {plain.name} and {interval(gated.largest)} for {gated.name}."
            + theory,
        ),
        claim(
            "smallest eigenvalue",
            "larger",
            smallest,
            f"λ_min/m is {interval(plain.smallest)} for {plain.name} and {interval(gated.smallest)} for {gated.name}.",
        ),
        claim(
            "condition number",
            "smaller",
            condition,
            f"κ is {interval(plain.condition)} and {interval(gated.condition)}. Without the one eigenvalue "
            f"that the mean of {plain.name} brings, the contraction is {without} times.",
        ),
    ]


def density_claim(pair: Sequence[Spectra]) -> Claim:
    """How near our distribution of the bulk and our extremes are to the measured ones."""
    distances = ", ".join(f"{s.name} {distance(s):.4f}" for s in pair)
    ratios = "; ".join(
        f"{s.name} λ_max {s.expected.ours.lambda_max / WIDTH / interval(s.largest).value:.2f} and λ_min "
        f"{s.expected.ours.lambda_min / WIDTH / interval(s.smallest).value:.2f} times the measured"
        for s in pair
        if s.expected is not None
    )
    return Claim(
        "distance of our law of the bulk from the measured distribution (greatest difference of shares)",
        "-",
        distances,
        "new",
        f"One draw of n = {pair[0].n}: a step is {1 / pair[0].n:.4f}. Lengths of samples and all degrees of the kernel "
        f"are kept. Our extremes are {ratios}.",
    )


def distance(s: Spectra) -> float:
    """The greatest difference between the share of eigenvalues below x, measured and by our distribution."""
    assert s.expected is not None
    x = np.quantile(s.eigenvalues[0], np.linspace(0.01, 0.99, 99))
    shares = np.searchsorted(s.eigenvalues[0], x) / s.n
    return float(np.abs(s.expected.limit_spectrum.count(x * WIDTH) / s.n - shares).max())


# ---- figure


def draw(pairs: Sequence[tuple[Spectra, Spectra]]) -> Figure:
    """For each pair the spectra of the first seed, and below them the extremes over all seeds."""
    everything = np.concatenate([s.eigenvalues[0] for pair in pairs for s in pair])
    low, high = np.log10(everything.min()) - 0.1, np.log10(everything.max()) + 0.1
    edges = np.logspace(low, high, max(8, round(BINS * (high - low))))
    first = pairs[0][0]
    with style():
        figure = new_figure(10.8, 5.0)
        axes = figure.subplots(2, len(pairs), sharey="row", sharex=True, height_ratios=(4, 1))
        above, below = (list(map(Panel, row)) for row in axes)
        for upper, lower, pair in zip(above, below, pairs, strict=True):
            draw_histograms(upper, pair, edges)
            upper.set(title=" and ".join(s.name for s in pair))
            draw_extremes(lower, pair)
            lower.set(xlabel="eigenvalue over width, λ/m")
        above[0].set(ylabel="share of eigenvalues per decade of λ")
        entries = [
            Entry("plain, one draw", Pen(look("mlp").colour, "", marker="s", size=7, alpha=0.6)),
            Entry("gated, one draw", Pen(look("glu").colour, "", marker="s", size=7, alpha=0.6)),
            Entry("our law of the bulk", Pen(GREY, width=1.4)),
            Entry("extremes over seeds", Pen(GREY, width=2.4, marker="o")),
            Entry("our estimate", Pen("black", "", marker="|", size=10)),
            Entry("the paper's estimate", Pen("black", "", marker="x")),
        ]
        figure_legend(figure, entries, ncols=6)
        figure.suptitle(f"Figure 1: spectra of kernels, Gaussian data (n = {first.n}, d = {first.d}, m = {WIDTH})")
    return figure


def draw_histograms(panel: Panel, pair: Sequence[Spectra], edges: Array) -> None:
    """Shares a decade on a logarithmic axis: the spike, one eigenvalue in n, would else not be seen."""
    panel.set(xscale="log", yscale="log")
    least = 1 / (pair[0].n * np.log10(edges[1] / edges[0]))
    for s, role in zip(pair, ROLES, strict=True):
        colour = look(role).colour
        draw_histogram(panel, s.eigenvalues[0], edges, colour=colour, scale=least)
        if s.expected is not None:
            x = np.geomspace(edges[0], edges[-1], 500)
            panel.line(x, s.expected.density(x * WIDTH) * WIDTH * x * np.log(10), Pen(colour, width=1.4))
    panel.set(ylim=(least / 2, 12))


def draw_extremes(panel: Panel, pair: Sequence[Spectra]) -> None:
    """The extremes on a line each, measured over estimated."""
    for place, (s, role) in enumerate(zip(pair, ROLES, strict=True)):
        colour = look(role).colour
        for values in (s.smallest, s.largest):
            mean = interval(values)
            panel.line([mean.low, mean.high], [place] * 2, Pen(colour, width=2.4), solid_capstyle="butt")
            panel.line(mean.value, place, Pen(colour, "", marker="o"))
        for who, marker, size in (("ours", "|", 13), ("paper", "x", 5)):
            known = getattr(s.expected, who, None)
            if known is not None:
                ends = np.array([known.lambda_min, known.lambda_max]) / WIDTH
                panel.line(ends, [place] * 2, Pen("black", "", marker=marker, size=size), order=4)
    panel.set(ylim=(len(pair) - 0.4, -0.6))
    panel.axes.set_yticks(range(len(pair)), ["plain", "gated"])
    panel.axes.grid(axis="y", visible=False)


# ---- the finding


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
