"""Theorem 3.1: how the extreme eigenvalues and the condition number grow with n and with d, as measured exponents.

The theorem is for n and d in proportion. It is read three ways here: n grows at fixed d, d grows at fixed n, and both
grow in proportion, which alone is its own case. Kernels are those of the limit of great width, K/m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import chi2

from gatelab.arrays import Array
from gatelab.ntk import estimate
from gatelab.plotting import look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, plain_values, size_ticks
from gatelab.scaling_laws import Slope, local_slopes, slope
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.ntk.gaussian import PAPER_NAMES, Ends, ends, interval, table_claims
from gatelab.studies.progress import ticker
from gatelab.studies.verdicts import slope_ends

UNITS = ("mlp", "glu")
SEEDS, QUICK_SEEDS = 5, 3
FAR = 4000  # beyond what is measured: our estimate alone goes there
CLOSE = 0.25  # estimates as near as this match closely, as in figure 2
PROPOSITIONS = {"lambda_max": "Prop. B.6", "lambda_min": "Prop. B.9"}
NEAR = 0.15  # exponents as near as this agree: the theorem is about a limit, sizes are finite
WHAT = {"lambda_max": "λ_max", "lambda_min": "λ_min", "condition": "κ"}
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
        return np.array([n if self.name == "n" else d for n, d in self.sizes], float)

    def exponent(self, of: tuple[int, int]) -> int:
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

    def slope(self, what: str) -> Slope:
        """Of the medians over seeds; the bootstrap draws sizes and seeds, so that it covers a bend as well."""
        return slope(self.walk.grown(), self.values[what], aggregate="median")

    def slope_of(self, who: str, what: str) -> float:
        return slope(self.walk.grown(), getattr(self, who)[what]).value

    def last_slope(self, what: str) -> float:
        """Of the last three sizes: where the curve is going."""
        middle = np.exp(np.log(self.values[what]).mean(1))
        return float(local_slopes(self.walk.grown()[-3:], middle[-3:], window=3)[1])


def run(request: Request) -> Outcome:
    walks = QUICK_WALKS if request.quick else WALKS
    seeds = QUICK_SEEDS if request.quick else SEEDS
    sizes = list(dict.fromkeys(size for walk in walks for size in walk.sizes))
    tick = ticker(request, seeds * len(sizes))
    cells = {size: measure(*size, seeds, tick) for size in sizes}
    tracks = [_track(unit, walk, cells) for walk in walks for unit in UNITS]
    claims = [_claim(track, what) for track in tracks for what in WHAT]
    claims.append(_constants_claim(tracks))
    claims += [_estimate_claim(tracks, unit, what) for unit in UNITS for what in PROPOSITIONS]
    claims += table_claims(*walks[-1].sizes[-1], seeds)
    tables = {"exponents": _exponents(tracks), "extremes": _table(tracks)}
    return Outcome(_figure(tracks, walks, seeds), tables, tuple(claims), _notes(tracks, seeds))


@dataclass(frozen=True, eq=False)
class ExponentCell:
    measured: Ends
    ours: dict[str, float]
    paper: dict[str, float]


def measure(n: int, d: int, seeds: int, tick: Callable[[], None]) -> dict[str, ExponentCell]:
    """Both units at one size, in the limit of great width."""
    made = {}
    for unit, found in zip(UNITS, ends(UNITS, n, d, seeds, tick, width=None), strict=True):
        expected = estimate(unit, n, d)
        assert expected.paper is not None
        made[unit] = ExponentCell(
            found, *({w: getattr(kind, w) for w in WHAT} for kind in (expected.ours, expected.paper))
        )
    return made


def _track(unit: str, walk: Walk, cells: dict[tuple[int, int], dict[str, ExponentCell]]) -> Track:
    along = [cells[size][unit] for size in walk.sizes]
    values = {
        "lambda_max": np.stack([c.measured.largest for c in along]),
        "lambda_min": np.stack([c.measured.smallest for c in along]),
        "condition": np.stack([c.measured.condition for c in along]),
    }
    ours, paper = ({w: np.array([getattr(c, who)[w] for c in along]) for w in WHAT} for who in ("ours", "paper"))
    return Track(unit, walk, values, ours, paper)


# ---- figure


def _figure(tracks: Sequence[Track], walks: Sequence[Walk], seeds: int) -> Figure:
    with style():
        figure = new_figure(10.4, 10.0)
        panels = figure.subplots(len(WHAT), len(walks))
        for column, walk in enumerate(walks):
            mine = [t for t in tracks if t.walk == walk]
            for row, what in enumerate(WHAT):
                panel = panels[row][column]
                draw_series(panel, [s for t in mine for s in _series(t, what)])
                size_ticks(panel, walk.grown()[::2])
                low, high = panel.get_ylim()
                if high < 40 * low:
                    plain_values(panel)
                said = [f"{PAPER_NAMES[t.unit]} {t.slope(what)}".replace("-", "−") for t in mine]
                panel.set_title("\n".join([*([f"{walk.title}\n"] if row == 0 else []), *said]))
                if column == 0:
                    panel.set_ylabel(WHAT[what] + ("" if what == "condition" else "/m"))
            panels[-1][column].set_xlabel(walk.axis)
        one = np.ones(1)
        handles = [
            Series(PAPER_NAMES[u], one, one, colour=look(u).colour, marker=look(u).marker).handle() for u in UNITS
        ]
        for handle in handles:
            handle.set_linestyle("none")
        handles += [
            Series("our estimate", one, one).handle(),
            Series("slope of Theorem 3.1", one, one, colour="black", line="--").handle(),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        figure.suptitle(
            f"Theorem 3.1: extreme eigenvalues and condition number, exponents above ({seeds} seeds, m → ∞)"
        )
    return figure


def _series(track: Track, what: str) -> list[Series]:
    shape, x = look(track.unit), track.walk.grown()
    at = [interval(values) for values in track.values[what]]
    value, low, high = (np.array([getattr(i, name) for i in at]) for name in ("value", "low", "high"))
    # The theorem has no constants for all six: its line starts where the measured curve ends.
    theorem = value[-1] * (x / x[-1]) ** track.walk.exponent(THEOREM[track.unit, what])
    return [
        Series("", x, theorem, colour="black", line="--"),
        Series("", x, track.ours[what], colour=shape.colour),
        Series("", x, value, low, high, shape.colour, shape.marker, ""),
    ]


# ---- what it says


def verdict(theorem: float, ours: Slope) -> Verdict:
    """Reproduced where the theorem's exponent lies in our interval or within NEAR of our value."""
    inside = ours.low <= theorem <= ours.high
    return "reproduced" if inside or abs(ours.value - theorem) <= NEAR else "differs"


