"""Fitted models as files: arrays with plain values beside them, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gatelab import tensors
from gatelab.errors import GatelabError
from gatelab.estimators.frame import Frame
from gatelab.solve import Status
from gatelab.solve.files import DAMAGED, damaged, described, restored_network, restored_unit

if TYPE_CHECKING:
    from gatelab.estimators.regressor import GatedRegressor

KIND, _FORMAT = "GatedRegressor", 2
_GIVE = "give a file that GatedRegressor.save wrote"
_PLAIN = ("unit_", "width_", "ridge_", "gates_", "n_iter_", "validation_", "n_features_in_", "_vector")


def write(model: GatedRegressor, path: str | Path) -> Path:
    network = model.network_
    parameters = model.get_params(deep=False)
    several = isinstance(model.unit, list | tuple)
    units = model.unit if isinstance(model.unit, list | tuple) else [model.unit]
    parameters["unit"] = [described(u) for u in units]
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    facts = {
        "format": _FORMAT,
        "several": several,
        "parameters": parameters,
        "network": described(network.unit),
        "status": model.status_.value,
        "attributes": {name: getattr(model, name) for name in _PLAIN},
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
    }
    arrays = {f"network.{name}": value.numpy() for name, value in network.state_dict().items()}
    arrays |= {f"frame.{name}": value for name, value in model.frame_.arrays().items()}
    return tensors.write_packed(path, tensors.pack(arrays, KIND, facts))


def read(kind: type[GatedRegressor], path: str | Path) -> GatedRegressor:
    """The model that was saved."""
    holds = tensors.kind_of(path, _GIVE)
    if holds == "Fit":
        raise GatelabError(f"{path} holds a Fit, no GatedRegressor; gl.load(path) reads it, and predicts as well")
    if holds != KIND:
        raise GatelabError(f"{path} holds arrays but no GatedRegressor; {_GIVE}")
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
    units = [u if isinstance(u, str) else restored_unit(u) for u in parameters["unit"]]
    parameters["unit"] = tuple(units) if facts["several"] else units[0]
    frame = Frame(**{n.removeprefix("frame."): a for n, a in arrays.items() if n.startswith("frame.")})
    attributes = {name: facts["attributes"][name] for name in _PLAIN}
    state = {n.removeprefix("network."): torch.tensor(a) for n, a in arrays.items() if n.startswith("network.")}
    unit = restored_unit(facts["network"])
    network = restored_network(unit, attributes["width_"], frame.directions, len(frame.y_mean), state)
    if frame.x_map.shape[0] != attributes["n_features_in_"]:
        raise ValueError(f"{frame.x_map.shape[0]} inputs are scaled but {attributes['n_features_in_']} declared")
    attributes |= {"network_": network, "frame_": frame, "status_": Status(facts["status"])}
    if facts["feature_names"]:
        attributes["feature_names_in_"] = np.array(facts["feature_names"], dtype=object)
    return parameters, attributes
