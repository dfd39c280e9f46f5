"""The inventory of the papers is complete: compared with printed tables, with studies that are run, and records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from quick_runs import LONGER, Quick, each_study

from gatelab.errors import GatelabError
from gatelab.plain import from_plain
from gatelab.studies import Claim, Outcome, all_studies
from gatelab.studies.engine import PAPERS, study
from gatelab.studies.inventory import ITEMS, Answer, Item, answers, in_quick, printed
from gatelab.studies.reproduction import read_tables
from gatelab.studies.scaling.error_curves import PAPER_SLOPES

RESULTS = Path(__file__).resolve().parents[2] / "results"
KEPT = {
    name: tuple(from_plain(Claim, claim) for claim in record["claims"])
    for name, record in json.loads((RESULTS / "claims.json").read_text(encoding="utf-8")).items()
}
# The headings at which each study of two papers answered in the last full run.
HEADINGS = {name: {item.heading for item in answers({name: KEPT[name]})} for name in KEPT if name[:3] in ("ntk", "lin")}
# Those that read a record made on a GPU, or on many cores, are as quick in full.
RECORDED = ("ntk/fig3", "ntk/fig7", "ntk/appendix-d-whole")
# The rows of these are answered by two studies.
SHARED = {("linearize", "section 3.2.4"), ("ntk", "eq. 5"), ("ntk", "eq. 8")}
SHARED |= {("scaling", "figure 4")}
Claims = Callable[[str], tuple[Claim, ...]]
# Words of items whose formula, table or bound our copy of the paper lost.
LOST = re.compile(r"(formulas?|bounds on n and d) (is|are) lost|are the formulas|lost in the copy|derived again")
# The tables once more, typed off the papers. Of more than two inputs the first has two protocols.
TABLES = {
    ("scaling", 1): "-2.13 | -3.08 | -3.55 | -0.91 | -1.55 | -"
    + 2 * " | -0.55 | -1.00 | - | -0.75 | -1.12 | - | -0.31 | -0.56 | - | -0.25 | -0.39 | - | -0.09 | -0.09 | -",
    ("linearize", 1): "9e-06 | 3.0e+00 | 7.8e+02 | 2.7e+04",
    ("linearize", 2): "-2.48, 1.55, 2.23" + 2 * " | 0.3358, 1.4577, 2.3061" + " | -0.0159, 1.4559, 2.2016",
    ("linearize", 3): "0.21182 | 0.00000",
}


@pytest.fixture(scope="session")
def claims(quick: Quick, recorded: Callable[[str], Outcome]) -> Claims:
    """The claims of a study, run quickly or in full from its record."""
    return lambda name: (recorded(name) if name in RECORDED else quick(name).outcome).claims


# ---- the inventory alone


def test_items_say_what_they_are_and_none_stands_there_twice() -> None:
    assert len(ITEMS) == len({(item.paper, item.place) for item in ITEMS})
    for item in ITEMS:
        assert item.paper in PAPERS and item.heading and item.row and "; " not in item.place
        assert item.why or (item.measurable and item.printed), f"{item.place} has neither a number nor a reason"


@pytest.mark.parametrize("paper", ["ntk", "linearize"])
def test_every_heading_has_a_study_that_answers_it(paper: str) -> None:
    wanted = {item.heading for item in ITEMS if item.paper == paper and item.measurable and not item.missing}
    assert wanted == set().union(*(headings for name, headings in HEADINGS.items() if name.startswith(paper)))


def test_every_figure_is_there_with_its_panels() -> None:
    for paper, count in (("scaling", 11), ("ntk", 12), ("linearize", 1)):
        figures = {i.heading for i in ITEMS if i.paper == paper and i.heading.startswith("figure") and i.measurable}
        assert figures == {f"figure {k}" for k in range(1, count + 1)}
    panels = {("scaling", 4): "abcdef", ("ntk", 3): "ab", ("ntk", 5): "abcd", ("ntk", 7): "abc", ("ntk", 12): "ab"}
    panels |= {("ntk", k): "abc" for k in (8, 9, 10, 11)}
    for (paper, figure), letters in panels.items():
        rows = " ".join(row for row, _ in printed_at(paper, f"figure {figure}"))
        assert all(f"({letter})" in rows for letter in letters)


def printed_at(paper: str, heading: str) -> list[tuple[str, str]]:
    return [(i.row, i.printed) for i in ITEMS if (i.paper, i.heading) == (paper, heading)]


def test_every_cell_of_the_tables_is_there() -> None:
    for (paper, number), cells in TABLES.items():
        assert sorted(cell for _, cell in printed_at(paper, f"table {number}")) == sorted(cells.split(" | "))
    assert len(printed_at("ntk", "table 1")) == 6
    theorem = [item for item in ITEMS if (item.paper, item.heading) == ("ntk", "theorem 3.1")]
    assert len(theorem) == 3 * 2 * 3 + 1 and all("lost" in item.why for item in theorem)


def test_the_slopes_that_figures_are_compared_with_are_those_that_are_printed() -> None:
    assert PAPER_SLOPES["mlp", "n"] == -2.13 and PAPER_SLOPES["gqu", "P"] == -3.5 and len(PAPER_SLOPES) == 6
    with pytest.raises(GatelabError, match="has no place 'figure 2, MLP against m'"):
        printed("scaling", "figure 2, MLP against m")


# ---- claims and items joined


ROW = Item("scaling", "table 9", "a row", "0.5")


def at(place: str, paper: float | None = 0.5) -> Claim:
    return Claim("a claim", 0.4, paper=paper, place=place)


def faults(items: Iterable[Item], answered: Mapping[Item, Answer]) -> list[str]:
    """The measured places without a claim, and those whose claim does not have the printed number."""
    measured = [item for item in items if item.measurable and not item.missing]
    return [
        f"{item.paper}, {item.place}"
        for item in measured
        if item not in answered or not has_printed(item.printed, answered[item].claim.paper)
    ]


def has_printed(printed: str, paper: float | str | None) -> bool:
    """Whether a claim has the printed words or one of the printed numbers; values of formulas are not compared."""
    if not isinstance(paper, float | int):
        return printed in (paper or "")
    try:
        return not printed or paper in [float(number) for number in printed.split(", ")]
    except ValueError:
        return True


def test_claims_are_joined_with_items_by_place() -> None:
    claim, other = at("table 9, a row; eq. 1, the series"), Item("scaling", "eq. 1", "the series")
    joined = answers({"scaling/fig2": [claim, Claim("another", 1.0)]}, [ROW, other])
    assert joined == dict.fromkeys([ROW, other], Answer("scaling/fig2", claim)) and faults([ROW, other], joined) == []


def test_places_that_were_not_measured_take_no_answer() -> None:
    """Appendix D: Tiny ImageNet was never trained on, and GPT-2 only with the pair that figure 7 (b) shows."""
    missing = [item for item in ITEMS if item.missing]
    assert [item.heading for item in missing] == [*3 * ["figure 8"], *3 * ["figure 10"], *2 * ["figure 12"]]
    with pytest.raises(GatelabError, match=r"ntk/fig7 answers 'figure 8.*listed as not measured"):
        answers({"ntk/fig7": [at(missing[0].place)]})


def test_a_claim_at_an_unknown_place_or_at_one_that_is_answered_raises() -> None:
    for name, place in (("scaling/fig2", "table 9, another row"), ("ntk/fig2", "table 9, a row")):
        with pytest.raises(GatelabError, match=f"{name} answers '{place}'"):
            answers({name: [at(place)]}, [ROW])
    claim = at(next(item.place for item in ITEMS if item.paper == "scaling"))
    with pytest.raises(GatelabError, match="is answered twice: by scaling/fig1 and by scaling/fig2"):
        answers({"scaling/fig1": [claim], "scaling/fig2": [claim]})


# ---- against studies that are run


def left_open(own: Mapping[str, tuple[Claim, ...]], *, full: bool) -> list[str]:
    """The faults at the headings that these claims answer: a study that answers a row of one answers all of it."""
    answered = answers(own)
    headings = {(item.paper, item.heading) for item in answered} - SHARED
    rows = [item for item in ITEMS if (item.paper, item.heading) in headings and (full or in_quick(item))]
    return faults(dict.fromkeys([*rows, *answered]), answered)


def check_study(name: str, own: tuple[Claim, ...]) -> None:
    full, answered = name in RECORDED, answers({name: own})
    assert left_open({name: own}, full=full) == []
    assert full or all(in_quick(item) for item in answered)  # places of full studies are not in a quick one
    if not name.startswith("scaling/"):
        assert {item.heading for item in answered} == HEADINGS[name]
    assert len({claim.what for claim in own}) == len(own)


@cache
def committed(name: str) -> dict[str, tuple[Claim, ...]]:
    """The claims of the record of a full study, if it has been committed."""
    path = RESULTS / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if "claims" not in document:
        return {}
    return {name: study(name).report(read_tables(path, document["files"])).claims}


def test_the_longest_training_answers_for_its_epochs() -> None:
    own = {"linearize/learned2d": KEPT["linearize/learned2d"]}
    assert left_open(own, full=True) == []
    assert sum(not in_quick(item) for item in answers(own)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_studies_of_a_paper_answer_for_every_place_once(paper: str, claims: Claims) -> None:
    """Long studies from their records, all others run quickly."""
    own: dict[str, tuple[Claim, ...]] = {}
    for each in all_studies():
        if each.name.startswith(f"{paper}/"):
            own |= committed(each.name) if each.long else {each.name: claims(each.name)}
    if paper == "linearize":
        own["linearize/learned2d"] = KEPT["linearize/learned2d"]
    answered = answers(own)
    assert faults([item for item in ITEMS if item.paper == paper], answered) == []
    assert {answer.study for answer in answered.values()} == {name for name in own if not study(name).beyond}
    assert all(len({claim.what for claim in claims}) == len(claims) for claims in own.values())


@each_study(name for name in dict.fromkeys([*HEADINGS, *LONGER]) if name != "scaling/fig2")
def test_a_study_makes_the_claims_that_it_answers_with(name: str, claims: Claims) -> None:
    """The other studies of the paper on scaling run in the test above; figure 2 shares a section's rows."""
    own = claims(name)
    check_study(name, own)
    if name in LONGER and committed(name):
        assert set(answers({name: own})) == {item for item in answers(committed(name)) if in_quick(item)}


