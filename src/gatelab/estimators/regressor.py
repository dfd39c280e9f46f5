"""`GatedRegressor`: a network of any unit under scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from gatelab.arrays import Array
from gatelab.data.checks import refuse_masked, without_row_labels
from gatelab.display import reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.estimators.columns import TableColumns, is_category, named
from gatelab.estimators.frames import Frame, TableRows, distinct, drawn, read, units_of, write
from gatelab.estimators.search import ENOUGH, Candidate, choose, scaled_weights, solved
from gatelab.feedforward import AnyUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.solve import Solution, Status, predict
from gatelab.solve.solution import check_steps

UnitLike = str | AnyUnit | Callable[..., object]
# Where a network without any ridge runs away, this much holds it and costs no digit that was left.
_HOLD = 1e-8
# Parts of the rows that mean targets of levels are taken without.
_FOLDS = 5


class GatedRegressor(RegressorMixin, BaseEstimator):
    """Regression by one hidden layer of a gated unit, trained by variable projection to high precision.

        y(x) = d + D [ act(Gx + g) * (Ux + u) * ... ]

    Inputs and targets are scaled inside. Unit, width and ridge are chosen on rows held out, then the network is fitted
    to all rows, the best of several starts. Equal rows count as one with the sum of their weights, and the order of
    rows does not matter. Predictions go no further beyond the targets seen than half their range: outside the data a
    gated network is a polynomial, and a single row far out would cost more than all others.

    Parameters
    ----------
    unit : a unit's name, a `gl.Unit`, a function of tensors, or a list or tuple of these, among which validation
        chooses.
    width : the number of neurons; None lets validation choose among 1, 2, 4, ... up to what the data carry.
    ridge : the penalty on what is linear, for data of unit variance; None lets validation choose.
    starts, rounds, steps : how hard the last fit tries: networks begun, times that each exchanges its cheapest neurons,
        and the most steps of Levenberg-Marquardt that a network goes through from its start to its end. None takes the
        solver's own, growth and rounds and a hundred to settle, and stops there without a warning: width and ridge were
        chosen, or given, for the error on rows not seen, which steps beyond that do not lower. Steps that are given and
        run out while the error still falls are a `ConvergenceWarning`. The choice is made with quick fits.
    random_state : an int for results that repeat, a `RandomState`, or None.
    device : where torch computes, "cpu" or "cuda".
    verbose : 1 prints what validation tries, and shows the progress of the last fit.

    Attributes
    ----------
    network_ : the `Network`, a function of the scaled inputs; `frame_` holds the scaling.
    columns_ : how the columns of X become numbers.
    unit_, width_, ridge_ : what was chosen or given.
    gates_ : "trained", or "drawn" where validation found random gates with exact linear algebra to do better.
    status_ : how the solver ended; `status_.advice` says what to do next.
    n_iter_ : steps of the best start.
    validation_ : what was tried, a list of dicts with the RMSE on rows held out in standard deviations of the targets;
        `pandas.DataFrame(model.validation_)` is a table.
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
    _vector: bool

    def __init__(
        self,
        unit: UnitLike | list[UnitLike] | tuple[UnitLike, ...] = "swiglu",
        width: int | None = None,
        ridge: float | None = None,
        *,
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
        self.starts = starts
        self.rounds = rounds
        self.steps = steps
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GatedRegressor:
        """Fit to X (rows, inputs) and y (rows,) or (rows, outputs). A fit that is interrupted leaves no trace."""
        units, width, ridge = self._checked()
        for value, what in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
            refuse_masked(value, what)
        # All is written into a copy and taken over at the end.
        model = copy(self)
        table = _table(model, without_row_labels(X, "X"), reset=True)
        y = _targets(y, table)
        weight = _weights(sample_weight, len(y))
        seed = _seed(self.random_state)
        targets = y.reshape(len(y), -1)
        weighty = weight > 0
        if not weighty.all() and weighty.any():
            table, targets, weight = _part(table, weighty), targets[weighty], weight[weighty]
        model.columns_ = TableColumns.of(table, targets, weight)
        if model.columns_.averaged:
            fold = model.columns_.fold(table, _FOLDS, seed)
            x = model.columns_.training(table, targets, weight, fold)
        else:
            x = model.columns_.encode(table)
        rows = distinct(x, targets, weight)
        # More parameters than values are allowed, since a ridge can hold them; more neurons than values never help.
        if width is not None and width > rows.y.size:
            raise GatelabError(
                f"width is {width} and there are {rows.y.size} different target values, through which {rows.y.size} "
                "neurons pass exactly; give a smaller width, or None to have it chosen"
            )
        model.frame_ = Frame.of(rows)
        model._vector = y.ndim == 2
        standard = model.frame_.standard(rows)
        choice, tried = Candidate(units[0], width or 1, ridge or 0.0), []
        if model.frame_.directions == 0 or not model.frame_.y_scale.any():
            # Neither inputs that differ nor targets that differ: the mean is all there is to learn.
            network = Network(choice.unit, choice.width, standard.x.shape[1], standard.y.shape[1])
            solution = Solution(network, Status.CONVERGED, (_error(network, standard),))
        else:
            if width is None or ridge is None or len(units) > 1:
                choice, tried = choose(
                    units, standard, width=width, ridge=ridge, seed=seed, device=self.device, show=self._show
                )
            solution = self._solve(choice, standard, seed)
            _warn(choice, solution, standard, steps_given=self.steps is not None)
        assert isinstance(solution.network, Network)
        model.network_, model.status_ = solution.network, solution.status
        model.n_iter_ = max(1, solution.steps)
        model.unit_, model.width_ = choice.unit.name, choice.width
        model.ridge_, model.gates_ = choice.ridge, choice.gates
        model.validation_ = [c.row() for c in tried]
        vars(self).clear()
        vars(self).update(vars(model))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The network's values, (rows,) or (rows, outputs) as the targets were."""
        check_is_fitted(self, "network_")
        refuse_masked(X, "X")
        x = self.columns_.encode(_table(self, without_row_labels(X, "X"), reset=False))
        values = self.frame_.outputs(predict(self.network_, self.frame_.inputs(x)))
        if self._vector:
            return values
        return values[:, 0]

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

    def _checked(self) -> tuple[list[Unit], int | None, float | None]:
        """The units, the width and the ridge, if all parameters can be used."""
        units: list[Unit] = []
        for unit in map(as_unit, units_of(self.unit)):
            if not isinstance(unit, Unit):
                raise GatelabError(
                    f"{unit.name!r} is a class; GatedRegressor takes product units and functions, gl.fit takes classes"
                )
            units.append(unit)
        if not units:
            raise GatelabError("unit is empty; give one or more units, for example ('glu', 'swiglu')")
        if self.ridge is not None and not (isinstance(self.ridge, Real) and 0 <= self.ridge < np.inf):
            raise GatelabError(f"ridge is {self.ridge!r}; give a finite number, 0 or more, or None to have it chosen")
        whole_number("starts", self.starts, 1)
        whole_number("rounds", self.rounds, 0)
        check_steps(self.steps)
        width, ridge = self.width, self.ridge
        if width is not None:
            width = check_width(width)
        if ridge is not None:
            ridge = float(ridge)
        return units, width, ridge

    def _solve(self, choice: Candidate, rows: TableRows, seed: int) -> Solution:
        if choice.gates == "drawn":
            network = drawn(choice.unit, rows, choice.width, choice.steepness, seed)
            return Solution(network, Status.CONVERGED, (_error(network, rows),))
        for ridge in (choice.ridge, max(choice.ridge, _HOLD)):
            with reporting(bool(self.verbose), f"fitting {choice.unit.name} of width {choice.width}") as report:
                solution = solved(
                    choice.unit,
                    rows.x,
                    rows.y,
                    [(choice.width, seed)],
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
            f"{choice.unit.name} of width {choice.width} did not reach a finite error on these {len(rows)} rows; "
            "give a ridge of 1e-4 or more, or another unit"
        )

    def _show(self, candidate: Candidate) -> None:
        if self.verbose:
            row = candidate.row() | {"ridge": f"{candidate.ridge:.2g}", "rmse": f"{candidate.rmse:.2g}"}
            print("  ".join(f"{name} {value}" for name, value in row.items()))


def _table(model: GatedRegressor, X: Any, *, reset: bool) -> Any:
    """X as numbers with NaN where they are missing, or as the data frame that it is where it holds categories."""
    if not (hasattr(X, "columns") and hasattr(X, "iloc")) or not any(is_category(part) for _, part in named(X)):
        return validate_data(
            model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset, reset=reset
        )
    validate_data(model, X, skip_check_array=True, reset=reset)
    if len(X) < 1 + reset:
        raise GatelabError(f"X has {len(X)} rows and a minimum of {1 + reset} is required; give more rows")
    return X


def _targets(y: Any, table: Any) -> Array:
    """The targets as numbers, one row for each of the table."""
    if y is None:
        raise GatelabError("requires y to be passed, but the target y is None; give the targets")
    values = check_array(y, ensure_2d=False, allow_nd=False, dtype="numeric", input_name="y")
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(y, warn=True)
    check_consistent_length(table, values)
    return np.asarray(values, dtype=np.float64)


def _part(table: Any, mask: NDArray[np.bool_]) -> Any:
    """Some rows of a data frame or an array."""
    if hasattr(table, "iloc"):
        return table.iloc[np.flatnonzero(mask)]
    return table[mask]


def _weights(sample_weight: Any, n: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(n)
    if isinstance(sample_weight, Real):
        return np.full(n, float(sample_weight))
    weight: np.ndarray = check_array(sample_weight, ensure_2d=False, dtype="float64", input_name="sample_weight")
    if weight.shape != (n,):
        raise GatelabError(f"sample_weight has the shape {weight.shape}; give one number for each of the {n} rows")
    if (weight < 0).any():
        raise GatelabError(f"sample_weight has the negative value {weight.min():g}; give numbers that are 0 or more")
    return weight


def _error(network: torch.nn.Module, rows: TableRows) -> float:
    return float(np.sqrt(np.mean(rows.weight[:, None] * np.square(predict(network, rows.x) - rows.y))))


def _seed(random_state: Any) -> int:
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        random_state = whole_number("random_state", random_state, 0, 2**32 - 1)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _warn(choice: Candidate, solution: Solution, rows: TableRows, *, steps_given: bool) -> None:
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
