"""`gatelab profile`: what the feed-forward blocks of a given model do, and how hard they are to replace."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.options import Json, grouped
from gatelab.cli.output import check_file
from gatelab.files import PICTURES, write_whole

if TYPE_CHECKING:
    from gatelab.anatomy import Profile

PROFILE = """Examples: gatelab profile stories260k --text tinyshakespeare

gatelab profile path/to/model --text book.txt --out page.html

gatelab profile smollm2 --text fineweb-edu --tokens 12288 --json"""


@grouped
def profile_command(
    *,
    model: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A folder of Transformers, a GGUF file, smollm2, minilm or stories260k."),
    ],
    text: Annotated[
        str,
        typer.Option(metavar="FILE|NAME", help="Text to read: a file, fineweb-edu, wikitext-2 ...; .npy for tokens."),
    ],
    module: Annotated[
        list[str] | None, typer.Option(help="A module by name, as often as needed.", show_default="all blocks")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=2, help="Tokens to fit on.", show_default="6144")] = None,
    test: Annotated[int | None, typer.Option(min=2, help="Tokens to measure on.", show_default="512")] = None,
    length: Annotated[
        int | None, typer.Option(min=2, help="Tokens a window.", show_default="128, or what the model reads")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Steps of every fitted unit.", show_default="20")] = None,
    losses: Annotated[bool, typer.Option(help="Run the model with blocks skipped and made linear.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cpu")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page, .html, the figure, or all numbers, .json.")] = None,
    as_json: Json = False,
) -> None:
    """Say what every feed-forward block of a model does, and how hard it is to replace."""
    check_file(out, (".html", ".json", *PICTURES))
    from gatelab.anatomy import load_model, profile
    from gatelab.memory import check_device

    place = check_device(device or "cpu")
    loaded, tokenizer = load_model(model)
    loaded.to(place)
    asked = {"tokens": tokens, "test": test, "length": length, "steps": steps}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with output.progress("profiling") as report:
        result = profile(
            loaded,
            text,
            tokenizer=tokenizer,
            modules=module,
            losses=losses,
            progress=report,
            **options,
        )
    if out is not None:
        write_profile(result, out, command_line(model, text, module, losses, asked, out))
    if as_json:
        output.document({**result.plain(), "files": output.asked_for(out)})
        return
    print_profile(result)
    output.say_written(out)


def command_line(
    model: str, text: str, modules: list[str] | None, losses: bool, asked: dict[str, int | None], out: Path
) -> str:
    """The command that makes the page again, without what is so by default, and with files by their names alone."""
    words = ["gatelab", "profile", Path(model).name, "--text", Path(text).name]
    for name in modules or ():
        words += ["--module", name]
    for name, value in asked.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    if not losses:
        words.append("--no-losses")
    return shlex.join([*words, "--out", out.name])


def write_profile(result: Profile, out: Path, command: str) -> None:
    """Write the page, the numbers or the figure, by the ending of the name."""
    if out.suffix.lower() == ".html":
        from gatelab.report.builders import profile_page

        write_whole(out, profile_page(result, command).encode())
    elif out.suffix.lower() == ".json":
        result.save(out)
    else:
        result.plot(out)


def print_profile(result: Profile) -> None:
    """Sentences, then the columns that matter most."""
    output.points(result.sentences())
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
    output.table(headings, rows, right=range(2, 7))
    fitted, chosen, measured = result.tokens
    output.say(
        f"Fitted on {fitted} tokens, chosen by {chosen}, measured on {measured} others in {result.seconds:.0f} s."
        " Intervals are of 95 %, over windows."
    )
