"""`ladder`: the runs and learning rates of a ladder, stage by stage.

Learning rates are swept at the two smallest sizes, a rule lr = a_unit d_model^-s extrapolates the best of them, and
sweeps around its rates at the third size refine it. Then every unit is trained at all sizes with all seeds. Rates are
tuned on the validation part of the text; the reported losses are on its test part.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from gatelab.data.text import TextData
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.memory import check_device
from gatelab.statistics import Interval
from gatelab.sweep import Backend, Record, Store, map_runs
from gatelab.sweep.backends import seconds_of, stopped
from gatelab.train.ladder_runs import LadderRun, read_text, run_of, text_fingerprint
from gatelab.train.ladders import Ladder
from gatelab.train.members import config_of
from gatelab.train.rates import FACTOR, RateRule, further_rates, rounded_rate
from gatelab.train.recipes import TEXT_MODELS, Recipe, recipe

UNITS = ("gelu", "relu2", "reglu", "geglu", "swiglu", "gqu")
LADDER_SIZES = ("0.4M", "1.3M", "3.2M", "11M", "26M")
RATES = tuple(2e-3 * FACTOR**k for k in range(4))
TUNED = 2  # sizes at which learning rates are swept, the smallest
PARTS = 10_000  # the total of the progress
ROUNDS = 3  # the largest number of extensions of a sweep whose best rate is at an end
SHARED = ("model", "optimizer", "tokenizer", "batch", "steps", "schedule", "weight_decay", "beta2", "clip", "warmup")
# All stages in minutes on two cores, on a text that comes with Python.
QUICK: Mapping[str, Any] = {
    "units": ("gelu", "swiglu"), "sizes": ("tiny", "mini", "small"), "seeds": 3, "batch": 8, "steps": 120,
    "test_size": 200,
}  # fmt: skip
Rates = Mapping[str, float] | RateRule


@dataclass(frozen=True)
class LadderPlan:
    """The recipes of a ladder by unit and size, and the numbers of seeds and repeats."""

    text: str
    fingerprint: str  # of the text
    recipes: Mapping[tuple[str, str], Recipe]  # of each unit and size, smallest first, without learning rate and seed
    seeds: int
    repeats: tuple[int, ...]  # the number of passes over the text, for each regime

    @property
    def sizes(self) -> list[str]:
        return list(dict.fromkeys(size for _, size in self.recipes))

    @property
    def checked(self) -> list[str]:
        """The size at which learning rates are swept around those of the rule."""
        return self.sizes[TUNED : TUNED + 1]

    def facts(self) -> dict[str, Any]:
        first = next(iter(self.recipes.values()))
        return {**{name: getattr(first, name) for name in SHARED}, "context": config_of(first).context}

    def sweep(self, unit: str, size: str, lrs: Iterable[float]) -> LadderRun:
        return LadderRun(self.recipes[unit, size], tuple(lrs), (0,), 1, "valid")

    def sweeps(self) -> list[LadderRun]:
        """The first sweeps, at the smallest sizes."""
        return [self.sweep(unit, size, RATES) for unit, size in self.recipes if size in self.sizes[:TUNED]]

    def extensions(self, ladder: Ladder, sizes: Sequence[str]) -> list[LadderRun]:
        """Further rates for sweeps whose best rate is at an end: two at small sizes, one at large ones."""
        runs = []
        for unit, size, _, *sweep in ladder.sweeps():
            further = further_rates(*sweep, count=2 if size in self.sizes[: TUNED + 1] else 1)
            if further and size in sizes and (unit, size) in self.recipes:
                runs.append(self.sweep(unit, size, further))
        return runs

    def checks(self, rule: RateRule) -> list[LadderRun]:
        """Sweeps around the rates of the rule, at sizes that are not yet part of it."""
        return [
            self.sweep(
                unit, size, [rounded_rate(rule.rate(unit, config_of(own).d_model) * FACTOR**k) for k in (-1, 0, 1)]
            )
            for (unit, size), own in self.recipes.items()
            if size in self.checked
        ]

    def tests(self, rate: Callable[[str, int], float]) -> list[LadderRun]:
        """All units, sizes and seeds, at the rates `rate(unit, d_model)`."""
        return [
            LadderRun(own, (rate(unit, config_of(own).d_model),), tuple(range(self.seeds)), repeats)
            for (unit, _), own in self.recipes.items()
            for repeats in self.repeats
        ]

    def stages(self, lrs: Rates | None) -> list[Callable[[Ladder], list[LadderRun]]]:
        """The stages; each is a function from the ladder so far to the next runs."""
        if lrs is not None:
            return [lambda _: self.expected(lrs)]
        return [
            lambda _: self.sweeps(),
            *[lambda ladder: self.extensions(ladder, self.sizes[:TUNED])] * ROUNDS,
            lambda ladder: self.checks(ladder.rule()),
            *[lambda ladder: self.extensions(ladder, self.checked)] * ROUNDS,
            lambda ladder: self.tests(ladder.rule().rate),
        ]

    def expected(self, lrs: Rates | None) -> list[LadderRun]:
        """The runs that are certain in advance; unknown learning rates are 1."""
        units, flat = dict.fromkeys((unit for unit, _ in self.recipes), 1.0), Interval(0.0, math.nan, math.nan)
        if lrs is None:
            unknown = RateRule(units, flat)
            return self.tests(unknown.rate) + self.sweeps() + self.checks(unknown)
        rule = lrs if isinstance(lrs, RateRule) else RateRule(rates_by_name(lrs, units), flat)
        missing = [unit for unit in units if unit not in rule.scales]
        if missing:
            raise GatelabError(f"lrs has no learning rate of {', '.join(missing)}; give one for each")
        return self.tests(rule.rate)


def rates_by_name(lrs: Mapping[Any, float], units: Container[str]) -> dict[str, float]:
    """Learning rates by the units' own names: the name of "reglu" is "glu"."""
    if not isinstance(lrs, Mapping):
        raise GatelabError(f"lrs is {lrs!r}; give a learning rate for each unit, such as {{'gelu': 0.003}}")
    rates: dict[str, float] = {}
    for given, lr in lrs.items():
        name = given if given in units else as_unit(given).name
        if not (isinstance(lr, Real) and 0 < lr < math.inf):
            raise GatelabError(f"the lr of {name} is {lr!r}; give a finite number above 0")
        if rates.setdefault(name, lr) != lr:
            raise GatelabError(f"lrs has both {rates[name]:g} and {lr:g} for {name}, one as {given!r}; give one")
    return rates


