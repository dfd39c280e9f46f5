"""What a release says of itself and what is in it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import gatelab as gl

ROOT = Path(__file__).parents[1]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], zipfile.ZipFile]:
    """The names in the source archive, and the wheel that is built from it, as `make release` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(folder / f"gatelab-{gl.__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return names, zipfile.ZipFile(next(folder.glob("*.whl")))


def files(folder: str, pattern: str) -> set[str]:
    return {p.relative_to(ROOT / folder).as_posix() for p in (ROOT / folder).rglob(pattern) if p.is_file()}


def test_source_archive_holds_what_one_needs_to_check_it(release) -> None:
    names, _ = release
    single = (
        "CITATION.cff",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        "tests/executed.py",
    )
    assert set(single) <= names
    folders = (("tests", "*.py"), ("docs", "*.md"), ("docs", "*.png"), ("examples", "*.py"), ("results", "*"))
    for folder, pattern in folders:
        assert {f"{folder}/{path}" for path in files(folder, pattern)} <= names, folder


def test_wheel_holds_records_pages_types_and_words(release) -> None:
    wheel = release[1]
    names = set(wheel.namelist())
    for pattern in ("*.py", "*.js", "*.css", "py.typed"):
        wanted = {f"gatelab/{path}" for path in files("src/gatelab", pattern)}
        assert wanted and wanted <= names, wanted - names
    assert {f"gatelab/results/{path}" for path in files("results", "*")} <= names
    assert wheel.read("gatelab/glossary.md") == (ROOT / "docs" / "glossary.md").read_bytes()
    assert not any(name.startswith(("tests/", "docs/")) for name in names)


def test_metadata_say_version_license_and_pythons(release) -> None:
    wheel = release[1]
    metadata = Parser().parsestr(wheel.read(f"gatelab-{gl.__version__}.dist-info/METADATA").decode())
    assert (metadata["Version"], metadata["License-Expression"]) == (gl.__version__, "MIT")
    classifiers, python = metadata.get_all("Classifier") or [], "Programming Language :: Python :: "
    assert [c.removeprefix(python) for c in classifiers if c.startswith(f"{python}3.")] == PYTHONS


def test_citation_is_that_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation), "these four the format asks for"
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], str(citation["version"]), citation["license"]) == (
        project["name"],
        gl.__version__,
        "MIT",
    )
    assert citation["authors"] == project["authors"]
