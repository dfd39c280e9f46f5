"""Smaller models on disk: folders of Transformers that come whole or not at all, and layers that are done."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.files import write_whole
from gatelab.models.layouts import Block
from gatelab.models.pretrained import quiet_transformers
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_packed


def save_folder(model: Any, tokenizer: Any, facts: Mapping[str, Any], target: Path) -> Path:
    """A folder of Transformers that appears under its name when it is complete."""
    try:
        taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise GatelabError(f"{target} cannot be a folder ({error.strerror}); give another name") from None
    if taken:
        raise GatelabError(f"{target} is there already; give a folder that does not exist, or an empty one")
    if not target.name or "\0" in target.name:
        raise GatelabError(f"the folder is {str(target)!r}; give the name of one")
    part = target.with_name(f".{target.name[:64]}.{uuid4().hex}.part")
    try:
        part.mkdir(parents=True)
        with quiet_transformers():
            model.save_pretrained(str(part))
            if tokenizer is not None:
                tokenizer.save_pretrained(str(part))
        write_whole(part / "gatelab.json", json.dumps(facts, indent=1))
        if target.is_dir():
            target.rmdir()
        part.replace(target)
    except Exception as error:
        # A disk that fills ends in an error of safetensors' own.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        reason = getattr(error, "strerror", None) or error
        raise GatelabError(f"{target} cannot be written ({reason}), and nothing was; free some space") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def plan_of(model: nn.Module, calibration: Tensor, settings: Sequence[Any]) -> str:
    """A hash of all that decides the smaller blocks."""
    digest = hashlib.sha256(repr((tuple(settings), tuple(calibration.shape))).encode())
    digest.update(calibration.cpu().numpy().tobytes())
    config = getattr(model, "config", None)
    if config is not None:
        digest.update(config.to_json_string().encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


class LayerStore:
    """A folder with the blocks that are done, a file each; without a folder nothing is kept."""

    def __init__(self, folder: str | Path | None, plan: str) -> None:
        """The store of a plan; another plan's is refused."""
        self.folder = None if folder is None else Path(folder).expanduser()
        if self.folder is None:
            return
        note = self.folder / "plan.json"
        if not note.exists():
            write_whole(note, json.dumps({"plan": plan}))
        try:
            known = json.loads(note.read_text())["plan"]
        except (ValueError, KeyError, TypeError):
            known = None
        if known != plan:
            raise GatelabError(
                f"{folder} holds layers of another model, text, keep or method; give another folder, or remove it"
            )

    def path(self, layer: str) -> Path | None:
        """The file of a layer that is done; None where it is not."""
        path = None if self.folder is None else self.folder / f"{layer}.safetensors"
        return path if path is not None and path.exists() else None

    def read(self, block: Block, other: Unit | None) -> tuple[Block, dict[str, Any]] | None:
        """The smaller block in the place of a given one and what is known of it; None where it is not done."""
        path = self.path(block.layer)
        if path is None:
            return None
        content = read_packed(path, "remove it, and the layer is computed again", "pt")
        arrays = {name: value.to(block.W1) for name, value in content.arrays.items()}
        count, activation = len(block.factors), block.activation
        if other is not None:
            count, activation = other.factors, other.gate
        factors = tuple((arrays[f"U{i}"], arrays[f"u{i}"]) for i in range(count))
        maps = {name: arrays[name] for name in ("W1", "b1", "W2", "b2")}
        return Block(block.layer, **maps, activation=activation, factors=factors), content.facts

    def write(self, block: Block, facts: Mapping[str, Any]) -> None:
        """Keep a layer."""
        if self.folder is None:
            return
        arrays = {"W1": block.W1, "b1": block.b1, "W2": block.W2, "b2": block.b2}
        for i, (U, u) in enumerate(block.factors):
            arrays |= {f"U{i}": U, f"u{i}": u}
        write_packed(self.folder / f"{block.layer}.safetensors", pack(arrays, "ShrunkLayer", dict(facts)))
