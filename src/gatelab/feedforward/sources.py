"""The source that a user's unit is computed by, as a key: a store must not answer for a unit that has changed."""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from gatelab.arrays import fingerprint
from gatelab.errors import GatelabError

WHOLE = "*"


@lru_cache(maxsize=64)
def source_key(own: Any) -> str:
    """Sixteen hexadecimal digits of a function or class and of everything of the user's own that it uses.

    These are the definitions in its module whose names it mentions, theirs, and those in imported modules that are not
    installed packages. Comments and layout do not count. A process has one key for one object, whatever becomes of the
    file: a function that is imported once is computed as it was then.
    """
    root = (own.__module__, own.__qualname__.partition(".")[0])
    texts: dict[tuple[str, str], str] = {}
    todo = [root]
    while todo:
        place = todo.pop()
        if place in texts:
            continue
        chosen = [s for s in statements(place[0]) if place[1] == WHOLE or place[1] in bound(s)]
        texts[place] = "\n".join(map(ast.unparse, chosen))
        todo += [name for statement in chosen for name in mentioned(statement, place[0])]
    if not texts[root]:
        raise GatelabError(
            f"the source of the unit {own.__qualname__!r} cannot be read, so that a store could not know when it "
            "changes; define it by def or class in a file, at the top level"
        )
    return fingerprint([f"{place} {text}" for place, text in sorted(texts.items()) if text], 16)


def statements(module: str) -> list[ast.stmt]:
    """The statements of a module; none where there is no source."""
    try:
        return ast.parse(inspect.getsource(sys.modules[module])).body
    except (OSError, TypeError, KeyError, SyntaxError):
        return []


def bound(statement: ast.stmt) -> set[str]:
    """The names of the module that a statement defines, assigns or imports."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return names


def mentioned(statement: ast.stmt, module: str) -> Iterator[tuple[str, str]]:
    """What a statement of a module uses: modules, and names in them."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield module, node.id
        elif isinstance(node, ast.Import):
            yield from ((alias.name, WHOLE) for alias in node.names if is_own(alias.name))
        elif isinstance(node, ast.ImportFrom):
            package = getattr(sys.modules[module], "__package__", None)
            base = resolve_name("." * node.level + (node.module or ""), package)
            for name in (alias.name for alias in node.names):
                if is_own(f"{base}.{name}"):
                    yield f"{base}.{name}", WHOLE
                elif is_own(base):
                    yield base, name


def is_own(module: str) -> bool:
    """Whether a module that is imported is a file of the user's, and not one of Python, a package or gatelab."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] == "gatelab":
        return False
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not installed and not Path(file).is_relative_to(sysconfig.get_path("stdlib"))
