"""`GatedRegressor`: a network of any unit under scikit-learn's conventions."""

from __future__ import annotations

import math
import warnings
from copy import copy
from time import monotonic
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from gatelab.arrays import Array, refuse_masked
from gatelab.display import reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.estimators.committee import Committee, deviation_scale, mean_and_spread, picked
from gatelab.estimators.estimator import (
    Arrays,
    GatedEstimator,
    UnitLike,
    nested,
    numbered,
    part_of,
    row_weights,
    seed_of,
    showing,
)
from gatelab.estimators.frames import Frame, TableRows
from gatelab.estimators.reading import read_table
from gatelab.estimators.search import Candidate
from gatelab.estimators.squares import (
    ENOUGH,
    PRECISE,
    SquaresSearch,
    bent_frame,
    drawn,
    fewer,
    solved,
)
from gatelab.estimators.trees import StepNetwork
from gatelab.feedforward import Network, Unit
from gatelab.solve import Solution, Status, predict
from gatelab.solve.files import described, restored_network, restored_unit
from gatelab.solve.solution import check_steps

# Where a network without any ridge runs away, this much holds it and costs no digit that was left.
_HOLD = 1e-8
# Among what validation chooses where no unit is given: a smooth gate and a kinked one; step gates join them.
_UNITS = ("swiglu", "glu")
# Candidates that a search tries as a rule, for its progress; rows that are predicted at a time.
_USUAL, _BLOCK = 30, 65_536


