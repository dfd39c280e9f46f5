"""Units by name: the one place where whatever a user gives becomes a unit.

`describe` and `restore` make plain values of units and units of plain values, for runs that are hashed, stored and
computed elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from gatelab.arrays import fingerprint
from gatelab.errors import GatelabError
from gatelab.feedforward.catalogue import CATALOGUE, unit_name
from gatelab.feedforward.definition import AnyUnit, FunctionUnit, ModuleUnit, Unit
from gatelab.feedforward.gates import activation, activations

WHOLE = "*"  # all names of a module
UNITS = {spec.name: Unit(spec.gate_name, spec.factors, spec.name, spec.description) for spec in CATALOGUE.values()}


def units() -> tuple[Unit, ...]:
    """Every registered unit.

    Returns:
        The units in the order of the list that `gatelab units` prints.

    >>> [u.name for u in units()][:5]
    ['mlp', 'relu2', 'relu3', 'glu', 'gqu']
    """
    return tuple(UNITS.values())


def unit(spec: str | AnyUnit | Callable[..., object] | type[nn.Module]) -> AnyUnit:
    """The unit that is meant.

    Args:
        spec: a registered name, a unit, a function of the affine maps Gx + g, Ux + u, ..., or a module class that is
            built as `cls(width, d_in, d_out)`.

    Returns:
        The unit: a `Unit`, of a function a `FunctionUnit`, of a class a `ModuleUnit`.

    >>> unit("reglu").name
    'glu'
    >>> def squared_sine(z, v):
    ...     return z.sin().square() * v
    >>> unit(squared_sine).factors
    1
    """
    if isinstance(spec, Unit | ModuleUnit):
        return spec
    if isinstance(spec, str):
        return UNITS[unit_name(spec)]
    if inspect.isclass(spec) and issubclass(spec, nn.Module):
        return ModuleUnit(spec)
    if callable(spec):
        return FunctionUnit(cast(Callable[..., Tensor], spec))
    raise GatelabError(
        f"a unit is a name, a gl.Unit, a function of tensors or an nn.Module class, not {type(spec).__name__}"
    )


def describe(chosen: AnyUnit) -> dict[str, Any]:
    """The unit in plain values; `restore` makes it again.

    One of a user's own has the name that it is imported by and the hash of its source, so that a store knows a change.

    >>> describe(unit("glu"))
    {'name': 'glu', 'gate': 'relu', 'factors': 1}
    >>> describe(unit(lambda z: z))
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the unit '<lambda>' cannot be found by name from another process; ...
    """
    if isinstance(chosen, FunctionUnit | ModuleUnit):
        own: Any = getattr(chosen, "module", None)
        if isinstance(chosen, FunctionUnit):
            own = chosen.gate.function
        dotted = f"{getattr(own, '__module__', '?')}:{getattr(own, '__qualname__', '?')}"
        if dotted.startswith("__main__:") or imported(dotted) is not own:
            raise GatelabError(
                f"the unit {chosen.name!r} cannot be found by name from another process; to keep its runs in a file, "
                "or to compute them elsewhere, move it into a module of its own and import it from there"
            )
        return {"name": chosen.name, "import": dotted, **source_of(own)}
    if chosen.gate.name not in activations() or activation(chosen.gate.name) != chosen.gate:
        raise GatelabError(
            f"the gate of unit {chosen.name!r} is a function of your own; to keep its runs in a store, give the whole "
            "unit as a function in a module"
        )
    return {"name": chosen.name, "gate": chosen.gate.name, "factors": chosen.factors}


def source_of(own: Any) -> dict[str, str]:
    """The hash of the source of a user's unit, as a description has it; compiled functions have none."""
    return {} if inspect.isbuiltin(own) else {"source": source_key(own)}


def check_source(description: Mapping[str, Any]) -> None:
    """Refuse to compute a run of a user's unit that was planned with another source than this process imports."""
    own = imported(description["import"]) if description.get("source") else None
    if own is not None and source_of(own) != {"source": description["source"]}:
        raise GatelabError(
            f"the source of the unit {description['name']!r} has changed since this run was planned; start Python "
            "anew, and give every machine the same file"
        )


def restore(description: Mapping[str, Any]) -> AnyUnit:
    """The unit that was described, refused where its source is another now; a description without source is taken.

    >>> restore(describe(unit("gqu"))) == unit("gqu")
    True
    """
    check_source(description)
    if "import" in description:
        return unit(imported(description["import"]))
    return Unit(description["gate"], description["factors"], description["name"])


def imported(dotted: str) -> Any:
    """What is called so in a module, such as "package.module:Class.name"; None where there is nothing."""
    module, _, name = dotted.partition(":")
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None


# ---- the source of a user's unit, as a key: a store must not answer for a unit that has changed


@lru_cache(maxsize=64)  # of one object one key, whatever becomes of its file: it is computed as it was imported
def source_key(own: Any) -> str:
    """Sixteen hexadecimal digits of a function or class and of everything of the user's own that it uses.

    These are the definitions in its module whose names it mentions, theirs, and those in imported modules that are not
    installed packages. Comments and layout do not count.
    """
    root = (own.__module__, own.__qualname__.partition(".")[0])
    texts: dict[tuple[str, str], str] = {}
    todo = [root]
    while todo:
        module, name = place = todo.pop()
        if place not in texts:
            chosen = [s for s in statements(module) if name == WHOLE or name in bound(s)]
            texts[place] = "\n".join(map(ast.unparse, chosen))
            todo += [used for statement in chosen for used in mentioned(statement, module)]
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
    nodes = [statement] if isinstance(statement, ast.FunctionDef | ast.ClassDef) else list(ast.walk(statement))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.asname or node.name.partition(".")[0] for node in nodes if isinstance(node, ast.alias)}


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
    file = Path(getattr(sys.modules.get(module), "__file__", None) or sysconfig.get_path("stdlib"))
    installed = {"site-packages", "dist-packages"} & set(file.parts) or module.partition(".")[0] == "gatelab"
    return not installed and not file.is_relative_to(sysconfig.get_path("stdlib"))
