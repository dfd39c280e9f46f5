"""Figures as SVG, with text as text, large sets of marks as images, and the boxes of panels for the switch of a page.

`svg_text` is for files; `themed` adapts it to a page, with variables for its colors.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from hashlib import blake2s
from io import BytesIO, StringIO
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from PIL import Image

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
MOST_BYTES = 150_000
NUMBER = re.compile(r"-?\d+\.\d{3,}")
COLOR = re.compile(r"(fill|stroke|stop-color): (#[0-9a-f]{6})")
FAMILY = re.compile(r"font-family: [^;]*;?")
LOCAL = re.compile(r"url\(#([\w-]+)\)")
# Upper ends of lightness, and the page's variable for such a gray. Near black and near white stay.
GRAYS = ((0.35, "--ink"), (0.6, "--muted"), (0.8, "--faint"), (0.97, "--rule"), (1.0, "--surface"))
STAY = ("#010101", "#fefefe")
TAGS = frozenset({"svg", "g", "defs", "path", "use", "text", "tspan", "clipPath", "rect", "image"})

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)


def svg_text(figure: Figure) -> str:
    """The figure as SVG; marks that would make it too large become an embedded image."""
    text, drawn = "", None
    for most in (1500, 300, 40):
        images = _rasterize(figure, most)
        if images != drawn:
            text, drawn = _slim(figure), images
        if len(text) <= MOST_BYTES:
            break
    return text


def _rasterize(figure: Figure, most: int) -> list[bool]:
    """Rasterize contour maps, surfaces, and artists with more marks than `most`; which of the artists these are."""
    images = []
    for axes in figure.axes:
        artists: list[Any] = [*axes.collections, *axes.lines]
        for artist in artists:
            many = 0
            if not isinstance(artist, Line2D):
                many = max(len(artist.get_paths()), len(artist.get_offsets()))
            elif artist.get_marker() not in ("", "None", "none", None):
                many = np.size(artist.get_xdata())
            named = type(artist).__name__
            images.append(many > most or named in ("QuadContourSet", "Poly3DCollection", "QuadMesh"))
            artist.set_rasterized(images[-1])
    return images


def _slim(figure: Figure) -> str:
    """The SVG with rounded numbers, without unused ids and metadata; with panels and a description for a page."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    used = set(re.findall(r"#([\w-]+)", buffer.getvalue()))
    for element in list(root.iter()):
        for child in list(element):
            child.tail = None
            if child.tag.endswith("}metadata") or (child.tag.endswith("}g") and not len(child)):
                element.remove(child)
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for name in ("d", "x", "y", "transform", "width", "height"):
            if name in element.attrib and "scale" not in element.attrib[name] and "matrix" not in element.attrib[name]:
                element.set(name, " ".join(NUMBER.sub(_short, element.attrib[name]).split()))
        if len(element):
            element.text = None
        if element.tag == f"{{{SVG}}}image":
            content = base64.b64decode(element.get(f"{{{XLINK}}}href", "").partition(",")[2])
            element.set(f"{{{XLINK}}}href", png_address(content))
        if element.tag == f"{{{SVG}}}text":
            _flow(element)
    root.set("font-family", "DejaVu Sans, sans-serif")
    root.set("data-views", json.dumps(views(figure)))
    root.set("aria-label", described(figure))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def png_address(content: bytes, colors: int = 256) -> str:
    """An image, reduced to a number of colors, in a `data:` address."""
    small = BytesIO()
    with Image.open(BytesIO(content)) as image:
        image.quantize(colors, method=Image.Quantize.FASTOCTREE).save(small, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()


def _flow(text: Any) -> None:
    """Remove the positions of characters in formulas, which fit only one font."""
    spans = sorted(text, key=lambda span: float(span.get("x") or 0))
    text[:] = spans[:1]
    for span in spans[1:]:
        span.attrib.pop("x", None)
        if all(span.get(name) == text[-1].get(name) for name in ("y", "style")):
            text[-1].text = (text[-1].text or "") + (span.text or "")
        else:
            text.append(span)


def described(figure: Figure) -> str:
    """A description of the figure: its title and the axes of each panel."""
    panels = [
        f"{a.get_title()} {a.get_ylabel()} against {a.get_xlabel()}".strip() for a in figure.axes if a.get_xlabel()
    ]
    return plain(". ".join(filter(None, (figure.get_suptitle(), "; ".join(dict.fromkeys(panels))))))


def plain(text: str) -> str:
    """Text without mathtext markup."""
    return " ".join(re.sub(r"[${}\\]", "", text.replace("\\times", "×")).split())


def views(figure: Figure) -> list[list[Any]]:
    """The boxes that the switch of a page shows: columns of panels against "n" or "P", and legends.

    A box is x, y, width and height in points from the top left, and the size on its x axes, "" for any. The list is
    empty unless there are panels against n and against P.
    """
    found: list[tuple[list[Any], str]] = []
    for part in figure.subfigs or [figure]:
        columns: dict[Any, list[Any]] = {}
        for axes in part.axes:
            place = axes.get_subplotspec()
            columns.setdefault(place and place.colspan.start, []).append(axes)
        sizes = {against(axes.get_xlabel()) for axes in part.axes} - {""}
        found += [(own, "".join({against(axes.get_xlabel()) for axes in own} - {""})) for own in columns.values()]
        found += [([legend], "".join(sizes) * (len(sizes) == 1)) for legend in part.legends]
    if not {"n", "P"} <= {size for _, size in found}:
        return []
    figure.draw_without_rendering()
    boxes = [[box for artist in artists if (box := artist.get_tightbbox())] for artists, _ in found]
    return [[*_points(figure, Bbox.union(own)), size] for own, (_, size) in zip(boxes, found, strict=True)]


def against(label: str) -> str:
    """The size on an x axis: neurons "n", parameters "P", or ""."""
    word = re.match(r"(?:neurons |width )?(n)\b|(?:parameters)? ?\b(P)\b|(parameters)\b", label)
    if word is None:
        return ""
    return word[1] or "P"


def _points(figure: Figure, box: Bbox) -> list[float]:
    scale, height = 72 / figure.dpi, figure.bbox.height
    return [round(float(v) * scale, 1) for v in (box.x0 - 4, height - box.y1 - 4, box.width + 8, box.height + 8)]


def themed(svg: str, name: str) -> str:
    """SVG of `svg_text` for a page: the colors of its theme, classes for styles, ids that begin with `name`.

    Elements and attributes that could run a script or load a file are removed.
    """
    root = ElementTree.fromstring(svg)
    ids: dict[str, str] = {}
    styles: dict[str, str] = {}
    for element in list(root.iter()):
        _unwrap(element)
        _clean(element, lambda own: ids.setdefault(own, f"{name}-{len(ids)}"))
    for element in list(root.iter()):
        keys = []
        for attribute in ("style", "clip-path"):
            style = element.attrib.pop(attribute, "")
            if style:
                # Two figures may have the same class, which then has the same style.
                keys.append("s" + blake2s(style.encode(), digest_size=4).hexdigest())
                styles[keys[-1]] = style
        if keys:
            element.set("class", " ".join(keys))
    group = ElementTree.Element(f"{{{SVG}}}g", {"id": f"{name}-all"})
    group.extend(list(root))
    rules = ElementTree.Element(f"{{{SVG}}}style")
    rules.text = "".join(f".{key}{{{style}}}" for key, style in styles.items())
    root[:] = [rules, group]
    for unit in ("width", "height"):
        root.attrib.pop(unit, None)
    root.set("role", "img")
    return ElementTree.tostring(root, encoding="unicode").replace(f' xmlns="{SVG}"', "", 1)


def _unwrap(element: Element) -> None:
    """Drop unknown elements, and replace groups without attributes by their children."""
    kept: list[Element] = []
    waiting = list(element)
    while waiting:
        child = waiting.pop(0)
        tag = child.tag.rpartition("}")[2]
        if tag == "g" and not child.attrib:
            waiting = [*child, *waiting]
        elif tag in TAGS and (len(child) or tag != "defs"):
            kept.append(child)
    element[:] = kept


def _clean(element: Element, rename: Callable[[str], str]) -> None:
    """Replace colors, ids and links by those of the page; drop handlers of events and links to other files."""
    given = dict(element.attrib)
    element.attrib.clear()
    style = re.sub(r"[{}]", "", FAMILY.sub("", given.pop("style", ""))).strip("; ")
    if style:
        element.set("style", COLOR.sub(_page_color, style))
    if clip := LOCAL.fullmatch(given.pop("clip-path", "")):
        element.set("clip-path", f"clip-path: url(#{rename(clip[1])})")
    for key, value in given.items():
        if key == f"{{{XLINK}}}href":
            if value.startswith("#"):
                element.set("href", f"#{rename(value[1:])}")
            elif value.startswith("data:image/png"):
                element.set("href", value)
                if _sparse(value):
                    element.set("style", f"{element.get('style', '')}; filter: var(--marks, none)".strip("; "))
        elif key == "id":
            element.set(key, rename(value))
        elif not key.lower().startswith("on") and not value.startswith("rotate(-0 "):
            element.set(key, value)


def _sparse(address: str) -> bool:
    """Whether most of an embedded image is transparent: marks, which a dark theme inverts, and not a map."""
    with Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
        return float(np.asarray(image.convert("RGBA").getchannel("A")).mean()) < 128


def _page_color(found: re.Match[str]) -> str:
    """A gray as a variable of the page, a hue as a variable that a dark theme may set."""
    what, color = found.groups()
    rgb = to_rgb(color)
    if color in STAY:
        return found[0]
    name = f"--c{color[1:]}"
    if max(rgb) - min(rgb) < 0.08:
        name = next(name for end, name in GRAYS if rgb[0] <= end)
    return f"{what}: var({name}, {color})"


def dark_hues(page: str) -> dict[str, str]:
    """The variables of hues that are too dark on a dark background, with lighter replacements.

    >>> dark_hues("stroke: var(--c5d3a9b, #5d3a9b); fill: var(--cf0e442, #f0e442)")
    {'--c5d3a9b': '#9b85c1'}
    """
    hues = {}
    for name in sorted(set(re.findall(r"var\(--c([0-9a-f]{6}),", page))):
        rgb = to_rgb(f"#{name}")
        light = sum(part * v**2.2 for part, v in zip((0.2126, 0.7152, 0.0722), rgb, strict=True))
        share = max(0.0, min(0.45, (0.3 - light) * 1.7))
        if share > 0.01:
            red, green, blue = (v + (1 - v) * share for v in rgb)
            hues[f"--c{name}"] = to_hex((red, green, blue))
    return hues
