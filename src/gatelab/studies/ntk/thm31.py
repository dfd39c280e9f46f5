"""Theorem 3.1: how the extreme eigenvalues and the condition number grow with n and with d, as measured exponents.

The theorem is for n and d in proportion. It is read three ways here: n grows at fixed d, d grows at fixed n, and both
grow in proportion, which alone is its own case. Kernels are those of the limit of great width, K/m.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import estimate
from gatelab.plotting import Panel, figure_legend, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, plain_values, size_ticks
from gatelab.scaling_laws import Slope, local_slopes, slope
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.ntk.gaussian import (
    CLOSE,
    PAPER_NAMES,
    close,
    extremes_over_seeds,
    interval,
    interval_cells,
    interval_columns,
    shortest,
    table_claims,
)
from gatelab.studies.verdicts import number_verdict, reproduced_if, restored, slope_ends

UNITS = ("mlp", "glu")
SEEDS, QUICK_SEEDS = 5, 3
FAR = 4000  # beyond what is measured: our estimate alone goes there
PROPOSITIONS = {"lambda_max": "B.6", "lambda_min": "B.9"}
NEAR = 0.15  # exponents as near as this agree: the theorem is about a limit, sizes are finite
RESTORED = "formula lost, restored from the proof"
WHAT = {"lambda_max": "λ_max", "lambda_min": "λ_min", "condition": "κ"}
OVER_WIDTH = {"lambda_max": "λ_max/m", "lambda_min": "λ_min/m", "condition": "κ"}
# Theorem 3.1: exponents of n and of d.
THEOREM = {
    ("mlp", "lambda_max"): (1, 0),
    ("mlp", "lambda_min"): (0, 0),
    ("mlp", "condition"): (1, 0),
    ("glu", "lambda_max"): (1, -1),
    ("glu", "lambda_min"): (0, 0),
    ("glu", "condition"): (1, -1),
}


@dataclass(frozen=True)
class Walk:
    """A way through the sizes: which of them grows, and the exponent that n^a d^b then has."""

    name: str
    axis: str
    sizes: tuple[tuple[int, int], ...]

    @property
    def title(self) -> str:
        """The sizes that are passed through."""
        (n, d), (last_n, last_d) = self.sizes[0], self.sizes[-1]
        if self.name == "n":
            return f"n = {n // d} d..{last_n // d} d at d = {d}"
        if self.name == "d":
            return f"d = {d}..{last_d} at n = {n}"
        return f"n = {n // d} d, d = {d}..{last_d}"

    @property
    def words(self) -> str:
        """What grows, whatever the sizes are."""
        return {
            "n": "as n grows at fixed d",
            "d": "as d grows at fixed n",
            "both": "as n and d grow in proportion",
        }[self.name]

    def grown(self) -> Array:
        """The sizes that grow: n, or d where both do."""
        n, d = np.array(self.sizes, float).T
        if self.name == "n":
            return n
        return d

    def exponent(self, of: tuple[int, int]) -> int:
        """What n^a d^b grows with along this walk, of (a, b)."""
        return {"n": of[0], "d": of[1], "both": of[0] + of[1]}[self.name]


WALKS = (
    Walk("n", "samples n", tuple((n, 100) for n in (200, 283, 400, 566, 800, 1131, 1600))),
    Walk("d", "input dimension d", tuple((800, d) for d in (50, 71, 100, 141, 200, 283, 400))),
    Walk("both", "input dimension d, n in proportion", tuple((4 * d, d) for d in (50, 71, 100, 141, 200, 283, 400))),
)
QUICK_WALKS = (
    Walk("n", "samples n", ((40, 20), (80, 20), (160, 20))),
    Walk("d", "input dimension d", ((80, 10), (80, 20), (80, 40))),
    Walk("both", "input dimension d, n in proportion", ((40, 10), (80, 20), (160, 40))),
)


@dataclass(frozen=True, eq=False)
class Track:
    """One unit along one walk: values (sizes, seeds) of each quantity, and what the estimates say."""

    unit: str
    walk: Walk
    values: dict[str, Array]
    ours: dict[str, Array]
    paper: dict[str, Array]

    @property
    def name(self) -> str:
        """What the paper calls the unit."""
        return PAPER_NAMES[self.unit]

    def theorem(self, what: str) -> int:
        """The exponent that Theorem 3.1 has for a quantity along this walk."""
        return self.walk.exponent(THEOREM[self.unit, what])

    def mean(self, what: str, size: int) -> Interval:
        """A quantity over seeds, at the size of this number."""
        return interval(self.values[what][size])

    def slope(self, what: str) -> Slope:
        """Of the medians over seeds; the interval is that of the scatter about the line, of which a bend is a part."""
        return slope(self.walk.grown(), self.values[what], aggregate="median")

    def slope_of(self, who: str, what: str) -> float:
        """Of an estimate."""
        return slope(self.walk.grown(), getattr(self, who)[what]).value

    def last_slope(self, what: str) -> float:
        """Of the last three sizes: where the curve is going."""
        middle = np.exp(np.log(self.values[what]).mean(1))
        return float(local_slopes(self.walk.grown()[-3:], middle[-3:], window=3)[1])


@dataclass(frozen=True, eq=False)
class ExponentCell:
    """One unit at one size, by quantity: measured, with an entry a seed, and both estimates."""

    measured: dict[str, Array]
    ours: dict[str, float]
    paper: dict[str, float]


def run(request: Request) -> Outcome:
    """Both units at every size of three walks, and table 1 at the last of them."""
    walks, seeds = WALKS, SEEDS
    if request.quick:
        walks, seeds = QUICK_WALKS, QUICK_SEEDS
    sizes = list(dict.fromkeys(size for walk in walks for size in walk.sizes))
    tick = ticker(request, seeds * len(sizes))
    cells = {size: measure(*size, seeds, tick) for size in sizes}
    tracks = [track(unit, walk, cells) for walk in walks for unit in UNITS]
    claims = [exponent_claim(t, what) for t in tracks for what in WHAT]
    claims.append(constants_claim(tracks))
    claims += [estimate_claim(tracks, unit, what) for unit in UNITS for what in PROPOSITIONS]
    claims += table_claims(*walks[-1].sizes[-1], seeds)
    tables = {"exponents": exponents_table(tracks), "extremes": extremes_table(tracks)}
    return Outcome(draw(tracks, walks, seeds), tables, tuple(claims), notes(tracks, seeds))


def measure(n: int, d: int, seeds: int, tick: Callable[[], None]) -> dict[str, ExponentCell]:
    """Both units at one size, in the limit of great width."""
    cells = {}
    for unit, extremes in zip(UNITS, extremes_over_seeds(UNITS, n, d, seeds, tick, width=None), strict=True):
        expected = estimate(unit, n, d)
        assert expected.paper is not None
        cells[unit] = ExponentCell(
            {"lambda_max": extremes.largest, "lambda_min": extremes.smallest, "condition": extremes.condition},
            ours={what: getattr(expected.ours, what) for what in WHAT},
            paper={what: getattr(expected.paper, what) for what in WHAT},
        )
    return cells


def track(unit: str, walk: Walk, cells: Mapping[tuple[int, int], Mapping[str, ExponentCell]]) -> Track:
    """The cells of one unit in the order of a walk."""
    along = [cells[size][unit] for size in walk.sizes]
    return Track(
        unit,
        walk,
        values={what: np.stack([c.measured[what] for c in along]) for what in WHAT},
        ours={what: np.array([c.ours[what] for c in along]) for what in WHAT},
        paper={what: np.array([c.paper[what] for c in along]) for what in WHAT},
    )


# ---- tables


def exponents_table(tracks: Sequence[Track]) -> pd.DataFrame:
    """A row a unit, walk and quantity: the exponent of the theorem, measured, and of both estimates."""
    rows = []
    for t in tracks:
        for what in WHAT:
            exponent = t.slope(what)
            rows.append(
                {
                    "unit": t.unit,
                    "walk": t.walk.title,
                    "quantity": what,
                    "theorem": t.theorem(what),
                    "exponent": exponent.value,
                    "low": exponent.low,
                    "high": exponent.high,
                    "last_three": t.last_slope(what),
                    "ours": t.slope_of("ours", what),
                    "paper": t.slope_of("paper", what),
                }
            )
    return pd.DataFrame(rows)


def extremes_table(tracks: Sequence[Track]) -> pd.DataFrame:
    """A row a unit, walk and size: every quantity, measured and estimated."""
    rows = []
    for t in tracks:
        for i, (n, d) in enumerate(t.walk.sizes):
            row: dict[str, object] = {"unit": t.unit, "walk": t.walk.name, "n": n, "d": d}
            for what in WHAT:
                row |= interval_cells(what, t.mean(what, i))
                row |= {f"{what}_ours": t.ours[what][i], f"{what}_paper": t.paper[what][i]}
            rows.append(row)
    return pd.DataFrame(rows)


# ---- what it says


def verdict(theorem: float, ours: Slope) -> Verdict:
    """Reproduced where the theorem's exponent, as restored, lies in our interval or within NEAR of our value.

    An exponent of 0 says that a quantity stays, and its opposite that it grows as fast as what it is taken over.
    """
    return restored(number_verdict(theorem, float(theorem == 0), ours, NEAR))


def exponent_claim(t: Track, what: str) -> Claim:
    """The exponent of a quantity along a walk, beside that of the theorem."""
    ours, theorem = t.slope(what), t.theorem(what)
    return Claim(
        f"exponent of {WHAT[what]} of {t.name} {t.walk.words}",
        f"{theorem:d} ({RESTORED})",
        f"{ours.value:.2f}",
        verdict(theorem, ours),
        f"{t.walk.title}: {OVER_WIDTH[what]} goes from {t.mean(what, 0)} to {t.mean(what, -1)}; over the last three "
        f"sizes the exponent is {t.last_slope(what):.2f}. Our estimate has {t.slope_of('ours', what):.2f}, the "
        f"paper's {t.slope_of('paper', what):.2f}. {bend(t, what)}",
        slope_ends(ours),
        place=f"theorem 3.1, {WHAT[what]} of {t.name}, {t.walk.words}",
    )


def bend(t: Track, what: str) -> str:
    """What bends the curve away from the theorem's line."""
    if what == "lambda_max" and t.unit == "glu":
        return "Beside n/(4d) stand the diagonal and the end of the bulk, which do not grow: 1 + n/d is not n/d."
    if what == "lambda_max":
        return "The mean of the kernel, n/(2π), stands alone far above the bulk."
    (n, d), (last_n, last_d) = t.walk.sizes[0], t.walk.sizes[-1]
    return (
        f"The smallest eigenvalue belongs to short samples: the shortest has r²/d = {shortest(n, d):.2f} at the first "
        f"size and {shortest(last_n, last_d):.2f} at the last, where the paper puts 1; and n is "
        f"{2 * n / (d * (d + 1)):.2f} and {2 * last_n / (last_d * (last_d + 1)):.2f} of the d(d+1)/2 directions of the "
        "kernel's second degree, which lifts that eigenvalue less, the fuller it is."
    )


