"""`GatedRegressor`: a network of any unit under scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from gatelab.arrays import Array
from gatelab.data.checks import refuse_masked
from gatelab.display import reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.estimators.columns import TableColumns, read_table
from gatelab.estimators.frames import (
    Frame,
    NetworkTerms,
    TableRows,
    checked_terms,
    drawn,
    encoded_rows,
    read,
    row_weights,
    seed_of,
    showing,
    write,
)
from gatelab.estimators.members import Committee, deviation_scale, picked
from gatelab.estimators.search import (
    ENOUGH,
    Candidate,
    Choice,
    TimeBudget,
    as_network,
    bent_frame,
    choose,
    fewer,
    scaled_weights,
    solved,
)
from gatelab.feedforward import AnyUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.solve import Solution, Status, predict
from gatelab.solve.solution import check_steps

UnitLike = str | AnyUnit | Callable[..., object]
# Where a network without any ridge runs away, this much holds it and costs no digit that was left.
_HOLD = 1e-8
# Among what validation chooses where no unit is given: a smooth gate and a kinked one; step gates join them.
_UNITS = ("swiglu", "glu")
# Candidates that a search tries as a rule, for its progress; rows that are predicted at a time.
_USUAL, _BLOCK = 30, 65_536


class GatedRegressor(RegressorMixin, BaseEstimator):
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

    network_: Network
    frame_: Frame
    columns_: TableColumns
    unit_: str
    width_: int
    ridge_: float
    gates_: str
    status_: Status
    n_iter_: int
    n_features_in_: int
    validation_: list[dict[str, Any]]
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
        terms = self._checked()
        units, width, ridge = terms.units, terms.width, terms.ridge
        clock = TimeBudget.of(self.time_budget)
        for value, what in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
            refuse_masked(value, what)
        # All is written into a copy and taken over at the end.
        model = copy(self)
        table = read_table(model, X, reset=True)
        y = targets_of(y, table)
        weight = row_weights(sample_weight, len(y))
        seed = seed_of(self.random_state)
        model._vector = y.ndim == 2
        model.columns_, rows = encoded_rows(model, table, y.reshape(len(y), -1), weight, seed)
        # More parameters than values are allowed, since a ridge can hold them; more neurons than values never help.
        if width is not None and width > rows.y.size:
            raise GatelabError(
                f"width is {width} and there are {rows.y.size} different target values, through which {rows.y.size} "
                "neurons pass exactly; give a smaller width, or None to have it chosen"
            )
        model.frame_ = Frame.of(rows)
        if self.unit is None and width is None:
            model.frame_ = bent_frame(rows, model.frame_, as_unit(_UNITS[0]), seed, self.device)
        standard = model.frame_.standard(rows)
        model.deviation_ = None
        choice = Choice(Candidate(units[0], width or 1, ridge or 0.0))
        if model.frame_.directions == 0 or not model.frame_.y_scale.any():
            # Neither inputs that differ nor targets that differ: the mean is all there is to learn.
            if not model.frame_.y_scale.any() and (span := np.ptp(y, axis=0).max()) > 1e-15 * np.abs(y).max():
                message = (
                    f"y differs by {span:.3g}, hardly more than its rounding; subtract its mean, which is predicted"
                )
                warnings.warn(message, UserWarning, stacklevel=2)
            network = Network(units[0], choice.candidate.width, standard.x.shape[1], standard.y.shape[1])
            solution = Solution(network, Status.CONVERGED, (_error(network, standard),))
            model.deviation_ = np.stack([model.frame_.y_scale > 0, np.ones(standard.y.shape[1])]).astype(np.float64)
        else:
            if width is None or ridge is None or len(units) > 1:
                choice = self._choose(units, standard, rows.x, width=width, ridge=ridge, seed=seed, clock=clock)
            several = self._several(choice)
            solution = self._solve(choice, standard, seed)
            _warn(choice.candidate, solution, standard, steps_given=self.steps is not None and not several)
        model.network_, model.status_ = as_network(solution), solution.status
        model.n_iter_ = max(1, solution.steps)
        model._take(choice)
        vars(self).clear()
        vars(self).update(vars(model))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The weighted mean of the members, (rows,) or (rows, outputs) as the targets were.

        With `return_std`, a pair of it and of the standard deviations of new targets about it: 1.96 of them to either
        side are meant to hold 95 %. They come from rows held out, so that unit, width or ridge must have been chosen.
        """
        check_is_fitted(self, "network_")
        refuse_masked(X, "X")
        deviation = self.deviation_
        if return_std and deviation is None:
            raise GatelabError(
                "return_std needs errors on rows held out, and there were none, since unit, width and ridge were "
                "given; leave out width or ridge"
            )
        x = self.columns_.encode(read_table(self, X, reset=False))
        mean, spread = self.committed(x)
        if not self._vector:
            mean, spread = mean[:, 0], spread[:, 0]
        if return_std:
            return mean, spread
        return mean

    def committed(self, x: Array) -> tuple[Array, Array]:
        """Mean and deviation, (rows, outputs) each, at rows of numbers as `columns_` makes them."""
        frame = self.frame_
        noise, scale = np.zeros((2, len(frame.y_mean)))
        if self.deviation_ is not None:
            noise, scale = self.deviation_
        means, spreads = [], []
        for i in range(0, max(1, len(x)), _BLOCK):
            part = x[i : i + _BLOCK]
            mean, spread = self.committee_.values(part, frame.inputs(part), lambda z: np.clip(z, *frame.z_range))
            means.append(frame.outputs(mean))
            spreads.append(frame.deviations(mean, scale * np.sqrt(noise**2 + spread**2)))
        return np.concatenate(means), np.concatenate(spreads)

    def save(self, path: str | Path) -> Path:
        """Write the fitted model as safetensors: arrays and plain values, nothing that could be executed.

        A `RandomState` is saved as None. Units are kept by gate and factors: functions of your own are refused.
        """
        check_is_fitted(self, "network_")
        return write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> GatedRegressor:
        """The model that was saved; its predictions are the same to the last bit."""
        return read(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        return tags

    def _checked(self) -> NetworkTerms:
        """The units, the width and the ridge, if all parameters can be used."""
        given: Any = self.unit
        if given is None:
            given = _UNITS
            if self.width is not None:
                given = _UNITS[0]
        whole_number("starts", self.starts, 1)
        whole_number("rounds", self.rounds, 0)
        check_steps(self.steps)
        return checked_terms(self, given)

    def _choose(self, units: list[Unit], rows: TableRows, raw: Array, **options: Any) -> Choice:
        alone = self.unit is not None or options["width"] is not None or self.members == 1
        with showing(self.verbose, "choosing a network", _USUAL) as show:
            return choose(units, rows, raw, step_gates=not alone, device=self.device, show=show, **options)

    def _solve(self, choice: Choice, rows: TableRows, seed: int) -> Solution:
        """The one network: polished as far as it goes, or, as one of several, with all rows from where it stands."""
        candidate = choice.candidate
        assert candidate.unit is not None
        if choice.trial is not None:
            rows = fewer(rows, seed)
        if candidate.gates == "drawn":
            network = drawn(candidate.unit, rows, candidate.width, candidate.steepness, seed)
            return Solution(network, Status.CONVERGED, (_error(network, rows),))
        if self._several(choice):
            assert choice.trial is not None
            return choice.trial.warm(candidate, choice.entrant.members[0][0])
        for ridge in (candidate.ridge, max(candidate.ridge, _HOLD)):
            with reporting(
                bool(self.verbose) or None, f"fitting {candidate.name} of width {candidate.width}"
            ) as report:
                solution = solved(
                    candidate.unit,
                    rows.x,
                    rows.y,
                    [(candidate.width, seed)],
                    starts=self.starts,
                    rounds=self.rounds,
                    steps=self.steps,
                    ridge=ridge,
                    weights=scaled_weights(rows),
                    device=self.device,
                    progress=report,
                )[0]
            if np.isfinite(_error(solution.network, rows)):
                return solution
        raise GatelabError(
            f"{candidate.name} of width {candidate.width} did not reach a finite error on these {len(rows)} rows; "
            "give a ridge of 1e-4 or more, or another unit"
        )

    def _several(self, choice: Choice) -> bool:
        """Whether a mean of networks is predicted: not where a width is given, nor where one network is precise."""
        return self.members > 1 and self.width is None and choice.trial is not None and not choice.precise

    def _take(self, choice: Choice) -> None:
        """Take over what was chosen: the members with their weights, what was tried, and the deviation."""
        candidate = choice.candidate
        assert candidate.unit is not None
        self.unit_, self.width_ = candidate.unit.name, candidate.width
        self.ridge_, self.gates_ = candidate.ridge, candidate.gates
        self.validation_ = [e.candidate.row() for e in choice.entrants]
        self.members_ = [candidate.row() | {"weight": 1.0}]
        self.committee_ = Committee.of([[(self.network_, None)]], [1.0])
        if choice.trial is None:
            return
        y, weight = choice.trial.truth
        values = np.stack([e.values for e in choice.entrants])
        count = np.array([int(e.candidate is candidate) for e in choice.entrants])
        if self._several(choice):
            count = picked(values, y, weight, self.members)
            index = np.flatnonzero(count)
            parts = [choice.trial.members(choice.entrants[i], candidate, self.network_) for i in index]
            self.committee_ = Committee.of(parts, list(count[index] / count.sum()))
            self.members_ = [
                choice.entrants[i].candidate.row() | {"weight": float(count[i] / count.sum())} for i in index
            ]
        share = count / count.sum()
        mean = np.tensordot(share, values, 1)
        spread = np.sqrt(np.tensordot(share, np.square(values - mean), 1))
        self.deviation_ = np.stack(deviation_scale(y - mean, spread))
        if self.frame_.y_bend.bends:
            self.frame_ = self.frame_.smeared(y - mean)


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
        remedy = "give more rows, a smaller width or a ridge"
        if choice.width == 1:
            remedy = "give more rows or a ridge"
        warnings.warn(
            f"{choice.unit.name} of width {choice.width} has {parameters} parameters but there are only {rows.y.size} "
            f"different target values to fit: predictions between the rows mean little; {remedy}",
            UserWarning,
            stacklevel=3,
        )
    error = _error(solution.network, rows)
    if steps_given and solution.status is Status.BUDGET and error > ENOUGH:
        warnings.warn(
            f"the steps ran out after {solution.steps} while the training error still fell; it is {error:.1e} standard "
            "deviations of the targets: raise steps, or leave them out",
            ConvergenceWarning,
            stacklevel=3,
        )
