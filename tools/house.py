"""Facts about the package's walls and names, read from its source alone: `python tools/house.py`.

Each row has the number that is wanted and the most that is allowed: what the tree has reached, it keeps. More than that
ends the script with exit code 1, as part of `make lint`. Every rule is a plain count over the syntax trees.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "gatelab"
# Names that say how a value was come by, and not what it is.
VAGUE = {"found", "made", "kept", "at", "given", "said", "told", "got", "seen", "taken", "held"}
INTERVAL = {"value", "low", "high"}
POSITIONALS = 8
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the package: its path below the root, its text and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The dotted name below the package; of the package itself, the empty text."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def every_node(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: a walk takes longer than any rule, and most rules would take their own."""
        return tuple(ast.walk(self.tree))

    def nodes(self, *kinds: type) -> Iterator[ast.AST]:
        return (node for node in self.every_node if isinstance(node, kinds))


@dataclass(frozen=True)
class Fact:
    """A row of the table: the number of the tree, the largest that is wanted, what counts towards it, and the most.

    The most that is allowed is what is wanted, unless the tree is not there yet.
    """

    point: str
    number: float
    wanted: float
    which: tuple[str, ...] = ()
    most: float | None = None

    @property
    def allowed(self) -> float:
        return self.wanted if self.most is None else self.most


