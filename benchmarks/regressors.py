"""GatedRegressor and its peers on tables: `python -m benchmarks.regressors`; what it takes is said in `tables.py`."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

import gatelab as gl
from benchmarks.tables import (
    PROCESS_ROWS,
    RESULTS,
    Fewer,
    Method,
    PrintedTable,
    as_numbers,
    as_table,
    command,
    present_and_recorded,
)

RECORD = RESULTS / "regressors.json"
QUICK = ("diabetes",)  # what `make bench` fits for the present code if the record lacks it
EACH_LENGTH = 20  # columns up to which a Gaussian process has a length of its own for each


def methods() -> tuple[Method, ...]:
    """All regressors, those that are not available among them."""
    gated: Any = gl.GatedRegressor
    single = "members" in signature(gated).parameters
    forest = {"n_estimators": 300, "random_state": 0}
    layers = {"hidden_layer_sizes": (64, 64), "max_iter": 500, "random_state": 0}
    support = {"C": [1.0, 10.0, 100.0], "gamma": ["scale", 0.02]}
    return (
        Method("gated", "GatedRegressor", "gatelab", "defaults", lambda: as_table(gated(random_state=0))),
        Method(
            "gated-1",
            "GatedRegressor, 1 member",
            "gatelab",
            "members=1",
            (lambda: as_table(gated(random_state=0, members=1))) if single else None,
            why="this GatedRegressor has no members",
            variant=True,
        ),
        Method(
            "boosting",
            "HistGradientBoosting",
            "scikit-learn",
            "defaults",
            lambda: HistGradientBoostingRegressor(random_state=0),
        ),
        Method(
            "lightgbm",
            "LightGBM",
            "lightgbm",
            "rate 0.05; 100 or 400 trees, 7 or 31 leaves by 3 folds",
            boosted if find_spec("lightgbm") else None,
            why="lightgbm is not installed",
        ),
        Method(
            "forest",
            "random forest",
            "scikit-learn",
            "300 trees",
            lambda: as_numbers(RandomForestRegressor(**forest)),
        ),
        Method(
            "extra",
            "extra trees",
            "scikit-learn",
            "300 trees",
            lambda: as_numbers(ExtraTreesRegressor(**forest)),
        ),
        Method(
            "mlp",
            "MLPRegressor",
            "scikit-learn",
            "(64, 64), 500 epochs",
            lambda: as_numbers(MLPRegressor(**layers), scaled_target=True),
        ),
        Method(
            "svr",
            "SVR",
            "scikit-learn",
            "C 1, 10, 100, gamma scale or 0.02 by 3 folds; 2500 rows at most",
            lambda: as_numbers(Fewer(searched(SVR(cache_size=500), support)), scaled_target=True),
        ),
        Method(
            "ridge",
            "ridge",
            "scikit-learn",
            "13 penalties from 1e-3 to 1e3, leave one out",
            lambda: as_numbers(RidgeCV(np.logspace(-3, 3, 13))),
        ),
        Method(
            "process",
            "Gaussian process",
            "scikit-learn",
            "RBF with noise, a length each up to 20 columns",
            lambda: as_numbers(Process(), scaled_target=True),
            most_rows=PROCESS_ROWS,
        ),
        Method(
            "pykan",
            "pykan",
            "pykan",
            "widths inputs, 5, 1; LBFGS, grids 3, 5, 10 with 25 steps each",
            (lambda: as_numbers(Kan(), scaled_target=True)) if find_spec("kan") else None,
            most_rows=PROCESS_ROWS,
            why="pykan is not installed",
        ),
        Method(
            "realmlp",
            "RealMLP",
            "pytabkit",
            "tuned defaults",
            (lambda: as_numbers(real_mlp())) if find_spec("pytabkit") else None,
            most_rows=PROCESS_ROWS,
            why="pytabkit is not installed",
        ),
    )


def run() -> Iterator[PrintedTable]:
    """The present code on a quick set, and boosting, which is not recorded; then the tables of the record."""
    yield from present_and_recorded("regression", methods(), RECORD, QUICK)


def searched(model: Any, grid: dict[str, list[Any]]) -> GridSearchCV:
    """A model whose settings are chosen by RMSE in three folds."""
    return GridSearchCV(model, grid, cv=3, scoring="neg_root_mean_squared_error")


def boosted() -> Any:
    """LightGBM, its size chosen in three folds."""
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(learning_rate=0.05, random_state=0, n_jobs=1, verbosity=-1)
    return searched(model, {"n_estimators": [100, 400], "num_leaves": [7, 31]})


def real_mlp() -> Any:
    """RealMLP with its tuned defaults."""
    from pytabkit import RealMLP_TD_Regressor

    return RealMLP_TD_Regressor(device="cpu", random_state=0, n_threads=1, verbosity=0)


class Process(RegressorMixin, BaseEstimator):
    """A Gaussian process with noise, its lengths by likelihood."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Process:
        lengths: Any = np.full(X.shape[1] if X.shape[1] <= EACH_LENGTH else 1, X.shape[1] ** 0.5)
        kernel = ConstantKernel() * RBF(lengths, (1e-2, 1e3)) + WhiteKernel(0.1, (1e-8, 10.0))
        self.model_ = GaussianProcessRegressor(kernel, random_state=0).fit(X, y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model_.predict(X))


class Kan(RegressorMixin, BaseEstimator):
    """pykan as its documentation trains it: LBFGS, on finer and finer grids, in float64."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Kan:
        from kan import KAN

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            x, t = torch.tensor(X), torch.tensor(y)[:, None]
            data = {"train_input": x, "train_label": t, "test_input": x[:1], "test_label": t[:1]}
            with (
                tempfile.TemporaryDirectory() as folder,
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                options = {"k": 3, "seed": 0, "auto_save": False, "ckpt_path": folder}
                self.model_ = KAN(width=[X.shape[1], 5, 1], grid=3, **options)
                for grid in (3, 5, 10):
                    if grid > 3:
                        self.model_ = self.model_.refine(grid)
                    self.model_.fit(data, opt="LBFGS", steps=25, lamb=0.0)
        finally:
            torch.set_default_dtype(before)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.model_(torch.tensor(X))[:, 0].numpy()


if __name__ == "__main__":
    command("regression", methods(), RECORD)
