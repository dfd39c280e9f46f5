"""What the paper on linearisation prints."""

from __future__ import annotations

from collections.abc import Iterator

from gatelab.studies.definition import Item
from gatelab.studies.titled import TitledItem

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


def _item(place: str, row: str, printed: str, study: str, claim: str, why: str = "") -> Item:
    return TitledItem("linearize", place, row, printed, why, study=f"linearize/{study}", title=claim)


def _tables() -> Iterator[Item]:
    for row, printed in cells(TABLE1):
        yield _item("table 1", row, printed, "table1", f"largest error of 5 Taylor terms, Wx in {row}")
    for number, table in ((2, TABLE2), (3, TABLE3)):
        for row, printed in cells(table):
            yield _item(f"table {number}", row, printed, f"table{number}", row)


def _text() -> Iterator[Item]:
    series = "denominators of z^2, z^4, z^6, z^8 in the series, times sqrt(2 pi)"
    for place in ("section 3.2.1", "eq. 6"):
        yield _item(place, "the series", "6, 40, -336", "table1", series)
    acceptable = "Wx in [-3, 3], where the error is called acceptable"
    yield _item("section 3.2.4", "the error on [-3, 3]", "acceptable", "table1", acceptable)
    yield _item("section 3.2.4", "features", "66432", "table2", "features of W and x in R^3, Kronecker powers")
    yield _item("section 3.3.1", "GELU'", "8943/200000", "table3", "the derivative of GELU (section 3.3.1)")
    unbiased = "mean of the Monte-Carlo estimates less GELU (section 4.1)"
    yield _item("section 4.1.2", "unbiased", "", "learned2d", unbiased)
    consistent = "what 16 times the samples divide the variance by (section 4.1)"
    yield _item("section 4.1.2", "consistent", "", "learned2d", consistent)
    yield _item("section 4.2.3", "unbiased", "unbiased", "learned2d", "whether learned maps are unbiased")
    yield _item("section 4.2.3", "more data", "could improve accuracy", "learned2d", "more data")
    for epochs, printed in EPOCHS.items():
        yield _item("section 4.2.3", f"{epochs} epochs", printed, "learned2d", f"RMSE after {epochs} epochs")
    worse = "30 epochs are worse than 10"
    yield _item("section 4.2.3", "worse after 30 epochs", "0.0891 against 0.0822", "learned2d", worse)
    examples = "GELU(Wx) and y' on four new pairs (examples 1-4)"
    for number in range(1, 5):
        yield _item("section 4.3.2", f"example {number}", "", "learned16", examples, "a picture, lost in the copy")
    loss = "training loss over the steps (figure 1)"
    yield _item("figure 1", "training loss over 2000 steps", "2.013", "learned16", loss)
    for recipe in ("new data, last layers solved for", "the recipe of section 4.2"):
        claim = f"loss with the most features, {recipe}"
        yield _item("section 4.3.3", "the level of the loss", "2.013", "learned16", claim)
    for place, row in (
        ("eq. 1", "GELU"),
        ("algorithm 1", "Monte-Carlo sampling"),
        ("section 3.2.3", "code of the Kronecker features"),
        ("section 4.2.2", "code of the learned maps"),
    ):
        yield Item("linearize", place, row, why=DEFINITION, measurable=False)
    why = "an open question, without a result; the study linearize/transformer takes it up"
    yield Item("linearize", "section 5.1", "decomposed functions in transformers", why=why, measurable=False)


ITEMS = (*_tables(), *_text())
