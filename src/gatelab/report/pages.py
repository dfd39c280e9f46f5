"""Self-contained pages from sections, without a network, other files or a server.

Pages are Jinja2 templates in templates/, which escape all text except `Markup`. Figures are inline SVG.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from gatelab._version import __version__
from gatelab.glossary import definitions
from gatelab.plotting.svg import dark_hues, svg_text, themed
from gatelab.plotting.theme import style

__all__ = ["Markup", "Section", "drawn", "escape", "page", "part", "prose", "table"]

_OPEN, _CLOSE = "\ue000", "\ue001"
_POWER = r"\^(?:\(([^()]*)\)|(-\d+/\d+|-?\d+(?:\.\d+)?|-?[a-z]\b))"
_WHOLE = r"\[[^\[\]\s<>]+, [^\[\]\s<>]+\]|(?<!\S)[^\s<>]*[-−]\d[^\s<>]*"


def prose(value: object) -> Markup:
    """Text as HTML, with powers as superscripts; intervals and numbers are not broken between lines.

    Args:
        value: Plain text; `Markup` is returned unchanged.

    Returns:
        The text as HTML.

    >>> print(prose("n^-2.13 & 1e-05"))
    <span class="n">n<sup>−2.13</sup></span> &amp; <span class="n">1e-05</span>
    """
    if isinstance(value, Markup):
        return value
    # Powers are marked with private characters, which become elements after the text is escaped.
    clean = str(value).replace(_OPEN, "").replace(_CLOSE, "")
    powers = re.sub(_POWER, lambda m: _OPEN + (m[1] or m[2]).replace("-", "−") + _CLOSE, clean)
    marked = re.sub(_WHOLE, r'<span class="n">\g<0></span>', str(escape(powers)))
    marked = re.sub(r"(?<=\d) %", "\u00a0%", marked)
    return Markup(marked.replace(_OPEN, "<sup>").replace(_CLOSE, "</sup>"))  # all of it was escaped


def _code(text: str) -> Markup:
    """Prose with backquoted parts as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(prose(text))))  # all of it was escaped


def _csv(frame: pd.DataFrame) -> str:
    """A table as CSV text, whose numbers have ten significant digits: more are noise of the last operations."""
    text = frame.to_csv(index=False, lineterminator="\n")
    return re.sub(r"-?\b\d+\.\d{9,}(e[-+]?\d+)?\b", lambda found: f"{float(found[0]):.10g}", text)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("gatelab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"prose": prose, "code": _code, "csv": _csv}
    return made


def part(name: str, *args: Any, **kwargs: Any) -> Markup:
    """Render a macro of the template parts.html."""
    return getattr(_templates().get_template("parts.html").module, name)(*args, **kwargs)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> Markup:
    """A table that becomes a list of cards on a phone.

    Args:
        headings: The names of the columns; the first column names its row.
        rows: The cells of each row, one per heading.
        right: The columns with numbers.

    Returns:
        The table as HTML.

    >>> table(("unit", "slope"), [("glu", "-2.5")], right=(1,)).count("<td")
    1
    """
    kinds = [("words", "number")[column in right] for column in range(len(headings))]
    cells = [list(zip(headings, kinds, row, strict=True)) for row in rows]
    return part("table", list(zip(headings, kinds, strict=True)), cells)


def drawn(figure: Figure, name: str) -> Markup:
    """A figure as SVG for the section of that name."""
    with style():
        return Markup(themed(svg_text(figure), name))  # of known elements


@dataclass(frozen=True, eq=False)
class Section:
    """A section of a page. `id` is its anchor; `body` is HTML, and all other text is plain and gets escaped.

    `figure` is SVG from `drawn`, `tables` are the data by name, `part` is the heading in the contents, `kicker` the
    small line above the title, and `origin` the device, date and time of the computation.
    """

    id: str
    title: str
    lead: str = ""
    body: str = ""
    figure: str = ""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    command: str = ""
    notes: Sequence[str] = ()
    part: str = ""
    kicker: str = ""
    origin: str = ""


def page(
    title: str, lead: str, sections: Sequence[Section], *, kicker: str = "gatelab", foot: str = "", opening: str = ""
) -> str:
    """Render sections as one HTML document, with a light and a dark theme, for phones, desktops and print.

    Args:
        title: The heading of the page.
        lead: A sentence or two below it.
        sections: In order.
        kicker: The small line above the title.
        foot: A sentence at the end of the page.
        opening: HTML before the sections and their contents, over the whole width.

    Returns:
        The document as text.

    >>> made = page("Two units", "Side by side.", [Section("slopes", "Slopes & limits", body="<p>-2 and -3</p>")])
    >>> made.startswith("<!doctype html>"), "Slopes &amp; limits" in made
    (True, True)
    """
    css, theme, script = (
        (files("gatelab.report") / name).read_text(encoding="utf-8") for name in ("page.css", "theme.js", "page.js")
    )
    hues = dark_hues("".join([opening, *(one.figure for one in sections)]))
    css = css.replace("/* hues */", "".join(f"{name}: light-dark(#{name[3:]}, {hue}); " for name, hue in hues.items()))
    # The policy allows these two scripts and no requests.
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (theme, script)]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        "script-src " + " ".join(f"'sha256-{text}'" for text in hashes)
    )
    texts = {"title": title, "lead": lead, "kicker": kicker, "foot": foot, "opening": opening, "sections": sections}
    assets = {"css": css, "theme": theme, "script": script, "policy": policy, "version": __version__}
    return _templates().get_template("page.html").render(**texts, **assets, words=definitions())
