"""One page out of sections: a file that needs no network, no other file and no server.

All text is escaped, unless it says of itself that it is HTML already. Charts are drawn by plotly.js, which a page
carries with it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from io import BytesIO
from typing import Any

import pandas as pd
from PIL import Image

from gatelab._version import __version__
from gatelab.glossary import definitions

_OPEN, _CLOSE = "\ue000", "\ue001"
_POWER = r"\^(?:\(([^()]*)\)|(-\d+/\d+|-?\d+(?:\.\d+)?|-?[a-z]\b))"
_WHOLE = r"\[[^\[\]\s<>]+, [^\[\]\s<>]+\]|(?<!\S)[^\s<>]*[-−]\d[^\s<>]*"


class Markup(str):
    """Text that is HTML already. Only what this room and its callers wrote themselves may be wrapped in it."""


def escape(value: object) -> Markup:
    """The value as text in HTML, also within an attribute; `Markup` stays as it is.

    Args:
        value: Any value; its text is taken.

    Returns:
        HTML that shows the text.

    >>> escape('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    >>> escape(Markup("<b>bold</b>"))
    '<b>bold</b>'
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(str(value)))


def between(before: str, text: object, after: str) -> Markup:
    """Text, escaped, between two pieces of HTML; nothing where there is no text.

    >>> between("<b>", "a & b", "</b>"), between("<b>", "", "</b>")
    ('<b>a &amp; b</b>', '')
    """
    if not text:
        return Markup("")
    return Markup(f"{before}{escape(text)}{after}")


def prose(value: object) -> Markup:
    """Text with powers set as powers; intervals, numbers with a hyphen and per cent stay on one line.

    Args:
        value: Plain text; `Markup` stays as it is.

    Returns:
        HTML that shows the text.

    >>> prose("n^-2.13 & 1e-05")
    '<span class="n">n<sup>−2.13</sup></span> &amp; <span class="n">1e-05</span>'
    """
    if isinstance(value, Markup):
        return value
    marked = re.sub(_WHOLE, r'<span class="n">\g<0></span>', escape(_powers(str(value))))
    marked = re.sub(r"(?<=\d) %", "\u00a0%", marked)
    return Markup(marked.replace(_OPEN, "<sup>").replace(_CLOSE, "</sup>"))


def _powers(text: str) -> str:
    """Powers between marks that no text holds: they are made elements after all else is escaped."""
    clean = text.replace(_OPEN, "").replace(_CLOSE, "")
    return re.sub(_POWER, lambda m: _OPEN + (m[1] or m[2]).replace("-", "−") + _CLOSE, clean)


def embed(value: Any) -> Markup:
    """The value as JSON that can stand in a script element: no text within it can end the element.

    >>> embed({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = (), caption: str = ""
) -> Markup:
    """A table that becomes a list of cards on a phone.

    Args:
        headings: The names of the columns; the first column names its row.
        rows: The cells of each row, as many as there are headings.
        right: The columns that hold numbers.
        caption: A sentence above the table.

    Returns:
        The table as HTML.

    >>> table(("unit", "slope"), [("glu", "-2.5")], right=(1,)).count("<td")
    1
    """
    kinds = ["words"] * len(headings)
    for column in right:
        kinds[column] = "number"
    head = "".join(
        f'<th scope="col" role="columnheader" class="{kind}">{escape(name)}</th>'
        for name, kind in zip(headings, kinds, strict=True)
    )
    title = between("<caption>", caption, "</caption>")
    body = "".join(f'<tr role="row">{_cells(headings, kinds, row)}</tr>' for row in rows)
    # The roles are those that the elements have: a browser forgets them when cards are made of them.
    return Markup(
        f'<div class="scroll"><table class="cards" role="table">{title}<thead role="rowgroup"><tr role="row">{head}'
        f'</tr></thead><tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _cells(headings: Sequence[str], kinds: Sequence[str], row: Sequence[object]) -> str:
    first, *others = zip(headings, kinds, row, strict=True)
    cells = [f'<th scope="row" role="rowheader" class="{first[1]}">{prose(first[2])}</th>']
    for name, kind, value in others:
        cells.append(f'<td role="cell" class="{kind}" data-label="{escape(name)}">{prose(value)}</td>')
    return "".join(cells)


def points(lines: Iterable[object]) -> Markup:
    """A list of paragraphs, each once; nothing where there are none."""
    items = "".join(f"<li>{prose(line)}</li>" for line in dict.fromkeys(lines))
    return between("<ul>", Markup(items), "</ul>")


def small_picture(image: bytes, width: int = 720) -> str:
    """A picture as an address that holds it, made small: it stands in a page only for browsers that run no scripts."""
    file = BytesIO()
    try:
        with Image.open(BytesIO(image)) as opened:
            picture = opened.convert("RGB")
    except OSError:
        return ""
    picture.thumbnail((width, 4 * width))
    picture.save(file, "webp", quality=40)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page. `id` is its address within the page; `body` is HTML, all other text is plain and is escaped.

    `chart` is what `gatelab.plotting.chart.chart_of` makes of a figure, and `picture` its picture as an address, for
    a browser that runs no scripts. `tables` are the numbers behind it, by name;
    they are embedded whole and can be downloaded. `part` is the heading in the contents under which the section
    stands, `kicker` the small line above its title, `origin` says how, when and where it was computed.
    """

    id: str
    title: str
    lead: str = ""
    body: str = ""
    chart: dict[str, Any] | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    command: str = ""
    notes: Sequence[str] = ()
    part: str = ""
    kicker: str = ""
    origin: str = ""
    picture: str = ""


