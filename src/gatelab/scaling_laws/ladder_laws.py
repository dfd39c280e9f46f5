"""What the losses of a ladder say: is a gate's gain an offset or an exponent, and how many parameters is it worth?

Three laws, each a case of the next, answer the first question: L = E + A P^-a alike for all units, with an amplitude A
for each unit (an **offset**: on logarithmic axes L - E is shifted), and with an exponent for each unit as well. E is
one for all: the loss that no size takes away with these data, this training and this context. It is a constant of the
fit, not of the text; more data or a longer training go below it. Units that differ by so many bits at every size, E
being each unit's own, follow neither law, and exponents of their own come near to them: so there is a law of such
**shifts** too. Exponents are said to differ where they are better than chance makes them beside it as well, and an
offset is called one where an E each is not better than it either.

**Least squares of losses, not of their logarithms.** The law is a sum, so that for given exponents E >= 0 and the A are
linear and drop out exactly (variable projection). A parabola through log L misses the bend that E makes, and a search
over all constants at once has to follow the long valley in which E, A and a trade places. Squares are weighed by what
seeds differ by, which is measured: their variance at each size, pooled over the units, and the correlation of the
losses that share a seed, whose common part says nothing of units (`ladder_losses.seed_noise`).

**No model is a power law to a hundredth of a nat.** Depth and width of a rung or a learning rate carried over move
all units of a rung together. What the rungs' means lie off the largest law, beyond what seeds explain, is taken
for the variance of a deviation that the units of a rung share, and enters the weights too (`loosened`). Without it a
common deviation of 0.02 nats halves the power of the tests. With it the test at 5 % rejected a true null hypothesis in
3 to 9 of a hundred made-up ladders of two and of six units, deviations of 0 to 0.02 nats among them.

**What the intervals hold.** Those over seeds redraw the seeds of each size with all their units. Three seeds have ten
such draws, which are too alike; so the deviations of all sizes, each over the spread of its size, are drawn from
together, made larger by as much as means of few seeds hide of them and by what Student's t asks for. They hold the luck
of training and nothing else. A second bootstrap redraws sizes: it shows how far the answer hangs on single rungs. Five
sizes have 126 such draws; 10 of a hundred leave two sizes or fewer and are drawn again, 48 leave three, which a law
meets exactly. Its ends are a warning and have no level.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Listener, ProgressLike, counted, one_line, part_of, reporting
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.scaling_laws.ladder_losses import (
    LEAST_SIZES,
    SIGNIFICANT,
    LadderAxis,
    LadderLosses,
    PlainResult,
    RankAgreement,
    SeedNoise,
    deviations,
    rank_agreement,
    read_ladder,
    seed_noise,
)
from gatelab.statistics import LEVEL, Interval, percentile_interval, resampled, t_reach

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LadderVerdict = Literal["exponent", "offset", "undecided"]
Trend = Literal["falling", "rising", "constant", "undecided"]
ALIKE = 0.1  # exponents that differ by less than a tenth are alike: k then changes by a factor of 1.26 a decade at most
EXPONENTS = np.geomspace(0.02, 4.0, 48)
_MOST_FACTOR = 1e6  # that is told: beyond it a law is flat
EXACT, ENOUGH = 1e-10, 1e-6  # the part of a misfit that a fit may be off, and one of many draws
AT_ONCE = 250  # draws that are fitted together
DRAWS, SIZE_DRAWS = 500, 300  # of seeds and tests, and of sizes, of which five have 126
TITLE_WIDTH = 88  # letters that a line above the figure holds
NOUNS: dict[LadderAxis, str] = {"parameters": "parameters", "flops": "FLOPs", "seconds": "seconds"}


@dataclass(frozen=True, eq=False)
class Cells:
    """The ladder as least squares takes it: one mean a unit and rung that are there.

    Attributes:
        unit: The place of each cell's unit.
        rung: The place of each cell's rung.
        log_size: The logarithm of the size over the geometric mean of all, `centre`.
        means: The generalised least-squares means over seeds; plain means where no seed is missing.
        root: A square root of the inverse covariance of the means.
        common: The standard deviation of what the units of a rung lie off the laws together, as `loosened` has it.
        weights: (cells, units, rungs, seeds), what the means are of the losses.
        centre: The size at which amplitudes are counted inside.
    """

    unit: NDArray[np.intp]
    rung: NDArray[np.intp]
    log_size: Array
    means: Array
    root: Array
    weights: Array
    centre: float
    common: float = 0.0

    @classmethod
    def of(cls, ladder: LadderLosses, noise: SeedNoise) -> Cells:
        """The cells of a ladder whose seeds scatter like that."""
        there = ladder.present
        unit, rung = np.nonzero(there.any(axis=2))
        ratio = noise.correlation / (1 - noise.correlation)
        precision = np.zeros((len(unit), len(unit)))
        weights = np.zeros((len(unit), *there.shape))
        for r in np.unique(rung):
            cells = np.flatnonzero(rung == r)
            own = noise.variance[r] * (1 - noise.correlation)
            for s in range(there.shape[2]):
                mask = there[unit[cells], r, s].astype(float)
                inverse = (np.diag(mask) - ratio / (1 + ratio * mask.sum()) * np.outer(mask, mask)) / own
                precision[np.ix_(cells, cells)] += inverse
                weights[cells[:, None], unit[cells], r, s] += inverse
        flat = np.asarray(np.linalg.solve(precision, weights.reshape(len(unit), -1)), np.float64)
        weights = flat.reshape(weights.shape)
        means = np.einsum("curs,urs->c", weights, np.where(there, ladder.losses, 0.0))
        logs = np.log(ladder.sizes[unit, rung])
        root = np.asarray(np.linalg.cholesky(precision).T, np.float64)
        return cls(unit, rung, logs - logs.mean(), means, root, weights, float(np.exp(logs.mean())))

    @property
    def units(self) -> int:
        """How many units there are."""
        return int(self.unit.max()) + 1


class Form(NamedTuple):
    """Which constants of the law each unit has for itself."""

    name: str
    own_amplitude: bool
    own_exponent: bool
    own_limit: bool = False

    def constants(self, units: int) -> int:
        """How many there are, E among them."""
        return sum(units if own else 1 for own in (self.own_limit, self.own_amplitude, self.own_exponent))


ALL_ALIKE, OFFSET, EXPONENT = Form("alike", False, False), Form("offset", True, False), Form("exponent", True, True)
FORMS = (ALL_ALIKE, OFFSET, EXPONENT)
SHIFT, SHIFT_AND_EXPONENT = Form("shift", False, False, True), Form("shift and exponent", False, True, True)
OFFSET_AND_SHIFT = Form("offset and shift", True, False, True)
TESTED = ((ALL_ALIKE, OFFSET), (OFFSET, EXPONENT), (SHIFT, SHIFT_AND_EXPONENT), (OFFSET, OFFSET_AND_SHIFT))


class Constants(NamedTuple):
    """Laws, a row each: E (rows,), the excess L - E at the cells' centre and the exponents (rows, units), misfits.

    Of forms with limits of their own E is (rows, units).
    """

    E: Array
    excess: Array
    exponent: Array
    misfit: Array

    def losses(self, cells: Cells) -> Array:
        """What the law of the first row says of the cells."""
        limits = np.broadcast_to(self.E[0], cells.units)[cells.unit]
        return limits + self.excess[0, cells.unit] * np.exp(-self.exponent[0, cells.unit] * cells.log_size)


class LinearPart(NamedTuple):
    """What is left of targets when E >= 0 and the amplitudes have been fitted, and how it moves with the exponents."""

    E: Array
    amplitude: Array
    rest: Array
    slope: Array  # (rows, cells, exponents): Kaufman's approximation, whose gradient is exact


def projected(cells: Cells, root: Array, targets: Array, form: Form, exponents: Array) -> LinearPart:
    """Fit what is linear. E is the last column: where it would be negative, the others' factors stay as they are.

    Limits of units' own are the last columns, and may be negative.
    """
    groups = cells.unit if form.own_exponent else np.zeros_like(cells.unit)
    power = np.exp(-exponents[:, groups] * cells.log_size)
    design, columns, count = linear_design(cells, form, power)
    places = np.arange(len(columns))
    Q, R = np.linalg.qr(root @ design)
    along = np.einsum("dnk,dn->dk", Q, targets)
    if not form.own_limit:
        negative = along[:, -1] * R[:, -1, -1] < 0
        along[negative, -1] = 0.0
        Q[negative, :, -1] = 0.0
    theta = np.linalg.solve(R, along[:, :, None])[:, :, 0]
    moved = np.zeros((len(exponents), len(places), exponents.shape[1]))
    moved[:, places, groups] = cells.log_size * power * theta[:, columns]
    moved = root @ moved
    slope = moved - Q @ (Q.transpose(0, 2, 1) @ moved)
    limits = theta[:, count:] if form.own_limit else theta[:, -1]
    return LinearPart(limits, theta[:, :count], targets - np.einsum("dnk,dk->dn", Q, along), slope)


def linear_design(cells: Cells, form: Form, power: Array) -> tuple[Array, NDArray[np.intp], int]:
    """For rows of powers (rows, cells) the columns of amplitudes and limits, which amplitude is whose, and how many."""
    amplitudes = cells.unit if form.own_amplitude else np.zeros_like(cells.unit)
    limits = cells.unit if form.own_limit else np.zeros_like(cells.unit)
    places, count = np.arange(len(cells.unit)), int(amplitudes.max()) + 1
    design = np.zeros((len(power), len(places), count + int(limits.max()) + 1))
    design[:, places, amplitudes], design[:, places, count + limits] = power, 1.0
    return design, amplitudes, count


def least_misfit(
    cells: Cells, root: Array, targets: Array, form: Form, starts: Array, *, tolerance: float = EXACT
) -> Constants:
    """Laws of the least squares about the starts (rows, exponents), by a damped Gauss-Newton method on the exponents.

    A step moves the logarithms of the exponents, by a factor of two at most, and none makes the misfit larger.
    """
    logs, live, damping = np.log(starts), np.arange(len(starts)), np.full(len(starts), 1e-3)
    roots = np.broadcast_to(root, (len(starts), *root.shape[-2:]))
    state = projected(cells, roots, targets, form, starts)
    misfit = np.square(state.rest).sum(axis=1)
    E, amplitude = state.E.copy(), state.amplitude.copy()
    for _ in range(60):
        slope = state.slope * np.exp(logs[live])[:, None, :]
        gradient = np.einsum("dnk,dn->dk", slope, state.rest)
        square = slope.transpose(0, 2, 1) @ slope
        k = np.arange(square.shape[1])
        size = square[:, k, k].copy()
        square[:, k, k] += damping[live][:, None] * size + 1e-12 * size.max(axis=1, keepdims=True) + 1e-300
        step = np.clip(-np.linalg.solve(square, gradient[:, :, None])[:, :, 0], -math.log(2), math.log(2))
        gain = -np.einsum("dk,dk->d", gradient, step)
        going = (gain > tolerance * (1 + misfit[live])) & (damping[live] < 1e6)
        live, step = live[going], step[going]
        if not len(live):
            break
        trial = np.clip(logs[live] + step, math.log(1e-3), math.log(20.0))
        ahead = projected(cells, roots[live], targets[live], form, np.exp(trial))
        reached = np.square(ahead.rest).sum(axis=1)
        better = reached < misfit[live]
        kept = LinearPart(*(part[going] for part in state))
        state = LinearPart(
            *(np.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in zip(ahead, kept, strict=True))
        )
        logs[live[better]], misfit[live[better]] = trial[better], reached[better]
        E[live[better]], amplitude[live[better]] = ahead.E[better], ahead.amplitude[better]
        damping[live] = np.where(better, np.maximum(damping[live] / 10, 1e-12), damping[live] * 5)
    shape = len(starts), cells.units
    return Constants(E, np.broadcast_to(amplitude, shape), np.broadcast_to(np.exp(logs), shape), misfit)


def fit_form(
    cells: Cells, targets: Array, form: Form, *, common: Constants | None = None, tolerance: float = EXACT
) -> Constants:
    """The law of the least squares for each row of whitened targets, from the best exponent of a grid.

    Exponents of their own start from the common one, and from the slopes of the units' curves over E = 0: where noise
    is as large as the differences, the former alone ends in a poorer minimum in 6 of a thousand cases.
    """
    fitted = common
    if fitted is None:
        shared = form._replace(own_exponent=False)
        starts = EXPONENTS[grid_misfits(cells, targets, shared).argmin(axis=0)][:, None]
        fitted = least_misfit(cells, cells.root, targets, shared, starts, tolerance=tolerance)
    if not form.own_exponent:
        return fitted
    logs = np.log(np.maximum(np.linalg.solve(cells.root, targets.T).T, 1e-12))
    x = np.where(cells.unit[:, None] == np.arange(cells.units), cells.log_size[:, None], np.nan)
    x -= np.nanmean(x, axis=0)
    plain = -(logs @ np.nan_to_num(x)) / np.nansum(x**2, axis=0)
    starts = np.stack((fitted.exponent, np.maximum(plain, 0.02)))
    return lowest(cells, cells.root, targets, form, starts, tolerance=tolerance)


def lowest(
    cells: Cells, root: Array, targets: Array, form: Form, starts: Array, *, tolerance: float = EXACT
) -> Constants:
    """Row by row, the law of the least misfit that some starts (starts, rows, exponents) lead to."""
    count, rows = starts.shape[:2]
    roots = np.broadcast_to(root, (count, rows, *root.shape[-2:])).reshape(-1, *root.shape[-2:])
    begin = starts.reshape(count * rows, -1)
    laws = least_misfit(cells, roots, np.tile(targets, (count, 1)), form, begin, tolerance=tolerance)
    best = laws.misfit.reshape(count, rows).argmin(axis=0) * rows + np.arange(rows)
    return Constants(*(part[best] for part in laws))


def grid_misfits(cells: Cells, targets: Array, form: Form) -> Array:
    """The misfits (exponents, rows) of laws with one exponent on a grid, E >= 0; one factorisation serves all rows."""
    design, _, _ = linear_design(cells, form, np.exp(-EXPONENTS[:, None] * cells.log_size))
    Q, R = np.linalg.qr(cells.root @ design)
    along = np.einsum("gnk,dn->gdk", Q, targets)
    if not form.own_limit:
        along[..., -1] *= along[..., -1] * R[:, -1, -1, None] > 0
    return np.square(targets).sum(axis=1) - np.square(along).sum(axis=2)


def loosened(cells: Cells) -> Cells:
    """The cells with weights that allow for what the units of a rung lie off the largest law together.

    Its variance is that of the rungs' mean residuals, with three of their degrees of freedom gone to E, A and a, less
    what seeds explain of it. Three rungs leave nothing to estimate it from, and nothing is allowed for.
    """
    law, precision = fit_form(cells, (cells.root @ cells.means)[None], EXPONENT), cells.root.T @ cells.root
    off = cells.means - law.losses(cells)
    rung = (np.unique(cells.rung)[:, None] == cells.rung).astype(float)
    weight = np.einsum("ri,ij,rj->r", rung, precision, rung)
    freedom = len(rung) - LEAST_SIZES
    if freedom < 1:
        return cells
    variance = np.square(rung @ (precision @ off) / weight).sum() / freedom - (1 / weight).mean()
    if variance <= 0:
        return cells
    covariance = np.linalg.inv(precision) + variance * (rung.T @ rung)
    return replace(cells, root=np.linalg.cholesky(np.linalg.inv(covariance)).T, common=math.sqrt(variance))


@dataclass(frozen=True)
class LadderLaw(PlainResult):
    """L = E + A P^-a of one form, fitted to a ladder. Amplitudes are far from the data; `excess` is L - E amid them.

    Attributes:
        form: "alike", "offset" or "exponent".
        units: Their names.
        E: What no size takes away, with its interval over seeds.
        exponent: Of each unit.
        amplitude: A of each unit, at size 1.
        excess: L - E of each unit at the size `centre`.
        centre: The geometric mean of all sizes.
        misfit: The sum of squares of the cells' means in units of what seeds, and rungs as a whole, do; `freedom` is
            expected where nothing else keeps the means off the law.
        freedom: The number of cells less that of constants.
    """

    form: str
    units: tuple[str, ...]
    E: Interval
    exponent: tuple[Interval, ...]
    amplitude: tuple[Interval, ...]
    excess: tuple[Interval, ...]
    centre: float
    misfit: float
    freedom: int

    def __repr__(self) -> str:
        exponents = ", ".join(f"{u} {a.value:.3f}" for u, a in zip(self.units, self.exponent, strict=True))
        if self.form != EXPONENT.name:
            exponents = f"{self.exponent[0]:.3f}"
        return one_line(self, f"{self.form}: E {self.E:.3f}, exponent {exponents}, misfit {self.misfit:.1f}")

    def predict(self, unit: str, size: Any) -> Any:
        """The law's loss of a unit at a size or an array of them."""
        u = self.units.index(unit)
        return self.E.value + self.excess[u].value * (np.asarray(size) / self.centre) ** -self.exponent[u].value

    def table(self) -> pd.DataFrame:
        """A row a unit, every constant with its interval."""
        import pandas as pd

        rows = []
        for u, unit in enumerate(self.units):
            row: dict[str, Any] = {"form": self.form, "unit": unit}
            for name in ("exponent", "amplitude", "excess", "E"):
                interval = self.E if name == "E" else getattr(self, name)[u]
                row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            rows.append(row)
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class NestedTest(PlainResult):
    """Whether a law with more constants is better than chance makes it: the F statistic, and where it would fall.

    Attributes:
        smaller: The form of the null hypothesis.
        larger: The form with more constants.
        statistic: The misfit that the larger takes away for each constant, over that which it leaves for each degree
            of freedom. What is left holds all that keeps the means off the law, and not the luck of seeds alone.
        p: The share of ladders made up under the smaller law, with normal noise, whose statistic is as large.
        draws: How many were made up.
    """

    TOLD: ClassVar[tuple[str, ...]] = ("decided",)

    smaller: str
    larger: str
    statistic: float
    p: float
    draws: int

    @property
    def decided(self) -> bool:
        """Whether the smaller law is rejected at 5 %, which happens in 5 % of the ladders that follow it."""
        return self.p <= SIGNIFICANT

    def __repr__(self) -> str:
        word = "rejected" if self.decided else "not rejected"
        return one_line(self, f"{self.smaller} against {self.larger}: F {self.statistic:.2f}, p {self.p:.3g}, {word}")

    def table(self) -> pd.DataFrame:
        """One row."""
        import pandas as pd

        return pd.DataFrame([self.plain()])


