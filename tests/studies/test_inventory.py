"""Nothing that the papers print is missing: the inventory against printed tables, studies that are run, and records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.report.records import read_records
from gatelab.studies import Claim, Request, all_studies
from gatelab.studies.catalogue import study
from gatelab.studies.inventory import ITEMS, Item, answers, faults, in_quick
from gatelab.studies.linearize import printed as third
from gatelab.studies.ntk import printed as second
from gatelab.studies.scaling import printed as first
from gatelab.studies.scaling.problem_rows import LINE, REAL, SYNTHETIC
from gatelab.studies.titled import TitledItem

RESULTS = Path(__file__).resolve().parents[2] / "results"
PLACED = "scaling"  # the paper whose claims say their places
TITLED = sorted({item.study for item in ITEMS if isinstance(item, TitledItem)})
# Those that read a record made on a GPU are as quick in full.
RECORDED = ("ntk/fig3", "ntk/fig7", "ntk/appendix-d")
# Quick runs that take longer than the rest.
SLOW = ("scaling/fig7", "scaling/fig8", "scaling/table1", "scaling/law", "ntk/orders", "ntk/thm31")
SLOW += ("linearize/learned2d", "linearize/learned16", "linearize/floor")
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


def test_every_study_of_a_titled_paper_answers_for_something_or_is_of_no_paper() -> None:
    own = {s.name for s in all_studies() if not s.name.startswith(PLACED)}
    assert set(TITLED) == own - {s.name for s in all_studies() if s.beyond}


def test_items_say_what_they_are_and_none_stands_there_twice() -> None:
    placed = [item for item in ITEMS if not isinstance(item, TitledItem)]
    assert len(placed) == len({(item.paper, item.place) for item in placed})
    titled = [item for item in ITEMS if isinstance(item, TitledItem)]
    assert len(titled) == len({(i.paper, i.place, i.study, i.title) for i in titled})
    for item in ITEMS:
        assert item.heading and item.row and "; " not in item.place
        assert item.measurable or item.why, "nothing is measured and nothing says why"
    for item in titled:
        assert item.study.startswith(item.paper) and item.title


@pytest.mark.parametrize(("paper", "count"), [("scaling", 11), ("ntk", 12), ("linearize", 1)])
def test_every_figure_is_there(paper: str, count: int) -> None:
    figures = {i.heading for i in ITEMS if i.paper == paper and i.heading.startswith("figure") and i.measurable}
    assert figures == {f"figure {k}" for k in range(1, count + 1)}


def test_the_other_versions_of_the_first_paper_have_no_figure_more() -> None:
    for version, count in ((0, 8), (1, 11)):
        theirs = [names[version] for names in first.ELSEWHERE.values() if names[version]]
        assert sorted(theirs) == sorted(f"figure {k}" for k in range(1, count + 1))
    assert set(first.ELSEWHERE) == {f"figure {k}" for k in range(1, 12)}


def test_panels_with_letters_are_there() -> None:
    rows = {
        (i.paper, i.heading): " ".join(j.row for j in ITEMS if (j.paper, j.heading) == (i.paper, i.heading))
        for i in ITEMS
    }
    panels = {("scaling", 4): "abcdef", ("ntk", 3): "ab", ("ntk", 5): "abcd", ("ntk", 7): "abc"}
    panels |= {("ntk", k): "abc" for k in (8, 9, 10, 11)} | {("ntk", 12): "ab"}
    for (paper, figure), letters in panels.items():
        assert all(f"({letter})" in rows[paper, f"figure {figure}"] for letter in letters)
    assert "(a) to (d)" in rows["ntk", "figure 6"]


def printed_at(paper: str, heading: str) -> list[tuple[str, str]]:
    return [(i.row, i.printed) for i in ITEMS if (i.paper, i.heading) == (paper, heading)]


def test_every_cell_of_the_first_papers_table_is_there_under_both_protocols() -> None:
    cells = printed_at("scaling", "table 1")
    rows = first.table_rows(first.TABLE1)
    assert len(cells) == 2 * 3 * len(rows) == 42
    for problem, (inputs, *slopes) in rows:
        row = next(r for r in (LINE, *SYNTHETIC, *REAL) if r.label == problem)
        assert row.inputs == int(inputs)
        for unit, printed in zip(first.UNITS, slopes, strict=True):
            assert all((f"{problem}, {unit}, {protocol}", printed) in cells for protocol in first.PROTOCOLS.values())
            # What the claims compare with is what is printed.
            value = row.paper(unit)
            assert printed == ("-" if value is None else f"{value:.2f}")


def test_the_slopes_that_figures_are_compared_with_are_those_that_are_printed() -> None:
    printed = {item.place: item.printed for item in ITEMS if item.paper == "scaling"}
    for (unit, against), value in first.PAPER_SLOPES.items():
        figure = {"mlp": 2, "glu": 2, "gqu": 6}[unit]
        assert float(printed[f"figure {figure}, {unit.upper()} against {against}"]) == value
    assert printed["section 5, GLU neurons for 50 of the MLP"] == "{} for {}".format(*first.GLU_FOR_MLP)


def test_every_cell_of_the_other_tables_is_there() -> None:
    for number, table in ((1, third.TABLE1), (2, third.TABLE2), (3, third.TABLE3)):
        assert printed_at("linearize", f"table {number}") == third.cells(table)
    assert len(printed_at("ntk", "table 1")) == 2 * len(second.TABLE1.strip().splitlines()) == 6
    assert len(printed_at("ntk", "theorem 3.1")) == 3 * 2 * 3 + 1


# ---- claims and items joined


ROW = Item("scaling", "table 9", "a row", "0.5")


def at(place: str, paper: str = "0.5") -> Claim:
    return Claim("a claim", paper, "", "new", "", place=place)


def test_claims_are_joined_with_items_by_place() -> None:
    claim = at("table 9, a row")
    ((item, answer),) = answers({"scaling/fig2": [claim, Claim("another", "", "", "new", "")]}, [ROW]).items()
    assert item is ROW and answer.claim is claim and answer.study == "scaling/fig2"
    assert faults([ROW], {item: answer}) == ()


def test_what_is_missing_or_wrong_is_said() -> None:
    assert faults([ROW], {}) == ("scaling, table 9, a row: no claim answers it",)
    wrong = answers({"scaling/fig2": [at("table 9, a row", paper="0.6")]}, [ROW])
    assert "'0.5' is printed and the claim has '0.6'" in faults([ROW], wrong)[0]
    assert faults([Item("scaling", "eq. 1", "a definition", why="a definition", measurable=False)], {}) == ()


@pytest.mark.parametrize("study", ["scaling/fig2", "ntk/fig2"])
def test_a_claim_at_a_place_that_its_paper_has_not_is_an_error(study: str) -> None:
    place = {"scaling/fig2": "table 9, another row", "ntk/fig2": "table 9, a row"}[study]
    with pytest.raises(GatelabError, match=f"{study} answers '{place}' .a claim., a place that its paper has not"):
        answers({study: [at(place)]}, [ROW])


def test_a_place_that_is_answered_twice_is_an_error() -> None:
    with pytest.raises(GatelabError, match="'table 9, a row' is answered twice: by scaling/fig1 and by scaling/fig2"):
        answers({"scaling/fig1": [at("table 9, a row")], "scaling/fig2": [at("table 9, a row")]}, [ROW])


def test_a_claim_may_answer_several_places() -> None:
    other = Item("scaling", "eq. 1", "the series")
    assert set(answers({"scaling/fig2": [at("table 9, a row; eq. 1, the series")]}, [ROW, other])) == {ROW, other}


def test_titles_still_join_where_items_have_them() -> None:
    titled = TitledItem("ntk", "table 9", "a row", "0.5", study="ntk/fig2", title="a claim")
    claim = Claim("a claim", "0.5", "", "new", "")
    assert answers({"ntk/fig2": [claim]}, [titled])[titled].claim is claim
    assert answers({"ntk/fig1": [claim]}, [titled]) == {}


# ---- against studies that are run


def check_claims(own: tuple[Claim, ...]) -> None:
    assert len({claim.what for claim in own}) == len(own)
    assert not [claim.ours for claim in own if BRACKET.search(claim.ours)]


def check_titled(name: str, own: tuple[Claim, ...]) -> None:
    full = name in RECORDED
    items = [item for item in ITEMS if isinstance(item, TitledItem) and item.study == name]
    assert faults([item for item in items if full or in_quick(item)], answers({name: own})) == ()
    # The rule is no excuse: what it takes for full studies alone is in fact not in a quick one.
    absent = [item for item in items if not full and not in_quick(item)]
    assert not {item.title for item in absent} & {claim.what for claim in own}
    check_claims(own)


def committed(name: str) -> dict[str, tuple[Claim, ...]]:
    """The claims of the record of a full study, if it has been committed."""
    path = RESULTS / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: tuple(Claim(**claim) for claim in document["claims"])} if "claims" in document else {}


@pytest.mark.slow
def test_the_studies_of_the_first_paper_answer_for_every_place_once(claims: Claims) -> None:
    """Long studies from their records, all others run quickly: together they leave nothing out."""
    own: dict[str, tuple[Claim, ...]] = {}
    for each in all_studies():
        if each.name.startswith(PLACED):
            own |= committed(each.name) if each.long else {each.name: claims(each.name)}
    answered = answers(own)
    assert faults([item for item in ITEMS if item.paper == PLACED], answered) == ()
    assert {answer.study for answer in answered.values()} == {name for name in own if not study(name).beyond}
    for name in own:
        check_claims(own[name])


@pytest.mark.parametrize("name", [n for n in TITLED if n not in SLOW])
def test_a_study_makes_the_claims_that_it_answers_with(name: str, claims: Claims) -> None:
    check_titled(name, claims(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_longer_study_makes_them_too(name: str, claims: Claims) -> None:
    own = claims(name)
    if not name.startswith(PLACED):
        check_titled(name, own)
        return
    answered = answers({name: own})
    assert set(answered) == {item for item in answers(committed(name)) if in_quick(item)}
    assert faults(answered, answered) == ()
    check_claims(own)


# ---- against the committed records


@pytest.mark.parametrize("name", [*TITLED, *(s.name for s in all_studies() if s.name.startswith(PLACED))])
def test_a_committed_record_has_every_claim(name: str) -> None:
    own = committed(name)
    if not own:
        pytest.skip(f"no record of {name} is committed")
    answered = answers(own)
    titled = [item for item in ITEMS if isinstance(item, TitledItem) and item.study == name]
    assert faults([*titled, *answered], answered) == ()
    assert not [claim.ours for claim in own[name] if BRACKET.search(claim.ours)]


def test_records_without_places_are_read_and_joined() -> None:
    """The committed records were made before claims had places."""
    records = read_records(RESULTS)
    assert not any(claim.place for record in records.values() for claim in record.claims)
    answered = answers({name: record.claims for name, record in records.items()})
    studies = [answer.study for answer in answered.values()]
    assert [studies.count(name) for name in ("scaling/table1", "scaling/fig7", "scaling/fig8")] == [46, 8, 4]
