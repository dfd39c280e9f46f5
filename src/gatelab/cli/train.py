"""`gatelab train`, a model with any unit, and `gatelab gap`, the generalization gaps of units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output, reading
from gatelab.cli.options import Device, DryRun, OneUnit, Plot, as_list, complete_unit, out_option, resuming, unit_option
from gatelab.cli.output import check_file, check_folder
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.named import CATALOGUE
from gatelab.files import PICTURES

if TYPE_CHECKING:
    from gatelab.train import Comparison, Gap, History
    from gatelab.train.recipes import Recipe

BATCHES = {"mixer": 128, "vit": 128, "gpt2": 16}  # images, or windows of text
UNITS = ("mlp", "glu")
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

    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="cifar10, mnist or tiny-imagenet.", show_default="cifar10")
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Text for gpt2: fineweb-edu, tinyshakespeare, enwik8 or a file.",
            show_default="fineweb-edu",
        ),
    ] = None
    size: Annotated[str, typer.Option(help="tiny, small, base; of gpt2: tiny, small, gpt2.")] = "small"
    sizes: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=N", help="Replace a value of the size.")] = (
        None
    )
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default="by model and optimizer")] = None
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 2000
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images or windows of text.", show_default="128; of text 16")
    ] = None
    warmup: Annotated[int | None, typer.Option(min=0, help="Warmup steps.", show_default="a tenth, at most 100")] = None
    schedule: Annotated[str, typer.Option(help="cosine or constant.")] = "cosine"
    weight_decay: Annotated[
        float | None, typer.Option(min=0, help="On matrices.", show_default="by model and optimizer")
    ] = None
    clip: Annotated[float, typer.Option(min=0, help="Maximal norm of the gradient; 0 for no limit.")] = 1.0
    augment: Annotated[
        bool, typer.Option("--augment/--no-augment", help="Random crops and flips of images, as in the paper.")
    ] = True
    tokenizer: Annotated[
        str, typer.Option(help="gpt2, bytes, or trained:4096 for 4096 tokens learned from the text.")
    ] = "gpt2"
    evaluations: Annotated[int, typer.Option(min=1, help="Number of measurements of the losses.")] = 40
    precision: Annotated[str, typer.Option(help="auto, float32 or bf16; auto is bf16 on a GPU.")] = "auto"
    device: Device = "auto"
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the state here; the same command resumes.")
    ] = None

    def where(self) -> dict[str, Any]:
        """The arguments for the device and the folder, which must be writable."""
        if self.store is not None:
            check_folder(self.store)
        return {"folder": self.store, "device": {"auto": None}.get(self.device, self.device)}

    def source(self, model: str) -> str | None:
        """The data of a model: images, or text for gpt2."""
        if model not in TEXT_MODELS and self.text is not None:
            raise GatelabError(f"--text is for gpt2 and the model is {model}; give images with --data")
        if model in TEXT_MODELS and self.data is not None:
            if self.text is not None:
                raise GatelabError("both --data and --text are given; leave --data out")
            output.note("text is now given by --text; --data works until the next release")
        return self.text or self.data

    def recipe(self, model: str) -> dict[str, Any]:
        """The values of a recipe for that model; those left out keep the defaults of the model."""
        own = {"lr": self.lr, "warmup": self.warmup, "weight_decay": self.weight_decay}
        return {
            "data": self.source(model),
            "size": self.size,
            "options": read_sizes(self.sizes),
            "steps": self.steps,
            "batch": self.batch or BATCHES.get(model),
            "schedule": self.schedule,
            "clip": self.clip or None,
            "augment": self.augment,
            "tokenizer": self.tokenizer,
            "evaluations": self.evaluations,
            "precision": self.precision,
            **{name: value for name, value in own.items() if value is not None},
        }


def read_sizes(texts: list[str] | None) -> dict[str, int]:
    """`layers=4` as a name and a number.

    >>> read_sizes(["layers=4", "d_model = 96"])
    {'layers': 4, 'd_model': 96}
    """
    sizes = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value.isdigit():
            raise GatelabError(f"--set is {text!r}; give a name and a whole number, such as layers=4")
        sizes[name] = int(value)
    return sizes


def train_command(
    *,
    words: Annotated[
        list[str],
        typer.Argument(metavar="MODEL|UNIT", help="mixer, vit or gpt2, and a unit.", autocompletion=complete_model),
    ],
    unit: OneUnit = None,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.")] = "adamw",
    training: TrainingOptions,
    seed: Annotated[int, typer.Option(min=0, help="The seed of weights and batches.")] = 0,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    out: Annotated[Path | None, out_option("Write the losses by step, .csv.")] = None,
) -> None:
    """Train a Mixer, a ViT or GPT-2 with any unit."""
    check_file(out, (".csv",))
    where = training.where()
    names, model = reading.units(words, as_list(unit))
    name = reading.one_unit(names, "train")
    if model is None:
        raise GatelabError(f"no model is given; give mixer, vit or gpt2, such as 'gatelab train mixer {name}'")
    from gatelab.train import recipe, train

    plan = recipe(model, name, optimiser=optimizer, seed=seed, **training.recipe(model))
    with resuming(training.store), output.progress("steps") as report:
        history = train(plan, compile=compile, progress=report, **where)
    output.write_csv(out, history.table())
    output.emit(history.plain(), *_history_parts(history), files=(out, training.store))


def _history_parts(history: History) -> list[output.Part]:
    """Ten of the measurements, from the first to the last."""
    count, seconds = len(history.steps), "less than 1 s"
    if len(history.seconds):
        seconds = duration(float(history.seconds[-1]))
    places = sorted({round(i * (count - 1) / 9) for i in range(10)})
    rows = [
        [
            str(history.steps[i]),
            *(output.number(v[i], ".4f") for v in (history.train, history.test, history.gap)),
            output.number(history.accuracy[i], ".1%"),
            output.number(history.lr[i], ".2g"),
        ]
        for i in places[:count]  # empty without measurements
    ]
    table = output.table(("step", "train", "test", "gap", "accuracy", "lr"), rows, right=range(6))
    return [table, "", str(history), f"{history.parameters} parameters, {history.device}, {seconds}"]


def gap_command(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="UNIT",
            help="Units; the others are compared with the first.",
            show_default=False,
            autocompletion=complete_unit,
        ),
    ] = None,
    unit: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    model: Annotated[str, typer.Option(help="mixer, vit or gpt2.")] = "mixer",
    optimizer: Annotated[str, typer.Option(metavar="A[,B]", help="sgd, adamw or both.")] = "sgd,adamw",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per unit and optimizer.")] = 5,
    training: TrainingOptions,
    dry_run: DryRun = False,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Read runs that --out wrote; train none.")] = None,
    plot: Plot = None,
    out: Annotated[
        list[Path] | None, out_option("Write the runs, .json, or every measurement, .csv; may be repeated.")
    ] = None,
) -> None:
    """Train several units and compare their generalization gaps."""
    check_file(plot, PICTURES)
    for path in out or ():
        check_file(path, (".json", ".csv"))
    where = training.where()
    names, word = reading.units(words, unit)
    if word is not None:
        raise unknown_name("unit", word, CATALOGUE)
    from gatelab.train import Gap, gap
    from gatelab.train.gaps import gap_recipes

    if record is not None:
        study = Gap.load(record)
    else:
        settings: dict[str, Any] = {"model": model, "seeds": seeds, **training.recipe(model)}
        settings["optimisers"] = [name.strip() for name in optimizer.split(",") if name.strip()]
        recipes = gap_recipes(names or UNITS, **settings)
        if dry_run:
            emit_recipes(recipes)
            return
        trainings = sum(map(len, recipes))
        with resuming(training.store), output.progress("trainings") as report:
            study = gap(names or UNITS, progress=output.counting(report, trainings), **where, **settings)
    if plot:
        study.plot(plot)
    for path in out or ():
        if path.suffix.lower() == ".csv":
            output.write_csv(path, study.points())
        else:
            study.save(path)
    pairs = study.comparisons()
    diverged = [str(h) for h in study.diverged()]
    output.emit(
        {"comparisons": [c.row() for c in pairs], "runs": len(study.histories), "diverged": diverged},
        *_gap_parts(study, pairs),
        *diverged,
        files=(plot, *(out or ())),
    )


def emit_recipes(recipes: list[list[Recipe]]) -> None:
    """The size of the trainings, with --dry-run."""
    first, trainings = recipes[0][0], sum(map(len, recipes))
    steps = sum(len(group) * group[0].steps for group in recipes)
    facts = {"model": first.model, "size": first.size, "data": first.data, "trainings": trainings, "steps": steps}
    facts["samples"] = steps * first.batch
    output.emit(facts, output.pairs((name, f"{v:,}" if isinstance(v, int) else str(v)) for name, v in facts.items()))


def _gap_parts(study: Gap, pairs: list[Comparison]) -> Iterator[output.Part]:
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