def constants_claim(tracks: Sequence[Track]) -> Claim:
    """n/(2 pi) and n/(4 d) beside the largest eigenvalues at the largest size in proportion."""
    plain, gated = (t for t in tracks if t.walk.name == "both")
    n, d = plain.walk.sizes[-1]
    leading = {plain: n / (2 * np.pi), gated: n / (4 * d)}
    ratios = [interval(t.values["lambda_max"][-1] / term) for t, term in leading.items()]
    parts = [
        f"{t.name} has {t.mean('lambda_max', -1)} where the leading term is {term:.3g}" for t, term in leading.items()
    ]
    return Claim(
        "λ_max/m over n/(2π) (ReLU) and n/(4d) (ReGLU), n and d in proportion",
        f"1, 1 ({RESTORED})",
        ", ".join(f"{ratio.value:.3g}" for ratio in ratios),
        restored(reproduced_if(all(abs(ratio.value - 1) <= NEAR for ratio in ratios))),
        f"n = {n}, d = {d}: {'; '.join(parts)}. At n/d = {n / d:g} what the theorem drops is "
        f"{ratios[1].value - 1:.2f} of what it keeps for ReGLU.",
        ", ".join(ratio.ends() for ratio in ratios),
        place="theorem 3.1, constants of λ_max",
    )


