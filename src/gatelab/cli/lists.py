"""`gatelab units`, `gatelab problems` and `gatelab glossary`: lists of the names that other commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from gatelab.cli import output

WIDTH = 50
UNITS = "Example: gatelab units --json"
PROBLEMS = "Example: gatelab problems"
GLOSSARY = "Example: gatelab glossary condition number"


def units() -> None:
    """List the units with their formulas, orders and parameters."""
    from gatelab.feedforward.named import CATALOGUE

    rows = [
        {
            "name": u.name,
            "description": u.description,
            "order": u.order,
            f"parameters_at_{WIDTH}": u.parameter_count(WIDTH),
        }
        for u in CATALOGUE.values()
    ]
    cells = [[output.text(value) for value in row.values()] for row in rows]
    output.emit(
        rows,
        output.table(("unit", "neuron", "order", f"P(n={WIDTH})"), cells, right=(2, 3), wrap=(1,)),
        "",
        "order m: RMSE ~ n^-m on smooth targets of one variable; - if no rate is known",
    )


def problems() -> None:
    """List the problems by name; formulas and files work too."""
    from gatelab.data import problems as all_problems

    rows = [(p.name, str(p.inputs), p.expression or "measured", p.description) for p in all_problems()]
    output.emit(
        list(all_problems()),
        output.table(("problem", "inputs", "formula", "description"), rows, right=(1,), wrap=(2, 3)),
        "",
        "inputs lie in [-1, 1] by default, see --interval; those of friedman are drawn as in scikit-learn;",
        "formulas such as 'exp(sin(3*x))' or 'sin(4*x)*sin(4*y)' are problems too;",
        "your own data: gatelab fit UNIT --data FILE",
    )


def glossary(
    word: Annotated[list[str] | None, typer.Argument(help="A word, such as knot; all words by default.")] = None,
) -> None:
    """Define the words used here: knot, order, limit, floor, kernel, direction, gap and more."""
    from gatelab.glossary import define, definitions

    entries = definitions()
    if word:
        name = " ".join(word)
        entries = {name.lower(): define(name)}
    output.emit([{"word": name, "text": text} for name, text in entries.items()], output.pairs(entries.items()))
