"""What the losses of a ladder say: is a gate's gain an offset or an exponent, and how many parameters is it worth?

Three laws, each a case of the next, answer the first question: L = E + A P^-a alike for all units, with an amplitude A
for each unit (an **offset**: on logarithmic axes L - E is shifted), and with an exponent for each unit as well. E is
one for all: the loss that no size takes away with these data, this training and this context. It is a constant of the
fit, not of the text; more data or a longer training go below it. Units that differ by so many bits at every size, E
being each unit's own, follow neither law, and exponents of their own come near to them: so there is a law of such
**shifts** too. Exponents are said to differ where they are better than chance makes them next to an E per unit as well,
and an offset is called one where an E per unit is not better than it either.

**What the intervals hold.** They redraw the seeds of each size with all their units. Three seeds have ten such draws,
which are too alike; so the deviations of all sizes, each over the spread of its size, are drawn from together, made
larger by as much as means of few seeds hide of them and by what Student's t asks for. They hold the luck of training
and nothing else.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact, Listener, ProgressLike, one_line, part_of, reporting
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.plain import to_plain
from gatelab.scaling_laws.ladder_comparisons import (
    ALIKE,
    NOUNS,
    RankAgreement,
    Worth,
    factor_interval,
    log_factors,
    rank_units,
)
from gatelab.scaling_laws.ladder_fits import (
    ENOUGH,
    EXPONENT,
    FORMS,
    OFFSET,
    TESTED,
    Cells,
    Constants,
    Form,
    NestedTest,
    fit_form,
    loosened,
    nested_test,
)
from gatelab.scaling_laws.ladder_losses import (
    DRAWS,
    LadderAxis,
    LadderLosses,
    read_ladder,
    redrawn_deviations,
    seed_noise,
)
from gatelab.statistics import LEVEL, Interval, check_level, percentile_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LadderVerdict = Literal["exponent", "offset", "undecided"]
TITLE_WIDTH = 88  # letters that a line above the figure holds


@dataclass(frozen=True)
class LadderLaw(Compact):
    """L = E + A P^-a of one form, fitted to a ladder. Amplitudes are far from the data; `excess` is L - E amid them.

    Attributes:
        form: "alike", "offset" or "exponent".
        units: Their names.
        E: What no size takes away, with its interval over seeds.
        exponent: Of each unit.
        amplitude: A of each unit, at size 1.
        excess: L - E of each unit at the size `center`.
        center: The geometric mean of all sizes.
        misfit: The sum of squares of the cells' means in units of what seeds, and sizes as a whole, do; `freedom` is
            expected where nothing else keeps the means off the law.
        freedom: The number of cells less that of constants.
    """

    form: str
    units: tuple[str, ...]
    E: Interval
    exponent: tuple[Interval, ...]
    amplitude: tuple[Interval, ...]
    excess: tuple[Interval, ...]
    center: float
    misfit: float
    freedom: int

    plain = to_plain

    def predict(self, unit: str, size: Any) -> Any:
        """The law's loss of a unit at a size or an array of them."""
        u = self.units.index(unit)
        return self.E.value + self.excess[u].value * (np.asarray(size) / self.center) ** -self.exponent[u].value

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


