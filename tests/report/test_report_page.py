"""Pages and the report as text: complete, escaped, and honest about what is missing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_records import EVIL, ITEMS, claim, write_records

from gatelab.cli import reproduce as command
from gatelab.cli.output import answer
from gatelab.errors import GatelabError
from gatelab.report import build, escape, prose
from gatelab.report.papers import distinct, read_records
from gatelab.studies import all_studies
from gatelab.studies.inventory import ITEMS as EVERY


class Elements(HTMLParser):
    """Elements by name with their attributes, ids, and whether every one that was opened was closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def ids(self) -> list[str]:
        return [value for _, held in self.found if (value := held.get("id"))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(write_records(tmp_path_factory.mktemp("out")), ITEMS).read_text(encoding="utf-8")


def test_the_page_is_one_well_formed_document_without_addresses_outside(made: str) -> None:
    elements = Elements(made)
    assert elements.open == []
    ids = elements.ids()
    assert len(ids) == len(set(ids))
    links = [held["href"] for tag, held in elements.found if tag == "a"]
    assert all(link and link.startswith("#") and link[1:] in ids for link in links)
    assert not any(tag in ("iframe", "object") or "src" in held for tag, held in elements.found if tag != "img")
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", made) == []


def test_hostile_text_is_text(made: str) -> None:
    assert "<script>window" not in made
    assert "<img src=x" not in made
    assert sum(tag == "script" for tag, _ in Elements(made).found) == 2
    assert escape(EVIL) in made


def test_every_claim_stands_in_the_summary_with_value_interval_verdict_and_reason(made: str) -> None:
    summary = made.split('id="summary"')[1].split("</section>")[0]
    assert summary.count("data-verdict=") == 6
    counts = dict(re.findall(r'data-value="(\w+)" aria-pressed="false"><span class="count">(\d+)', summary))
    zero = dict.fromkeys(("undecided", "outside"), "0")
    assert counts == dict.fromkeys(("reproduced", "exceeded", "differs"), "1") | zero | {"new": "3"}


def test_what_two_studies_of_a_paper_show_is_counted_once(tmp_path: Path) -> None:
    write_records(tmp_path)
    folder = tmp_path / "scaling"
    twin = json.loads((folder / "fig2.json").read_text(encoding="utf-8")) | {"study": "scaling/fig6", "files": []}
    twin["claims"] = [c | {"place": ""} for c in twin["claims"]]
    twin["claims"].append(claim("slope of the gqu against n", outside="another target"))
    (folder / "fig6.json").write_text(json.dumps(twin), encoding="utf-8")
    records = read_records(tmp_path).values()
    own = distinct(records)
    assert [c.what for c in own["scaling/fig6"]] == ["slope of the gqu against n"]
    assert sum(map(len, own.values())) == sum(len(r.claims) for r in records) - 2
    page = build(tmp_path).read_text(encoding="utf-8")
    assert page.count('data-label="Paper prints"') == len(EVERY)
    summary = page.split('id="summary"')[1].split("</section>")[0]
    assert summary.count("data-verdict=") == 7 and summary.count('data-verdict="outside"') == 1
    assert "Outside the paper's conditions: another target." in summary


def test_studies_that_were_not_run_are_listed_with_their_commands(made: str) -> None:
    missing = made.split('<section id="not-run"')[1].partition("<footer>")[0]
    for one in all_studies():
        ran = one.name in ("scaling/fig2", "ntk/fig4", "linearize/table1")
        assert (f"<code>gatelab reproduce {one.name}</code>" in missing) is not ran


def test_the_inventory_says_what_became_of_each_item(made: str) -> None:
    here = made.split('<section id="inventory"')[1].split("</section>")[0]
    rows = re.findall(r"<tr role=\"row\"><th role=\"rowheader\".*?</tr>", here, re.DOTALL)
    said = [re.findall(r'class="chip (\w+)"><span aria-hidden="true">.</span> ([^<]*)', row)[0] for row in rows]
    assert said == [
        ("reproduced", "reproduced"),
        ("missing", "not run"),
        ("missing", "not run"),
        ("unmeasured", "not measured"),
        ("schematic", "nothing to measure"),
    ]
    assert '<a href="#scaling-fig2"><code>scaling/fig2</code></a>' in rows[0]
    assert '<a href="#not-run"><code>scaling/table1</code></a>' in rows[2]


@pytest.mark.parametrize(
    ("quick", "words"), [(False, {"missing"}), (True, {"missing", "in the full run alone"})], ids=["full", "quick"]
)
def test_what_no_study_of_a_paper_answers_is_missing(tmp_path: Path, quick: bool, words: set[str]) -> None:
    """All studies of the paper are in the folder: what none of them answers is our own defect, and is said."""
    write_records(tmp_path)
    plain = json.loads((tmp_path / "scaling" / "fig2.json").read_text()) | {"quick": quick, "files": []}
    for other in all_studies():
        if other.name.startswith("scaling/") and other.name != "scaling/fig2":
            (tmp_path / f"{other.name}.json").write_text(json.dumps(plain | {"study": other.name, "claims": []}))
    text = build(tmp_path, ITEMS).read_text(encoding="utf-8")
    assert ("were run quickly" in text) is ("scaling/fig4 · a quick run" in text) is quick
    here = text.split('<section id="inventory"')[1].split("</section>")[0]
    assert set(re.findall(r'class="chip missing"><span aria-hidden="true">.</span> ([a-z][^<]*)', here)) == words


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a readable record"),
        ('{"study": "a/b", "claims": []}', "not a record of this gatelab (KeyError"),
        ('{"study": "a/b", "claims": [{"verdict": "perfect"}]}', "not a record of this gatelab"),
        (
            '{"study": "a/b", "claims": [], "title": "", "paper": "", "command": "", "quick": 1, "notes": []}',
            "ParseErr",
        ),
    ],
    ids=["cut off", "without fields", "unknown verdict", "a broken figure"],
)
def test_a_broken_record_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.json").write_text(content)
    (tmp_path / "a" / "b.svg").write_text("<svg><g>")
    with pytest.raises(GatelabError, match=re.escape(said)) as error:
        read_records(tmp_path)
    assert "b.json" in str(error.value)


def test_the_command_prints_the_path_and_refuses_an_empty_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.json").write_text("[1]")  # is no record
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(GatelabError, match="run gatelab reproduce all --out"):
            command.report_command(out=folder)
    assert not (tmp_path / "nothing").exists()
    answer()  # as a command of its own, whatever was asked of those before
    command.report_command(out=write_records(tmp_path))
    assert capsys.readouterr().out.strip() == f"wrote {tmp_path / 'report.html'}"


def test_prose_cannot_make_elements() -> None:
    assert prose("x^2 <sup> \ue0001\ue001 ^<b>") == "x<sup>2</sup> &lt;sup&gt; 1 ^&lt;b&gt;"
    assert prose("m^-1/2 and P^a") == '<span class="n">m<sup>−1/2</sup></span> and P<sup>a</sup>'
