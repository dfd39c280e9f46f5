"""`gatelab units`, `gatelab problems` and `gatelab glossary`: what there is, and what the words mean."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gatelab.cli import output


def complete_unit(incomplete: str) -> list[str]:
    """The units that begin so, for the shell; after a comma the next one."""
    from gatelab.feedforward.catalogue import CATALOGUE

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in CATALOGUE if name.startswith(last.lower())]


def complete_problem(incomplete: str) -> list[str]:
    """The problems that begin so, for the shell."""
    from gatelab.data.catalogue import CATALOGUE

    return [name for name in CATALOGUE if name.startswith(incomplete.lower())]


def complete_word(incomplete: str) -> list[str]:
    """Units and problems that begin so, for the shell."""
    return complete_unit(incomplete) + complete_problem(incomplete)


def unit_option(default: str = "") -> Any:
    """Units by --unit, in every command; `default` says which are taken where none is given."""
    return typer.Option(
        *("--unit", "--units"),
        metavar="UNIT",
        help="Units, often or with commas.",
        show_default=default or False,
        autocompletion=complete_unit,
    )


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="UNIT|PROBLEM",
        help="Units, and a problem's name or a formula.",
        show_default=False,
        autocompletion=complete_word,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
WIDTH = 50
UNITS = "Example: gatelab units --json"
PROBLEMS = "Example: gatelab problems"
GLOSSARY = "Example: gatelab glossary condition number"


def units(as_json: Json = False) -> None:
    """List the units with their formulas, orders and parameters."""
    from gatelab.feedforward.catalogue import CATALOGUE

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
    cells = [[str("-" if v is None else v) for v in row.values()] for row in rows]
    output.table(("unit", "neuron", "order", f"P(n={WIDTH})"), cells, right=(2, 3), wrap=(1,))
    output.say("", "order m: RMSE ~ n^-m on smooth targets of one variable; - if no rate is known")


def problems(as_json: Json = False) -> None:
    """List the problems by name; any formula is taken too."""
    from gatelab.data import problems as every

    if as_json:
        output.document(list(every()))
        return
    rows = [(p.name, str(p.inputs), p.expression or "measured", p.description) for p in every()]
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
    """Say what the words mean: knot, order, limit, floor, kernel, facing, gap and more."""
    from gatelab.glossary import define, definitions

    entries = definitions()
    if word:
        name = " ".join(word)
        entries = {name.lower(): define(name)}
    if as_json:
        output.document([{"word": name, "text": text} for name, text in entries.items()])
        return
    output.pairs(entries.items())