def nested_test(
    cells: Cells, smaller: Form, larger: Form, *, draws: int, seed: int, report: Listener | None = None
) -> NestedTest:
    """Hold two laws against each other; ladders are made up under the smaller one, scattered as widely as it leaves."""
    n, units = len(cells.unit), cells.units
    targets = (cells.root @ cells.means)[None]
    freedom = n - larger.constants(units)
    if freedom < 1:
        raise GatelabError(
            f"{n} cells do not hold {larger.constants(units)} constants and leave something over; give more sizes"
        )
    more = larger.constants(units) - smaller.constants(units)

    def statistic(rows: Array, tolerance: float) -> tuple[Array, Constants]:
        null = fit_form(cells, rows, smaller, tolerance=tolerance)
        common = null if larger.own_exponent else None
        free = fit_form(cells, rows, larger, common=common, tolerance=tolerance)
        gained = np.maximum(null.misfit - free.misfit, 0.0)
        return gained / more / np.maximum(free.misfit / freedom, 1e-300), null

    value, null = statistic(targets, EXACT)
    mean = null.losses(cells)
    spread = math.sqrt(null.misfit[0] / (n - smaller.constants(units)))
    generator, larger_ones = np.random.default_rng(seed), 0
    for first in range(0, draws, AT_ONCE):
        count = min(AT_ONCE, draws - first)
        made_up = cells.root @ mean + spread * generator.standard_normal((count, n))
        larger_ones += int((statistic(made_up, ENOUGH)[0] >= value[0]).sum())
        if report:
            report(first + count, draws)
    return NestedTest(smaller.name, larger.name, float(value[0]), (1 + larger_ones) / (1 + draws), draws)