def estimate_claim(tracks: Sequence[Track], unit: str, what: str) -> Claim:
    """Prop. B.6 and B.9 at every size of every walk."""
    own = [t for t in tracks if t.unit == unit]
    measured = np.concatenate([np.exp(np.log(t.values[what]).mean(1)) for t in own])
    paper, ours = (np.concatenate([getattr(t, who)[what] for t in own]) / measured for who in ("paper", "ours"))
    sizes = [size for t in own for size in t.walk.sizes]
    low, high = sizes[int(np.argmin(paper))], sizes[int(np.argmax(paper))]
    return Claim(
        f"the paper's estimate of {WHAT[what]} over the measured, {PAPER_NAMES[unit]} (Prop. {PROPOSITIONS[what]})",
        "1, approximately (formula lost, restored)",
        f"{paper.min():.2f} to {paper.max():.2f}",
        restored(reproduced_if(close(paper))),
        f"{len(sizes)} sizes, least at n = {low[0]}, d = {low[1]} and most at n = {high[0]}, d = {high[1]}. Ours is "
        f"{ours.min():.2f} to {ours.max():.2f} times the measured. A match within {CLOSE:.0%} counts as close.",
        place=f"prop. {PROPOSITIONS[what]}, {PAPER_NAMES[unit]}",
    )


