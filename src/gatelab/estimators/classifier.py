"""`GatedClassifier`: classes by networks of any unit under scikit-learn's conventions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from numbers import Real
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from gatelab import tensors
from gatelab.arrays import Array
from gatelab.data.checks import refuse_masked
from gatelab.errors import GatelabError
from gatelab.estimators.columns import TableColumns, read_table
from gatelab.estimators.committee import (
    STEPS,
    ClassCommittee,
    Election,
    MemberNetworks,
    MemberTrees,
    elect,
)
from gatelab.estimators.frames import (
    Frame,
    TableRows,
    checked_terms,
    encoded_rows,
    part_of,
    plain_facts,
    row_weights,
    seed_of,
    showing,
    units_of,
)
from gatelab.estimators.trees import KINDS, StepTrees
from gatelab.feedforward import AnyUnit
from gatelab.memory import check_device
from gatelab.solve.files import DAMAGED, damaged, described, restored_unit

UnitLike = str | AnyUnit | Callable[..., object]
KIND, _FORMAT = "GatedClassifier", 2
_GIVE = "give a file that GatedClassifier.save wrote"
_PLAIN = ("unit_", "width_", "ridge_", "temperature_", "validation_", "n_features_in_")
# Candidates that a search tries as a rule, for its progress.
_USUAL = 16


class GatedClassifier(ClassifierMixin, BaseEstimator):
    """Classification by one hidden layer of gated units beside a linear part, and by trees of step gates.

        log p(x) = log softmax( A x + a + D [ act(Gx + g) * (Ux + u) * ... ] )

    Small data go by damped Gauss-Newton steps, larger ones by Adam in single precision. Every candidate is fitted
    once for each fold of the rows, which is held out from it and says when it ends; unit, width, ridge and the weights
    of inputs are chosen by the log loss there. Trees of step gates, boosted on the log-likelihood and averaged, join
    them where that lowers it: for classes with steps. The folds' networks of the best candidates are averaged, of at
    most 500 rows those of the best of each kind: gated, the linear part alone, and both kinds of trees. A temperature
    makes the mean calibrated. Inputs are scaled inside. A data frame may have missing values and columns of categories.
    Inputs count no further beyond those seen than half their range. Equal rows count as one with the sum of their
    weights, and the order of rows does not matter. A row has one class: several outputs are not taken, fit a classifier
    for each.

    Parameters
    ----------
    unit : a unit's name, a `gl.Unit`, a function of tensors, "steps" for trees of step gates, or a list or tuple of
        these, among which validation chooses. Beside units, steps are tried where no width is given.
    width : the number of neurons; None lets validation choose, no neurons among them.
    ridge : the penalty on all weights, for inputs of unit variance and the mean log loss; None lets validation choose.
    members : the most gated networks that are averaged, each trained without one fold of the rows; networks of trees
        and linear ones for the same folds may join them. 1 and 2 are networks of all rows, of the best candidate.
    class_weight : None, "balanced" for classes that count alike, or a dict of classes and what their rows count.
    random_state : an int for results that repeat, a `RandomState`, or None.
    device : where torch computes, "cpu" or "cuda".
    time_budget : seconds after which no further candidate is tried and no further step made, or None.
    verbose : 1 prints what validation tries, and shows its progress.

    Attributes
    ----------
    classes_ : the classes, sorted; the columns of `predict_proba`.
    committee_ : the networks, functions of the scaled inputs, and those of trees, of the inputs; `frame_` holds the
        scaling, `columns_` the columns.
    unit_, width_, ridge_ : of the best candidate; of trees the unit is "boosted steps", "deeply boosted steps" or
        "averaged steps", and the width is how many they are.
    temperature_ : what the logarithms of the mean probabilities are divided by.
    validation_ : what was tried, a list of dicts with the log loss on rows held out;
        `pandas.DataFrame(model.validation_)` is a table.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

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

    classes_: np.ndarray
    committee_: ClassCommittee
    frame_: Frame
    columns_: TableColumns
    unit_: str
    width_: int
    ridge_: float
    temperature_: float
    n_features_in_: int
    validation_: list[dict[str, Any]]

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
        """Fit to X (rows, inputs) and the classes y (rows,). A fit that is interrupted leaves no trace."""
        check_device(self.device)
        # Trees of step gates have no width that could be given.
        listed = units_of(self.unit)
        gated = [unit for unit in listed if not (isinstance(unit, str) and unit == STEPS)]
        steps = len(gated) < len(listed) and (not gated or self.width is None)
        given = checked_terms(self, gated or (listed and ["swiglu"]))
        end = math.inf
        if self.time_budget is not None:
            end = monotonic() + float(self.time_budget)
        for value, what in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
            refuse_masked(value, what)
        # All is written into a copy and taken over at the end.
        model = copy(self)
        table, y = model._validated(X, y)
        classes, index = np.unique(y, return_inverse=True)
        weight = row_weights(sample_weight, len(index))
        weight = weight * class_weights(self.class_weight, classes, index, sample_weight)
        if not weight.max() > 0:
            raise GatelabError(
                "every sample_weight is zero, so there is no row to fit; give some rows a positive weight"
            )
        if len(np.unique(index[weight > 0])) < 2:
            raise GatelabError(
                "the rows that have a weight are all of one class of y; give rows of two classes or "
                "more: with one class there is nothing to learn"
            )
        target = np.eye(len(classes))[index]
        seed = seed_of(self.random_state)
        model.columns_, rows = encoded_rows(model, table, target, weight, seed)
        model.frame_ = Frame.of(rows)
        standard = TableRows(model.frame_.inputs(rows.x), rows.y, rows.weight)
        terms = Election(
            tuple(given.units),
            gated=bool(gated),
            steps=steps,
            width=given.width,
            ridge=given.ridge,
            members=self.members,
            seed=seed,
            device=self.device,
            end=end,
        )
        with showing(self.verbose, "choosing networks", _USUAL) as show:
            committee, tried = elect(standard, rows.x, terms, show)
        model.classes_, model.committee_, model.temperature_ = classes, committee, committee.temperature
        if tried:
            model.unit_, model.width_, model.ridge_ = tried[0].name, tried[0].width, tried[0].ridge
        else:
            first = committee.networks[0]
            model.unit_, model.width_, model.ridge_ = first.unit.name, first.width, float(given.ridge or 0.0)
        model.validation_ = [candidate.row() for candidate in tried]
        vars(self).clear()
        vars(self).update(vars(model))
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities (rows, classes)."""
        check_is_fitted(self, "committee_")
        refuse_masked(X, "X")
        return self._log_probability(read_table(self, X, reset=False))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes (rows, classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        log_p = self.predict_log_proba(X)
        return self.classes_[log_p.argmax(1)]

    def encoded_probabilities(self, table: Any) -> np.ndarray:
        """Probabilities (rows, classes) of a table whose columns are those of the fit in their order, by any name."""
        return np.exp(self._log_probability(table))

    def save(self, path: str | Path) -> Path:
        """Write the fitted model as safetensors: arrays and plain values, nothing that could be executed.

        A `RandomState` is saved as None. Units are kept by gate and factors: functions of your own are refused, and so
        are classes that are neither text nor numbers nor truth values.
        """
        check_is_fitted(self, "committee_")
        return write_classifier(self, path)

    @classmethod
    def load(cls, path: str | Path) -> GatedClassifier:
        """The model that was saved; its predictions are the same to the last bit."""
        return read_classifier(cls, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _log_probability(self, table: Any) -> np.ndarray:
        x = self.columns_.encode(table)
        return self.committee_.log_probability(self.frame_.inputs(x), x)

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """X as `TableColumns` takes it, and y; names are noted."""
        if y is None:
            raise GatelabError("GatedClassifier requires y to be passed, but the target y is None; give a class a row")
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


def class_weights(class_weight: Any, classes: np.ndarray, index: np.ndarray, sample_weight: Any) -> Array:
    """What `class_weight` multiplies the weight of each row by.

    >>> class_weights("balanced", np.array(["a", "b"]), np.array([0, 0, 0, 1]), None).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    if class_weight is None:
        return np.ones(len(index))
    if isinstance(class_weight, str) and class_weight == "balanced":
        rows = np.bincount(index, row_weights(sample_weight, len(index)), minlength=len(classes))
        balanced = rows.sum() / (np.count_nonzero(rows) * np.where(rows > 0, rows, 1.0))
        return balanced[index]
    if not isinstance(class_weight, Mapping):
        raise GatelabError(f"class_weight is {class_weight!r}; give 'balanced', a dict of classes and weights, or None")
    known = classes.tolist()
    weight = np.ones(len(classes))
    for label, value in class_weight.items():
        if label not in known:
            raise GatelabError(f"class_weight has the key {label!r}, which is no class of y: these are {known[:20]}")
        if not (isinstance(value, Real) and 0 <= float(value) < np.inf):
            raise GatelabError(f"class_weight of {label!r} is {value!r}; give a finite number, 0 or more")
        weight[known.index(label)] = float(value)
    return weight[index]


