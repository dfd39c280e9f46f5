"""The choice of a classifier's networks by rows held out, and their average.

Every candidate, a unit with a width and a ridge, is one batch of networks: one for each fold, which is held out from it
and says when it ends. Candidates are tried from the cheapest on: the linear part alone, one width with every ridge,
then other widths and units with the best ridge. Last come candidates whose inputs are weighed by how much the logits of
the best one move with each: a ridge then costs inputs without relevance more. Networks of trees of step gates, boosted
and averaged, are two candidates more.

The networks of the best candidates are a `ClassCommittee`: its probability is the mean of theirs, by weights that are
not negative and that make the rows held out most likely. One temperature for all makes it calibrated there.

Where rows are few, those held out cannot tell that a kind of candidate is useless, only that it has not helped yet. So
the best of each kind is a member there, the linear part alone among them: what one kind is sure of by mistake, which
costs more log loss than all else, the others do not believe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.estimators.frames import TableRows, reach
from gatelab.estimators.likelihood import ClassRows, Likelihood, LikelihoodFit, Wandering, descend, wander
from gatelab.estimators.trees import KINDS, StepTrees, TreeGrower, log_probability
from gatelab.feedforward import Unit

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
# Widths: the first is tried with every ridge where its networks go by Gauss-Newton steps, else the third.
WIDTHS = (8, 16, 32, 64)
# Up to so many rows the strongest ridge is tried as well, and deep trees are not.
_FEW_ROWS = 1000
# A width that leaves more than this share of the loss does not help; inputs are weighed at most so often.
_GAIN, _WEIGHINGS = 0.995, 2
# So many rows held out are enough to choose by.
_JUDGES = 600
# Rows times logits times parameters squared up to which a step of Gauss-Newton is cheap.
_NEWTON_WORK = 4e7
_NEWTON_STEPS, _LINEAR_STEPS = 30, 30
# Of Adam: the most and the fewest passes, the rows that all passes together use, the first rate, and the fewest and the
# most rows of a step.
_PASSES, _FEWEST_PASSES, _USED_ROWS, _RATE = 40, 6, 240_000, 0.01
_BATCH_ROWS, _MOST_BATCH_ROWS = 128, 1024
# Folds of few rows and of many, and of a choice whose networks are fitted again; up to so many rows are few, and the
# best of each kind is then a member.
_FOLDS, _MANY_FOLDS, _CHOICE_FOLDS, _MANY_ROWS = 8, 4, 5, 500
# A class with fewer different inputs than this is never held out.
_FEWEST_INPUTS = 3
# Relevance of an input is its sensitivity beside the mean of squares over all; none is less than this.
_LEAST_RELEVANCE = 0.02
# Networks begin with weights of this size in the last map, over the root of the width.
_FIRST_WEIGHT = 0.3
# Candidates whose loss on rows held out is beyond the best by this factor do not join it.
_FAR = 1.2
# Rows that each member is taken to have explained before any is looked at.
_ROWS_BEFORE = 1.0
# Without rows to hold out, the ridge where none is given.
_DEFAULT_RIDGE = 1e-2
# Temperatures between which the one is sought.
_COLDEST, _HOTTEST = 0.2, 5.0
# The standard deviation of a temperature's logarithm that is expected before any row is looked at.
_DEVIATION = 0.15
_NOTHING = torch.zeros(0)
# What trees of step gates are called among units; averaged trees of the networks of all folds together.
STEPS, _AVERAGED = "steps", 400
# The kind of trees that is left out where rows are few, for time's sake.
_MANY_ROWS_KIND = "deeply boosted"


@dataclass(frozen=True, eq=False)
class ClassFolds:
    """Rows with their folds: -1 is never held out.

    Attributes:
        rows: inputs of unit variance, targets of zeros and a one for the class, and weights.
        fold: of each row.
        number: of folds.
        device: where torch computes.
    """

    rows: TableRows
    fold: NDArray[np.intp]
    number: int
    device: str

    @classmethod
    def of(cls, rows: TableRows, folds: int, seed: int, device: str) -> ClassFolds:
        """Folds in which every class has its share; rows with equal inputs are in one."""
        generator = np.random.default_rng(seed)
        groups, first, group = np.unique(rows.x, axis=0, return_index=True, return_inverse=True)
        label = rows.y.argmax(1)[first]
        rare = np.bincount(label)[label] < _FEWEST_INPUTS
        order = generator.permutation(len(groups))
        order = order[np.argsort(label[order], kind="stable")]
        order = order[~rare[order]]
        number = min(folds, len(order))
        fold = np.full(len(groups), -1, dtype=np.intp)
        if number >= 2:
            fold[order] = np.arange(len(order)) % number
        return cls(rows, fold[group.ravel()], number, device)

    def first(self, number: int) -> ClassFolds:
        """The same rows, of which those of later folds are never held out."""
        return replace(self, fold=np.where(self.fold < number, self.fold, -1), number=number)

    @property
    def class_rows(self) -> ClassRows:
        """The rows as the networks take them."""
        x = np.concatenate([self.rows.x, np.ones((len(self.rows), 1))], axis=1)
        return ClassRows(torch.tensor(x, device=self.device), torch.tensor(self.rows.y, device=self.device))

    def weights(self) -> tuple[Tensor, Tensor]:
        """Of the rows that each fold's network trains on, and of those held out from it: (folds, N), of sum one."""
        outside = self.rows.weight * (self.fold == np.arange(self.number)[:, None])
        inside = self.rows.weight - outside
        inside, outside = (w / w.sum(1, keepdims=True) for w in (inside, outside))
        return torch.tensor(inside, device=self.device), torch.tensor(outside, device=self.device)


