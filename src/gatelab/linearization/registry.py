"""`linearize`: a name, a method and its options -> the two maps.

Methods that make a polynomial of w.x are in `POLYNOMIALS`; their features follow from the polynomial. The others make
their maps themselves: a module of this room with `build(activation, d, ...)`, imported when it is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.gates import Activation
from gatelab.linearization.linearizations import Linearization
from gatelab.linearization.monomials import Maps, check_kind, lifted, times_linear
from gatelab.linearization.polynomials import Given, Polynomial, meant
from gatelab.linearization.remez import chebyshev, minimax
from gatelab.linearization.series import fit, hermite, taylor
from gatelab.memory import check_memory

POLYNOMIALS: Mapping[str, Callable[..., Polynomial]] = {
    "taylor": taylor,
    "chebyshev": chebyshev,
    "minimax": minimax,
    "hermite": hermite,
    "fit": fit,
}
# The module of each other method and its `build(activation, d, ...) -> Maps`.
MAPS: Mapping[str, tuple[str, str]] = {
    "tangent": ("learned", "build_tangent"),
    "monte-carlo": ("error", "build"),
    "maclaurin": ("random_features", "build_maclaurin"),
    "tensorsketch": ("random_features", "build_tensorsketch"),
    "fourier": ("fourier", "build"),
    "optimal": ("optimal", "build"),
    "learned": ("learned", "build_learned"),
}


def methods() -> tuple[str, ...]:
    """The names that `linearize` knows."""
    return (*POLYNOMIALS, *MAPS)


def linearize(
    activation: Given,
    method: str = "hermite",
    *,
    d: int | None = None,
    degree: int | None = None,
    seed: int = 0,
    features: str = "symmetric",
    **options: Any,
) -> Linearization:
    """Maps with act(w.x) ~ Phi(w) . Psi(x), for an activation, a gated unit or any function of one tensor.

    Polynomials, which serve every d: `taylor`, `chebyshev` and `minimax` (interval=), `hermite` (scale= or data=),
    `fit` (data=). Others, made for d: `tangent` (reference=), `maclaurin`, `tensorsketch`, `fourier`, `optimal` and
    `learned` (m=), each with options of its own. `features` is "symmetric" or, as in the paper, "kronecker".

    >>> import torch
    >>> made = linearize("gelu", "minimax", degree=8, interval=3.0, d=4)
    >>> W, X = torch.randn(5, 4, dtype=torch.float64) / 4, torch.randn(2, 7, 4, dtype=torch.float64) / 4
    >>> made.m, tuple(made.phi(W).shape), tuple(made.psi(X).shape)
    (299, (5, 299), (2, 7, 299))
    >>> bool(torch.allclose(made.psi(X) @ made.phi(W).mT, made.product(W, X)))
    True
    """
    gate, factors = meant(activation)
    name = method.lower().replace("_", "-")
    if name not in (*POLYNOMIALS, *MAPS):
        raise unknown_name("method", method, methods())
    if d is not None and (isinstance(d, bool) or not hasattr(d, "__index__") or int(d) < 1):
        raise GatelabError(f"d is {d!r}; give the number of inputs, 1 or more")
    check_kind(features)
    d = None if d is None else int(d)
    if name in POLYNOMIALS:
        given = {**options, **({} if degree is None else {"degree": degree})}
        builder = POLYNOMIALS[name]
        _check_options(name, builder, given, ("gate",))
        polynomial = builder(gate, **given)
        maps_for = partial(lifted, polynomial, features=features, factors=factors)
        return Linearization(name, gate, maps_for, factors, d, polynomial)
    if features != "symmetric":
        raise GatelabError(f"features={features!r} is for polynomials; {name} has features of its own, leave it out")
    return Linearization(name, gate, _maker(name, gate, factors, d, degree, seed, options), factors, d)


def _maker(
    name: str, gate: Activation, factors: int, d: int | None, degree: int | None, seed: int, options: dict[str, Any]
) -> Callable[[int], Maps]:
    module, builder = MAPS[name]
    build = getattr(import_module(f"gatelab.linearization.{module}"), builder)
    seeded = {"seed": seed} if "seed" in inspect.signature(build).parameters else {}
    given = {**options, **seeded, **({} if degree is None else {"degree": degree})}
    _check_options(name, build, given, ("activation", "d"))
    if isinstance(m := options.get("m"), int):
        check_memory(2 * 8 * m, f"a row of {m} features", "give a smaller m")

    @lru_cache(maxsize=4)
    def made(inputs: int) -> Maps:
        maps = build(gate, inputs, **given)
        return times_linear(maps, factors) if factors else maps

    if d is not None:
        made(d)  # errors in what was given are told now
    elif name != "tangent":
        raise GatelabError(f"{name} makes its maps for a number of inputs; give d=..., one more than that for a bias")
    return made


def _check_options(name: str, builder: Callable[..., Any], given: Mapping[str, Any], own: tuple[str, ...]) -> None:
    known = {k: p for k, p in inspect.signature(builder).parameters.items() if k not in own}
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return
    for option in given:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    for option, p in known.items():
        if p.default is p.empty and option not in given:
            raise GatelabError(f"{name} needs {option}=...; it takes {', '.join(known)}")