def _claim(track: Track, what: str) -> Claim:
    ours, walk = track.slope(what), track.walk
    theorem = walk.exponent(THEOREM[track.unit, what])
    first, last = (interval(track.values[what][i]) for i in (0, -1))
    return Claim(
        f"exponent of {WHAT[what]} of {PAPER_NAMES[track.unit]} {walk.words}",
        f"{theorem:d}",
        f"{ours.value:.2f}",
        verdict(theorem, ours),
        f"{walk.title}: {WHAT[what]}{'' if what == 'condition' else '/m'} goes from {first} to {last}; over the last "
        f"three sizes the exponent is {track.last_slope(what):.2f}. Our estimate has "
        f"{track.slope_of('ours', what):.2f}, the paper's {track.slope_of('paper', what):.2f}. {_why(track, what)}",
        slope_ends(ours),
    )


def _why(track: Track, what: str) -> str:
    """What bends the curve away from the theorem's line."""
    if what == "lambda_max" and track.unit == "glu":
        return "Beside n/(4d) stand the diagonal and the end of the bulk, which do not grow: 1 + n/d is not n/d."
    if what == "lambda_max":
        return "The mean of the kernel, n/(2π), stands alone far above the bulk."
    (n, d), (last_n, last_d) = track.walk.sizes[0], track.walk.sizes[-1]
    return (
        f"The smallest eigenvalue belongs to short samples: the shortest has r²/d = {shortest(n, d):.2f} at the first "
        f"size and {shortest(last_n, last_d):.2f} at the last, where the paper puts 1; and n is "
        f"{2 * n / (d * (d + 1)):.2f} and {2 * last_n / (last_d * (last_d + 1)):.2f} of the d(d+1)/2 directions of the "
        "kernel's second degree, which lifts that eigenvalue less, the fuller it is."
    )


def shortest(n: int, d: int) -> float:
    """The least r^2/d of n samples, the median over draws: from the distribution of chi^2."""
    return float(chi2.ppf(1 - 0.5 ** (1 / n), d)) / d


