"""`gatelab train`, a model with any unit, and `gatelab gap`, the generalization gaps of units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output, reading
from gatelab.cli.options import (
    Device,
    DryRun,
    OneUnit,
    Plot,
    UnitsAlone,
    argument,
    as_list,
    complete_unit,
    option,
    out_option,
    resuming,
    unit_option,
)
from gatelab.display import duration
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from gatelab.train import Comparison, Gap
    from gatelab.train.recipes import Recipe

BATCHES = {"mixer": 128, "vit": 128, "gpt2": 16}  # images, or windows of text
TEXT_MODELS = ("gpt2", "decoder")
TRAIN = """Examples: gatelab train mixer swiglu --steps 500 --store run
gatelab train gpt2 glu --text novel.txt --tokenizer bytes --size tiny
gatelab train vit gqu --optimizer sgd --lr 0.05 --set layers=4"""
GAP = """Examples: gatelab gap mlp glu --model vit --store runs --plot gap.png
gatelab gap silu swiglu --model gpt2 --text novel.txt --optimizer adamw --out gap.json
gatelab gap mlp glu --model mixer --seeds 8 --dry-run
gatelab gap --record results/ntk/gap.json --plot gap.png"""


def complete_model(incomplete: str) -> list[str]:
    """Models and units with this beginning, for the shell."""
    return [name for name in BATCHES if name.startswith(incomplete)] + complete_unit(incomplete)


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe of a training, its device, and the folder with its state."""

    data: Annotated[str | None, option("cifar10, mnist or tiny-imagenet.", metavar="NAME", default="cifar10")] = None
    text: Annotated[str | None, option("Text for gpt2: tinyshakespeare, ..., or a file.", default="fineweb-edu")] = None
    size: Annotated[str, option("tiny, small, base; of gpt2: tiny, small, gpt2.")] = "small"
    sizes: Annotated[list[str] | None, option("Replace a value of the size.", "--set", metavar="NAME=N")] = None
    lr: Annotated[float | None, option("Learning rate.", default="by model and optimizer")] = None
    steps: Annotated[int, option("Updates.", min=1)] = 2000
    batch: Annotated[int | None, option("Images or windows of text.", min=1, default="128; of text 16")] = None
    warmup: Annotated[int | None, option("Warmup steps.", min=0, default="a tenth, at most 100")] = None
    schedule: Annotated[str, option("cosine or constant.")] = "cosine"
    weight_decay: Annotated[float | None, option("On matrices.", min=0, default="by model and optimizer")] = None
    clip: Annotated[float, option("Maximal norm of the gradient; 0 for no limit.", min=0)] = 1.0
    augment: Annotated[bool, option("Crop and flip images at random, as in the paper.")] = True
    tokenizer: Annotated[str, option("gpt2 or bytes.")] = "gpt2"
    evaluations: Annotated[int, option("Number of measurements of the losses.", min=1)] = 40
    precision: Annotated[str, option("auto, float32 or bf16; auto is bf16 on a GPU.")] = "auto"
    device: Device = "auto"
    store: Annotated[Path | None, option("Keep the state here; the same command resumes.", metavar="DIR")] = None

    def where(self) -> dict[str, Any]:
        """The arguments for the device and the folder, which must be writable."""
        if self.store is not None:
            output.check_folder(self.store)
        return {"folder": self.store, "device": {"auto": None}.get(self.device, self.device)}

    def recipe(self, model: str) -> dict[str, Any]:
        """The values of a recipe for that model; those left out keep the defaults of the model."""
        if model not in TEXT_MODELS and self.text is not None:
            raise GatelabError(f"--text is for gpt2 and the model is {model}; give images with --data")
        if model in TEXT_MODELS and self.data is not None:
            if self.text is not None:
                raise GatelabError("both --data and --text are given; leave --data out")
            output.note("text is now given by --text; --data works until the next release")
        elsewhere = ("data", "text", "sizes", "device", "store")
        values = {name: value for name, value in vars(self).items() if name not in elsewhere and value is not None}
        values |= {"data": self.text or self.data, "batch": self.batch or BATCHES.get(model), "clip": self.clip or None}
        return {**values, "options": reading.settings("--set", self.sizes, "layers=4", whole=True)}