class GatedRegressor(RegressorMixin, GatedEstimator):
    """Regression by one hidden layer of gated units, several networks weighed on rows that none of them has seen.

        y(x) = d + D [ act(Gx + g) * (Ux + u) * ... ]

    Networks are trained by variable projection to high precision. Inputs and targets are scaled inside, and bent where
    heavy tails make that better. Unit, width and ridge are chosen on rows held out. Where the target is smooth and
    without noise, one network is then fitted to all rows, the best of several starts, to as many digits as there are.
    Where there is noise, or steps, the networks that were tried are kept, with networks of step gates beside them and
    on top of them, and their mean is predicted, with weights that the rows held out give.

    X may be a data frame with text, categories, truth values and gaps, or an array with NaN: what is missing is the
    median and marked, a category of at most 12 levels is a column a level, and of more levels the mean target of each,
    with a line of each beside it where their slopes in a number differ, for rows that are trained on without their own
    part of the rows. Text that is numbers is read as numbers; dates and durations, text among them, are days.

    Equal rows count as one with the sum of their weights, and the order of rows does not matter. Predictions go no
    further beyond the targets seen than half their range: outside the data a gated network is a polynomial, and a
    single row far out would cost more than all others.

    Parameters
    ----------
    unit : a unit's name, a `gl.Unit`, a function of tensors, or a list or tuple of these, among which validation
        chooses; None takes a smooth one, a kinked one and step gates, and the smooth one alone where a width is given.
    width : the number of neurons; None lets validation choose among 1, 2, 4, ... up to what the data carry.
    ridge : the penalty on what is linear, for data of unit variance; None lets validation choose.
    members : how many picks of candidates make the mean, any of them as often as it helps; 1 is one network. Where a
        width is given there is one in any case.
    time_budget : seconds after which validation adds no more candidates; what is there is then used. One small network
        is always tried, and what goes on is not cut: fits end some time after it. None is no limit.
    starts, rounds, steps : how hard the fit of one network to all rows tries: networks begun, times that each exchanges
        its cheapest neurons, and the most steps of Levenberg-Marquardt that a network goes through from its start to
        its end. None takes the solver's own, growth and rounds and a hundred to settle, and stops there without a
        warning: width and ridge were chosen, or given, for the error on rows not seen, which steps beyond that do not
        lower. Steps that are given and run out while the error still falls are a `ConvergenceWarning`. The choice is
        made with quick fits, which are also what several members are.
    random_state : an int for results that repeat, a `RandomState`, or None. With a `time_budget` they need not repeat.
    device : where torch computes, "cpu" or "cuda".
    verbose : 1 prints what validation tries, and shows the progress of the last fit.

    Attributes
    ----------
    network_ : the one `Network` that was chosen, fitted to all rows; a function of the scaled inputs. `frame_` holds
        the scaling.
    members_ : what is predicted, a list of dicts: what each candidate is, and its weight.
    committee_ : their networks.
    columns_ : how the columns of X become numbers.
    unit_, width_, ridge_ : of `network_`, chosen or given.
    gates_ : of `network_`: "trained", or "drawn" where validation found random gates with exact linear algebra to do
        better.
    status_ : how the solver ended; `status_.advice` says what to do next.
    n_iter_ : steps of the best start.
    validation_ : what was tried, a list of dicts with the RMSE on rows held out in standard deviations of the targets,
        bent if they are; `pandas.DataFrame(model.validation_)` is a table.
    deviation_ : what `predict(X, return_std=True)` takes from the rows held out; None where there were none.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from gatelab import GatedRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> y = np.exp(X[:, 0]) * X[:, 1]
    >>> model = GatedRegressor(width=8, ridge=0.0, random_state=0).fit(X[:200], y[:200])
    >>> bool(np.abs(model.predict(X[200:]) - y[200:]).max() < 1e-3)
    True
    """

    KIND, FORMAT = "GatedRegressor", 3
    PLAIN = ("unit_", "width_", "ridge_", "gates_", "n_iter_", "validation_", "members_", "n_features_in_", "_vector")
    network_: Network
    gates_: str
    status_: Status
    n_iter_: int
    members_: list[dict[str, Any]]
    committee_: Committee
    deviation_: Array | None
    _vector: bool

    def __init__(
        self,
        unit: UnitLike | list[UnitLike] | tuple[UnitLike, ...] | None = None,
        width: int | None = None,
        ridge: float | None = None,
        *,
        members: int = 8,
        time_budget: float | None = None,
        starts: int = 2,
        rounds: int = 4,
        steps: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.unit = unit
        self.width = width
        self.ridge = ridge
        self.members = members
        self.time_budget = time_budget
        self.starts = starts
        self.rounds = rounds
        self.steps = steps
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GatedRegressor:
        """Fit to X (rows, inputs) and y (rows,) or (rows, outputs). A fit that is interrupted leaves no trace."""
        given: Any = self.unit
        if given is None:
            given = _UNITS if self.width is None else _UNITS[0]
        whole_number("starts", self.starts, 1)
        whole_number("rounds", self.rounds, 0)
        check_steps(self.steps)
        units = self._checked(given)
        end = monotonic() + (self.time_budget or math.inf)
        for value, what in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
            refuse_masked(value, what)
        model = copy(self)
        table = read_table(model, X, reset=True)
        y = targets_of(y, table)
        weight = row_weights(sample_weight, len(y))
        seed = seed_of(self.random_state)
        model._vector = y.ndim == 2
        rows = model._rows(table, y.reshape(len(y), -1), weight, seed)
        # More parameters than values are allowed, since a ridge can hold them; more neurons than values never help.
        if self.width is not None and self.width > rows.y.size:
            raise GatelabError(
                f"width is {self.width} and there are {rows.y.size} different target values, through which "
                f"{rows.y.size} neurons pass exactly; give a smaller width, or None to have it chosen"
            )
        model.frame_ = Frame.of(rows)
        if self.unit is None and self.width is None:
            model.frame_ = bent_frame(rows, model.frame_, units[0], seed, self.device)
        standard = model.frame_.standard(rows)
        model.deviation_ = None
        if model.frame_.directions == 0 or not model.frame_.y_scale.any():
            # Neither inputs that differ nor targets that differ: the mean is all there is to learn.
            span = np.ptp(y, axis=0).max()
            if not model.frame_.y_scale.any() and span > 1e-15 * np.abs(y).max():
                message = f"y differs by {span:.3g}, hardly more than its rounding; "
                warnings.warn(f"{message}subtract its mean, which is predicted", UserWarning, stacklevel=2)
            choice = Candidate(units[0], self.width or 1, float(self.ridge or 0.0))
            network = Network(units[0], choice.width, standard.x.shape[1], standard.y.shape[1])
            model._take(choice, Solution(network, Status.CONVERGED, (_error(network, standard),)))
            model.deviation_ = np.stack([model.frame_.y_scale > 0, np.ones(standard.y.shape[1])]).astype(np.float64)
        else:
            model._learn(units, standard, rows.x, seed, end)
        return self._take_over(model)

    def _learn(self, units: list[Unit], rows: TableRows, raw: Array, seed: int, end: float) -> None:
        """Choose what is not given, and fit the one network, and the members where there are several."""
        choice, search = Candidate(units[0], self.width or 1, float(self.ridge or 0.0)), None
        if self.width is None or self.ridge is None or len(units) > 1:
            alone = self.unit is not None or self.width is not None or self.members == 1
            with showing(self.verbose, "choosing a network", _USUAL) as show:
                search = SquaresSearch(rows, raw, seed, self.device, end, show)
                choice = search.run(units, self.width, self.ridge, step_gates=not alone)
                search = search if search.tried else None
        # A mean would only cost digits where one network tells the target but for a trace.
        precise = search is None or choice.error <= min(PRECISE, search.best.error)
        several = self.members > 1 and self.width is None and not precise
        if search is not None and several and choice.gates == "trained":
            solution = search.warm(choice, choice.members[0][0])
        else:
            solution = self._solve(choice, rows if search is None else fewer(rows, seed), seed)
        self._take(choice, solution, search, several=several)
        _warn(choice, solution, rows, steps_given=self.steps is not None and not several)

    def _solve(self, candidate: Candidate, rows: TableRows, seed: int) -> Solution:
        """The one network, polished as far as it goes."""
        assert candidate.unit is not None
        if candidate.gates == "drawn":
            network = drawn(candidate.unit, rows, candidate.width, candidate.steepness, seed)
            return Solution(network, Status.CONVERGED, (_error(network, rows),))
        title, tasks = f"fitting {candidate.name} of width {candidate.width}", [(candidate.width, seed)]
        how = {name: getattr(self, name) for name in ("starts", "rounds", "steps", "device")}
        for ridge in (candidate.ridge, max(candidate.ridge, _HOLD)):
            with reporting(bool(self.verbose) or None, title) as report:
                (solution,) = solved(candidate.unit, rows, tasks, ridge=ridge, progress=report, **how)
            if np.isfinite(_error(solution.network, rows)):
                return solution
        raise GatelabError(
            f"{candidate.name} of width {candidate.width} did not reach a finite error on these {len(rows)} rows; "
            "give a ridge of 1e-4 or more, or another unit"
        )

    def _take(
        self, choice: Candidate, solution: Solution, search: SquaresSearch | None = None, *, several: bool = False
    ) -> None:
        """Take over the network of the chosen candidate; of a search what was tried, the members and the deviation."""
        assert choice.unit is not None and isinstance(solution.network, Network)
        self.network_, self.status_, self.n_iter_ = solution.network, solution.status, max(1, solution.steps)
        self.unit_, self.width_, self.ridge_, self.gates_ = choice.unit.name, choice.width, choice.ridge, choice.gates
        tried = [choice] if search is None else search.tried
        rows = [SquaresSearch.row(c) for c in tried]
        count = np.array([c is choice for c in tried], dtype=np.int64)
        parts = [[(self.network_, None)]]
        self.validation_ = [] if search is None else rows
        if search is not None:
            y, weight = search.truth(search.used)
            values = np.stack([c.values for c in tried])
            if several:
                count = picked(values, y, weight, self.members)
                parts = [search.members(c, choice, self.network_) for c, k in zip(tried, count, strict=True) if k]
            mean, spread = mean_and_spread(values, count / count.sum())
            self.deviation_ = np.stack(deviation_scale(y - mean, spread))
            if self.frame_.y_bend.bends:
                self.frame_ = self.frame_.smeared(y - mean)
        share = count / count.sum()
        self.committee_ = Committee.of(parts, share[count > 0])
        self.members_ = [row | {"weight": float(k)} for row, k in zip(rows, share, strict=True) if k]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The weighted mean of the members, (rows,) or (rows, outputs) as the targets were.

        With `return_std`, a pair of it and of the standard deviations of new targets about it: 1.96 of them to either
        side are meant to hold 95 %. They come from rows held out, so that unit, width or ridge must have been chosen.
        """
        table = self._table(X)
        if return_std and self.deviation_ is None:
            raise GatelabError(
                "return_std needs errors on rows held out, and there were none, since unit, width and ridge were "
                "given; leave out width or ridge"
            )
        mean, deviation = self.committed(self.columns_.encode(table))
        if not self._vector:
            mean, deviation = mean[:, 0], deviation[:, 0]
        return (mean, deviation) if return_std else mean

    def committed(self, x: Array) -> tuple[Array, Array]:
        """Mean and deviation, (rows, outputs) each, at rows of numbers as `columns_` makes them."""
        frame = self.frame_
        noise, scale = np.zeros((2, len(frame.y_mean))) if self.deviation_ is None else self.deviation_
        means, deviations = [], []
        for i in range(0, max(1, len(x)), _BLOCK):
            raw = x[i : i + _BLOCK]
            mean, spread = self.committee_.mean_and_spread(self._values(raw, frame.inputs(raw)))
            means.append(frame.outputs(mean))
            deviations.append(frame.deviations(mean, scale * np.sqrt(noise**2 + spread**2)))
        return np.concatenate(means), np.concatenate(deviations)

    def _values(self, raw: Array, scaled: Array) -> Array:
        """What each member says, (members, rows, outputs); networks stay near the targets that were seen."""
        values = np.zeros((len(self.committee_.members), len(raw), len(self.frame_.y_mean)))
        for value, (network, trees) in zip(values, self.committee_.members, strict=True):
            if network is not None:
                value += np.clip(predict(network, scaled), self.frame_.z_low, self.frame_.z_high)
            if trees is not None:
                value += trees.values(raw)
        return values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _content(self, parameters: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """What a file holds beside what both estimators have."""
        networks, trees = self.committee_.networks, self.committee_.trees
        facts = {
            "network": described(self.network_.unit),
            "status": self.status_.value,
            "networks": [{"unit": described(n.unit), "width": n.width} for n in networks],
            "steps": len(trees),
        }
        # The number of a member's network and that of its trees, -1 for none.
        present = np.array([[part is not None for part in member] for member in self.committee_.members])
        parts = np.where(present, np.cumsum(present, axis=0) - 1, -1)
        states = [{k: v.numpy() for k, v in n.state_dict().items()} for n in (self.network_, *networks)]
        arrays = nested("network", states[0]) | numbered("networks", states[1:]) | numbered("steps", map(vars, trees))
        committee = {"parts": parts, "candidate": self.committee_.candidate, "weight": self.committee_.weight}
        arrays |= nested("committee", committee)
        return facts, arrays if self.deviation_ is None else arrays | {"deviation": self.deviation_}

    @classmethod
    def _restored(cls, facts: dict[str, Any], arrays: Arrays, attributes: dict[str, Any]) -> dict[str, Any]:
        sizes = attributes["frame_"].directions, len(attributes["frame_"].y_mean)

        def network(unit: Any, width: int, prefix: str) -> Network:
            state = {name: torch.tensor(array) for name, array in part_of(prefix, arrays).items()}
            return restored_network(restored_unit(unit), width, *sizes, state)

        # A member without one of both has the number -1, which is None.
        networks = [network(f["unit"], f["width"], f"networks.{i}") for i, f in enumerate(facts["networks"])] + [None]
        steps = [StepNetwork(**part_of(f"steps.{i}", arrays)) for i in range(facts["steps"])] + [None]
        members = tuple((networks[n], steps[s]) for n, s in arrays["committee.parts"])
        return {
            "network_": network(facts["network"], attributes["width_"], "network"),
            "committee_": Committee(members, arrays["committee.candidate"], arrays["committee.weight"]),
            "status_": Status(facts["status"]),
            "deviation_": arrays.get("deviation"),
        }


def targets_of(y: Any, table: Any) -> Array:
    """The targets as numbers, one row for each of the table."""
    if y is None:
        raise GatelabError("requires y to be passed, but the target y is None; give the targets")
    values = check_array(y, ensure_2d=False, allow_nd=False, dtype="numeric", input_name="y")
    if values.dtype.kind in "Mm":
        raise GatelabError(f"y holds {values.dtype}; give numbers, such as (y - start) / pandas.Timedelta(days=1)")
    values = check_array(values, ensure_2d=False, dtype="float64", input_name="y")  # None is NaN from here on
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    check_consistent_length(table, values)
    return values


def _error(network: torch.nn.Module, rows: TableRows) -> float:
    return float(np.sqrt(np.mean(rows.weight[:, None] * np.square(predict(network, rows.x) - rows.y))))


def _warn(choice: Candidate, solution: Solution, rows: TableRows, *, steps_given: bool) -> None:
    assert choice.unit is not None
    parameters = choice.unit.parameter_count(choice.width, rows.x.shape[1], rows.y.shape[1])
    if parameters > rows.y.size:
        narrower = "" if choice.width == 1 else ", a smaller width"
        warnings.warn(
            f"{choice.unit.name} of width {choice.width} has {parameters} parameters but there are only {rows.y.size} "
            f"different target values to fit: predictions between the rows mean little; give more rows{narrower} or a "
            "ridge",
            UserWarning,
            stacklevel=4,
        )
    error = _error(solution.network, rows)
    if steps_given and solution.status is Status.BUDGET and error > ENOUGH:
        warnings.warn(
            f"the steps ran out after {solution.steps} while the training error still fell; it is {error:.1e} standard "
            "deviations of the targets: raise steps, or leave them out",
            ConvergenceWarning,
            stacklevel=4,
        )
