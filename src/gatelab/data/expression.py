"""Formulas as text, parsed against a whitelist and never evaluated as Python.

Each allowed node of Python's syntax tree becomes a numpy function of the inputs. Numbers become floats, so that no
power of integers can fill the memory. The inputs are called x, y, z, or x1 to x9; the last one that occurs gives their
number, and all before it must occur.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gatelab.arrays import Array
from gatelab.display import Compact, shorten
from gatelab.errors import GatelabError, unknown_name

MAX_LENGTH = 1000
MAX_DEPTH = 100

Inputs = Mapping[str, Array]
# A part of a formula is a number if it is constant, otherwise a function of the inputs.
Part = float | Callable[[Inputs], Array]


CONSTANTS = {"pi": math.pi, "e": math.e}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("exp", "log", "sqrt", "abs", "sign", "minimum", "maximum")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": special.erf,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * special.ndtr(x),
    "silu": lambda x: x * special.expit(x),
    "sigmoid": special.expit,
}
LETTERS = ("x", "y", "z")
NUMBERED = tuple(f"x{i}" for i in range(1, 10))
INPUTS = (*LETTERS, *NUMBERED)
NAMES = (*INPUTS, *CONSTANTS, *FUNCTIONS)

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
GRAMMAR = "use numbers, x (y, z, or x1 to x9), pi, e, + - * / **, parentheses and functions such as sin(x)"


@dataclass(frozen=True)
class Expression(Compact):
    """A formula, callable on arrays; `parse` makes one.

    With one input it maps an array of any shape to one of the same shape, with d inputs an array (..., d) to one (...).
    Expressions with equal texts are equal.

    Attributes:
        text: the formula.
        inputs: the names of its variables, x for a constant.

    >>> f = Expression("1/(1 + 9*x**2)")
    >>> f(np.array([0.0, 1.0]))
    array([1. , 0.1])
    >>> g = Expression("x*y**2")
    >>> g.inputs, g(np.array([[1.0, 2.0], [3.0, 1.0]]))
    (('x', 'y'), array([4., 3.]))
    """

    text: str
    inputs: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _value: Part = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = Reader(checked_text(self.text))
        tree = reader.tree()
        self.__dict__.update(text=reader.text, _value=reader.part(tree), inputs=reader.inputs(tree))

    @property
    def d_in(self) -> int:
        return len(self.inputs)

    def __call__(self, x: ArrayLike) -> Array:
        """The values at x, NaN or infinite where the formula is not defined."""
        x = np.asarray(x, dtype=np.float64)
        if self.d_in == 1:
            shape, columns = x.shape, {self.inputs[0]: x}
        elif x.ndim and x.shape[-1] == self.d_in:
            shape, columns = x.shape[:-1], {name: x[..., i] for i, name in enumerate(self.inputs)}
        else:
            raise GatelabError(
                f"the formula {self.text!r} has the {self.d_in} inputs {', '.join(self.inputs)} and was given an array"
                f" of shape {x.shape}; give (N, {self.d_in})"
            )
        with np.errstate(all="ignore"):
            y = self._value(columns) if callable(self._value) else self._value
        # A copy, since the formula "x" would otherwise return the caller's array.
        return np.array(np.broadcast_to(y, shape), dtype=np.float64)

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.text,)

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> Expression:
    """Parse a formula.

    Args:
        text: a formula in x, in x and y, in x, y and z, or in x1, x2 and so on up to x9.

    Returns:
        The formula, callable on arrays.

    >>> parse("sin(4*x)*sin(4*y)").d_in, parse("x1 + x2*x3").d_in
    (2, 3)
    >>> parse("minimum(abs(x), 0.5)")(np.array([-2.0, 0.25]))
    array([0.5 , 0.25])
    """
    return Expression(text)


def checked_text(text: object) -> str:
    """The stripped text, refused unless it is one line of ASCII and neither too long nor too deep."""
    if not isinstance(text, str) or not text.strip():
        raise GatelabError(f"the expression is empty or no text, {text!r:.60}; give a text such as 'sin(3*x)'")
    if len(text) > MAX_LENGTH:
        raise GatelabError(
            f"the expression has {len(text)} characters, {MAX_LENGTH} is the most; give a Python function instead"
        )
    text = text.strip()
    # Python normalizes similar Unicode letters to ASCII names; only ASCII is accepted here.
    if other := [c for c in text if not " " <= c <= "~"]:
        raise GatelabError(
            f"the expression {text!r} has the character {other[0]!r}, U+{ord(other[0]):04X}; write plain ASCII on one"
            " line, such as sin(pi*x)"
        )
    return text


@dataclass(frozen=True)
class Reader:
    """The conversion of a formula's syntax tree to a function; every error quotes the text."""

    text: str

    def tree(self) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            where = min(max(error.offset or 1, 1), len(self.text) + 1)
            reason = error.msg.partition(". ")[0]  # Python's advice does not apply to formulas
            raise GatelabError(
                f"cannot read the expression {self.text!r}: {reason} at character {where};"
                " write products with * and powers with **, as in 3*x**2"
            ) from None
        except (RecursionError, MemoryError):
            raise too_deep() from None

    def inputs(self, tree: ast.expr) -> tuple[str, ...]:
        """The names of the inputs, up to the last one that occurs."""
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}.intersection(INPUTS)
        if not used:
            return ("x",)
        if used.intersection(LETTERS) and used.intersection(NUMBERED):
            raise GatelabError(
                f"the expression {self.text!r} mixes {' and '.join(sorted(used))}; call the inputs x, y, z or x1 to"
                " x9, not both"
            )
        order = LETTERS if used.intersection(LETTERS) else NUMBERED
        inputs = order[: max(map(order.index, used)) + 1]
        if missing := [name for name in inputs if name not in used]:
            raise GatelabError(
                f"the expression {self.text!r} has {inputs[-1]} but not {' and '.join(missing)}; the inputs are"
                f" {', '.join(order[:3])}{', ...' * (order is NUMBERED)} in this order without gaps:"
                f" rename them, or add 0*{missing[0]} for an input that does not matter"
            )
        return inputs

    def part(self, node: ast.expr, depth: int = 0) -> Part:
        """The number or function of a node."""
        if depth > MAX_DEPTH:
            raise too_deep()
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):  # exactly: a bool is an int
            return self.finite(float(str(node.value)), node)  # which gives inf where float() overflows
        if isinstance(node, ast.Name):
            return named(node.id)
        if isinstance(node, ast.UnaryOp | ast.BinOp) and type(node.op) in OPERATORS:
            function = OPERATORS[type(node.op)]
            arguments = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise GatelabError(f"the expression {self.text!r} uses ^; write a power with **, as in x**2")
        elif isinstance(node, ast.Call):
            function, arguments = self.function(node), node.args
        else:
            raise GatelabError(
                f"the expression {self.text!r} contains {self.source(node)}, which is not allowed; {GRAMMAR}"
            )
        parts = [self.part(argument, depth + 1) for argument in arguments]
        numbers = [p for p in parts if not callable(p)]
        if len(numbers) == len(parts):
            # numpy's floats overflow to inf and give nan for (-8)**0.5; Python's raise or become complex.
            with np.errstate(all="ignore"):
                return self.finite(float(function(*map(np.float64, numbers))), node)
        return lambda inputs: function(*[p(inputs) if callable(p) else p for p in parts])

    def function(self, node: ast.Call) -> Callable[..., Any]:
        """The function of a call, refused with a wrong number of arguments."""
        if not isinstance(node.func, ast.Name) or node.func.id in (*INPUTS, *CONSTANTS):
            raise GatelabError(
                f"{self.source(node.func)} is called as a function in {self.text!r}; write a product with *, as in"
                f" 2*(x + 1); {GRAMMAR}"
            )
        name = node.func.id
        if name not in FUNCTIONS:
            raise unknown_name("function in an expression", name, FUNCTIONS)
        arity = 1 + (name in ("minimum", "maximum"))
        if len(node.args) != arity or node.keywords:
            raise GatelabError(
                f"{name} takes {arity} argument{'s' * (arity > 1)}, without keywords, and was given"
                f" {len(node.args) + len(node.keywords)} in {self.text!r}; write {name}({', '.join('xy'[:arity])})"
            )
        return FUNCTIONS[name]

    def finite(self, value: float, node: ast.expr) -> float:
        if not math.isfinite(value):
            raise GatelabError(f"{self.source(node)} in the expression is {value} in double precision; correct it")
        return value

    def source(self, node: ast.expr) -> str:
        """The quoted text of a node; the text is one line of ASCII, so that columns are characters."""
        return repr(shorten(self.text[node.col_offset : node.end_col_offset], 60))


def too_deep() -> GatelabError:
    return GatelabError(
        f"the expression is nested more than {MAX_DEPTH} levels deep (a sum of k terms counts as k levels);"
        " simplify it or give a Python function instead"
    )


def named(name: str) -> Part:
    if name in INPUTS:
        return operator.itemgetter(name)
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in FUNCTIONS:
        raise GatelabError(f"{name} is a function without arguments here; write {name}(x)")
    raise unknown_name("name in an expression", name, NAMES)