@dataclass(frozen=True, eq=False)
class ClassCandidate:
    """A unit, width and ridge, with the networks of the first folds or of all; or networks of trees.

    Attributes:
        unit: the unit, or a kind of `trees.KINDS` for trees of step gates.
        width: neurons, none where the linear part is alone; or trees.
        ridge: the penalty.
        weighed: whether inputs are weighed by their relevance.
        log_loss: the weighted mean of -log p of the rows held out.
        theta: the parameters of the folds' networks, relevance included (folds, p).
        relevance: of the inputs for each fold, all of them (folds, d + 1).
        training: the mean of -log p at the rows that each network was trained on (folds,).
        outside: log p of the rows, each by the network that was not trained on it (N, classes).
        trees: the folds' networks, where they are trees.
    """

    unit: Unit | str
    width: int
    ridge: float = 0.0
    weighed: bool = False
    log_loss: float = np.inf
    theta: Tensor = _NOTHING
    relevance: Tensor = _NOTHING
    training: Tensor = _NOTHING
    outside: Array = field(default_factory=lambda: np.zeros((0, 0)))
    trees: tuple[StepTrees, ...] = ()

    @property
    def name(self) -> str:
        """That of the unit; of trees the kind of steps."""
        if isinstance(self.unit, Unit):
            return self.unit.name
        return f"{self.unit} {STEPS}"

    @property
    def kind(self) -> str:
        """Gated, linear where there are no neurons, or the kind of trees."""
        if self.trees:
            return str(self.unit)
        if self.width:
            return "gated"
        return "linear"

    @property
    def networks(self) -> int:
        """How many folds have their network."""
        return len(self.theta) + len(self.trees)

    @property
    def product(self) -> Unit:
        """The unit of a candidate that is no trees."""
        assert isinstance(self.unit, Unit)
        return self.unit

    def row(self) -> dict[str, Any]:
        """What was tried, as plain values."""
        names = ("width", "ridge", "weighed", "log_loss")
        return {"unit": self.name} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class MemberNetworks:
    """Networks of one unit and width, with what each counts in the mean: theta (members, p), share (members,)."""

    unit: Unit
    width: int
    theta: Tensor
    share: Tensor


@dataclass(frozen=True, eq=False)
class MemberTrees:
    """Networks of trees of one kind of `trees.KINDS`, with what each counts in the mean (members,)."""

    kind: str
    trees: tuple[StepTrees, ...]
    share: Array


