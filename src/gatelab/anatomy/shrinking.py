"""`shrink`: a smaller model in the place of a given one, layer after layer on its own inputs, and what that costs.

    small = gl.shrink("smollm2", keep=0.8, text="fineweb-edu")
    small.table()                      by layer: width, error, seconds
    small.before, small.after          log perplexity on windows that nothing was fitted to
    small.save("smaller")              a folder that plain Transformers loads

Each layer gets the inputs that it will have in the smaller model. The other methods ask its block for the outputs of
the old one there; ours for the state that the given model has after the layer, so that what earlier layers lost is made
good where it can be, and measures errors as the loss feels them (`felt_directions`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.distillation import Distillation, Distilled, last_states, own_windows
from gatelab.anatomy.distillation import distil as distilled
from gatelab.anatomy.orders import ORDERS, moments, surgeon_costs
from gatelab.anatomy.refits import BlockTargets, another_unit, joint, last_map, last_map_by_held_out
from gatelab.anatomy.streams import Stream, check_order, felt_directions
from gatelab.anatomy.texts import (
    Parts,
    check_apart,
    check_reads,
    check_tokens,
    evaluating,
    is_language_model,
    log_perplexity,
    split,
    window_length,
    windows,
)
from gatelab.display import ProgressLike, one_line, reporting, shorten
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.feedforward import Unit
from gatelab.feedforward import unit as as_unit
from gatelab.files import write_whole
from gatelab.memory import check_device
from gatelab.models.layouts import OWN, Block, Layer, layers_of
from gatelab.models.pretrained import import_transformers, load_model
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_packed

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("ours", *ORDERS)
LENGTH = 256  # tokens of a window, where the model reads as many
DAMPING = 1e-2  # of surgeon's refit, as SparseGPT, ZipLM and FASP have it
HELD_OUT = 8  # every which window of the calibration part decides in ours and in a distillation, and is not fitted
FEWEST = 0.5  # of what a block would keep, it keeps at least so much where widths are balanced
EPOCHS, RATE = 3, 0.02  # of the joint refit of a block
FELT_TOKENS, FELT_DAMPING = 4096, 1e-2  # which say what the loss feels; a share of the mean that is added to all of it


@dataclass(frozen=True)
class ShrunkLayer:
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

    def __repr__(self) -> str:
        return one_line(self, f"{shorten(self.layer)}: {self.before} -> {self.width} neurons, error {self.error:.3g}")


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A smaller model and what it costs.

    Attributes:
        model: the smaller model.
        tokenizer: that of the given model, or None.
        method: how the neurons were chosen and what was refitted.
        keep: the share of neurons that stay.
        layers: what became of every layer.
        measure: what `before` and `after` are: "log perplexity" in nats a token, or "cosine" of the mean of the last
            states with that of the given model, for models that predict no next token.
        before: of the given model, on windows that nothing was fitted to.
        after: of the smaller model, on the same windows.
        bytes_before: of the weights of the given model.
        bytes_after: of the weights of the smaller model.
        seconds: how long it took.
        course: how the distillation went; None where there was none.
        reason: why it cannot be saved in the usual format; empty where it can.
    """

    model: Any
    tokenizer: Any
    method: str
    keep: float
    layers: tuple[ShrunkLayer, ...]
    measure: str
    before: float
    after: float
    bytes_before: int
    bytes_after: int
    seconds: float
    course: Distilled | None = None
    reason: str = ""

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.method}, keep {self.keep:g}: {self.measure} {self.before:.4f} -> {self.after:.4f}"
        )

    def table(self) -> pd.DataFrame:
        """A row a layer: width, error, seconds."""
        import pandas as pd

        return pd.DataFrame([vars(layer) for layer in self.layers])

    def facts(self) -> dict[str, Any]:
        """What it is, as plain values."""
        names = ("method", "keep", "measure", "before", "after", "bytes_before", "bytes_after", "seconds")
        course = None if self.course is None else vars(self.course)
        layers = [vars(layer) for layer in self.layers]
        return {name: getattr(self, name) for name in names} | {"distillation": course, "layers": layers}

    def save(self, folder: str | Path) -> Path:
        """Write the model as Transformers does, with its tokenizer: the whole folder or nothing.

        Args:
            folder: where; must not exist, or be empty.

        Returns:
            The folder.
        """
        if self.reason:
            raise GatelabError(f"this model has no usual format: {self.reason}; use .model as it is")
        return save_folder(self.model, self.tokenizer, self.facts(), Path(folder).expanduser())


