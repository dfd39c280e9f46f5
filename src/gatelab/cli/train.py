"""`gatelab train`: a model with any unit, trained; and the options that it shares with `gatelab gap`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import interrupts, read, show
from gatelab.cli.lists import Json, complete_unit, unit_option
from gatelab.cli.write import check_file, check_folder
from gatelab.display import duration
from gatelab.errors import GatelabError
from gatelab.files import write_whole

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


def train(
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
    names, model = read.units(words, units)
    unit = read.one_unit(names, "train mixer")
    if model is None:
        raise GatelabError(f"no model is given; give mixer, vit or gpt2, such as 'gatelab train mixer {unit}'")
    from gatelab.train import recipe
    from gatelab.train import train as run

    values = recipe_values(
        model, size, options, lr, steps, batch, warmup, schedule, weight_decay, clip, augment, tokenizer, evaluations
    )
    made = recipe(model, unit, data, optimiser=optimiser, seed=seed, precision=precision, **values)
    with going_on(folder), show.progress("training") as report:
        found = run(made, folder=folder, device=device, compile=compile, progress=report)
    if csv:
        write_whole(csv, found.table().to_csv(index=False).encode())
    if as_json:
        show.document(found.plain())
        return
    _print(found)
    for path in (csv, folder):
        if path:
            show.say(f"wrote {path}", wrap=False)


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
    show.table(
        ("step", "train", "test", "gap", "accuracy", "lr"),
        [
            [
                str(found.steps[i]),
                *(show.number(v[i], ".4f") for v in (found.train, found.test, found.gap)),
                show.number(found.accuracy[i], ".1%"),
                show.number(found.lr[i], ".2g"),
            ]
            for i in chosen
        ],
        right=range(6),
    )
    seconds = duration(float(found.seconds[-1])) if len(found.seconds) else "less than 1 s"
    show.say("", str(found), f"{found.parameters} parameters, {found.device}, {seconds}")
