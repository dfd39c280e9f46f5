"""The classifier's search: networks and trees by their log loss on held-out rows, which also ends the training.

The cheapest candidates come first: the linear part alone, one width with every ridge, other widths and units with the
best ridge, and inputs scaled by the sensitivity of the best network to each. On few rows a validation loss cannot
exclude a kind of candidate, so that the best of each kind is averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatelab.arrays import Array
from gatelab.estimators import search
from gatelab.estimators.frames import TableRows
from gatelab.estimators.likelihood import Likelihood, LikelihoodFit, adam, gauss_newton
from gatelab.estimators.search import Candidate, Committee, Member, Search
from gatelab.estimators.trees import DEPTHS, KINDS, Deviance, StepTrees, averaged_trees, boosted_trees
from gatelab.feedforward import Unit

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
# Widths: the first is tried with every ridge if Gauss-Newton steps are cheap for it, otherwise the third.
WIDTHS = (8, 16, 32, 64)
# Up to this many rows the strongest ridge is tried too; deep trees are tried above it.
_FEW_ROWS, _MANY_ROWS_KIND = 1000, "deeply boosted"
# The largest ratio of losses at which a wider network is an improvement, and the number of times inputs are rescaled.
_GAIN, _WEIGHINGS = 0.995, 2
# The number of held-out rows that are enough for a choice.
_JUDGES = 600
# Rows times logits times squared parameters up to which a Gauss-Newton step is cheap, and the number of steps.
_NEWTON_WORK, _NEWTON_STEPS = 4e7, 30
# Adam: the largest and smallest number of passes, the rows of all passes together, the first rate, and the smallest and
# largest batch.
_PASSES, _FEWEST_PASSES, _USED_ROWS, _RATE = 40, 6, 240_000, 0.01
_BATCH_ROWS, _MOST_BATCH_ROWS = 128, 1024
# Folds of few rows, of many rows, and of a choice whose networks are fitted again; the largest number of few rows, of
# which the best candidate of each kind is averaged.
_FOLDS, _MANY_FOLDS, _CHOICE_FOLDS, _MANY_ROWS = 8, 4, 5, 500
# The smallest relevance of an input, its sensitivity divided by the root mean square of all.
_LEAST_RELEVANCE = 0.02
# The size of the first weights of the last map, times the root of the width.
_FIRST_WEIGHT = 0.3
# Candidates whose held-out loss exceeds the best by this factor are not averaged with it.
_FAR = 1.2
# The default ridge if there are too few rows to hold some out.
_DEFAULT_RIDGE = 1e-2
# The name of trees of step gates among units; the number of averaged trees of all folds together.
STEPS, _AVERAGED = "steps", 400


@dataclass(frozen=True, eq=False)
class ClassNetwork:
    """A network with a linear part; its parameters are flat and on the CPU."""

    unit: Unit
    width: int
    theta: Tensor

    def log_probability(self, x: Tensor, classes: int) -> Array:
        """log p (rows, classes) at inputs of unit variance, the last column ones."""
        model = Likelihood.plainly(self.unit, self.width, x, classes)
        return model.log_probability(self.theta[None].to(x.device))[0].cpu().numpy()


class ClassSearch(Search):
    """The search of a classifier; targets of the rows are one-hot."""

    def __init__(self, rows: TableRows, raw: Array, members: int, *, seed: int, device: str, **options: Any) -> None:
        folds = search.folds_of(rows, folds_for(members, len(rows)), seed, classes=True)
        used = max(1, min(folds[1], math.ceil(folds[1] * _JUDGES / len(rows))))
        super().__init__(rows, raw, folds, used, loss=search.log_loss, seed=seed, device=device, **options)
        x = np.concatenate([rows.x, np.ones((len(rows), 1))], axis=1)
        self.x, self.target = torch.tensor(x, device=device), torch.tensor(rows.y, device=device)

    @staticmethod
    def row(candidate: Candidate) -> dict[str, Any]:
        weighed = candidate.relevance is not None
        return Search.row(candidate) | {"weighed": weighed, "log_loss": candidate.error}

    @cached_property
    def weights(self) -> tuple[Tensor, Tensor]:
        """Weights of each fold's training rows and of its held-out rows: (folds, N), each sums to one."""
        outside = self.rows.weight * (self.fold == np.arange(self.folds)[:, None])
        inside = self.rows.weight - outside
        inside, outside = (w / w.sum(1, keepdims=True) for w in (inside, outside))
        return torch.tensor(inside, device=self.device), torch.tensor(outside, device=self.device)

    def run(self, units: Sequence[Unit], width: int | None, ridge: float | None) -> None:
        """Try ridges, widths, units, and the relevance of inputs, as far as they are not given."""
        ridges = RIDGES[: 3 + (len(self.rows) <= _FEW_ROWS)] if ridge is None else (ridge,)
        if width is None:
            self.attempt(units[0], 0, ridges)
            first = WIDTHS[0] if self.newton(units[0], WIDTHS[0]) else WIDTHS[2]
            self.attempt(units[0], first, ridges)
            helped = self.improve(units[0], [n for n in WIDTHS if n > first], ridge)
            if not helped and first == WIDTHS[0]:
                self.improve(units[0], [WIDTHS[0] // 2], ridge)
        else:
            self.attempt(units[0], width, ridges)
        for unit in units[1:]:
            self.attempt(unit, self.gated.width, self.near(ridge))
        for _ in range(_WEIGHINGS):
            best = self.best
            if not best.width or self.x.shape[1] < 4 or self.over():
                break
            assert best.unit is not None
            self.attempt(best.unit, best.width, self.near(ridge, (1.0, 3.0)), best)
            if self.best is best:
                break

    def improve(self, unit: Unit, widths: Sequence[int], ridge: float | None) -> bool:
        """Try widths one after the other while they help; returns whether one did."""
        helped = False
        for n in widths:
            before = self.best.error
            self.attempt(unit, n, self.near(ridge))
            if self.best.error > _GAIN * before:
                break
            helped = True
        return helped

    @property
    def gated(self) -> Candidate:
        """The best candidate with neurons, or the best without."""
        return min(self.of_kind("trained"), key=lambda c: (c.width == 0, c.error))

    def near(self, ridge: float | None, factors: Sequence[float] = (1.0,)) -> tuple[float, ...]:
        """The given ridge, or that of the best candidate with neurons times these factors."""
        if ridge is not None:
            return (ridge,)
        return tuple(self.gated.ridge * f for f in factors)

    def newton(self, unit: Unit, width: int) -> bool:
        n, d = self.x.shape
        c = 1 if self.target.shape[1] == 2 else self.target.shape[1]
        return n * c * ((unit.factors + 1) * width * d + c * (width + d)) ** 2 <= _NEWTON_WORK

    def attempt(self, unit: Unit, width: int, ridges: Sequence[float], before: Candidate | None = None) -> None:
        """Try every ridge on every fold of the search, in one batch, with the relevance of inputs for `before`."""
        if self.over() and self.tried:
            return
        relevance = None if before is None else self.relevances(before)
        terms = [Candidate(unit, width, ridge, relevance=relevance) for ridge in ridges]
        self.enter(self.train(terms, range(self.used), self.end))

    def train(self, terms: Sequence[Candidate], folds: range, end: float) -> list[Candidate]:
        """Candidates of one unit and width with additional networks of these folds."""
        first = terms[0]
        assert first.unit is not None
        inside, outside = (w[folds.start : folds.stop].repeat(len(terms), 1) for w in self.weights)
        ridge = torch.tensor([c.ridge for c in terms], dtype=torch.float64, device=inside.device)
        relevance = inside.new_ones(self.folds, self.x.shape[1])
        if first.relevance is not None:
            relevance = first.relevance
        model = Likelihood(
            first.unit,
            first.width,
            self.x,
            self.target,
            inside,
            ridge.repeat_interleave(len(folds)),
            relevance[folds.start : folds.stop].repeat(len(terms), 1),
        )
        fit = self.solve(model, outside, end)
        theta = model.plain(fit.theta).unflatten(0, (len(terms), -1))
        candidates = []
        for c, parameters, training in zip(terms, theta, fit.training.unflatten(0, (len(terms), -1)), strict=True):
            members = [*c.members, *((ClassNetwork(first.unit, first.width, t), None) for t in parameters.cpu())]
            if c.training is not None:
                training = torch.cat([c.training, training])
            candidates.append(self.of_members(replace(c, training=training), members))
        return candidates

    def of_members(self, candidate: Candidate, members: Sequence[Member]) -> Candidate:
        """The candidate with these members and their log p on the rows that each has not seen."""
        values = []
        for f, (network, trees) in enumerate(members):
            index = self.outside(f)
            if network is None:
                values.append(trees.log_probability(self.raw[index]))
            else:
                values.append(network.log_probability(self.x[torch.tensor(index)], self.rows.y.shape[1]))
        return self.evaluate(candidate, members, values)

    def solve(
        self, model: Likelihood, outside: Tensor | None, end: float, until: Tensor | None = None
    ) -> LikelihoodFit:
        linear = replace(model, width=0)
        A = model.weight.new_zeros(len(model.ridge), sum(linear.sizes))
        if self.newton(model.unit, 0):
            first = gauss_newton(linear, A, outside, steps=_NEWTON_STEPS)
            if not model.width:
                return first
            if self.newton(model.unit, model.width):
                theta = start(model, first.theta, self.seed)
                return gauss_newton(model, theta, outside, steps=_NEWTON_STEPS, until=until, end=end)
        n = len(self.rows)
        return adam(
            model,
            start(model, A, self.seed),
            outside,
            passes=max(_FEWEST_PASSES, min(_PASSES, _USED_ROWS // n)),
            rate=_RATE,
            batch_rows=min(_MOST_BATCH_ROWS, max(_BATCH_ROWS, n // 32)),
            seed=self.seed,
            until=until,
            end=end,
        )

    def relevances(self, candidate: Candidate) -> Tensor:
        """Factors of the inputs (folds, d + 1) by the sensitivity of each fold's network, or the mean of the others."""
        assert candidate.unit is not None
        theta = torch.stack([network.theta for network, _ in candidate.members]).to(self.device)
        model = Likelihood.plainly(
            candidate.unit, candidate.width, self.x, self.target.shape[1], self.weights[0][: len(theta)]
        )
        sensitivity = model.sensitivity(theta)
        size = sensitivity.square().mean(1, keepdim=True).sqrt()
        scaled = torch.where(size > 0, sensitivity / size.clamp_min(1e-300), 1.0).clamp_min(_LEAST_RELEVANCE)
        scaled = torch.cat([scaled, torch.ones_like(size)], 1)
        return torch.cat([scaled, scaled.mean(0, keepdim=True).repeat(self.folds - len(theta), 1)])

    def try_trees(self) -> None:
        for kind in KINDS:
            if self.over() and self.tried:
                return
            if kind == _MANY_ROWS_KIND and len(self.rows) <= _FEW_ROWS:
                continue
            number = math.ceil(_AVERAGED / self.folds) if kind == "averaged" else None
            members = self.grow(kind, [self.fold == f for f in range(self.used)], number)
            self.enter([self.of_members(Candidate(None, len(members[0][1]), gates=kind), members)])

    def grow(
        self, kind: str, held: Sequence[NDArray[np.bool_]], number: int | None, first: int = 0
    ) -> list[tuple[None, StepTrees]]:
        """Networks of trees, each trained without its held-out rows."""
        seeds = [self.seed + 1 + first + i for i in range(len(held))]
        if kind == "averaged":
            trees = [averaged_trees(self.binned, h, s, number, self.over) for h, s in zip(held, seeds, strict=True)]
        else:
            pairs = boosted_trees(self.binned, Deviance(), held, seeds, DEPTHS[kind], number=number, over=self.over)
            trees = [network for network, _ in pairs]
        return [(None, network) for network in trees]

    def completed(self, candidate: Candidate) -> Candidate:
        """The candidate with networks of all folds, if there is time."""
        missing = range(len(candidate.members), self.folds)
        if not missing or self.over():
            return candidate
        if candidate.unit is not None:
            return self.train([candidate], missing, math.inf)[0]
        members = self.grow(candidate.gates, [self.fold == f for f in missing], candidate.width, missing.start)
        return self.of_members(candidate, [*candidate.members, *members])

    def whole(self, candidate: Candidate, members: int) -> list[Member]:
        """Networks trained on all rows, to the mean training loss of the candidate's folds."""
        unit = candidate.unit
        if unit is None:
            none = [np.zeros(len(self.rows), dtype=np.bool_) for _ in range(members)]
            return list(self.grow(candidate.gates, none, candidate.width))
        weight = torch.tensor(self.rows.weight, device=self.device)
        weight = (weight / weight.sum()).repeat(members, 1)
        relevance, until = weight.new_ones(1, self.x.shape[1]), None
        if candidate.relevance is not None:
            relevance = candidate.relevance.mean(0, keepdim=True)
        if candidate.training is not None:
            until = candidate.training.mean().repeat(members)
        ridges = torch.full_like(weight[:, 0], candidate.ridge)
        model = Likelihood(unit, candidate.width, self.x, self.target, weight, ridges, relevance.repeat(members, 1))
        theta = model.plain(self.solve(model, None, math.inf, until).theta).cpu()
        return [(ClassNetwork(unit, candidate.width, t), None) for t in theta]

    def chosen(self, most: int) -> list[Candidate]:
        """The candidates to average: on few rows the best of each kind, else at most `most` networks that help."""
        if len(self.rows) <= _MANY_ROWS:
            return best_of_kinds(self.tried)
        y, weight = self.truth(self.used)
        chosen, loss = [self.best], self.best.error
        near = [c for c in self.tried if c.error <= _FAR * loss]

        def joint(candidate: Candidate) -> float:
            values = [c.values for c in (*chosen, candidate)]
            return search.log_loss(search.log_mean(values, search.mixture_weights(values, y, weight)), y, weight)

        while True:
            full = sum(c.unit is not None for c in chosen) >= most
            losses = {c: joint(c) for c in near if c not in chosen and (c.unit is None or not full)}
            if not losses or min(losses.values()) >= loss:
                return chosen
            joining = min(losses, key=losses.__getitem__)
            loss = losses[joining]
            chosen.append(joining)

    def committee(
        self, units: Sequence[Unit], width: int | None, ridge: float | None, members: int
    ) -> tuple[Committee, float, Candidate]:
        """The mean of the best candidates, its temperature, and the best one."""
        if self.folds < 2:
            candidate = Candidate(units[0], width or 0, _DEFAULT_RIDGE if ridge is None else ridge)
            return Committee.of([self.whole(candidate, 1)], [1.0]), 1.0, candidate
        again = members < self.folds
        chosen = [self.best] if again else self.chosen(members // self.folds)
        others = [c for c in self.tried if c not in chosen]
        chosen = [self.completed(c) for c in chosen]
        y, weight = self.truth(min(len(c.members) for c in chosen))
        values = [c.values[: len(y)] for c in chosen]
        share = search.mixture_weights(values, y, weight)
        temperature = search.temperature_of(search.log_mean(values, share), y, weight)
        self.tried = [*chosen, *others]
        # Networks before trees, as in a file, so that sums are equal bit by bit.
        order = sorted(range(len(chosen)), key=lambda i: chosen[i].unit is None)
        parts = [self.whole(c, members) if again else c.members for c in (chosen[i] for i in order)]
        return Committee.of(parts, share[order]), temperature, chosen[0]


def start(model: Likelihood, linear: Tensor, seed: int) -> Tensor:
    """Parameters (B, p): gates in random directions through random rows, small weights, and this linear part (B, .)."""
    generator = torch.Generator().manual_seed(seed)
    batch, n, (rows, d), c = len(linear), model.width, model.x.shape, model.outputs
    maps = torch.randn(batch, model.maps, n, d, generator=generator, dtype=torch.float64)
    maps /= maps[..., :-1].norm(dim=-1, keepdim=True).clamp_min(1e-9)
    through = torch.randint(rows, (batch, n), generator=generator)
    D = _FIRST_WEIGHT * torch.randn(batch, c, n, generator=generator, dtype=torch.float64) / math.sqrt(max(1, n))
    maps, through, D = (t.to(linear.device) for t in (maps, through, D))
    inputs = model.x[through] * model.relevance[:, None]
    maps[:, 0, :, -1] = -(maps[:, 0, :, :-1] * inputs[..., :-1]).sum(-1)
    return torch.cat([maps.flatten(1), D.flatten(1), linear], 1)


def best_of_kinds(tried: Sequence[Candidate]) -> list[Candidate]:
    """The best candidate of each kind, the best of all first; those with infinite losses only if all are."""
    best: dict[tuple[str, bool], Candidate] = {}
    for candidate in sorted(tried, key=lambda c: c.error):
        if not best or np.isfinite(candidate.error):
            best.setdefault((candidate.gates, candidate.width > 0), candidate)
    return list(best.values())


def folds_for(members: int, rows: int) -> int:
    """The number of folds: that of networks, unless these are few or rows are many."""
    if members < 3:
        return _CHOICE_FOLDS
    return min(members, _MANY_FOLDS if rows > _MANY_ROWS else _FOLDS)