@dataclass(frozen=True, eq=False, repr=False)
class LadderLaws:
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
        common_misfit: The standard deviation of what the units of a size lie off the laws together, in the loss's unit.
        level: Of all intervals.
        cells: The means that the laws were fitted to.
        constants: The laws as rows of arrays.
        drawn_means: (draws, cells), the means with other seeds.
        drawn: The laws with other seeds.
    """

    PROPERTIES: ClassVar[tuple[str, ...]] = ("verdict", "sentence")

    losses: LadderLosses
    laws: Mapping[str, LadderLaw]
    units_differ: NestedTest
    exponents_differ: NestedTest
    beyond_shifts: NestedTest
    limits_differ: NestedTest
    ratio: tuple[Interval, ...]
    common_misfit: float
    level: float
    cells: Cells = field(repr=False, compare=False)
    constants: Mapping[str, Constants] = field(repr=False, compare=False)
    drawn_means: Array = field(repr=False, compare=False)
    drawn: Mapping[str, Constants] = field(repr=False, compare=False)

    plain = to_plain

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    @property
    def verdict(self) -> LadderVerdict:
        """Which law the losses ask for; both answers are tested next to an E per unit.

        "exponent" where one exponent is rejected next to an amplitude per unit, and next to an E per unit. "offset"
        where units differ, amplitudes are enough (neither an exponent nor an E per unit is significantly better) and
        exponents are alike: every unit's interval lies within a tenth of their mean. Anything else is undecided.
        `beyond_shifts` says nothing against an offset, because its smaller law has one amplitude for all units.
        """
        if self.exponents_differ.decided:
            return "exponent" if self.beyond_shifts.decided else "undecided"
        alike = all(r.low >= 1 / (1 + ALIKE) and r.high <= 1 + ALIKE for r in self.ratio)
        enough = self.units_differ.decided and not self.limits_differ.decided
        return "offset" if alike and enough else "undecided"

    @property
    def sentence(self) -> str:
        """The answer in words."""
        spread = f"ratios of exponents {min(r.low for r in self.ratio):.2f} to {max(r.high for r in self.ratio):.2f}"
        p, shifts = f"p {self.exponents_differ.p:.2g}", f"next to an E per unit p {self.beyond_shifts.p:.2g}"
        limits = f"an E per unit p {self.limits_differ.p:.2g}"
        if self.verdict == "exponent":
            return f"units differ in their exponents ({p}, {shifts}; {spread})"
        if self.exponents_differ.decided:
            return (
                f"units differ by more than a factor of {NOUNS[self.losses.against]} ({p}): in their exponents or by "
                f"an E per unit, which is undecided ({shifts}; {spread})"
            )
        if self.verdict == "offset":
            return f"units differ by an offset: one exponent is enough ({p}, {limits}; {spread})"
        if self.limits_differ.decided:
            return (
                f"units differ by more than an offset: an E per unit is better (p {self.limits_differ.p:.2g}; {spread})"
            )
        if not self.units_differ.decided:
            return f"no difference of the units is significant (p {self.units_differ.p:.2g}; {spread})"
        return f"units differ; whether in their exponents is undecided ({p}, {limits}; {spread})"

    def table(self) -> pd.DataFrame:
        """A row a form and unit with all constants; of the form "exponent" also the ratios of exponents."""
        import pandas as pd

        frame = pd.concat([law.table() for law in self.laws.values()], ignore_index=True)
        own = frame["form"] == EXPONENT.name
        frame.loc[own, ["ratio", "ratio_low", "ratio_high"]] = _columns(self.ratio).T
        return frame

    def mean(self, unit: str) -> tuple[Array, tuple[Interval, ...]]:
        """The sizes of a unit and its mean losses there, with intervals over seeds."""
        mine = self._cells_of(unit)
        drawn = self.drawn_means[:, mine]
        losses = [percentile_interval(float(self.cells.means[c]), drawn[:, i], self.level) for i, c in enumerate(mine)]
        return np.exp(self.cells.log_size[mine]) * self.cells.center, tuple(losses)

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
        drawn = factors(self.drawn_means, self.drawn[EXPONENT.name])
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
            sizes=tuple((np.exp(x[mine]) * self.cells.center).tolist()),
            factor=tuple(factor_interval(float(value[i]), drawn[:, i], self.level) for i in range(len(mine))),
            extrapolated=tuple(far.tolist()),
            overall=factor_interval(factor, overall(self.drawn[OFFSET.name]), self.level),
            slope=percentile_interval(float(slopes[0]), slopes[1:], self.level),
        )

    def rank_agreement(self, scores: Mapping[str, float]) -> RankAgreement:
        """Whether another score ranks the units as their losses do.

        Args:
            scores: a number for each unit, such as a condition number or a slope; at least three units need one.

        Returns:
            Spearman's correlation, positive where units of larger scores have larger losses.
        """
        return rank_units(self.losses, scores, draws=len(self.drawn_means), level=self.level)

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
            and where there are, flops, seconds, diverged, size.
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
    check_level(level)
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
        parts = [part_of(report, i, 1 + len(TESTED)) for i in range(1 + len(TESTED))]
        means, drawn = redrawn_laws(ladder, cells, draws=draws, level=level, seed=seed, report=parts[0])
        tests = [
            nested_test(cells, *forms, draws=draws, seed=seed, report=part)
            for forms, part in zip(TESTED, parts[1:], strict=True)
        ]
    ratio = _intervals(_ratios(fitted[EXPONENT.name]), _ratios(drawn[EXPONENT.name]), level)
    laws = {form.name: _law(ladder, cells, form, fitted[form.name], drawn[form.name], level) for form in FORMS}
    names = ("units_differ", "exponents_differ", "beyond_shifts", "limits_differ")
    return LadderLaws(
        losses=ladder,
        laws=laws,
        **dict(zip(names, tests, strict=True)),
        ratio=ratio,
        common_misfit=cells.common,
        level=level,
        cells=cells,
        constants=fitted,
        drawn_means=means,
        drawn=drawn,
    )


def redrawn_laws(
    ladder: LadderLosses,
    cells: Cells,
    *,
    draws: int,
    level: float = LEVEL,
    seed: int = 0,
    report: Listener | None = None,
) -> tuple[Array, dict[str, Constants]]:
    """Redraw seeds jointly for all units: the means (draws, cells), and every form fitted again, with equal weights."""
    u, r, s = np.nonzero(ladder.present)
    means, rows, done = [], [], 0
    for off in redrawn_deviations(ladder, draws=draws, level=level, seed=seed):
        done += len(off)
        means.append(cells.means + off[:, r, s, u] @ cells.weights.T)
        targets = means[-1] @ cells.root.T
        alike, offset = (fit_form(cells, targets, form, tolerance=ENOUGH) for form in FORMS[:2])
        rows.append((alike, offset, fit_form(cells, targets, EXPONENT, common=offset, tolerance=ENOUGH)))
        if report:
            report(done, draws)
    laws = {
        form.name: Constants(*map(np.concatenate, zip(*parts, strict=True)))
        for form, parts in zip(FORMS, zip(*rows, strict=True), strict=True)
    }
    return np.concatenate(means), laws


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
    amplitudes = [c.excess * cells.center**c.exponent for c in (constants, drawn)]
    return LadderLaw(
        form=form.name,
        units=ladder.units,
        E=percentile_interval(float(constants.E[0]), drawn.E, level),
        exponent=_intervals(constants.exponent, drawn.exponent, level),
        amplitude=_intervals(amplitudes[0], amplitudes[1], level),
        excess=_intervals(constants.excess, drawn.excess, level),
        center=cells.center,
        misfit=float(constants.misfit[0]),
        freedom=len(cells.unit) - form.constants(cells.units),
    )
