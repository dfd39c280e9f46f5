"""Figure 2: the condition number against the input dimension: measured, the paper's estimate, ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import estimate
from gatelab.plotting import GREY, NEURON_COLOURS, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, legend_below, plain_values, size_ticks
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.ntk.gaussian import NO_CAPTIONS, PAPER_NAMES, WIDTH, LogInterval, ends, interval, samples
from gatelab.studies.progress import ticker

UNITS = ("mlp", "glu")
ROWS, INPUTS = 400, (50, 71, 100, 141, 200, 283, 400, 566, 800, 1600)
MULTIPLES, SIDES = (0.5, 1, 2, 4), (50, 100, 200, 400)
SEEDS, MORE_SEEDS, FEW_ROWS = 5, 20, 400  # chance is largest where rows are few, and rows cost least there
QUICK_ROWS, QUICK_INPUTS, QUICK_MULTIPLES, QUICK_SIDES, QUICK_SEEDS = 60, (20, 60), (2,), (20, 30), 3
CLOSE = 0.25  # estimates as near as this match closely


@dataclass(frozen=True, eq=False)
class EstimateCell:
    """One unit at one size: kappa of every seed, and what the two estimates say.

    `taylor` is kappa of the Taylor form of the kernel (Prop. B.1), which the paper measures instead of the kernel.
    """

    unit: str
    n: int
    d: int
    condition: Array
    paper: float
    ours: float
    taylor: Array | None = None

    @property
    def measured(self) -> LogInterval:
        return interval(self.condition)

    def ratio(self, who: str) -> float:
        """The estimate over the geometric mean of what was measured."""
        return getattr(self, who) / self.measured.value


def run(request: Request) -> Outcome:
    rows, inputs = (QUICK_ROWS, QUICK_INPUTS) if request.quick else (ROWS, INPUTS)
    multiples, sides = (QUICK_MULTIPLES, QUICK_SIDES) if request.quick else (MULTIPLES, SIDES)
    fixed = [(rows, d) for d in inputs]
    scaled = {multiple: [(round(multiple * d), d) for d in sides] for multiple in multiples}
    sizes = list(dict.fromkeys([*fixed, *(size for some in scaled.values() for size in some)]))
    seeds = {n: QUICK_SEEDS if request.quick else SEEDS if n >= FEW_ROWS else MORE_SEEDS for n, _ in sizes}
    tick = ticker(request, sum(seeds[n] for n, _ in sizes) + sum(seeds[n] for n, _ in fixed))
    cells = {(c.unit, c.n, c.d): c for n, d in sizes for c in measure(n, d, seeds[n], tick)}
    cells |= {(c.unit, c.n, c.d): c for n, d in fixed for c in with_taylor([cells[u, n, d] for u in UNITS], tick)}
    across = {unit: [cells[unit, n, d] for n, d in fixed] for unit in UNITS}
    along = {unit: {k: [cells[unit, n, d] for n, d in some] for k, some in scaled.items()} for unit in UNITS}
    claims = [claim(across[unit], who) for who in WHO for unit in UNITS]
    claims += [taylor_claim(across[unit]) for unit in UNITS]
    claims += [worst_claim([c for some in along[unit].values() for c in some], who) for who in WHO for unit in UNITS]
    tables = {"conditions": _table(list(cells.values()))}
    return Outcome(_figure(across, along), tables, tuple(claims), _notes(across, seeds))


def measure(n: int, d: int, seeds: int, tick: Callable[[], None]) -> list[EstimateCell]:
    found = ends(UNITS, n, d, seeds, tick)
    made = []
    for unit, each in zip(UNITS, found, strict=True):
        expected = estimate(unit, n, d, WIDTH)
        assert expected.paper is not None  # relu of order 0 and 1 is what the paper has
        made.append(EstimateCell(unit, n, d, each.condition, expected.paper.condition, expected.ours.condition))
    return made


def taylor_forms(x: Array, width: int) -> tuple[Array, Array]:
    """Prop. B.1: c1 G + c2 r r^T + c3 diag(r^2), and a1 (r r^T)*G + a2 G*G + a3 diag(r^4)."""
    d = x.shape[1]
    G = x @ x.T
    r = np.sqrt(np.diag(G))
    c1, c2 = (width + d) / (4 * d), width / (2 * np.pi * d)
    a1, a2 = (width + d) / (2 * np.pi * d * d), (width + 2 * d) / (4 * d * d)
    rr = np.outer(r, r)
    return c1 * G + c2 * rr + np.diag((c1 - c2) * r**2), a1 * rr * G + a2 * G * G + np.diag((a2 - a1) * r**4)


def with_taylor(cells: Sequence[EstimateCell], tick: Callable[[], None]) -> list[EstimateCell]:
    """The cells of one size with kappa of the Taylor forms on the same samples."""
    found = np.empty((len(cells), len(cells[0].condition)))
    for seed in range(found.shape[1]):
        for i, K in enumerate(taylor_forms(samples(cells[0].n, cells[0].d, seed), WIDTH)):
            values = np.linalg.eigvalsh(K)
            found[i, seed] = values[-1] / values[0]
        tick()
    return [replace(c, taylor=row) for c, row in zip(cells, found, strict=True)]


# ---- figure

WHO = {"paper": "the paper's estimate", "ours": "our estimate"}


def _figure(across: dict[str, list[EstimateCell]], along: dict[str, dict[float, list[EstimateCell]]]) -> Figure:
    rows = across["mlp"][0].n
    with style():
        figure = new_figure(9.4, 7.6)
        panels = figure.subplots(2, 2)
        for column, unit in enumerate(UNITS):
            _conditions(panels[0][column], across[unit])
            panels[0][column].set_title(f"{PAPER_NAMES[unit]}, n = {rows}")
            _ratios(panels[1][column], along[unit])
            panels[1][column].set_title(f"{PAPER_NAMES[unit]}: estimates over measured (band: ± 25 %)")
        low, high = zip(*(panel.get_ylim() for panel in panels[1]), strict=True)
        for panel in panels[1]:
            panel.set_ylim(min(low), max(high))
        figure.suptitle(f"Figure 2: condition number against input dimension (m = {WIDTH})")
    return figure


def _conditions(panel: Axes, cells: Sequence[EstimateCell]) -> None:
    d = np.array([c.d for c in cells], float)
    at = [c.measured for c in cells]
    colour, marker = look(cells[0].unit).colour, look(cells[0].unit).marker
    low, high = (np.array([getattr(i, end) for i in at]) for end in ("low", "high"))
    series = [
        Series("the paper's estimate", d, np.array([c.paper for c in cells]), colour="black", line="--"),
        Series("our estimate", d, np.array([c.ours for c in cells]), colour="black", line="-"),
        Series("measured, Taylor form", d, np.array([interval(c.taylor).value for c in cells if c.taylor is not None])),
        Series("measured", d, np.array([i.value for i in at]), low, high, colour, marker, ""),
    ]
    series[2] = replace(series[2], colour=colour, marker=marker, line="", hollow=True)
    draw_series(panel, series)
    size_ticks(panel, [50, 100, 200, 400, 800, 1600] if len(cells) > 4 else list(d))
    if cells[0].unit == "glu" or max(i.high for i in at) < 20 * min(i.low for i in at):
        plain_values(panel)
    panel.set_xlabel("input dimension d")
    panel.set_ylabel("condition number κ")
    legend_below(panel, [s.handle() for s in series])


def _ratios(panel: Axes, along: dict[float, list[EstimateCell]]) -> None:
    panel.axhspan(1 - CLOSE, 1 + CLOSE, color="#ececec", linewidth=0, zorder=0)
    panel.axhline(1.0, color=GREY, linewidth=0.7)
    handles = []
    d = np.array([c.d for c in next(iter(along.values()))], float)
    for colour, marker, (multiple, cells) in zip(NEURON_COLOURS, "osD^", along.items(), strict=False):
        for who in WHO:
            value = np.array([c.ratio(who) for c in cells])
            spread = [(c.measured.value / c.measured.high, c.measured.value / c.measured.low) for c in cells]
            low, high = (value * np.array(end) for end in zip(*spread, strict=True))
            one = Series(
                f"n = {multiple:g} d",
                d,
                value,
                low,
                high,
                colour,
                marker,
                "-" if who == "ours" else "--",
                who == "paper",
            )
            draw_series(panel, [one])
            if who == "ours":
                handles.append(one.handle())
    size_ticks(panel, list(d))
    plain_values(panel, (1.0, 2.0, 3.0, 5.0, 7.0))
    panel.set_xlabel("input dimension d")
    panel.set_ylabel("estimated κ / measured κ")
    handles += [
        Series("ours", d, d, colour="black").handle(),
        Series("the paper's", d, d, colour="black", line="--").handle(),
    ]
    legend_below(panel, handles, columns=3)


# ---- what it says


def _span(cells: Sequence[EstimateCell], who: str) -> tuple[EstimateCell, EstimateCell]:
    """The cells where the estimate is the smallest and the largest part of what was measured."""
    return min(cells, key=lambda c: c.ratio(who)), max(cells, key=lambda c: c.ratio(who))


def verdict(cells: Sequence[EstimateCell], who: str) -> Verdict:
    low, high = (c.ratio(who) for c in _span(cells, who))
    if who == "ours":
        return "new"
    return "reproduced" if low >= 1 / (1 + CLOSE) and high <= 1 + CLOSE else "differs"


def claim(cells: Sequence[EstimateCell], who: str) -> Claim:
    low, high = _span(cells, who)
    first, last = cells[0], cells[-1]
    sizes = ", ".join(
        f"{c.measured} at d = {c.d} ({who} {getattr(c, who):.3g})" for c in (first, cells[len(cells) // 2], last)
    )
    return Claim(
        f"{WHO[who]} of κ over the measured, {PAPER_NAMES[first.unit]}, across d",
        "closely match" if who == "paper" else "-",
        f"{low.ratio(who):.2f} to {high.ratio(who):.2f}",
        verdict(cells, who),
        f"n = {first.n}, d = {first.d}..{last.d}: κ is {sizes}. {_why(cells, who)}",
    )


def taylor_claim(cells: Sequence[EstimateCell]) -> Claim:
    """The paper's estimate beside what the paper itself measured."""
    off = [c.paper / interval(c.taylor).value for c in cells if c.taylor is not None]
    exact = [interval(c.taylor / c.condition).value for c in cells if c.taylor is not None]
    close = min(off) >= 1 / (1 + CLOSE) and max(off) <= 1 + CLOSE
    return Claim(
        f"the paper's estimate of κ over that of its Taylor form, {PAPER_NAMES[cells[0].unit]}",
        "closely match",
        f"{min(off):.2f} to {max(off):.2f}",
        "reproduced" if close else "differs",
        f"Prop. B.1 keeps two terms of the series; its κ is {min(exact):.2f} to {max(exact):.2f} times that of the "
        f"kernel for n = {cells[0].n}, d = {cells[0].d}..{cells[-1].d}. The rest of the difference is that the "
        "estimate replaces lengths by their mean.",
    )


