"""`gatelab shrink`: a smaller model in the place of a given one, and what that costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import interrupts, output
from gatelab.cli.options import Json, grouped
from gatelab.display import counted, duration
from gatelab.errors import GatelabError
from gatelab.memory import size_text

if TYPE_CHECKING:
    from gatelab.anatomy import Shrunk

SHRINK = """Examples: gatelab shrink stories260k --keep 0.8 --text tinyshakespeare --windows 64

gatelab shrink path/to/model --keep 0.8 --text book.txt --out smaller

gatelab shrink smollm2 --keep 0.6 --text fineweb-edu --store layers --out smaller --json"""


@dataclass(frozen=True)
class RefitOptions:
    """How all blocks are refitted together once each is smaller."""

    distil: Annotated[int, typer.Option(min=0, help="Epochs in which all blocks are refitted together at the end.")] = 0
    own_text: Annotated[
        int, typer.Option(min=0, help="Tokens that the model writes itself for that refit; best on a GPU.")
    ] = 0


@grouped
def shrink_command(
    *,
    model: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A folder of Transformers, a GGUF file, smollm2, minilm or stories260k."),
    ],
    text: Annotated[str, typer.Option(metavar="FILE|NAME", help="Text to fit and measure on, never the same rows.")],
    keep: Annotated[float, typer.Option(help="Share of the neurons that stay.")] = 0.8,
    method: Annotated[str, typer.Option(help="ours, magnitude, wanda, flap or surgeon.")] = "ours",
    refit: RefitOptions,
    unit: Annotated[str | None, typer.Option(help="Blocks of another unit, such as relu2; not with --out.")] = None,
    length: Annotated[
        int | None, typer.Option(min=2, help="Tokens a window.", show_default="256, or what the model reads")
    ] = None,
    windows: Annotated[int | None, typer.Option(min=3, help="Windows at most.", show_default="64")] = 64,
    store: Annotated[
        Path | None, typer.Option(help="Keep layers that are done here; the same command goes on.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cpu")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the smaller model here.")] = None,
    as_json: Json = False,
) -> None:
    """Make the feed-forward blocks of a model smaller, and say what is lost."""
    from gatelab.anatomy import load_model, shrink
    from gatelab.anatomy.distillation import Distillation
    from gatelab.anatomy.shrinking import check_method, check_saved, check_share

    check_share(keep)
    check_method(method)
    if out is not None:
        check_out(out)
    if out is not None and unit is not None:
        raise GatelabError("--unit and --out are given; the usual format has no place for another unit, leave one out")
    loaded, tokenizer = load_model(model)
    if out is not None:
        check_saved(loaded)

    def state() -> str | None:
        if store is None or not store.exists():
            return None
        return f"the layers that are done are in {store}: the same command goes on from there"

    terms: int | Distillation = refit.distil
    if refit.own_text:
        terms = Distillation(max(1, refit.distil), refit.own_text)
    with interrupts.keeping(state), output.progress("shrinking") as report:
        small = shrink(
            loaded, keep, text, method=method, tokenizer=tokenizer, length=length, most=windows, distil=terms,
            unit=unit, store=store, device=device, progress=report,
        )  # fmt: skip
    if out is not None:
        small.save(out)
    if as_json:
        output.document({**small.plain(), "files": output.asked_for(out)})
        return
    print_shrunk(small)
    output.say_written(out)


def check_out(out: Path) -> None:
    """Refuse a folder that could not be written in the end."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise GatelabError(f"{out} is there already; give a folder that does not exist, or an empty one")
    output.check_folder(out)


def print_shrunk(small: Shrunk) -> None:
    """The table by layer, and what the model was and is."""
    output.table(
        ("layer", "neurons", "were", "error if dropped", "error", "seconds"),
        [
            [
                layer.layer,
                str(layer.width),
                str(layer.before),
                output.number(layer.dropped, ".4f"),
                output.number(layer.error, ".4f"),
                output.number(layer.seconds, ".1f"),
            ]
            for layer in small.layers
        ],
        right=(1, 2, 3, 4, 5),
    )
    rows = [("method", small.method), ("weights", f"{size_text(small.bytes_before)} -> {size_text(small.bytes_after)}")]
    if small.measure == "log perplexity":
        before, after = math.exp(small.before), math.exp(small.after)
        rows.append(("perplexity", f"{before:.2f} -> {after:.2f} on windows that nothing was fitted to"))
        rows.append(("excess", f"{small.after - small.before:.4f} nats a token"))
    else:
        rows.append(("cosine", f"{small.after:.4f} of the mean states, on windows that nothing was fitted to"))
    if small.distillation is not None:
        run = small.distillation
        losses = f"{run.losses[0]:.4f} -> {run.losses[run.best]:.4f} on held-out windows"
        way = f"after {run.best} of {counted(run.epochs, 'epoch')}, rate {run.rate:g}"
        rows.append(("distilled", f"{losses} {way}, own text {counted(run.own_text, 'token')}"))
    output.say("")
    output.pairs([*rows, ("time", duration(small.seconds))])