# ---- against the committed records


def test_reconstructed_formulas_and_claims_outside_the_conditions_never_differ(claims: Claims) -> None:
    own = {name: kept for name, kept in KEPT.items() if name.startswith("ntk/")}
    own |= committed("ntk/fig6") | committed("ntk/steps")
    own["ntk/appendix-d-whole"] = claims("ntk/appendix-d-whole")
    lost = [(item, answer.claim) for item, answer in answers(own).items() if LOST.search(item.why)]
    assert len(lost) > 20 and "differs" not in {claim.verdict for _, claim in lost}
    outside = [claim for made in own.values() for claim in made if claim.outside]
    assert len(outside) == 28 and "differs" not in {claim.verdict for claim in outside}
    # Eq. 5 is for m much larger than d: at m = d and at m = 10 d it is not.
    assert {claim.verdict for claim in outside if claim.place.startswith("eq. 5, m =")} <= {"new", "outside"}


def test_the_committed_records_answer_for_their_places() -> None:
    counts = {"scaling/table1": 40, "scaling/fig7": 8, "scaling/fig8": 4, "ntk/fig6": 14, "ntk/steps": 6}
    own: dict[str, tuple[Claim, ...]] = {}
    for each in all_studies():
        record = committed(each.name)
        assert left_open(record, full=True) == [] and len(answers(record)) == counts.get(each.name, 0)
        own |= record
    assert len(answers(own)) == sum(counts.values())