def worst_claim(cells: Sequence[EstimateCell], who: str) -> Claim:
    """Over n in proportion to d."""
    low, high = _span(cells, who)
    multiples = sorted({c.n / c.d for c in cells})
    inside = sum(abs(c.ratio(who) - 1) <= CLOSE for c in cells)
    return Claim(
        f"{WHO[who]} of κ over the measured, {PAPER_NAMES[cells[0].unit]}, n in proportion to d",
        "closely match" if who == "paper" else "-",
        f"{low.ratio(who):.2f} to {high.ratio(who):.2f}",
        verdict(cells, who),
        f"n = {multiples[0]:g} d..{multiples[-1]:g} d, d = {min(c.d for c in cells)}..{max(c.d for c in cells)}: "
        f"{inside} of {len(cells)} sizes are within {CLOSE:.0%}; the farthest below is n = {low.n}, d = {low.d} "
        f"(measured {low.measured}, estimated {getattr(low, who):.3g}), the farthest above n = {high.n}, d = {high.d}. "
        + _why(cells, who),
    )


def _why(cells: Sequence[EstimateCell], who: str) -> str:
    if who == "ours":
        return "Lengths of samples, all degrees of the kernel and the chance of the extremes are kept."
    many = [c.ratio("paper") for c in cells if c.n >= 2 * c.d]
    few = [c.ratio("paper") for c in cells if c.n < 2 * c.d]
    said = "The paper puts r_i^2 at its mean d, so that the shortest sample costs nothing"
    parts = [
        f"{np.min(some):.2f} to {np.max(some):.2f} {where}"
        for some, where in ((many, "for n >= 2d"), (few, "for n < 2d"))
        if some
    ]
    return f"{said}: its ratio is {' and '.join(parts)}."