@dataclass(frozen=True, eq=False)
class Redrawn:
    """The ladder's means (draws, cells) with other seeds, and the laws of the forms that were fitted to them."""

    means: Array
    laws: Mapping[str, Constants]


def seed_draws(
    ladder: LadderLosses,
    cells: Cells,
    *,
    draws: int,
    level: float = LEVEL,
    seed: int = 0,
    report: Listener | None = None,
) -> Redrawn:
    """Redraw seeds jointly for all units, and fit every form again, with the weights as they are."""
    parts: dict[str, list[Constants]] = {form.name: [] for form in FORMS}
    means, done = [], 0
    for off in redrawn_deviations(ladder, draws=draws, level=level, seed=seed):
        done += len(off)
        means.append(cells.means + np.einsum("curs,drsu->dc", cells.weights, off))
        targets = means[-1] @ cells.root.T
        alike, offset = (fit_form(cells, targets, form, tolerance=ENOUGH) for form in (ALL_ALIKE, OFFSET))
        own = fit_form(cells, targets, EXPONENT, common=offset, tolerance=ENOUGH)
        for form, laws in zip(FORMS, (alike, offset, own), strict=True):
            parts[form.name].append(laws)
        if report:
            report(done, draws)
    fitted = {name: Constants(*map(np.concatenate, zip(*rows, strict=True))) for name, rows in parts.items()}
    return Redrawn(np.concatenate(means), fitted)


