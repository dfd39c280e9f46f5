"""One table of smaller models: every method, the same calibration and test text, three models.

    python -m benchmarks.shrinking --device cuda                    all cells, or those that the last call left
    python -m benchmarks.shrinking --cells "smollm2:0.8:ours + own text" --own-text 12000000 --rate 0.003 --device cuda

The models are SmolLM2-135M-Instruct (`smollm2`, 4-bit weights), all-MiniLM-L6-v2 (`minilm`) and stories260K. The first
two read the FineWeb-Edu sample, the last what it wrote itself. magnitude, wanda and flap are published; surgeon is our
combination of the order of ZipLM and the refit of FASP. Cells are compared by paired differences of their `windows`.
"""

from __future__ import annotations

import copy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import facts, read_record, write_record
from gatelab.anatomy import Distillation, continued, load_model, shrink, windows
from gatelab.anatomy.distillation import RATES
from gatelab.anatomy.texts import Parts, token_losses
from gatelab.data.text import text_file
from gatelab.statistics import t_interval

RECORD = Path("results/anatomy/shrink.json")
KEEPS = (0.8, 0.6, 0.9, 0.7)  # those that decide come first
METHODS = ["wanda", "flap", "surgeon", "ours", "ours + distilled", "surgeon + distilled", "magnitude"]
METHODS += ["ours + own text", "surgeon + own text"]
EPOCHS = 4  # of a distillation without own text
SENTENCES = 256  # of MiniLM's test
WIDE = 51_200  # tokens between calibration and test that say what one test text leaves undecided


def main(
    asked: Annotated[str, typer.Option("--cells", help="model:keep or model:keep:method with commas.")] = "",
    calibration: Annotated[int, typer.Option(help="Tokens.")] = 12_288,
    test: Annotated[int, typer.Option(help="Tokens.")] = 4096,
    length: Annotated[int, typer.Option(help="Tokens a window.")] = 512,
    own_text: Annotated[int, typer.Option(help="Tokens that the given model writes itself.")] = 2_000_000,
    rate: Annotated[float, typer.Option(help="Of the distillation on it; 0 tries several.")] = 0,
    device: str = "cpu",
    out: Annotated[Path, typer.Option("--record")] = RECORD,
) -> None:
    """Compute the cells that the record does not have."""
    settings = {"calibration_tokens": calibration, "test_tokens": test, "length": length, "epochs": EPOCHS}
    record = read_record(out, {"settings": settings, "cells": {}})
    if record["settings"] != settings:
        raise SystemExit(f"{out} is of {record['settings']}, these are {settings}; give another --record")
    for name, keep, method in cells(asked, own_text):
        key = f"{name}:{keep}:{method}"
        if key in record["cells"]:
            continue
        terms: int | Distillation = EPOCHS * ("+" in method)
        if method.endswith("own text"):
            terms = Distillation(own_text=own_text, rates=(rate,) * (rate > 0) or RATES)
        cell = computed(name, keep, method, terms, prepared(name, calibration, test, length), device)
        record["cells"][key] = cell | facts(device) | {"threads": torch.get_num_threads()}
        write_record(out, record)
        print(key, f"{cell['before']:.4f} -> {cell['after']:.4f}", f"{cell['seconds']:.0f} s", flush=True)


