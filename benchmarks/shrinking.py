"""One table of smaller models: every method, the same calibration and test text, three models.

    python -m benchmarks.shrinking --device cuda                    all cells, about as long as the device takes
    python -m benchmarks.shrinking --cells smollm2:0.8 --limit 600  what fits into ten minutes; the next call goes on
    python -m benchmarks.shrinking --cells "smollm2:0.8:ours + own text" --own-text 12000000 --rate 0.003 --device cuda
    python -m benchmarks.shrinking --cells stories260k --calibration 24576 --test 8192 --length 256 \\
        --record results/anatomy/shrink-stories.json                a model of 260 thousand weights, on any machine

The models are SmolLM2-135M-Instruct (`smollm2`, a GGUF file with 4-bit weights), all-MiniLM-L6-v2 (`minilm`) and
stories260K. The first two read the FineWeb-Edu sample, calibration from its beginning and test from its end. The last
reads what it wrote itself, calibration and test from different seeds, so that its excess is the divergence of the two
models. magnitude, wanda and flap are published; surgeon is our combination of the order of ZipLM and the refit of FASP.

A cell has the excess of every test window under `windows`, so that two cells are compared by paired differences.
Cells are written to results/anatomy/shrink.json as they end, and layers of a cell that was stopped are kept in a store,
so that a call goes on where the last one ended. A record of other settings is not mixed with: it is refused.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import facts, write_record
from gatelab.anatomy import (
    Distillation,
    Shrunk,
    balanced_widths,
    continued,
    load_model,
    log_perplexity,
    shrink,
    windows,
)
from gatelab.anatomy.distillation import own_windows
from gatelab.anatomy.smaller_layers import held_out_windows
from gatelab.anatomy.texts import Parts, token_losses
from gatelab.statistics import t_interval
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_packed

RECORD = Path("results/anatomy/shrink.json")
KEEPS = (0.8, 0.6, 0.9, 0.7)  # those that decide come first
METHODS = ("wanda", "flap", "surgeon", "ours", "ours + distilled", "surgeon + distilled", "magnitude")
METHODS += ("ours + own text", "surgeon + own text", "ours balanced", "ours balanced + own text")
METHODS += ("ours as relu2", "ours as gqu", "ours as relu2 + distilled", "ours as gqu + distilled")  # as many weights
SENTENCES = 256  # of MiniLM's test
WIDE = 51_200  # tokens between calibration and test that say what one test text leaves undecided


def main() -> None:
    """Compute the cells that the record does not have."""
    options = arguments()
    settings = {
        "calibration_tokens": options.calibration, "test_tokens": options.test, "length": options.length,
        "epochs": options.distill,
    }  # fmt: skip
    record = read_record(options.record, settings)
    began = time.monotonic()
    models: dict[str, Any] = {}
    own_texts: dict[str, tuple[Tensor, float]] = {}
    for name, keep, method in cells(options.cells, options.own_text):
        key = f"{name}:{keep}:{method}"
        if key in record["cells"]:
            continue
        if options.limit and time.monotonic() - began > options.limit:
            print(f"the time is up; {key} is next", flush=True)
            return
        if name not in models:
            models[name] = prepared(name, options)
        model, tokenizer, parts = models[name]
        base, _, more = method.partition(" + ")
        store = None
        if options.store:
            # Layers of published methods are fitted to less where a distillation decides on the rest.
            fitted = " of a part" if more and not base.startswith("ours") else ""
            store = Path(options.store) / f"{name}-{keep}-{base}{fitted}"
        terms: int | Distillation = 0
        if more == "distilled":
            terms = options.distill
        elif more:
            if name not in own_texts:
                own_texts[name] = own_text(name, model, parts.calibration, options)
            terms = Distillation(epochs=options.passes, own_text=own_texts[name][0])
            if options.rate:
                terms = replace(terms, rates=(options.rate,))
        published, _, how = base.partition(" ")
        length, widths = parts.calibration.shape[1], keep
        unit = how.removeprefix("as ") if how.startswith("as ") else None
        if how == "balanced":
            widths = balanced_widths(model, keep, parts, length=length, device=options.device, progress=True)
        small = shrink(
            model, widths, parts, method=published, length=length, distill=terms, unit=unit, store=store,
            device=options.device, progress=True,
        )  # fmt: skip
        cell = {key: value for key, value in small.plain().items() if key not in ("layers", "distillation")}
        cell["method"] = method
        if how == "balanced":
            cell["widths"] = widths
        cell["errors"] = [round(layer.error, 5) for layer in small.layers]
        if small.distillation is not None:
            cell["distillation"] = list(small.distillation.losses)
            cell["rate"] = small.distillation.rate
        if isinstance(terms, Distillation):
            written, seconds = own_texts[name]
            cell |= {"own_text": written.numel(), "writing_seconds": seconds, "passes": options.passes}
        if small.measure == "log perplexity":
            cell["windows"] = rounded(window_excess(model, small.model, parts.test))
        if name == "smollm2":
            cell["wide"] = wide_excess(model, small.model, tokenizer, options)
        if name == "minilm":
            cell["sentences"] = sentence_cosine(model, small.model, tokenizer)
        if method == "ours":
            cell |= saved_again(small, model, parts.test)
        record["cells"][key] = cell | facts(options.device) | {"threads": torch.get_num_threads()}
        write_record(options.record, record)
        print(key, f"{cell['before']:.4f} -> {cell['after']:.4f}", f"{cell['seconds']:.0f} s", flush=True)


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="", help="model:keep or model:keep:method with commas; empty for all")
    parser.add_argument("--calibration", type=int, default=12_288, help="tokens")
    parser.add_argument("--test", type=int, default=4096, help="tokens")
    parser.add_argument("--length", type=int, default=512, help="tokens a window")
    parser.add_argument("--distill", type=int, default=4, help="epochs of distillation in the cells that have it")
    parser.add_argument("--own-text", type=int, default=2_000_000, help="tokens that the given model writes itself")
    parser.add_argument("--passes", type=int, default=1, help="over that text")
    parser.add_argument("--rate", type=float, default=0, help="of the distillation on it; 0 tries several")
    parser.add_argument("--limit", type=float, default=0, help="seconds after which no cell is begun")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", default="", help="a folder that keeps own text, and layers of stopped cells")
    parser.add_argument("--record", type=Path, default=RECORD)
    return parser.parse_args()


def cells(asked: str, own_text: int) -> list[tuple[str, float, str]]:
    """The cells in the order of their weight, or those that are asked for; own text with its amount or without."""
    # What is written is part of a cell's name, so that one record can hold several amounts.
    written = f"{own_text / 1e6:g}M own text"
    methods = [method.replace("own text", written) for method in METHODS]
    everything = [(name, keep, method) for name in ("smollm2", "stories260k") for keep in KEEPS for method in methods]
    # MiniLM predicts no next token: it cannot write.
    everything += [("minilm", keep, method) for keep in KEEPS for method in methods if "own text" not in method]
    if not asked:
        return everything
    wanted = [part.strip().replace("+ own text", f"+ {written}") for part in asked.split(",")]
    for part in wanted:
        if not any(is_of(cell, part) for cell in everything):
            some = ", ".join(f"{name}:{keep}:{method}" for name, keep, method in everything[: len(METHODS)])
            raise SystemExit(f"no cell is called {part!r}; there are, among others, {some}")
    return [cell for cell in everything if any(is_of(cell, part) for part in wanted)]


def is_of(cell: tuple[str, float, str], part: str) -> bool:
    """Whether a cell is of a name such as smollm2:0.8 or smollm2:0.8:ours."""
    names = part.split(":")
    return [str(value) for value in cell][: len(names)] == names


def read_record(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The record as it is, or an empty one."""
    if not path.exists():
        return {"settings": settings, "cells": {}}
    record = json.loads(path.read_text())
    if record["settings"] != settings:
        raise SystemExit(f"{path} is of {record['settings']}, these are {settings}; give --record another file")
    return record


