"""The estimators that are compared on tables, ours and others', and how each is given a table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn import ensemble, neural_network
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

import gatelab as gl
from benchmarks.datasets import Task

KERNEL_ROWS = 2500  # kernel methods cost rows cubed: longer sets are sampled
PROCESS_ROWS = 1000  # longer sets are left out by Gaussian processes
CODE = Path(gl.__file__).parent
SCORES: dict[Task, str] = {"regression": "neg_root_mean_squared_error", "classes": "neg_log_loss"}
ENDINGS: dict[Task, str] = {"regression": "Regressor", "classes": "Classifier"}
TREES: dict[Task, tuple[int, int]] = {"regression": (100, 400), "classes": (50, 200)}
GAMMAS = ["scale", 0.02]


@dataclass(frozen=True)
class Method:
    """An estimator and how it is given a table."""

    name: str  # for the command line and the record
    package: str  # "gatelab" for ours
    settings: str  # a description; entries with other settings are computed again
    make: Callable[[], Any]
    most_rows: float = np.inf  # longer sets are left out

    @property
    def version(self) -> str:
        """The version of the package, empty where it is not installed; of ours, a hash of the code."""
        if self.package == "gatelab":
            return estimator_code()
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""


@lru_cache(maxsize=1)
def estimator_code() -> str:
    """A hash of the code of estimators and solvers."""
    digest = hashlib.sha256()
    for package in ("estimators", "solve"):
        for path in sorted((CODE / package).rglob("*.py")):
            digest.update(path.relative_to(CODE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def methods(task: Task) -> list[Method]:
    """All methods of a task, those whose packages are not installed among them."""
    ending, trees, learn = ENDINGS[task], TREES[task], "scikit-learn"
    gated, layers = partial(getattr(gl, f"Gated{ending}"), random_state=0), getattr(neural_network, f"MLP{ending}")
    numbers = partial(as_numbers, scaled_target=task == "regression")
    kinds = (getattr(ensemble, f"{kind}{ending}") for kind in ("HistGradientBoosting", "RandomForest", "ExtraTrees"))
    boosting, forest, extra = (partial(kind, random_state=0) for kind in kinds)

    def lightgbm() -> Any:
        kind = getattr(import_module("lightgbm"), f"LGBM{ending}")
        model = kind(learning_rate=0.05, random_state=0, n_jobs=1, verbosity=-1)
        return searched(model, task, n_estimators=[*trees], num_leaves=[7, 31])

    leaves = f"rate 0.05; {trees[0]} or {trees[1]} trees, 7 or 31 leaves by 3 folds"
    folds = "gamma scale or 0.02 by 3 folds; 2500 rows at most"
    net: dict[str, Any] = {"hidden_layer_sizes": (64, 64), "max_iter": 500, "random_state": 0}
    common = [
        Method("gated", "gatelab", "defaults", gated),
        Method("gated-1", "gatelab", "members=1", lambda: gated(members=1)),
        Method("boosting", learn, "defaults", boosting),
        Method("lightgbm", "lightgbm", leaves, lightgbm),
        Method("forest", learn, "300 trees", lambda: as_numbers(forest(n_estimators=300))),
        Method("extra", learn, "300 trees", lambda: as_numbers(extra(n_estimators=300))),
        Method("mlp", learn, "(64, 64), 500 epochs", lambda: numbers(layers(**net))),
    ]
    if task == "classes":
        logistic = searched(LogisticRegression(max_iter=2000), task, C=[0.01, 0.1, 1.0, 10.0])
        # Support vectors, whose distances become probabilities on rows held out.
        vectors = CalibratedClassifierCV(SVC(cache_size=500), ensemble=False, cv=3)
        support = searched(vectors, task, Fewer, estimator__C=[0.1, 1.0, 10.0], estimator__gamma=GAMMAS)
        kernel = ConstantKernel() * RBF(3.0, (1e-2, 1e3))
        process = GaussianProcessClassifier(kernel, random_state=0)  # by Laplace's approximation
        return [
            *common,
            Method("svc", learn, f"calibrated; C 0.1, 1, 10, {folds}", lambda: numbers(support)),
            Method("logistic", learn, "C 0.01, 0.1, 1, 10 by 3 folds", lambda: numbers(logistic)),
            Method("process", learn, "RBF, one length", lambda: numbers(process), PROCESS_ROWS),
        ]
    lengths, ridges = "RBF with noise, a length each up to 20 columns", np.logspace(-3, 3, 13)
    kan = "widths inputs, 5, 1; LBFGS, grids 3, 5, 10 with 25 steps each"
    support = searched(SVR(cache_size=500), task, Fewer, C=[1.0, 10.0, 100.0], gamma=GAMMAS)
    return [
        *common,
        Method("svr", learn, f"C 1, 10, 100, {folds}", lambda: numbers(support)),
        Method("ridge", learn, "13 penalties from 1e-3 to 1e3, leave one out", lambda: as_numbers(RidgeCV(ridges))),
        Method("process", learn, lengths, lambda: numbers(Process()), PROCESS_ROWS),
        Method("pykan", "pykan", kan, lambda: numbers(Kan()), PROCESS_ROWS),
    ]


class Fewer(GridSearchCV):
    """A search on at most `KERNEL_ROWS` random rows."""

    def fit(self, X: Any, y: Any = None, **options: Any) -> Fewer:
        if len(X) > KERNEL_ROWS:
            order = np.random.default_rng(0).permutation(len(X))[:KERNEL_ROWS]
            X, y = X[order], y[order]
        return super().fit(X, y, **options)


def searched(model: Any, task: Task, kind: type[GridSearchCV] = GridSearchCV, **grid: list[Any]) -> GridSearchCV:
    """A model whose settings are chosen by RMSE or log loss in three folds."""
    return kind(model, grid, cv=3, scoring=SCORES[task])


def as_numbers(estimator: Any, *, scaled_target: bool = False) -> Any:
    """A pipeline for an estimator that takes only numbers: medians for gaps, one-hot columns, standardized columns."""
    rare: dict[str, Any] = {"handle_unknown": "infrequent_if_exist", "max_categories": 40}
    levels = OneHotEncoder(**rare, sparse_output=False, drop="if_binary")
    names = make_pipeline(SimpleImputer(strategy="constant", fill_value="(missing)"), levels)
    columns = make_column_transformer(
        (SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
        (names, make_column_selector(dtype_include="category")),
    )
    pipeline = make_pipeline(columns, StandardScaler(), clone(estimator))
    if scaled_target:
        return TransformedTargetRegressor(pipeline, transformer=StandardScaler())
    return pipeline


class Process(GaussianProcessRegressor):
    """A Gaussian process with noise; its lengths, of each of up to 20 columns, are by likelihood."""

    def fit(self, X: Any, y: Any) -> Process:
        lengths: Any = np.full(X.shape[1] if X.shape[1] <= 20 else 1, X.shape[1] ** 0.5)
        kernel = ConstantKernel() * RBF(lengths, (1e-2, 1e3)) + WhiteKernel(0.1, (1e-8, 10.0))
        self.set_params(kernel=kernel, random_state=0)
        return super().fit(X, y)


class Kan(RegressorMixin, BaseEstimator):
    """pykan as its documentation trains it: LBFGS, on finer and finer grids, in float64."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Kan:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        x, t = torch.tensor(X), torch.tensor(y)[:, None]
        data = {"train_input": x, "train_label": t, "test_input": x[:1], "test_label": t[:1]}
        try:
            with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                options = {"k": 3, "seed": 0, "auto_save": False, "ckpt_path": folder}
                self.model_ = import_module("kan").KAN(width=[X.shape[1], 5, 1], grid=3, **options)
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
