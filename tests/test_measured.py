"""Every measured number of the documents is held to its record: docs/make_measured.py makes each sentence out of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def script() -> ModuleType:
    """docs/make_measured.py as a module."""
    spec = importlib.util.spec_from_file_location("make_measured", ROOT / "docs/make_measured.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_measured"] = module
    spec.loader.exec_module(module)
    return module


MEASURED = script()
Sentences = list[tuple[str, str]]


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    """Documents and what is held in them; made once, and not while tests are collected."""
    return [(document, one.sentence) for one in MEASURED.held() for document in one.documents]


def test_a_sentence_is_that_of_its_record(sentences: Sentences) -> None:
    missing = [(document, words) for document, words in sentences if words not in MEASURED.flat(document)]
    assert missing == [], "the documents do not say what the records do"
    assert len(sentences) > 80


def test_differences_are_paired_over_windows() -> None:
    cells = {"m:0.8:ours": {"windows": [1.0, 2.0, 4.0]}, "m:0.8:surgeon": {"windows": [1.5, 2.5, 4.5]}}
    (line,) = MEASURED.paired_lines(cells, cells)
    assert line == "- ours minus surgeon at keep 0.8, paired over 3 windows: -0.500 [-0.500, -0.500] nats a token"
    assert not [*MEASURED.paired_lines({"m:0.8:ours": {}, "m:0.8:surgeon": {}}, cells)]


def test_what_is_compared_elsewhere_has_that_test() -> None:
    tests = (ROOT / "tests/test_readme.py").read_text(encoding="utf-8")
    for one in MEASURED.elsewhere():
        assert f"def {one.test.partition('::')[2]}(" in tests


def test_the_table_is_up_to_date() -> None:
    made = MEASURED.render()
    page = MEASURED.TARGET.read_text(encoding="utf-8")
    assert made == page, "docs/measured.md is behind: run python docs/make_measured.py"


def unheld(text: str, sentences: list[str]) -> list[str]:
    """Numbers of a text that are in none of the sentences, each with the words about it."""
    covered = [False] * len(text)
    for sentence in sentences:
        for match in re.finditer(re.escape(sentence), text):
            covered[match.start() : match.end()] = [True] * (match.end() - match.start())
    # A number: digits that are no part of a name or of a version.
    numbers = re.finditer(r"(?<![\w/`-])[-+]?\d[\d.]*(?:e-?\d+)?(?![\w`/])", text)
    return [text[max(0, m.start() - 30) : m.end() + 20] for m in numbers if not covered[m.start()]]


@pytest.mark.parametrize("document", ["README.md", "docs/corrections.md"])
def test_every_number_is_held_or_measures_nothing(document: str, sentences: Sentences) -> None:
    text = MEASURED.prose(document)
    own = [words for place, words in sentences if place == document]
    assert unheld(text, [*own, *MEASURED.NOT_MEASURED[document]]) == []
    # What measures nothing is there at all, and a number that nobody holds is noticed.
    assert [words for words in MEASURED.NOT_MEASURED[document] if words not in text] == []
    assert unheld(f"{text} and 12.5 times", own)[-1].endswith("12.5 times")
