"""GatedClassifier and its peers on tables: `python -m benchmarks.classifiers`; what it takes is said in `tables.py`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from inspect import signature
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

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

RECORD = RESULTS / "classifiers.json"
QUICK = ("wine",)  # what `make bench` fits for the present code if the record lacks it


def methods() -> tuple[Method, ...]:
    """All classifiers, those that are not available among them."""
    gated: Any = getattr(gl, "GatedClassifier", None)
    single = gated is not None and "members" in signature(gated).parameters
    forest = {"n_estimators": 300, "random_state": 0}
    layers = {"hidden_layer_sizes": (64, 64), "max_iter": 500, "random_state": 0}
    return (
        Method(
            "gated",
            "GatedClassifier",
            "gatelab",
            "defaults",
            (lambda: as_table(gated(random_state=0))) if gated else None,
            why="this gatelab has no GatedClassifier",
        ),
        Method(
            "gated-1",
            "GatedClassifier, 1 member",
            "gatelab",
            "members=1",
            (lambda: as_table(gated(random_state=0, members=1))) if single else None,
            why="this GatedClassifier has no members",
            variant=True,
        ),
        Method(
            "boosting",
            "HistGradientBoosting",
            "scikit-learn",
            "defaults",
            lambda: HistGradientBoostingClassifier(random_state=0),
        ),
        Method(
            "lightgbm",
            "LightGBM",
            "lightgbm",
            "rate 0.05; 50 or 200 trees, 7 or 31 leaves by 3 folds",
            boosted if find_spec("lightgbm") else None,
            why="lightgbm is not installed",
        ),
        Method(
            "forest",
            "random forest",
            "scikit-learn",
            "300 trees",
            lambda: as_numbers(RandomForestClassifier(**forest)),
        ),
        Method(
            "extra",
            "extra trees",
            "scikit-learn",
            "300 trees",
            lambda: as_numbers(ExtraTreesClassifier(**forest)),
        ),
        Method(
            "mlp",
            "MLPClassifier",
            "scikit-learn",
            "(64, 64), 500 epochs",
            lambda: as_numbers(MLPClassifier(**layers)),
        ),
        Method(
            "svc",
            "SVC",
            "scikit-learn",
            "calibrated; C 0.1, 1, 10, gamma scale or 0.02 by 3 folds; 2500 rows at most",
            support_vectors,
        ),
        Method(
            "logistic",
            "logistic regression",
            "scikit-learn",
            "C 0.01, 0.1, 1, 10 by 3 folds",
            lambda: as_numbers(searched(LogisticRegression(max_iter=2000), {"C": [0.01, 0.1, 1.0, 10.0]})),
        ),
        Method(
            "process",
            "Gaussian process",
            "scikit-learn",
            "RBF, one length",
            gaussian_process,
            most_rows=PROCESS_ROWS,
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
    yield from present_and_recorded("classes", methods(), RECORD, QUICK)


def searched(model: Any, grid: dict[str, list[Any]]) -> GridSearchCV:
    """A model whose settings are chosen by log loss in three folds."""
    return GridSearchCV(model, grid, cv=3, scoring="neg_log_loss")


def boosted() -> Any:
    """LightGBM, its size chosen in three folds."""
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(learning_rate=0.05, random_state=0, n_jobs=1, verbosity=-1)
    return searched(model, {"n_estimators": [50, 200], "num_leaves": [7, 31]})


def support_vectors() -> Any:
    """Support vectors whose distances become probabilities on rows held out."""
    model = CalibratedClassifierCV(SVC(cache_size=500), ensemble=False, cv=3)
    return as_numbers(Fewer(searched(model, {"estimator__C": [0.1, 1.0, 10.0], "estimator__gamma": ["scale", 0.02]})))


def gaussian_process() -> Any:
    """A Gaussian process by Laplace's approximation, its length by likelihood."""
    kernel = ConstantKernel() * RBF(3.0, (1e-2, 1e3))
    return as_numbers(GaussianProcessClassifier(kernel, random_state=0))


def real_mlp() -> Any:
    """RealMLP with its tuned defaults."""
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(device="cpu", random_state=0, n_threads=1, verbosity=0)


if __name__ == "__main__":
    command("classes", methods(), RECORD)
