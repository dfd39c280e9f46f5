"""Hooks for mkdocs: files that pages link to outside docs/, lists of units and problems, and formulas as MathML.

A linked file outside docs/ keeps its path in the repository; a link to a missing one ends a strict build.
"""

from __future__ import annotations

import html
import os.path
import re
from pathlib import Path, PurePosixPath
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File

from gatelab.data.named import CATALOGUE as PROBLEMS
from gatelab.feedforward.named import CATALOGUE as UNITS

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def outside(link: str, page: str) -> str | None:
    """The path in the repository of a linked file, if it lies outside docs/ and is there."""
    path = os.path.normpath(PurePosixPath("docs", page).parent / link)
    return None if path.startswith(("docs/", "../")) or not (ROOT / path).is_file() else path


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/ that pages, or the menu, link to."""
    pages = files.documentation_pages()
    linked = {outside(link, page.src_uri) for page in pages for link in _LINK.findall(page.content_string)}
    for path in sorted(linked - {None} | {"CONTRIBUTING.md"}):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in the lists, and let the links that leave docs/ lead to the same files in the site."""
    here = page.file.src_uri

    def rewritten(match: re.Match[str]) -> str:
        path = outside(match[0], here)
        return match[0] if path is None else os.path.relpath(path, PurePosixPath(here).parent)

    for word, head, entries in (("units", "| unit | neuron", UNITS), ("problems", "| problem | what it is", PROBLEMS)):
        lines = [f"{head} |\n| --- | --- |", *(f"| {one.name} | {one.description} |" for one in entries.values())]
        markdown = markdown.replace(f"<!-- list of {word} -->", "\n".join(lines))
    return _LINK.sub(rewritten, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers show without scripts."""
    displays = {"span": "inline", "div": "block"}
    return _FORMULA.sub(lambda match: convert(html.unescape(match[2]), display=displays[match[1]]), content)


class FencedExamples(griffe.Extension):
    """Examples of docstrings as code, in which brackets are not links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            paragraphs = re.split(r"\n[ ]*\n", obj.docstring.value)
            fenced = [f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs]
            obj.docstring.value = "\n\n".join(fenced)