@dataclass(frozen=True, eq=False)
class ClassCommittee:
    """Networks whose probabilities are averaged, and the temperature of the mean.

    Attributes:
        networks: the networks, those of one candidate together.
        trees: the networks of trees of step gates, those of one candidate together.
        temperature: what the logarithm of the mean is divided by.
        classes: how many there are.
        low: how far inputs count (d,): what is beyond is taken to be there, for far outside a network is a polynomial.
        high: likewise.
    """

    networks: tuple[MemberNetworks, ...]
    trees: tuple[MemberTrees, ...]
    temperature: float
    classes: int
    low: Array
    high: Array

    def __repr__(self) -> str:
        number = sum(len(n.share) for n in (*self.networks, *self.trees))
        return one_line(self, f"{counted(number, 'network')} for {self.classes} classes")

    def log_probability(self, x: Array, raw: Array) -> Array:
        """log p (rows, classes) at inputs of unit variance (rows, d), and the same rows as they came, for trees."""
        most = max(256, 2**22 // max(1, sum(n.theta.numel() for n in self.networks)))
        inputs = torch.tensor(np.concatenate([np.clip(x, self.low, self.high), np.ones((len(x), 1))], axis=1))
        starts = range(0, len(x), most)
        parts = [self._mean(inputs[i : i + most], raw[i : i + most]) for i in starts]
        return tempered(torch.cat(parts), self.temperature).numpy()

    def _mean(self, x: Tensor, raw: Array) -> Tensor:
        values = []
        for part in self.networks:
            model = likelihood(part.unit, part.width, ClassRows(x, x.new_zeros(len(x), self.classes)), part.share)
            values.append(model.log_probability(part.theta) + part.share.log()[:, None, None])
        for part in self.trees:
            log_p = np.stack([log_probability(part.kind, network.values(raw)) for network in part.trees])
            values.append(torch.tensor(log_p + np.log(part.share)[:, None, None]))
        return torch.cat(values).logsumexp(0)


def likelihood(unit: Unit, width: int, rows: ClassRows, share: Tensor) -> Likelihood:
    """A batch of as many networks as there are shares, on rows that all count alike, without a ridge."""
    weight = rows.x.new_full((len(share), len(rows.x)), 1 / len(rows.x))
    return Likelihood(unit, width, rows, weight, torch.zeros_like(share), rows.x.new_ones(len(share), rows.x.shape[1]))


def tempered(log_probability: Tensor, temperature: float) -> Tensor:
    """log p at another temperature: above one, probabilities are nearer to each other."""
    return (log_probability / temperature).log_softmax(-1)


class Search:
    """Candidates as they are tried, one batch after the other, until the clock reads `end`.

    So many folds are searched that some hundred rows judge; the networks of the others are fitted for the chosen alone.
    """

    def __init__(
        self, folds: ClassFolds, raw: Array, seed: int, end: float, show: Callable[[ClassCandidate], None]
    ) -> None:
        self.folds, self.raw, self.seed, self.end, self.show = folds, raw, seed, end, show
        self.rows = folds.class_rows
        self.weights = folds.weights()
        self.searched = max(1, min(folds.number, math.ceil(folds.number * _JUDGES / max(1, len(self.rows.x)))))
        self.tried: list[ClassCandidate] = []

    @property
    def best(self) -> ClassCandidate:
        """The candidate with the least loss on rows held out."""
        return min(self.tried, key=lambda c: c.log_loss)

    @property
    def over(self) -> bool:
        """Whether there is no time left."""
        return monotonic() > self.end

    @property
    def grower(self) -> TreeGrower:
        """What networks of trees grow by."""
        rows = self.folds.rows
        return TreeGrower(TableRows(self.raw, rows.y, rows.weight), self.seed, lambda: self.over)

    def held(self, folds: range) -> list[NDArray[np.bool_]]:
        """The rows held out from the networks of some folds."""
        return [self.folds.fold == f for f in folds]

    def attempt_trees(self) -> None:
        """Networks of trees of step gates, of each kind."""
        for kind in KINDS:
            if self.over and self.tried:
                return
            if kind == _MANY_ROWS_KIND and len(self.raw) <= _FEW_ROWS:
                continue
            number = None
            if kind == "averaged":
                number = math.ceil(_AVERAGED / self.folds.number)
            trees, outside = self.grower.grown(kind, self.held(range(self.searched)), number)
            log_p = np.zeros(self.rows.target.shape)
            for f, values in enumerate(outside):
                log_p[self.folds.fold == f] = values
            loss = mean_loss(log_p, self.folds.first(len(trees)))
            candidate = ClassCandidate(kind, len(trees[0].roots), log_loss=loss, outside=log_p, trees=trees)
            self.show(candidate)
            self.tried.append(candidate)

    def run(self, units: Sequence[Unit], width: int | None, ridge: float | None) -> None:
        """Try what is not given: ridges, widths, units, and the relevance of inputs."""
        ridges = RIDGES[: 3 + (len(self.rows.x) <= _FEW_ROWS)]
        if ridge is not None:
            ridges = (ridge,)
        if width is None:
            self.attempt(units[0], 0, ridges)
            first = WIDTHS[0] if self.newton(units[0], WIDTHS[0]) else WIDTHS[2]
            self.attempt(units[0], first, ridges)
            larger, smaller = [n for n in WIDTHS if n > first], [WIDTHS[0] // 2]
            if not self.improve(units[0], larger, ridge) and first == WIDTHS[0]:
                self.improve(units[0], smaller, ridge)
        else:
            self.attempt(units[0], width, ridges)
        for unit in units[1:]:
            self.attempt(unit, self.gated.width, self.near(ridge, (1.0,)))
        for _ in range(_WEIGHINGS):
            best = self.best
            if not best.width or self.rows.x.shape[1] < 4 or self.over:
                break
            self.attempt(best.product, best.width, self.near(ridge, (1.0, 3.0)), best)
            if self.best is best:
                break

    def improve(self, unit: Unit, widths: Sequence[int], ridge: float | None) -> bool:
        """Try widths one after the other while they help; whether one did."""
        helped = False
        for n in widths:
            before = self.best.log_loss
            self.attempt(unit, n, self.near(ridge, (1.0,)))
            if self.best.log_loss > _GAIN * before:
                break
            helped = True
        return helped

    @property
    def gated(self) -> ClassCandidate:
        """The best candidate that has neurons, if any has."""
        return min((c for c in self.tried if not c.trees), key=lambda c: (c.width == 0, c.log_loss))

    def near(self, ridge: float | None, factors: Sequence[float]) -> tuple[float, ...]:
        """The ridge of the best candidate that has neurons, times these factors, or the one that is given."""
        if ridge is not None:
            return (ridge,)
        return tuple(self.gated.ridge * f for f in factors)

    def newton(self, unit: Unit, width: int) -> bool:
        """Whether a step of Gauss-Newton is cheap."""
        n, d = self.rows.x.shape
        parameters = (unit.factors + 1) * width * d + self.rows.logits * (width + d)
        return n * self.rows.logits * parameters**2 <= _NEWTON_WORK

    def attempt(self, unit: Unit, width: int, ridges: Sequence[float], before: ClassCandidate | None = None) -> None:
        """One batch: every ridge with every fold searched, with the relevance of inputs in the networks of another."""
        if self.over and self.tried:
            return
        relevance = torch.ones(self.folds.number, self.rows.x.shape[1], dtype=torch.float64, device=self.rows.x.device)
        if before is not None:
            relevance = relevances(before, self.rows, self.weights[0])
        terms = ClassCandidate(unit, width, 0.0, before is not None, relevance=relevance)
        theta, training = self.trained(terms, ridges, slice(self.searched), self.end)
        for i, ridge in enumerate(ridges):
            candidate = self.judged(replace(terms, ridge=ridge, theta=theta[i], training=training[i]))
            self.show(candidate)
            self.tried.append(candidate)

    def completed(self, candidate: ClassCandidate) -> ClassCandidate:
        """The candidate with networks of all folds."""
        missing = slice(candidate.networks, self.folds.number)
        if candidate.networks == self.folds.number or self.over:
            return candidate
        if candidate.trees:
            return self.completed_trees(candidate)
        theta, training = self.trained(candidate, [candidate.ridge], missing, math.inf)
        theta = torch.cat([candidate.theta, theta[0]])
        return self.judged(replace(candidate, theta=theta, training=torch.cat([candidate.training, training[0]])))

    def completed_trees(self, candidate: ClassCandidate) -> ClassCandidate:
        """The candidate with trees of all folds, as many in each as in those that are there."""
        missing = range(candidate.networks, self.folds.number)
        trees, outside = self.grower.grown(str(candidate.unit), self.held(missing), candidate.width, missing.start)
        log_p = candidate.outside.copy()
        for f, values in zip(missing, outside, strict=True):
            log_p[self.folds.fold == f] = values
        return replace(
            candidate, trees=(*candidate.trees, *trees), outside=log_p, log_loss=mean_loss(log_p, self.folds)
        )

    def whole_trees(self, candidate: ClassCandidate, members: int) -> tuple[StepTrees, ...]:
        """Networks of trees on all rows, of as many trees as those of a candidate's folds."""
        none = [np.zeros(len(self.raw), dtype=np.bool_) for _ in range(members)]
        return self.grower.grown(str(candidate.unit), none, candidate.width)[0]

    def trained(
        self, terms: ClassCandidate, ridges: Sequence[float], folds: slice, end: float
    ) -> tuple[Tensor, Tensor]:
        """The networks of some folds for each ridge (ridges, folds, p), and their training losses (ridges, folds)."""
        inside, outside = (w[folds].repeat(len(ridges), 1) for w in self.weights)
        number = len(inside) // len(ridges)
        ridge = torch.tensor(ridges, dtype=torch.float64, device=inside.device).repeat_interleave(number)
        relevance = terms.relevance[folds].repeat(len(ridges), 1)
        model = Likelihood(terms.product, terms.width, self.rows, inside, ridge, relevance)
        fit = self.solve(model, outside, end)
        return model.plain(fit.theta).unflatten(0, (-1, number)), fit.training.unflatten(0, (-1, number))

    def judged(self, candidate: ClassCandidate) -> ClassCandidate:
        """The candidate with log p of the rows held out from its networks, and their mean loss."""
        log_p = np.zeros(self.rows.target.shape)
        for f, theta in enumerate(candidate.theta):
            own = torch.tensor(self.folds.fold == f, device=theta.device)
            rows = ClassRows(self.rows.x[own], self.rows.target[own])
            model = likelihood(candidate.product, candidate.width, rows, theta.new_ones(1))
            log_p[self.folds.fold == f] = model.log_probability(theta[None])[0].cpu().numpy()
        loss = mean_loss(log_p, self.folds.first(len(candidate.theta)))
        return replace(candidate, outside=log_p, log_loss=loss)

    def solve(
        self, model: Likelihood, outside: Tensor | None, end: float, until: Tensor | None = None
    ) -> LikelihoodFit:
        """The networks of a batch from their starts."""
        linear = replace(model, width=0)
        A = torch.zeros(len(model.ridge), sum(linear.sizes), dtype=torch.float64, device=model.weight.device)
        if self.newton(model.unit, 0):
            first = descend(linear, A, outside, steps=_LINEAR_STEPS)
            if not model.width:
                return first
            if self.newton(model.unit, model.width):
                theta = start(model, first.theta, self.seed)
                return descend(model, theta, outside, steps=_NEWTON_STEPS, until=until, end=end)
        n = len(self.rows.x)
        passes = max(_FEWEST_PASSES, min(_PASSES, _USED_ROWS // n))
        how = Wandering(passes, _RATE, min(_MOST_BATCH_ROWS, max(_BATCH_ROWS, n // 32)), self.seed)
        return wander(model, start(model, A, self.seed), outside, how, until=until, end=end)

    def fitted(
        self, unit: Unit, width: int, ridge: float, members: int, candidate: ClassCandidate | None
    ) -> MemberNetworks:
        """Networks of all rows, which end where those of a candidate's folds did on their own."""
        weight = torch.tensor(self.folds.rows.weight, device=self.folds.device)
        weight = (weight / weight.sum()).repeat(members, 1)
        relevance, until = torch.ones(1, self.rows.x.shape[1], dtype=torch.float64, device=weight.device), None
        if candidate is not None:
            relevance = candidate.relevance.mean(0, keepdim=True)
            until = candidate.training.mean().repeat(members)
        ridges = torch.full_like(weight[:, 0], ridge)
        model = Likelihood(unit, width, self.rows, weight, ridges, relevance.repeat(members, 1))
        theta = model.plain(self.solve(model, None, math.inf, until).theta).cpu()
        return MemberNetworks(unit, width, theta, torch.full((members,), 1 / members, dtype=torch.float64))


def relevances(candidate: ClassCandidate, rows: ClassRows, weight: Tensor) -> Tensor:
    """What each input is multiplied by for each fold (folds, d + 1), by how the logits of its network move with it.

    Folds whose networks are not there yet have the mean of the others.
    """
    folds = len(candidate.theta)
    model = Likelihood(
        candidate.product,
        candidate.width,
        rows,
        weight[:folds],
        torch.zeros_like(candidate.training),
        torch.ones_like(candidate.relevance[:folds]),
    )
    sensitivity = model.sensitivity(candidate.theta)
    size = sensitivity.square().mean(1, keepdim=True).sqrt()
    scaled = torch.where(size > 0, sensitivity / size.clamp_min(1e-300), 1.0).clamp_min(_LEAST_RELEVANCE)
    scaled = torch.cat([scaled, torch.ones_like(size)], 1)
    return torch.cat([scaled, scaled.mean(0, keepdim=True).repeat(len(weight) - folds, 1)])


def start(model: Likelihood, linear: Tensor, seed: int) -> Tensor:
    """Parameters (B, p): gates in random directions, each through a row, small weights, and this linear part (B, .)."""
    generator = torch.Generator().manual_seed(seed)
    batch, n, (rows, d), c = len(linear), model.width, model.rows.x.shape, model.rows.logits
    maps = torch.randn(batch, model.maps, n, d, generator=generator, dtype=torch.float64)
    maps /= maps[..., :-1].norm(dim=-1, keepdim=True).clamp_min(1e-9)
    through = torch.randint(rows, (batch, n), generator=generator)
    D = _FIRST_WEIGHT * torch.randn(batch, c, n, generator=generator, dtype=torch.float64) / math.sqrt(max(1, n))
    maps, through, D = (t.to(linear.device) for t in (maps, through, D))
    inputs = model.rows.x[through] * model.relevance[:, None]
    maps[:, 0, :, -1] = -(maps[:, 0, :, :-1] * inputs[..., :-1]).sum(-1)
    return torch.cat([maps.flatten(1), D.flatten(1), linear], 1)


def mean_loss(log_p: Array, folds: ClassFolds) -> float:
    """The weighted mean of -log p of the classes of the rows that were held out; infinite where it is no number."""
    weight = folds.rows.weight * (folds.fold >= 0)
    loss = float(-(weight @ (log_p * folds.rows.y).sum(1)) / weight.sum())
    if not np.isfinite(loss):
        return np.inf
    return loss


def shares(log_p: Sequence[Array], folds: ClassFolds, rounds: int = 50) -> Array:
    """What each candidate counts in the mean that makes the rows held out most likely, by EM; none is negative.

    A mean of probabilities is a mixture, so that these are its proportions. Each has a row more than it explains: its
    share is never nothing, and few rows move it little from that of the others.
    """
    weight = folds.rows.weight * (folds.fold >= 0)
    rows = np.count_nonzero(folds.fold >= 0)
    p = np.stack([np.exp((values * folds.rows.y).sum(1)) for values in log_p], axis=1).clip(1e-300)
    share = np.full(len(log_p), 1 / len(log_p))
    for _ in range(rounds):
        part = p * share
        explained = rows * (weight @ (part / part.sum(1, keepdims=True))) / weight.sum()
        share = (explained + _ROWS_BEFORE) / (rows + _ROWS_BEFORE * len(log_p))
    return share


def mixed(log_p: Sequence[Array], share: Array) -> Array:
    """log of the mean of probabilities by these shares."""
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(np.stack(log_p) + np.log(share)[:, None, None], axis=0)


def best_of_kinds(tried: Sequence[ClassCandidate]) -> list[ClassCandidate]:
    """The best candidate of each kind, the best of all first; without those whose loss is no number, if others are."""
    best: dict[str, ClassCandidate] = {}
    for candidate in sorted(tried, key=lambda c: c.log_loss):
        if not best or np.isfinite(candidate.log_loss):
            best.setdefault(candidate.kind, candidate)
    return list(best.values())


def chosen_candidates(search: Search, most: int, *, alone: bool = False) -> list[ClassCandidate]:
    """Candidates that are averaged: of few rows the best of each kind, else each the one with which the mean is best.

    Where rows are not few, there are at most so many candidates of networks; any of trees may join them.
    """
    folds = search.folds.first(search.searched)
    chosen = [search.best]
    if len(search.raw) <= _MANY_ROWS and not alone:
        return best_of_kinds(search.tried)
    near = [c for c in search.tried if c.log_loss <= _FAR * search.best.log_loss]
    loss = search.best.log_loss
    while not alone:
        gated = sum(not c.trees for c in chosen)
        trials = []
        for candidate in near:
            if candidate not in chosen and (candidate.trees or gated < most):
                values = [c.outside for c in (*chosen, candidate)]
                trials.append((mean_loss(mixed(values, shares(values, folds)), folds), candidate))
        if not trials or min(trials, key=lambda t: t[0])[0] >= loss:
            break
        loss, joining = min(trials, key=lambda t: t[0])
        chosen.append(joining)
    return chosen


def temperature_of(log_p: Array, folds: ClassFolds) -> float:
    """The temperature at which the rows held out are most likely.

    These rows also said when their networks end, which makes them look better than others will be. So the logarithm has
    a prior, normal about zero: few rows do not move it.
    """
    values = torch.tensor(log_p)
    rows = np.count_nonzero(folds.fold >= 0)

    def loss(log_temperature: float) -> float:
        deviance = mean_loss(tempered(values, math.exp(log_temperature)).numpy(), folds)
        return rows * deviance + 0.5 * (log_temperature / _DEVIATION) ** 2

    best: Any = minimize_scalar(loss, bounds=(math.log(_COLDEST), math.log(_HOTTEST)), method="bounded")
    return math.exp(float(best.x))


def folds_for(members: int, rows: int) -> int:
    """How many folds: as many as networks, unless these are few or rows are many.

    >>> folds_for(8, 200), folds_for(8, 20_000), folds_for(1, 200), folds_for(6, 200)
    (8, 4, 5, 6)
    """
    if members < 3:
        return _CHOICE_FOLDS
    most = _FOLDS
    if rows > _MANY_ROWS:
        most = _MANY_FOLDS
    return min(members, most)


@dataclass(frozen=True)
class Election:
    """What a committee is chosen from.

    Attributes:
        units: of gated networks.
        gated: whether gated networks are tried; they are in any case what is fitted where no row can be held out.
        steps: whether trees of step gates are tried.
        width: of gated networks, None to have it chosen.
        ridge: of gated networks, None to have it chosen.
        members: how many gated networks are averaged at most.
        seed: of everything that is random.
        device: where torch computes.
        end: the reading of the monotonic clock at which the search ends.
    """

    units: tuple[Unit, ...]
    gated: bool
    steps: bool
    width: int | None
    ridge: float | None
    members: int
    seed: int
    device: str
    end: float


def elect(
    rows: TableRows, raw: Array, terms: Election, show: Callable[[ClassCandidate], None]
) -> tuple[ClassCommittee, list[ClassCandidate]]:
    """The committee for these rows, raw for trees, and every candidate that was tried, the one that leads it first.

    Of candidates there are none where there are too few rows to hold some out.
    """
    folds = ClassFolds.of(rows, folds_for(terms.members, len(rows)), terms.seed, terms.device)
    search = Search(folds, raw, terms.seed, terms.end, show)
    classes = rows.y.shape[1]
    if folds.number < 2:
        ridge = _DEFAULT_RIDGE if terms.ridge is None else terms.ridge
        networks = search.fitted(terms.units[0], terms.width or 0, ridge, 1, None)
        return ClassCommittee((networks,), (), 1.0, classes, *reach(rows.x)), []
    if terms.gated:
        search.run(terms.units, terms.width, terms.ridge)
    if terms.steps:
        search.attempt_trees()
    again = terms.members < folds.number
    chosen = chosen_candidates(search, terms.members // folds.number, alone=again)
    others = [c for c in search.tried if c not in chosen]
    chosen = [search.completed(c) for c in chosen]
    folds = folds.first(min(c.networks for c in chosen))
    share = shares([c.outside for c in chosen], folds)
    temperature = temperature_of(mixed([c.outside for c in chosen], share), folds)
    networks, trees = [], []
    for c, s in zip(chosen, share, strict=True):
        if c.trees:
            grown = c.trees
            if again:
                grown = search.whole_trees(c, terms.members)
            trees.append(MemberTrees(str(c.unit), grown, np.full(len(grown), s / len(grown))))
        elif again:
            networks.append(search.fitted(c.product, c.width, c.ridge, terms.members, c))
        else:
            part = torch.full_like(c.training.cpu(), float(s) / len(c.theta))
            networks.append(MemberNetworks(c.product, c.width, c.theta.cpu(), part))
    committee = ClassCommittee(tuple(networks), tuple(trees), temperature, classes, *reach(rows.x))
    return committee, [*chosen, *others]
