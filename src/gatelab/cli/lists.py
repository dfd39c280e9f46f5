"""`gatelab units`, `gatelab problems` and `gatelab glossary`: lists of the names that other commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from gatelab.cli import output

WIDTH = 50
UNITS = "Example: gatelab units --json"
PROBLEMS = "Example: gatelab problems"
GLOSSARY = "Example: gatelab glossary condition number"


def units_command() -> None:
    """List the units with their formulas, orders and parameters."""
    from gatelab.feedforward.named import CATALOGUE

    names = ("name", "description", "order", f"parameters_at_{WIDTH}")
    cells = [(u.name, u.description, u.order, u.parameter_count(WIDTH)) for u in CATALOGUE.values()]
    output.emit(
        [dict(zip(names, row, strict=True)) for row in cells],
        output.table([dict(zip(("unit", "neuron", "order", f"P(n={WIDTH})"), row, strict=True)) for row in cells]),
        "",
        "order m: RMSE ~ n^-m on smooth targets of one variable; - if no rate is known",
    )


def problems_command() -> None:
    """List the problems by name; formulas and files work too."""
    from gatelab.data import problems as all_problems

    rows = [
        {"problem": p.name, "inputs": p.inputs, "formula": p.expression or "measured", "description": p.description}
        for p in all_problems()
    ]
    output.emit(
        list(all_problems()),
        output.table(rows),
        "",
        "inputs lie in [-1, 1] by default, see --interval; those of friedman are drawn as in scikit-learn;",
        "formulas such as 'exp(sin(3*x))' or 'sin(4*x)*sin(4*y)' are problems too;",
        "your own data: gatelab fit UNIT --data FILE",
    )


def glossary_command(
    word: Annotated[list[str] | None, typer.Argument(help="A word, such as knot; all words by default.")] = None,
) -> None:
    """Define the words used here: knot, order, limit, floor, kernel, direction, gap and more."""
    from gatelab.glossary import define, definitions

    entries = definitions()
    if word:
        name = " ".join(word)
        entries = {name.lower(): define(name)}
    output.emit([{"word": name, "text": text} for name, text in entries.items()], output.pairs(entries.items()))