def train_command(
    *,
    words: Annotated[list[str], argument("MODEL|UNIT", "mixer, vit or gpt2, and a unit.", complete_model)],
    unit: OneUnit = None,
    optimizer: Annotated[str, option("sgd or adamw.")] = "adamw",
    training: TrainingOptions,
    seed: Annotated[int, option("The seed of weights and batches.", min=0)] = 0,
    compile: Annotated[bool, option("Use torch.compile.", "--compile")] = False,
    out: Annotated[Path | None, out_option("Write the losses by step, .csv.", ".csv")] = None,
) -> None:
    """Train a Mixer, a ViT or GPT-2 with any unit."""
    where = training.where()
    names, model = reading.units(words, as_list(unit))
    name = reading.one_unit(names, "train")
    if model is None:
        raise GatelabError(f"no model is given; give mixer, vit or gpt2, such as 'gatelab train mixer {name}'")
    from gatelab.train import recipe, train

    plan = recipe(model, name, optimizer=optimizer, seed=seed, **training.recipe(model))
    with resuming(training.store), output.progress("steps") as report:
        history = train(plan, compile=compile, progress=report, **where)
    output.write(history, out)
    import numpy as np

    places = np.unique(np.linspace(0, len(history.steps) - 1, 10).round().astype(int))  # ten of the measurements
    losses: Any = history.table()[["step", "train", "test", "gap", "accuracy", "lr"]].iloc[places]
    formats = dict.fromkeys(("train", "test", "gap"), ".4f") | {"accuracy": ".1%", "lr": ".2g"}
    output.emit(
        history.plain(),
        output.table(losses, formats),
        "",
        str(history),
        f"{history.parameters} parameters, {history.device}, {duration(float(history.seconds[-1]))}",
        files=(out, training.store),
    )


def gap_command(
    *,
    words: UnitsAlone = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    model: Annotated[str, option("mixer, vit or gpt2.")] = "mixer",
    optimizer: Annotated[str, option("sgd, adamw or both.", metavar="A[,B]")] = "sgd,adamw",
    seeds: Annotated[int, option("Trainings per unit and optimizer.", min=1)] = 5,
    training: TrainingOptions,
    dry_run: DryRun = False,
    record: Annotated[Path | None, option("Read runs that --out wrote; train none.", metavar="FILE")] = None,
    plot: Plot = None,
    out: Annotated[list[Path] | None, out_option("Write the runs, .json, or a table, .csv.", ".json", ".csv")] = None,
) -> None:
    """Train several units and compare the generalization gaps of the others with that of the first."""
    where = training.where()
    names = reading.units_alone(words, unit) or ["mlp", "glu"]
    from gatelab.train import Gap, gap
    from gatelab.train.gaps import gap_recipes

    if record is not None:
        study = Gap.load(record)
    else:
        settings: dict[str, Any] = {"model": model, "seeds": seeds, **training.recipe(model)}
        settings["optimizers"] = list(filter(None, reading.split_names(optimizer)))
        recipes = gap_recipes(names, **settings)
        if dry_run:
            emit_recipes(recipes)
            return
        trainings = sum(map(len, recipes))
        with resuming(training.store), output.progress("trainings") as report:
            study = gap(names, progress=output.counting(report, trainings), **where, **settings)
    output.write(study, plot, *(out or ()), frame=study.points)
    pairs = study.comparisons()
    diverged = [str(h) for h in study.diverged()]
    output.emit(
        {"comparisons": [c.row() for c in pairs], "runs": len(study.histories), "diverged": diverged},
        *gap_parts(study, pairs),
        *diverged,
        files=(plot, *(out or ())),
    )


def emit_recipes(recipes: list[list[Recipe]]) -> None:
    first, trainings = recipes[0][0], sum(map(len, recipes))
    steps = sum(len(group) * group[0].steps for group in recipes)
    facts = {"model": first.model, "size": first.size, "data": first.data, "trainings": trainings, "steps": steps}
    facts["samples"] = steps * first.batch
    output.emit(facts, output.pairs((name, f"{v:,}" if isinstance(v, int) else str(v)) for name, v in facts.items()))


def gap_parts(study: Gap, pairs: list[Comparison]) -> Iterator[output.Part]:
    """Three lines per pair, and how to read them."""
    for c in pairs:
        yield f"{c.second} compared with {c.first}, {c.where}: {c.runs[1]} and {c.runs[0]} runs"
        yield f"  joint distributions: {c.joint}; exchanging points, which is not valid, p = {c.pointwise.p:.3g}"
        yield f"  gap at equal training loss: {c.matched or 'the runs have no training losses in common'}"
    if not pairs:
        yield "no pair to compare; give two units or two optimizers whose runs do not diverge"
        return
    least = max(c.joint.least_p for c in pairs)
    yield ""
    yield "p exchanges whole runs; differences are second minus first, in nats, with 95 % bootstrap intervals"
    if least > 0.05:
        yield f"with this number of runs p cannot fall below {least:.2g}; give --seeds 4 or more to test at 5 %"
    first = study.histories[0]
    yield f"{len(study.histories)} runs, {first.throughput:.0f} {first.counted}/s in the first pass"
