"""The whole state of a training in one file: safetensors, written all or nothing, and what it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_content

NAME = "checkpoint.safetensors"
_KIND, _FORMAT = "train", 2


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Tensors by name and plain values beside them; on the disk when the call returns."""
    return write_packed(path, pack(tensors, _KIND, {"format": _FORMAT, **facts}))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What was written, or None where there is no such file."""
    if not path.exists():
        return None
    content = read_content(path, "delete it to begin anew", "pt")
    if content.kind != _KIND or content.facts.get("format") != _FORMAT:
        raise GatelabError(f"{path} is no checkpoint of this version of gatelab; delete it to begin anew")
    return content.arrays, content.facts


def check_same(path: Path, facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a training of something else: what a file says of itself is not what is wanted."""
    if facts["recipes"] != wanted["recipes"]:
        pairs = zip(facts["recipes"], wanted["recipes"], strict=False)
        odd = sorted({k for a, b in pairs for k in a if a[k] != b.get(k)}) or ["seeds"]
        raise GatelabError(
            f"{path} holds a training of another recipe (it differs in {', '.join(odd)}); give another folder, or the"
            " recipe that it was begun with"
        )
    if facts["data"] != wanted["data"]:
        raise GatelabError(
            f"{path} was begun with other data, with other parts of them for training and testing, or by an older "
            "gatelab, which did not note the parts; give those again, another folder, or delete it"
        )


def optimiser_tensors(optimisers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Momenta and the like by the number of their optimiser and of their parameter."""
    return {
        f"optimiser.{k}.{i}.{key}": value
        for k, optimiser in enumerate(optimisers)
        for i, values in optimiser.state_dict()["state"].items()
        for key, value in values.items()
        if value is not None
    }


def restore_optimisers(optimisers: Sequence[torch.optim.Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """The momenta back where they were; torch puts them on the devices that it wants them on."""
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimisers]
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, k, number, key = name.split(".", 3)
            states[int(k)].setdefault(int(number), {})[key] = value
    for optimiser, state in zip(optimisers, states, strict=True):
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