def redrawn_deviations(ladder: LadderLosses, *, draws: int, level: float = LEVEL, seed: int = 0) -> Iterator[Array]:
    """What other seeds would add to the losses, (draws, rungs, seeds, units), a part of the draws at a time."""
    noise = seed_noise(ladder)
    pool = residual_pool(ladder, noise, seed)
    generator = np.random.default_rng((seed, 1))
    rungs, seeds = ladder.losses.shape[1:]
    # What the interval's level asks for with no more freedom than (seeds - 1) a rung.
    vectors = int(np.maximum(ladder.present.any(axis=0).sum(axis=1) - 1, 0).sum())
    reach = t_reach(level, max(vectors, 1)) / t_reach(level, 1e9)
    scale = reach * np.sqrt(noise.variance)[:, None, None]
    for first in range(0, draws, AT_ONCE):
        count = min(AT_ONCE, draws - first)
        yield pool[generator.integers(len(pool), size=(count, rungs, seeds))] * scale


def rank_units(
    ladder: LadderLosses, scores: Mapping[str, float], *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0
) -> RankAgreement:
    """Whether a score ranks units as their mean losses do, over the sizes that all of them have; no law is needed.

    Sizes count by the inverse of the variance of their seeds, as in `compare_ladder`.

    Args:
        ladder: the losses.
        scores: a number for each unit, such as a condition number or a slope; at least three units need one.
        draws: of the ladder's seeds.
        level: of the intervals.
        seed: of the draws.

    Returns:
        Spearman's correlation, positive where units of larger scores have larger losses.
    """
    common = [unit for unit in ladder.units if unit in scores and math.isfinite(scores[unit])]
    if len(common) < 3:
        raise GatelabError(
            f"{counted(len(common), 'unit')} of the ladder have a score; a rank correlation needs 3 or more of "
            f"{', '.join(ladder.units)}"
        )
    places = [ladder.index(unit) for unit in common]
    rungs = np.flatnonzero(ladder.present[places].any(axis=2).all(axis=0))
    if not len(rungs):
        raise GatelabError(f"no size is common to {', '.join(common)}; leave units out")
    # The mean of the seeds that are there, at each size, and of the sizes.
    there = ladder.present[places][:, rungs]
    weight = 1 / np.maximum(seed_noise(ladder).own_variance[rungs], 1e-300)
    share = there / there.sum(axis=2, keepdims=True) * (weight / weight.sum())[:, None]
    losses = np.where(there, ladder.losses[places][:, rungs], 0.0)
    means = (share * losses).sum(axis=(1, 2))
    parts = redrawn_deviations(ladder, draws=draws, level=level, seed=seed)
    drawn = np.concatenate([np.einsum("urs,drsu->du", share, off[:, rungs][..., places]) for off in parts])
    return rank_agreement(dict(zip(common, means.tolist(), strict=True)), means + drawn, scores, level)


