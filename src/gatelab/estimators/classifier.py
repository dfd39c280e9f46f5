"""`GatedClassifier`: classification by networks of any unit with scikit-learn's conventions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from gatelab.arrays import Array
from gatelab.errors import GatelabError, real_number
from gatelab.estimators.classes import STEPS, ClassNetwork, ClassSearch
from gatelab.estimators.estimator import (
    Arrays,
    GatedEstimator,
    UnitLike,
    part_of,
    prefixed,
    row_weights,
    seed_of,
    showing,
    units_of,
)
from gatelab.estimators.frames import Frame, TableRows, reach
from gatelab.estimators.reading import read_table
from gatelab.estimators.search import Committee, Member, log_mean, tempered
from gatelab.estimators.trees import StepTrees
from gatelab.solve.files import describe_unit, restored_unit

# The usual number of candidates of a search, for its progress; parameters times rows that are predicted at a time.
_USUAL, _BLOCK = 16, 2**22
_TREES = ("roots", "columns", "thresholds", "children", "tables", "offset")


class GatedClassifier(ClassifierMixin, GatedEstimator):
    """Classification by one hidden layer of gated units with a linear part, and by trees of step gates.

        log p(x) = log softmax( A x + a + D [ act(Gx + g) * (Ux + u) * ... ] )

    Every candidate is fitted once per fold of the rows, with early stopping on the held-out fold; unit, width, ridge
    and the scaling of inputs are chosen by the log loss there. The prediction is the mean over the folds' networks of
    the best candidates, and of trees if they lower the loss; a temperature calibrates it.

    A data frame may have missing values and categories. Inputs are clipped to half their range beyond the training
    inputs. Equal rows count as one row with the sum of their weights.

    Parameters
    ----------
    unit : a unit's name, a `gl.Unit`, a function of tensors, "steps" for trees of step gates, or a list or tuple of
        these, from which validation chooses. With a width, steps are left out if there are units.
    width : the number of neurons; None lets validation choose, including the linear part alone.
    ridge : the penalty on all weights, for inputs of unit variance and the mean log loss; None lets validation choose.
    members : the largest number of averaged gated networks, each trained without one fold of the rows; trees and linear
        networks for the same folds are additional. 1 and 2 are networks of the best candidate, trained on all rows.
    class_weight : None, "balanced" for equal weights of the classes, or a dict from classes to weights.
    random_state : an int for reproducible results, a `RandomState`, or None.
    device : the device of torch, "cpu" or "cuda".
    time_budget : seconds after which no further candidate is tried and no further step made, or None.
    verbose : 1 prints the candidates of validation and shows its progress.

    Attributes
    ----------
    classes_ : the classes, sorted; the columns of `predict_proba`.
    committee_ : the networks, functions of the scaled inputs, and the trees, functions of the inputs; `frame_` has the
        scaling, `columns_` the encoding of the columns.
    unit_, width_, ridge_ : of the best candidate; for trees the unit is "boosted steps", "deeply boosted steps" or
        "averaged steps", and the width is the number of trees.
    temperature_ : the temperature of the mean probabilities.
    validation_ : the candidates, a list of dicts with the log loss on held-out rows;
        `pandas.DataFrame(model.validation_)` is a table.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from gatelab import GatedClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = GatedClassifier(width=4, ridge=1e-4, members=1, random_state=0).fit(X[:200], y[:200])
    >>> bool(model.score(X[200:], y[200:]) > 0.9)
    True
    """

    KIND, FORMAT = "GatedClassifier", 2
    PLAIN = ("unit_", "width_", "ridge_", "temperature_", "validation_", "n_features_in_")
    classes_: np.ndarray
    committee_: Committee
    temperature_: float
    _range: tuple[Array, Array]

    def __init__(
        self,
        unit: UnitLike | list[UnitLike] | tuple[UnitLike, ...] = ("swiglu", "glu", "bilinear", STEPS),
        width: int | None = None,
        ridge: float | None = None,
        *,
        members: int = 8,
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        time_budget: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.unit = unit
        self.width = width
        self.ridge = ridge
        self.members = members
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.time_budget = time_budget
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GatedClassifier:
        """Fit to X (rows, inputs) and the classes y (rows,). An interrupted fit leaves the model unchanged."""
        # Trees of step gates do not have a width.
        listed = units_of(self.unit)
        gated = [unit for unit in listed if not (isinstance(unit, str) and unit == STEPS)]
        steps = len(gated) < len(listed) and (not gated or self.width is None)
        units = self._checked(gated or (listed and ["swiglu"]), X=X, y=y, sample_weight=sample_weight)
        end = monotonic() + (self.time_budget or math.inf)
        model = copy(self)
        table, y = model._validated(X, y)
        classes, index = np.unique(y, return_inverse=True)
        weight = row_weights(sample_weight, len(index))
        weight = weight * class_weights(self.class_weight, classes, index, weight)
        if weight.any() and len(np.unique(index[weight > 0])) < 2:
            raise GatelabError(
                "the rows with positive weight are all of one class of y; give rows of at least two classes"
            )
        seed = seed_of(self.random_state)
        rows = model._rows(table, np.eye(len(classes))[index], weight, seed)
        model.frame_ = Frame.of(rows)
        standard = TableRows(model.frame_.inputs(rows.x), rows.y, rows.weight)
        with showing(self.verbose, "choosing networks", _USUAL) as show:
            search = ClassSearch(standard, rows.x, self.members, seed=seed, device=self.device, end=end, show=show)
            if search.folds > 1 and gated:
                search.run(units, self.width, self.ridge)
            if search.folds > 1 and steps:
                search.try_trees()
            model.committee_, model.temperature_, first = search.committee(units, self.width, self.ridge, self.members)
        model.classes_, model._range = classes, reach(standard.x)
        model.unit_, model.width_, model.ridge_ = first.name, first.width, float(first.ridge)
        model.validation_ = [search.row(candidate) for candidate in search.tried]
        return self._become(model)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities (rows, classes)."""
        return self._log_probability(self._table(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes (rows, classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        log_p = self.predict_log_proba(X)
        return self.classes_[log_p.argmax(1)]

    def encoded_probabilities(self, table: Any) -> np.ndarray:
        """Probabilities (rows, classes) of a table with the columns of the fit in their order, under any names."""
        return np.exp(self._log_probability(table))

    def _log_probability(self, table: Any) -> np.ndarray:
        raw, members = self.columns_.encode(table), self.committee_.members
        # Inputs are clipped, since far outside the data a network is a polynomial.
        x = np.concatenate([np.clip(self.frame_.inputs(raw), *self._range), np.ones((len(raw), 1))], axis=1)
        most = max(256, _BLOCK // max(1, sum(n.theta.numel() for n in self.committee_.networks)))
        parts = []
        for i in range(0, len(raw), most):
            inputs, rows = torch.tensor(x[i : i + most]), raw[i : i + most]
            values = [
                network.log_probability(inputs, len(self.classes_)) if trees is None else trees.log_probability(rows)
                for network, trees in members
            ]
            parts.append(log_mean(values, self.committee_.weight))
        return tempered(np.concatenate(parts), self.temperature_)

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """X as input of `TableColumns`, and y; sets the names of columns."""
        if y is None:
            raise GatelabError("GatedClassifier requires y to be passed, but the target y is None; give the classes")
        labels = np.asarray(y, dtype=object)
        missing = np.flatnonzero(pd.isna(labels))
        if len(missing):
            raise GatelabError(
                f"y has {len(missing)} missing value(s) (NaN or None), the first in row {missing[0]}; give every row a "
                "class, or leave these rows out"
            )
        table = read_table(self, X, reset=True)
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise GatelabError(
                f"y has {labels.shape[1]} columns and a row has one class here; for a classifier of each column fit"
                " sklearn.multioutput.MultiOutputClassifier(GatedClassifier())"
            )
        y = column_or_1d(y, warn=True)
        check_consistent_length(table, y)
        check_classification_targets(y)
        return table, y

    def _content(self, parameters: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """The values and arrays of a file in addition to those of both estimators, by candidate."""
        if isinstance(parameters["class_weight"], Mapping):
            weights = parameters["class_weight"].items()
            parameters["class_weight"] = [[k.item() if isinstance(k, np.generic) else k, float(v)] for k, v in weights]
        networks, trees, arrays = [], [], {"low": self._range[0], "high": self._range[1]}
        for candidate in np.unique(self.committee_.candidate):
            own = np.flatnonzero(self.committee_.candidate == candidate)
            members, part = [self.committee_.members[i] for i in own], {"share": self.committee_.weight[own]}
            first, steps = members[0]
            if first is not None:
                part["theta"] = np.stack([network.theta.numpy() for network, _ in members])
                arrays |= prefixed(f"networks.{len(networks)}", part)
                networks.append({"unit": describe_unit(first.unit), "width": first.width})
            else:
                for k, (_, network) in enumerate(members):
                    part |= prefixed(str(k), {name: getattr(network, name) for name in _TREES})
                arrays |= prefixed(f"trees.{len(trees)}", part)
                trees.append({"kind": "averaged" if steps.averaged else "boosted", "networks": len(members)})
        classes = {"classes": plain_classes(self.classes_), "dtype": self.classes_.dtype.str}
        return {"networks": networks, "trees": trees, **classes}, arrays

    @classmethod
    def _restored(cls, facts: dict[str, Any], arrays: Arrays, attributes: dict[str, Any]) -> dict[str, Any]:
        parameters, classes = facts["parameters"], np.array(facts["classes"], dtype=facts["dtype"])
        if isinstance(parameters["class_weight"], list):
            parameters["class_weight"] = dict(parameters["class_weight"])
        parts: list[list[Member]] = []
        for i, fact in enumerate(facts["networks"]):
            unit, theta = restored_unit(fact["unit"]), torch.tensor(arrays[f"networks.{i}.theta"])
            parts.append([(ClassNetwork(unit, fact["width"], t), None) for t in theta])
        for i, fact in enumerate(facts["trees"]):
            kind = {"averaged": fact["kind"] == "averaged"}
            trees = [StepTrees(**part_of(f"trees.{i}.{k}", arrays), **kind) for k in range(fact["networks"])]
            parts.append([(None, network) for network in trees])
        shares = [arrays[f"{kind}.{i}.share"] for kind in ("networks", "trees") for i in range(len(facts[kind]))]
        committee = replace(Committee.of(parts, np.ones(len(parts))), weight=np.concatenate(shares))
        return {"classes_": classes, "committee_": committee, "_range": (arrays["low"], arrays["high"])}


def class_weights(class_weight: Any, classes: np.ndarray, index: np.ndarray, weight: Array) -> Array:
    """The factors of the rows' weights by `class_weight`.

    >>> class_weights("balanced", np.array(["a", "b"]), np.array([0, 0, 0, 1]), np.ones(4)).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    if class_weight is None:
        return np.ones(len(index))
    if isinstance(class_weight, str) and class_weight == "balanced":
        rows = np.bincount(index, weight, minlength=len(classes))
        balanced = rows.sum() / (np.count_nonzero(rows) * np.where(rows > 0, rows, 1.0))
        return balanced[index]
    if not isinstance(class_weight, Mapping):
        raise GatelabError(f"class_weight is {class_weight!r}; give 'balanced', a dict of classes and weights, or None")
    known = classes.tolist()
    by_class = np.ones(len(classes))
    for label, value in class_weight.items():
        if label not in known:
            raise GatelabError(f"class_weight has the key {label!r}; give classes of y, which are {known[:20]}")
        by_class[known.index(label)] = real_number(f"class_weight of {label!r}", value, least=0)
    return by_class[index]


def plain_classes(classes: np.ndarray) -> list[str | int | float | bool]:
    """Class labels as JSON values; others are refused."""
    labels = classes.tolist()
    if classes.dtype.kind in "Mm" or not all(isinstance(label, str | int | float | bool) for label in labels):
        raise GatelabError(
            f"the classes are {type(classes[0]).__name__} values, which a file of plain values cannot hold; give text, "
            "numbers or booleans as classes"
        )
    return labels