def computed(
    name: str, keep: float, method: str, terms: int | Distillation, loaded: tuple[Any, Any, Parts], device: str
) -> dict[str, Any]:
    """The cell of a model, a share of neurons and a method."""
    model, tokenizer, parts = loaded
    base, length = method.partition(" + ")[0], parts.calibration.shape[1]
    small = shrink(model, keep, parts, method=base, length=length, distill=terms, device=device, progress=True)
    cell = {key: value for key, value in small.plain().items() if key not in ("layers", "distillation")}
    cell |= {"method": method, "errors": [round(layer.error, 5) for layer in small.layers]}
    if (course := small.distillation) is not None:
        cell |= {"distillation": list(course.losses), "rate": course.rate, "own_text": course.own_text}
    if small.measure == "log perplexity":
        cell["windows"] = window_excess(model, small.model, parts.test)["windows"]
    if name == "smollm2":  # also the windows before the test part, which are more
        rows = windows("fineweb-edu", tokenizer, length)[: -len(parts.test)]
        rows = rows[-min(WIDE // length, len(rows) - len(parts.calibration)) :]
        cell["wide"] = window_excess(model, small.model, rows)
    if name == "minilm":
        cell["sentences"] = sentence_cosine(model, small.model, tokenizer)
    return cell


def cells(asked: str, own_text: int) -> list[tuple[str, float, str]]:
    """The cells in the order of their weight, or those that are asked for; own text with its amount or without."""
    # What is written is part of a cell's name, so that one record can hold several amounts.
    written = f"{own_text / 1e6:g}M own text"
    methods = [method.replace("own text", written) for method in METHODS]
    everything = list(product(("smollm2", "stories260k"), KEEPS, methods))
    # MiniLM predicts no next token: it cannot write.
    everything += product(("minilm",), KEEPS, [method for method in methods if "own text" not in method])
    if not asked:
        return everything
    wanted = [part.strip().replace("+ own text", f"+ {written}").split(":") for part in asked.split(",")]
    chosen = [cell for cell in everything if any(list(map(str, cell))[: len(names)] == names for names in wanted)]
    if not chosen:
        raise SystemExit(f"no cell is called {asked!r}; give some of {everything}")
    return chosen


@cache
def prepared(name: str, calibration: int, test: int, length: int) -> tuple[Any, Any, Parts]:
    """A model, its tokenizer, and windows: calibration from the beginning of the text, test from its end."""
    model, tokenizer = load_model(name)
    if name == "stories260k":
        starts = [torch.full((size // length, 1), model.config.bos_token_id) for size in (calibration, test)]
        written = [continued(model, start, length, seed=seed) for seed, start in enumerate(starts)]
        return model, tokenizer, Parts(*written)
    if name == "minilm":
        length = min(length, 128)
    rows = windows("fineweb-edu", tokenizer, length)
    first, last = calibration // length, test // length
    if first + last > len(rows):
        raise SystemExit(f"the text has {len(rows)} windows, {first + last} are asked for")
    return model, tokenizer, Parts(rows[:first], rows[-last:])


def window_excess(dense: Any, small: Any, rows: Tensor) -> dict[str, Any]:
    """The mean loss of windows by the smaller model less that by the given one, its interval, and that of each."""
    device = next(small.parameters()).device
    before, after = (token_losses(model.to(device), rows).double().mean(1) for model in (copy.deepcopy(dense), small))
    excess = t_interval((after - before).numpy())
    facts = {"tokens": rows.numel(), "value": excess.value, "low": excess.low, "high": excess.high}
    return {**facts, "windows": [round(value, 6) for value in (after - before).tolist()]}


@torch.no_grad()
def sentence_cosine(dense: Any, small: Any, tokenizer: Any) -> float:
    """The mean cosine of embeddings (means over tokens) of sentences from the last part of the text."""
    text = Path(text_file("fineweb-edu", None)).read_text()[-200_000:]
    sentences = [part.strip() for part in text.replace("\n", " ").split(". ") if 40 < len(part) < 300][:SENTENCES]
    cosines = []
    for start in range(0, len(sentences), 32):
        batch = tokenizer(sentences[start : start + 32], padding=True, truncation=True, return_tensors="pt")
        mask, means = batch["attention_mask"][..., None].float(), []
        for model in (dense, small):
            states = model(**batch.to(next(model.parameters()).device))[0].cpu()
            means.append((states * mask).sum(1) / mask.sum(1))
        cosines.append(functional.cosine_similarity(*means, dim=-1))
    return float(torch.cat(cosines).double().mean())


if __name__ == "__main__":
    typer.run(main)
