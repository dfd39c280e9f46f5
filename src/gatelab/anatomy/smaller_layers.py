"""Shrink a model layer by layer: the rows of every block in the smaller model, and a smaller block for them.

Each layer is fitted to the inputs that it has in the smaller model. The targets of other methods are the outputs of the
old block on these inputs. The target of ours is the hidden state of the given model after the layer, which corrects
errors of earlier layers, and errors are weighted by their effect on the loss (`felt_directions`).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.anatomy.refits import DAMPING, EPOCHS, RATE, BlockTargets, smaller_block
from gatelab.anatomy.streams import Stream, felt_directions
from gatelab.display import Compact, ProgressLike, reporting
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.models.layouts import Block, Layer, layers_of
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_packed

HELD_OUT = 8  # every eighth calibration window is held out in ours and in a distillation
FELT_TOKENS, FELT_DAMPING = 4096, 1e-2  # tokens for `felt_directions`, and damping relative to the mean


@dataclass(frozen=True)
class ShrunkLayer(Compact):
    """The result for one layer.

    Attributes:
        layer: its name.
        width: the new number of neurons.
        before: the old number of neurons.
        error: the relative error |t - y|^2 / |t|^2 of the block's output on every eighth calibration window. These
            are held out, except for published methods without distillation.
        seconds: the time of this layer.
    """

    layer: str
    width: int
    before: int
    error: float
    seconds: float


def shrink_layers(
    dense: Any,
    small: Any,
    calibration: Tensor,
    held_out: Tensor,
    width: int,
    *,
    method: str,
    causal: bool,
    decided: bool,
    store: str | Path | None,
    progress: ProgressLike,
) -> list[ShrunkLayer]:
    """Shrink the blocks of `small` in place; windows marked as held out are fitted too unless `decided`."""
    old_layers, new_layers = layers_of(dense), layers_of(small)
    if method == "flap":
        give_biases(small, new_layers)
    settings = (width, method, causal, decided, EPOCHS, RATE, HELD_OUT, DAMPING, FELT_TOKENS)
    files = layer_files(store, old_layers, plan_of(dense, calibration, (*settings, FELT_DAMPING)))
    stored = sum(file is not None and file.exists() for file in files)
    stream = Stream.begin(small, calibration)
    ideal = Stream.begin(dense, calibration) if method == "ours" else None
    felt: list[Tensor | None] = [None] * len(old_layers)
    if method == "ours" and causal and stored < len(old_layers):
        felt[:] = felt_directions(dense, calibration[~held_out][: max(1, FELT_TOKENS // calibration.shape[1])])
    results: list[ShrunkLayer] = []
    with reporting(progress, "shrinking", stored=stored) as report:
        for i, (old, new, file) in enumerate(zip(old_layers, new_layers, files, strict=True)):
            block = old.read()
            if file is not None and file.exists():
                smaller, layer = read_layer(file, block)
            else:
                began = time.monotonic()
                rows = block_rows(stream, ideal, old, new, held_out, decided)
                smaller, error = shrink_block(block, *rows, width, method, felt[i])
                layer = ShrunkLayer(old.name, smaller.width, block.width, error, time.monotonic() - began)
                if file is not None:
                    write_layer(file, smaller, layer)
            new.write(smaller)
            stream.advance(new)
            if ideal is not None:
                ideal.advance(old)
            results.append(layer)
            if report:
                report(len(results), len(old_layers))
    return results


def shrink_block(
    block: Block, fitted: BlockTargets, others: BlockTargets, width: int, method: str, felt: Tensor | None
) -> tuple[Block, float]:
    """A smaller block and its relative error; with `felt`, the fit weights errors by their effect on the loss."""
    if felt is None:
        smaller = smaller_block(block, fitted, others, width, method)
    else:
        R, inverse = felt_frame(felt, block)
        to_fit, to_decide = (BlockTargets(rows.inputs, rows.targets @ R) for rows in (fitted, others))
        smaller = smaller_block(replace(block, W2=R @ block.W2), to_fit, to_decide, width, method)
        smaller = replace(smaller, W2=inverse @ smaller.W2)
    moved = BlockTargets(others.inputs, others.targets - (smaller.b2 - block.b2))  # FLAP's bias
    return smaller, finite(f"the error of {block.layer}", moved.error(smaller) / others.size())


def finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise GatelabError(f"{name} is {value}; give a larger keep, more text or float32")
    return value


def held_out_windows(count: int) -> Tensor:
    """A mask of the held-out calibration windows: every eighth, or the last one of fewer."""
    if count < 2:
        raise GatelabError("the calibration part has 1 window; two at least are needed, give a longer text")
    held_out = torch.arange(count) % HELD_OUT == HELD_OUT - 1
    held_out[-1] = held_out[-1] or count < HELD_OUT
    return held_out


def block_rows(
    stream: Stream, ideal: Stream | None, old: Layer, new: Layer, held_out: Tensor, decided: bool
) -> tuple[BlockTargets, BlockTargets]:
    """Training and held-out rows of a block in the smaller model; unless `decided`, all rows are for training.

    Targets lead to the given model's hidden state after the layer, or, without `ideal`, are the old block's outputs.
    """
    bias = old.read().b2
    inputs, targets = [], []
    wanted = None if ideal is None else ideal.through(old)
    for passage in stream.through(new):
        target = passage.outputs
        if wanted is not None:
            given = next(wanted)
            target = given.outputs + given.residual - passage.residual
        inputs.append(passage.inputs)
        targets.append(target - bias)
    x, t = torch.cat(inputs), torch.cat(targets)
    mask = held_out.repeat_interleave(len(x) // len(held_out)).to(x.device)
    fitted = BlockTargets(x[~mask], t[~mask]) if decided else BlockTargets(x, t)
    return fitted, BlockTargets(x[mask], t[mask])


def felt_frame(felt: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The root R of the matrix of `felt_directions`, scaled to mean one and damped, and its inverse."""
    metric = felt / felt.diagonal().mean()
    metric.diagonal().add_(FELT_DAMPING)
    values, vectors = torch.linalg.eigh(metric)
    root = (vectors * values.sqrt()) @ vectors.T
    inverse = (vectors / values.sqrt()) @ vectors.T
    return root.to(block.W2), inverse.to(block.W2)


