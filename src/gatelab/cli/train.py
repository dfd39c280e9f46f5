"""`gatelab train`: a model with any unit, trained; and the options that it shares with `gatelab gap`.

`gatelab gap`: whether units differ in how they generalise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, output
from gatelab.cli.lists import Json, complete_unit, unit_option
from gatelab.cli.output import check_file, check_folder
from gatelab.display import duration
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.catalogue import CATALOGUE
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.train import History

TRAIN = """Examples: gatelab train mixer swiglu --steps 500 --folder run

gatelab train gpt2 glu --data novel.txt --tokenizer bytes --size tiny

gatelab train vit gqu --optimiser sgd --lr 0.05 --set layers=4"""

MODELS = ("mixer", "vit", "gpt2")
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="cifar10, mnist or tiny-imagenet; for gpt2 fineweb-edu, tinyshakespeare or a file.",
        show_default="cifar10, fineweb-edu",
    ),
]
Size = Annotated[str, typer.Option(help="tiny, small, base; of gpt2: tiny, small, gpt2.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=N", help="Replace a value of the size.")]
Lr = Annotated[float | None, typer.Option(help="Learning rate.", show_default="by model and optimiser")]
Steps = Annotated[int, typer.Option(min=1, help="Updates.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Images or windows of text.", show_default="128; of text 16")]
Warmup = Annotated[int | None, typer.Option(min=0, help="Steps of rising rate.", show_default="a tenth, to 100")]
Schedule = Annotated[str, typer.Option(help="cosine or constant.")]
WeightDecay = Annotated[float | None, typer.Option(min=0, help="On matrices.", show_default="by model and optimiser")]
Clip = Annotated[float, typer.Option(min=0, help="Longest gradient; 0 for any.")]
Augment = Annotated[bool, typer.Option("--augment/--no-augment", help="Change images at random, as the paper does.")]
Tokenizer = Annotated[str, typer.Option(help="gpt2 or bytes.")]
Evaluations = Annotated[int, typer.Option(min=1, help="How often losses are measured.")]
Precision = Annotated[str, typer.Option(help="auto, float32 or bf16; auto is bf16 on a GPU.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cuda if there is one")]
Folder = Annotated[Path | None, typer.Option(help="Keep the state here; the same command goes on from it.")]


def complete_model(incomplete: str) -> list[str]:
    """Models and units that begin so, for the shell."""
    return [name for name in MODELS if name.startswith(incomplete)] + complete_unit(incomplete)


def train_command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="MODEL|UNIT", help="mixer, vit or gpt2, and a unit.", autocompletion=complete_model),
    ],
    units: Annotated[list[str] | None, unit_option()] = None,
    data: Data = None,
    optimiser: Annotated[str, typer.Option(help="sgd or adamw.")] = "adamw",
    size: Size = "small",
    options: Set = None,
    lr: Lr = None,
    steps: Steps = 2000,
    batch: Batch = None,
    warmup: Warmup = None,
    schedule: Schedule = "cosine",
    weight_decay: WeightDecay = None,
    clip: Clip = 1.0,
    augment: Augment = True,
    tokenizer: Tokenizer = "gpt2",
    evaluations: Evaluations = 40,
    precision: Precision = "auto",
    seed: Annotated[int, typer.Option(min=0, help="The seed of weights and batches.")] = 0,
    device: Device = None,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    folder: Folder = None,
    csv: Annotated[Path | None, typer.Option(help="Write the losses along the way, .csv.")] = None,
    as_json: Json = False,
) -> None:
    """Train a Mixer, a ViT or GPT-2 with any unit."""
    check_file(csv, (".csv",))
    if folder is not None:
        check_folder(folder)
    names, model = options.units(words, units)
    unit = options.one_unit(names, "train mixer")
    if model is None:
        raise GatelabError(f"no model is given; give mixer, vit or gpt2, such as 'gatelab train mixer {unit}'")
    from gatelab.train import recipe
    from gatelab.train import train as run

    values = recipe_values(
        model, size, options, lr, steps, batch, warmup, schedule, weight_decay, clip, augment, tokenizer, evaluations
    )
    made = recipe(model, unit, data, optimiser=optimiser, seed=seed, precision=precision, **values)
    with going_on(folder), output.progress("training") as report:
        found = run(made, folder=folder, device=device, compile=compile, progress=report)
    if csv:
        write_whole(csv, found.table().to_csv(index=False).encode())
    if as_json:
        output.document(found.plain())
        return
    _print(found)
    for path in (csv, folder):
        if path:
            output.say(f"wrote {path}", wrap=False)


def recipe_values(
    model: str,
    size: str,
    options: list[str] | None,
    lr: float | None,
    steps: int,
    batch: int | None,
    warmup: int | None,
    schedule: str,
    weight_decay: float | None,
    clip: float,
    augment: bool,
    tokenizer: str,
    evaluations: int,
) -> dict[str, Any]:
    """The options as values of a recipe, without those that were not given."""
    given: dict[str, Any] = {"lr": lr, "warmup": warmup, "weight_decay": weight_decay}
    always: dict[str, Any] = {
        "size": size,
        "options": read_options(options),
        "steps": steps,
        "batch": batch or (16 if model == "gpt2" else 128),
        "schedule": schedule,
        "clip": clip or None,
        "augment": augment,
        "tokenizer": tokenizer,
        "evaluations": evaluations,
    }
    return always | {name: value for name, value in given.items() if value is not None}


def read_options(texts: list[str] | None) -> dict[str, int]:
    """`layers=4` as a name and a number.

    >>> read_options(["layers=4", "d_model = 96"])
    {'layers': 4, 'd_model': 96}
    """
    found = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value.isdigit():
            raise GatelabError(f"--set is {text!r}; give a name and a whole number, such as layers=4")
        found[name] = int(value)
    return found


@contextmanager
def going_on(folder: Path | None) -> Iterator[None]:
    """Ctrl-C with the way to go on."""

    def kept() -> str | None:
        if folder is None or not any(path.is_file() for path in folder.rglob("*")):
            return None
        return f"the state is in {folder}: the same command goes on from there"

    with interrupts.keeping(kept):
        yield


def _print(found: History) -> None:
    chosen = sorted({round(i * (len(found.steps) - 1) / 9) for i in range(10)}) if len(found.steps) else []
    output.table(
        ("step", "train", "test", "gap", "accuracy", "lr"),
        [
            [
                str(found.steps[i]),
                *(output.number(v[i], ".4f") for v in (found.train, found.test, found.gap)),
                output.number(found.accuracy[i], ".1%"),
                output.number(found.lr[i], ".2g"),
            ]
            for i in chosen
        ],
        right=range(6),
    )
    seconds = duration(float(found.seconds[-1])) if len(found.seconds) else "less than 1 s"
    output.say("", str(found), f"{found.parameters} parameters, {found.device}, {seconds}")


if TYPE_CHECKING:
    from gatelab.train import Comparison, Gap

UNITS = ("mlp", "glu")
GAP = """Examples: gatelab gap mlp glu --model vit --folder runs --plot gap.png

