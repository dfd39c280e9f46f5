"""Which entry of a legend stands for which series.

Our legends are made of handles that are not the artists themselves: a unit has one entry for its line, its markers, its
band and its limit, and one grey entry says what dashes mean in every colour. So an entry is matched by what it looks
like: by its colour first, then by dash and marker; a grey one by dash and marker alone.
"""

from __future__ import annotations

from colorsys import rgb_to_hls
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gatelab.plotting.chart_series import hexadecimal, plain, style_of


class Groups:
    """The distinct entries of all legends of a figure, and who has them.

    An entry that looks the same and begins with the same word in two panels ("glu: slope -2.5", "glu: slope -2.6") is
    one group: a reader who hides a unit hides it in both.
    """

    def __init__(self, figure: Figure, axes: list[Axes]) -> None:
        self.entries: list[dict[str, Any]] = []
        self.of_figure = [entry for legend in figure.legends for entry in self._read(legend)]
        self._panels = {panel: self._read(panel.get_legend()) for panel in axes}

    def of_panel(self, axes: Axes) -> list[dict[str, Any]]:
        """What the panel's own legend says: group and text of each entry."""
        return self._panels[axes]

    def assign(self, axes: Axes, series: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Give each series the groups that it belongs to. A panel without a legend is read by those of the others."""
        shown = [*self._panels[axes], *self.of_figure] or [e for entries in self._panels.values() for e in entries]
        known = sorted({entry["group"] for entry in shown})
        tied = {one["interval"]: one for one in series if "interval" in one}
        for one in series:
            one["groups"] = _matches(one, {g: self.entries[g] for g in known})
        for i, line in tied.items():
            series[i]["groups"] = line["groups"]
        for one in series:
            for group in one["groups"]:
                self.entries[group]["used"] = True
        return series

    def _read(self, legend: Legend | None) -> list[dict[str, Any]]:
        if legend is None:
            return []
        texts = [plain(text.get_text()) for text in legend.get_texts()]
        return [
            {"group": self._group(_handle(handle), text), "text": text}
            for handle, text in zip(legend.legend_handles, texts, strict=True)
        ]

    def _group(self, look: dict[str, Any], text: str) -> int:
        entry = look | {"name": text.split(": ")[0], "used": False}
        for i, known in enumerate(self.entries):
            if all(known[key] == entry[key] for key in ("name", "colour", "dash", "marker", "hollow")):
                return i
        self.entries.append(entry)
        return len(self.entries) - 1


def _handle(handle: Any) -> dict[str, Any]:
    if isinstance(handle, Line2D):
        return style_of(handle)
    colour, patch, marker = "#000000", False, "o"
    if isinstance(handle, Patch):
        colour, patch, marker = colour_of(handle), True, ""
    elif isinstance(handle, Collection):
        colour = hexadecimal([*handle.get_facecolor(), *handle.get_edgecolor()][0])
    blank = {"dash": "none", "width": 1.0, "alpha": 1.0, "size": 4.0, "hollow": False}
    return {"colour": colour, "marker": marker, "patch": patch, **blank}


def colour_of(patch: Patch) -> str:
    """The colour that a patch is seen in: that of its face where it is filled, else that of its edge."""
    if patch.get_fill():
        return hexadecimal(patch.get_facecolor())
    return hexadecimal(patch.get_edgecolor())


def _grey(colour: str) -> bool:
    return rgb_to_hls(*to_rgb(colour))[2] < 0.08


def _matches(one: dict[str, Any], known: dict[int, dict[str, Any]]) -> list[int]:
    """The groups of one series: the one of its colour, and the one that says what its dashes or markers mean."""
    same = [g for g, entry in known.items() if entry["colour"] == one["colour"]]
    if one["kind"] in ("band", "segments", "area", "steps", "span", "bars"):
        if len(same) > 1:
            return []
        return same
    scores = {g: _score(one, known[g]) for g in same if not _grey(one["colour"]) or _score(one, known[g]) >= 2}
    own = sorted(scores, key=lambda g: -scores[g])[:1]
    if own and scores[own[0]] == 3:
        return own
    rest = {g: entry for g, entry in known.items() if g not in same and (_grey(entry["colour"]) or not own)}
    return own + [g for g, entry in rest.items() if _means(one, entry)][:1]


def _score(one: dict[str, Any], entry: dict[str, Any]) -> int:
    """How alike they look: dash, marker, filled or hollow. A line of markers has no dash of its own, and vice versa."""
    dash = one.get("dash", "none")
    mark = one.get("marker", "")
    return (
        (dash == entry["dash"] or (dash == "none" and bool(mark)))
        + (mark == entry["marker"] or (not mark and dash != "none"))
        + (one.get("hollow", False) == entry["hollow"] or not mark)
    )


def _means(one: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether an entry of another colour says what this line's dashes or these markers stand for."""
    if entry["dash"] not in ("none", "solid") and one.get("dash") == entry["dash"]:
        return True
    marked = bool(entry["marker"]) and one.get("marker") and one.get("dash", "none") == "none"
    if not marked or one.get("hollow", False) != entry["hollow"]:
        return False
    return entry["hollow"] or entry["marker"] == one["marker"]