def residual_pool(ladder: LadderLosses, noise: SeedNoise, seed: int) -> Array:
    """Deviations (vectors, units) of all rungs and seeds over the spread of their rung, scaled to variance 1.

    The deviation of a unit that lacks a seed which others have is one of all that there are, drawn by chance.
    """
    there = ladder.present
    n = there.sum(axis=2, keepdims=True)
    off = deviations(ladder) * np.sqrt(n / np.maximum(n - 1, 1)) / np.sqrt(noise.variance)[:, None]
    chosen = there.any(axis=0)
    vectors, gaps = off[:, chosen].T.copy(), ~there[:, chosen].T
    vectors[gaps] = np.random.default_rng((seed, 2)).choice(off[there], size=int(gaps.sum()))
    return vectors / math.sqrt(np.mean(vectors**2))


def size_draws(cells: Cells, laws: Mapping[str, Constants], *, draws: int, seed: int) -> Redrawn:
    """Redraw rungs, and fit every form again; draws that leave a unit fewer than three sizes are drawn again."""
    generator, rungs, counts = np.random.default_rng((seed, 3)), int(cells.rung.max()) + 1, []
    there = np.zeros((cells.units, rungs))
    there[cells.unit, cells.rung] = 1.0
    while sum(map(len, counts)) < draws:
        drawn = np.stack([np.bincount(row, minlength=rungs) for row in resampled(rungs, 2 * draws, generator)])
        counts.append(drawn[((drawn > 0).astype(float) @ there.T >= LEAST_SIZES).all(axis=1)])
        if not len(counts[0]):
            raise GatelabError("no draw of sizes leaves three of them to every unit; give units the same sizes")
    root = np.sqrt(np.concatenate(counts)[:draws, cells.rung])[:, :, None] * cells.root
    targets = root @ cells.means
    fitted = {}
    for form in FORMS:
        own = laws[form.name].exponent[0, : cells.units if form.own_exponent else 1]
        starts = np.stack([np.broadcast_to(begin, (draws, len(own))) for begin in (own, 0.1, 1.0)])
        fitted[form.name] = lowest(cells, root, targets, form, starts, tolerance=ENOUGH)
    return Redrawn(np.broadcast_to(cells.means, targets.shape), fitted)


@dataclass(frozen=True)
class Worth(PlainResult):
    """How many times larger the reference would have to be for the loss of a unit: k, by size.

    Attributes:
        unit: Whose losses are to be reached.
        reference: What would have to grow for it.
        against: What size is counted in.
        sizes: Those of the unit.
        factor: k at each of them, with intervals over seeds.
        extrapolated: Where the reference was not measured at such losses, and its last rung and exponent had to do.
        overall: The one factor of the law with one exponent, (A_reference / A_unit)^(1/a).
        overall_by_sizes: The same with the ends of the bootstrap over sizes.
        slope: d log k / d log size, of the line through all sizes.
    """

    TOLD: ClassVar[tuple[str, ...]] = ("trend", "sentence")

    unit: str
    reference: str
    against: LadderAxis
    sizes: tuple[float, ...]
    factor: tuple[Interval, ...]
    extrapolated: tuple[bool, ...]
    overall: Interval
    overall_by_sizes: Interval
    slope: Interval

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    @property
    def trend(self) -> Trend:
        """How k changes with size; constant where the slope is certainly within a tenth of 0."""
        if self.slope.excludes(0.0):
            return "falling" if self.slope.value < 0 else "rising"
        if self.slope.low >= -ALIKE and self.slope.high <= ALIKE:
            return "constant"
        return "undecided"

    @property
    def by_size(self) -> str:
        """The measured factors in percent, size by size."""
        pairs = zip(self.sizes, self.factor, strict=True)
        return ", ".join(f"{100 * (k.value - 1):+.0f} % {percent_ends(k)} at {size_words(size)}" for size, k in pairs)

    @property
    def sentence(self) -> str:
        """The answer in words, with as much of it as is decided."""
        noun, trend = NOUNS[self.against], self.trend
        amount = f"{more_or_fewer(self.overall.value)} {noun} than {self.reference} {percent_ends(self.overall)}"
        if trend in ("falling", "rising"):
            text = f"{self.unit} is worth, in {noun} of {self.reference}, {self.by_size}: {trend} with size"
        elif not self.overall.excludes(1.0):
            if max(self.overall.high, 1 / self.overall.low) > 0.99 * _MOST_FACTOR:
                amount = "curves as flat as these tell no number"
            text = f"whether {self.unit} is worth more or fewer {noun} than {self.reference} is undecided: {amount}"
        elif trend == "constant":
            text = f"{self.unit} is worth {amount}, at every size"
        else:
            text = f"{self.unit} is worth {amount} over all sizes; whether that changes with size is undecided"
        beyond = [size_words(size) for size, far in zip(self.sizes, self.extrapolated, strict=True) if far]
        if beyond:
            text += f" (at {', '.join(beyond)} by extrapolation of {self.reference})"
        return text

    def table(self) -> pd.DataFrame:
        """A row a size: k with its interval, and in percent."""
        import pandas as pd

        rows = [
            {
                self.against: size,
                "factor": k.value,
                "low": k.low,
                "high": k.high,
                "percent": 100 * (k.value - 1),
                "extrapolated": far,
            }
            for size, k, far in zip(self.sizes, self.factor, self.extrapolated, strict=True)
        ]
        return pd.DataFrame(rows)


