"""The condition number against the order q of the unit: a curve that the paper does not have.

The kernel of order q is (G/d)^q times that of order 0, elementwise and up to the width. Each order shrinks what is off
the diagonal by the cosine between samples, about d^-1/2, and spreads the diagonal, which goes with |x|^(2q+2). Samples
of unequal length therefore have a best order; of equal length the condition number falls to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.feedforward import Unit
from gatelab.ntk import analytic, estimate
from gatelab.plotting import GREY, NEURON_COLOURS, Entry, Panel, Pen, figure_legend, new_figure, style
from gatelab.plotting.kernels import Series, draw_series
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.gaussian import extremes, interval, interval_columns, samples

ORDERS = tuple(range(9))
GATES = ("relu", "gelu")
SIZES = ((400, 400), (400, 100), (400, 50), (200, 20))  # n, d
SEEDS, QUICK_SEEDS, QUICK_SIZES = 6, 3, ((60, 30),)
MARKERS = "osD^"
KINDS = {"Gaussian": "Gaussian samples", "normalised": "samples of length √d"}


@dataclass(frozen=True, eq=False)
class OrderCurve:
    """One gate on one kind of data: arrays are (orders, seeds).

    `condition` is lambda_max / lambda_min, `spread` the largest diagonal entry over the smallest, `off` the root mean
    square of the off-diagonal entries of the normalised kernel.
    """

    gate: str
    data: str
    n: int
    d: int
    condition: Array
    spread: Array
    off: Array
    estimated: Array | None

    @property
    def normalised(self) -> bool:
        """Whether all samples have the length sqrt(d)."""
        return self.data == "normalised"

    def mean(self, q: int) -> Interval:
        """The condition number at order q over seeds."""
        return interval(self.condition[q])

    @property
    def best(self) -> int:
        """The order of the least condition number, by the geometric mean over seeds."""
        return int(np.log(self.condition).mean(1).argmin())

    @property
    def agreed(self) -> int:
        """How many seeds have the same best order."""
        return int((self.condition.argmin(0) == self.best).sum())


def run(request: Request) -> Outcome:
    """Every order of two gates, on Gaussian samples and on samples of one length."""
    sizes, seeds = SIZES, SEEDS
    if request.quick:
        sizes, seeds = QUICK_SIZES, QUICK_SEEDS
    tick = ticker(request, len(GATES) * len(KINDS) * len(sizes) * seeds)
    curves = [measure(gate, data, n, d, seeds, tick) for gate in GATES for data in KINDS for n, d in sizes]
    claims = [best_claim(c) for c in curves if not c.normalised]
    claims += [fall_claim(c) for c in curves if c.normalised]
    return Outcome(draw(curves, seeds), {"orders": orders_table(curves)}, tuple(claims), notes(curves, seeds))


def measure(gate: str, data: str, n: int, d: int, seeds: int, tick: Callable[[], None]) -> OrderCurve:
    """All orders on the same samples, a seed at a time, in the limit of great width."""
    units = [Unit(gate, q) for q in ORDERS]
    condition, spread, off = np.empty((3, len(ORDERS), seeds))
    for seed in range(seeds):
        kernels = analytic(units, samples(n, d, seed, normalised=data == "normalised"))
        for q, kernel in enumerate(kernels):
            largest, smallest = extremes(kernel)
            diagonal = kernel.matrix.diagonal()
            root = diagonal.sqrt()
            entries = (kernel.matrix / (root[:, None] * root)).square().sum() - n
            condition[q, seed] = largest / smallest
            spread[q, seed] = float(diagonal.max() / diagonal.min())
            off[q, seed] = float((entries / (n * (n - 1))).sqrt())
        tick()
    estimated = None
    if gate == "relu" and data == "Gaussian":
        estimated = np.array([estimate(u, n, d).ours.condition for u in units])
    return OrderCurve(gate=gate, data=data, n=n, d=d, condition=condition, spread=spread, off=off, estimated=estimated)


def orders_table(curves: Sequence[OrderCurve]) -> pd.DataFrame:
    """A row a curve and order."""
    rows = []
    for c in curves:
        estimates = [None] * len(ORDERS) if c.estimated is None else list(c.estimated)
        for q, expected in zip(ORDERS, estimates, strict=True):
            mean = c.mean(q)
            rows.append(
                {
                    "gate": c.gate,
                    "data": c.data,
                    "n": c.n,
                    "d": c.d,
                    "order": q,
                    "condition": mean.value,
                    "low": mean.low,
                    "high": mean.high,
                    "diagonal_spread": interval(c.spread[q]).value,
                    "off_diagonal": float(c.off[q].mean()),
                    "estimate": expected,
                    "best": q == c.best,
                    "seeds": c.condition.shape[1],
                }
            )
    return pd.DataFrame(rows)


# ---- what it says


def best_claim(c: OrderCurve) -> Claim:
    """Where the least is, and by which of the two effects it rises to either side."""
    best, last = c.best, ORDERS[-1]
    spread = [interval(values).value for values in c.spread]
    seeds = c.condition.shape[1]
    between = interval(c.condition[1] / c.condition[2])
    share = c.mean(last).value / spread[last]
    theory = ""
    if c.estimated is not None:
        ratios = c.estimated / np.exp(np.log(c.condition).mean(1))
        theory = (
            f" Our estimate has the best order at q = {int(c.estimated.argmin())} and is {ratios.min():.2f} to "
            f"{ratios.max():.2f} times the measured κ over all orders."
        )
    return Claim(
        f"best order, {c.gate} gate, Gaussian samples, n = {c.n}, d = {c.d}",
        "-",
        f"q = {best}: κ = {c.mean(best).value:.3g} ({c.agreed} of {seeds} seeds)",
        "new",
        f"κ is {c.mean(0).value:.3g} at q = 0, {c.mean(1).value:.3g} at q = 1 ({between} times that at q = 2 on the "
        f"same samples) and {c.mean(last).value:.3g} at q = {last}. From q = 0 to {best} off-diagonal cosines fall "
        f"from {c.off[0].mean():.3f} to {c.off[best].mean():.3f}; the diagonal spreads {spread[0]:.2f} times at q = 0, "
        f"{spread[best]:.2f} at q = {best} and {spread[last]:.3g} at q = {last}, where κ is {share:.2f} times that: "
        f"beyond the best order the diagonal is all.{theory}",
        c.mean(best).ends(),
    )


def fall_claim(c: OrderCurve) -> Claim:
    """How near to 1 the condition number is at the highest order, where samples have one length."""
    last = ORDERS[-1]
    excess = interval(c.condition[last] - 1)
    conditions = np.exp(np.log(c.condition).mean(1))
    reach = f"is not below 1.1 up to q = {last}"
    if conditions.min() < 1.1:
        reach = f"is below 1.1 from q = {int(np.argmax(conditions < 1.1))} on"
    step = (c.off[last].mean() / c.off[1].mean()) ** (1 / (last - 1))
    return Claim(
        f"κ at q = {last} on samples of length √d, {c.gate} gate, n = {c.n}, d = {c.d}",
        "-",
        f"κ - 1 = {excess.value:.3g}",
        "new",
        f"With equal lengths the diagonal is constant and κ falls from {conditions[0]:.3g} at q = 0 over "
        f"{conditions[1]:.3g} at q = 1; it {reach}. The root mean square of the cosines between gradients falls "
        f"{1 / step:.1f} times with each order, from {c.off[1].mean():.3f} at q = 1 (d^-1/2 = {c.d**-0.5:.3f}).",
        excess.ends(),
    )


def notes(curves: Sequence[OrderCurve], seeds: int) -> tuple[str, ...]:
    """What the intervals are, and what all curves have in common."""
    gaussian = [c for c in curves if not c.normalised]
    orders = ", ".join(f"{c.gate} n = {c.n}, d = {c.d}: q = {c.best}" for c in gaussian)
    gains = [c.mean(0).value / c.mean(1).value for c in gaussian]
    after = [c.mean(1).value / c.mean(c.best).value for c in gaussian]
    cosine = [(1 / c.off[1] * c.off[2]).mean() * c.d**0.5 for c in gaussian]
    bests = " or ".join(map(str, sorted({c.best for c in gaussian})))
    return (
        f"Kernels are those of the limit of great width; intervals are t-intervals of logarithms over {seeds} seeds, "
        "95 %.",
        f"On Gaussian samples the best order is {bests} ({orders}). The first factor gains {min(gains):.0f} to "
        f"{max(gains):.0f} times in κ; where a second gains at all, it is up to {max(after):.2f} times.",
        f"From q = 1 to q = 2 off-diagonal cosines fall to {min(cosine):.2f} to {max(cosine):.2f} times d^-1/2 of what "
        "they were: an entry of G/d is of size d^-1/2, so q factors bring d^(-q/2), not d^-q.",
        "Samples of equal length, as layer normalisation makes them, take away what speaks against higher orders in κ.",
    )


# ---- figure


def draw(curves: Sequence[OrderCurve], seeds: int) -> Figure:
    """A row a gate, a column a kind of data."""
    with style():
        figure = new_figure(9.6, 7.4)
        for row, gate in zip(figure.subplots(2, 2), GATES, strict=True):
            for axes, (data, words) in zip(row, KINDS.items(), strict=True):
                draw_orders(Panel(axes), [c for c in curves if (c.gate, c.data) == (gate, data)])
                axes.set_title(f"{gate} gate, {words}")
        first = [c for c in curves if (c.gate, c.data) == (curves[0].gate, curves[0].data)]
        entries = [measured_series(c, i).entry() for i, c in enumerate(first)]
        entries += [
            Entry("diagonal alone: largest entry over smallest", Pen(GREY, ":")),
            Entry("our estimate (relu)", Pen(GREY, "--")),
            Entry("best order", Pen("black", "", marker="o", size=9, face="white", edge=0.9)),
        ]
        figure_legend(figure, entries, ncols=4)
        figure.suptitle(f"Condition number against the order q of the unit ({seeds} seeds, infinite width)")
    return figure


def draw_orders(panel: Panel, curves: Sequence[OrderCurve]) -> None:
    """The curves of one gate on one kind of data; on Gaussian samples with the diagonal alone and the best order."""
    q = np.array(ORDERS, float)
    for i, c in enumerate(curves):
        measured = measured_series(c, i)
        series = []
        if not c.normalised:
            series.append(Series("", q, np.exp(np.log(c.spread).mean(1)), colour=measured.colour, line=":"))
        if c.estimated is not None:
            series.append(Series("", q, c.estimated, colour=measured.colour, line="--"))
        draw_series(panel, [*series, measured], x_log=False)
        if not c.normalised:
            ring = Pen("black", "", marker="o", size=9, face="none")
            panel.line(c.best, measured.value[c.best], ring, order=5)
    panel.axes.set_xticks(list(ORDERS), ["0\nMLP", "1\nGLU", "2\nGQU", *map(str, ORDERS[3:])])
    panel.set(xlabel="order q: affine factors beside the gate", ylabel="condition number κ")
    if curves[0].normalised:
        panel.set(ylabel="condition number κ − 1")
        panel.rule("y", 1.0, Pen(GREY, width=0.6))


def measured_series(c: OrderCurve, number: int) -> Series:
    """kappa, or kappa - 1 on normalised samples, where it falls to 1; a curve beside an estimate has dots alone."""
    base = 0.0
    line: Literal["-", ""] = "-"
    if c.normalised:
        base = 1.0
    if c.estimated is not None:
        line = ""
    value, low, high = interval_columns([interval(values - base) for values in c.condition])
    return Series(
        f"n = {c.n}, d = {c.d}",
        np.array(ORDERS, float),
        value,
        low=low,
        high=high,
        colour=NEURON_COLOURS[number],
        marker=MARKERS[number],
        line=line,
    )


STUDY = Study(
    "ntk/orders",
    "The condition number against the order of the unit",
    "The paper has orders 0 (ReLU) and 1 (ReGLU) and nothing beyond.",
    run,
    position=8,
    beyond=True,
)
