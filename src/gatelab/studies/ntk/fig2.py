"""Figure 2: the condition number against the input dimension: measured, the paper's estimate, ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import estimate
from gatelab.plotting import GREY, NEURON_COLOURS, Entry, Panel, Pen, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, legend_below, plain_values, size_ticks
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.ntk.gaussian import (
    CLOSE,
    NO_CAPTIONS,
    PAPER_NAMES,
    WIDTH,
    close,
    extremes_over_seeds,
    interval,
    interval_columns,
    samples,
)
from gatelab.studies.verdicts import reproduced_if, restored

UNITS = ("mlp", "glu")
SEEDS, MORE_SEEDS, FEW_ROWS, QUICK_SEEDS = 5, 20, 400, 3  # values vary most where rows are few, and cost least there
WHO = {"paper": "the paper's estimate", "ours": "our estimate"}
PAPER_WORDS = {"paper": "closely match (formulas lost, restored)", "ours": "-"}
LINES: dict[str, Literal["-", "--"]] = {"paper": "--", "ours": "-"}


@dataclass(frozen=True)
class Sizes:
    """What is measured: n fixed while d grows, and n in proportion to d."""

    rows: int
    inputs: tuple[int, ...]
    multiples: tuple[float, ...]
    sides: tuple[int, ...]

    @property
    def fixed(self) -> list[tuple[int, int]]:
        """(n, d) at the fixed n."""
        return [(self.rows, d) for d in self.inputs]

    @property
    def scaled(self) -> dict[float, list[tuple[int, int]]]:
        """(n, d) by n / d."""
        return {multiple: [(round(multiple * d), d) for d in self.sides] for multiple in self.multiples}

    @property
    def every(self) -> list[tuple[int, int]]:
        """Each (n, d) once."""
        return list(dict.fromkeys([*self.fixed, *(size for sizes in self.scaled.values() for size in sizes)]))

    def seeds(self, quick: bool) -> dict[int, int]:
        """How many draws there are, by n: more where rows are few."""
        if quick:
            return {n: QUICK_SEEDS for n, _ in self.every}
        return {n: SEEDS if n >= FEW_ROWS else MORE_SEEDS for n, _ in self.every}


FULL = Sizes(400, (50, 71, 100, 141, 200, 283, 400, 566, 800, 1600), (0.5, 1, 2, 4), (50, 100, 200, 400))
QUICK = Sizes(60, (20, 60), (2,), (20, 30))


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
    def measured(self) -> Interval:
        """The condition number over seeds."""
        return interval(self.condition)

    def ratio(self, who: str) -> float:
        """The estimate over the geometric mean of what was measured."""
        return getattr(self, who) / self.measured.value


def run(request: Request) -> Outcome:
    """Figure 2: condition numbers of ReLU and ReGLU at every size, beside both estimates."""
    sizes = FULL
    if request.quick:
        sizes = QUICK
    seeds = sizes.seeds(request.quick)
    tick = ticker(request, sum(seeds[n] for n, _ in sizes.every) + sum(seeds[n] for n, _ in sizes.fixed))
    cells = {(c.unit, c.n, c.d): c for n, d in sizes.every for c in measure(n, d, seeds[n], tick)}
    for n, d in sizes.fixed:
        cells |= {(c.unit, c.n, c.d): c for c in with_taylor([cells[unit, n, d] for unit in UNITS], tick)}
    across = {unit: [cells[unit, n, d] for n, d in sizes.fixed] for unit in UNITS}
    along = {unit: {k: [cells[unit, n, d] for n, d in part] for k, part in sizes.scaled.items()} for unit in UNITS}
    claims = [across_claim(across[unit], who) for who in WHO for unit in UNITS]
    claims += [taylor_claim(across[unit]) for unit in UNITS]
    claims += [worst_claim([c for part in along[unit].values() for c in part], who) for who in WHO for unit in UNITS]
    tables = {"conditions": conditions_table(list(cells.values()))}
    return Outcome(draw(across, along), tables, tuple(claims), notes(across, seeds))


def measure(n: int, d: int, seeds: int, tick: Callable[[], None]) -> list[EstimateCell]:
    """Both units at one size, a tick a seed."""
    cells = []
    for unit, extremes in zip(UNITS, extremes_over_seeds(UNITS, n, d, seeds, tick), strict=True):
        expected = estimate(unit, n, d, WIDTH)
        assert expected.paper is not None  # relu of order 0 and 1 is what the paper has
        cells.append(EstimateCell(unit, n, d, extremes.condition, expected.paper.condition, expected.ours.condition))
    return cells


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
    conditions = np.empty((len(cells), len(cells[0].condition)))
    for seed in range(conditions.shape[1]):
        for i, K in enumerate(taylor_forms(samples(cells[0].n, cells[0].d, seed), WIDTH)):
            values = np.linalg.eigvalsh(K)
            conditions[i, seed] = values[-1] / values[0]
        tick()
    return [replace(c, taylor=row) for c, row in zip(cells, conditions, strict=True)]


def conditions_table(cells: Sequence[EstimateCell]) -> pd.DataFrame:
    """A row a unit and size: the measured condition number, and both estimates."""
    rows = []
    for c in cells:
        taylor = None
        if c.taylor is not None:
            taylor = interval(c.taylor).value
        rows.append(
            {
                "unit": c.unit,
                "n": c.n,
                "d": c.d,
                "width": WIDTH,
                "condition": c.measured.value,
                "low": c.measured.low,
                "high": c.measured.high,
                "paper": c.paper,
                "ours": c.ours,
                "paper_over_measured": c.ratio("paper"),
                "ours_over_measured": c.ratio("ours"),
                "taylor": taylor,
                "seeds": len(c.condition),
            }
        )
    return pd.DataFrame(rows)


# ---- what it says


def verdict(cells: Sequence[EstimateCell], who: str) -> Verdict:
    """Whether the paper's estimates, restored, are close to what was measured at every size; ours are new."""
    if who == "ours":
        return "new"
    return restored(reproduced_if(close([c.ratio(who) for c in cells])))


