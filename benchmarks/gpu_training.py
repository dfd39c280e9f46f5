"""The record of the generalization gap: `python -m benchmarks.gpu_training results/ntk/gap.json`, on a GPU.

Mixer and ViT on CIFAR-10 with SGD and AdamW, GPT-2 on the sample of FineWeb-Edu, five seeds of each unit in one pass,
several such passes beside each other. GATELAB_DATA names the folder with cifar10/, text/ and gpt2_bpe/. The file is
written after every pass; passes that it has are not run again. `--whole` and `--schedule` are for records of their own.
NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) lets passes overlap.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import joblib
import torch
import typer

from benchmarks.harness import facts
from gatelab.train import Gap, History, Recipe, gap_recipes, train_many
from gatelab.train.members import data_of

PAIRS = ("mlp", "glu", "silu", "swiglu")  # of the paper, for images and for text
OTHERS = ("gqu", "relu2")
WHOLE_UNITS = ("mlp", "glu", "gelu", "geglu", "silu", "swiglu")
OPTIMIZERS = ("sgd", "adamw")
IMAGES: dict[str, Any] = {"batch": 128, "options": {"layers": 6, "d_model": 128, "width": 480}}
MODELS: dict[str, dict[str, Any]] = {
    "mixer": {**IMAGES, "options": {**IMAGES["options"], "token_width": 96}},
    "vit": {**IMAGES, "options": {**IMAGES["options"], "heads": 4}},
    "gpt2": {"batch": 16, "options": {"layers": 4, "d_model": 192, "heads": 6, "width": 768, "context": 128}},
}
STEPS = "mixer=7600,vit=3000,gpt2=1500"
TINY: dict[str, Any] = {"size": "tiny", "batch": 8, "evaluations": 4, "test_size": 64, "options": {}}
Pass = tuple[Recipe, ...]  # seeds of one unit and optimizer, trained together


def lasting(one: Pass, steps: int) -> Pass:
    return tuple(replace(recipe, steps=steps, warmup=min(100, steps // 10)) for recipe in one)


def whole_passes(seeds: int, schedule: str) -> list[Pass]:
    """ReLU, GELU and SiLU with and without a gate on the whole of CIFAR-10."""
    values = {"steps": 100, "schedule": schedule, "test_size": 5000, "evaluations": 30, "seeds": seeds}
    images = ("mixer", "vit")
    groups = (gap_recipes(WHOLE_UNITS, model=m, optimizers=OPTIMIZERS, **MODELS[m], **values) for m in images)
    return [tuple(group) for of_model in groups for group in of_model]


def passes(seeds: int, tiny: bool) -> list[Pass]:
    """All of them: first the pairs of the paper, then the units that it did not try."""
    made: list[Pass] = []
    for model, values in MODELS.items():
        text = model == "gpt2"
        pair, optimizers = (PAIRS[2:], ("adamw",)) if text else (PAIRS[:2], OPTIMIZERS)
        more = {**TINY, "tokenizer": "bytes"} if tiny and text else TINY if tiny else values
        groups = gap_recipes((*pair, *OTHERS), model=model, optimizers=optimizers, seeds=seeds, steps=100, **more)
        made += map(tuple, groups)
    return sorted(made, key=lambda one: one[0].unit.name in OTHERS)


def work(one: Pass, device: str, compile: bool, deadline: float) -> tuple[Pass, list[dict[str, Any]], str]:
    """Train a pass in a process of its own, unless the time is up; its histories, or what failed."""
    if time.time() > deadline:
        return one, [], "left out: the time was up"
    torch.set_num_threads(1)  # a dozen processes with several threads each wait for each other
    try:
        histories = train_many(one, data=data_of(one[0], None), device=device, compile=compile)
    except Exception:  # whatever it is, the other passes are trained
        return one, [], traceback.format_exc()
    return one, [h.plain() for h in histories], ""


def main(
    out: Path,
    minutes: Annotated[float, typer.Option(help="After them no pass begins.")] = 9.0,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Passes beside each other.")] = 3,
    device: str = "cuda",
    compile: Annotated[bool, typer.Option("--compile")] = False,
    steps: Annotated[str, typer.Option(help="Of each model; models without them are left out.")] = STEPS,
    tiny: Annotated[bool, typer.Option("--tiny", help="Small models, few steps, bytes for tokens.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All of CIFAR-10, three activations, gated and not.")] = False,
    schedule: Annotated[
        str, typer.Option(help="With --whole; constant: runs at equal loss have equal rates.")
    ] = "cosine",
    optimizer: Annotated[str, typer.Option(help="sgd or adamw alone.", show_default="both")] = "",
) -> None:
    began = time.time()
    lengths = {model: int(n) for model, n in (part.split("=") for part in steps.split(","))}
    if tiny:
        lengths = dict.fromkeys(MODELS, 12)
    todo = whole_passes(seeds, schedule) if whole else passes(seeds, tiny)
    chosen = [p for p in todo if p[0].model in lengths and optimizer in ("", p[0].optimizer)]
    todo = [lasting(p, lengths[p[0].model]) for p in chosen]
    # Before the processes start: what is encoded once is read by all.
    for first in {p[0].model: p[0] for p in reversed(todo)}.values():
        images = len(data_of(first, None).train)
        if whole and images != 50_000:
            raise typer.BadParameter(f"--whole needs the 50 000 images of CIFAR-10, GATELAB_DATA has {images}")
    what = f"{seeds} seeds a unit and optimizer, trained together; {jobs} such passes at a time on one device"
    origin: dict[str, Any] = {"what": what, **facts(device), "steps": lengths, "failures": []}
    histories = list(Gap.load(out).histories) if out.is_file() else []
    known = {h.recipe.key() for h in histories}
    missing = [p for p in todo if not all(r.key() in known for r in p)]
    pool = joblib.Parallel(jobs, return_as="generator_unordered")
    for one, found, failure in pool(joblib.delayed(work)(p, device, compile, began + 60 * minutes) for p in missing):
        histories += [History.from_plain(h) for h in found]
        name = f"{one[0].model}, {one[0].data}, {one[0].unit.name}, {one[0].optimizer}"
        if failure:
            origin["failures"].append({"pass": name, "error": failure})
        print(f"{time.time() - began:6.1f} s  {name} {failure}", flush=True)
        Gap(tuple(histories), {**origin, "seconds": round(time.time() - began, 1)}).save(out)
    print(Gap(tuple(histories)).table().to_string(), flush=True)


if __name__ == "__main__":
    typer.run(main)
