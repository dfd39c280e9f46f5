"""Every page of docs is executed, what it shows is what came, and what it names is there."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import gatelab as gl
from executed import SET_UP, blocks, commands, differences, run_page
from gatelab.cli import app
from gatelab.glossary import definitions
from gatelab.studies import all_studies

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = [p for p in DOCS.rglob("*.md") if "templates" not in p.parts]
PAGES = sorted(p for p in WRITTEN if p.name not in ("api.md", "architecture.md"))
EXECUTED = [p for p in PAGES if blocks(p.read_text(encoding="utf-8"))]
DERIVATIONS = sorted((DOCS / "derivations").glob("*.md"))
PACKAGES = sorted((DOCS / "packages").glob("*.md"))

pytestmark = pytest.mark.usefixtures("one_thread")


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def script(path: str) -> ModuleType:
    """A script of docs as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and the like look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", EXECUTED, ids=name)
def test_page_runs_and_says_what_it_shows(page: Path, tmp_path: Path) -> None:
    wrong = []
    for block, said in run_page(page, tmp_path):
        if block.says is not None and (found := differences(block.says, said)):
            wrong.append(f"{name(page)}, line {block.line}: {found}")
    assert not wrong, "\n".join(wrong)


def test_every_package_and_derivation_is_executed_and_indexed() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in (*PACKAGES, *DERIVATIONS):
        assert f"({name(page)})" in index, f"{name(page)} is not in docs/README.md"
        assert any(b.kind == "python" and b.says for b in blocks(page.read_text(encoding="utf-8"))), name(page)
    assert len(PACKAGES) == 17 and len(DERIVATIONS) == 6


@pytest.mark.parametrize("page", PACKAGES, ids=name)
def test_package_pages_have_one_form(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for title in ("## Main functions", "## Details", "## Limitations", "## Source files"):
        assert title in text, f"{name(page)} has no {title!r}"
    for path in re.findall(r"`(src/gatelab/[\w/.]*)`", text):
        assert (ROOT / path).exists(), f"{name(page)} names {path}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_set_up_name_what_is_there(page: Path) -> None:
    """pip, make and python are not run here: their targets must exist, and examples have a test of their own."""
    text = page.read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"'\.\[(\w+)\]'", text):
        assert extra in extras, f"{name(page)}: no extra {extra}"
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)`", text):
        assert f"\n{target}:" in makefile, f"{name(page)}: no target {target}"
    for block in blocks(text):
        for words in commands(block) if block.kind == "sh" else ():
            assert words[0] in ("gatelab", *SET_UP), f"{name(page)}, line {block.line}: {words}"
            if words[0] == "python":
                assert (ROOT / words[1]).exists(), f"{name(page)}, line {block.line}: no {words[1]}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere_and_studies_that_are_named_are_there(page: Path) -> None:
    """Quick runs of every study are in tests/studies; here it is that the names are right."""
    known = {s.name for s in all_studies()} | {"all"}
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{name(page)} links to {target}"
    for command in re.findall(r"`gatelab reproduce ([^`]*)`", text):
        for word in command.split():
            assert word.startswith("--") or word in known, f"{name(page)}: no study {word}"
    for word in re.findall(r"`((?:scaling|ntk|linearize|models)/[a-z0-9-]+)`", text):
        assert word in known, f"{name(page)}: no study {word}"


# What a stranger meets in the help, the pages and the tables without having been told what it is.
WORDS = """claim, condition number, crossing, direction, fit, floor, gap, gate, kernel, knot, limit, noise floor, order,
problem, record, slope, store, unit, verdict, width"""


def test_glossary_explains_the_words_with_examples() -> None:
    entries = definitions()
    assert {" ".join(word.split()) for word in WORDS.split(",")} <= set(entries)
    assert list(entries) == sorted(entries)
    for word, text in entries.items():
        assert "Example: " in text and text.endswith(".") and len(text) < 500, word


def test_glossary_is_printed_whole_by_word_and_as_json() -> None:
    entries = definitions()
    every = json.loads(CliRunner().invoke(app, ["glossary", "--json"]).stdout)
    assert {row["word"]: row["text"] for row in every} == entries
    one = CliRunner().invoke(app, ["glossary", "Condition", "number"]).stdout
    assert one.split() == ["condition", "number", *entries["condition number"].split()]
    assert all(word in CliRunner().invoke(app, ["glossary"]).stdout for word in entries)


def test_commands_of_the_glossary_are_commands() -> None:
    """They name files that nobody has, so that they are not run: command and options must exist."""
    examples = re.findall(r"`(gatelab [^`]+)`", " ".join(definitions().values()))
    assert len(examples) > 5
    for example in examples:
        command, words = get_command(app), shlex.split(example)[1:]
        while words and (inner := getattr(command, "commands", {}).get(words[0])):
            command, words = inner, words[1:]
        options = {option for parameter in command.params for option in parameter.opts}
        assert command.name != "gatelab" and {w for w in words if w.startswith("--")} <= options, example


def nav_pages(entry: object) -> list[str]:
    """The pages of a menu of mkdocs, which nests lists and single-entry mappings."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in nav_pages(part)]  # pyright: ignore[reportGeneralTypeIssues]


def test_menu_of_the_site_names_every_page() -> None:
    menu = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(menu) == sorted(["CONTRIBUTING.md", *(name(p) for p in WRITTEN)])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_has_every_public_name_page_figure_and_example(site: Path) -> None:
    api = (site / "api.html").read_text(encoding="utf-8")
    titles = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(gatelab[\w.]*)"', api)}
    public = {n for n in gl.__all__ if n != "__version__" and not inspect.ismodule(getattr(gl, n))}
    assert public <= titles, public - titles
    for page in (*PACKAGES, *DERIVATIONS):
        assert (site / name(page)).with_suffix(".html").is_file(), name(page)
    for path in ("index.html", "glossary.html", "CONTRIBUTING.html", "examples/own_unit.py", "figures/floor.png"):
        assert (site / path).is_file(), path
    assert 'href="examples/own_unit.py"' in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_site_needs_no_network_and_shows_formulas_without_scripts(site: Path) -> None:
    pages = [p.read_text(encoding="utf-8") for p in site.rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        assert not re.search(r"""<(?:script|img|iframe)[^>]* src=["']?(?:https?:)?//""", page)
        assert not re.search(r"""<link[^>]* href=["']?(?:https?:)?//""", page)
        assert "arithmatex" not in page
    formulas = (site / "derivations" / "spline-limit.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 20 and formulas.count('display="block"') >= 3


def test_every_figure_is_made_by_the_script_and_shown_once() -> None:
    figures = script("make_figures.py").FIGURES
    pages = [*DERIVATIONS, DOCS / "results" / "ladder.md", DOCS / "packages" / "optim.md"]
    shown = [f for p in pages for f in re.findall(r"\.\./figures/([\w-]+)\.png", p.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(figures)
    for figure in figures:
        assert 10_000 < (DOCS / "figures" / f"{figure}.png").stat().st_size < 400_000


@pytest.mark.slow
@pytest.mark.parametrize("figure", script("make_figures.py").FIGURES)
def test_figure_can_be_drawn(figure: str) -> None:
    made = script("make_figures.py").FIGURES[figure]()
    assert made.axes and all(panel.lines or panel.collections for panel in made.axes)
