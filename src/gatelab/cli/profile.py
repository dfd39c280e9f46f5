"""`gatelab profile`: the feed-forward blocks of a model, and how hard they are to replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.options import Device, Plot, Tokenizer, device_name, out_option
from gatelab.cli.output import check_file
from gatelab.cli.reading import read_tokenizer
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.anatomy import Profile

PROFILE = """Examples: gatelab profile stories260k --text tinyshakespeare

gatelab profile path/to/model --text book.txt --out page.html --plot profile.png

gatelab profile smollm2 --text fineweb-edu --tokens 12288 --json"""


@dataclass(frozen=True)
class SizeOptions:
    """The size of the measurement."""

    tokens: Annotated[int | None, typer.Option(min=2, help="Tokens to fit on.", show_default="6144")] = None
    test: Annotated[int | None, typer.Option(min=2, help="Tokens to measure on.", show_default="512")] = None
    length: Annotated[
        int | None, typer.Option(min=2, help="Tokens per window.", show_default="128, or the context of the model")
    ] = None
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of every fitted unit.", show_default="20")] = None


def profile_command(
    *,
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A folder of Transformers, a GGUF file, smollm2, minilm or stories260k."),
    ],
    text: Annotated[
        str,
        typer.Option(metavar="FILE|NAME", help="Text to read: a file, fineweb-edu, wikitext-2 ...; .npy for tokens."),
    ],
    tokenizer: Tokenizer = None,
    module: Annotated[
        list[str] | None, typer.Option(help="A module by name; may be repeated.", show_default="all blocks")
    ] = None,
    sizes: SizeOptions,
    losses: Annotated[bool, typer.Option(help="Run the model with blocks skipped and made linear.")] = True,
    device: Device = "auto",
    plot: Plot = None,
    out: Annotated[Path | None, out_option("Write the page, .html, or all numbers, .json.")] = None,
) -> None:
    """Measure what every feed-forward block of a model does and how hard it is to replace."""
    check_file(out, (".html", ".json"))
    check_file(plot, PICTURES)
    from gatelab.anatomy import load_model, profile
    from gatelab.memory import check_device

    place = check_device(device_name(device))
    loaded, own = load_model(model)
    loaded.to(place)
    options: dict[str, Any] = {name: value for name, value in vars(sizes).items() if value is not None}
    options |= {"tokenizer": read_tokenizer(tokenizer) or own, "modules": module, "losses": losses}
    with output.progress("percent") as report:
        result = profile(loaded, text, progress=output.counting(report, 100), **options)
    if out is not None and out.suffix.lower() == ".json":
        result.save(out)
    elif out is not None:
        from gatelab.report.builders import profile_page

        write_whole(out, profile_page(result, output.command_line(context)).encode())
    if plot is not None:
        result.plot(plot)
    output.emit(result.plain(), *profile_parts(result), files=(out, plot))


def profile_parts(result: Profile) -> list[output.Part]:
    """Sentences, then the most important columns."""
    headings = ("layer", "unit", "width", "max", "% linear", "skipped", "made linear")
    rows = []
    for block in result.blocks:
        values = block.statistics
        rows.append(
            (
                "-" if block.number is None else block.label,
                block.unit or block.name,
                str(block.width or "-"),
                output.number(values.get("largest"), ".0f"),
                output.number(100 * block.explained, ".0f"),
                "-" if block.skipped is None else f"{block.skipped:.2g}",
                "-" if block.linearised is None else f"{block.linearised:.2g}",
            )
        )
    fitted, chosen, measured = result.tokens
    return [
        output.points(result.sentences()),
        output.table(headings, rows, right=range(2, 7)),
        f"Fitted on {fitted} tokens, validated on {chosen}, measured on {measured} others in {result.seconds:.0f} s."
        " Intervals are 95 % intervals over windows.",
    ]