def read(root: Path) -> tuple[Module, ...]:
    """All modules below a folder, in the order of their paths."""
    paths = sorted(root.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return tuple(Module(path.relative_to(root), text, ast.parse(text)) for path, text in texts.items())


def hidden_modules(modules: tuple[Module, ...]) -> tuple[str, ...]:
    """Modules with the name of a function or class that their package has, or that they define themselves."""
    names = {module.name for module in modules}
    hidden = []
    for module in modules:
        if module.path.name == "__init__.py":
            exported = {name for name in _bound(module.tree) if f"{module.name}.{name}".strip(".") in names}
            hidden += [f"{module.name}.{name}".strip(".") for name in exported if not _is_room(module, name)]
        elif module.path.stem in {node.name for node in module.tree.body if isinstance(node, Function | ast.ClassDef)}:
            hidden.append(module.name)
    return tuple(sorted(set(hidden)))


def _bound(tree: ast.Module) -> set[str]:
    """Names that a package binds: what it imports from its modules, and what it imports on first use."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Tuple):
                    names |= {e.value for e in value.elts if isinstance(e, ast.Constant)}
    return names


def _is_room(module: Module, name: str) -> bool:
    """Whether a package imports this name as a module: `from gatelab import ntk`, `from gatelab.cli import fit`."""
    package = f"gatelab.{module.name}".rstrip(".")
    imports = [node for node in module.nodes(ast.ImportFrom) if isinstance(node, ast.ImportFrom)]
    holders = [node.module for node in imports if name in {alias.asname or alias.name for alias in node.names}]
    return bool(holders) and set(holders) == {package}


def vague_names(modules: tuple[Module, ...]) -> tuple[tuple[str, ...], int]:
    """Bindings with a vague name, and the number of all bindings: assignments, loops, arguments."""
    vague, count = [], 0
    for module in modules:
        for node in module.every_node:
            name = None
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            if name is not None:
                count += 1
                if name in VAGUE:
                    vague.append(f"{module.path}:{node.lineno} {name}")
    return tuple(vague), count


def repeated_classes(modules: tuple[Module, ...]) -> tuple[str, ...]:
    """Public class names that are defined more than once."""
    names = Counter(n.name for m in modules for n in m.nodes(ast.ClassDef) if not n.name.startswith("_"))  # type: ignore[attr-defined]
    return tuple(sorted(name for name, times in names.items() if times > 1))


def interval_classes(modules: tuple[Module, ...]) -> tuple[str, ...]:
    """Classes whose fields value, low and high are numbers; not those that give them as the one `Interval`."""
    classes = []
    for module in modules:
        for node in module.nodes(ast.ClassDef):
            assert isinstance(node, ast.ClassDef)
            fields = {
                n.target.id
                for n in node.body
                if isinstance(n, ast.AnnAssign)
                and isinstance(n.target, ast.Name)
                and "float" in ast.unparse(n.annotation)
            }
            gives = {ast.unparse(n.returns) for n in node.body if isinstance(n, ast.FunctionDef) and n.returns}
            if fields >= INTERVAL and "Interval" not in gives:
                classes.append(f"{module.name}.{node.name}")
    return tuple(classes)


def functions_called(modules: tuple[Module, ...], word: str) -> tuple[str, ...]:
    """Functions that themselves do what `word` names, such as drawing with `choice` or asking for `t.ppf`."""
    return tuple(f"{m.name}:{n.lineno}" for m in modules for n in m.nodes(ast.Call) if _dotted(n.func).endswith(word))  # type: ignore[attr-defined]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: Function) -> int:
    """How many parameters a function has."""
    return len(function.args.posonlyargs) + len(function.args.args) + len(function.args.kwonlyargs)


def undocumented(modules: tuple[Module, ...]) -> tuple[str, ...]:
    """Functions that a room exports and whose docstring does not list every argument and what is returned."""
    rooms = {m.path.parent: _all(m.tree) for m in modules if m.path.name == "__init__.py"}
    missing = []
    for module in modules:
        exported = rooms.get(module.path.parent, set())
        if module.path.parts[0] == "cli":
            continue
        for node in module.tree.body:
            if isinstance(node, Function) and node.name in exported and not _is_overload(node):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                text = ast.get_docstring(node) or ""
                absent = [name for name in names if f"{name}" not in text]
                if (names and ("Args:" not in text or absent)) or (
                    "Returns:" not in text and "Yields:" not in text and not _returns_nothing(node)
                ):
                    missing.append(f"{module.name}.{node.name}")
    return tuple(missing)


def _is_overload(node: Function) -> bool:
    return any(_dotted(decorator).endswith("overload") for decorator in node.decorator_list)


def _returns_nothing(node: Function) -> bool:
    return isinstance(node.returns, ast.Constant) and node.returns.value is None


def _all(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return {e.value for e in getattr(node.value, "elts", ()) if isinstance(e, ast.Constant)}
    return set()


def facts(modules: tuple[Module, ...]) -> tuple[Fact, ...]:
    """The table."""
    lines = sum(m.text.count("\n") for m in modules)
    functions = [(m, n) for m in modules for n in m.nodes(ast.FunctionDef) if isinstance(n, ast.FunctionDef)]
    widest = max(functions, key=lambda pair: parameters(pair[1]))
    hidden, (vague, bindings) = hidden_modules(modules), vague_names(modules)
    repeated, intervals = repeated_classes(modules), interval_classes(modules)
    conditionals = sum(1 for m in modules for _ in m.nodes(ast.IfExp))
    private = sum(n.name.startswith("_") and not n.name.startswith("__") for _, n in functions)
    long_calls = [
        f"{m.path}:{n.lineno}"
        for m in modules
        for n in m.nodes(ast.Call)
        if isinstance(n, ast.Call) and sum(not isinstance(a, ast.Starred) for a in n.args) >= POSITIONALS
    ]
    bare = undocumented(modules)
    return (
        Fact("modules hidden by a function or class of their name", len(hidden), 0, hidden),
        Fact("vague names, percent of all bindings", 100 * len(vague) / bindings, 1, vague),
        Fact("public class names defined more than once", len(repeated), 0, repeated),
        Fact("classes that are (value, low, high)", len(intervals), 1, intervals),
        Fact("t quantiles asked for by hand", len(t := functions_called(modules, "t.ppf")), 1, t),
        Fact("conditional expressions in a thousand lines", 1000 * conditionals / lines, 10),
        Fact("most parameters of a function", parameters(widest[1]), 12, (f"{widest[0].name}.{widest[1].name}",)),
        Fact(f"calls with {POSITIONALS} or more positional arguments", len(long_calls), 0, tuple(long_calls)),
        Fact("private functions in a thousand lines", 1000 * private / lines, 15),
        Fact("public functions without arguments and returns", len(bare), 0, bare),
        Fact("files", len(modules), 230, most=265),
        Fact("lines", lines, 38_000, most=49_284),
    )


def main(root: Path = ROOT, show: Callable[[str], object] = print) -> int:
    """Print the table; with `--all`, every place that counts."""
    table = facts(read(root))
    for fact in table:
        mark = ""
        if fact.number > fact.allowed:
            mark = f"  <- at most {fact.allowed:g} are allowed; python tools/house.py --all says which they are"
        elif fact.number > fact.wanted:
            mark = "  <- not yet"
        show(f"{fact.point:55} {fact.number:8.6g}   wanted {fact.wanted:6g}{mark}")
        if "--all" in sys.argv:
            for place in fact.which:
                show(f"    {place}")
    return int(any(fact.number > fact.allowed for fact in table))


if __name__ == "__main__":
    sys.exit(main(*map(Path, (a for a in sys.argv[1:] if not a.startswith("-")))))