def page(
    title: str, lead: str, sections: Sequence[Section], *, kicker: str = "gatelab", foot: str = "", opening: str = ""
) -> str:
    """The sections as one HTML document, light and dark, for a phone, a desk and paper.

    Args:
        title: The heading of the page.
        lead: A sentence or two below it.
        sections: The parts of the page, in order.
        kicker: The small line above the title.
        foot: A sentence at the end of the page.
        opening: HTML that stands before the sections and their contents, over the whole width.

    Returns:
        The document as text.

    >>> made = page("Two units", "Side by side.", [Section("slopes", "Slopes & limits", body="<p>-2 and -3</p>")])
    >>> made.startswith("<!doctype html>"), "Slopes &amp; limits" in made
    (True, True)
    """
    theme, script = _asset("theme.js"), _asset("charts.js") + _asset("page.js")
    scripts = [theme, script]
    if any(part.chart is not None for part in sections):
        scripts.insert(1, _plotly())
    # Only these scripts may run, whatever text a record holds; nothing may be fetched.
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {' '.join(map(_hash, scripts))}"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="gatelab {escape(__version__)}">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{_asset("page.css")}</style>\n'
        f"<script>{theme}</script>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the results</a>\n'
        f'{_header(title, lead, kicker)}<main id="main">\n{opening}<div class="layout">\n{_contents(sections)}'
        '<div class="sections">\n'
        + "".join(map(_section, sections))
        + f"</div>\n</div>\n</main>\n<footer>{_words()}<p>{escape(foot)}</p>"
        f"<p>Made by gatelab {escape(__version__)}.</p></footer>\n"
        f'<div id="said" class="unseen" role="status" aria-live="polite"></div>\n'
        + "".join(f"<script>{text}</script>\n" for text in scripts[1:])
        + "</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (files("gatelab.report") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The library that draws the charts, below its licence."""
    return f"/*\n{_asset('vendor/plotly-LICENSE.txt')}*/\n{_asset('vendor/plotly-cartesian.min.js')}"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _header(title: str, lead: str, kicker: str) -> str:
    return (
        f'<header class="top"><div class="bar"><p class="kicker">{escape(kicker)}</p>'
        '<button type="button" id="theme" class="quiet">Theme: automatic</button></div>'
        f'<h1>{escape(title)}</h1><p class="lead">{prose(lead)}</p></header>\n'
    )


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    entries, part = [], None
    for one in sections:
        if one.part != part and one.part:
            entries.append(f'<li class="part">{escape(one.part)}</li>')
        part = one.part
        entries.append(f'<li><a href="#{escape(one.id)}">{escape(one.title)}</a></li>')
    return (
        '<nav class="contents" aria-label="Contents"><details open><summary>Contents</summary>'
        f"<ul>{''.join(entries)}</ul></details></nav>\n"
    )


def _words() -> str:
    """The glossary, folded: whoever is sent a page may not have gatelab to ask."""
    entries = "".join(f"<dt>{escape(word)}</dt><dd>{prose(text)}</dd>" for word, text in definitions().items())
    entries = re.sub(r"`([^`]+)`", r"<code>\1</code>", entries)
    return f'<details class="words"><summary>What the words mean</summary><dl>{entries}</dl></details>'


def _section(section: Section) -> str:
    place = escape(section.id)
    parts = [
        f'<section id="{place}" aria-labelledby="{place}-title">',
        between('<p class="kicker">', section.kicker, "</p>"),
        f'<h2 id="{place}-title">{escape(section.title)} ',
        f'<a class="anchor" href="#{place}" aria-hidden="true" tabindex="-1">#</a></h2>',
        between('<p class="lead">', prose(section.lead), "</p>"),
        _figure(section),
        section.body,
        between('<div class="notes"><h3>Notes</h3>', points(section.notes), "</div>"),
        _numbers(section),
        between(
            '<div class="command"><code>',
            section.command,
            '</code><button type="button" class="quiet copy" aria-label="Copy the command">Copy</button></div>',
        ),
        between('<p class="made">', section.origin, "</p>"),
    ]
    return "".join(parts) + "</section>\n"


def _figure(section: Section) -> str:
    """The values that a script draws; where none runs, the picture of the figure stands in their place."""
    if section.chart is None:
        return ""
    name = escape(section.chart.get("title") or "figure")
    instead = "<p>The figure is drawn by JavaScript, which this browser does not run.</p>"
    if section.picture:
        instead = f'<img src="{escape(section.picture)}" alt="{name}">'
    place = escape(section.id)
    return (
        f'<div class="chart" id="{place}-figure" data-name="{place}" role="group" aria-label="{name}">'
        f'<script type="application/json">{embed(section.chart)}</script><noscript>{instead}</noscript></div>'
    )


def _numbers(section: Section) -> str:
    """The tables as text within the page: a table is made of it when a reader asks to see it."""
    if not section.tables:
        return ""
    parts = []
    for name, frame in section.tables.items():
        rows, columns = frame.shape
        size = f"{rows} row{'s' * (rows != 1)}, {columns} column{'s' * (columns != 1)}"
        csv = escape(frame.to_csv(index=False, lineterminator="\n"))
        parts.append(
            f'<details class="numbers" data-file="{escape(f"{section.id}-{name}.csv")}"><summary>'
            f'<span class="name">{escape(name)}</span> <span class="size">{size}</span></summary>'
            f'<div class="sheet" tabindex="0" role="region" aria-label="Table {escape(name)}">'
            f'<pre class="csv">\n{csv}</pre></div></details>'
        )
    return f'<div class="tables"><h3>The numbers behind it</h3>{"".join(parts)}</div>'
