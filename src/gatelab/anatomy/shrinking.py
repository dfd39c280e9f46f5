"""`shrink`: a smaller model in the place of a given one, layer after layer on its own inputs, and what that costs.

small = gl.shrink("smollm2", keep=0.8, text="fineweb-edu")
small.table()                      by layer: width, error, seconds
small.before, small.after          log perplexity on windows that nothing was fitted to
small.save("smaller")              a folder that plain Transformers loads
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.distillation import Distillation, Distilled, distil_blocks, own_windows
from gatelab.anatomy.fits import product_unit
from gatelab.anatomy.refits import METHODS
from gatelab.anatomy.smaller_layers import ShrunkLayer, finite, held_out_windows, neuron_costs, shrink_layers
from gatelab.anatomy.streams import check_order, last_states
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
from gatelab.display import ProgressLike, one_line, reporting
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.feedforward import Unit
from gatelab.files import write_whole
from gatelab.memory import check_device
from gatelab.models.layouts import OWN, Layer, layers_of
from gatelab.models.pretrained import load_model, quiet_transformers
from gatelab.plain import to_plain

if TYPE_CHECKING:
    import pandas as pd

LENGTH = 256  # tokens of a window, where the model reads as many
FEWEST = 0.5  # of what a block would keep, it keeps at least so much where widths are balanced


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
        distillation: how the distillation went; None where there was none.
        reason: why it cannot be saved in the usual format; empty where it can.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    method: str
    keep: float
    layers: tuple[ShrunkLayer, ...]
    measure: str
    before: float
    after: float
    bytes_before: int
    bytes_after: int
    seconds: float
    distillation: Distilled | None = None
    reason: str = field(default="", repr=False)

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.method}, keep {self.keep:g}: {self.measure} {self.before:.4f} -> {self.after:.4f}"
        )

    def table(self) -> pd.DataFrame:
        """A row a layer: width, error, seconds."""
        import pandas as pd

        return pd.DataFrame([vars(layer) for layer in self.layers])

    def plain(self) -> dict[str, Any]:
        """What it is, as plain values."""
        return to_plain(self)

    def save(self, folder: str | Path) -> Path:
        """Write the model as Transformers does, with its tokenizer: the whole folder or nothing.

        Args:
            folder: where; must not exist, or be empty.

        Returns:
            The folder.
        """
        if self.reason:
            raise GatelabError(f"this model has no usual format: {self.reason}; use .model as it is")
        return save_folder(self.model, self.tokenizer, self.plain(), Path(folder).expanduser())


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
    if unit is not None and method != "ours":
        raise GatelabError(f"unit= is given and method is {method!r}, which only drops neurons; give method='ours'")
    other = None if unit is None else product_unit(unit)
    terms = distil
    if not isinstance(terms, Distillation):
        epochs = whole_number("distil", distil, 0, of="epochs")
        terms = Distillation(epochs) if epochs else None
    task = shrink_task(model, text, tokenizer, length, most, device)
    dense, layers, rows = task.model, layers_of(task.model), task.rows
    check_biases(dense, layers, method)
    widths = widths_of(keep, layers)
    if terms is not None and isinstance(terms.own_text, Tensor):
        own = own_windows(dense, rows.calibration, terms)
        check_tokens(dense, own)
        check_apart("own_text", own, rows.test)
    small = copy.deepcopy(dense).eval()
    with evaluating(dense):
        causal = check_model(dense, rows.calibration)
        if terms is not None and terms.writes and not causal:
            raise GatelabError(
                f"own_text is given and {type(dense).__name__} predicts no next token, so it cannot write; leave"
                " own_text out"
            )
        held_out = held_out_windows(len(rows.calibration))
        done = shrink_layers(
            dense, small, rows.calibration, held_out, widths, method=method, other=other, causal=causal,
            decided=method == "ours" or terms is not None, store=store, progress=progress,
        )  # fmt: skip
        distillation = None
        if terms is not None:
            fitted, others = rows.calibration[~held_out], rows.calibration[held_out]
            if terms.writes:
                fitted = torch.cat([fitted, own_windows(dense, fitted, terms, progress)])
            with reporting(progress, "distilling") as report:
                distillation = distil_blocks(dense, small, fitted, others, terms, causal=causal, report=report)
        measure, before, after = measured(dense, small, rows.test, causal)
    reason = unsaved(dense, layers[0], widths, other)
    if not reason:
        write_width(small, layers_of(small))
    return Shrunk(
        model=small, tokenizer=task.tokenizer, method=method,
        keep=float(keep) if isinstance(keep, Real) else sum(widths) / sum(layer.before for layer in done),
        layers=tuple(done), measure=measure, before=before, after=after, bytes_before=bytes_of(dense),
        bytes_after=bytes_of(small), seconds=time.monotonic() - began, distillation=distillation, reason=reason,
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
    model, _, rows = shrink_task(model, text, tokenizer, length, most, device)
    with evaluating(model):
        causal = check_model(model, rows.calibration)
        costs = list(neuron_costs(model, rows.calibration, causal, share * FEWEST, progress))
    layers = layers_of(model)
    widths = [layer.read().width for layer in layers]
    count = sum(widths) - sum(widths_of(share, layers))
    # Within a block a later neuron is no cheaper than an earlier one, so that the order of the block is kept.
    rising = [torch.tensor(part, dtype=torch.float64).cummax(0).values for part in costs]
    block = torch.cat([torch.full((len(part),), i) for i, part in enumerate(rising)])
    cheapest = block[torch.cat(rising).argsort(stable=True)[:count]]
    gone = torch.bincount(cheapest, minlength=len(widths)).tolist()
    return tuple(width - less for width, less in zip(widths, gone, strict=True))


# ---- what a call is given


class ShrinkTask(NamedTuple):
    """A model where it is to be computed, its tokenizer, and windows for calibration and for the test."""

    model: Any
    tokenizer: Any
    rows: Parts


def shrink_task(
    model: Any, text: Any, tokenizer: Any, length: int | None, most: int | None, device: str | torch.device | None
) -> ShrinkTask:
    """What `shrink` and `balanced_widths` are asked for."""
    if isinstance(model, str | Path):
        model, tokenizer = load_model(model)
    layers = layers_of(model)
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
    rows = calibration_and_test(model, text, tokenizer, length, most)
    for part in rows:
        check_tokens(model, part)
    if device is not None:
        model = copy.deepcopy(model).to(check_device(device))
    return ShrinkTask(model, tokenizer, rows)


def calibration_and_test(model: Any, text: Any, tokenizer: Any, length: int | None, most: int | None) -> Parts:
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


def check_model(model: nn.Module, calibration: Tensor) -> bool:
    """Refuse a model that cannot be shrunken by these windows; whether it predicts the next token."""
    check_reads(model, calibration)
    check_order(model, calibration[:1])
    return is_language_model(model, calibration)


def check_method(method: str) -> None:
    """Refuse methods that there are not."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)


def check_share(keep: Any) -> float:
    """The share of neurons that stay; an error where it is none."""
    return real_number("keep, the share of neurons that stay,", keep, above=0, most=1)


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


# ---- what comes of it


def measured(dense: Any, small: Any, rows: Tensor, causal: bool) -> tuple[str, float, float]:
    """Log perplexities of both models, or how near their states are where no next token is predicted."""
    if not causal:
        cosines = [
            functional.cosine_similarity(last_states(dense, batch).mean(1), last_states(small, batch).mean(1), dim=-1)
            for batch in rows.split(32)
        ]
        cosine = float(torch.cat(cosines).double().mean())
        return "cosine", 1.0, finite("the cosine of the smaller model", cosine)
    before, after = (
        finite(f"the log perplexity of the {which} model", log_perplexity(model, rows))
        for which, model in (("given", dense), ("smaller", small))
    )
    return "log perplexity", before, after


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
