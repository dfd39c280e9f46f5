"""Corollary 4.2, early stage: for which n and d the ReLU network leads at first, and by which of its terms.

By proposition 4.1 the expected loss begins at (|y|^2 + tr A)/2, A = K/m, and falls at the rate m (y^T A y + tr A^2)
times the learning rate. The corollary says that ReLU falls faster than ReGLU for n and d above bounds, which are lost
in the copy that was used, as is its assumption on the targets; its proof needs y^T K y and tr K^2 to be larger. Kernels
are those of the limit of great width, as in the corollary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import roots_jacobi

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import NEURON_COLOURS, Panel, Pen, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, legend_below, plain_values, size_ticks
from gatelab.statistics import Interval, bootstrap, t_interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.fig4 import UNITS
from gatelab.studies.ntk.gaussian import interval_cells, interval_columns, samples
from gatelab.studies.verdicts import restored, side_verdict, together

ROWS, INPUTS, SEEDS = (2, 3, 5, 10, 20, 40, 80, 160), (2, 3, 5, 10, 20, 40, 80), 40
QUICK_ROWS, QUICK_INPUTS, QUICK_SEEDS = (3, 10, 30), (3, 10, 20), 12
TARGETS = 50  # random targets for each draw of the samples
FACTOR = 2.0  # sizes so far above the bound, or below it, are judged


@dataclass(frozen=True, eq=False)
class EarlyCell:
    """Of n samples in d dimensions, the terms of ReLU and of ReGLU, (units, seeds), over draws of the samples.

    `spread` is tr A^2, `start` is tr A, `rate` the rate at which the loss begins to fall, a mean over standard normal
    targets; `signal`, with an entry a seed, is the share of such targets whose y^T A y is larger for ReLU.
    """

    n: int
    d: int
    spread: Array
    start: Array
    rate: Array
    signal: Array

    def ratio(self, term: Literal["spread", "start", "rate"]) -> Interval:
        """A term of ReLU over that of ReGLU, both in the mean over draws; the bootstrap draws the draws."""
        plain, gated = getattr(self, term)
        return bootstrap([plain, gated], lambda a, b: a.mean(-1) / b.mean(-1), paired=True)

    @property
    def over_bound(self) -> float:
        """n over the least n that is enough by theory."""
        return self.n / expected_bound(self.d)


def run(request: Request) -> Outcome:
    """Every n and d: the terms of the early stage of both units."""
    rows, inputs, seeds = ROWS, INPUTS, SEEDS
    if request.quick:
        rows, inputs, seeds = QUICK_ROWS, QUICK_INPUTS, QUICK_SEEDS
    tick = ticker(request, len(rows) * len(inputs))
    cells = {(n, d): measure(n, d, seeds, tick) for d in inputs for n in rows}
    sizes = list(cells.values())
    bounds = pd.DataFrame([bound_row(cells, rows, d) for d in inputs])
    claims = (stage_claim(sizes, bounds), target_claim(sizes), start_claim(sizes))
    tables = {"terms": terms_table(sizes), "bounds": bounds}
    return Outcome(draw(cells, rows, inputs, bounds), tables, claims, notes(seeds))


def measure(n: int, d: int, seeds: int, tick: Callable[[], None]) -> EarlyCell:
    """Both units at one size, over draws of the samples and of targets; one tick."""
    terms, signal = np.empty((3, 2, seeds)), np.empty(seeds)
    for seed in range(seeds):
        kernels = [kernel.numpy() for kernel in analytic(list(UNITS), samples(n, d, seed), None)]
        y = np.random.default_rng([11, seed, n, d]).standard_normal((TARGETS, n))
        signals = [np.einsum("ti,ij,tj->t", y, A, y) for A in kernels]
        for i, (A, own) in enumerate(zip(kernels, signals, strict=True)):
            spread = float(np.sum(A * A))
            terms[:, i, seed] = spread, np.trace(A), float(np.mean(own)) + spread
        signal[seed] = np.mean(signals[0] > signals[1])
    tick()
    return EarlyCell(n, d, terms[0], terms[1], terms[2], signal)


# ---- the bound on n


def expected_bound(d: int) -> float:
    """The n from which on the expected tr K^2 is larger for ReLU, from the moments of lengths and angles.

    Diagonals are r^2/2d and r^4/2d^2, the second larger in mean square; off them stand k1 and (G/d) k1, the first
    larger, and there are n - 1 times as many of them. In few dimensions both are larger for ReGLU: no n is enough.

    >>> round(expected_bound(20), 1), round(expected_bound(80), 1), expected_bound(2)
    (6.6, 2.3, inf)
    """
    at, weights = roots_jacobi(200, (d - 3) / 2, (d - 3) / 2)
    weights = weights / weights.sum()
    shape = (np.sqrt(1 - at**2) + (np.pi - np.arccos(at)) * at) / (2 * np.pi)
    plain = float(np.sum(weights * shape**2))
    gated = ((d + 2) / d) ** 2 * float(np.sum(weights * at**2 * shape**2))
    if plain <= gated:
        return np.inf
    excess = (d + 2) * (d + 4) * (d + 6) / (4 * d**3) - (d + 2) / (4 * d)
    return 1 + excess / (plain - gated)


def bound_row(cells: Mapping[tuple[int, int], EarlyCell], rows: Sequence[int], d: int) -> dict[str, float]:
    """Of one d: the least n of those run from which on the ratio of tr K^2 is above 1, and the expected bound."""
    above = [n for n in rows if cells[n, d].ratio("spread").value > 1]
    stays = [n for n in above if all(m in above for m in rows if m >= n)]
    return {"d": d, "measured": float(min(stays, default=np.nan)), "expected": expected_bound(d)}


# ---- what it says


def terms_table(cells: Sequence[EarlyCell]) -> pd.DataFrame:
    """A row a size: every ratio with its interval over seeds."""
    rows = []
    for cell in cells:
        row: dict[str, float] = {"n": cell.n, "d": cell.d, "n_over_bound": cell.over_bound}
        for term in ("spread", "start", "rate"):
            row |= interval_cells(term, cell.ratio(term))
        rows.append(row | interval_cells("signal", t_interval(cell.signal)))
    return pd.DataFrame(rows)


def stage_claim(cells: Sequence[EarlyCell], bounds: pd.DataFrame) -> Claim:
    """Whether ReLU falls faster at every size well above the bound of theory; one that does not decides against it.

    The corollary assumes y^T K y to be larger for ReLU; what is left to be larger is tr K^2.
    """
    above = [cell for cell in cells if cell.over_bound >= FACTOR]
    below = [cell for cell in cells if cell.over_bound <= 1 / FACTOR]
    ratios = {(cell.n, cell.d): cell.ratio("spread") for cell in above}
    least = min(ratios, key=lambda size: ratios[size].low)
    larger = sum(ratio.low > 1 for ratio in ratios.values())
    smaller = sum(cell.ratio("spread").high < 1 for cell in below)
    froms = ", ".join(
        f"{row['expected']:.3g} ({row['measured']:.0f} of those run) at d = {row['d']:.0f}"
        for row in bounds.dropna().to_dict("records")
    )
    return Claim(
        "ReLU falls faster at first, for n and d above their bounds",
        "faster, for n and d above bounds (lost)",
        f"in {larger} of {len(above)} sizes with n of {FACTOR:g} times the bound or more",
        restored(together([side_verdict(ratio, 1, "above") for ratio in ratios.values()])),
        f"tr K² of ReLU over that of ReGLU, least at n = {least[0]}, d = {least[1]}: {ratios[least]}. At n of the "
        f"bound over {FACTOR:g} or less ReGLU is faster in {smaller} of {len(below)} sizes. The bound, from moments: "
        f"{froms}; with 2 or 3 inputs no n is enough. What ReLU has off the diagonal grows with n, what ReGLU has on "
        "it, r⁸ beside r⁴, is of the order of 10/d.",
        ratios[least].ends(".2f"),
        place="corollary C.3, early stage over n and d",
    )


def target_claim(cells: Sequence[EarlyCell]) -> Claim:
    """How often the proof's assumption on the targets holds for random ones, and whether it is needed."""
    above = [cell for cell in cells if cell.over_bound >= FACTOR]
    share = t_interval(np.concatenate([cell.signal for cell in above]))
    faster = sum(cell.ratio("rate").low > 1 for cell in above)
    return Claim(
        "random targets whose y·Ky is larger for ReLU",
        "-",
        f"{share.value:.0%}",
        "new",
        f"The proof assumes it of the targets. n of {FACTOR:g} times the bound or more. Their mean decides: ReLU's "
        "kernel has its one large eigenvalue there, and chance gives most targets less of it than ReGLU's diagonal "
        f"makes up for. Without the assumption ReLU falls faster in {faster} of {len(above)} sizes: tr K²/m, the "
        "unlearning of the initial outputs, is the larger term where n is large.",
        f"[{share.low:.0%}, {share.high:.0%}]",
    )