def ladder(
    units: Sequence[Any] = UNITS,
    data: str | Path = "enwik8",
    sizes: Sequence[str] = LADDER_SIZES,
    seeds: int = 3,
    *,
    repeats: Sequence[int] = (1,),
    lrs: Mapping[str, float] | RateRule | None = None,
    store: Store | str | Path | None = None,
    backend: Backend = "serial",
    jobs: int | None = None,
    device: str | None = None,
    max_hours: float | None = None,
    progress: ProgressLike = None,
    **options: Any,
) -> Ladder:
    """Train a language model with every unit at every size, each unit at its own best learning rate.

    Args:
        units: names or other arguments of `gl.unit`, each once; those of a notebook without a store, serially.
        data: "enwik8", another text of `gl.data.text_data`, or a file.
        sizes: of the model, smallest first.
        seeds: the number of trainings per unit and size; equal seeds have the same batches for every unit.
        repeats: numbers of epochs: 1 reads every token once, 20 reads a twentieth of the text twenty times.
        lrs: learning rates by unit, for all sizes, or a rule; None sweeps them at the smallest sizes and fits a rule.
        store: a file that keeps every finished run, with checkpoints in a folder next to it; the same call resumes.
        backend: "serial", "processes" or "ray", which takes a GPU for each run where the device is one.
        jobs: the number of parallel runs.
        device: None for a GPU if there is one, else the CPU.
        max_hours: after which no new run starts.
        progress: False for none, or a function of (done, total, run), called whenever a run ends; operations count.
        **options: values of the recipes: model, optimizer, tokenizer, batch, steps, weight_decay, options and so on.

    Returns:
        All trainings, with tables, laws and figures.
    """
    plan = plan_ladder(units, data, sizes, seeds, repeats, options)
    seconds_of(max_hours)  # refuses negative hours
    if store is not None or backend != "serial":
        for own in plan.recipes.values():
            own.plain()  # raises if a unit cannot be imported by other processes
    if device is not None:
        check_device(device, torch.float32)
    how: dict[str, Any] = {"store": store, "backend": backend, "jobs": jobs, "device": device, "max_hours": max_hours}
    total, done, began = sum(run.flops for run in plan.expected(lrs)), 0.0, time.monotonic()
    result = Ladder(plan.text, (), plan.facts())
    with reporting(progress, "training the ladder") as report:
        for stage in plan.stages(lrs):
            for record in completed(stage(result), plan.fingerprint, began, **how):
                result, run = replace(result, records=(*result.records, record)), run_of(record.arguments)
                done += run.flops
                if report:
                    report(int(PARTS * done / max(total, done)), PARTS, repr(run))
    return result


