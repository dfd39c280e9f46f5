"""`compare`: units side by side on given data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from gatelab.data import Problem
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, check_seeds, real_number, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.linearization import calibrate
from gatelab.memory import check_device
from gatelab.scorecard.costs import UNKNOWN, block_costs, flops, linearity, preactivations
from gatelab.scorecard.fits import AnyData, budget_of, fit_units, problem_of, scaling_of, widths_of
from gatelab.scorecard.measurements import Draws, rows_of, training
from gatelab.scorecard.recommendation import FittedNetwork, Score, recommend
from gatelab.scorecard.result import Scorecard
from gatelab.solve import Fit
from gatelab.solve.fits import predict
from gatelab.statistics import Interval

UNITS = ("mlp", "glu", "gqu", "relu2", "swiglu")
ROWS = 1000
ROUNDING = 1e-10  # times the target's standard deviation: smaller errors are rounding, and count as equal
Spec = str | AnyUnit | Callable[..., Any]
Key = tuple[str, int]


def compare(
    units: Iterable[Spec] | Spec = UNITS,
    data: AnyData = "paper-1d",
    *,
    budget: int | None = None,
    widths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    features: int = 64,
    loss: float = 0.1,
    d_model: int = 128,
    rows: int = ROWS,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
    **columns: Any,
) -> Scorecard:
    """Error at equal parameters, slope, conditioning, steps, linearization and cost of units, and which one to take.

    Args:
        units: two or more units, by name, as values, functions or classes.
        data: a file, a pair of arrays (x, y), a problem, its name, a formula or a function.
        budget: the number of parameters at which units are compared, by default a quarter of the training values and
            160 at most. Every unit is fitted at the largest width within it, and at narrower ones for the slope.
        widths: the same widths for every unit instead.
        seeds: the number of fits of every network, or their seeds, such as [3, 4].
        features: the m of the linearization.
        loss: the share of the target's variance at which predicted steps end.
        d_model: the size of the block that is timed.
        rows: the largest number of training rows.
        device: on which the block is timed; by default a GPU if there is one.
        progress: False for no progress bar, or a function of (done, total).
        **columns: `target` and `inputs`, the columns of a file.

    Returns:
        A `Scorecard`.

    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    >>> card = compare(["mlp", "bilinear"], (x, x[:, 0] * x[:, 1]), widths=[1, 2], seeds=1, features=9, d_model=8)
    >>> print(card.recommendation, card.recommendation.regime)
    bilinear at width 1 (8 parameters) exact
    >>> card.score("mlp").rmse.value > 0.1 > 1e-9 > card.score("bilinear").rmse.value
    True
    """
    chosen = chosen_units(units)
    # All arguments are checked before the fits, which take long.
    numbers, features = check_seeds(seeds), whole_number("features", features, 1)
    d_model = whole_number("d_model", d_model, 1, of="inputs and outputs of the block")
    loss = real_number("loss", loss, above=0, below=1)
    if device is None and torch.cuda.is_available():
        device = "cuda"
    where = check_device(device)
    problem = problem_of(data, rows, **columns)
    budget = budget_of(chosen, problem, budget, widths)
    sizes = {u.name: widths_of(u, budget, problem.d_in, problem.d_out, widths) for u in chosen}
    count = len(numbers) * sum(map(len, sizes.values()))
    with reporting(progress, "comparing") as report:

        def show(done: int) -> None:
            if report:
                report(done, count + len(chosen) + 1)

        fits = fit_units(chosen, problem, sizes, numbers, show)
        kernel_rows, measured = rows_of(problem), {}
        for i, u in enumerate(chosen, 1):
            width = max(w for w in sizes[u.name] if u.parameter_count(w, problem.d_in, problem.d_out) <= budget)
            kernel = training(u, kernel_rows, width, loss)
            measured[u.name, width] = {**kernel, **linearity(u, kernel_rows.x, features)}
            show(count + i)
        blocks, bench = block_costs(chosen, d_model, where)
        show(count + len(chosen) + 1)
    errors = Errors(chosen, problem, fits)
    scores = tuple(
        Score(**network, **errors.trend(key), **measured[key], **costs)
        for key, network, costs in zip(measured, errors.compared(list(measured)), blocks, strict=True)
    )
    # Networks beyond the budget are for the slopes only.
    within = [key for key, same in errors.fits.items() if same[0].parameters <= budget]
    networks = tuple(FittedNetwork(**network) for network in errors.compared(within))
    facts = {
        "problem": problem.name,
        "inputs": problem.d_in,
        "outputs": problem.d_out,
        "train_rows": problem.train.n,
        "test_rows": problem.test.n,
        "budget": budget,
        "seeds": len(numbers),
        "features": features,
        "loss": loss,
        "interval": calibrate(preactivations(kernel_rows.x), symmetric=True),
        "kernel_rows": kernel_rows.n,
        **bench,
        **errors.facts(),
    }
    return Scorecard(facts, scores, networks, errors.scaling, recommend(scores, networks, facts["deviation"]))


def chosen_units(units: Iterable[Spec] | Spec) -> list[AnyUnit]:
    """Two or more units, whose names differ."""
    specs: Any = [units] if isinstance(units, str) or callable(units) else units
    chosen = [as_unit(spec) for spec in specs]
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"the names of the units are {', '.join(names)}; give different names")
    if len(chosen) < 2:
        raise GatelabError(f"{len(chosen)} unit{'s' * (len(chosen) != 1)} given; give two or more")
    return chosen


class Errors:
    """The fits by network (unit, width), and bootstrap draws of their errors on held-out rows."""

    def __init__(self, units: Sequence[AnyUnit], problem: Problem, fits: Sequence[Fit]) -> None:
        self.units, self.problem = {u.name: u for u in units}, problem
        self.fits: dict[Key, list[Fit]] = {}
        for f in fits:
            self.fits.setdefault((f.unit, f.width), []).append(f)
        x, y = problem.test.x, problem.test.y
        # In the problem's own, possibly standardized, units; `Fit.predict` would take raw rows.
        self.squares = {
            key: np.array([np.square(predict(f.network, x) - y).mean(axis=1) for f in same])
            for key, same in self.fits.items()
        }
        self.draws = Draws(self.squares, least=ROUNDING * float(y.std()))
        self.scaling = scaling_of(units, problem, fits)

    def compared(self, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """The fields of `FittedNetwork`, with ratios to the smallest error of these networks."""
        best = min(keys, key=lambda key: self.draws.measured[key])
        return [
            {
                "unit": unit,
                "width": width,
                "parameters": self.fits[unit, width][0].parameters,
                "flops": flops(self.units[unit], width, self.problem.d_in, self.problem.d_out),
                "train_rmse": float(np.mean([f.train_rmse for f in self.fits[unit, width]])),
                "rmse": self.draws.rmse((unit, width)),
                "ratio": self.draws.ratio((unit, width), best),
            }
            for unit, width in keys
        ]

    def trend(self, key: Key) -> dict[str, Any]:
        """Slope, order, limit and growth, as fields of a `Score`."""
        unit, width = key
        fitted = self.scaling.slope_or_none(unit, against="P", aggregate="median")
        slope = Interval(fitted.value, fitted.low, fitted.high) if fitted else UNKNOWN
        narrower, growth = 0, UNKNOWN
        smaller = [w for name, w in self.fits if name == unit and w < width]
        if smaller:
            narrower = max((w for w in smaller if 2 * w <= width), default=min(smaller))
            growth = self.draws.ratio(key, (unit, narrower))
        limit = next(p.limit for p in self.scaling.points if (p.unit, p.width) == key)
        order = self.units[unit].order
        return {"slope": slope, "order": order, "limit": limit, "narrower": narrower, "growth": growth}

    def facts(self) -> dict[str, Any]:
        """Facts that affect the reliability of the errors."""
        train, test = self.problem.train, self.problem.test
        outside = ((test.x < train.x.min(axis=0)) | (test.x > train.x.max(axis=0))).any(axis=1)
        squares = self.squares[min(self.draws.measured, key=self.draws.measured.__getitem__)].mean(axis=0)
        statuses = [str(f.status) for same in self.fits.values() for f in same]
        return {
            "deviation": float(test.y.std()),
            "outside": float(outside.mean()),
            "heaviest": float(squares.max() / max(squares.sum(), np.finfo(float).tiny)),
            "unfinished": statuses.count("budget"),
            "fits": len(statuses),
        }
