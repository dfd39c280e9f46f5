"""`unit` makes a unit of a name, a function or a class.

`describe` and `restore` convert units to plain values and back, for runs that are stored or computed elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from gatelab.arrays import fingerprint
from gatelab.errors import GatelabError
from gatelab.feedforward.definition import AnyUnit, FunctionUnit, ModuleUnit, Unit
from gatelab.feedforward.gates import GATES
from gatelab.feedforward.named import CATALOGUE, unit_name


def unit(spec: str | AnyUnit | Callable[..., object] | type[nn.Module]) -> AnyUnit:
    """Find a unit by name, or wrap a function or class as one.

    Args:
        spec: a registered name, a unit, a function of the affine maps Gx + g, Ux + u, ..., or a module class that is
            built as `cls(width, d_in, d_out)`.

    Returns:
        The unit: a `Unit`, a `FunctionUnit` for a function, a `ModuleUnit` for a class.

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
        return CATALOGUE[unit_name(spec)]
    if inspect.isclass(spec) and issubclass(spec, nn.Module):
        return ModuleUnit(spec)
    if callable(spec):
        return FunctionUnit(cast(Callable[..., Tensor], spec))
    raise GatelabError(
        f"a unit is a name, a gl.Unit, a function of tensors or an nn.Module class, not {type(spec).__name__}"
    )


def product_unit(spec: Any, instead: str = "give a name such as 'swiglu', a gl.Unit or a function of tensors") -> Unit:
    """The unit, which must not be a class."""
    known = unit(spec)
    if not isinstance(known, Unit):
        raise GatelabError(f"the unit {known.name!r} was given as a class, whose formula is not known; {instead}")
    return known


def describe(chosen: AnyUnit) -> dict[str, Any]:
    """The unit in plain values, which `restore` reads; a user-defined one by its import path and hash of its source."""
    if isinstance(chosen, FunctionUnit | ModuleUnit):
        own: Any = getattr(chosen, "module", None)
        if isinstance(chosen, FunctionUnit):
            own = chosen.gate.function
        dotted = f"{getattr(own, '__module__', '?')}:{getattr(own, '__qualname__', '?')}"
        if dotted.startswith("__main__:") or imported(dotted) is not own:
            raise GatelabError(
                f"the unit {chosen.name!r} cannot be found by name from another process; move it into a module"
            )
        return {"name": chosen.name, "import": dotted, **source_of(own)}
    if GATES.get(chosen.gate.name) != chosen.gate:
        raise GatelabError(
            f"the gate of unit {chosen.name!r} is not registered; give the whole unit as a function in a module"
        )
    return {"name": chosen.name, "gate": chosen.gate.name, "factors": chosen.factors}


def source_of(own: Any) -> dict[str, str]:
    """The hash of the source of a user-defined unit; compiled functions have none."""
    if inspect.isbuiltin(own):
        return {}
    return {"source": source_key(own)}


def check_source(description: Mapping[str, Any]) -> None:
    """Refuse a user-defined unit whose source has changed since it was described."""
    own = imported(description["import"]) if description.get("source") else None
    if own is not None and source_of(own) != {"source": description["source"]}:
        raise GatelabError(
            f"the source of the unit {description['name']!r} has changed since this run was planned; start Python anew"
        )


def restore(description: Mapping[str, Any]) -> AnyUnit:
    """The unit of a description, refused if its source has changed."""
    check_source(description)
    if "import" in description:
        return unit(imported(description["import"]))
    known = CATALOGUE.get(description["name"])
    if known is not None and describe(known) == description:
        return known
    return Unit(description["gate"], description["factors"], description["name"])


def imported(dotted: str) -> Any:
    """The object at an import path such as "package.module:Class.name", or None."""
    module, _, name = dotted.partition(":")
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None


@lru_cache(maxsize=64)  # the source at the time of the import, also if the file changes later
def source_key(own: Any) -> str:
    """A hash of the code of the file that defines a function or class and of the user's files that it imports."""
    texts: dict[str, str] = {}
    todo = [own.__module__]
    while todo:
        module = todo.pop()
        if module not in texts:
            tree = syntax(module)
            texts[module] = ast.unparse(tree)
            todo += imports(tree, module)
    if not texts[own.__module__]:
        raise GatelabError(
            f"the source of the unit {own.__qualname__!r} cannot be read; define it by def or class in a file"
        )
    found = {module: text for module, text in sorted(texts.items()) if text}
    for module in found:
        check_loaded(module)
    return fingerprint([f"{module} {text}" for module, text in found.items()], 16)


def check_loaded(module: str) -> None:
    """Refuse a module whose file has changed since its import, so that its source is not that of its functions."""
    loaded = sys.modules[module]
    try:
        codes = [cast(Any, loaded.__spec__).loader.get_code(module)]
    except (AttributeError, ImportError, OSError, SyntaxError):  # a loader without code
        return
    for code in codes:
        codes += [part for part in code.co_consts if inspect.iscode(part)]
    values = [v for own in vars(loaded).values() for v in (own, *(vars(own).values() if inspect.isclass(own) else ()))]
    for function in filter(inspect.isfunction, values):
        code = getattr(inspect.unwrap(function), "__code__", None)  # a wrapped function may be compiled
        if code is not None and code.co_filename == codes[0].co_filename and code not in codes:
            raise GatelabError(f"{code.co_filename} has changed since it was imported; start Python anew")


def syntax(module: str) -> ast.Module:
    """The statements of a module, none if they cannot be read."""
    try:
        return ast.parse(inspect.getsource(importlib.import_module(module)))
    except (OSError, TypeError, ImportError, SyntaxError):
        return ast.Module([], [])


def imports(tree: ast.Module, module: str) -> Iterator[str]:
    """The user's modules that a module imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = getattr(sys.modules[module], "__package__", None)
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        yield from filter(is_own, names)


def is_own(module: str) -> bool:
    """Whether a module is a user's file, and not one of Python, an installed package or gatelab."""
    for name in (module.partition(".")[0], module):  # its package first, so that installed packages are not imported
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            return False
        places = [spec.origin] if spec and spec.has_location else getattr(spec, "submodule_search_locations", None)
        file = Path([*(places or ()), sysconfig.get_path("stdlib")][0] or "")
        installed = {"site-packages", "dist-packages"} & set(file.parts) or name == "gatelab"
        if installed or file.is_relative_to(sysconfig.get_path("stdlib")):
            return False
    return True
