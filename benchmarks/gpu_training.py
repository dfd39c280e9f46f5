"""The record of the generalization gap: `python -m benchmarks.gpu_training results/ntk/gap.json`, on a GPU.

Mixer and ViT on CIFAR-10 with SGD and AdamW, GPT-2 on the sample of FineWeb-Edu, five seeds of each unit in one pass,
several such passes beside each other on one device. GATELAB_DATA names the folder with cifar10/, text/ and gpt2_bpe/.
All units of a model get the same number of steps. Passes that OUT holds already are not run again. The file is written
anew after every pass, and what the paper compares comes first: whatever ends the script, what was done is there.
`--asked` leaves the other units out, `--tiny` is the same in small, for a CPU.

`--whole` asks another question: all 50 000 images of CIFAR-10, tested on 5000 others, ReLU, GELU and SiLU each with and
without a gate, for Mixer and ViT; `--schedule constant` the same without the fall of the learning rate, so that runs at
equal loss also have equal rates. These go into records of their own. The passes wait for Python more than for the GPU:
NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) lets six of them run beside each other.
"""

from __future__ import annotations

import time
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.harness import facts
from gatelab.train import Gap, History, Recipe, gap_recipes, train_many
from gatelab.train.members import Data
from gatelab.train.members import data_of as load

UNITS = {"mixer": ("mlp", "glu", "gqu", "relu2"), "vit": ("mlp", "glu", "gqu", "relu2")}
TEXT_UNITS = ("silu", "swiglu", "gqu", "relu2")
WHOLE_UNITS = ("mlp", "glu", "gelu", "geglu", "silu", "swiglu")
WHOLE_IMAGES = 50000
IMAGES: dict[str, Any] = {"batch": 128, "options": {"layers": 6, "d_model": 128, "width": 480}}
MODELS: dict[str, dict[str, Any]] = {
    "mixer": {**IMAGES, "options": {**IMAGES["options"], "token_width": 96}},
    "vit": {**IMAGES, "options": {**IMAGES["options"], "heads": 4}},
    "gpt2": {"batch": 16, "options": {"layers": 4, "d_model": 192, "heads": 6, "width": 768, "context": 128}},
}
STEPS = "mixer=7600,vit=3000,gpt2=1500"
TINY: dict[str, Any] = {"size": "tiny", "batch": 8, "evaluations": 4, "test_size": 64, "options": {}}