def plain_classes(classes: np.ndarray) -> list[str | int | float | bool]:
    """Class labels as JSON has them; others are refused."""
    labels = classes.tolist()
    if classes.dtype.kind in "Mm" or not all(isinstance(label, str | int | float | bool) for label in labels):
        raise GatelabError(
            f"the classes are {type(classes[0]).__name__} values, which a file of plain values cannot hold; give text, "
            "whole numbers, numbers or truth values as classes"
        )
    return labels


def write_classifier(model: GatedClassifier, path: str | Path) -> Path:
    """Save a fitted model."""
    facts = plain_facts(model, _PLAIN)
    parameters = facts["parameters"]
    if isinstance(parameters["class_weight"], Mapping):
        weights = parameters["class_weight"].items()
        parameters["class_weight"] = [[k.item() if isinstance(k, np.generic) else k, float(v)] for k, v in weights]
    networks, trees = model.committee_.networks, model.committee_.trees
    facts |= {
        "format": _FORMAT,
        "networks": [{"unit": described(n.unit), "width": n.width} for n in networks],
        "trees": [{"kind": part.kind, "networks": len(part.trees)} for part in trees],
        "classes": plain_classes(model.classes_),
        "dtype": model.classes_.dtype.str,
    }
    arrays = {f"frame.{name}": value for name, value in model.frame_.arrays().items()}
    arrays |= {"low": model.committee_.low, "high": model.committee_.high}
    for i, part in enumerate(networks):
        arrays |= {f"networks.{i}.theta": part.theta.numpy(), f"networks.{i}.share": part.share.numpy()}
    for i, part in enumerate(trees):
        arrays[f"trees.{i}.share"] = part.share
        for k, network in enumerate(part.trees):
            arrays |= {f"trees.{i}.{k}.{name}": value for name, value in network.arrays().items()}
    return tensors.write_packed(path, tensors.pack(arrays, KIND, facts))


