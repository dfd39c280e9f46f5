"""`gatelab plan`: the polynomials that a model needs under encryption, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli import output
from gatelab.cli.options import Tokenizer, option, out_option
from gatelab.cli.reading import check_exists, read_tokenizer

PLAN = """Examples: gatelab plan models/all-MiniLM-L6-v2 --text sentences.txt --out plan.json

gatelab plan models/stories260K --text stories.txt --quality 0.99"""


def plan_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a model, of Transformers or llama2.c.")],
    text: Annotated[Path, option("Text with one sentence per line.", metavar="FILE")],
    tokenizer: Tokenizer = None,
    quality: Annotated[float, option("Cosine, or ratio of perplexities, to keep.")] = 0.999,
    margin: Annotated[float, option("Margin around ranges, in half-widths.", min=0)] = 0.1,
    rows: Annotated[int, option("Maximal number of rows of the text.", min=8)] = 192,
    out: Annotated[Path | None, out_option("Write the plan, .json.", ".json")] = None,
) -> None:
    """Plan encrypted inference: a polynomial for every layer, with the fewest levels in total."""
    check_exists(text, "give text with one sentence per line")
    from gatelab.linearization import plan_encrypted
    from gatelab.models.pretrained import read_pretrained

    model = read_pretrained(path, read_tokenizer(tokenizer))
    tokens = model.rows(text.read_text(encoding="utf-8", errors="replace"))
    with output.progress("measurements") as report:
        plan = plan_encrypted(model.model, tokens[:rows], quality=quality, margin=margin, progress=report)
    output.write(plan, out)
    layers = [
        {
            "layer": i,
            "interval": f"[{layer.form.interval[0]:.3g}, {layer.form.interval[1]:.3g}]",
            "form": layer.form.method,
            "degree": layer.form.degree,
            "levels": layer.levels,
            "products": layer.products,
            "outside": share,
        }
        for i, (layer, share) in enumerate(zip(plan.layers, plan.outside, strict=True))
    ]
    output.emit(
        plan.document(),
        f"{model.name}: {plan.levels} levels in total, {plan.measure} kept {plan.quality:.6f}",
        "",
        output.table(layers, {"outside": ".2%"}),
        "",
        f"Demanded {plan.demanded:g}, reached {plan.chosen:.6f} on validation text; the quality above is on test text.",
        files=(out,),
    )