def size_words(size: float) -> str:
    """A size to two digits, in millions where that is what one says.

    >>> size_words(401408), size_words(25690112), size_words(1.5e16), size_words(83.1)
    ('0.4M', '26M', '1.5e+16', '83')
    """
    if 1e4 <= size < 1e9:
        return f"{size / 1e6:.2g}M"
    return f"{size:.2g}"


def more_or_fewer(factor: float) -> str:
    """A factor in percent and words.

    >>> more_or_fewer(1.23), more_or_fewer(0.9)
    ('23 % more', '10 % fewer')
    """
    percent = 100 * (factor - 1)
    return f"{abs(percent):.0f} % {'more' if percent >= 0 else 'fewer'}"


def percent_ends(factor: Interval) -> str:
    """The ends of a factor's interval in percent.

    >>> percent_ends(Interval(1.23, 1.15, 1.32))
    '[15, 32]'
    """
    return Interval(*(100 * (end - 1) for end in (factor.value, factor.low, factor.high))).ends(".0f")


def log_factors(log_sizes: Array, losses: Array, curve: tuple[Array, Array], E: Array, exponent: Array) -> Array:
    """log k (rows, sizes): how far along the reference's curve (log sizes, losses) each loss lies.

    The curve is taken as lines of log(L - E) against log size, which the law says it is: no bend is cut off between
    rungs. Beyond its ends it goes on with the exponent. Where the reference's losses do not fall, the mean of the two
    nearest curves that do stands for them: the least so far, and the largest still to come.
    """
    x, heights = curve
    falling = 0.5 * (np.minimum.accumulate(heights, axis=1) + np.maximum.accumulate(heights[:, ::-1], axis=1)[:, ::-1])
    z, wanted = (np.log(np.maximum(part - E[:, None], 1e-9)) for part in (falling, losses))
    left = np.clip((z[:, None, :] > wanted[:, :, None]).sum(axis=2) - 1, 0, len(x) - 2)
    z_left, z_right = np.take_along_axis(z, left, axis=1), np.take_along_axis(z, left + 1, axis=1)
    share = (z_left - wanted) / np.maximum(z_left - z_right, 1e-12)
    inside = x[left] + np.clip(share, 0.0, 1.0) * (x[left + 1] - x[left])
    above, below = np.maximum(wanted - z[:, :1], 0.0), np.maximum(z[:, -1:] - wanted, 0.0)
    return inside - above / exponent[:, None] + below / exponent[:, None] - log_sizes


def factor_interval(log_factor: float, drawn: Array, level: float = LEVEL) -> Interval:
    """A factor with the percentiles of what was drawn for it, all given as logarithms.

    Factors are told between 1e-6 and 1e6. A draw that tells nothing, nan, counts against both ends.

    >>> print(factor_interval(0.0, np.log([0.5, 1.0, 2.0, 4.0]), level=0.5))
    1 [0.875, 2.5]
    >>> print(factor_interval(0.0, np.array([0.0, np.nan, np.nan, 900.0])))
    1 [1e-06, 1e+06]
    """
    most = math.log(_MOST_FACTOR)

    def factors(worst: float) -> Array:
        return np.exp(np.clip(np.where(np.isnan(drawn), worst, drawn), -most, most))

    value = float(np.exp(np.clip(log_factor, -most, most)))
    low, high = (percentile_interval(value, factors(worst), level) for worst in (-most, most))
    return replace(low, high=high.high)


