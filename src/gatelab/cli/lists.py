"""`gatelab units`, `gatelab problems` and `gatelab glossary`: what there is, and what the words mean."""

from __future__ import annotations

from typing import Annotated

import typer

from gatelab.cli import output
from gatelab.cli.options import Json

WIDTH = 50
UNITS = "Example: gatelab units --json"
PROBLEMS = "Example: gatelab problems"
GLOSSARY = "Example: gatelab glossary condition number"


def units(as_json: Json = False) -> None:
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
    if as_json:
        output.document(rows)
        return
    cells = [[output.text(value) for value in row.values()] for row in rows]
    output.table(("unit", "neuron", "order", f"P(n={WIDTH})"), cells, right=(2, 3), wrap=(1,))
    output.say("", "order m: RMSE ~ n^-m on smooth targets of one variable; - if no rate is known")


def problems(as_json: Json = False) -> None:
    """List the problems by name; any formula is taken too."""
    from gatelab.data import problems as all_problems

    if as_json:
        output.document(list(all_problems()))
        return
    rows = [(p.name, str(p.inputs), p.expression or "measured", p.description) for p in all_problems()]
    output.table(("problem", "inputs", "formula", "what it is"), rows, right=(1,), wrap=(2, 3))
    output.say(
        "",
        "inputs lie in [-1, 1] unless --interval says otherwise; friedman's are drawn as by scikit-learn;",
        "any formula is taken too, such as 'exp(sin(3*x))' or 'sin(4*x)*sin(4*y)';",
        "your own data: gatelab fit UNIT --data FILE",
    )


def glossary(
    word: Annotated[
        list[str] | None, typer.Argument(help="A word, such as knot; all of them if none is given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what the words mean: knot, order, limit, floor, kernel, direction, gap and more."""
    from gatelab.glossary import define, definitions

    entries = definitions()
    if word:
        name = " ".join(word)
        entries = {name.lower(): define(name)}
    if as_json:
        output.document([{"word": name, "text": text} for name, text in entries.items()])
        return
    output.pairs(entries.items())
