"""What the paper on scaling prints. Figures are numbered as in the version with eleven of them and an appendix."""

from __future__ import annotations

from collections.abc import Iterator

from gatelab.studies.definition import Item

UNITS = ("mlp", "glu", "gqu")
# Table 1, cells as printed: problem, x dim, MLP, GLU, GQU.
TABLE1 = """
1/(1+cos²πx)  | 1 | -2.13 | -3.08 | -3.55
sin 4x sin 4y | 2 | -0.91 | -1.55 | -
Friedman 1    | 5 | -0.55 | -1.00 | -
Friedman 2    | 4 | -0.75 | -1.12 | -
Friedman 3    | 4 | -0.31 | -0.56 | -
airfoil       | 5 | -0.25 | -0.39 | -
California    | 8 | -0.09 | -0.09 | -
"""
SYNTHETIC = ("sin 4x sin 4y", "Friedman 1", "Friedman 2", "Friedman 3")
MEASURED = ("airfoil", "California")
PROTOCOLS = ("true split", "paper's protocol")
# The other two versions print the same numbers under other figure numbers: this one's, and theirs ("" where absent).
ELSEWHERE = {
    "figure 1": ("figure 1", "figure 1"),
    "figure 2": ("figure 3", "figure 3"),
    "figure 3": ("figure 5", "figure 8"),
    "figure 4": ("figure 2", "figure 2"),
    "figure 5": ("figure 4", "figure 4"),
    "figure 6": ("", "figure 5"),
    "figure 7": ("", "figure 6"),
    "figure 8": ("", "figure 7"),
    "figure 9": ("figure 6", "figure 9"),
    "figure 10": ("figure 7", "figure 10"),
    "figure 11": ("figure 8", "figure 11"),
}
NO_NUMBERS = "curves without printed numbers; their slopes are those of table 1"


def cells(table: str) -> list[tuple[str, list[str]]]:
    """The rows of a table kept as text.

    >>> cells(TABLE1)[0]
    ('1/(1+cos²πx)', ['1', '-2.13', '-3.08', '-3.55'])
    """
    split = [[part.strip() for part in line.split(" | ")] for line in table.strip().splitlines()]
    return [(first, rest) for first, *rest in split]


def _item(place: str, row: str, printed: str, study: str, claim: str, why: str = "") -> Item:
    return Item("scaling", place, row, printed, f"scaling/{study}", claim, why)


def _table1() -> Iterator[Item]:
    for problem, (_, *slopes) in cells(TABLE1):
        for unit, printed in zip(UNITS, slopes, strict=True):
            for protocol in PROTOCOLS:
                why = "the paper has a dash" if printed == "-" else ""
                yield _item("table 1", f"{problem}, {unit}", printed, "table1", f"{problem}, {unit}, {protocol}", why)


def _panels() -> Iterator[Item]:
    for figure, study, problems in (("figure 7", "fig7", SYNTHETIC), ("figure 8", "fig8", MEASURED)):
        for problem in problems:
            for unit in UNITS[:2]:
                claim = f"{problem}, {unit}, paper's protocol"
                yield _item(figure, f"panel of {problem}, {unit}", "", study, claim, NO_NUMBERS)


