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

from gatelab.arrays import Array
from gatelab.display import reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.estimators.estimator import (
    Arrays,
    GatedEstimator,
    UnitLike,
    part_of,
    prefixed,
    row_weights,
    seed_of,
    showing,
)
from gatelab.estimators.frames import Frame, TableRows
from gatelab.estimators.reading import read_table
from gatelab.estimators.search import Candidate, Committee, deviation_scale, mean_and_spread, pick_counts
from gatelab.estimators.squares import ENOUGH, PRECISE, SquaresSearch, bent_frame, fewer, fit_batch, random_gates
from gatelab.estimators.trees import StepNetwork
from gatelab.feedforward import Network, Unit
from gatelab.solve import Solution, Status, predict
from gatelab.solve.files import describe_unit, restored_network, restored_unit
from gatelab.solve.solution import check_steps

# The ridge if a network without one diverges; it does not limit the precision.
_HOLD = 1e-8
# The default units, a smooth gate and a kinked one; trees of step gates are tried too.
_UNITS = ("swiglu", "glu")
# The usual number of candidates of a search, for its progress; rows that are predicted at a time.
_USUAL, _BLOCK = 30, 65_536


class GatedRegressor(RegressorMixin, GatedEstimator):
    """Regression by one hidden layer of gated units, or by the weighted mean of several such networks.

        y(x) = d + D [ act(Gx + g) * (Ux + u) * ... ]

    Networks are trained by variable projection to high precision; unit, width and ridge are chosen on held-out rows.
    For smooth targets without noise, one network is then fitted to all rows, the best of several starts. For targets
    with noise or steps, the prediction is a weighted mean: of the networks of the search, of trees of step gates, and
    of trees on top of networks, with weights from the held-out rows.

    X may be a data frame with text, categories, dates and missing values, or an array with NaN. Equal rows count as one
    row with the sum of their weights. Predictions exceed the training targets by at most half their range, since
    outside the data a gated network is a polynomial.

    Parameters
    ----------
    unit : a unit's name, a `gl.Unit`, a function of tensors, or a list or tuple of these, from which validation
        chooses; None is a smooth unit, a kinked one and step gates, or the smooth one alone if a width is given.
    width : the number of neurons; None lets validation choose from 1, 2, 4, ... up to a width that suits the data.
    ridge : the penalty on the linear parameters, for data of unit variance; None lets validation choose.
    members : the number of picks of candidates for the mean, with repetition; 1 is one network, as is a given width.
    time_budget : seconds after which validation adds no more candidates, or None. One small network is always tried,
        and a running fit is finished, so that the total time is longer.
    starts, rounds, steps : the effort of the fit of one network to all rows: the number of starts, of rounds that
        exchange the cheapest neurons, and the maximum number of Levenberg-Marquardt steps of a network, by default a
        hundred after growth and rounds. If given steps run out while the error still falls, there is a
        `ConvergenceWarning`. Validation and several members have quick fits.
    random_state : an int for reproducible results (without a `time_budget`), a `RandomState`, or None.
    device : the device of torch, "cpu" or "cuda".
    verbose : 1 prints the candidates of validation and shows the progress of the last fit.

    Attributes
    ----------
    network_ : the chosen `Network`, fitted to all rows; a function of the scaled inputs. `frame_` has the scaling.
    members_ : the candidates of the mean, a list of dicts with their weights.
    committee_ : the networks of the mean.
    columns_ : the encoding of the columns of X.
    unit_, width_, ridge_ : of `network_`, chosen or given.
    gates_ : of `network_`: "trained", or "drawn" if validation found random gates to be better.
    status_ : how the solver ended; `status_.advice` is the next step to take.
    n_iter_ : the number of steps of the best start.
    validation_ : the candidates, a list of dicts with the RMSE on held-out rows in standard deviations of the
        (transformed) targets; `pandas.DataFrame(model.validation_)` is a table.
    deviation_ : the noise and scale of `predict(X, return_std=True)`; None without held-out rows.
    n_features_in_, feature_names_in_ : as in scikit-learn.

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
        """Fit to X (rows, inputs) and y (rows,) or (rows, outputs). An interrupted fit leaves the model unchanged."""
        given: Any = self.unit
        if given is None:
            given = _UNITS if self.width is None else _UNITS[0]
        whole_number("starts", self.starts, 1)
        whole_number("rounds", self.rounds, 0)
        check_steps(self.steps)
        units = self._checked(given, X=X, y=y, sample_weight=sample_weight)
        end = monotonic() + (self.time_budget or math.inf)
        model = copy(self)
        table = read_table(model, X, reset=True)
        y = targets_of(y, table)
        weight = row_weights(sample_weight, len(y))
        seed = seed_of(self.random_state)
        model._vector = y.ndim == 2
        rows = model._rows(table, y.reshape(len(y), -1), weight, seed)
        # More parameters than values are allowed, with a ridge; more neurons than values never help.
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
            # Constant inputs or constant targets: predict the mean.
            span = np.ptp(y, axis=0).max()
            if not model.frame_.y_scale.any() and span > 1e-15 * np.abs(y).max():
                message = f"y differs by {span:.3g}, hardly more than its rounding; "
                warnings.warn(f"{message}subtract its mean, which is predicted", UserWarning, stacklevel=2)
            choice = Candidate(units[0], self.width or 1, float(self.ridge or 0.0))
            network = Network(units[0], choice.width, standard.x.shape[1], standard.y.shape[1])
            model._set_fit(choice, Solution(network, Status.CONVERGED, (_error(network, standard),)))
            model.deviation_ = np.stack([model.frame_.y_scale > 0, np.ones(standard.y.shape[1])]).astype(np.float64)
        else:
            model._learn(units, standard, rows.x, seed, end)
        return self._become(model)

    def _learn(self, units: list[Unit], rows: TableRows, raw: Array, seed: int, end: float) -> None:
        """Choose the parameters that are not given, fit the network, and combine the members if there are several."""
        choice, search = Candidate(units[0], self.width or 1, float(self.ridge or 0.0)), None
        if self.width is None or self.ridge is None or len(units) > 1:
            alone = self.unit is not None or self.width is not None or self.members == 1
            with showing(self.verbose, "choosing a network", _USUAL) as show:
                search = SquaresSearch(rows, raw, seed, self.device, end=end, show=show)
                choice = search.run(units, self.width, self.ridge, step_gates=not alone)
                search = search if search.tried else None
        # A mean would only lose precision if one network is nearly exact.
        precise = search is None or choice.error <= min(PRECISE, search.best.error)
        several = self.members > 1 and self.width is None and not precise
        if search is not None and several and choice.gates == "trained":
            solution = search.warm(choice, choice.members[0][0])
        else:
            solution = self._solve(choice, rows if search is None else fewer(rows, seed), seed)
        self._set_fit(choice, solution, search, several=several)
        _warn(choice, solution, rows, steps_given=self.steps is not None and not several)

    def _solve(self, candidate: Candidate, rows: TableRows, seed: int) -> Solution:
        """The network of a candidate, fitted to these rows with full effort."""
        assert candidate.unit is not None
        if candidate.gates == "drawn":
            network = random_gates(candidate.unit, rows, candidate.width, candidate.steepness, seed)
            return Solution(network, Status.CONVERGED, (_error(network, rows),))
        title, tasks = f"fitting {candidate.name} of width {candidate.width}", [(candidate.width, seed)]
        how = {name: getattr(self, name) for name in ("starts", "rounds", "steps", "device")}
        for ridge in (candidate.ridge, max(candidate.ridge, _HOLD)):
            with reporting(bool(self.verbose) or None, title) as report:
                (solution,) = fit_batch(candidate.unit, rows, tasks, ridge=ridge, progress=report, **how)
            if np.isfinite(_error(solution.network, rows)):
                return solution
        raise GatelabError(
            f"{candidate.name} of width {candidate.width} did not reach a finite error on these {len(rows)} rows; "
            "give a ridge of 1e-4 or more, or another unit"
        )

    def _set_fit(
        self, choice: Candidate, solution: Solution, search: SquaresSearch | None = None, *, several: bool = False
    ) -> None:
        """Set the attributes of the chosen candidate, and of a search its candidates, the members and the deviation."""
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
                count = pick_counts(values, y, weight, self.members)
                parts = [search.members(c, choice, self.network_) for c, k in zip(tried, count, strict=True) if k]
            mean, spread = mean_and_spread(values, count / count.sum())
            self.deviation_ = np.stack(deviation_scale(y - mean, spread))
            if self.frame_.y_bend.bends:
                self.frame_ = self.frame_.smeared(y - mean)
        share = count / count.sum()
        self.committee_ = Committee.of(parts, share[count > 0])
        self.members_ = [row | {"weight": float(k)} for row, k in zip(rows, share, strict=True) if k]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The weighted mean of the members, (rows,) or (rows, outputs) like the targets.

        With `return_std`, also the standard deviations of new targets, calibrated on held-out rows such that +-1.96 of
        them contain 95 %; so unit, width or ridge must have been chosen by validation.
        """
        table = self._table(X)
        if return_std and self.deviation_ is None:
            raise GatelabError(
                "return_std needs held-out rows, but unit, width and ridge were given; leave out width or ridge"
            )
        mean, deviation = self.encoded_predictions(self.columns_.encode(table))
        if not self._vector:
            mean, deviation = mean[:, 0], deviation[:, 0]
        return (mean, deviation) if return_std else mean

    def encoded_predictions(self, x: Array) -> tuple[Array, Array]:
        """Mean and deviation, (rows, outputs) each, at rows that `columns_` has encoded."""
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
        """The values of each member, (members, rows, outputs); those of networks are clipped near the targets."""
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
        """The values and arrays of a file in addition to those of both estimators."""
        networks, trees = self.committee_.networks, self.committee_.trees
        facts = {
            "network": describe_unit(self.network_.unit),
            "status": self.status_.value,
            "networks": [{"unit": describe_unit(n.unit), "width": n.width} for n in networks],
            "steps": len(trees),
        }
        # The numbers of each member's network and trees, -1 for none.
        present = np.array([[part is not None for part in member] for member in self.committee_.members])
        parts = np.where(present, np.cumsum(present, axis=0) - 1, -1)
        states = [{k: v.numpy() for k, v in n.state_dict().items()} for n in (self.network_, *networks)]
        committee = {"parts": parts, "candidate": self.committee_.candidate, "weight": self.committee_.weight}
        arrays = prefixed("network", states[0]) | prefixed("committee", committee)
        for i, state in enumerate(states[1:]):
            arrays |= prefixed(f"networks.{i}", state)
        for i, network in enumerate(trees):
            arrays |= prefixed(f"steps.{i}", vars(network))
        return facts, arrays if self.deviation_ is None else arrays | {"deviation": self.deviation_}

    @classmethod
    def _restored(cls, facts: dict[str, Any], arrays: Arrays, attributes: dict[str, Any]) -> dict[str, Any]:
        sizes = attributes["frame_"].directions, len(attributes["frame_"].y_mean)

        def network(unit: Any, width: int, prefix: str) -> Network:
            state = {name: torch.tensor(array) for name, array in part_of(prefix, arrays).items()}
            return restored_network(restored_unit(unit), width, *sizes, state)

        # The number -1 is None.
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
    """The targets as numbers, one row per row of the table."""
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
            f"different target values: predictions between rows are unreliable; give more rows{narrower} or a ridge",
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