@dataclass(frozen=True, eq=False, repr=False)
class LadderLaws(PlainResult):
    """What a ladder says: the three laws, their tests, and the answer.

    Attributes:
        losses: What was measured.
        laws: The laws by form: alike, offset, exponent.
        units_differ: The test of one law for all against an amplitude each.
        exponents_differ: The test of one exponent against one each.
        beyond_shifts: The same where each unit has an E of its own and all have one amplitude.
        limits_differ: The test of one E against one each, where each unit has an amplitude of its own.
        ratio: Of each unit's own exponent to the geometric mean of all, over seeds. E moves all exponents together
            and these hardly.
        ratio_by_sizes: The same with the ends of the bootstrap over sizes.
        common_misfit: The standard deviation of what the units of a rung lie off the laws together, in the loss's unit.
        level: Of all intervals.
        cells: The means that the laws were fitted to.
        constants: The laws as rows of arrays.
        seed_draws: Means and laws with other seeds.
        size_draws: Laws with other sizes.
    """

    TOLD: ClassVar[tuple[str, ...]] = ("verdict", "sentence")

    losses: LadderLosses
    laws: Mapping[str, LadderLaw]
    units_differ: NestedTest
    exponents_differ: NestedTest
    beyond_shifts: NestedTest
    limits_differ: NestedTest
    ratio: tuple[Interval, ...]
    ratio_by_sizes: tuple[Interval, ...]
    common_misfit: float
    level: float
    cells: Cells = field(repr=False, compare=False)
    constants: Mapping[str, Constants] = field(repr=False, compare=False)
    seed_draws: Redrawn = field(repr=False, compare=False)
    size_draws: Redrawn = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    @property
    def verdict(self) -> LadderVerdict:
        """Exponent where one exponent is rejected, beside an amplitude each and beside an E each.

        Offset where amplitudes are enough, neither an exponent each nor an E each being better, units differ and
        exponents are alike: the interval of every unit's lies within a tenth of their mean. (That one exponent is
        rejected beside an E each and one amplitude is no sign against an offset, which that law does not hold.) What
        else there is is undecided.
        """
        if self.exponents_differ.decided:
            return "exponent" if self.beyond_shifts.decided else "undecided"
        alike = all(r.low >= 1 / (1 + ALIKE) and r.high <= 1 + ALIKE for r in self.ratio)
        if alike and self.units_differ.decided and not self.limits_differ.decided:
            return "offset"
        return "undecided"

    @property
    def sentence(self) -> str:
        """The answer in words."""
        spread = f"ratios of exponents {min(r.low for r in self.ratio):.2f} to {max(r.high for r in self.ratio):.2f}"
        p = f"p {self.exponents_differ.p:.2g}"
        shifts = f"p {self.beyond_shifts.p:.2g}"
        if self.verdict == "exponent":
            return f"units differ in their exponents ({p}, beside an E each {shifts}; {spread})"
        if self.exponents_differ.decided:
            return (
                f"units differ by no factor of {NOUNS[self.losses.against]} ({p}): in their exponents or by as much "
                f"at every size, which is undecided ({shifts}; {spread})"
            )
        if self.verdict == "offset":
            return f"units differ by an offset: one exponent is enough ({p}; {spread})"
        if self.limits_differ.decided:
            return f"units differ by no offset alone: an E each is better (p {self.limits_differ.p:.2g}; {spread})"
        if not self.units_differ.decided:
            return f"no difference of the units is decided (p {self.units_differ.p:.2g}; {spread})"
        return f"units differ; whether in their exponents is undecided ({p}; {spread})"

    def table(self) -> pd.DataFrame:
        """A row a form and unit with all constants; of the form "exponent" also the ratios of exponents."""
        import pandas as pd

        frame = pd.concat([law.table() for law in self.laws.values()], ignore_index=True)
        own = frame["form"] == EXPONENT.name
        columns = {
            "ratio": [r.value for r in self.ratio],
            "ratio_low": [r.low for r in self.ratio],
            "ratio_high": [r.high for r in self.ratio],
            "ratio_low_by_sizes": [r.low for r in self.ratio_by_sizes],
            "ratio_high_by_sizes": [r.high for r in self.ratio_by_sizes],
        }
        for name, values in columns.items():
            frame.loc[own, name] = values
        return frame

    def mean(self, unit: str) -> tuple[Array, tuple[Interval, ...]]:
        """The sizes of a unit and its mean losses there, with intervals over seeds."""
        mine = self._cells_of(unit)
        drawn = self.seed_draws.means[:, mine]
        losses = [percentile_interval(float(self.cells.means[c]), drawn[:, i], self.level) for i, c in enumerate(mine)]
        return np.exp(self.cells.log_size[mine]) * self.cells.centre, tuple(losses)

    def _cells_of(self, unit: str) -> NDArray[np.intp]:
        """The cells of a unit, from the smallest size on."""
        mine = np.flatnonzero(self.cells.unit == self.losses.index(unit))
        return mine[np.argsort(self.cells.log_size[mine], kind="stable")]

    def worth(self, unit: str, reference: str) -> Worth:
        """How many times larger the reference would have to be for the unit's losses, by size and over all.

        Args:
            unit: whose losses are to be reached.
            reference: what would have to grow; its curve is interpolated as `log_factors` says, with the E and the
                exponent of the law that gives each unit its own.

        Returns:
            The factors, their trend and a sentence.
        """
        mine, other = self._cells_of(unit), self._cells_of(reference)
        u, v, x = self.losses.index(unit), self.losses.index(reference), self.cells.log_size

        def factors(means: Array, laws: Constants) -> Array:
            return log_factors(x[mine], means[:, mine], (x[other], means[:, other]), laws.E, laws.exponent[:, v])

        value = factors(self.cells.means[None], self.constants[EXPONENT.name])[0]
        drawn = factors(self.seed_draws.means, self.seed_draws.laws[EXPONENT.name])
        weights = 1 / np.maximum(drawn.var(axis=0), 1e-12)
        dx = x[mine] - float(weights @ x[mine] / weights.sum())
        slopes = np.concatenate((value[None], drawn)) @ (weights * dx) / (weights @ dx**2)
        reached = value + x[mine]
        far = (reached < x[other].min() - 1e-9) | (reached > x[other].max() + 1e-9)

        def overall(laws: Constants) -> Array:
            """Logarithms of the factor; no number where a law has the unit or the reference below its own limit."""
            mine_left, other_left = laws.excess[:, u], laws.excess[:, v]
            told = (mine_left > 0) & (other_left > 0)
            ratio = np.where(told, other_left, 1.0) / np.where(told, mine_left, 1.0)
            return np.where(told, np.log(ratio) / laws.exponent[:, u], np.nan)

        factor = float(overall(self.constants[OFFSET.name])[0])
        return Worth(
            unit=unit,
            reference=reference,
            against=self.losses.against,
            sizes=tuple((np.exp(x[mine]) * self.cells.centre).tolist()),
            factor=tuple(factor_interval(float(value[i]), drawn[:, i], self.level) for i in range(len(mine))),
            extrapolated=tuple(far.tolist()),
            overall=factor_interval(factor, overall(self.seed_draws.laws[OFFSET.name]), self.level),
            overall_by_sizes=factor_interval(factor, overall(self.size_draws.laws[OFFSET.name]), self.level),
            slope=percentile_interval(float(slopes[0]), slopes[1:], self.level),
        )

    def rank_agreement(self, scores: Mapping[str, float]) -> RankAgreement:
        """Whether another score ranks the units as their losses do.

        Args:
            scores: a number for each unit, such as a condition number or a slope; at least three units need one.

        Returns:
            Spearman's correlation, positive where units of larger scores have larger losses.
        """
        return rank_units(self.losses, scores, draws=len(self.seed_draws.means), level=self.level)

    def plot(
        self, path: str | Path | None = None, *, reference: str | None = None, loss: str = "nats", ax: Any = None
    ) -> Figure:
        """Losses against size with the laws, and what each unit is worth beside the reference.

        Args:
            path: where to write the figure (.png, .svg or .pdf), if anywhere.
            reference: the unit that others are held against; the first by default.
            loss: what the loss is counted in.
            ax: two of matplotlib's axes to draw into.

        Returns:
            The figure.
        """
        from gatelab.plotting import saved
        from gatelab.plotting.curves import LadderCurve, ladder_figure

        beside = reference or self.losses.units[0]
        self.losses.index(beside)
        law = self.laws[EXPONENT.name if self.exponents_differ.decided else OFFSET.name]
        curves = []
        for unit in self.losses.units:
            sizes, losses = self.mean(unit)
            worth = None if unit == beside else self.worth(unit, beside)
            curves.append(
                LadderCurve(
                    label=unit,
                    sizes=sizes,
                    losses=_columns(losses),
                    law=lambda x, unit=unit: law.predict(unit, x),
                    percent=None if worth is None else 100 * (_columns(worth.factor) - 1),
                    extrapolated=None if worth is None else np.array(worth.extrapolated),
                )
            )
        figure = ladder_figure(
            curves,
            against=NOUNS[self.losses.against],
            loss_label=f"test loss, {loss}",
            floor=law.E.value,
            reference=beside,
            title=textwrap.fill(self.sentence, TITLE_WIDTH),
            ax=ax,
        )
        return saved(figure, path)


