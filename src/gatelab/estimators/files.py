"""Fitted models as files: safetensors with plain values in JSON beside the arrays, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gatelab.errors import GatelabError
from gatelab.estimators.frame import Frame
from gatelab.files import write_whole
from gatelab.solve import Status
from gatelab.units import FunctionUnit, Network, Unit
from gatelab.units import unit as as_unit
from gatelab.units.describe import describe, restore

if TYPE_CHECKING:
    from gatelab.estimators.regressor import GatedRegressor

_KEY, _FORMAT = "gatelab.GatedRegressor", 2
_PLAIN = ("unit_", "width_", "ridge_", "gates_", "n_iter_", "validation_", "n_features_in_", "_vector")


def write(model: GatedRegressor, path: str | Path) -> Path:
    network = model.network_
    parameters = model.get_params(deep=False)
    several = isinstance(model.unit, list | tuple)
    given = model.unit if isinstance(model.unit, list | tuple) else [model.unit]
    parameters["unit"] = [_described(u) for u in given]
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    content = {
        "format": _FORMAT,
        "several": several,
        "parameters": parameters,
        "network": _described(network.unit),
        "status": model.status_.value,
        "attributes": {name: getattr(model, name) for name in _PLAIN},
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
    }
    arrays = {f"network.{name}": value.numpy() for name, value in network.state_dict().items()}
    arrays |= {f"frame.{name}": value for name, value in model.frame_.arrays().items()}
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    return write_whole(path, save(arrays, metadata={_KEY: json.dumps(content, default=_plain)}))


def read(kind: type[GatedRegressor], path: str | Path) -> GatedRegressor:
    """The model that was saved."""
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise GatelabError(f"{path} cannot be read ({reason}); give a file that GatedRegressor.save wrote") from error
    if text is None:
        raise GatelabError(f"{path} holds arrays but no GatedRegressor; give a file that GatedRegressor.save wrote")
    try:
        parameters, attributes = _restored(json.loads(text), arrays)
        model = kind(**parameters)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise GatelabError(
            f"{path} is damaged or was written by another version of gatelab ({error!r}); save the model again"
        ) from error
    vars(model).update(attributes)
    return model


def _restored(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, not {_FORMAT}")
    parameters = content["parameters"]
    units = [u if isinstance(u, str) else _unit(u) for u in parameters["unit"]]
    parameters["unit"] = tuple(units) if content["several"] else units[0]
    frame = Frame(**{n.removeprefix("frame."): a for n, a in arrays.items() if n.startswith("frame.")})
    attributes = {name: content["attributes"][name] for name in _PLAIN}
    d_out = len(frame.y_mean)
    network = Network(_unit(content["network"]), attributes["width_"], frame.directions, d_out)
    network.load_state_dict(
        {n.removeprefix("network."): torch.tensor(a) for n, a in arrays.items() if n.startswith("network.")}
    )
    if frame.x_map.shape[0] != attributes["n_features_in_"]:
        raise ValueError(f"{frame.x_map.shape[0]} inputs are scaled but {attributes['n_features_in_']} declared")
    attributes |= {"network_": network, "frame_": frame, "status_": Status(content["status"])}
    if content["feature_names"]:
        attributes["feature_names_in_"] = np.array(content["feature_names"], dtype=object)
    return parameters, attributes


def _described(unit: Any) -> str | dict[str, Any]:
    """A name as it is; any other unit by gate and factors, since a file must not name code to be imported."""
    if isinstance(unit, str):
        return unit
    chosen = as_unit(unit)
    if not isinstance(chosen, Unit) or isinstance(chosen, FunctionUnit):
        raise GatelabError(
            f"the unit {chosen.name!r} is a function of your own, which a file of arrays cannot hold; "
            "save model.network_.state_dict() yourself, or use a gate that gatelab knows"
        )
    return describe(chosen)


def _unit(description: dict[str, Any]) -> Unit:
    if "import" in description:
        raise ValueError("it asks for code to be imported")
    unit = restore(description)
    assert isinstance(unit, Unit)
    return unit


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise GatelabError(f"{value!r} cannot be saved; give parameters that are numbers or text")
