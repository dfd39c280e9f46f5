"""A model made smaller layer after layer: rows of every block in the smaller model, and a smaller block for them.

Each layer gets the inputs that it will have in the smaller model. The other methods ask its block for the outputs of
the old one there; ours for the state that the given model has after the layer, so that what earlier layers lost is made
good where it can be, and measures errors as the loss feels them (`felt_directions`).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.anatomy.refits import (
    DAMPING,
    EPOCHS,
    RATE,
    BlockModule,
    BlockTargets,
    other_block,
    smaller_block,
    surgeon_costs,
)
from gatelab.anatomy.streams import Stream, felt_directions
from gatelab.display import Compact, ProgressLike, reporting
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.files import write_whole
from gatelab.models.layouts import Block, Layer, layers_of
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_packed

HELD_OUT = 8  # every which window of the calibration part decides in ours and in a distillation, and is not fitted
FELT_TOKENS, FELT_DAMPING = 4096, 1e-2  # which say what the loss feels; a share of the mean that is added to all of it


@dataclass(frozen=True)
class ShrunkLayer(Compact):
    """What became of a layer.

    Attributes:
        layer: its name.
        width: neurons now.
        before: neurons there were.
        error: share of the block's output that is lost on every eighth calibration window, |t - y|^2 / |t|^2: nothing
            is fitted to these but by methods other than ours that no distillation follows.
        dropped: the same with the neurons left out and nothing refitted; NaN where the unit is another one.
        seconds: how long it took.
    """

    layer: str
    width: int
    before: int
    error: float
    dropped: float
    seconds: float


def shrink_layers(
    dense: Any,
    small: Any,
    calibration: Tensor,
    held_out: Tensor,
    widths: Sequence[int],
    *,
    method: str,
    other: Unit | None,
    causal: bool,
    decided: bool,
    store: str | Path | None,
    progress: ProgressLike,
) -> list[ShrunkLayer]:
    """Make the blocks of `small` smaller, in place, and say what became of each.

    `held_out` marks windows that decide; where nothing is decided, here or in a distillation, they are fitted too.
    """
    old_layers, new_layers = layers_of(dense), layers_of(small)
    if method == "flap":
        give_biases(small, new_layers)
    settings = (tuple(widths), f"{method} {other} {causal} {decided}", EPOCHS, RATE, HELD_OUT, DAMPING, FELT_TOKENS)
    layer_store = LayerStore(store, plan_of(dense, calibration, (*settings, FELT_DAMPING)))
    stored = sum(layer_store.path(layer.name) is not None for layer in old_layers)
    stream = Stream.begin(small, calibration)
    ideal = Stream.begin(dense, calibration) if method == "ours" else None
    felt = None
    if method == "ours" and causal and stored < len(old_layers):
        felt = felt_directions(dense, calibration[~held_out][: felt_windows(calibration)])
    results: list[ShrunkLayer] = []
    with reporting(progress, "shrinking", stored=stored) as report:
        for i, (old, new, width) in enumerate(zip(old_layers, new_layers, widths, strict=True)):
            block = old.read()
            known = layer_store.read(block, other)
            if known is None:
                began = time.monotonic()
                rows = block_rows(stream, ideal, old, new, held_out, decided)
                smaller, error, dropped = shrink_block(
                    block, *rows, width, method, other, None if felt is None else felt[i]
                )
                layer = ShrunkLayer(old.name, smaller.width, block.width, error, dropped, time.monotonic() - began)
                layer_store.write(smaller, vars(layer))
            else:
                smaller, layer = known[0], ShrunkLayer(**known[1])
            if other is None:
                new.write(smaller)
            else:
                new.put_map(BlockModule(smaller))
            stream.advance(new)
            if ideal is not None:
                ideal.advance(old)
            results.append(layer)
            if report:
                report(len(results), len(old_layers))
    return results


def shrink_block(
    block: Block, fitted: BlockTargets, others: BlockTargets, width: int, method: str, other: Unit | None,
    felt: Tensor | None,
) -> tuple[Block, float, float]:  # fmt: skip
    """A smaller block, and the shares of the output that are lost with it and where neurons only are left out.

    With what the loss feels of the output at hand, errors are measured as it feels them while the block is fitted.
    """
    frame = None if felt is None else felt_frame(felt, block)
    inside, to_fit, to_decide = block, fitted, others
    if frame is not None:
        inside = replace(block, W2=frame[0] @ block.W2)
        to_fit, to_decide = (BlockTargets(rows.inputs, rows.targets @ frame[0]) for rows in (fitted, others))
    if other is None:
        smaller, dropped = smaller_block(inside, to_fit, to_decide, width, method)
    else:
        # As many weights as so many neurons of the old unit have.
        weights = width / block.width * block.parameters
        width = max(1, round(weights / ((other.factors + 2) * block.W1.shape[1])))
        smaller, dropped = other_block(inside, to_fit, to_decide, width, other), math.nan
    if frame is not None:
        smaller = replace(smaller, W2=frame[1] @ smaller.W2)
    moved = BlockTargets(others.inputs, others.targets - (smaller.b2 - block.b2))  # FLAP's bias
    return smaller, finite(f"the error of {block.layer}", moved.error(smaller) / others.size()), dropped


def finite(name: str, value: float) -> float:
    """The value; an error where weights that are no numbers came of it."""
    if not math.isfinite(value):
        raise GatelabError(
            f"{name} is {value}; nothing comes of such weights: give a larger keep, more text or float32"
        )
    return value


def held_out_windows(count: int) -> Tensor:
    """Which of the calibration windows decide and are not fitted: every eighth, or the last of fewer."""
    if count < 2:
        raise GatelabError("the calibration part has 1 window; two at least are needed, give a longer text")
    held_out = torch.arange(count) % HELD_OUT == HELD_OUT - 1
    held_out[-1] = held_out[-1] or count < HELD_OUT
    return held_out


def block_rows(
    stream: Stream, ideal: Stream | None, old: Layer, new: Layer, held_out: Tensor, decided: bool
) -> tuple[BlockTargets, BlockTargets]:
    """Rows to fit and rows to decide by: inputs in the smaller model, and what its block should give there.

    Where the given model's own stream is at hand, that is what leads to the state that the given model has after the
    layer, or what its block gives there where outputs are not added as they are. Other methods have no such stream:
    theirs is the output of the old block on the same inputs. Where nothing is decided all rows are to be fitted.
    """
    bias = old.read().b2
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
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


def felt_windows(calibration: Tensor) -> int:
    """So many windows say what the loss feels."""
    return max(1, FELT_TOKENS // calibration.shape[1])


def felt_frame(felt: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """R and its inverse: with y' = R y errors of one length of a block's output cost the loss the same.

    R is the root of how the loss feels the output, its mean set to one and damped.
    """
    metric = felt / felt.diagonal().mean()
    metric.diagonal().add_(FELT_DAMPING)
    values, vectors = torch.linalg.eigh(metric)
    root = (vectors * values.sqrt()) @ vectors.T
    inverse = (vectors / values.sqrt()) @ vectors.T
    return root.to(block.W2), inverse.to(block.W2)


def neuron_costs(
    model: Any, calibration: Tensor, causal: bool, fewest: float, progress: ProgressLike
) -> Iterator[list[float]]:
    """For every block, what its neurons cost as they go one after another, until the share `fewest` is left."""
    layers = layers_of(model)
    felt = felt_directions(model, calibration[: felt_windows(calibration)]) if causal else None
    stream = Stream.begin(model, calibration)
    with reporting(progress, "balancing") as report:
        for i, layer in enumerate(layers):
            block = layer.read()
            passages = list(stream.through(layer))
            inputs, outputs = torch.cat([p.inputs for p in passages]), torch.cat([p.outputs for p in passages])
            rows = BlockTargets(inputs, outputs - block.b2)
            if felt is not None:
                R, _ = felt_frame(felt[i], block)
                rows, inside = BlockTargets(inputs, rows.targets @ R), replace(block, W2=R @ block.W2)
                scale = float(felt[i].diagonal().mean()) / 2
            else:
                states, inside = outputs + torch.cat([p.residual for p in passages]), block
                scale = 1 / float(states.double().square().sum(1).mean())
            count = block.width - max(1, round(fewest * block.width))
            _, costs = surgeon_costs(inside, rows.moments(block), count)
            yield [scale * cost for cost in costs]
            stream.advance(layer)
            if report:
                report(i + 1, len(layers))


def give_biases(model: Any, layers: Sequence[Layer]) -> None:
    """Give the blocks of a Llama biases of zero, where its configuration can say so."""
    if getattr(model.config, "mlp_bias", None) is not False:
        return
    for layer in layers:
        for name in layer.linear_names():
            linear = layer.module.get_submodule(name)
            linear.bias = nn.Parameter(linear.weight.new_zeros(linear.weight.shape[0]))
    model.config.mlp_bias = True


# ---- layers that are done


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
