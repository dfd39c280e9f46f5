"""Scaling laws of a ladder: whether a gate's gain is an offset or an exponent, and its equivalent in parameters.

The nested laws and the conditions of each verdict are in docs/methods.md. E is a constant of the fit, not of the text;
more data or longer training can go below it.

**Intervals.** The bootstrap resamples the seeds of each size jointly for all units. Three seeds allow only ten samples,
so the deviations of all sizes, standardized by size, are pooled, corrected, and scaled by Student's t.
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
    Worth,
    factor_interval,
    log_factors,
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
TITLE_WIDTH = 88  # characters per line of the figure's title


@dataclass(frozen=True)
class LadderLaw(Compact):
    """L = E + A P^-a of one form, fitted to a ladder.

    Attributes:
        form: "alike", "offset" or "exponent".
        units: Their names.
        E: The loss at infinite size, with its interval over seeds.
        exponent: Of each unit.
        amplitude: A of each unit, which is L - E at size 1, far from the data.
        excess: L - E of each unit at the size `center`.
        center: The geometric mean of all sizes.
        misfit: The sum of squared residuals of the means, weighted by seed noise and common deviations; its expected
            value is `freedom`.
        freedom: The number of means minus the number of constants.
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

    def predict(self, unit: str, size: Any) -> Any:
        """The law's loss of a unit at a size or an array of them."""
        u = self.units.index(unit)
        return self.E.value + self.excess[u].value * (np.asarray(size) / self.center) ** -self.exponent[u].value

    def table(self) -> pd.DataFrame:
        """One row per unit: every constant with its interval."""
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
    """The three laws of a ladder, their tests, and the verdict.

    Attributes:
        losses: The measured losses.
        laws: The laws by form: alike, offset, exponent.
        units_differ: The test of one law for all against one amplitude per unit.
        exponents_differ: The test of one exponent against one per unit.
        beyond_shifts: The same with one E per unit and a common amplitude.
        limits_differ: The test of one E against one per unit, with one amplitude per unit.
        ratio: Of each unit's exponent to the geometric mean of all, with intervals over seeds. These ratios depend
            little on E.
        common_misfit: The standard deviation of the units' common deviation from the laws at a size.
        level: Of all intervals.
        cells: The means to which the laws were fitted.
        constants: The laws as rows of arrays.
        drawn_means: (draws, cells), the means of the bootstrap.
        drawn: The laws of the bootstrap.
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
        """The law that the tests select; both answers are tested next to an E per unit.

        "exponent" if one exponent is rejected both with an amplitude per unit and with an E per unit. "offset" if units
        differ, neither an exponent nor an E per unit is significantly better than amplitudes, and the intervals of all
        exponents are within a tenth of their mean. Otherwise "undecided". `beyond_shifts` is not evidence against an
        offset, since its smaller law has a common amplitude.
        """
        if self.exponents_differ.decided:
            return "exponent" if self.beyond_shifts.decided else "undecided"
        alike = all(r.low >= 1 / (1 + ALIKE) and r.high <= 1 + ALIKE for r in self.ratio)
        enough = self.units_differ.decided and not self.limits_differ.decided
        return "offset" if alike and enough else "undecided"

    @property
    def sentence(self) -> str:
        """The result in words."""
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
        """One row per form and unit with all constants; for the form "exponent" also the ratios of exponents."""
        import pandas as pd

        frame = pd.concat([law.table() for law in self.laws.values()], ignore_index=True)
        own = frame["form"] == EXPONENT.name
        frame.loc[own, ["ratio", "ratio_low", "ratio_high"]] = _columns(self.ratio).T
        return frame

    def mean(self, unit: str) -> tuple[Array, tuple[Interval, ...]]:
        """The sizes of a unit and its mean losses, with intervals over seeds."""
        mine = self._cells_of(unit)
        drawn = self.drawn_means[:, mine]
        losses = [percentile_interval(float(self.cells.means[c]), drawn[:, i], self.level) for i, c in enumerate(mine)]
        return np.exp(self.cells.log_size[mine]) * self.cells.center, tuple(losses)

    def _cells_of(self, unit: str) -> NDArray[np.intp]:
        """The cells of a unit, smallest size first."""
        mine = np.flatnonzero(self.cells.unit == self.losses.index(unit))
        return mine[np.argsort(self.cells.log_size[mine], kind="stable")]

    def worth(self, unit: str, reference: str) -> Worth:
        """The factor by which the reference must be larger to have the unit's losses, by size and overall.

        Args:
            unit: with the losses to reach.
            reference: the unit that would be enlarged; its curve is interpolated by `log_factors`, with E and exponent
                of the law with one exponent per unit.

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
            """Logarithms of the factor; NaN if a law has the unit or the reference below its limit."""
            mine_left, other_left = laws.excess[:, u], laws.excess[:, v]
            valid = (mine_left > 0) & (other_left > 0)
            ratio = np.where(valid, other_left, 1.0) / np.where(valid, mine_left, 1.0)
            return np.where(valid, np.log(ratio) / laws.exponent[:, u], np.nan)

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

    def plot(
        self, path: str | Path | None = None, *, reference: str | None = None, loss: str = "nats", ax: Any = None
    ) -> Figure:
        """Losses against size with the laws, and the equivalent size of the reference.

        Args:
            path: of the file (.png, .svg or .pdf), if the figure is to be saved.
            reference: the unit with which the others are compared; the first by default.
            loss: the unit of the loss.
            ax: two of matplotlib's axes to draw into.

        Returns:
            The figure.
        """
        from gatelab.plotting import saved
        from gatelab.plotting.curves import LadderCurve, ladder_figure

        base = reference or self.losses.units[0]
        self.losses.index(base)
        law = self.laws[EXPONENT.name if self.exponents_differ.decided else OFFSET.name]
        curves = []
        for unit in self.losses.units:
            sizes, losses = self.mean(unit)
            worth = None if unit == base else self.worth(unit, base)
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
            reference=base,
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
    """Fit the three laws of a ladder and test which of them its losses support.

    Args:
        table: the losses, or a table or mapping of columns for `read_ladder`: unit, parameters, seed, loss, and
            optionally flops, seconds, diverged, size.
        against: the measure of size; ignored if `table` is a `LadderLosses`.
        draws: the number of simulated ladders per test and of bootstrap samples; the smallest p is 1 / (1 + draws).
        level: of the intervals.
        seed: of the draws.
        progress: False for no progress bar, or a function of (done, total) draws.

    Returns:
        The laws with intervals, the tests and the verdict, with `worth` and `plot`.

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
        raise GatelabError(f"the ladder has one unit, {', '.join(ladder.units)}; give two units or more")
    cells = loosened(Cells.of(ladder, seed_noise(ladder)))
    fitted = {form.name: fit_form(cells, (cells.root @ cells.means)[None], form) for form in FORMS}
    for unit, excess in zip(ladder.units, fitted[EXPONENT.name].excess[0], strict=True):
        if excess <= 0:
            raise GatelabError(f"the loss of {unit} does not fall with size, so it has no law; leave it out")
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
    """Bootstrap over seeds, jointly for all units: the means (draws, cells), and every form fitted to them."""
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
    """The values of a row with percentile intervals of their draws."""
    return tuple(percentile_interval(float(v), drawn[:, i], level) for i, v in enumerate(values[0]))


def _law(
    ladder: LadderLosses, cells: Cells, form: Form, constants: Constants, drawn: Constants, level: float
) -> LadderLaw:
    """A law with bootstrap intervals of its constants."""
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