@dataclass(frozen=True)
class Pass:
    """Seeds of one unit and optimizer, trained together; `asked` where the paper compares them."""

    recipes: tuple[Recipe, ...]
    asked: bool

    @property
    def model(self) -> str:
        return self.recipes[0].model

    def lasting(self, steps: int) -> Pass:
        warmup = min(100, steps // 10)
        return replace(self, recipes=tuple(replace(r, steps=steps, warmup=warmup) for r in self.recipes))


def whole_passes(seeds: int, schedule: str) -> list[Pass]:
    """ReLU, GELU and SiLU with and without a gate on the whole of CIFAR-10, every one of them asked for."""
    groups = []
    for model in ("mixer", "vit"):
        values = {**MODELS[model], "steps": 100, "schedule": schedule, "test_size": 5000, "evaluations": 30}
        groups += gap_recipes(WHOLE_UNITS, model=model, optimizers=("sgd", "adamw"), seeds=seeds, **values)
    return [Pass(tuple(group), asked=True) for group in groups]


def require_whole(data: Data) -> None:
    if len(data.train) != WHOLE_IMAGES:
        raise typer.BadParameter(
            f"--whole needs the {WHOLE_IMAGES} images of CIFAR-10, GATELAB_DATA has {len(data.train)}"
        )


def passes(seeds: int, tiny: bool) -> list[Pass]:
    """All of them: first the pairs of the paper, then the units that it did not try."""
    made = []
    for model, values in MODELS.items():
        text = model == "gpt2"
        units, optimizers = (TEXT_UNITS, ("adamw",)) if text else (UNITS[model], ("sgd", "adamw"))
        more = {**TINY, "tokenizer": "bytes"} if tiny and text else TINY if tiny else values
        for group in gap_recipes(units, model=model, optimizers=optimizers, seeds=seeds, steps=100, **more):
            made.append(Pass(tuple(group), asked=group[0].unit.name in units[:2]))
    return sorted(made, key=lambda p: not p.asked)


@lru_cache(maxsize=2)
def data_of(name: str, model: str, tokenizer: str) -> Data:
    """Read once a process."""
    return load(replace(passes(1, True)[0].recipes[0], model=model, data=name, tokenizer=tokenizer), None)


def work(recipes: tuple[Recipe, ...], device: str, compile: bool, folder: Path | None) -> list[dict[str, Any]]:
    torch.set_num_threads(1)  # a dozen processes with several threads each wait for each other
    first = recipes[0]
    data = data_of(first.data, first.model, first.tokenizer)
    histories = train_many(
        recipes,
        data=data,
        device=device,
        compile=compile,
        folder=None if folder is None else folder / first.key(),
        save_seconds=60,
    )
    return [h.plain() for h in histories]


def main(
    out: Path,
    minutes: Annotated[float, typer.Option(help="After them no pass begins.")] = 9.0,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Passes beside each other.")] = 3,
    device: Annotated[str | None, typer.Option(show_default="cuda if there is one")] = None,
    compile: Annotated[bool, typer.Option("--compile")] = False,
    steps: Annotated[str, typer.Option(help="Of each model; models without them are left out.")] = STEPS,
    asked: Annotated[bool, typer.Option("--asked", help="Only what the paper compares.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Small models, few steps, bytes for tokens.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All of CIFAR-10, three activations, gated and not.")] = False,
    schedule: Annotated[str, typer.Option(help="cosine or constant, with --whole.")] = "cosine",
    optimizer: Annotated[str, typer.Option(help="sgd or adamw alone.", show_default="both")] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Keeps passes that are under way, which go on from there.")
    ] = None,
) -> None:
    began = time.monotonic()
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    lengths = {model: int(n) for model, n in (part.split("=") for part in steps.split(","))}
    if tiny:
        lengths = dict.fromkeys(MODELS, 12)
    todo = whole_passes(seeds, schedule) if whole else passes(seeds, tiny)
    todo = [p for p in todo if p.model in lengths and (p.asked or not asked)]
    todo = [p.lasting(lengths[p.model]) for p in todo if optimizer in ("", p.recipes[0].optimizer)]
    # Before the processes start: what is encoded once is read by all.
    for model in dict.fromkeys(p.model for p in todo):
        data = load(next(p for p in todo if p.model == model).recipes[0], None)
        if whole:
            require_whole(data)
    what = f"{seeds} seeds a unit and optimizer, trained together; {jobs} such passes at a time on one device"
    origin: dict[str, Any] = {"what": what, **facts(where), "steps": lengths, "failures": []}
    histories: list[History] = []
    if out.is_file():
        before = Gap.load(out)
        histories += before.histories
        earlier = ("date", "command", "device", "seconds", "earlier")
        origin["earlier"] = {k: v for k, v in before.origin.items() if k in earlier}
    known = {h.recipe.key() for h in histories}

    def train(one: Pass) -> list[dict[str, Any]]:
        """Train a pass in a process of the pool, unless the time is up."""
        if time.monotonic() - began > 60 * minutes:
            origin.setdefault("left_out", []).append(name_of(one))
            return []
        return pool.submit(work, one.recipes, where, compile, folder).result()

    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        ThreadPoolExecutor(jobs) as waiting,
    ):
        tasks = {waiting.submit(train, p): p for p in todo if not all(r.key() in known for r in p.recipes)}
        for task in as_completed(tasks):
            try:
                histories += [History.from_plain(h) for h in task.result()]
            except Exception:
                origin["failures"].append({"pass": name_of(tasks[task]), "error": traceback.format_exc()})
                print(origin["failures"][-1]["error"], flush=True)
            print(f"{time.monotonic() - began:6.1f} s  {name_of(tasks[task])}", flush=True)
            Gap(tuple(histories), {**origin, "seconds": round(time.monotonic() - began, 1)}).save(out)
    print(Gap(tuple(histories)).table().to_string(), flush=True)


def name_of(one: Pass) -> str:
    r = one.recipes[0]
    return f"{r.model}, {r.data}, {r.unit.name}, {r.optimizer}"


if __name__ == "__main__":
    typer.run(main)