def _constants_claim(tracks: Sequence[Track]) -> Claim:
    """n/(2 pi) and n/(4 d) beside the largest eigenvalues at the largest size in proportion."""
    said = []
    for track in tracks:
        if track.walk.name == "both":
            n, d = track.walk.sizes[-1]
            leading = n / (2 * np.pi) if track.unit == "mlp" else n / (4 * d)
            said.append((track, leading, interval(track.values["lambda_max"][-1] / leading)))
    n, d = said[0][0].walk.sizes[-1]
    near = all(abs(ratio.value - 1) <= NEAR for _, _, ratio in said)
    return Claim(
        "λ_max/m over n/(2π) (ReLU) and n/(4d) (ReGLU), n and d in proportion",
        "1, 1",
        ", ".join(f"{ratio.value:.3g}" for _, _, ratio in said),
        "reproduced" if near else "differs",
        f"n = {n}, d = {d}: "
        + "; ".join(
            f"{PAPER_NAMES[t.unit]} has {interval(t.values['lambda_max'][-1])} where the leading term is {leading:.3g}"
            for t, leading, _ in said
        )
        + f". At n/d = {n / d:g} what the theorem drops is {said[1][2].value - 1:.2f} of what it keeps for ReGLU.",
        ", ".join(ratio.ends for _, _, ratio in said),
    )


def _estimate_claim(tracks: Sequence[Track], unit: str, what: str) -> Claim:
    """Prop. B.6 and B.9 at every size of every walk."""
    mine = [t for t in tracks if t.unit == unit]
    measured = np.concatenate([np.exp(np.log(t.values[what]).mean(1)) for t in mine])
    paper, ours = (np.concatenate([getattr(t, who)[what] for t in mine]) / measured for who in ("paper", "ours"))
    sizes = [size for t in mine for size in t.walk.sizes]
    low, high = (sizes[int(pick(paper))] for pick in (np.argmin, np.argmax))
    close = paper.min() >= 1 / (1 + CLOSE) and paper.max() <= 1 + CLOSE
    return Claim(
        f"the paper's estimate of {WHAT[what]} over the measured, {PAPER_NAMES[unit]} ({PROPOSITIONS[what]})",
        "1, approximately",
        f"{paper.min():.2f} to {paper.max():.2f}",
        "reproduced" if close else "differs",
        f"{len(sizes)} sizes, least at n = {low[0]}, d = {low[1]} and most at n = {high[0]}, d = {high[1]}. Ours is "
        f"{ours.min():.2f} to {ours.max():.2f} times the measured. A match within {CLOSE:.0%} counts as close.",
    )


def _exponents(tracks: Sequence[Track]) -> pd.DataFrame:
    rows = []
    for track in tracks:
        for what in WHAT:
            found = track.slope(what)
            rows.append(
                {
                    "unit": track.unit,
                    "walk": track.walk.title,
                    "quantity": what,
                    "theorem": track.walk.exponent(THEOREM[track.unit, what]),
                    "exponent": found.value,
                    "low": found.low,
                    "high": found.high,
                    "last_three": track.last_slope(what),
                    "ours": track.slope_of("ours", what),
                    "paper": track.slope_of("paper", what),
                }
            )
    return pd.DataFrame(rows)


def _table(tracks: Sequence[Track]) -> pd.DataFrame:
    rows = []
    for track in tracks:
        for i, (n, d) in enumerate(track.walk.sizes):
            row: dict[str, object] = {"unit": track.unit, "walk": track.walk.name, "n": n, "d": d}
            for what in WHAT:
                at = interval(track.values[what][i])
                row |= {what: at.value, f"{what}_low": at.low, f"{what}_high": at.high}
                row |= {f"{what}_ours": track.ours[what][i], f"{what}_paper": track.paper[what][i]}
            rows.append(row)
    return pd.DataFrame(rows)


def _notes(tracks: Sequence[Track], seeds: int) -> tuple[str, ...]:
    gated = next(t for t in tracks if t.unit == "glu" and t.walk.name == "both")
    first, last = (interval(gated.values["condition"][i]) for i in (0, -1))
    gamma = gated.walk.sizes[0][0] // gated.walk.sizes[0][1]
    far, farther = (estimate("glu", gamma * d, d).ours.condition for d in (FAR, 10 * FAR))
    return (
        f"Exponents are slopes of log-log lines through the medians of {seeds} seeds; intervals draw sizes and seeds, "
        "so that a curve that bends has a wide one. Kernels are K/m for m without end.",
        f"Where asymptotics begin: with n = {gamma}d the condition number of ReGLU, constant by the theorem, falls "
        f"from {first} at d = {gated.walk.sizes[0][1]} to {last} at d = {gated.walk.sizes[-1][1]}; by our estimate it "
        f"is still {far:.2f} at d = {FAR} and {farther:.2f} at d = {10 * FAR}. Exponents at fixed d or n are those of "
        "their range.",
    )


STUDY = Study(
    "ntk/thm31",
    "Exponents of the extreme eigenvalues",
    "λ_max grows like n for ReLU and like n/d for ReGLU, λ_min like 1 for both, so that κ is Θ(n) and Θ(n/d).",
    run,
    position=7,
)
