"""The record of the generalisation gap: `python benchmarks/gpu_training.py results/ntk/gap.json`, on a GPU.

Mixer and ViT on CIFAR-10 with SGD and AdamW, GPT-2 on the sample of FineWeb-Edu, five seeds of each unit in one pass,
several such passes beside each other on one device. GATELAB_DATA names the folder with cifar10/, text/ and gpt2_bpe/.
A short pass of each model first tells how many steps `--minutes` allow, unless `--steps` says it; all units of a model
get the same number. Passes that OUT holds already are not run again. The file is written anew after every pass, and
what the paper compares comes first: whatever ends the script, what was done is there. `--asked` leaves the other units
out, `--tiny` is the same in small, for a CPU.

`--whole` asks another question: all 50 000 images of CIFAR-10, tested on 5000 others, ReLU, GELU and SiLU each with and
without a gate, for Mixer and ViT; `--schedule constant` the same without the fall of the learning rate, so that runs at
equal loss also have equal rates. These go into records of their own. The passes wait for Python more than for the GPU:
NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) lets six of them run beside each other.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

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
STEPS = {"mixer": (1000, 8000), "vit": (1000, 8000), "gpt2": (600, 2000)}  # the fewest that say something, the most
TINY: dict[str, Any] = {"size": "tiny", "batch": 8, "evaluations": 4, "test_size": 64, "options": {}}
MEASURING = 1.1  # what starting and ending add to the time of the steps


@dataclass(frozen=True)
class Pass:
    """Seeds of one unit and optimiser, trained together; `asked` where the paper compares them."""

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
        groups += gap_recipes(WHOLE_UNITS, model=model, optimisers=("sgd", "adamw"), seeds=seeds, **values)
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
        units, optimisers = (TEXT_UNITS, ("adamw",)) if text else (UNITS[model], ("sgd", "adamw"))
        more = {**TINY, "tokenizer": "bytes"} if tiny and text else TINY if tiny else values
        for group in gap_recipes(units, model=model, optimisers=optimisers, seeds=seeds, steps=100, **more):
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


def finished(tasks: dict[Future[list[dict[str, Any]]], Pass]) -> Iterator[tuple[Pass, list[History], str]]:
    """Each pass as it ends, with its histories or with what went wrong."""
    for future in as_completed(tasks):
        try:
            yield tasks[future], [History.from_plain(h) for h in future.result()], ""
        except Exception:
            yield tasks[future], [], traceback.format_exc()


def plan_steps(todo: list[Pass], seconds: dict[str, float], left: float, jobs: int) -> dict[str, int]:
    """Steps for each model: as many as fit into the seconds that are left, each model the same share of its most.

    Passes beyond those that the paper asks for are left out of the sum where the share would be less than 0.3.
    """
    for chosen in (todo, [p for p in todo if p.asked]):
        whole = sum(STEPS[p.model][1] * seconds[p.model] for p in chosen) * MEASURING / jobs
        share = min(1.0, left / whole)
        if share >= 0.3:
            break
    return {m: max(least, int(most * share) // 100 * 100) for m, (least, most) in STEPS.items()}


def trials(
    pool: ProcessPoolExecutor, todo: list[Pass], where: str, compile: bool, tiny: bool, made: dict[str, Any]
) -> dict[str, float]:
    """Seconds a step of each model, from a short pass; models that fail are left out, and said to have failed."""
    trial, short = {}, 8 if tiny else 90
    for model in MODELS:
        first = next(p for p in todo if p.model == model).lasting(short)
        few = tuple(replace(r, evaluations=3) for r in first.recipes)
        trial[pool.submit(work, few, where, compile, None)] = first
    seconds: dict[str, float] = {}
    for done, found, error in finished(trial):
        if error:
            made["failures"].append({"pass": f"trial of {done.model}", "error": error})
            print(error, flush=True)
            continue
        h = found[0]
        seconds[done.model] = float((h.seconds[-1] - h.seconds[-2]) / (h.steps[-1] - h.steps[-2]))
        print(f"{done.model}: {1000 * seconds[done.model]:.1f} ms a step of {h.together} seeds", flush=True)
    return seconds


def main(
    out: Path,
    minutes: Annotated[float, typer.Option(help="For everything.")] = 9.0,
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Passes beside each other.")] = 3,
    device: Annotated[str | None, typer.Option(show_default="cuda if there is one")] = None,
    compile: Annotated[bool, typer.Option("--compile")] = False,
    steps_of: Annotated[str, typer.Option("--steps", help="mixer=7600,vit=3000,gpt2=1500: no trial.")] = "",
    asked: Annotated[bool, typer.Option("--asked", help="Only what the paper compares.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Small models, few steps, bytes for tokens.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All of CIFAR-10, three activations, gated and not.")] = False,
    schedule: Annotated[str, typer.Option(help="cosine or constant, with --whole.")] = "cosine",
    optimiser: Annotated[str, typer.Option(help="sgd or adamw alone.", show_default="both")] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Keeps passes that are under way, which go on from there.")
    ] = None,
) -> None:
    began = time.monotonic()
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    everything = whole_passes(seeds, schedule) if whole else passes(seeds, tiny)
    todo = [p for p in everything if p.asked or not asked]
    todo = [p for p in todo if optimiser in ("", p.recipes[0].optimiser)]
    # Before the processes start: what is encoded once is read by all.
    for model in dict.fromkeys(p.model for p in todo):
        data = load(next(p for p in todo if p.model == model).recipes[0], None)
        if whole:
            require_whole(data)
    made: dict[str, Any] = {
        "what": f"{seeds} seeds a unit and optimiser, trained together; {jobs} such passes at a time on one device",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python {' '.join(sys.argv)}",
        "device": torch.cuda.get_device_name() if where == "cuda" else where,
        "torch": torch.__version__,
        "failures": [],
    }
    histories: list[History] = []
    if out.is_file():
        before = Gap.load(out)
        histories += before.histories
        made["earlier"] = {
            k: v for k, v in before.origin.items() if k in ("date", "command", "device", "seconds", "earlier")
        }

    def keep() -> None:
        Gap(tuple(histories), {**made, "seconds": round(time.monotonic() - began, 1)}).save(out)

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        seconds: dict[str, float] = {}
        if steps_of:
            steps = {model: int(n) for model, n in (part.split("=") for part in steps_of.split(","))}
            seconds = dict.fromkeys(steps, 0.0)
            todo = [p for p in todo if p.model in steps]
        else:
            seconds = trials(pool, todo, where, compile, tiny, made)
            todo = [p for p in todo if p.model in seconds]
            left = minutes * 60 - (time.monotonic() - began)
            steps = dict.fromkeys(MODELS, 12) if tiny else plan_steps(todo, seconds, left, jobs)
        made["steps"] = {m: steps[m] for m in seconds}
        made["milliseconds_a_step"] = {m: round(1000 * s, 2) for m, s in seconds.items()}
        print(json.dumps(made["steps"]), flush=True)
        keep()
        known = {h.recipe.key() for h in histories}
        waiting = [p.lasting(steps[p.model]) for p in todo]
        waiting = [p for p in waiting if not all(r.key() in known for r in p.recipes)]
        running: dict[Future[list[dict[str, Any]]], Pass] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                one = waiting.pop(0)
                needs = steps[one.model] * seconds[one.model] * MEASURING
                if time.monotonic() - began + needs > minutes * 60 and not tiny:
                    made.setdefault("left_out", []).append(name_of(one))
                    continue
                running[pool.submit(work, one.recipes, where, compile, folder)] = one
            if not running:
                break
            done, found, error = next(finished(running))
            running = {f: p for f, p in running.items() if p is not done}
            if error:
                made["failures"].append({"pass": name_of(done), "error": error})
                print(error, flush=True)
            histories += found
            for h in found[:1]:
                print(f"{time.monotonic() - began:6.1f} s  {h}", flush=True)
            keep()
    keep()
    print(Gap(tuple(histories)).table().to_string(), flush=True)


def name_of(one: Pass) -> str:
    r = one.recipes[0]
    return f"{r.model}, {r.data}, {r.unit.name}, {r.optimiser}"


if __name__ == "__main__":
    typer.run(main)