def read_classifier(kind: type[GatedClassifier], path: str | Path) -> GatedClassifier:
    """The model that was saved."""
    holds = tensors.kind_of(path, _GIVE)
    if holds != KIND:
        raise GatelabError(f"{path} holds {holds or 'arrays'}, no GatedClassifier; {_GIVE}")
    content = tensors.read(path, _GIVE)
    tensors.check_format(path, content.facts, _FORMAT)
    tensors.check_finite(path, content.arrays, "the file is damaged: save the model again")
    try:
        parameters, attributes = _restored(content.facts, content.arrays)
        model = kind(**parameters)
    except DAMAGED as error:
        raise damaged(path, error) from error
    vars(model).update(attributes)
    return model


def _restored(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters = facts["parameters"]
    units = tuple(u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"])
    parameters["unit"] = units if facts["several"] else units[0]
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    frame = Frame.restored(part_of("frame.", arrays))
    attributes = {name: facts["attributes"][name] for name in _PLAIN}
    classes = np.array(facts["classes"], dtype=facts["dtype"])
    networks = tuple(
        _restored_networks(part, arrays, i, frame.directions, len(classes)) for i, part in enumerate(facts["networks"])
    )
    trees = tuple(_restored_trees(part, arrays, i, len(classes)) for i, part in enumerate(facts["trees"]))
    attributes |= {
        "committee_": ClassCommittee(
            networks, trees, attributes["temperature_"], len(classes), arrays["low"], arrays["high"]
        ),
        "frame_": frame,
        "columns_": TableColumns.restored(facts["columns"]),
        "classes_": classes,
    }
    if facts["feature_names"]:
        attributes["feature_names_in_"] = np.array(facts["feature_names"], dtype=object)
    return parameters, attributes


def _restored_networks(
    facts: dict[str, Any], arrays: dict[str, np.ndarray], number: int, directions: int, classes: int
) -> MemberNetworks:
    unit, width = restored_unit(facts["unit"]), facts["width"]
    theta, share = (torch.tensor(arrays[f"networks.{number}.{name}"]) for name in ("theta", "share"))
    logits = 1 if classes == 2 else classes
    parameters = (unit.factors + 1) * width * (directions + 1) + logits * (width + directions + 1)
    if theta.shape != (len(share), parameters):
        raise ValueError(f"networks have the shape {tuple(theta.shape)} and not {(len(share), parameters)}")
    return MemberNetworks(unit, width, theta, share)


def _restored_trees(facts: dict[str, Any], arrays: dict[str, np.ndarray], number: int, classes: int) -> MemberTrees:
    kind, share = facts["kind"], arrays[f"trees.{number}.share"]
    outputs = 1 if classes == 2 and kind != "averaged" else classes
    trees = tuple(StepTrees(**part_of(f"trees.{number}.{k}.", arrays)) for k in range(facts["networks"]))
    nodes = [len(network.columns) for network in trees]
    shapes = [network.tables.shape for network in trees]
    if kind not in KINDS or len(share) != len(trees) or shapes != [(count, outputs) for count in nodes]:
        raise ValueError(f"trees are {kind!r} with {len(share)} shares and tables of the shapes {shapes}")
    return MemberTrees(kind, trees, share)