gatelab gap silu swiglu --model gpt2 --data novel.txt --optimiser adamw

gatelab gap --record results/ntk/gap.json --plot gap.png"""


def gap_command(
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
    data: Data = None,
    optimiser: Annotated[str, typer.Option(metavar="A[,B]", help="sgd, adamw or both.")] = "sgd,adamw",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each unit and optimiser.")] = 5,
    size: Size = "small",
    options: Set = None,
    lr: Lr = None,
    steps: Steps = 2000,
    batch: Batch = None,
    warmup: Warmup = None,
    schedule: Schedule = "cosine",
    weight_decay: WeightDecay = None,
    clip: Clip = 1.0,
    augment: Augment = True,
    tokenizer: Tokenizer = "gpt2",
    evaluations: Evaluations = 40,
    precision: Precision = "auto",
    device: Device = None,
    folder: Folder = None,
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
    if folder is not None:
        check_folder(folder)
    names, word = options.units(words, units)
    if word is not None:
        raise unknown_name("unit", word, CATALOGUE)
    from gatelab.train import Gap
    from gatelab.train import gap as run

    if record is not None:
        found = Gap.load(record)
    else:
        values = recipe_values(
            model,
            size,
            options,
            lr,
            steps,
            batch,
            warmup,
            schedule,
            weight_decay,
            clip,
            augment,
            tokenizer,
            evaluations,
        )
        with going_on(folder), output.progress("training") as report:
            found = run(
                names or UNITS,
                model=model,
                data=data,
                optimisers=_names(optimiser),
                seeds=seeds,
                folder=folder,
                device=device,
                progress=report,
                precision=precision,
                **values,
            )
    if plot:
        found.plot(plot)
    if csv:
        write_whole(csv, found.points().to_csv(index=False).encode())
    if save:
        found.save(save)
    files = [path for path in (plot, csv, save) if path]
    pairs = [*found.comparisons(), *found.optimiser_comparisons()]
    diverged = [str(h) for h in found.diverged()]
    if as_json:
        rows = [c.row() for c in pairs]
        output.document({"comparisons": rows, "runs": len(found.histories), "diverged": diverged, "files": files})
        return
    _print_gap(found, pairs)
    output.say(*diverged)
    for path in files:
        output.say(f"wrote {path}", wrap=False)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _print_gap(found: Gap, pairs: list[Comparison]) -> None:
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
    speeds = sorted({f"{h.throughput:.0f} {h.counted}/s" for h in found.histories[:1]})
    output.say(f"{len(found.histories)} runs, {speeds[0]} in the first pass")
