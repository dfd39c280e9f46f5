"""The record of units fitted to blocks of real models: `python -m benchmarks.blocks results/anatomy/blocks.json`.

Every cell is written as it ends: whatever ends the script, the same command goes on. GATELAB_DATA names the folder with
the text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import facts, read_record, write_record
from gatelab.anatomy import load_model
from gatelab.studies.models.blocks import BlocksPlan, measure_blocks

PLANS = {
    "smollm2": BlocksPlan("SmolLM2-135M-Instruct", (8, 14, 20, 27)),
    "minilm": BlocksPlan("MiniLM-L6-v2", (0, 2, 5), units=("mlp", "relu2", "gelu", "glu", "swiglu")),
}


def main(
    out: Path,
    model: Annotated[str, typer.Option(help="smollm2, minilm, or where the same weights lie.")] = "smollm2",
    plan: Annotated[str, typer.Option(help="smollm2 or minilm.")] = "smollm2",
    text: str = "fineweb-edu",
    device: str = "cpu",
) -> None:
    """Fit what the record has not yet, and write it after every cell."""
    chosen, record = PLANS[plan], read_record(out, {"cells": [], "plans": []})
    others, known = ([c for c in record["cells"] if (c["model"] == chosen.model) == own] for own in (False, True))
    plans = list(dict.fromkeys([*record["plans"], str(chosen)]))

    def save(cells: list[dict[str, Any]]) -> None:
        write_record(out, facts(device) | {"plans": plans, "cells": [*others, *cells]})
        print(f"{len(cells)} cells: {cells[-1]}", flush=True)

    loaded, tokenizer = load_model(model)
    measure_blocks(loaded, text, chosen, tokenizer=tokenizer, device=device, known=known, done=save)


if __name__ == "__main__":
    typer.run(main)
