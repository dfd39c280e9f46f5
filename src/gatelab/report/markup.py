"""Text to HTML: everything is escaped, unless it says of itself that it is HTML already."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

_OPEN, _CLOSE = "\ue000", "\ue001"
_POWER = r"\^(?:\(([^()]*)\)|(-\d+/\d+|-?\d+(?:\.\d+)?|-?[a-z]\b))"
_WHOLE = r"\[[^\[\]\s<>]+, [^\[\]\s<>]+\]|(?<!\S)[^\s<>]*[-−]\d[^\s<>]*"


class Markup(str):
    """Text that is HTML already. Only what this room and its callers wrote themselves may be wrapped in it."""


def escape(value: object) -> Markup:
    """The value as text in HTML, also within an attribute; `Markup` stays as it is.

    >>> escape('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    >>> escape(Markup("<b>bold</b>"))
    '<b>bold</b>'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def prose(value: object) -> Markup:
    """Text with powers set as powers; intervals, numbers with a hyphen and per cent stay on one line.

    >>> prose("n^-2.13 & 1e-05")
    '<span class="n">n<sup>−2.13</sup></span> &amp; <span class="n">1e-05</span>'
    """
    if isinstance(value, Markup):
        return value
    kept = re.sub(_WHOLE, r'<span class="n">\g<0></span>', escape(_powers(str(value))))
    kept = re.sub(r"(?<=\d) %", "\u00a0%", kept)
    return Markup(kept.replace(_OPEN, "<sup>").replace(_CLOSE, "</sup>"))


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
    """A table that becomes a list of cards on a phone. Columns `right` hold numbers; the first column names its row.

    >>> table(("unit", "slope"), [("glu", "-2.5")], right=(1,)).count("<td")
    1
    """
    kinds = ["number" if i in right else "words" for i in range(len(headings))]
    head = "".join(
        f'<th scope="col" role="columnheader" class="{kind}">{escape(name)}</th>'
        for name, kind in zip(headings, kinds, strict=True)
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(f'<tr role="row">{_cells(headings, kinds, row)}</tr>' for row in rows)
    # The roles are those that the elements have: a browser forgets them when cards are made of them.
    return Markup(
        f'<div class="scroll"><table class="cards" role="table">{said}<thead role="rowgroup"><tr role="row">{head}'
        f'</tr></thead><tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _cells(headings: Sequence[str], kinds: Sequence[str], row: Sequence[object]) -> str:
    made = []
    for i, (name, kind, value) in enumerate(zip(headings, kinds, row, strict=True)):
        tag, role = ('th scope="row"', "rowheader") if i == 0 else ("td", "cell")
        label = f' data-label="{escape(name)}"' if i else ""
        made.append(f'<{tag} role="{role}" class="{kind}"{label}>{prose(value)}</{tag.split()[0]}>')
    return "".join(made)


def points(lines: Iterable[object]) -> Markup:
    """A list of paragraphs, each once; nothing where there are none."""
    distinct = list(dict.fromkeys(lines))
    return Markup(f"<ul>{''.join(f'<li>{prose(line)}</li>' for line in distinct)}</ul>" if distinct else "")