def _columns(intervals: Sequence[Interval]) -> Array:
    """Values, low and high ends as rows."""
    return np.array([(i.value, i.low, i.high) for i in intervals]).T


def fit_ladder(
    table: LadderLosses | pd.DataFrame | Mapping[str, Any],
    *,
    against: LadderAxis = "parameters",
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
    progress: ProgressLike = None,
) -> LadderLaws:
    """Fit the three laws of a ladder, test them against each other, and say which of them its losses ask for.

    Args:
        table: the losses, or a table or mapping of columns that `read_ladder` takes: unit, parameters, seed, loss,
            and where there are, flops, seconds, diverged, rung.
        against: the column that the laws are in; losses that are given have theirs.
        draws: how many ladders each of the tests and bootstraps draws; the least p is 1 / (1 + draws).
        level: of the intervals.
        seed: of the draws.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total) draws.

    Returns:
        The laws with intervals, the tests and the verdict; `worth`, `rank_agreement` and `plot` go on from there.

    >>> P, truth = np.geomspace(4e5, 2.5e7, 5), {"gelu": 1.0, "swiglu": 0.9}
    >>> grid = [(u, p, s) for u in truth for p in P for s in range(3)]
    >>> noise = 0.002 * np.random.default_rng(1).standard_normal(len(grid))
    >>> loss = [0.8 + 29 * truth[u] * p**-0.28 + e for (u, p, s), e in zip(grid, noise)]
    >>> columns = dict(zip(("unit", "parameters", "seed"), zip(*grid))) | {"loss": loss}
    >>> laws = fit_ladder(columns, draws=200)
    >>> laws.verdict, laws.worth("swiglu", "gelu").trend
    ('offset', 'constant')
    """
    ladder = table
    if not isinstance(ladder, LadderLosses):
        ladder = read_ladder(ladder, against=against)
    whole_number("draws", draws, 20)
    check_seed(seed)
    if not 0 < level < 1:
        raise GatelabError(f"level is {level}; give a share between 0 and 1, such as 0.95")
    if len(ladder.units) < 2:
        raise GatelabError(
            f"the ladder has {', '.join(ladder.units)} alone; laws are compared between two units or more"
        )
    cells = loosened(Cells.of(ladder, seed_noise(ladder)))
    fitted = {form.name: fit_form(cells, (cells.root @ cells.means)[None], form) for form in FORMS}
    for unit, excess in zip(ladder.units, fitted[EXPONENT.name].excess[0], strict=True):
        if excess <= 0:
            raise GatelabError(f"the loss of {unit} does not fall with size, so that it has no law; leave it out")
    with reporting(progress, "laws of the ladder") as report:
        by_seeds = seed_draws(
            ladder, cells, draws=draws, level=level, seed=seed, report=part_of(report, 0, 1 + len(TESTED))
        )
        tests = [
            nested_test(cells, small, large, draws=draws, seed=seed, report=part_of(report, 1 + i, 1 + len(TESTED)))
            for i, (small, large) in enumerate(TESTED)
        ]
        by_sizes = size_draws(cells, fitted, draws=min(draws, SIZE_DRAWS), seed=seed)
    ratios = [_ratios(laws[EXPONENT.name]) for laws in (fitted, by_seeds.laws, by_sizes.laws)]
    return LadderLaws(
        losses=ladder,
        laws={
            form.name: _law(ladder, cells, form, fitted[form.name], by_seeds.laws[form.name], level) for form in FORMS
        },
        units_differ=tests[0],
        exponents_differ=tests[1],
        beyond_shifts=tests[2],
        limits_differ=tests[3],
        ratio=_intervals(ratios[0], ratios[1], level),
        ratio_by_sizes=_intervals(ratios[0], ratios[2], level),
        common_misfit=cells.common,
        level=level,
        cells=cells,
        constants=fitted,
        seed_draws=by_seeds,
        size_draws=by_sizes,
    )


def _ratios(laws: Constants) -> Array:
    """The exponents over their geometric mean."""
    logs = np.log(laws.exponent)
    return np.exp(logs - logs.mean(axis=1, keepdims=True))


def _intervals(values: Array, drawn: Array, level: float) -> tuple[Interval, ...]:
    """The columns of the one row with the percentiles of what was drawn."""
    return tuple(percentile_interval(float(v), drawn[:, i], level) for i, v in enumerate(values[0]))


def _law(
    ladder: LadderLosses, cells: Cells, form: Form, constants: Constants, drawn: Constants, level: float
) -> LadderLaw:
    """A law with the intervals that the draws give its constants."""
    amplitudes = [c.excess * cells.centre**c.exponent for c in (constants, drawn)]
    return LadderLaw(
        form=form.name,
        units=ladder.units,
        E=percentile_interval(float(constants.E[0]), drawn.E, level),
        exponent=_intervals(constants.exponent, drawn.exponent, level),
        amplitude=_intervals(amplitudes[0], amplitudes[1], level),
        excess=_intervals(constants.excess, drawn.excess, level),
        centre=cells.centre,
        misfit=float(constants.misfit[0]),
        freedom=len(cells.unit) - form.constants(cells.units),
    )