def _table(cells: Sequence[EstimateCell]) -> pd.DataFrame:
    rows = []
    for c in cells:
        at = c.measured
        rows.append(
            {
                "unit": c.unit,
                "n": c.n,
                "d": c.d,
                "width": WIDTH,
                "condition": at.value,
                "low": at.low,
                "high": at.high,
                "paper": c.paper,
                "ours": c.ours,
                "paper_over_measured": c.ratio("paper"),
                "ours_over_measured": c.ratio("ours"),
                "taylor": None if c.taylor is None else interval(c.taylor).value,
                "seeds": at.seeds,
            }
        )
    return pd.DataFrame(rows)


def _notes(across: dict[str, list[EstimateCell]], seeds: dict[int, int]) -> tuple[str, ...]:
    ratios = [interval(p.condition / g.condition) for p, g in zip(*across.values(), strict=True)]
    first, last = across["mlp"][0], across["mlp"][-1]
    few, many = max(seeds.values()), min(seeds.values())
    told = f"{many}" if few == many else f"{few} seeds for n < {FEW_ROWS} and {many}"
    return (
        NO_CAPTIONS,
        f"Intervals are t-intervals of logarithms over {told} seeds, 95 %; both units see the same samples.",
        f"At n = {first.n} the condition number of ReLU is {ratios[0]} times that of ReGLU for d = {first.d} and "
        f"{ratios[-1]} times for d = {last.d}.",
    )


STUDY = Study(
    "ntk/fig2",
    "Condition number against input dimension",
    "The theoretical estimates closely match the numerically computed condition numbers across input dimensions.",
    run,
    position=2,
)
