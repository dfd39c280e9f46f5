"""The targets by name, and the one place where whatever a user gives becomes a problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gatelab.errors import GatelabError, unknown_name
from gatelab.problems.expression import Expression, parse
from gatelab.problems.problem import Problem


@dataclass(frozen=True)
class ProblemSpec:
    """A registered target: its name, its formula and where it lives.

    >>> problems()[0].expression
    '1/(1+cos(pi*x)**2)'
    """

    name: str
    expression: str
    description: str
    interval: tuple[float, float] = (-1.0, 1.0)


_PROBLEMS = {
    spec.name: spec
    for spec in (
        ProblemSpec("paper-1d", "1/(1+cos(pi*x)**2)", "the paper's one-dimensional target, two smooth humps"),
        ProblemSpec("x2", "x**2", "a parabola, which one gated unit holds exactly"),
        ProblemSpec("x3", "x**3", "a cubic"),
        ProblemSpec("cos4x", "cos(4*x)", "a little more than one period, even"),
        ProblemSpec("sin4x", "sin(4*x)", "a little more than one period, odd"),
        ProblemSpec("sin4x2", "sin(4*(x-1)**2)", "a chirp, fast on the left and flat on the right"),
        ProblemSpec("runge1", "1/(1+x**2)", "Runge's function, wide"),
        ProblemSpec("runge9", "1/(1+9*x**2)", "Runge's function, narrower"),
        ProblemSpec("atan", "atan(x)", "a smooth step"),
    )
}
# Covers names with hyphens such as paper-1d; "x-pi" is covered too, hence names are tried as formulas first.
_LIKE_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def problems() -> tuple[ProblemSpec, ...]:
    """Every registered target.

    >>> [spec.name for spec in problems()][:4]
    ['paper-1d', 'x2', 'x3', 'cos4x']
    """
    return tuple(_PROBLEMS.values())


def problem(
    spec: str | Callable[..., Any] | Problem,
    *,
    interval: tuple[float, float] | None = None,
    n: int = 10_000,
    n_test: int | None = None,
    sampling: str = "random",
    noise: float = 0.0,
    seed: int = 0,
) -> Problem:
    """The problem that `spec` means: a registered name, a formula in x, a function of arrays, or a problem.

    The options are those of `Problem.from_function`; the interval defaults to the registered one, [-1, 1] for
    formulas and functions.

    >>> problem("paper-1d", n=100).interval
    (-1.0, 1.0)
    >>> problem("exp(sin(3*x))", interval=(0, 3), n=100).name
    'exp(sin(3*x))'
    >>> problem("rungee9")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: no problem is called 'rungee9'; did you mean 'runge9' or 'runge1'? ...
    """
    if isinstance(spec, Problem):
        if interval is not None or (n, n_test, sampling, noise, seed) != (10_000, None, "random", 0.0, 0):
            raise GatelabError(
                f"the problem {spec.name!r} holds its data already and takes no options;"
                " leave out interval, n, n_test, sampling, noise and seed,"
                " or give a name, a formula or a function"
            )
        return spec
    known = _PROBLEMS.get(spec.strip().lower()) if isinstance(spec, str) else None
    made = Problem.from_function(
        parse(known.expression) if known else _function(spec),
        interval=interval if interval is not None else known.interval if known else (-1.0, 1.0),
        n=n,
        n_test=n_test,
        sampling=sampling,
        noise=noise,
        seed=seed,
        name=known.name if known else None,
    )
    if known:
        made = replace(made, description=f"{known.expression}: {known.description}")
    if not isinstance(spec, str) or made.interval is None:
        return made
    recipe = {"spec": known.name if known else spec.strip(), "interval": list(made.interval), "n": n, "n_test": n_test}
    return replace(made, recipe=recipe | {"sampling": sampling, "noise": float(noise), "seed": seed})


def _function(spec: Any) -> Callable[..., Any]:
    if isinstance(spec, str):
        return _formula(spec)
    if callable(spec):
        return spec
    raise GatelabError(
        f"a problem cannot be made from {type(spec).__name__}; give a registered name, a formula in x or a"
        " function, and for arrays use Problem.from_arrays(x, y)"
    )


def _formula(text: str) -> Expression:
    try:
        return parse(text)
    except GatelabError:
        if not _LIKE_A_NAME.fullmatch(text.strip()):
            raise
    raise GatelabError(
        f"{unknown_name('problem', text.strip(), _PROBLEMS)}; a formula in x is taken too, such as 'exp(sin(3*x))'"
    )
