"""`gatelab train`, a model with any unit, and `gatelab gap`, whether units differ in how they generalise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output, reading
from gatelab.cli.options import Json, complete_unit, grouped, unit_option
from gatelab.cli.output import check_file, check_folder
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.named import CATALOGUE
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.train import Comparison, Gap, History

BATCHES = {"mixer": 128, "vit": 128, "gpt2": 16}  # images, or windows of text
UNITS = ("mlp", "glu")
TRAIN = """Examples: gatelab train mixer swiglu --steps 500 --folder run

gatelab train gpt2 glu --data novel.txt --tokenizer bytes --size tiny

gatelab train vit gqu --optimiser sgd --lr 0.05 --set layers=4"""
GAP = """Examples: gatelab gap mlp glu --model vit --folder runs --plot gap.png

gatelab gap silu swiglu --model gpt2 --data novel.txt --optimiser adamw

gatelab gap --record results/ntk/gap.json --plot gap.png"""


def complete_model(incomplete: str) -> list[str]:
    """Models and units that begin so, for the shell."""
    return [name for name in BATCHES if name.startswith(incomplete)] + complete_unit(incomplete)


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe of a training, the device that computes it, and the folder where its state is."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="cifar10, mnist or tiny-imagenet; for gpt2 fineweb-edu, tinyshakespeare, enwik8 or a file.",
            show_default="cifar10, fineweb-edu",
        ),
    ] = None
    size: Annotated[str, typer.Option(help="tiny, small, base; of gpt2: tiny, small, gpt2.")] = "small"
    sizes: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=N", help="Replace a value of the size.")] = (
        None
    )
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default="by model and optimiser")] = None
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 2000
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images or windows of text.", show_default="128; of text 16")
    ] = None
    warmup: Annotated[int | None, typer.Option(min=0, help="Steps of rising rate.", show_default="a tenth, to 100")] = (
        None
    )
    schedule: Annotated[str, typer.Option(help="cosine or constant.")] = "cosine"
    weight_decay: Annotated[
        float | None, typer.Option(min=0, help="On matrices.", show_default="by model and optimiser")
    ] = None
    clip: Annotated[float, typer.Option(min=0, help="Longest gradient; 0 for any.")] = 1.0
    augment: Annotated[
        bool, typer.Option("--augment/--no-augment", help="Change images at random, as the paper does.")
    ] = True
    tokenizer: Annotated[
        str, typer.Option(help="gpt2, bytes, or trained:4096: so many tokens, learnt from the text.")
    ] = "gpt2"
    evaluations: Annotated[int, typer.Option(min=1, help="How often losses are measured.")] = 40
    precision: Annotated[str, typer.Option(help="auto, float32 or bf16; auto is bf16 on a GPU.")] = "auto"
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cuda if there is one")] = None
    folder: Annotated[Path | None, typer.Option(help="Keep the state here; the same command goes on from it.")] = None

    def recipe(self, model: str) -> dict[str, Any]:
        """The values of a recipe for that model, without those that have defaults of the model's own."""
        own = {"lr": self.lr, "warmup": self.warmup, "weight_decay": self.weight_decay}
        return {
            "data": self.data,
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

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Ctrl-C with the way to go on."""
        folder = self.folder

        def state() -> str | None:
            if folder is None or not any(path.is_file() for path in folder.rglob("*")):
                return None
            return f"the state is in {folder}: the same command goes on from there"

        with interrupts.keeping(state):
            yield


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


@grouped
def train_command(
    *,
    words: Annotated[
        list[str],
        typer.Argument(metavar="MODEL|UNIT", help="mixer, vit or gpt2, and a unit.", autocompletion=complete_model),
    ],
    units: Annotated[list[str] | None, unit_option()] = None,
    optimiser: Annotated[str, typer.Option(help="sgd or adamw.")] = "adamw",
    training: TrainingOptions,
    seed: Annotated[int, typer.Option(min=0, help="The seed of weights and batches.")] = 0,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write the losses along the way, .csv.")] = None,
    as_json: Json = False,
) -> None:
    """Train a Mixer, a ViT or GPT-2 with any unit."""
    check_file(csv, (".csv",))
    folder, device = training.folder, training.device
    if folder is not None:
        check_folder(folder)
    names, model = reading.units(words, units)
    unit = reading.one_unit(names, "train")
    if model is None:
        raise GatelabError(f"no model is given; give mixer, vit or gpt2, such as 'gatelab train mixer {unit}'")
    from gatelab.train import recipe, train

    plan = recipe(model, unit, optimiser=optimiser, seed=seed, **training.recipe(model))
    with training.resumable(), output.progress("training") as report:
        history = train(plan, folder=folder, device=device, compile=compile, progress=report)
    if csv:
        write_whole(csv, history.table().to_csv(index=False).encode())
    if as_json:
        output.document(history.plain())
        return
    _print_history(history)
    output.say_written(csv, folder)


def _print_history(history: History) -> None:
    """Ten of the measurements, from the first to the last."""
    count, seconds = len(history.steps), "less than 1 s"
    if len(history.seconds):
        seconds = duration(float(history.seconds[-1]))
    places = sorted({round(i * (count - 1) / 9) for i in range(10)})
    output.table(
        ("step", "train", "test", "gap", "accuracy", "lr"),
        [
            [
                str(history.steps[i]),
                *(output.number(v[i], ".4f") for v in (history.train, history.test, history.gap)),
                output.number(history.accuracy[i], ".1%"),
                output.number(history.lr[i], ".2g"),
            ]
            for i in places[:count]  # of no measurements, none
        ],
        right=range(6),
    )
    output.say("", str(history), f"{history.parameters} parameters, {history.device}, {seconds}")


@grouped
def gap_command(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="UNIT",
            help="Units; the first is what the others are held to.",
            show_default=False,
            autocompletion=complete_unit,
        ),
    ] = None,
    units: Annotated[list[str] | None, unit_option("mlp,glu")] = None,
    model: Annotated[str, typer.Option(help="mixer, vit or gpt2.")] = "mixer",
    optimiser: Annotated[str, typer.Option(metavar="A[,B]", help="sgd, adamw or both.")] = "sgd,adamw",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each unit and optimiser.")] = 5,
    training: TrainingOptions,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read runs that --save wrote; train none.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the plane of losses and gaps, .png, .svg or .pdf.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every measurement, .csv.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the runs, .json.")] = None,
    as_json: Json = False,
) -> None:
    """Train several units and compare their generalisation gaps."""
    for path, suffixes in ((plot, PICTURES), (csv, (".csv",)), (save, (".json",))):
        check_file(path, suffixes)
    folder, device = training.folder, training.device
    if folder is not None:
        check_folder(folder)
    names, word = reading.units(words, units)
    if word is not None:
        raise unknown_name("unit", word, CATALOGUE)
    from gatelab.train import Gap, gap

    if record is not None:
        study = Gap.load(record)
    else:
        optimisers = [name.strip() for name in optimiser.split(",") if name.strip()]
        settings: dict[str, Any] = {"model": model, "optimisers": optimisers, "seeds": seeds, **training.recipe(model)}
        with training.resumable(), output.progress("training") as report:
            study = gap(names or UNITS, folder=folder, device=device, progress=report, **settings)
    if plot:
        study.plot(plot)
    if csv:
        write_whole(csv, study.points().to_csv(index=False).encode())
    if save:
        study.save(save)
    files = output.asked_for(plot, csv, save)
    pairs = [*study.comparisons(), *study.optimiser_comparisons()]
    diverged = [str(h) for h in study.diverged()]
    if as_json:
        rows = [c.row() for c in pairs]
        output.document({"comparisons": rows, "runs": len(study.histories), "diverged": diverged, "files": files})
        return
    _print_gap(study, pairs)
    output.say(*diverged)
    output.say_written(*files)


def _print_gap(study: Gap, pairs: list[Comparison]) -> None:
    for c in pairs:
        output.say(f"{c.second} against {c.first}, {c.where}: {c.runs[1]} and {c.runs[0]} runs")
        output.say(f"  joint distributions: {c.joint}; exchanging points, which is not sound, p = {c.pointwise.p:.3g}")
        output.say(f"  gap at equal training loss: {c.matched or 'the runs have no training losses in common'}")
    if not pairs:
        output.say("nothing to compare: give two units or two optimisers, whose runs do not diverge")
        return
    least = max(c.joint.least_p for c in pairs)
    output.say("", "p exchanges whole runs; differences are second less first, in nats, with 95 % bootstrap intervals")
    if least > 0.05:
        output.say(f"with so few runs no p can be below {least:.2g}; --seeds 4 or more can tell at 5 %")
    first = study.histories[0]
    output.say(f"{len(study.histories)} runs, {first.throughput:.0f} {first.counted}/s in the first pass")
