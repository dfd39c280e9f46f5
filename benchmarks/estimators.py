"""The estimators that are compared on tables, ours and others', and how each is given a table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
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
from sklearn.utils import get_tags

import gatelab as gl
from benchmarks.datasets import DataSet, Task

MOST_LEVELS = 40  # one-hot columns of a category, for methods that take only numbers
KERNEL_ROWS = 2500  # kernel methods cost rows cubed: longer sets are sampled
PROCESS_ROWS = 1000  # longer sets are left out by Gaussian processes
EACH_LENGTH = 20  # columns up to which a Gaussian process has a length of its own for each
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

    def takes(self, dataset: DataSet) -> bool:
        return bool(self.version) and dataset.rows <= self.most_rows


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
    gated, layers = getattr(gl, f"Gated{ending}"), getattr(neural_network, f"MLP{ending}")
    numbers: Any = {"scaled_target": task == "regression"}

    def ensemble_of(kind: str, **options: Any) -> Any:
        return getattr(ensemble, f"{kind}{ending}")(random_state=0, **options)

    def lightgbm() -> Any:
        kind = getattr(import_module("lightgbm"), f"LGBM{ending}")
        model = kind(learning_rate=0.05, random_state=0, n_jobs=1, verbosity=-1)
        return searched(model, task, {"n_estimators": [*trees], "num_leaves": [7, 31]})

    def forest(kind: str) -> Any:
        return as_numbers(ensemble_of(kind, n_estimators=300))

    def two_layers() -> Any:
        return as_numbers(layers(hidden_layer_sizes=(64, 64), max_iter=500, random_state=0), **numbers)

    def support() -> Any:
        """Support vectors; distances become probabilities on rows held out."""
        if task == "regression":
            return as_numbers(
                Fewer(searched(SVR(cache_size=500), task, {"C": [1.0, 10.0, 100.0], "gamma": GAMMAS})), **numbers
            )
        model = CalibratedClassifierCV(SVC(cache_size=500), ensemble=False, cv=3)
        return as_numbers(Fewer(searched(model, task, {"estimator__C": [0.1, 1.0, 10.0], "estimator__gamma": GAMMAS})))

    def logistic() -> Any:
        return as_numbers(searched(LogisticRegression(max_iter=2000), task, {"C": [0.01, 0.1, 1.0, 10.0]}))

    def process() -> Any:
        """A Gaussian process, its lengths by likelihood; of classes by Laplace's approximation."""
        if task == "regression":
            return as_numbers(Process(), **numbers)
        return as_numbers(GaussianProcessClassifier(ConstantKernel() * RBF(3.0, (1e-2, 1e3)), random_state=0))

    leaves = f"rate 0.05; {trees[0]} or {trees[1]} trees, 7 or 31 leaves by 3 folds"
    common = [
        Method("gated", "gatelab", "defaults", lambda: gated(random_state=0)),
        Method("gated-1", "gatelab", "members=1", lambda: gated(random_state=0, members=1)),
        Method("boosting", learn, "defaults", lambda: ensemble_of("HistGradientBoosting")),
        Method("lightgbm", "lightgbm", leaves, lightgbm),
        Method("forest", learn, "300 trees", lambda: forest("RandomForest")),
        Method("extra", learn, "300 trees", lambda: forest("ExtraTrees")),
        Method("mlp", learn, "(64, 64), 500 epochs", two_layers),
    ]
    folds = "gamma scale or 0.02 by 3 folds; 2500 rows at most"
    if task == "classes":
        return [
            *common,
            Method("svc", learn, f"calibrated; C 0.1, 1, 10, {folds}", support),
            Method("logistic", learn, "C 0.01, 0.1, 1, 10 by 3 folds", logistic),
            Method("process", learn, "RBF, one length", process, PROCESS_ROWS),
        ]
    lengths, ridges = "RBF with noise, a length each up to 20 columns", np.logspace(-3, 3, 13)
    kan = "widths inputs, 5, 1; LBFGS, grids 3, 5, 10 with 25 steps each"
    return [
        *common,
        Method("svr", learn, f"C 1, 10, 100, {folds}", support),
        Method("ridge", learn, "13 penalties from 1e-3 to 1e3, leave one out", lambda: as_numbers(RidgeCV(ridges))),
        Method("process", learn, lengths, process, PROCESS_ROWS),
        Method("pykan", "pykan", kan, lambda: as_numbers(Kan(), **numbers), PROCESS_ROWS),
    ]


def searched(model: Any, task: Task, grid: dict[str, list[Any]]) -> GridSearchCV:
    """A model whose settings are chosen by RMSE or log loss in three folds."""
    return GridSearchCV(model, grid, cv=3, scoring=SCORES[task])


def as_numbers(estimator: Any, *, scaled_target: bool = False) -> Any:
    """A pipeline for an estimator that takes only numbers: medians for gaps, one-hot columns, standardized columns."""
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_LEVELS, sparse_output=False, drop="if_binary"
    )
    names = make_pipeline(SimpleImputer(strategy="constant", fill_value="(missing)"), levels)
    columns = make_column_transformer(
        (SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
        (names, make_column_selector(dtype_include="category")),
    )
    pipeline = make_pipeline(columns, StandardScaler(), estimator)
    if scaled_target:
        return TransformedTargetRegressor(pipeline, transformer=StandardScaler())
    return pipeline


class Fewer(BaseEstimator):
    """A model fitted to at most `KERNEL_ROWS` random rows."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.model)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Fewer:
        if len(X) > KERNEL_ROWS:
            order = np.random.default_rng(0).permutation(len(X))[:KERNEL_ROWS]
            X, y = X[order], y[order]
        self.model_: Any = clone(self.model).fit(X, y)
        self.classes_ = getattr(self.model_, "classes_", None)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict_proba(X)


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
            with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
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
