"""`gatelab profile`: the feed-forward blocks of a model, and how hard they are to replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.options import Device, ModelPath, Plot, Tokenizer, device_name, option, out_option
from gatelab.cli.reading import read_tokenizer
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.anatomy.profiles import BlockProfile

PROFILE = """Examples: gatelab profile stories260k --text tinyshakespeare
gatelab profile path/to/model --text book.txt --out page.html --plot profile.png
gatelab profile smollm2 --text fineweb-edu --tokens 12288 --json"""


@dataclass(frozen=True)
class SizeOptions:
    tokens: Annotated[int | None, option("Tokens to fit on.", min=2, default="6144")] = None
    test: Annotated[int | None, option("Tokens to measure on.", min=2, default="512")] = None
    length: Annotated[int | None, option("Tokens per window.", min=2, default="128, or the model's context")] = None
    steps: Annotated[int | None, option("Steps of every fitted unit.", min=0, default="20")] = None


def profile_command(
    *,
    context: typer.Context,
    model: ModelPath,
    text: Annotated[str, option("A file, fineweb-edu, wikitext-2 ...; .npy for tokens.", metavar="FILE|NAME")],
    tokenizer: Tokenizer = None,
    module: Annotated[list[str] | None, option("A module by name; may be repeated.", default="all blocks")] = None,
    sizes: SizeOptions,
    losses: Annotated[bool, option("Run the model with blocks skipped and made linear.")] = True,
    device: Device = "auto",
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the page, .html, or all numbers, .json.", ".html", ".json")] = None,
) -> None:
    """Measure what every feed-forward block of a model does and how hard it is to replace."""
    from gatelab.anatomy import load_model, profile
    from gatelab.memory import check_device

    place = check_device(device_name(device))
    loaded, own = load_model(model)
    loaded.to(place)
    options: dict[str, Any] = {name: value for name, value in vars(sizes).items() if value is not None}
    options |= {"tokenizer": read_tokenizer(tokenizer) or own, "modules": module, "losses": losses}
    with output.progress("percent") as report:
        result = profile(loaded, text, progress=output.counting(report, 100), **options)
    output.write(result, plot)
    if out is not None and out.suffix.lower() == ".html":
        from gatelab.report.builders import profile_page

        write_whole(out, profile_page(result, output.command_line(context)))
    else:
        output.write(result, out)
    fitted, chosen, measured = result.tokens
    output.emit(
        result.plain(),
        output.points(result.sentences()),
        output.table([block_row(block) for block in result.blocks], {"max": ".0f", "% linear": ".0f"}),
        f"Fitted on {fitted} tokens, validated on {chosen}, measured on {measured} others in {result.seconds:.0f} s."
        " Intervals are 95 % intervals over windows.",
        files=(out, plot),
    )


def block_row(block: BlockProfile) -> dict[str, Any]:
    losses = ["-" if loss is None else f"{loss:.2g}" for loss in (block.skipped, block.linearised)]
    return {
        "layer": None if block.number is None else block.label,
        "unit": block.unit or block.name,
        "width": block.width or None,
        "max": block.statistics.get("largest"),
        "% linear": 100 * block.explained,
        "skipped": losses[0],
        "made linear": losses[1],
    }
