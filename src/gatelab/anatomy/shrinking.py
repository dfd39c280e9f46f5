"""`shrink`: a model with smaller feed-forward blocks, and its loss.

small = gl.shrink("smollm2", keep=0.8, text="fineweb-edu")
small.table()                      by layer: width, error, seconds
small.before, small.after          log perplexity on test windows
small.save("smaller")              a folder that plain Transformers loads
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy import texts
from gatelab.anatomy.distillation import Distillation, Distilled, distil
from gatelab.anatomy.refits import METHODS
from gatelab.anatomy.smaller_layers import ShrunkLayer, finite, held_out_windows, shrink_layers
from gatelab.anatomy.streams import check_order, last_states
from gatelab.display import ProgressLike, one_line
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.files import write_whole
from gatelab.memory import check_device
from gatelab.models.layouts import OWN, Layer, layers_of
from gatelab.models.pretrained import load_model, quiet_transformers
from gatelab.plain import to_plain

LENGTH = 256  # default tokens per window


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A smaller model and its loss.

    Attributes:
        model: the smaller model.
        tokenizer: the tokenizer of the given model, or None.
        method: the method of selection and refit.
        keep: the share of neurons that were kept.
        layers: the result for every layer.
        measure: the unit of `before` and `after`: "log perplexity" in nats per token, or, for models that predict no
            next token, "cosine" of the mean last state with that of the given model.
        before: the measure for the given model, on test windows.
        after: the measure for the smaller model, on the same windows.
        bytes_before: the size of the given model's weights.
        bytes_after: the size of the smaller model's weights.
        seconds: the total time.
        distillation: the course of the distillation, or None.
        reason: why the model cannot be saved in the usual format; empty if it can.
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
        losses = f"{self.before:.4f} -> {self.after:.4f}"
        return one_line(self, f"{self.method}, keep {self.keep:g}: {self.measure} {losses}")

    def table(self) -> pd.DataFrame:
        """One row per layer: width, error, seconds."""
        return pd.DataFrame([vars(layer) for layer in self.layers])

    def plain(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        return to_plain(self)

    def save(self, folder: str | Path) -> Path:
        """Save the model and its tokenizer in the format of Transformers to a new or empty folder."""
        if self.reason:
            raise GatelabError(f"this model has no usual format: {self.reason}; use .model instead")
        return save_folder(self.model, self.tokenizer, self.plain(), Path(folder).expanduser())


@torch.no_grad()
def shrink(
    model: Any,
    keep: float = 0.8,
    text: Any = None,
    *,
    method: str = "ours",
    tokenizer: Any = None,
    length: int | None = None,
    most: int | None = None,
    distill: int | Distillation = 0,
    store: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Shrunk:
    """Remove neurons from every feed-forward block of a model, refit the others, and measure the loss.

    Args:
        model: a model of Transformers in a layout of `gatelab.models.layouts`, or an argument of `load_model`: a folder
            with safetensors, a GGUF file, a name. It is not changed.
        keep: the share of the neurons to keep in every block, above 0 and up to 1.
        text: text for calibration and test: an argument of `windows`, a quarter of whose windows are for the test; or
            a pair of such texts (calibration, test) that share no window. Images for a ViT.
        method: "ours"; the published methods "magnitude", "wanda" and "flap"; or "surgeon", our combination of the
            order of ZipLM and the refit of FASP.
        tokenizer: the tokenizer, if the text is a string or file and the model is not loaded here.
        length: tokens per window; None for 256, or the context of the model if that is shorter.
        most: the maximal number of windows, per text if two are given.
        distill: epochs of a distillation after the layers, in which all blocks are refitted together to the outputs of
            the given model; or a `Distillation`, such as `Distillation(own_text=2_000_000)`: one pass over the text and
            over 2 million tokens that the given model generates.
        store: a folder for finished layers, from which the same call resumes.
        device: the device, such as "cuda"; None for that of the model.
        progress: see `gatelab.display`.

    Returns:
        A `Shrunk`: `.model`, `.table()`, `.save(folder)`, `.before`, `.after`.
    """
    began = time.monotonic()
    check_method(method)
    check_share(keep)
    terms = distill
    if not isinstance(terms, Distillation):
        epochs, terms = whole_number("distill", distill, 0, of="epochs"), None
        if epochs:
            terms = Distillation(epochs)
    dense, tokenizer, rows = loaded_task(model, text, tokenizer, length, most, device)
    layer = layers_of(dense)[0]
    check_biases(dense, layer, method)
    small = copy.deepcopy(dense).eval()
    with texts.evaluating(dense):
        texts.check_reads(dense, rows.calibration)
        check_order(dense, rows.calibration[:1])
        causal = texts.is_language_model(dense, rows.calibration)
        if terms is not None and terms.own_text and not causal:
            raise GatelabError(
                f"own_text is given and {type(dense).__name__} does not predict next tokens; leave own_text out"
            )
        held_out = held_out_windows(len(rows.calibration))
        done = shrink_layers(
            dense, small, rows.calibration, held_out, width_after(keep, layer), method=method, causal=causal,
            decided=method == "ours" or terms is not None, store=store, progress=progress,
        )  # fmt: skip
        distillation = None
        if terms is not None:
            fitted, others = rows.calibration[~held_out], rows.calibration[held_out]
            distillation = distil(dense, small, fitted, others, terms, causal=causal, progress=progress)
        measure, before, after = measured(dense, small, rows.test, causal)
    reason = unsaved(dense, layer)
    if not reason:
        write_width(small, layers_of(small))
    return Shrunk(
        model=small, tokenizer=tokenizer, method=method, keep=float(keep), layers=tuple(done), measure=measure,
        before=before, after=after, bytes_before=bytes_of(dense), bytes_after=bytes_of(small),
        seconds=time.monotonic() - began, distillation=distillation, reason=reason,
    )  # fmt: skip


def loaded_task(
    model: Any, text: Any, tokenizer: Any, length: int | None, most: int | None, device: str | torch.device | None
) -> tuple[Any, Any, texts.Parts]:
    """The model on its device, its tokenizer, and windows for calibration and test."""
    if isinstance(model, str | Path):
        model, tokenizer = load_model(model)
    layers = layers_of(model)
    if layers[0].layout is OWN:
        raise GatelabError("the model is one of gatelab's own; shrink takes models of Transformers")
    widths = {layer.read().width for layer in layers}
    if len(widths) > 1:
        raise GatelabError(f"the blocks are {min(widths)} to {max(widths)} neurons wide; give a model with one width")
    rows = calibration_and_test(model, text, tokenizer, length, most)
    for part in rows:
        texts.check_tokens(model, part)
    if device is not None:
        model = copy.deepcopy(model).to(check_device(device))
    return model, tokenizer, rows


def calibration_and_test(model: Any, text: Any, tokenizer: Any, length: int | None, most: int | None) -> texts.Parts:
    if text is None:
        raise GatelabError("no text is given; give text= a string, a file, token numbers or a pair of them")
    if isinstance(text, tuple) and len(text) == 2 and not any(isinstance(part, int | float) for part in text):
        # Windows of tokens keep their lengths, which may differ.
        lengths = (texts.window_length(model, p, None if getattr(p, "ndim", 1) == 2 else length, LENGTH) for p in text)
        parts = texts.Parts(*(texts.windows(p, tokenizer, n, most=most) for p, n in zip(text, lengths, strict=True)))
        if count := int(texts.found_in(*parts).sum()):
            raise GatelabError(
                f"{count} of {len(parts.test)} test windows are in the calibration part too; give others"
            )
        return parts
    return texts.split(texts.windows(text, tokenizer, texts.window_length(model, text, length, LENGTH), most=most))


def check_method(method: str) -> None:
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)


def check_share(keep: float) -> None:
    real_number("keep, the share of neurons to keep,", keep, above=0, most=1)


def width_after(keep: float, layer: Layer) -> int:
    return max(1, round(keep * layer.read().width))


def unsaved(model: Any, layer: Layer) -> str:
    """Why a smaller model cannot be saved in the usual format; empty if it can."""
    if layer.layout.width(getattr(model, "config", None)) is None:
        return f"the configuration of {type(model).__name__} has no {' or '.join(layer.layout.widths)}"
    return ""


def check_saved(model: Any) -> None:
    if reason := unsaved(model, layers_of(model)[0]):
        raise GatelabError(f"a smaller model would have no usual format: {reason}; leave the folder out")


def check_biases(model: Any, layer: Layer, method: str) -> None:
    """Raise for FLAP, which adds a bias to every block, if the configuration does not allow biases."""
    last = layer.module.get_submodule(layer.layout.last)
    if method == "flap" and last.bias is None and not hasattr(getattr(model, "config", None), "mlp_bias"):
        others = ", ".join(repr(name) for name in METHODS if name != "flap")
        raise GatelabError(
            f"flap adds biases, which the configuration of {type(model).__name__} lacks; give method= one of {others}"
        )


def measured(dense: Any, small: Any, rows: Tensor, causal: bool) -> tuple[str, float, float]:
    """The measure and its values for both models: log perplexity, or the cosine between their last states."""
    if not causal:
        cosines = [
            functional.cosine_similarity(last_states(dense, batch).mean(1), last_states(small, batch).mean(1), dim=-1)
            for batch in rows.split(32)
        ]
        cosine = float(torch.cat(cosines).double().mean())
        return "cosine", 1.0, finite("the cosine of the smaller model", cosine)
    before, after = (
        finite(f"the log perplexity of the {which} model", texts.log_perplexity(model, rows))
        for which, model in (("given", dense), ("smaller", small))
    )
    return "log perplexity", before, after


def bytes_of(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def write_width(model: Any, layers: list[Layer]) -> None:
    setattr(model.config, layers[0].layout.width(model.config) or "", layers[0].read().width)
    for layer in layers:
        # Modules of Llama and BERT store the width as well.
        if hasattr(layer.entrance, "intermediate_size"):
            layer.entrance.intermediate_size = layer.read().width  # type: ignore[assignment]


def save_folder(model: Any, tokenizer: Any, facts: Mapping[str, Any], target: Path) -> Path:
    """Write a folder of Transformers under a temporary name, then rename it."""
    part = target.parent / f".{target.name[:64]}.{uuid4().hex}.part"
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise GatelabError(f"{target} is there already; give a folder that does not exist, or an empty one")
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
        # A full disk causes an error of safetensors.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        reason = getattr(error, "strerror", None) or error
        raise GatelabError(f"{target} cannot be written ({reason}); free some space, or give another name") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target
