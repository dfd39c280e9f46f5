"""The API reference from the docstrings: `python docs/make_api.py` writes docs/api.md.

A test holds the file against what this script makes, so that it cannot fall behind the code.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

TARGET = Path(__file__).parent / "api.md"
# The rooms that users meet, in the order of the flow; the public names of each are its __all__.
ROOMS = (
    "gatelab",
    "gatelab.feedforward",
    "gatelab.data",
    "gatelab.solve",
    "gatelab.scaling_laws",
    "gatelab.theory",
    "gatelab.ntk",
    "gatelab.dynamics",
    "gatelab.models",
    "gatelab.train",
    "gatelab.anatomy",
    "gatelab.linearization",
    "gatelab.estimators",
    "gatelab.scorecard",
    "gatelab.sweep",
    "gatelab.studies",
    "gatelab.report",
)
LONGEST = 80  # characters of a default: a table for a default is not read in a signature
HEAD = """# API reference

Made by `python docs/make_api.py` from the docstrings; do not edit. What `gl` (`import gatelab as gl`) has is listed
first, the rest is imported from its room. Examples are executed by the tests.
"""


def main() -> None:
    TARGET.write_text(render(), encoding="utf-8")
    print(TARGET)


def render() -> str:
    """The whole page. Names that `gatelab` has stand there, those of a room that it has not in the room."""
    parts, seen = [HEAD], set[int]()
    for room in ROOMS:
        module = import_module(room)
        names = [n for n in getattr(module, "__all__", ()) if n != "__version__"]
        entries = [e for n in names if (e := entry(n, getattr(module, n), seen))]
        if entries:
            parts += [f"\n## {room}\n", text(module), *entries]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def entry(name: str, value: Any, seen: set[int]) -> str:
    """One name: its signature, its docstring and, of a class, its public methods by their first lines."""
    if isinstance(value, ModuleType) or id(value) in seen:
        return ""
    seen.add(id(value))
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"\n### {name}\n\nA value of type `{type(value).__name__}`.\n" if not name.startswith("_") else ""
    lines = [f"\n### {name}\n", f"```text\n{name}{signature(value)}\n```\n", text(value)]
    if inspect.isclass(value):
        lines += list(members(value))
    return "\n".join(lines)


def signature(value: Any) -> str:
    """As it is written, in lines that fit a page; enumerations and exceptions are not called by users."""
    if inspect.isclass(value) and issubclass(value, Enum | BaseException):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parts: list[str] = []
    for p in found.parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in parts and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = "" if p.annotation is p.empty else f": {written(p.annotation)}"
        default = "" if p.default is p.empty else f" = {written(p.default, True)}"
        parts.append(f"{stars}{p.name}{kind}{default}")
    gives = found.return_annotation
    end = "" if inspect.isclass(value) or gives is found.empty else f" -> {written(gives)}"
    line = f"({', '.join(parts)}){end}"
    return line if len(line) < 100 else f"({textwrap.fill(', '.join(parts), 112, subsequent_indent='    ')}){end}"


def written(value: Any, default: bool = False) -> str:
    """An annotation as it is in the source; a default as one would type it."""
    if isinstance(value, str) and not default:
        return value
    plain = getattr(value, "__name__", None)
    said = plain or re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return said if len(said) <= LONGEST else "..."


def members(cls: type) -> Iterator[str]:
    """Methods and properties that the class has of its own or of a base beside it in its package, a line each."""
    package = cls.__module__.rpartition(".")[0]
    bases = [base for base in cls.__mro__ if base.__module__.rpartition(".")[0] == package]
    for name, value in {n: v for base in reversed(bases) for n, v in vars(base).items()}.items():
        call = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not (inspect.isroutine(call) or isinstance(value, property)):
            continue
        # Its own docstring, not that of what it overrides.
        said = inspect.cleandoc(call.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        brackets = "" if isinstance(value, property) else "()"
        yield f"- `.{name}{brackets}`{': ' + said if said else ''}"


def text(value: Any) -> str:
    """A docstring as Markdown: examples and indented formulas in fences, all else as it is."""
    found = value.__doc__ if isinstance(value, ModuleType) else vars(value).get("__doc__", value.__doc__)
    # A dataclass without a docstring has its signature for one.
    if not found or found.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    out: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(found)):
        fenced = paragraph.startswith((">>>", "    ")) or bool(re.search(r"^\w+\n-+$", paragraph, re.M))
        out.append(f"```text\n{paragraph}\n```" if fenced else paragraph.replace("\n>>>", "\n\n>>>"))
    return "\n\n".join(out) + "\n"


if __name__ == "__main__":
    main()