def extreme_cells(cells: Sequence[EstimateCell], who: str) -> tuple[EstimateCell, EstimateCell]:
    """The cells where the estimate is the smallest and the largest part of what was measured."""
    return min(cells, key=lambda c: c.ratio(who)), max(cells, key=lambda c: c.ratio(who))


def across_claim(cells: Sequence[EstimateCell], who: str) -> Claim:
    """Over d at a fixed n."""
    low, high = extreme_cells(cells, who)
    first, last = cells[0], cells[-1]
    sizes = ", ".join(
        f"{c.measured} at d = {c.d} ({who} {getattr(c, who):.3g})" for c in (first, cells[len(cells) // 2], last)
    )
    return Claim(
        f"{WHO[who]} of κ over the measured, {PAPER_NAMES[first.unit]}, across d",
        PAPER_WORDS[who],
        f"{low.ratio(who):.2f} to {high.ratio(who):.2f}",
        verdict(cells, who),
        f"n = {first.n}, d = {first.d}..{last.d}: κ is {sizes}. {reason(cells, who)}",
        place=f"figure 2, {PAPER_NAMES[first.unit]}" * (who == "paper"),
    )


def taylor_claim(cells: Sequence[EstimateCell]) -> Claim:
    """The paper's estimate beside what the paper itself measured."""
    ratios = [c.paper / interval(c.taylor).value for c in cells if c.taylor is not None]
    exact = [interval(c.taylor / c.condition).value for c in cells if c.taylor is not None]
    return Claim(
        f"the paper's estimate of κ over that of its Taylor form, {PAPER_NAMES[cells[0].unit]}",
        PAPER_WORDS["paper"],
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        restored(reproduced_if(close(ratios))),
        f"Prop. B.1 keeps two terms of the series; its κ is {min(exact):.2f} to {max(exact):.2f} times that of the "
        f"kernel for n = {cells[0].n}, d = {cells[0].d}..{cells[-1].d}. The rest of the difference is that the "
        "estimate replaces lengths by their mean.",
        place=f"prop. B.1, {PAPER_NAMES[cells[0].unit]}",
    )


def worst_claim(cells: Sequence[EstimateCell], who: str) -> Claim:
    """Over n in proportion to d."""
    low, high = extreme_cells(cells, who)
    multiples = sorted({c.n / c.d for c in cells})
    inside = sum(abs(c.ratio(who) - 1) <= CLOSE for c in cells)
    return Claim(
        f"{WHO[who]} of κ over the measured, {PAPER_NAMES[cells[0].unit]}, n in proportion to d",
        PAPER_WORDS[who],
        f"{low.ratio(who):.2f} to {high.ratio(who):.2f}",
        verdict(cells, who),
        f"n = {multiples[0]:g} d..{multiples[-1]:g} d, d = {min(c.d for c in cells)}..{max(c.d for c in cells)}: "
        f"{inside} of {len(cells)} sizes are within {CLOSE:.0%}; the farthest below is n = {low.n}, d = {low.d} "
        f"(measured {low.measured}, estimated {getattr(low, who):.3g}), the farthest above n = {high.n}, d = {high.d}. "
        + reason(cells, who),
        place=f"figure 2, {PAPER_NAMES[cells[0].unit]}, n in proportion" * (who == "paper"),
    )


def reason(cells: Sequence[EstimateCell], who: str) -> str:
    """Why an estimate is near or far."""
    if who == "ours":
        return "Lengths of samples, all degrees of the kernel and the chance of the extremes are kept."
    many = [c.ratio("paper") for c in cells if c.n >= 2 * c.d]
    few = [c.ratio("paper") for c in cells if c.n < 2 * c.d]
    parts = [
        f"{np.min(ratios):.2f} to {np.max(ratios):.2f} {where}"
        for ratios, where in ((many, "for n >= 2d"), (few, "for n < 2d"))
        if ratios
    ]
    return (
        "The paper puts r_i^2 at its mean d, so that the shortest sample costs nothing: its ratio is "
        f"{' and '.join(parts)}."
    )


def notes(across: Mapping[str, Sequence[EstimateCell]], seeds: Mapping[int, int]) -> tuple[str, ...]:
    """What the intervals are, and how the two units compare at the fixed n."""
    ratios = [interval(p.condition / g.condition) for p, g in zip(*across.values(), strict=True)]
    first, last = across["mlp"][0], across["mlp"][-1]
    few, many = max(seeds.values()), min(seeds.values())
    numbers = f"{many}"
    if few != many:
        numbers = f"{few} seeds for n < {FEW_ROWS} and {many}"
    return (
        NO_CAPTIONS,
        f"Intervals are t-intervals of logarithms over {numbers} seeds, 95 %; both units see the same samples.",
        f"At n = {first.n} the condition number of ReLU is {ratios[0]} times that of ReGLU for d = {first.d} and "
        f"{ratios[-1]} times for d = {last.d}.",
    )


# ---- figure


def draw(
    across: Mapping[str, Sequence[EstimateCell]], along: Mapping[str, Mapping[float, Sequence[EstimateCell]]]
) -> Figure:
    """Above, condition numbers against d; below, estimates over measured with n in proportion to d."""
    rows = across["mlp"][0].n
    with style():
        figure = new_figure(9.4, 7.6)
        above, below = (list(map(Panel, row)) for row in figure.subplots(2, 2))
        for upper, lower, unit in zip(above, below, UNITS, strict=True):
            draw_conditions(upper, across[unit])
            upper.set(title=f"{PAPER_NAMES[unit]}, n = {rows}")
            draw_ratios(lower, along[unit])
            lower.set(title=f"{PAPER_NAMES[unit]}: estimates over measured (band: ± 25 %)")
        low, high = zip(*(panel.axes.get_ylim() for panel in below), strict=True)
        for panel in below:
            panel.set(ylim=(min(low), max(high)))
        figure.suptitle(f"Figure 2: condition number against input dimension (m = {WIDTH})")
    return figure


def draw_conditions(panel: Panel, cells: Sequence[EstimateCell]) -> None:
    """Condition numbers of one unit against d: measured, of the Taylor form, and both estimates."""
    d = np.array([c.d for c in cells], float)
    value, low, high = interval_columns([c.measured for c in cells])
    taylor = np.array([interval(c.taylor).value for c in cells if c.taylor is not None])
    shape = look(cells[0].unit)
    dots: dict[str, Any] = {"colour": shape.colour, "marker": shape.marker}
    series = [
        Series("the paper's estimate", d, np.array([c.paper for c in cells]), colour="black", line="--"),
        Series("our estimate", d, np.array([c.ours for c in cells]), colour="black", line="-"),
        Series("measured, Taylor form", d, taylor, **dots, line="", hollow=True),
        Series("measured", d, value, low, high, **dots, line=""),
    ]
    draw_series(panel, series)
    size_ticks(panel, [50, 100, 200, 400, 800, 1600] if len(cells) > 4 else list(d))
    if cells[0].unit == "glu" or max(high) < 20 * min(low):
        plain_values(panel)
    panel.set(xlabel="input dimension d", ylabel="condition number κ")
    legend_below(panel, [s.entry() for s in series])


def draw_ratios(panel: Panel, along: Mapping[float, Sequence[EstimateCell]]) -> None:
    """Estimates of one unit over what was measured, against d, a colour for each n / d."""
    panel.span("y", 1 - CLOSE, 1 + CLOSE, "#ececec", order=0)
    panel.rule("y", 1.0, Pen(GREY, width=0.7))
    entries = []
    d = np.array([c.d for c in next(iter(along.values()))], float)
    for colour, marker, (multiple, cells) in zip(NEURON_COLOURS, "osD^", along.items(), strict=False):
        for who in WHO:
            value = np.array([c.ratio(who) for c in cells])
            spread = [(c.measured.value / c.measured.high, c.measured.value / c.measured.low) for c in cells]
            low, high = (value * np.array(end) for end in zip(*spread, strict=True))
            curve = Series(
                f"n = {multiple:g} d",
                d,
                value,
                low=low,
                high=high,
                colour=colour,
                marker=marker,
                line=LINES[who],
                hollow=who == "paper",
            )
            draw_series(panel, [curve])
            if who == "ours":
                entries.append(curve.entry())
    size_ticks(panel, list(d))
    plain_values(panel, (1.0, 2.0, 3.0, 5.0, 7.0))
    panel.set(xlabel="input dimension d", ylabel="estimated κ / measured κ")
    entries += [Entry("ours", Pen("black")), Entry("the paper's", Pen("black", "--"))]
    legend_below(panel, entries, columns=3)


STUDY = Study(
    "ntk/fig2",
    "Condition number against input dimension",
    "The theoretical estimates closely match the numerically computed condition numbers across input dimensions.",
    run,
    position=2,
)