def prepared(name: str, options: argparse.Namespace) -> tuple[Any, Any, Parts]:
    """A model, its tokenizer, and windows: calibration from the beginning of the text, test from its end."""
    model, tokenizer = load_model(name)
    if name == "stories260k":
        sizes = (options.calibration // options.length, options.test // options.length)
        first = model.config.bos_token_id
        written = (
            continued(model, torch.full((size, 1), first), options.length, seed=seed, at_once=size)
            for seed, size in enumerate(sizes)
        )
        return model, tokenizer, Parts(*written)
    length = min(options.length, 128) if name == "minilm" else options.length
    rows = windows("fineweb-edu", tokenizer, length)
    first, last = options.calibration // length, options.test // length
    if first + last > len(rows):
        raise SystemExit(f"the text has {len(rows)} windows, {first + last} are asked for")
    return model, tokenizer, Parts(rows[:first], rows[-last:])


def window_excess(dense: Any, small: Any, rows: Tensor) -> Tensor:
    """The excess of every window: the mean loss of its tokens by the smaller model less that by the given one."""
    device = next(small.parameters()).device
    before, after = (token_losses(model.to(device), rows).double().mean(1) for model in (copy.deepcopy(dense), small))
    return after - before


def rounded(values: Tensor) -> list[float]:
    """Numbers as the record has them."""
    return [round(float(value), 6) for value in values]


def wide_excess(dense: Any, small: Any, tokenizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The excess on the windows before the test part, which are more, with its interval over them, and each."""
    rows = windows("fineweb-edu", tokenizer, options.length)[: -(options.test // options.length)]
    rows = rows[-min(WIDE // options.length, len(rows) - options.calibration // options.length) :]
    each = window_excess(dense, small, rows)
    excess = t_interval(each.numpy())
    facts = {"tokens": rows.numel(), "value": excess.value, "low": excess.low, "high": excess.high}
    return {**facts, "windows": rounded(each)}


def own_text(name: str, model: Any, calibration: Tensor, options: argparse.Namespace) -> tuple[Tensor, float]:
    """Windows that the model writes, for all cells that have them, and how long that took; a store keeps them."""
    began = time.monotonic()
    fitted = calibration[~held_out_windows(len(calibration))]
    kept = Path(options.store) / f"{name}-{options.own_text}-own-tokens.safetensors"
    if options.store and kept.exists():
        content = read_packed(kept, "remove it, and it is written again", "pt")
        return content.arrays["windows"], content.facts["seconds"]
    terms = Distillation(own_text=options.own_text)
    windows = own_windows(copy.deepcopy(model).to(options.device), fitted, terms, progress=True)
    seconds = time.monotonic() - began
    if options.store:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_packed(kept, pack({"windows": windows}, "windows", {"seconds": seconds}))
    return windows, seconds


def saved_again(small: Shrunk, dense: Any, rows: Tensor) -> dict[str, Any]:
    """The difference of the saved model as plain Transformers loads it, and tokens a second before and after.

    Both models are where the smaller one was computed; a rate is the best of four passes over four windows.
    """
    facts: dict[str, Any] = {}
    device = next(small.model.parameters()).device
    rows = rows.to(device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        place = small.save(Path(folder) / "model")
        loaded = type(small.model).from_pretrained(str(place)).eval().to(device)
        facts["bytes_on_disk"] = (place / "model.safetensors").stat().st_size
        if small.measure == "log perplexity":
            facts["saved_difference"] = abs(log_perplexity(loaded, rows) - log_perplexity(small.model, rows))
        else:
            facts["saved_difference"] = float((loaded(rows[:8])[0] - small.model(rows[:8])[0]).abs().max())
        for label, model in (("before", copy.deepcopy(dense).to(device)), ("after", loaded)):
            seconds = min(timed(model, rows[:4]) for _ in range(4))
            facts[f"tokens_a_second_{label}"] = rows[:4].numel() / seconds
    return facts


def timed(model: Any, rows: Tensor) -> float:
    """Seconds of a pass, until the device has done all of it."""
    began = time.monotonic()
    float(model(rows)[0].sum())
    return time.monotonic() - began


@torch.no_grad()
def sentence_cosine(dense: Any, small: Any, tokenizer: Any) -> float:
    """The mean cosine of embeddings (means over tokens) of sentences from the last part of the text."""
    from gatelab.data.text import text_file

    text = Path(text_file("fineweb-edu", None)).read_text()[-200_000:]
    sentences = [part.strip() for part in text.replace("\n", " ").split(". ") if 40 < len(part) < 300][:SENTENCES]
    cosines = []
    for start in range(0, len(sentences), 32):
        batch = tokenizer(sentences[start : start + 32], padding=True, truncation=True, return_tensors="pt")
        mask = batch["attention_mask"][..., None].float()
        means = []
        for model in (dense, small):
            here = {key: value.to(next(model.parameters()).device) for key, value in batch.items()}
            states = model(**here)[0].cpu()
            means.append((states * mask).sum(1) / mask.sum(1))
        cosines.append(functional.cosine_similarity(*means, dim=-1))
    return float(torch.cat(cosines).double().mean())


if __name__ == "__main__":
    main()
