"""Nothing that the papers print is missing: the inventory against printed tables, studies that are run, and records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from gatelab.studies import Claim, Request, all_studies
from gatelab.studies.catalogue import study
from gatelab.studies.inventory import BEYOND, ITEMS, Item, in_quick, items_of, unanswered
from gatelab.studies.linearize import printed as third
from gatelab.studies.ntk import printed as second
from gatelab.studies.scaling import printed as first
from gatelab.studies.scaling.errors import TABLE1
from gatelab.studies.scaling.rows import LINE, REAL, SYNTHETIC

RESULTS = Path(__file__).resolve().parents[2] / "results"
NAMED = sorted({item.study for item in ITEMS if item.study})
# Those that read a record made on a GPU are as quick in full.
RECORDED = ("ntk/fig3", "ntk/fig7", "ntk/appendix-d")
CHEAP = (
    *(f"scaling/fig{k}" for k in (1, 2, 3, 4, 5, 6, 9, 10, 11)),
    *("ntk/fig1", "ntk/fig2", "ntk/fig4", "ntk/fig5", "ntk/fig6"),
    *("linearize/table1", "linearize/table2", "linearize/table3"),
)
Claims = Callable[[str], tuple[Claim, ...]]
# "[1, 2]" behind a number is an interval, and belongs into the field of that name.
BRACKET = re.compile(r"\d%? \[[-+]?[\d.]+(e[-+]\d+)?, ")


@pytest.fixture(scope="session")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Claims]:
    """What a study claims, run once: quickly, or in full from its record."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    @cache
    def run(name: str) -> tuple[Claim, ...]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GATELAB_DATA", str(tmp_path_factory.mktemp("no-data")))
            return study(name).run(Request(quick=name not in RECORDED, jobs=1)).comparison

    yield run
    torch.set_num_threads(before)


# ---- the inventory alone


def test_every_study_answers_for_something_or_is_of_no_paper() -> None:
    names = {s.name for s in all_studies()}
    assert set(NAMED) <= names and not set(NAMED) & set(BEYOND)
    assert names - set(NAMED) <= set(BEYOND)


def test_items_say_what_they_are_and_none_stands_there_twice() -> None:
    assert len(ITEMS) == len({(i.paper, i.place, i.row, i.study, i.claim) for i in ITEMS})
    for item in ITEMS:
        assert item.place and item.row and bool(item.study) == bool(item.claim)
        assert item.claim or item.why, "nothing is measured and nothing says why"
        assert item.study.startswith(item.paper) or not item.study


@pytest.mark.parametrize(("paper", "count"), [("scaling", 11), ("ntk", 12), ("linearize", 1)])
def test_every_figure_is_there(paper: str, count: int) -> None:
    found = {i.place for i in ITEMS if i.paper == paper and i.place.startswith("figure") and i.claim}
    assert found == {f"figure {k}" for k in range(1, count + 1)}


def test_the_other_versions_of_the_first_paper_have_no_figure_more() -> None:
    for version, count in ((0, 8), (1, 11)):
        theirs = [names[version] for names in first.ELSEWHERE.values() if names[version]]
        assert sorted(theirs) == sorted(f"figure {k}" for k in range(1, count + 1))
    assert set(first.ELSEWHERE) == {f"figure {k}" for k in range(1, 12)}


def test_panels_with_letters_are_there() -> None:
    rows = {
        (i.paper, i.place): " ".join(j.row for j in ITEMS if (j.paper, j.place) == (i.paper, i.place)) for i in ITEMS
    }
    panels = {("scaling", 4): "abcdef", ("ntk", 3): "ab", ("ntk", 5): "abcd", ("ntk", 7): "abc"}
    panels |= {("ntk", k): "abc" for k in (8, 9, 10, 11)} | {("ntk", 12): "ab"}
    for (paper, figure), letters in panels.items():
        assert all(f"({letter})" in rows[paper, f"figure {figure}"] for letter in letters)
    assert "(a) to (d)" in rows["ntk", "figure 6"]


def _cells(paper: str, place: str) -> list[tuple[str, str]]:
    return [(i.row, i.printed) for i in ITEMS if (i.paper, i.place) == (paper, place)]


def test_every_cell_of_the_first_papers_table_is_there_under_both_protocols() -> None:
    found = _cells("scaling", "table 1")
    rows = first.cells(first.TABLE1)
    assert len(found) == 2 * 3 * len(rows) == 42
    for problem, (inputs, *slopes) in rows:
        row = next(r for r in (LINE, *SYNTHETIC, *REAL) if r.label == problem)
        assert row.inputs == int(inputs)
        for unit, printed in zip(first.UNITS, slopes, strict=True):
            assert found.count((f"{problem}, {unit}", printed)) == 2
            # What the claims compare with is what is printed.
            value = TABLE1[row.name].get(unit)
            assert printed == ("-" if value is None else f"{value:.2f}")


def test_every_cell_of_the_other_tables_is_there() -> None:
    for number, table in ((1, third.TABLE1), (2, third.TABLE2), (3, third.TABLE3)):
        assert _cells("linearize", f"table {number}") == third.cells(table)
    assert len(_cells("ntk", "table 1")) == 2 * len(second.TABLE1.strip().splitlines()) == 6
    assert len(_cells("ntk", "theorem 3.1")) == 3 * 2 * 3 + 1


# ---- against studies that are run


def test_what_is_missing_or_wrong_is_said() -> None:
    item = Item("linearize", "table 9", "a row", "0.5", "linearize/table1", "a claim")
    assert "makes no claim 'a claim'" in unanswered([item], [])[0]
    assert "'0.5' is printed and the claim has '0.6'" in unanswered([item], [Claim("a claim", "0.6", "", "new", "")])[0]
    assert unanswered([item], [Claim("a claim", "0.5", "", "new", "")]) == ()


def _check(name: str, claims: Claims) -> None:
    found = claims(name)
    full = name in RECORDED
    wanted = [item for item in items_of(name) if full or in_quick(item)]
    assert unanswered(wanted, found) == ()
    # The rule is no excuse: what it takes for full studies alone is in fact not in a quick one.
    absent = [item for item in items_of(name) if not full and not in_quick(item)]
    assert not {item.claim for item in absent} & {claim.what for claim in found}
    assert len({claim.what for claim in found}) == len(found)
    assert not [claim.ours for claim in found if BRACKET.search(claim.ours)]


@pytest.mark.parametrize("name", [n for n in NAMED if n in (*CHEAP, *RECORDED)])
def test_a_study_makes_the_claims_that_it_answers_with(name: str, claims: Claims) -> None:
    _check(name, claims)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in (*NAMED, *BEYOND[:3]) if n not in (*CHEAP, *RECORDED)])
def test_a_longer_study_makes_them_too(name: str, claims: Claims) -> None:
    _check(name, claims)


# ---- against the committed records


def _committed(name: str) -> tuple[Claim, ...] | None:
    """The claims of the record of a full study, if it has been committed."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return tuple(Claim(**claim) for claim in found["claims"]) if "claims" in found else None


@pytest.mark.parametrize("name", NAMED)
def test_a_committed_record_has_every_claim(name: str) -> None:
    found = _committed(name)
    if found is None:
        pytest.skip(f"no record of {name} is committed")
    assert unanswered(items_of(name), found) == ()
    assert not [claim.ours for claim in found if BRACKET.search(claim.ours)]