@contextmanager
def without_bars() -> Iterator[None]:
    """Transformers shows no bars of its own inside of the block."""
    logging = import_transformers().utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


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
        with without_bars():
            model.save_pretrained(str(part))
        if tokenizer is not None:
            tokenizer.save_pretrained(str(part))
        write_whole(part / "gatelab.json", json.dumps(facts, indent=1))
        if target.is_dir():
            target.rmdir()
        part.replace(target)
    except OSError as error:
        raise GatelabError(f"{target} cannot be written ({error.strerror or error}); nothing was") from error
    except Exception as error:
        # A disk that fills ends in an error of safetensors' own.
        if type(error).__name__ != "SafetensorError":
            raise
        raise GatelabError(f"{target} cannot be written ({error}); nothing was; free some space") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


@torch.no_grad()
def shrink(
    model: Any,
    keep: float | Sequence[int] = 0.8,
    text: Any = None,
    *,
    method: str = "ours",
    tokenizer: Any = None,
    length: int | None = None,
    most: int | None = None,
    distil: int | Distillation = 0,
    unit: Any = None,
    store: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Shrunk:
    """A smaller model: fewer neurons in every feed-forward block, the others refitted, the loss stated.

    Args:
        model: a model of Transformers in a layout of `gatelab.models.layouts`, or what `load_model` takes:
            a folder with safetensors, a GGUF file, a name. It stays as it is.
        keep: the share of the neurons of every block that stay, above 0 and up to 1; or how many stay in each block,
            as `balanced_widths` says. Where they differ, the model is used as it is: configurations have one width.
        text: for calibration and test: what `windows` takes, a quarter of whose windows are for the test; or a pair of
            such texts (calibration, test) that share no window. Images for a ViT.
        method: "ours"; "magnitude", "wanda" or "flap", which are published; or "surgeon", our combination of the order
            of ZipLM and the refit of FASP.
        tokenizer: of the model, where the text is a text and the model is given as such.
        length: tokens a window; None for 256, or for what the model reads where that is less.
        most: windows at most; of a pair of texts so many of each.
        distil: after the layers, epochs in which all blocks are refitted together to what the given model says at its
            end; or a `Distillation`, such as `Distillation(own_text=2_000_000)`: one pass over the text and as many
            tokens besides that the given model writes itself. No part of any other method here.
        unit: another unit for all blocks, such as "relu2" or "gqu", with as many weights as `keep` of the neurons have;
            for method "ours". Such a model is used as it is: the usual format has no place for it.
        store: a folder that keeps layers that are done: the same call goes on from there.
        device: where to compute, such as "cuda"; None for where the model is.
        progress: what to show, see `gatelab.display`.

    Returns:
        A `Shrunk`: `.model`, `.table()`, `.save(folder)`, `.before`, `.after`.
    """
    began = time.monotonic()
    check_method(method)
    other = product_unit(unit, method)
    terms = distillation_terms(distil)
    if isinstance(model, str | Path):
        model, tokenizer = load_model(model)
    layers = layers_of(model)
    check_layers(layers)
    check_biases(model, layers, method)
    widths = widths_of(keep, layers)
    rows = parted(model, text, tokenizer, length, most)
    for part in rows:
        check_tokens(model, part)
    if terms is not None:
        check_own_text(model, terms, rows)
    if device is not None:
        model = copy.deepcopy(model).to(check_device(device))
    small = copy.deepcopy(model).eval()
    dense = model
    with evaluating(dense):
        check_reads(dense, rows.calibration)
        causal = is_language_model(dense, rows.calibration)
        if terms is not None and terms.writes and not causal:
            raise GatelabError(
                f"own_text is given and {type(model).__name__} predicts no next token, so it cannot write; leave"
                " own_text out"
            )
        check_order(dense, rows.calibration[:1])
        held_out = held_out_windows(len(rows.calibration))
        decided = method == "ours" or terms is not None
        done = shrink_layers(
            dense, small, rows.calibration, held_out, widths, method=method, other=other, causal=causal,
            decided=decided, store=store, progress=progress,
        )  # fmt: skip
        course = None
        if terms is not None:
            fitted, others = rows.calibration[~held_out], rows.calibration[held_out]
            if terms.writes:
                fitted = torch.cat([fitted, own_windows(dense, fitted, terms, progress)])
            with reporting(progress, "distilling") as report:
                course = distilled(dense, small, fitted, others, terms, causal=causal, report=report)
        measure, before, after = measured(dense, small, rows.test, causal)
        check_finite(f"the {measure} of the given model", before)
        check_finite(f"the {measure} of the smaller model", after)
    reason = unsaved(model, layers[0], widths, other)
    if not reason:
        write_width(small, layers_of(small))
    share = sum(widths) / sum(layer.before for layer in done)
    if isinstance(keep, Real):
        share = float(keep)
    return Shrunk(
        model=small, tokenizer=tokenizer, method=method, keep=share, layers=tuple(done), measure=measure, before=before,
        after=after, bytes_before=bytes_of(dense), bytes_after=bytes_of(small), seconds=time.monotonic() - began,
        course=course, reason=reason,
    )  # fmt: skip


@torch.no_grad()
def balanced_widths(
    model: Any,
    keep: float = 0.8,
    text: Any = None,
    *,
    tokenizer: Any = None,
    length: int | None = None,
    most: int | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> tuple[int, ...]:
    """How many neurons each block should have, all together as many as `keep` of each would be: `shrink(keep=...)`.

    Neurons go in the order of the optimal brain surgeon, whose costs are comparable between blocks: nats a token to
    second order (`felt_directions`), or shares of the state after the layer in models that predict no next token. The
    cheapest of all blocks go, but no block loses more than half of what it would keep.

    Args:
        model: as `shrink` takes it.
        keep: the share of all neurons that stay.
        text: for calibration, and for the test of `shrink`, which does not enter here.
        tokenizer: of the model, where the text is a text and the model is given as such.
        length: as in `shrink`.
        most: likewise.
        device: where to compute; None for where the model is.
        progress: what to show, see `gatelab.display`.

    Returns:
        A width for each block.
    """
    share = check_share(keep)
    if isinstance(model, str | Path):
        model, tokenizer = load_model(model)
    layers = layers_of(model)
    check_layers(layers)
    rows = parted(model, text, tokenizer, length, most)
    check_tokens(model, rows.calibration)
    if device is not None:
        model = copy.deepcopy(model).to(check_device(device))
    with evaluating(model):
        check_reads(model, rows.calibration)
        check_order(model, rows.calibration[:1])
        costs = list(neuron_costs(model, rows.calibration, share * FEWEST, progress))
    widths = [layer.read().width for layer in layers]
    count = sum(widths) - sum(widths_of(share, layers))
    # Within a block a later neuron is no cheaper than an earlier one, so that the order of the block is kept.
    rising = [torch.tensor(part, dtype=torch.float64).cummax(0).values for part in costs]
    block = torch.cat([torch.full((len(part),), i) for i, part in enumerate(rising)])
    cheapest = block[torch.cat(rising).argsort(stable=True)[:count]]
    gone = torch.bincount(cheapest, minlength=len(widths)).tolist()
    return tuple(width - less for width, less in zip(widths, gone, strict=True))


def neuron_costs(model: Any, calibration: Tensor, fewest: float, progress: ProgressLike) -> Iterator[list[float]]:
    """For every block, what its neurons cost as they go one after another, until the share `fewest` is left."""
    layers = layers_of(model)
    felt: list[Tensor] = []
    if is_language_model(model, calibration):
        felt = felt_directions(model, calibration[: max(1, FELT_TOKENS // calibration.shape[1])])
    stream = Stream.begin(model, calibration)
    with reporting(progress, "balancing") as report:
        for i, layer in enumerate(layers):
            block = layer.read()
            passages = list(stream.through(layer))
            inputs, outputs = torch.cat([p.inputs for p in passages]), torch.cat([p.outputs for p in passages])
            if felt:
                frame, scale = FeltFrame.of(felt[i], block), float(felt[i].diagonal().mean()) / 2
            else:
                states = outputs + torch.cat([p.residual for p in passages])
                frame, scale = FeltFrame.of(None, block), 1 / float(states.double().square().sum(1).mean())
            rows = frame.rows(BlockTargets(inputs, outputs - block.b2))
            sums = moments(block, rows.inputs, rows.targets)
            count = block.width - max(1, round(fewest * block.width))
            _, costs = surgeon_costs(frame.enter(block), sums, count)
            yield [scale * cost for cost in costs]
            stream.advance(layer)
            if report:
                report(i + 1, len(layers))


# ---- layer after layer


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
    shelf = Shelf.open(store, plan_of(dense, calibration, widths, f"{method} {other} {causal} {decided}"))
    stream = Stream.begin(small, calibration)
    ideal = None
    if method == "ours":
        ideal = Stream.begin(dense, calibration)
    felt: list[Tensor] = []
    if method == "ours" and causal and shelf.count(old_layers) < len(old_layers):
        felt = felt_directions(dense, calibration[~held_out][: max(1, FELT_TOKENS // calibration.shape[1])])
    results: list[ShrunkLayer] = []
    with reporting(progress, "shrinking", stored=shelf.count(old_layers)) as report:
        for old, new, width in zip(old_layers, new_layers, widths, strict=True):
            block = old.read()
            if other is not None:
                share = width / block.width
                width = max(1, round(share * block.parameters / ((other.factors + 2) * block.W1.shape[1])))
            stored = shelf.read(block, other)
            if stored is None:
                began = time.monotonic()
                fitted, others = gathered(stream, ideal, old, new, held_out, decided)
                frame = FeltFrame.of(felt[len(results)] if felt else None, block)
                inside = frame.rows(fitted), frame.rows(others)
                if other is None:
                    smaller, dropped = METHOD[method](frame.enter(block), *inside, width)
                else:
                    smaller, dropped = other_block(frame.enter(block), *inside, width, other), math.nan
                smaller = frame.leave(smaller)
                moved = BlockTargets(others.inputs, others.targets - (smaller.b2 - block.b2))  # FLAP's bias
                error = moved.error(smaller) / others.size()
                check_finite(f"the error of {old.name}", error)
                stored = smaller, ShrunkLayer(old.name, width, block.width, error, dropped, time.monotonic() - began)
                shelf.write(*stored)
            if other is None:
                new.write(stored[0])
            else:
                new.put_map(BlockModule(stored[0]))
            stream.advance(new)
            if ideal is not None:
                ideal.advance(old)
            results.append(stored[1])
            if report:
                report(len(results), len(old_layers))
    return results


def check_finite(name: str, value: float) -> None:
    """Refuse to go on with weights that are no numbers."""
    if not math.isfinite(value):
        raise GatelabError(
            f"{name} is {value}; nothing comes of such weights: give a larger keep, more text or float32"
        )


def held_out_windows(count: int) -> Tensor:
    """Which of the calibration windows decide and are not fitted: every eighth, or the last of fewer."""
    if count < 2:
        raise GatelabError("the calibration part has 1 window; two at least are needed, give a longer text")
    held_out = torch.arange(count) % HELD_OUT == HELD_OUT - 1
    held_out[-1] = held_out[-1] or count < HELD_OUT
    return held_out


def gathered(
    stream: Stream, ideal: Stream | None, old: Layer, new: Layer, held_out: Tensor, decided: bool
) -> tuple[BlockTargets, BlockTargets]:
    """Rows to fit and rows to decide by: inputs in the smaller model, and what its block should give there.

    Where the given model's own stream is at hand, that is what leads to the state that the given model has after the
    layer, or what its block gives there where outputs are not added as they are. Other methods have no such stream:
    theirs is the output of the old block on the same inputs. Where nothing is decided all rows are to be fitted.
    """
    bias = old.read().b2
    passages = stream.through(new)
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    if ideal is None:
        for passage in passages:
            inputs.append(passage.inputs)
            targets.append(passage.outputs - bias)
    else:
        for passage, wanted in zip(passages, ideal.through(old), strict=True):
            inputs.append(passage.inputs)
            targets.append(wanted.outputs + wanted.residual - passage.residual - bias)
    x, t = torch.cat(inputs), torch.cat(targets)
    mask = held_out.repeat_interleave(len(x) // len(held_out)).to(x.device)
    fitted = BlockTargets(x[~mask], t[~mask]) if decided else BlockTargets(x, t)
    return fitted, BlockTargets(x[mask], t[mask])


@dataclass(frozen=True, eq=False)
class FeltFrame:
    """Coordinates of a block's output in which errors of one length cost the loss the same: y' = R y, and back.

    Where nothing is known of the loss, R is None and coordinates stay as they are.
    """

    R: Tensor | None
    inverse: Tensor | None

    @classmethod
    def of(cls, felt: Tensor | None, block: Block) -> FeltFrame:
        """The root of how the loss feels the output, its mean set to one and damped."""
        if felt is None:
            return cls(None, None)
        metric = felt / felt.diagonal().mean()
        metric.diagonal().add_(FELT_DAMPING)
        values, vectors = torch.linalg.eigh(metric)
        root = (vectors * values.sqrt()) @ vectors.T
        inverse = (vectors / values.sqrt()) @ vectors.T
        return cls(root.to(block.W2), inverse.to(block.W2))

    def rows(self, rows: BlockTargets) -> BlockTargets:
        """Targets in these coordinates."""
        if self.R is None:
            return rows
        return BlockTargets(rows.inputs, rows.targets @ self.R)

    def enter(self, block: Block) -> Block:
        """The block with its output in these coordinates."""
        if self.R is None:
            return block
        return replace(block, W2=self.R @ block.W2)

    def leave(self, block: Block) -> Block:
        """The block with its output as it was."""
        if self.inverse is None:
            return block
        return replace(block, W2=self.inverse @ block.W2)


def narrowed(block: Block, neurons: Tensor) -> Block:
    """The block with these neurons alone, their weights as they are."""
    factors = tuple((U[neurons], u[neurons]) for U, u in block.factors)
    return replace(block, W1=block.W1[neurons], b1=block.b1[neurons], W2=block.W2[:, neurons], factors=factors)


def dropped_neurons(method: str) -> Any:
    """Magnitude and Wanda: neurons go, the others stay as they are."""

    def smaller(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> tuple[Block, float]:
        chosen = ORDERS[method](block, moments(block, fitted.inputs, fitted.targets), width)
        small = narrowed(block, chosen)
        return small, others.error(small) / others.size()

    return smaller


def flap_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> tuple[Block, float]:
    """FLAP: neurons that fluctuate least go, and a bias takes over their means."""
    sums = moments(block, fitted.inputs, fitted.targets)
    chosen = ORDERS["flap"](block, sums, width)
    small = narrowed(block, chosen)
    gone = torch.ones(block.width, dtype=torch.bool, device=chosen.device)
    gone[chosen] = False
    bias = block.b2 + (block.W2[:, gone].double() @ sums.mean[gone]).to(block.b2)
    return replace(small, b2=bias), others.error(small) / others.size()


def surgeon_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> tuple[Block, float]:
    """Optimal brain surgeon by neurons, as in ZipLM, and the last map refitted, as in FASP: our combination."""
    sums = moments(block, fitted.inputs, fitted.targets)
    chosen = ORDERS["surgeon"](block, sums, width)
    small = narrowed(block, chosen)
    dropped = others.error(small) / others.size()
    return replace(small, W2=last_map(small, sums.take(chosen), DAMPING)), dropped


def our_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> tuple[Block, float]:
    """Neurons by the exact cost after refitting, then all weights together, decided on held-out windows.

    The exact cost is that on the rows at hand, which few rows make too good to be true; so the order by what neurons
    carry is tried as well, and held-out windows say which is better once the last map is refitted.
    """
    sums, decisive = (moments(block, rows.inputs, rows.targets) for rows in (fitted, others))
    candidates: list[tuple[float, Block, float]] = []
    for order in ("surgeon", "wanda"):
        chosen = ORDERS[order](block, sums, width)
        small, its_sums, its_decisive = narrowed(block, chosen), sums.take(chosen), decisive.take(chosen)
        D, _ = last_map_by_held_out(small, its_sums, its_decisive)
        candidates.append((its_decisive.error(D), replace(small, W2=D), its_decisive.error(small.W2)))
    _, start, dropped = min(candidates, key=lambda candidate: candidate[0])
    return joint(start, fitted, others, epochs=EPOCHS, rate=RATE), dropped / others.size()


def other_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int, unit: Unit) -> Block:
    """A block of another unit that does what the old one does, as well as it can."""
    sums = moments(block, fitted.inputs, fitted.targets)
    carried = sums.gram.diagonal().sqrt() * block.W2.double().norm(dim=0)
    start = another_unit(block, unit.gate, unit.factors, width, carried.argsort(descending=True))
    its_sums, decisive = (moments(start, rows.inputs, rows.targets) for rows in (fitted, others))
    D, _ = last_map_by_held_out(start, its_sums, decisive)
    return joint(replace(start, W2=D), fitted, others, epochs=EPOCHS, rate=RATE)


class BlockModule(nn.Module):
    """A block as a module: D [act(Gx + g) * (Ux + u) * ...] + d, its weights free to move."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        affine = ((block.W1, block.b1), *block.factors, (block.W2, block.b2))
        self.weights = nn.ParameterList(nn.Parameter(W.clone()) for W, _ in affine)
        self.biases = nn.ParameterList(nn.Parameter(b.clone()) for _, b in affine)
        self.activation = block.activation

    def forward(self, x: Tensor) -> Tensor:
        values = [functional.linear(x, W, b) for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True)]
        hidden = math.prod(values[1:], start=self.activation(values[0]))
        return functional.linear(hidden, self.weights[-1], self.biases[-1])


METHOD: dict[str, Any] = {
    "magnitude": dropped_neurons("magnitude"),
    "wanda": dropped_neurons("wanda"),
    "flap": flap_block,
    "surgeon": surgeon_block,
    "ours": our_block,
}


# ---- what a call is given


def check_method(method: str) -> None:
    """Refuse methods that there are not."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)


def check_share(keep: Any) -> float:
    """The share of neurons that stay; an error where it is none."""
    if isinstance(keep, bool) or not isinstance(keep, Real) or not 0 < float(keep) <= 1:
        raise GatelabError(f"keep is {keep!r}; give the share of neurons that stay, above 0 and up to 1, such as 0.8")
    return float(keep)


def widths_of(keep: float | Sequence[int], layers: Sequence[Layer]) -> tuple[int, ...]:
    """How many neurons of every block stay: a share of each, or as many as are given."""
    before = [layer.read().width for layer in layers]
    if isinstance(keep, np.ndarray | np.generic | Tensor):
        keep = keep.tolist()
    if isinstance(keep, str) or not isinstance(keep, Sequence):
        share = check_share(keep)
        return tuple(max(1, round(share * width)) for width in before)
    if len(keep) != len(before):
        raise GatelabError(f"keep has {len(keep)} widths and the model {len(before)} blocks; give one for each")
    widths = zip(layers, keep, before, strict=True)
    return tuple(whole_number(f"keep for {layer.name}", width, 1, most, of="neurons") for layer, width, most in widths)


def product_unit(unit: Any, method: str) -> Unit | None:
    """The unit that is asked for; None where blocks stay of their own."""
    if unit is None:
        return None
    if method != "ours":
        raise GatelabError(f"unit= is given and method is {method!r}, which only drops neurons; give method='ours'")
    other = as_unit(unit)
    if not isinstance(other, Unit):
        raise GatelabError(f"{unit!r} is no gate times factors; give a unit such as 'relu2', 'swiglu' or 'gqu'")
    return other


def distillation_terms(distil: Any) -> Distillation | None:
    """What `distil` says, None for none."""
    if isinstance(distil, Distillation):
        return distil
    epochs = whole_number("distil", distil, 0, of="epochs")
    return Distillation(epochs) if epochs else None


def check_layers(layers: Sequence[Layer]) -> None:
    """Refuse models whose blocks cannot be written."""
    for layer in layers:
        layer.require_weights()
    if layers[0].layout is OWN:
        raise GatelabError("the model is one of gatelab's own; shrink takes models of Transformers")
    widths = {layer.read().width for layer in layers}
    if len(widths) > 1:
        raise GatelabError(
            f"the blocks of this model have different widths ({min(widths)} to {max(widths)}), which its configuration"
            " cannot say; give a model whose blocks are of one width"
        )


def unsaved(model: Any, layer: Layer, widths: Sequence[int], other: Unit | None) -> str:
    """Why a smaller model cannot be saved in the usual format; empty where it can."""
    place = f"the configuration of {type(model).__name__}"
    if other is not None:
        return f"its blocks are {other.name}, for which {place} has no place"
    if layer.layout.width(getattr(model, "config", None)) is None:
        return f"{place} has no {' or '.join(layer.layout.widths)}"
    if len(set(widths)) > 1:
        return f"its blocks have {min(widths)} to {max(widths)} neurons, and {place} has one width"
    return ""


def check_saved(model: Any) -> None:
    """Refuse a model that could not be saved in the usual format once it is smaller."""
    reason = unsaved(model, layers_of(model)[0], (1,), None)
    if reason:
        raise GatelabError(f"a smaller model would have no usual format: {reason}; leave the folder out")


def check_biases(model: Any, layers: Sequence[Layer], method: str) -> None:
    """Refuse FLAP, which needs a bias in every block, where there is none and the configuration has no place for it."""
    last = layers[0].module.get_submodule(layers[0].layout.last)
    if method == "flap" and last.bias is None and not hasattr(getattr(model, "config", None), "mlp_bias"):
        others = ", ".join(repr(name) for name in METHODS if name != "flap")
        raise GatelabError(
            f"flap gives every block a bias, for which the configuration of {type(model).__name__} has no place; give"
            f" method= one of {others}"
        )


def parted(model: Any, text: Any, tokenizer: Any, length: int | None, most: int | None) -> Parts:
    """Windows for calibration and for the test."""
    if text is None:
        raise GatelabError(
            "no text is given; give text= a string, a file, token numbers or (calibration, test) windows"
        )
    if isinstance(text, tuple) and len(text) == 2 and not any(isinstance(part, int | float) for part in text):
        # Parts that are windows already keep their lengths, which may differ.
        lengths = (window_length(model, p, None if getattr(p, "ndim", 1) == 2 else length, LENGTH) for p in text)
        parts = Parts(*(windows(p, tokenizer, n, most=most) for p, n in zip(text, lengths, strict=True)))
        check_apart("the calibration part", *parts)
        return parts
    return split(windows(text, tokenizer, window_length(model, text, length, LENGTH), most=most))


def check_own_text(model: nn.Module, terms: Distillation, rows: Parts) -> None:
    """Refuse windows of own text that the model cannot read, or that are measured on."""
    if isinstance(terms.own_text, Tensor):
        own = own_windows(model, rows.calibration, terms)
        check_tokens(model, own)
        check_apart("own_text", own, rows.test)


# ---- what comes of it


def measured(dense: Any, small: Any, rows: Tensor, causal: bool) -> tuple[str, float, float]:
    """Log perplexities of both models, or how near their states are where no next token is predicted."""
    if causal:
        return "log perplexity", log_perplexity(dense, rows), log_perplexity(small, rows)
    cosines = [
        functional.cosine_similarity(last_states(dense, batch).mean(1), last_states(small, batch).mean(1), dim=-1)
        for batch in rows.split(32)
    ]
    return "cosine", 1.0, float(torch.cat(cosines).double().mean())


def bytes_of(model: nn.Module) -> int:
    """Bytes of the weights, shared ones once."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def write_width(model: Any, layers: Sequence[Layer]) -> None:
    """Tell the configuration the width of the blocks."""
    setattr(model.config, layers[0].layout.width(model.config) or "", layers[0].read().width)
    for layer in layers:
        # Modules of Llama and BERT note it as well.
        if hasattr(layer.entrance, "intermediate_size"):
            layer.entrance.intermediate_size = layer.read().width  # type: ignore[assignment]


def give_biases(model: Any, layers: Sequence[Layer]) -> None:
    """Give the blocks of a Llama biases of zero, where its configuration can say so."""
    if getattr(model.config, "mlp_bias", None) is not False:
        return
    for layer in layers:
        for name in layer.linear_names():
            linear = layer.module.get_submodule(name)
            linear.bias = nn.Parameter(linear.weight.new_zeros(linear.weight.shape[0]))
    model.config.mlp_bias = True


# ---- going on after an end


def plan_of(model: nn.Module, calibration: Tensor, widths: Sequence[int], method: str) -> str:
    """A hash of all that decides the smaller blocks."""
    settings = (tuple(widths), method, EPOCHS, RATE, HELD_OUT, DAMPING, FELT_TOKENS, FELT_DAMPING)
    digest = hashlib.sha256(repr((settings, tuple(calibration.shape))).encode())
    digest.update(calibration.cpu().numpy().tobytes())
    config = getattr(model, "config", None)
    if config is not None:
        digest.update(config.to_json_string().encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@dataclass(frozen=True)
class Shelf:
    """A folder with the blocks that are done, a file each; None where nothing is kept."""

    folder: Path | None
    plan: str

    @classmethod
    def open(cls, folder: str | Path | None, plan: str) -> Shelf:
        """The shelf of a plan; another plan's is refused."""
        if folder is None:
            return cls(None, plan)
        place = Path(folder).expanduser()
        note = place / "plan.json"
        if note.exists():
            try:
                known = json.loads(note.read_text())["plan"]
            except (ValueError, KeyError, TypeError):
                known = None
            if known != plan:
                raise GatelabError(
                    f"{place} holds layers of another model, text, keep or method; give another folder, or remove it"
                )
        else:
            write_whole(note, json.dumps({"plan": plan}))
        return cls(place, plan)

    def path(self, layer: str) -> Path:
        """The file of a layer."""
        return (self.folder or Path()) / f"{layer}.safetensors"

    def count(self, layers: Sequence[Layer]) -> int:
        """How many layers are done."""
        if self.folder is None:
            return 0
        return sum(self.path(layer.name).exists() for layer in layers)

    def read(self, block: Block, other: Unit | None = None) -> tuple[Block, ShrunkLayer] | None:
        """The smaller block of a layer and what became of it; None where it is not done."""
        path = self.path(block.layer)
        if self.folder is None or not path.exists():
            return None
        content = read_packed(path, "remove it, and the layer is computed again", "pt")
        arrays = {name: value.to(block.W1) for name, value in content.arrays.items()}
        count, activation = len(block.factors), block.activation
        if other is not None:
            count, activation = other.factors, other.gate
        factors = tuple((arrays[f"U{i}"], arrays[f"u{i}"]) for i in range(count))
        maps = {name: arrays[name] for name in ("W1", "b1", "W2", "b2")}
        small = Block(block.layer, **maps, activation=activation, factors=factors)
        return small, ShrunkLayer(**content.facts)

    def write(self, block: Block, facts: ShrunkLayer) -> None:
        """Keep a layer."""
        if self.folder is None:
            return
        arrays = {"W1": block.W1, "b1": block.b1, "W2": block.W2, "b2": block.b2}
        for i, (U, u) in enumerate(block.factors):
            arrays |= {f"U{i}": U, f"u{i}": u}
        write_packed(self.path(block.layer), pack(arrays, "ShrunkLayer", vars(facts)))
