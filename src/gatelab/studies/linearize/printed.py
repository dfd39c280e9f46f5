"""What the paper on linearisation prints."""

from __future__ import annotations

from collections.abc import Iterator

from gatelab.studies.definition import Item

# Tables as printed; powers of ten as Python writes them.
TABLE1 = """
[-1, 1] | 9e-06
[-3, 3] | 3.0e+00
[-5, 5] | 7.8e+02
[-7, 7] | 2.7e+04
"""
TABLE2 = """
x' = Wx                       | -2.48, 1.55, 2.23
GELU_Taylor,5(x')             | 0.3358, 1.4577, 2.3061
Linearized y' = Phi(W) Psi(x) | 0.3358, 1.4577, 2.3061
GELU_tanh(x')                 | -0.0159, 1.4559, 2.2016
"""
TABLE3 = """
RMSE (Taylor vs. Tanh GELU)       | 0.21182
RMSE (Linearized vs. Taylor GELU) | 0.00000
"""
EPOCHS = {3: "0.1245", 10: "0.0822", 30: "0.0891"}
DEFINITION = "a definition or a listing, without a result of its own"


def cells(table: str) -> list[tuple[str, str]]:
    """The rows of a table kept as text.

    >>> cells(TABLE3)[1]
    ('RMSE (Linearized vs. Taylor GELU)', '0.00000')
    """
    return [(row.strip(), value.strip()) for row, value in (line.split(" | ") for line in table.strip().splitlines())]


def _tables() -> Iterator[Item]:
    for number, table in ((1, TABLE1), (2, TABLE2), (3, TABLE3)):
        for row, printed in cells(table):
            yield Item("linearize", f"table {number}", row, printed)


def _text() -> Iterator[Item]:
    for heading in ("section 3.2.1", "eq. 6"):
        yield Item("linearize", heading, "the series", "6, 40, -336")
    yield Item("linearize", "section 3.2.4", "the error on [-3, 3]", "acceptable")
    yield Item("linearize", "section 3.2.4", "features", "66432")
    yield Item("linearize", "section 3.3.1", "GELU'", "8943/200000")
    yield Item("linearize", "section 3.3.1", "maps at a reference point", why="a formula, without a number")
    yield Item("linearize", "section 3.3.1", "biased", "biased")
    yield Item("linearize", "section 4.1.2", "unbiased", "unbiased")
    yield Item("linearize", "section 4.1.2", "consistent", "consistent")
    yield Item("linearize", "section 4.2.3", "unbiased", "unbiased")
    yield Item("linearize", "section 4.2.3", "more data", "could improve accuracy")
    for epochs, printed in EPOCHS.items():
        yield Item("linearize", "section 4.2.3", f"{epochs} epochs", printed)
    yield Item("linearize", "section 4.2.3", "worse after 30 epochs", "0.0891 against 0.0822")
    for number in range(1, 5):
        yield Item("linearize", "section 4.3.2", f"example {number}", why="a picture, lost in the copy")
    yield Item("linearize", "figure 1", "training loss over 2000 steps", "2.013")
    for recipe in ("new data, last layers solved for", "the recipe of section 4.2"):
        yield Item("linearize", "section 4.3.3", f"the level of the loss, {recipe}", "2.013")
    for heading, row in (
        ("eq. 1", "GELU"),
        ("algorithm 1", "Monte-Carlo sampling"),
        ("section 3.2.3", "code of the Kronecker features"),
        ("section 4.2.2", "code of the learned maps"),
    ):
        yield Item("linearize", heading, row, why=DEFINITION, measurable=False)
    why = "an open question, without a result; the study linearize/transformer takes it up"
    yield Item("linearize", "section 5.1", "decomposed functions in transformers", why=why, measurable=False)


ITEMS = (*_tables(), *_text())
