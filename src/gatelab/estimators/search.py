"""The choice of unit, width and ridge: by error on rows that were held out, the cheapest first.

Widths double. Each width is one batch of quick fits, for every ridge that is still in the race and every fold, whose
rows are held out by a weight of zero. It ends where wider networks gain nothing, or where their trend does not lead
below what is there already: noisy data are done in a moment. Networks with drawn gates, which cost next to nothing,
are the first to be beaten. Rows with the same inputs are held out together, for their targets would give it away.

Where the error stays above `PRECISE` there is noise, or there are steps. Networks of step gates then enter, by
themselves and on top of the best trained ones, and what all of them say of the rows held out decides what each weighs
(`members`). Below it one network is polished as far as it goes: a mean would cost the digits that others have not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.estimators.frames import Bend, Frame, TableRows, drawn, neuron_columns, reach
from gatelab.estimators.steps import BinnedRows, StepNetwork, grown
from gatelab.feedforward import Network, Unit
from gatelab.solve import Solution, Status, predict
from gatelab.solve.solvers.varpro import growing_steps, varpro_many

RIDGES = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
# The ridges that a search over widths begins with; others follow where the least or the greatest of them wins.
_FIRST_RIDGES = (1e-6, 1e-4, 1e-2)
# Folds, of which so many are used that each has all rows and all together this many; and the most rows that take part.
_FOLDS, _TRIED_ROWS, _MOST_ROWS = 5, 2500, 2500
# The most rows that a network is trained on after the search, and that one of step gates grows on.
_TRAINED_ROWS, _STEPPED_ROWS = 50_000, 200_000
# Rows times columns squared of the widest network that is tried: a step of it takes some tenths of a second.
_MOST_WORK = 6e7
# Steps beyond those of growth: for one round and some to settle; and those of a network that only has more rows now.
_QUICK_ROUNDS, _QUICK_STEPS, _WARM_STEPS = 1, 28, 10
# Narrow networks are cheap and end in bad places more often.
_NARROW, _NARROW_STARTS = 8, 2
# A ridge that is worse than the best by this factor at two widths in a row is out; errors this near are equal.
_HOPELESS, _EQUAL = 1.5, 1.01
# Of the standard deviation of the targets: nobody needs less. No doubling of the width has brought more than the other.
ENOUGH, _HOPE = 2e-6, 0.01
# Errors below it are those of a smooth target without noise.
PRECISE = 0.03
# Above this, two widths in a row without a gain are not waited for.
_NOISY = 0.1
# Drawn gates: their slopes, the fewest rows for which they are tried, the most columns of the linear problem, and the
# share to which a wider one has to bring the error for the next.
_STEEPNESS, _FEWEST_ROWS, _MOST_COLUMNS, _PAYS = (1.0, 2.0), 100, 800, 0.9
# Step gates of a neuron; where rows are at most so many, networks with fewer gates are tried as well; where they are
# more, so many networks of step gates are enough.
_GATES, _FEW_GATES, _FEW_ROWS, _FEW_NETWORKS = 6, 3, 4000, 2
# Networks of fewer folds than these are not all that is averaged: one with all rows joins them.
_ENOUGH_FOLDS = 3
# Growths of step gates on top of the networks of a candidate, whatever the number of its folds.
_ON_TOP = 2


@dataclass(frozen=True)
class Candidate:
    """Networks that were or can be fitted, and their error on rows held out, in standard deviations of the targets.

    Networks of step gates alone have no `unit`; those on top of trained networks have the unit of these.
    """

    unit: Unit | None
    width: int
    ridge: float
    gates: Literal["trained", "drawn", "steps", "both"] = "trained"
    steepness: float = 0.0
    rmse: float = np.nan

    @property
    def name(self) -> str:
        """Of its unit."""
        if self.unit is None:
            return "steps"
        if self.gates == "both":
            return f"{self.unit.name} + steps"
        return self.unit.name

    @property
    def single(self) -> bool:
        """Whether it is one network of one unit."""
        return self.gates in ("trained", "drawn")

    def row(self) -> dict[str, Any]:
        """What was tried, as plain values."""
        names = ("width", "ridge", "gates", "rmse")
        return {"unit": self.name} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Entrant:
    """A candidate with its networks, one or more a fold, and what they say of the rows that each has not seen."""

    candidate: Candidate
    members: tuple[tuple[Network | None, StepNetwork | None], ...]
    values: Array


@dataclass(frozen=True)
class TimeBudget:
    """When the search has to end, None for never."""

    end: float | None = None

    @classmethod
    def of(cls, budget: float | None) -> TimeBudget:
        """A budget in seconds from now."""
        if budget is None:
            return cls()
        return cls(time.monotonic() + budget)

    def over(self, seconds: float = 0.0) -> bool:
        """Whether there are not so many seconds left."""
        return self.end is not None and time.monotonic() + seconds >= self.end


@dataclass(frozen=True, eq=False)
class Trial:
    """The rows with their folds, and how to fit: what every candidate is tried on.

    Attributes:
        rows: all rows, scaled.
        raw: their inputs as they were.
        sample: the rows that trained networks are tried on: all, or some of many.
        fold: of every row; -1 of those that are not in the sample, which are never held out.
        used: how many folds are.
        seed: of everything that is random.
        device: where torch computes.
        clock: when the search has to end.
    """

    rows: TableRows
    raw: Array
    sample: NDArray[np.intp]
    fold: NDArray[np.intp]
    used: int
    seed: int
    device: str
    clock: TimeBudget = TimeBudget()

    @classmethod
    def of(cls, rows: TableRows, raw: Array, seed: int, device: str, clock: TimeBudget = TimeBudget()) -> Trial | None:
        """None where the rows have less than two different inputs to part."""
        generator = np.random.default_rng(seed)
        sample = np.arange(len(rows))
        if len(rows) > _MOST_ROWS:
            sample = np.sort(generator.permutation(len(rows))[:_MOST_ROWS])
        groups, group = np.unique(rows.x[sample], axis=0, return_inverse=True)
        if len(groups) < 2:
            return None
        folds = min(_FOLDS, len(groups))
        fold = np.full(len(rows), -1, dtype=np.intp)
        fold[sample] = generator.permutation(len(groups))[group.ravel()] % folds
        used = max(1, min(folds, _TRIED_ROWS // len(sample)))
        return cls(rows, raw, sample, fold, used=used, seed=seed, device=device, clock=clock)

    @property
    def held(self) -> list[NDArray[np.intp]]:
        """The rows that each used fold holds out."""
        return [np.flatnonzero(self.fold == f) for f in range(self.used)]

    @property
    def truth(self) -> tuple[Array, Array]:
        """Targets and weights of all rows held out, fold by fold."""
        index = np.concatenate(self.held)
        return self.rows.y[index], self.rows.weight[index]

    def entrant(self, candidate: Candidate, members: Any, values: Sequence[Array]) -> Entrant:
        """A candidate with its values at the rows held out, by fold, and the error there."""
        joined = np.concatenate(values)
        y, weight = self.truth
        rmse = float(np.sqrt(weight @ np.square(joined - y).mean(axis=1) / weight.sum()))
        if not np.isfinite(rmse):
            rmse = np.inf
        return Entrant(replace(candidate, rmse=rmse), tuple(members), joined)

    def of_networks(self, candidate: Candidate, networks: Sequence[Any]) -> Entrant:
        """A candidate with one network a fold."""
        values = [
            np.clip(predict(network, self.rows.x[out]), *self.reach(f))
            for f, (network, out) in enumerate(zip(networks, self.held, strict=True))
        ]
        return self.entrant(candidate, [(network, None) for network in networks], values)

    def reach(self, f: int) -> tuple[Array, Array]:
        """How far predictions of a network may go that has not seen a fold."""
        return reach(self.rows.y[self.sample][self.fold[self.sample] != f])

    def trained(self, unit: Unit, width: int, ridges: Sequence[float]) -> list[Entrant]:
        """One batch: every ridge with every fold."""
        rows, fold = self.rows.take(self.sample), self.fold[self.sample]
        weights = [np.where(fold == f, 0.0, rows.weight) for f in range(self.used)]
        starts = _NARROW_STARTS if width <= _NARROW else 1
        solutions = solved(
            unit,
            rows.x,
            rows.y,
            [(width, self.seed)] * (len(ridges) * self.used),
            ridge=[r for r in ridges for _ in range(self.used)],
            weights=np.stack(weights * len(ridges)),
            device=self.device,
            starts=starts,
            rounds=_QUICK_ROUNDS,
            steps=growing_steps(width) + _QUICK_STEPS,
        )
        networks = [s.network for s in solutions]
        return [
            self.of_networks(Candidate(unit, width, ridge), networks[i * self.used : (i + 1) * self.used])
            for i, ridge in enumerate(ridges)
        ]

    def drawn(self, unit: Unit) -> Iterator[Entrant]:
        """Networks with drawn gates of up to three widths and two slopes, where there are rows enough.

        Wider ones follow while that pays.
        """
        rows, fold = self.rows.take(self.sample), self.fold[self.sample]
        columns = neuron_columns(unit, rows)
        if len(rows) < _FEWEST_ROWS or not columns:
            return
        before = np.inf
        for share in (8, 4, 2):
            width = min(len(rows) // share, _MOST_COLUMNS) // columns
            if not width:
                continue
            errors = []
            for steepness in _STEEPNESS:
                networks = [
                    drawn(unit, rows.take(np.flatnonzero(fold != f)), width, steepness, self.seed)
                    for f in range(self.used)
                ]
                entrant = self.of_networks(Candidate(unit, width, 0.0, "drawn", steepness), networks)
                errors.append(entrant.candidate.rmse)
                yield entrant
            if min(errors) > _PAYS * before or self.clock.over():
                return
            before = min(errors)

    def warm(self, candidate: Candidate, network: Any, fold: int | None = None) -> Solution:
        """A network that has seen some of the rows, after some steps with all of them, or all but those of a fold."""
        seen = np.arange(len(self.rows))
        if fold is not None:
            seen = np.flatnonzero(self.fold != fold)
        rows = fewer(self.rows.take(seen), self.seed)
        assert candidate.unit is not None
        (solution,) = solved(
            candidate.unit,
            rows.x,
            rows.y,
            [(candidate.width, self.seed)],
            ridge=candidate.ridge,
            weights=scaled_weights(rows),
            device=self.device,
            starts=1,
            rounds=0,
            steps=_WARM_STEPS,
            start=network,
        )
        if np.isfinite(predict(solution.network, self.rows.x)).all():
            return solution
        return Solution(network, Status.STALLED, ())

    def members(self, entrant: Entrant, chosen: Candidate, network: Network) -> list[Any]:
        """The members of a candidate that is picked: its networks by fold, and those that have seen all rows.

        Where trained networks were tried on some of many rows, or in a fold or two, each goes on with all rows;
        `network` is that of the chosen candidate, which has.
        """
        if entrant.candidate.gates != "trained":
            return list(entrant.members)
        sampled = len(self.sample) < len(self.rows)
        whole = []
        if entrant.candidate is chosen:
            whole = [(network, None)]
        elif (sampled or self.used < _ENOUGH_FOLDS) and not self.clock.over():
            whole = [(as_network(self.warm(entrant.candidate, entrant.members[0][0])), None)]
        if sampled and whole:
            return whole
        return whole + list(entrant.members)

    def grown(self, binned: BinnedRows, f: int, gates: int, seed: int, network: Network | None = None) -> Any:
        """A network of step gates that has not seen a fold, on top of another if there is one; its values there.

        Of very many rows each takes its own part.
        """
        held = np.flatnonzero(self.fold == f)
        others = np.flatnonzero(self.fold != f)
        if len(others) > _STEPPED_ROWS:
            others = np.random.default_rng(seed).choice(others, _STEPPED_ROWS, replace=False)
        index = np.concatenate([held, others])
        base = None
        if network is not None:
            base = np.clip(predict(network, self.rows.x[index]), *self.reach(f))
        return grown(
            binned.take(index),
            np.arange(len(index)) < len(held),
            gates=gates,
            seed=seed,
            base=base,
            over=self.clock.over,
        )

    def stepped(self, binned: BinnedRows, gates: int) -> Entrant:
        """Networks of step gates, one a fold; beyond the folds that are used, as many as there is time for."""
        folds = min(_FOLDS, int(self.fold.max()) + 1)
        if len(self.rows) > _FEW_ROWS:
            folds = min(folds, _FEW_NETWORKS)
        pairs = [self.grown(binned, f, gates, self.seed + f) for f in range(self.used)]
        for f in range(self.used, folds):
            pair = self.grown(binned, f, gates, self.seed + f)
            if self.clock.over():
                break
            pairs.append(pair)
        width = round(np.mean([len(network.columns) for network, _ in pairs]))
        values = [value for _, value in pairs[: self.used]]
        return self.entrant(Candidate(None, width, 0.0, "steps"), [(None, n) for n, _ in pairs], values)

    def on_top(self, binned: BinnedRows, entrant: Entrant) -> Entrant:
        """Networks of step gates on top of the trained ones of a candidate: for what these leave."""
        growths = -(-_ON_TOP // self.used)
        members, values = [], []
        for f, (network, _) in enumerate(entrant.members):
            if len(self.sample) < len(self.rows):
                network = as_network(self.warm(entrant.candidate, network, f))
            seeds = [self.seed + f + _FOLDS * (1 + i) for i in range(growths)]
            pairs = [self.grown(binned, f, _GATES, seed, network) for seed in seeds]
            members += [(network, steps) for steps, _ in pairs]
            values.append(np.mean([value for _, value in pairs], axis=0))
        return self.entrant(replace(entrant.candidate, gates="both", steepness=0.0), members, values)


def widths_for(unit: Unit, rows: TableRows) -> list[int]:
    """1, 2, 4, ... up to half as many parameters as values, and to what takes seconds.

    >>> rows = TableRows(np.zeros((200, 2)), np.zeros((200, 1)), np.ones(200))
    >>> widths_for(Unit("silu", 1), rows)
    [1, 2, 4, 8]
    """
    n, inputs, outputs = len(rows), rows.x.shape[1], rows.y.shape[1]
    widths = [1]
    while (
        unit.parameter_count(2 * widths[-1], inputs, outputs) <= n * outputs / 2
        and n * (2 * widths[-1] * (inputs + 1)) ** 2 <= _MOST_WORK
    ):
        widths.append(2 * widths[-1])
    return widths


@dataclass(frozen=True, eq=False)
class Choice:
    """What came of the search: the one candidate to fit to all rows, and all that were tried, on which trial."""

    candidate: Candidate
    entrants: tuple[Entrant, ...] = ()
    trial: Trial | None = None

    @property
    def precise(self) -> bool:
        """Whether one network tells the target but for a trace, so that a mean would only cost digits."""
        return self.candidate.rmse <= PRECISE and self.candidate.rmse <= min(e.candidate.rmse for e in self.entrants)

    @property
    def entrant(self) -> Entrant:
        """The candidate with its networks."""
        return next(e for e in self.entrants if e.candidate is self.candidate)


def choose(
    units: Sequence[Unit],
    rows: TableRows,
    raw: Array,
    *,
    width: int | None,
    ridge: float | None,
    step_gates: bool,
    seed: int,
    device: str,
    clock: TimeBudget,
    show: Callable[[Candidate], None],
) -> Choice:
    """Try candidates on rows held out, scaled and, for step gates, raw; what is given is not chosen.

    Networks of step gates enter where there is noise, and one candidate is always tried, whatever the clock says.
    """
    given = RIDGES
    if ridge is not None:
        given = (ridge,)
    trial = Trial.of(rows, raw, seed, device, clock)
    if trial is None:
        return Choice(Candidate(units[0], width or 1, given[-1]))
    entrants: list[Entrant] = []

    def enter(entrant: Entrant) -> Candidate:
        show(entrant.candidate)
        entrants.append(entrant)
        return entrant.candidate

    def best() -> float:
        return min((e.candidate.rmse for e in entrants), default=np.inf)

    def enter_steps() -> BinnedRows | None:
        if not step_gates or best() <= PRECISE or clock.over():
            return None
        binned = BinnedRows.of(raw, rows.y, rows.weight)
        enter(trial.stepped(binned, _GATES))
        if len(rows) <= _FEW_ROWS:
            enter(trial.stepped(binned, _FEW_GATES))
        return binned

    binned = None
    for unit in units:
        if width is None and ridge in (None, 0.0):
            for entrant in trial.drawn(unit):
                enter(entrant)
        course = WidthSearch.of(unit, trial, given, width, _of_kind(entrants, "trained"))
        rival, seconds = best(), 0.0
        while course.open and not (_of_kind(entrants, "trained") and clock.over(4 * seconds)):
            began = time.monotonic()
            rung = [enter(e) for e in trial.trained(unit, course.widths[0], course.ridges)]
            seconds = time.monotonic() - began
            course = course.after(rung, rival)
            if binned is None and len(course.bests) > 2:
                binned = enter_steps()
                rival = best()
        # Where digits count, all ridges below the best one, and the next above, are tried at its width as well.
        while width is None and (near := _untried(entrants, unit, given)) and not clock.over(seconds):
            for entrant in trial.trained(unit, near[0], near[1]):
                enter(entrant)
    if binned is None:
        binned = enter_steps()
    if binned is not None and not clock.over():
        candidate = _best(entrants, "trained")
        enter(trial.on_top(binned, next(e for e in entrants if e.candidate is candidate)))
    single = [e.candidate for e in entrants if e.candidate.single]
    least = min(c.rmse for c in single)
    equal = [c for c in single if c.rmse <= _EQUAL * least] or single
    choice = min(equal, key=lambda c: (c.gates == "drawn", c.width, -c.ridge))
    return Choice(choice, tuple(entrants), trial)


def _untried(entrants: Sequence[Entrant], unit: Unit, given: Sequence[float]) -> tuple[int, list[float]] | None:
    """The width of the best network of a unit, and the ridges up to the next greater that were not tried there.

    None where there are none, where another unit is better, or where the error is so large that a ridge more or less
    is no matter.
    """
    best = _best(entrants, "trained")
    if best.unit is not unit or best.rmse > 2 * PRECISE:
        return None
    place = list(given).index(best.ridge)
    tried = {c.ridge for c in _of_kind(entrants, "trained") if c.unit is unit and c.width == best.width}
    beside = [r for r in given[: place + 2] if r not in tried]
    if not beside:
        return None
    return best.width, beside


def _best(entrants: Sequence[Entrant], gates: str) -> Candidate:
    """The candidate of a kind with the least error."""
    return min(_of_kind(entrants, gates), key=lambda c: c.rmse)


def _of_kind(entrants: Sequence[Entrant], gates: str) -> list[Candidate]:
    return [e.candidate for e in entrants if e.candidate.gates == gates]


def bent_frame(rows: TableRows, plain: Frame, unit: Any, seed: int, device: str) -> Frame:
    """The frame in which inputs or targets with heavy tails are bent where that lowers errors on rows held out.

    Targets are tried with step gates and with a narrow network, in the units in which they came; then inputs with the
    narrow network, since step gates do not see a difference.
    """
    frame = plain
    if Bend.of(rows.y / plain.y_unit).bends:
        frames = [Frame.of(rows, bend_inputs=True, bend_targets=bent) for bent in (False, True)]
        errors = [_raw_error(rows, f, unit, seed, device) for f in frames]
        if errors[1] < errors[0]:
            frame = Frame.of(rows, bend_targets=True)
    if Bend.of(rows.x / plain.x_unit).bends:
        bent = Frame.of(rows, bend_inputs=True, bend_targets=frame is not plain)
        errors = [_narrow_error(rows, f, unit, seed, device) for f in (frame, bent)]
        if errors[1] < errors[0]:
            frame = bent
    return frame


def _narrow_error(rows: TableRows, frame: Frame, unit: Any, seed: int, device: str) -> float:
    trial = Trial.of(frame.standard(rows), rows.x, seed, device)
    if trial is None:
        return np.inf
    return min(e.candidate.rmse for e in trial.trained(unit, 2, _FIRST_RIDGES[1:]))


def _raw_error(rows: TableRows, frame: Frame, unit: Any, seed: int, device: str) -> float:
    """The squared error of step gates or of a narrow network, whichever is less, every output by its own variance."""
    standard = frame.standard(rows)
    trial = Trial.of(standard, rows.x, seed, device)
    if trial is None:
        return np.inf
    held = np.concatenate(trial.held)
    binned = BinnedRows.of(rows.x, standard.y, standard.weight)
    stepped = [trial.grown(binned, f, _GATES, seed)[1] for f in range(trial.used)]
    (narrow,) = trial.trained(unit, 2, _FIRST_RIDGES[1:2])
    variance = np.var(rows.y / frame.y_unit, axis=0)
    errors = []
    for z in (np.concatenate(stepped), narrow.values):
        values = frame.smeared(standard.y[held] - z).outputs(z)
        error = np.square((values - rows.y[held]) / frame.y_unit) / np.where(variance > 0, variance, 1.0)
        errors.append(float(rows.weight[held] @ error.mean(axis=1)))
    return min(errors)


@dataclass(frozen=True)
class WidthSearch:
    """The widths that are still to be tried, the ridges at the next of them, and how it went so far.

    Attributes:
        widths: still to be tried.
        ridges: at the next width.
        given: all ridges there are.
        bests: the least error at each width so far.
        hopeless: ridges that were far from the best at the width before.
    """

    widths: tuple[int, ...]
    ridges: tuple[float, ...]
    given: tuple[float, ...]
    bests: tuple[float, ...] = ()
    hopeless: frozenset[float] = frozenset()
    open: bool = True

    @classmethod
    def of(
        cls, unit: Unit, trial: Trial, given: Sequence[float], width: int | None, before: Sequence[Candidate]
    ) -> WidthSearch:
        """The widths of a unit, or the one that is given; after other units from their best width on.

        The bests begin with that of the units before: a unit that gains nothing on them at their width is done.
        """
        every = tuple(given)
        if width is not None:
            return cls((width,), every, every)
        widths = tuple(widths_for(unit, trial.rows.take(trial.sample)))
        ridges = tuple(r for r in every if r in _FIRST_RIDGES) or every
        if not before:
            return cls(widths, ridges, every)
        best = min(before, key=lambda c: c.rmse)
        ridges_there = {c.ridge for c in before if c.width == best.width}
        near = sorted(ridges_there, key=lambda r: r != best.ridge)[: 1 + (len(trial.sample) == len(trial.rows))]
        from_best = tuple(w for w in widths if w >= best.width) or widths[-1:]
        return cls(from_best, tuple(sorted(near)), every, (best.rmse,))

    def after(self, rung: Sequence[Candidate], rival: float) -> WidthSearch:
        """The search after the candidates of one width."""
        best = min(rung, key=lambda c: c.rmse)
        bests = (*self.bests, best.rmse)
        hopeless = frozenset(c.ridge for c in rung if c.rmse > _HOPELESS * best.rmse)
        ridges = [r for r in self.ridges if r not in hopeless & self.hopeless]
        # Beside the ridge that was best, the next lower and the next greater one enter.
        place = self.given.index(best.ridge)
        for neighbour in self.given[max(0, place - 1) : place + 2]:
            at_end = best.ridge in (min(self.ridges), max(self.ridges))
            if at_end and neighbour not in self.ridges and (neighbour > best.ridge or best.rmse < 4 * PRECISE):
                ridges.append(neighbour)
        left = self.widths[1:]
        behind_others = len(bests) == 2 and len(rung) < 3 and best.rmse * _EQUAL > bests[0]
        ended = not left or behind_others or _ended(list(bests), len(left), rival)
        return WidthSearch(left, tuple(sorted(ridges)), self.given, bests, hopeless, not ended)


def _ended(bests: list[float], doublings: int, rival: float) -> bool:
    """Whether wider networks of this unit are not worth a try, given the error of a rival that is there already.

    >>> _ended([0.3, 0.2, 0.2, 0.21], 4, 1.0), _ended([0.3, 0.2, 0.1], 4, 1e-8), _ended([0.3, 0.2, 0.1], 4, 0.1)
    (True, True, False)
    """
    if min(bests) <= ENOUGH or rival <= ENOUGH < _HOPE * bests[-1]:
        return True
    idle = [after * _EQUAL > before for before, after in pairwise(np.minimum.accumulate(bests))]
    if len(idle) > 1 and (all(idle[-2:]) or (idle[-1] and min(bests) > _NOISY)):
        return True
    # The first widths say little of the trend, and a bad start says less.
    rate = _HOPE
    if len(bests) > 2:
        rate = min(bests[-1] / bests[-2], 0.9)
    return bests[-1] * rate**doublings > rival


def solved(*args: Any, rounds: int, **options: Any) -> tuple[Solution, ...]:
    """`varpro_many`; with so few rows that its algebra for the exchange of neurons breaks down, without exchange."""
    try:
        return varpro_many(*args, rounds=rounds, **options)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
        return varpro_many(*args, rounds=0, **options)


def fewer(rows: TableRows, seed: int) -> TableRows:
    """Some of the rows where they are more than a network of this many parameters can learn from, for memory's sake."""
    if len(rows) <= _TRAINED_ROWS:
        return rows
    generator = np.random.default_rng(seed)
    return rows.take(np.sort(generator.choice(len(rows), _TRAINED_ROWS, replace=False)))


def as_network(solution: Solution) -> Network:
    """The network of a solution, which is one of a product unit here."""
    assert isinstance(solution.network, Network)
    return solution.network


def scaled_weights(rows: TableRows) -> Array | None:
    """The rows' weights for the solver, None where all are equal: it is faster without."""
    if (rows.weight == rows.weight[0]).all():
        return None
    return rows.weight