def _each_unit() -> Iterator[Item]:
    """What is said of MLP and GLU alike: name, then the printed values."""
    for name, n, P, order, factor in (("mlp", "-2.13", "-2.18", 2, "4"), ("glu", "-3.08", "-3.12", 3, "8")):
        upper = name.upper()
        degree, spline = {"mlp": ("linear", "linear spline"), "glu": ("quadratic", "quadratic spline")}[name]
        equation, constant = {"mlp": ("eq. 9", "1/sqrt(120)"), "glu": ("eq. 14", "1/sqrt(945/2)")}[name]
        letters = {"mlp": "abc", "glu": "def"}[name]
        count = {"mlp": "(dim_x + dim_y + 1) n + dim_y", "glu": "(2 dim_x + dim_y + 2) n + dim_y"}[name]
        neurons = {"mlp": "figure 10", "glu": "figure 11"}[name]
        yield _item("abstract", f"L(P) of the {upper}", f"-{order}", "fig6", _wide(name))
        yield _item("section 1", f"{upper}, twice the neurons", factor, "fig6", _twice(name))
        yield _item("figure 1", f"{upper} of two inputs", "", "fig1", f"pieces of the random {name}")
        yield _item("section 3", f"P of the {upper}", count, "fig2", f"parameters of the {name}")
        yield _item(equation, "constant", constant, "fig2", f"constant of the {name}'s construction ({equation})")
        yield _item(equation, "order", f"-{order}", "fig2", f"order of the {name}'s construction")
        yield _item("figure 2", f"{upper} against n", n, "fig2", f"slope of the {name} against n")
        yield _item("figure 2", f"{upper} against P", P, "fig2", f"slope of the {name} against P")
        yield _item("figure 2", f"{upper}, caption", "", "fig2", f"slope of the {name} against P less that against n")
        below = f"error of the trained {name} over that of its construction"
        yield _item("section 4", f"{upper} below the construction", "", "fig2", below)
        yield _item("figure 4", f"({letters[0]}) and ({letters[1]})", "", "fig4", f"training the gates of the {name}")
        rate = f"rate of the {name} with frozen gates, upper half of the widths"
        yield _item("figure 4", f"({letters[0]}), rate", f"-{order}", "fig5", rate)
        yield _item("figure 4", f"({letters[2]})", "", "fig4", f"neurons of the trained {name}, panel ({letters[2]})")
        yield _item("appendix B", f"{upper} at its knots", "", "fig4", f"the {name} at its knots, gates frozen")
        yield _item("figure 5", f"{upper}, error", "", "fig5", f"error of the {name} beside the {spline}")
        order_claim = f"order of the {name} beside that of the {spline}, upper half of the widths"
        yield _item("figure 5", f"{upper}, order", "", "fig5", order_claim)
        yield _item("figure 9", upper, "", "fig9", f"pieces of the random {name}")
        yield _item(neurons, f"four neurons, piecewise {degree}", "", neurons.replace("ure ", ""), _neurons(name))


def _wide(name: str) -> str:
    return f"order of the {name}, from the slope of wide networks"


def _twice(name: str) -> str:
    return f"what twice the neurons divide the {name}'s error by"


def _neurons(name: str) -> str:
    return f"neurons of the random {name}"


def _once() -> Iterator[Item]:
    yield _item("abstract", "GQU steeper than GLU and MLP", "", "fig6", "slopes of gqu, glu and mlp against P")
    yield _item(
        "figure 1", "right: neurons of a GLU of one input", "", "fig1", "neurons of the random glu of one input"
    )
    yield _item("eq. 6", "recurrence for D_i", "", "fig2", "the recurrence for D_i (eq. 6)")
    yield _item("section 3", "partitions", "n - 1", "fig3", "cells that 6 gates make")
    yield _item("figure 3", "left and right", "", "fig3", "dead neurons inside the interval")
    yield _item("section 5", "GLU neurons for 50 of the MLP", "15 for 50", "fig2", "GLU neurons that match the MLP")
    yield _item("figure 6", "GQU against P", "-3.5", "fig6", "slope of the gqu against P")
    yield _item("figure 6", "GQU against n", "-3.55", "fig6", "slope of the gqu against n", "printed in table 1")
    yield _item("appendix C", "the slope that was hoped for", "-4", "fig6", _wide("gqu"))
    yield _item("appendix C", "steeper than observed", "-3.55", "fig6", "slope of the constructed gqu, n = 65..257")
    for protocol in PROTOCOLS:
        steeper = f"problems on which the GLU is steeper than the MLP, {protocol}"
        yield _item("appendix D", "GLU steeper than MLP", "", "table1", steeper)
        inputs = f"slope times dim_x over the slope in one dimension, mlp and glu, {protocol}"
        yield _item("appendix D", "slopes go as 1/dim_x", "1", "table1", inputs)
    for place, row in (("eq. 1", "the GLU"), ("eq. 17", "the GQU"), ("eq. 15, 16", "piecewise expansions")):
        yield Item("scaling", place, row, "", "", "", "a definition: the units are built by it, and tested as such")


ITEMS = (*_each_unit(), *_once(), *_table1(), *_panels())