def start_claim(cells: Sequence[EarlyCell]) -> Claim:
    """Who is ahead before the first step: the expected square of the initial outputs."""
    holds = sum(cell.d / (cell.d + 2) in cell.ratio("start") for cell in cells)
    ahead = sum(cell.ratio("start").high < 1 for cell in cells)
    return Claim(
        "mean square of the initial outputs, ReLU over ReGLU",
        "-",
        f"below 1 in {ahead} of {len(cells)} sizes: ReLU is ahead before the first step",
        "new",
        f"E r² and E r⁴ make it d/(d + 2), which lies in {holds} of the {len(cells)} intervals.",
    )


def notes(seeds: int) -> tuple[str, ...]:
    """What was drawn, and what intervals are."""
    return (
        f"Gaussian samples, {seeds} draws a size with {TARGETS} targets each; kernels K/m for m without end. Intervals "
        "of ratios are by drawing the draws, of shares t-intervals; 95 %.",
        "The corollary's bounds on n and d are lost; ours follow from the moments of lengths and angles. When the lead "
        "ends is in ntk/fig6.",
    )


# ---- figure


def draw(
    cells: Mapping[tuple[int, int], EarlyCell], rows: Sequence[int], inputs: Sequence[int], bounds: pd.DataFrame
) -> Figure:
    """Rates and tr K^2 over n for some d, and the bound on n over d."""
    shown = [d for d in inputs if d in (2, 3, 5, 10, 20, 80)]
    with style():
        figure = new_figure(11.2, 4.5)
        left, middle, right = map(Panel, figure.subplots(1, 3))
        terms: tuple[tuple[Panel, Literal["rate", "spread"]], ...] = ((left, "rate"), (middle, "spread"))
        for panel, of in terms:
            series = []
            for d, colour in zip(shown, NEURON_COLOURS, strict=False):
                value, low, high = interval_columns([cells[n, d].ratio(of) for n in rows])
                series.append(Series(f"d = {d}", np.array(rows, float), value, low, high, colour=colour, marker="o"))
            draw_series(panel, series)
            panel.rule("y", 1.0, Pen("black", "--", 0.8))
            size_ticks(panel, rows)
            plain_values(panel)
            panel.set(xlabel="samples n")
            legend_below(panel, [s.entry() for s in series], columns=3)
        left.set(ylabel="ReLU over ReGLU", title="rate at which the loss begins to fall")
        middle.set(ylabel="ReLU over ReGLU", title="tr K²")
        draw_bounds(right, bounds)
        figure.suptitle("Corollary 4.2: who leads at first, over n and d (above 1: ReLU)")
    return figure


def draw_bounds(panel: Panel, bounds: pd.DataFrame) -> None:
    """The n from which on ReLU's tr K^2 is the larger, measured and expected."""
    d = bounds["d"].to_numpy(float)
    fine = np.unique(np.round(np.geomspace(d[0], d[-1], 40)))
    series = [
        Series(
            "least n that was run", d, bounds["measured"].to_numpy(float), colour=NEURON_COLOURS[0], marker="o", line=""
        ),
        Series("expected", fine, np.array([expected_bound(int(v)) for v in fine]), colour="black", line="--"),
    ]
    draw_series(panel, series)
    size_ticks(panel, d)
    plain_values(panel)
    panel.set(xlabel="input dimension d", ylabel="n", title="n from which on tr K² is larger for ReLU")
    legend_below(panel, [s.entry() for s in series])


STUDY = Study(
    "ntk/early",
    "Who leads at first, over n and d",
    "At the early stage ReLU converges faster than ReGLU, as long as n and d are large enough.",
    run,
    position=6.5,
)
