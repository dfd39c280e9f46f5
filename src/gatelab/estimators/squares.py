"""The regressor's search: unit, width and ridge by the error on held-out rows, the cheapest first.

Each width is one batch of quick fits for every remaining ridge and every fold, whose rows have weight zero; widths
double until wider networks gain nothing or their trend does not lead below the smallest error. An error that stays
above `PRECISE` indicates noise or steps: trees of step gates are then tried. Below it, one network is optimized as far
as possible, or has random gates: smooth gates that are nearly linear across the data span nearly all polynomials in few
dimensions, and reproduce a smooth target to eight digits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.linalg import lstsq

from gatelab.arrays import Array
from gatelab.estimators.frames import Bend, Frame, TableRows, reach
from gatelab.estimators.search import Candidate, Member, Search, folds_of
from gatelab.estimators.trees import Squares, StepNetwork, boosted_trees
from gatelab.feedforward import Network, Unit
from gatelab.interrupts import apart
from gatelab.solve import Solution, Status, predict
from gatelab.solve.features import ProductModel
from gatelab.solve.solvers.varpro import growing_steps, varpro_many

RIDGES = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
# The first ridges of a search over widths; others follow if the smallest or the largest is best.
_FIRST_RIDGES = (1e-6, 1e-4, 1e-2)
# The number of folds, the rows of all folds of the search together, and the largest number of rows of the search.
_FOLDS, _TRIED_ROWS, _MOST_ROWS = 5, 2500, 2500
# The largest numbers of rows to train a network on after the search, and to grow trees on.
_TRAINED_ROWS, _STEPPED_ROWS = 50_000, 200_000
# Rows times squared columns of the widest network of the search, whose steps take some tenths of a second.
_MOST_WORK = 6e7
# Rounds and steps after growth of a quick fit; steps of a network that continues on more rows.
_QUICK_ROUNDS, _QUICK_STEPS, _WARM_STEPS = 1, 28, 10
# Narrow networks have more starts: they are cheap and often end in bad local optima.
_NARROW, _NARROW_STARTS = 8, 2
# A ridge that is worse than the best by this factor at two widths in a row is dropped; errors within EQUAL are equal.
_HOPELESS, _EQUAL = 1.5, 1.01
# An error that is small enough, in standard deviations of the targets; the largest gain by doubling the width.
ENOUGH, _HOPE = 2e-6, 0.01
# Errors below the first indicate a smooth target without noise; above the second, one width without a gain is enough.
PRECISE, _NOISY = 0.03, 0.1
# Random gates: their slopes, the smallest number of rows, the largest number of columns of the linear problem, the
# ratio of errors that justifies the next width, and the relative rank tolerance.
_STEEPNESS, _FEWEST_ROWS, _MOST_COLUMNS, _PAYS, _RANK = (1.0, 2.0), 100, 800, 0.9, 1e-15
# Gates per leaf; up to FEW_ROWS rows trees with fewer gates are tried too, and above there are FEW_NETWORKS networks.
_GATES, _FEW_GATES, _FEW_ROWS, _FEW_NETWORKS = 6, 3, 4000, 2
# With fewer folds than this a network of all rows is added; the number of trees on top of the networks of a candidate.
_ENOUGH_FOLDS, _ON_TOP = 3, 2


def rmse(values: Array, y: Array, weight: Array) -> float:
    """The root of the weighted mean square; infinity instead of NaN."""
    error = float(np.sqrt(weight @ np.square(values - y).mean(axis=1) / weight.sum()))
    return error if np.isfinite(error) else np.inf


class SquaresSearch(Search):
    """The search of a regressor; `sample` are the rows on which networks are tried, a subset if there are many."""

    def __init__(self, rows: TableRows, raw: Array, seed: int, device: str, **options: Any) -> None:
        folds = folds_of(rows, _FOLDS, seed, most=_MOST_ROWS)
        used = max(1, min(folds[1], _TRIED_ROWS // min(len(rows), _MOST_ROWS)))
        super().__init__(rows, raw, folds, used, loss=rmse, seed=seed, device=device, **options)
        self.sample = np.flatnonzero(self.fold >= 0)

    @staticmethod
    def row(candidate: Candidate) -> dict[str, Any]:
        return Search.row(candidate) | {"gates": candidate.gates, "rmse": candidate.error}

    @property
    def least(self) -> float:
        """The smallest error so far."""
        return min((c.error for c in self.tried), default=np.inf)

    @property
    def best_trained(self) -> Candidate:
        """The candidate of trained networks with the smallest error."""
        return min(self.of_kind("trained"), key=lambda c: c.error)

    def run(self, units: Sequence[Unit], width: int | None, ridge: float | None, *, step_gates: bool) -> Candidate:
        """Try candidates, at least one of them; returns the network to fit to all rows."""
        ridges = RIDGES if ridge is None else (float(ridge),)
        if self.folds < 2:
            return Candidate(units[0], width or 1, ridges[-1])
        for unit in units:
            if width is None and ridge in (None, 0.0):
                self.draw(unit)
            seconds = self.try_widths(unit, ridges, width, step_gates=step_gates)
            near = self.untried(unit, ridges)
            while width is None and near and not self.over(seconds):
                self.enter(self.train(unit, self.best_trained.width, near))
                near = self.untried(unit, ridges)
        if step_gates:
            self.try_steps()
            if self.of_kind("steps") and not self.over():
                self.enter([self.on_top(self.best_trained)])
        single = self.of_kind("trained", "drawn")
        least = min(c.error for c in single)
        equal = [c for c in single if c.error <= _EQUAL * least] or single
        return min(equal, key=lambda c: (c.gates == "drawn", c.width, -c.ridge))

    def try_widths(self, unit: Unit, given: Sequence[float], width: int | None, *, step_gates: bool) -> float:
        """Try widths of a unit while they help, from the best of other units on; returns the last one's seconds."""
        before, bests, hopeless, seconds = self.of_kind("trained"), [], set(), 0.0
        widths = widths_for(unit, self.rows.take(self.sample)) if width is None else [width]
        ridges = [r for r in given if r in _FIRST_RIDGES and width is None] or list(given)
        if before and width is None:
            best = self.best_trained
            widths = [w for w in widths if w >= best.width] or widths[-1:]
            ridges = sorted({c.ridge for c in before if c.width == best.width}, key=lambda r: r != best.ridge)
            ridges, bests = sorted(ridges[: 1 + (len(self.sample) == len(self.rows))]), [best.error]
        rival = self.least
        for left, n in zip(reversed(range(len(widths))), widths, strict=True):
            if self.of_kind("trained") and self.over(4 * seconds):
                break
            began = time.monotonic()
            tried = self.enter(self.train(unit, n, ridges))
            seconds = time.monotonic() - began
            best = min(tried, key=lambda c: c.error)
            bests.append(best.error)
            behind_others = len(bests) == 2 and len(tried) < 3 and best.error * _EQUAL > bests[0]
            ended = behind_others or _ended(bests, left, rival)
            far = {c.ridge for c in tried if c.error > _HOPELESS * best.error}
            ridges, hopeless = _next_ridges(ridges, given, best, far & hopeless), far
            if len(bests) > 2 and not self.of_kind("steps"):
                if step_gates:
                    self.try_steps()
                rival = self.least
            if ended:
                break
        return seconds

    def untried(self, unit: Unit, given: Sequence[float]) -> list[float]:
        """If the target is nearly noiseless and this unit is best: ridges up to one above the best, not yet tried."""
        best = self.best_trained
        if best.unit is not unit or best.error > 2 * PRECISE:
            return []
        tried = {c.ridge for c in self.of_kind("trained") if c.unit is unit and c.width == best.width}
        return [r for r in given[: given.index(best.ridge) + 2] if r not in tried]

    def train(self, unit: Unit, width: int, ridges: Sequence[float]) -> list[Candidate]:
        """One candidate per ridge, all folds of all ridges in one batch."""
        rows, fold = self.rows.take(self.sample), self.fold[self.sample]
        weights = np.stack([np.where(fold == f, 0.0, rows.weight) for f in range(self.used)] * len(ridges))
        how = {"rounds": _QUICK_ROUNDS, "steps": growing_steps(width) + _QUICK_STEPS, "device": self.device}
        how |= {"starts": _NARROW_STARTS if width <= _NARROW else 1, "ridge": list(np.repeat(ridges, self.used))}
        solutions = fit_batch(unit, rows, [(width, self.seed)] * len(weights), weights=weights, **how)
        networks = [s.network for s in solutions]
        return [
            self.of_networks(Candidate(unit, width, ridge), networks[i * self.used : (i + 1) * self.used])
            for i, ridge in enumerate(ridges)
        ]

    def of_networks(self, candidate: Candidate, networks: Sequence[Any]) -> Candidate:
        """A candidate with one network per fold."""
        values = [self.clipped_values(network, self.outside(f), f) for f, network in enumerate(networks)]
        return self.evaluate(candidate, [(network, None) for network in networks], values)

    def clipped_values(self, network: Any, index: Any, f: int) -> Array:
        """The values of a network at some rows, at most half the range of its training targets beyond them."""
        seen = self.rows.y[self.sample][self.fold[self.sample] != f]
        return np.clip(predict(network, self.rows.x[index]), *reach(seen))

    def draw(self, unit: Unit) -> None:
        """Try random gates of up to three widths and two slopes, if there are enough rows, while wider ones help."""
        rows, fold = self.rows.take(self.sample), self.fold[self.sample]
        model = _model(unit, rows, 1)
        if len(rows) < _FEWEST_ROWS or model.homogeneous[0]:  # homogeneous gates have no slope
            return
        columns = model.x.shape[1] if model.lines else 1  # columns of the linear problem per neuron
        before = np.inf
        for share in (8, 4, 2):
            width = min(len(rows) // share, _MOST_COLUMNS) // columns
            if not width:
                continue
            errors = []
            for steepness in _STEEPNESS:
                parts = [rows.take(np.flatnonzero(fold != f)) for f in range(self.used)]
                networks = [random_gates(unit, part, width, steepness, self.seed) for part in parts]
                candidate = Candidate(unit, width, 0.0, "drawn", steepness=steepness)
                errors += [c.error for c in self.enter([self.of_networks(candidate, networks)])]
            if min(errors) > _PAYS * before or self.over():
                return
            before = min(errors)

    def warm(self, candidate: Candidate, network: Any, fold: int | None = None) -> Solution:
        """A network after some steps on all rows, or on all rows but those of a fold."""
        seen = np.arange(len(self.rows)) if fold is None else np.flatnonzero(self.fold != fold)
        rows = fewer(self.rows.take(seen), self.seed)
        how = {"starts": 1, "rounds": 0, "steps": _WARM_STEPS, "start": network, "device": self.device}
        (solution,) = fit_batch(candidate.unit, rows, [(candidate.width, self.seed)], ridge=candidate.ridge, **how)
        if np.isfinite(predict(solution.network, self.rows.x)).all():
            return solution
        return Solution(network, Status.STALLED, ())

    def members(self, candidate: Candidate, chosen: Candidate, network: Network) -> list[Member]:
        """The networks of a candidate's folds, and one trained further on all rows if folds are few."""
        if candidate.gates != "trained":
            return list(candidate.members)
        sampled = len(self.sample) < len(self.rows)
        whole: list[Member] = []
        if candidate is chosen:
            whole = [(network, None)]
        elif (sampled or self.used < _ENOUGH_FOLDS) and not self.over():
            whole = [(self.warm(candidate, candidate.members[0][0]).network, None)]
        if sampled and whole:
            return whole
        return whole + list(candidate.members)

    def try_steps(self) -> None:
        """Try trees of step gates, unless this was done, one network is precise enough, or time is up."""
        if self.of_kind("steps") or self.least <= PRECISE or self.over():
            return
        self.enter([self.steps(_GATES)])
        if len(self.rows) <= _FEW_ROWS:
            self.enter([self.steps(_FEW_GATES)])

    def steps(self, gates: int) -> Candidate:
        """Networks of trees, one per fold; for folds beyond those of the search, as time permits."""
        folds = self.folds if len(self.rows) <= _FEW_ROWS else min(self.folds, _FEW_NETWORKS)
        pairs = [self.grow(f, gates, self.seed + f) for f in range(self.used)]
        for f in range(self.used, folds):
            pair = self.grow(f, gates, self.seed + f)
            if self.over():
                break
            pairs.append(pair)
        candidate = Candidate(None, round(np.mean([len(trees) for trees, _ in pairs])), gates="steps")
        return self.evaluate(candidate, [(None, trees) for trees, _ in pairs], [v for _, v in pairs[: self.used]])

    def on_top(self, candidate: Candidate) -> Candidate:
        """Trees on top of the trained networks of a candidate, for their residuals."""
        growths = -(-_ON_TOP // self.used)
        members, values = [], []
        for f, (network, _) in enumerate(candidate.members):
            if len(self.sample) < len(self.rows):
                network = self.warm(candidate, network, f).network
            seeds = [self.seed + f + _FOLDS * (1 + i) for i in range(growths)]
            pairs = [self.grow(f, _GATES, seed, network) for seed in seeds]
            members += [(network, trees) for trees, _ in pairs]
            values.append(np.mean([value for _, value in pairs], axis=0))
        return self.evaluate(replace(candidate, gates="both"), members, values)

    def grow(self, f: int, gates: int, seed: int, network: Any = None) -> tuple[StepNetwork, Array]:
        """Trees trained without a fold, on top of a network if given, and their values on that fold."""
        held, others = self.outside(f), np.flatnonzero(self.fold != f)
        if len(others) > _STEPPED_ROWS:
            others = np.random.default_rng(seed).choice(others, _STEPPED_ROWS, replace=False)
        index = np.concatenate([held, others])
        base = None if network is None else self.clipped_values(network, index, f)
        mask = np.arange(len(index)) < len(held)
        return boosted_trees(self.binned.take(index), Squares(), [mask], [seed], gates, base=base, over=self.over)[0]


def widths_for(unit: Unit, rows: TableRows) -> list[int]:
    """1, 2, 4, ... up to half as many parameters as values, as long as a fit takes seconds.

    >>> rows = TableRows(np.zeros((200, 2)), np.zeros((200, 1)), np.ones(200))
    >>> widths_for(Unit("silu", 1), rows)
    [1, 2, 4, 8]
    """
    n, inputs, outputs = len(rows), rows.x.shape[1], rows.y.shape[1]
    cheap = [w for w in (2**k for k in range(1, 14)) if n * (w * (inputs + 1)) ** 2 <= _MOST_WORK]
    return [1, *(w for w in cheap if unit.parameter_count(w, inputs, outputs) <= n * outputs / 2)]


def _next_ridges(ridges: Sequence[float], given: Sequence[float], best: Candidate, hopeless: set[float]) -> list[float]:
    """The ridges at the next width: if the smallest or largest was best, the next beyond it is added."""
    following = [r for r in ridges if r not in hopeless]
    if best.ridge in (min(ridges), max(ridges)):
        place = given.index(best.ridge)
        beside = [r for r in given[max(0, place - 1) : place + 2] if r not in ridges]
        following += [r for r in beside if r > best.ridge or best.error < 4 * PRECISE]
    return sorted(following)


def _ended(bests: Sequence[float], doublings: int, rival: float) -> bool:
    """Whether wider networks of this unit are not worth trying, given the error of a rival.

    >>> _ended([0.3, 0.2, 0.2, 0.21], 4, 1.0), _ended([0.3, 0.2, 0.1], 4, 1e-8), _ended([0.3, 0.2, 0.1], 4, 0.1)
    (True, True, False)
    """
    if min(bests) <= ENOUGH or rival <= ENOUGH < _HOPE * bests[-1]:
        return True
    idle = [after * _EQUAL > before for before, after in pairwise(np.minimum.accumulate(bests))]
    if len(idle) > 1 and (all(idle[-2:]) or (idle[-1] and min(bests) > _NOISY)):
        return True
    # The first widths do not determine a trend.
    rate = min(bests[-1] / bests[-2], 0.9) if len(bests) > 2 else _HOPE
    return bests[-1] * rate**doublings > rival


def bent_frame(rows: TableRows, plain: Frame, unit: Unit, seed: int, device: str) -> Frame:
    """The frame that transforms inputs or targets with heavy tails if that lowers the error on held-out rows.

    Targets are tested with step gates and a narrow network, in raw units; inputs then with the narrow network, since
    step gates are invariant.
    """
    frame = plain
    if Bend.of(rows.y / plain.y_unit).bends:
        frames = [Frame.of(rows, bend_inputs=True, bend_targets=bent) for bent in (False, True)]
        errors = [_raw_error(rows, f, unit, seed, device) for f in frames]
        if errors[1] < errors[0]:
            frame = Frame.of(rows, bend_targets=True)
    if Bend.of(rows.x / plain.x_unit).bends:
        bent = Frame.of(rows, bend_inputs=True, bend_targets=frame is not plain)
        searches = [SquaresSearch(f.standard(rows), rows.x, seed, device) for f in (frame, bent)]
        if all(s.folds > 1 for s in searches):
            errors = [min(c.error for c in s.train(unit, 2, _FIRST_RIDGES[1:])) for s in searches]
            if errors[1] < errors[0]:
                frame = bent
    return frame


def _raw_error(rows: TableRows, frame: Frame, unit: Unit, seed: int, device: str) -> float:
    """The smaller squared error of step gates and of a narrow network, each output relative to its variance."""
    search = SquaresSearch(frame.standard(rows), rows.x, seed, device)
    if search.folds < 2:
        return np.inf
    held = np.concatenate([search.outside(f) for f in range(search.used)])
    stepped = np.concatenate([search.grow(f, _GATES, seed)[1] for f in range(search.used)])
    (narrow,) = search.train(unit, 2, _FIRST_RIDGES[1:2])
    variance = np.var(rows.y / frame.y_unit, axis=0)
    errors = []
    for z in (stepped, narrow.values):
        values = frame.smeared(search.rows.y[held] - z).outputs(z)
        error = np.square((values - rows.y[held]) / frame.y_unit) / np.where(variance > 0, variance, 1.0)
        errors.append(float(rows.weight[held] @ error.mean(axis=1)))
    return min(errors)


def fit_batch(
    unit: Any, rows: TableRows, tasks: Any, *, rounds: int, weights: Any = None, **options: Any
) -> tuple[Solution, ...]:
    """`varpro_many`, without the exchange of neurons if its algebra breaks down on very few rows."""
    if weights is None and (rows.weight != rows.weight[0]).any():  # equal weights would only cost time
        weights = rows.weight
    try:
        return varpro_many(unit, rows.x, rows.y, tasks, weights=weights, rounds=rounds, **options)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
        return varpro_many(unit, rows.x, rows.y, tasks, weights=weights, rounds=0, **options)


def fewer(rows: TableRows, seed: int) -> TableRows:
    """A random subset of the rows if there are too many for the memory."""
    if len(rows) <= _TRAINED_ROWS:
        return rows
    return rows.take(np.sort(np.random.default_rng(seed).choice(len(rows), _TRAINED_ROWS, replace=False)))


def random_gates(unit: Unit, rows: TableRows, width: int, steepness: float, seed: int) -> Network:
    """A network of random gates with slopes up to `steepness`, each centered at a row, and fitted lines."""
    model = _model(unit, rows, width)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(model.maps, width, model.x.shape[1], generator=generator, dtype=torch.float64)
    gate = theta[0]
    slope = 0.5 * steepness * (1 + torch.rand(width, 1, generator=generator, dtype=torch.float64))
    gate[:, :-1] *= slope / gate[:, :-1].norm(dim=-1, keepdim=True)
    through = model.x[torch.randint(len(rows), (width,), generator=generator), :-1]
    gate[:, -1] = -(gate[:, :-1] * through).sum(-1)
    theta = model.normalized(theta[None])
    F = model.columns(theta)[0].numpy()
    length = np.linalg.norm(F, axis=0)
    length[length == 0] = 1.0
    weighted = rows.y * np.sqrt(rows.weight)[:, None]
    found: Any = apart(lstsq, F / length, weighted, cond=_RANK, lapack_driver="gelsy", check_finite=False)
    return model.network(theta, torch.tensor(found[0] / length[:, None])[None], 0, width)


def _model(unit: Unit, rows: TableRows, width: int) -> ProductModel:
    x = torch.tensor(np.concatenate([rows.x, np.ones((len(rows), 1))], axis=1))
    present = torch.ones(1, width, dtype=torch.bool)
    root = torch.tensor(np.sqrt(rows.weight))[None]
    return ProductModel(unit, x, torch.tensor(rows.y), present, torch.zeros(1, dtype=torch.float64), root)
