"""`gatelab plan`: which polynomials a model needs under encryption, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli import output
from gatelab.cli.options import Json
from gatelab.cli.output import check_file
from gatelab.errors import GatelabError

PLAN = """Examples: gatelab plan models/all-MiniLM-L6-v2 --text sentences.txt --save plan.json

gatelab plan models/stories260K --text stories.txt --quality 0.99"""


def plan_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A model's folder, of Transformers or llama2.c.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text; lines are sentences.")],
    quality: Annotated[float, typer.Option(help="Cosine, or perplexity, that is kept.")] = 0.999,
    margin: Annotated[float, typer.Option(min=0, help="Room around ranges, in half-widths.")] = 0.1,
    rows: Annotated[int, typer.Option(min=8, help="Rows of the text that are used at most.")] = 192,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plan, .json.")] = None,
    as_json: Json = False,
) -> None:
    """Plan a model for encrypted inference: by layer the polynomial, with the fewest levels in all."""
    check_file(save, (".json",))
    if not text.is_file():
        raise GatelabError(f"there is no file {text}; give text, a sentence a line")
    from gatelab.linearization import plan_encrypted
    from gatelab.models.pretrained import read_pretrained

    model = read_pretrained(path)
    tokens = model.rows(text.read_text(encoding="utf-8", errors="replace"))
    with output.progress("measurements") as report:
        plan = plan_encrypted(model.model, tokens[:rows], quality=quality, margin=margin, progress=report)
    if save is not None:
        plan.save(save)
    if as_json:
        output.document({**plan.document(), "save": save})
        return
    output.say(f"{model.name}: {plan.levels} levels in all, {plan.measure} kept {plan.quality:.6f}", "")
    cells = [
        (
            str(i + 1),
            f"[{layer.form.interval[0]:.3g}, {layer.form.interval[1]:.3g}]",
            layer.form.method,
            str(layer.form.degree),
            str(layer.levels),
            str(layer.products),
            f"{share:.2%}",
        )
        for i, (layer, share) in enumerate(zip(plan.layers, plan.outside, strict=True))
    ]
    heads = ("layer", "interval", "form", "degree", "levels", "products", "outside")
    output.table(heads, cells, right=(0, 3, 4, 5, 6))
    output.say(
        "", f"Asked for {plan.demanded:g}, chosen at {plan.chosen:.6f}; stated on text of which nothing was chosen."
    )
    output.say_written(save)
