"""The whole state of a training in one file: safetensors, written all or nothing, and what it belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.files import write_whole

NAME = "checkpoint.safetensors"
_KEY, _FORMAT = "gatelab.train", 1


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Tensors by name and plain values beside them; on the disk when the call returns."""
    # A copy of each: views of one memory cannot be stored as two, and a stacked parameter may be a view.
    kept = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    content = save(kept, metadata={_KEY: json.dumps({"format": _FORMAT, **facts})})

    def put(part: Path) -> None:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    return write_whole(path, put)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What was written, or None where there is no such file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
        facts = json.loads(text) if text else {}
    except (OSError, SafetensorError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise GatelabError(f"{path} cannot be read ({reason}); delete it to begin anew") from error
    if facts.get("format") != _FORMAT:
        raise GatelabError(f"{path} is no checkpoint of this version of gatelab; delete it to begin anew")
    return tensors, facts


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a training of something else."""
    if found["recipes"] != wanted["recipes"]:
        pairs = zip(found["recipes"], wanted["recipes"], strict=False)
        odd = sorted({k for a, b in pairs for k in a if a[k] != b.get(k)}) or ["seeds"]
        raise GatelabError(
            f"{path} holds a training of another recipe (it differs in {', '.join(odd)}); give another folder, or the"
            " recipe that it was begun with"
        )
    if found["data"] != wanted["data"]:
        raise GatelabError(f"{path} was begun with other data; give those again, or another folder")


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Momenta and the like by the number of their parameter."""
    state = optimiser.state_dict()["state"]
    return {
        f"optimiser.{i}.{key}": value
        for i, values in state.items()
        for key, value in values.items()
        if value is not None
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The momenta back where they were; torch puts them on the devices that it wants them on."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
