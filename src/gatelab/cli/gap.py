"""`gatelab gap`: whether units differ in how they generalise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import read, show
from gatelab.cli.lists import Json, complete_unit, unit_option
from gatelab.cli.train import (
    Augment,
    Batch,
    Clip,
    Data,
    Device,
    Evaluations,
    Folder,
    Lr,
    Precision,
    Schedule,
    Set,
    Size,
    Steps,
    Tokenizer,
    Warmup,
    WeightDecay,
    going_on,
    recipe_values,
)
from gatelab.cli.write import check_file, check_folder
from gatelab.errors import unknown_name
from gatelab.files import PICTURES, write_whole
from gatelab.units.catalogue import CATALOGUE

if TYPE_CHECKING:
    from gatelab.train import Comparison, Gap

UNITS = ("mlp", "glu")
GAP = """Examples: gatelab gap mlp glu --model vit --folder runs --plot gap.png

gatelab gap silu swiglu --model gpt2 --data novel.txt --optimiser adamw

gatelab gap --record results/ntk/gap.json --plot gap.png"""


def gap(
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
    names, word = read.units(words, units)
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
        with going_on(folder), show.progress("training") as report:
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
        show.document({"comparisons": rows, "runs": len(found.histories), "diverged": diverged, "files": files})
        return
    _print(found, pairs)
    show.say(*diverged)
    for path in files:
        show.say(f"wrote {path}", wrap=False)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _print(found: Gap, pairs: list[Comparison]) -> None:
    for c in pairs:
        show.say(f"{c.second} against {c.first}, {c.where}: {c.runs[1]} and {c.runs[0]} runs")
        show.say(f"  joint distributions: {c.joint}; exchanging points, which is not sound, p = {c.pointwise.p:.3g}")
        show.say(f"  gap at equal training loss: {c.matched or 'the runs have no training losses in common'}")
    if not pairs:
        show.say("nothing to compare: give two units or two optimisers, whose runs do not diverge")
        return
    least = max(c.joint.least_p for c in pairs)
    show.say("", "p exchanges whole runs; differences are second less first, in nats, with 95 % bootstrap intervals")
    if least > 0.05:
        show.say(f"with so few runs no p can be below {least:.2g}; --seeds 4 or more can tell at 5 %")
    speeds = sorted({f"{h.throughput:.0f} {h.counted}/s" for h in found.histories[:1]})
    show.say(f"{len(found.histories)} runs, {speeds[0]} in the first pass")