def give_biases(model: Any, layers: Sequence[Layer]) -> None:
    """Add zero biases to the blocks of a Llama if its configuration allows it."""
    if getattr(model.config, "mlp_bias", None) is not False:
        return
    for layer in layers:
        for name in layer.linear_names():
            linear = layer.module.get_submodule(name)
            linear.bias = nn.Parameter(linear.weight.new_zeros(linear.weight.shape[0]))
    model.config.mlp_bias = True


def plan_of(model: nn.Module, calibration: Tensor, settings: Sequence[Any]) -> str:
    """A hash of everything that determines the smaller blocks."""
    digest = hashlib.sha256(repr((tuple(settings), tuple(calibration.shape))).encode())
    digest.update(calibration.cpu().numpy().tobytes())
    config = getattr(model, "config", None)
    if config is not None:
        digest.update(config.to_json_string().encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def layer_files(folder: str | Path | None, layers: Sequence[Layer], plan: str) -> list[Path | None]:
    """The files for the finished layers in a store of this plan; None for each layer without a store."""
    if folder is None:
        return [None] * len(layers)
    place = Path(folder).expanduser()
    note = place / "plan.json"
    if not note.exists():
        write_whole(note, json.dumps({"plan": plan}))
    try:
        known = json.loads(note.read_text())["plan"]
    except (ValueError, KeyError, TypeError):
        known = None
    if known != plan:
        raise GatelabError(f"{folder} holds layers of another model, text, keep or method; give another folder")
    return [place / f"{layer.name}.safetensors" for layer in layers]


def map_names(factors: int) -> list[tuple[str, str]]:
    """The names of weights and biases in a file, in the order of `Block.maps`."""
    return [("W1", "b1"), *((f"U{i}", f"u{i}") for i in range(factors)), ("W2", "b2")]


def read_layer(path: Path, block: Block) -> tuple[Block, ShrunkLayer]:
    """The smaller block that replaces a given one, and its result."""
    content = read_packed(path, "remove it, and the layer is computed again", "pt")
    arrays = {name: value.to(block.W1) for name, value in content.arrays.items()}
    maps = [(arrays[W], arrays[b]) for W, b in map_names(len(block.factors))]
    return block.with_maps(maps), ShrunkLayer(**content.facts)


def write_layer(path: Path, block: Block, layer: ShrunkLayer) -> None:
    arrays: dict[str, Tensor] = {}
    for names, tensors in zip(map_names(len(block.factors)), block.maps, strict=True):
        arrays |= zip(names, tensors, strict=True)
    write_packed(path, pack(arrays, "ShrunkLayer", vars(layer)))