def notes(tracks: Sequence[Track], seeds: int) -> tuple[str, ...]:
    """What the exponents are, and where asymptotics begin."""
    gated = next(t for t in tracks if t.unit == "glu" and t.walk.name == "both")
    (n, d), (_, last_d) = gated.walk.sizes[0], gated.walk.sizes[-1]
    gamma = n // d
    far, farther = (estimate("glu", gamma * inputs, inputs).ours.condition for inputs in (FAR, 10 * FAR))
    return (
        f"Exponents are slopes of log-log lines through the medians of {seeds} seeds; intervals draw sizes and seeds, "
        "so that a curve that bends has a wide one. Kernels are K/m for m without end.",
        f"Where asymptotics begin: with n = {gamma}d the condition number of ReGLU, constant by the theorem, falls "
        f"from {gated.mean('condition', 0)} at d = {d} to {gated.mean('condition', -1)} at d = {last_d}; by our "
        f"estimate it is still {far:.2f} at d = {FAR} and {farther:.2f} at d = {10 * FAR}. Exponents at fixed d or n "
        "are those of their range.",
    )


# ---- figure


def draw(tracks: Sequence[Track], walks: Sequence[Walk], seeds: int) -> Figure:
    """A row a quantity and a column a walk; exponents stand above each panel."""
    with style():
        figure = new_figure(10.4, 10.0)
        panels = [list(map(Panel, row)) for row in figure.subplots(len(WHAT), len(walks))]
        for column, walk in enumerate(walks):
            for row, what in enumerate(WHAT):
                draw_quantity(panels[row][column], [t for t in tracks if t.walk == walk], what)
            panels[0][column].set(title=f"{walk.title}\n\n{panels[0][column].axes.get_title()}")
            panels[-1][column].set(xlabel=walk.axis)
        for row, words in enumerate(OVER_WIDTH.values()):
            panels[row][0].set(ylabel=words)
        unit = np.ones(1)
        entries = [
            Series(PAPER_NAMES[u], unit, unit, colour=look(u).colour, marker=look(u).marker, line="").entry()
            for u in UNITS
        ]
        entries += [
            Series("our estimate", unit, unit).entry(),
            Series("slope of Theorem 3.1", unit, unit, colour="black", line="--").entry(),
        ]
        figure_legend(figure, entries, ncols=4)
        figure.suptitle(
            f"Theorem 3.1: extreme eigenvalues and condition number, exponents above ({seeds} seeds, m → ∞)"
        )
    return figure


def draw_quantity(panel: Panel, tracks: Sequence[Track], what: str) -> None:
    """One quantity of both units along one walk: measured, our estimate, and the slope of the theorem."""
    x = tracks[0].walk.grown()
    series = []
    for t in tracks:
        shape = look(t.unit)
        value, low, high = interval_columns([interval(values) for values in t.values[what]])
        # The theorem has no constants for all six: its line starts where the measured curve ends.
        theorem = value[-1] * (x / x[-1]) ** t.theorem(what)
        series += [
            Series("", x, theorem, colour="black", line="--"),
            Series("", x, t.ours[what], colour=shape.colour),
            Series("", x, value, low=low, high=high, colour=shape.colour, marker=shape.marker, line=""),
        ]
    draw_series(panel, series)
    size_ticks(panel, x[::2])
    low_end, high_end = panel.axes.get_ylim()
    if high_end < 40 * low_end:
        plain_values(panel)
    panel.set(title="\n".join(f"{t.name} {t.slope(what)}".replace("-", "−") for t in tracks))


STUDY = Study(
    "ntk/thm31",
    "Exponents of the extreme eigenvalues",
    "λ_max grows like n for ReLU and like n/d for ReGLU, λ_min like 1 for both, so that κ is Θ(n) and Θ(n/d).",
    run,
    position=7,
)
