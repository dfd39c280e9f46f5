"""`gatelab plan`: the polynomials that a model needs under encryption, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli import output
from gatelab.cli.options import Tokenizer, out_option
from gatelab.cli.output import check_file
from gatelab.cli.reading import check_exists, read_tokenizer

PLAN = """Examples: gatelab plan models/all-MiniLM-L6-v2 --text sentences.txt --out plan.json

gatelab plan models/stories260K --text stories.txt --quality 0.99"""


def plan_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a model, of Transformers or llama2.c.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text with one sentence per line.")],
    tokenizer: Tokenizer = None,
    quality: Annotated[float, typer.Option(help="Cosine, or ratio of perplexities, to keep.")] = 0.999,
    margin: Annotated[float, typer.Option(min=0, help="Margin around ranges, in half-widths.")] = 0.1,
    rows: Annotated[int, typer.Option(min=8, help="Maximal number of rows of the text.")] = 192,
    out: Annotated[Path | None, out_option("Write the plan, .json.")] = None,
) -> None:
    """Plan encrypted inference: a polynomial for every layer, with the fewest levels in total."""
    check_file(out, (".json",))
    check_exists(text, "give text with one sentence per line")
    from gatelab.linearization import plan_encrypted
    from gatelab.models.pretrained import read_pretrained

    model = read_pretrained(path, read_tokenizer(tokenizer))
    tokens = model.rows(text.read_text(encoding="utf-8", errors="replace"))
    with output.progress("measurements") as report:
        plan = plan_encrypted(model.model, tokens[:rows], quality=quality, margin=margin, progress=report)
    if out is not None:
        plan.save(out)
    cells = [
        (
            str(i),
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
    output.emit(
        plan.document(),
        f"{model.name}: {plan.levels} levels in total, {plan.measure} kept {plan.quality:.6f}",
        "",
        output.table(heads, cells, right=(0, 3, 4, 5, 6)),
        "",
        f"Demanded {plan.demanded:g}, reached {plan.chosen:.6f} on validation text; the quality above is on test text.",
        files=(out,),
    )
