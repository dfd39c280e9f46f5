"""`scaling_curve`: the held-out error of an estimator by its width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import check_cv

from gatelab.arrays import Array, refuse_masked
from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.estimators.reading import as_frame, rows_of
from gatelab.estimators.regressor import GatedRegressor, targets_of
from gatelab.feedforward.specification import check_widths
from gatelab.scaling_laws import Slope, slope

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class ScalingCurve(Compact):
    """The error of an estimator by width and fold.

    `unit` is the name of the unit, or the names of those that validation chose; `widths` are the numbers of neurons and
    `parameters` the numbers of parameters, the largest of all folds; `train_rmse` and `test_rmse` are (widths, folds),
    in the units of the targets.
    """

    unit: str
    widths: tuple[int, ...]
    parameters: tuple[int, ...]
    train_rmse: Array
    test_rmse: Array

    @property
    def slope(self) -> Slope:
        """The log-log slope of the median test error over folds against the width."""
        return slope(np.array(self.widths), self.test_rmse, aggregate="median")

    def table(self) -> pd.DataFrame:
        """One row per width: neurons, parameters, mean and standard deviation over the folds."""
        columns: dict[str, Any] = {"width": self.widths, "parameters": self.parameters}
        for name, errors in (("train", self.train_rmse), ("test", self.test_rmse)):
            columns |= {f"{name}_rmse": errors.mean(axis=1), f"{name}_std": errors.std(axis=1)}
        return pd.DataFrame(columns)

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Both errors by width on logarithmic axes; lines are the best folds, bands extend to the worst.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into the axes `ax` if given.
        """
        from gatelab.plotting import Curve, saved, scaling_figure

        sizes = np.array(self.widths, dtype=np.float64)
        note = f"slope {self.slope}" if len(sizes) > 1 else ""
        curves = [
            Curve("test", sizes, self.test_rmse, note=note, look=self.unit),
            Curve("train", sizes, self.train_rmse, look=self.unit, line="--"),
        ]
        title = f"{self.unit}, cross-validated"
        return saved(scaling_figure([("neurons n", curves)], title=title, error_label="RMSE", ax=ax), path)


def scaling_curve(
    estimator: GatedRegressor,
    X: Any,
    y: Any,
    widths: Sequence[int],
    *,
    cv: Any = 5,
    n_jobs: int | None = None,
) -> ScalingCurve:
    """Fit a clone of the estimator for every width and fold, like scikit-learn's `learning_curve` for rows.

    Args:
        estimator: the regressor; its width is replaced.
        X: the inputs (rows, inputs), an array or a table.
        y: the targets, (rows,) or (rows, outputs).
        widths: the numbers of neurons.
        cv: a number of folds, a splitter or an iterable of splits.
        n_jobs: the number of processes, as in scikit-learn.

    Returns:
        The errors by width and fold, with their slope.

    >>> X = np.random.default_rng(0).uniform(-1, 1, (150, 1))
    >>> model = GatedRegressor(ridge=0.0, starts=1, rounds=1, random_state=0)
    >>> curve = scaling_curve(model, X, np.sin(5 * X[:, 0]), [1, 2, 4], cv=2)
    >>> curve.table()[["width", "parameters"]].to_numpy().tolist(), curve.slope.value < -1
    ([[1, 6], [2, 11], [4, 21]], True)
    """
    if not isinstance(estimator, GatedRegressor):
        raise GatelabError(f"estimator is a {type(estimator).__name__}; give a GatedRegressor, whose width is set")
    sizes = sorted(set(check_widths(widths)))
    refuse_masked(X, "X")
    refuse_masked(y, "y")
    X = as_frame(X)
    y = targets_of(y, X)
    splitter: Any = check_cv(cv, y, classifier=False)
    splits = list(splitter.split(X, y))
    if not splits:
        raise GatelabError("cv has no splits; give a number of folds, 2 or more, a splitter or pairs of rows")
    jobs = [(w, train, test) for w in sizes for train, test in splits]
    outcomes = Parallel(n_jobs=n_jobs)(delayed(fit_fold)(estimator, X, y, w, train, test) for w, train, test in jobs)
    train_rmse, test_rmse, counts, names = (list(column) for column in zip(*outcomes, strict=True))
    shape = (len(sizes), len(splits))
    return ScalingCurve(
        unit=" or ".join(sorted(set(names))),
        widths=tuple(sizes),
        parameters=tuple(np.reshape(counts, shape).max(axis=1).tolist()),
        train_rmse=np.reshape(train_rmse, shape),
        test_rmse=np.reshape(test_rmse, shape),
    )


def fit_fold(
    estimator: GatedRegressor, X: Any, y: Array, width: int, train: Any, test: Any
) -> tuple[float, float, int, str]:
    """The training and test RMSE, the number of parameters and the unit of a clone fitted to the rows `train`."""

    def error(rows: Any) -> float:
        return float(np.sqrt(np.mean(np.square(model.predict(rows_of(X, rows)) - y[rows]))))

    model: Any = clone(estimator)
    model.set_params(width=width)
    model.fit(rows_of(X, train), y[train])
    outputs = len(model.frame_.y_mean)
    count = model.network_.unit.parameter_count(width, model.frame_.directions, outputs)
    return error(train), error(test), count, model.unit_