def plan_ladder(
    units: Any, data: str | Path, sizes: Any, seeds: int, repeats: Any, options: Mapping[str, Any]
) -> LadderPlan:
    """The plan of a ladder, with every value checked."""
    units, sizes, repeats = (
        list(each) if isinstance(each, Iterable) and not isinstance(each, str) and not callable(each) else [each]
        for each in (units, sizes, repeats)
    )
    names = [as_unit(u).name for u in units]
    for what, values in (("units", names), ("sizes", sizes), ("repeats", repeats)):
        if not values or len(set(values)) < len(values):
            raise GatelabError(f"the {what} are {values}; give one or more, each once")
    for name, number in (("seeds", seeds), *(("repeats", times) for times in repeats)):
        whole_number(name, number, 1)
    values = {"model": "decoder", "tokenizer": "bytes", "batch": 16, "evaluations": 4, **options}
    model = values.pop("model")
    if model not in TEXT_MODELS:
        raise unknown_name("model of text", str(model), TEXT_MODELS)
    content = read_text(str(data), values["tokenizer"])
    recipes: dict[tuple[str, str], Recipe] = {}
    counts: dict[str, int] = {}
    for size in sizes:
        for unit in units:
            own = recipe(model, unit, str(data), size=size, sampling="epochs", lr=1.0, **{"steps": 1, **values})
            config = config_of(own)
            if "steps" not in values:
                steps = len(content.train) // (config.context * own.batch)
                if steps < 1:
                    raise GatelabError(
                        f"{data} has {len(content.train)} training tokens, fewer than a batch of {own.batch} windows "
                        f"of {config.context}; give a longer text or a smaller batch"
                    )
                own = replace(own, steps=steps, warmup=min(100, steps // 10))
            check_windows(content, config.context, repeats)
            recipes[own.unit.name, size] = own
            counts[size] = config.body_count("mlp")
    if list(counts.values()) != sorted(counts.values()):
        raise GatelabError(f"the sizes are {', '.join(sizes)}; give them smallest first")
    return LadderPlan(Path(str(data)).name, text_fingerprint(str(data), content), recipes, seeds, tuple(repeats))


def check_windows(text: TextData, context: int, repeats: Sequence[int]) -> None:
    """Raise if a part of the text is shorter than a window and the next token."""
    assert text.valid is not None
    counts = (round(len(text.train) / max(repeats)), len(text.valid), len(text.test))
    if min(counts) <= context:
        raise GatelabError(
            f"with repeats {max(repeats)} a run has {counts[0]} training, {counts[1]} validation and {counts[2]} test "
            f"tokens of {text.name}, too few for a window of {context} and the token after it; give a longer text"
        )


def completed(
    runs: Sequence[LadderRun], text: str, began: float, *, store: Store | str | Path | None, backend: Backend,
    jobs: int | None, device: str | None, max_hours: float | None,
) -> Iterator[Record]:  # fmt: skip
    """Yield the records of runs as they end; raise if one failed, with the others kept in the store."""
    folder = None
    if store is not None:
        path = store.path if isinstance(store, Store) else Path(store)
        folder = str(path.with_name(path.name + ".checkpoints").resolve())
    if (seconds := seconds_of(max_hours)) is not None:
        seconds = max(0.0, seconds - (time.monotonic() - began))
    asked = {run.run(text, {"folder": folder, "device": device}): run for run in runs}
    gpus, ended = float(backend == "ray" and device != "cpu"), 0
    for record in map_runs(
        asked, store=store, backend=backend, jobs=jobs, retry_failed=True, max_seconds=seconds, gpus_per_run=gpus
    ):
        if not record.ok:
            why = " ".join((record.error or "").strip().splitlines()[-1:])
            raise GatelabError(f"{asked[record.run]!r} failed; a store keeps finished runs: {why}")
        ended += 1
        yield record
    if ended < len(asked):
        raise stopped(max_hours, f"{ended} of {len(asked)} runs done", store)


def quick_text() -> Path:
    """Half a million characters of English that come with Python: the topics of `help()`."""
    origin = getattr(importlib.util.find_spec("pydoc_data.topics"), "origin", None)
    if origin is None:
        raise GatelabError("this Python has no pydoc_data, whose text a quick ladder reads; give a text of your own")
    return Path(origin)
