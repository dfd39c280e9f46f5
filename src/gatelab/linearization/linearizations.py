"""`linearize` and its result: the two maps, their product in bounded memory, and their error.

Biases are the weights of an additional input that is always one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward.gates import Activation
from gatelab.linearization.encryption import Encrypted, encrypt_polynomial
from gatelab.linearization.error import Error, measure
from gatelab.linearization.monomials import KINDS, Maps, gate_product, gated_maps, polynomial_maps
from gatelab.linearization.polynomials import ActivationLike, Polynomial, from_unit, gate_and_factors, values
from gatelab.linearization.proofs import Bound, bound
from gatelab.linearization.registry import find_method
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHUNK = 2**24  # numbers in a part: 128 MiB in float64
Weights = Tensor | Sequence[Tensor]


def linearize(
    activation: ActivationLike,
    method: str | None = None,
    *,
    d: int | None = None,
    degree: int | None = None,
    seed: int = 0,
    features: str = "symmetric",
    **options: Any,
) -> Linearization:
    """Maps with act(w.x) ~ Phi(w) . Psi(x), for an activation, a gated unit or any function of one tensor.

    Polynomials work for every d: `taylor`, `chebyshev` and `minimax` (interval=), `hermite` (scale= or data=), `fit`
    (data=). Other methods need d: `tangent` (reference=), `maclaurin`, `tensorsketch`, `optimal` and `learned` (m=).

    Args:
        activation: a name such as "gelu" or "swiglu", an `Activation`, a `Unit`, or a function of one tensor.
        method: one of `methods()`; None is "minimax" where interval= is given, else "hermite".
        d: the number of inputs, plus one for a bias; optional for polynomials.
        degree: the degree of the polynomial, or of the series behind random features.
        seed: the seed of random methods.
        features: for polynomials, "symmetric" (each monomial once) or "kronecker" (as in the paper).
        **options: options of the method.

    Returns:
        A `Linearization`.

    >>> import torch
    >>> maps = linearize("gelu", "minimax", degree=8, interval=3.0, d=4)
    >>> W, X = torch.randn(5, 4, dtype=torch.float64) / 4, torch.randn(2, 7, 4, dtype=torch.float64) / 4
    >>> maps.m, tuple(maps.phi(W).shape), tuple(maps.psi(X).shape)
    (299, (5, 299), (2, 7, 299))
    >>> bool(torch.allclose(maps.psi(X) @ maps.phi(W).mT, maps.product(W, X)))
    True
    """
    gate, factors = gate_and_factors(activation)
    way = find_method(method or ("minimax" if "interval" in options else "hermite"))
    if d is not None:
        d = whole_number("d", d, 1, of="inputs")
    if features not in KINDS:
        raise GatelabError(f"features is {features!r}; give 'symmetric', or 'kronecker' as in the paper")
    if degree is not None:
        options["degree"] = degree
    if features != "symmetric" and not way.polynomial:
        raise GatelabError(f"features={features!r} is for polynomials; {way.name} does not take it, leave it out")
    way.check(options)
    if way.polynomial:
        polynomial = way.build(gate, **options)
        maps_for = partial(polynomial_maps, polynomial, features=features, factors=factors)
        return Linearization(way.name, gate, maps_for, factors, d, polynomial)
    if "seed" in way.options:
        options["seed"] = seed
    if isinstance(m := options.get("m"), int):
        check_memory([(2, m)], f"a row of {m} features", "give a smaller m")
    maps_for = lru_cache(maxsize=4)(lambda inputs: gated_maps(way.build(gate, inputs, **options), factors))
    if d is not None:
        maps_for(d)  # to fail early
    elif "m" in way.options:
        raise GatelabError(f"{way.name} makes its maps for a number of inputs; give d=..., plus one for a bias")
    return Linearization(way.name, gate, maps_for, factors, d)


@dataclass(frozen=True, eq=False)
class Linearization:
    """act(w.x) ~ Phi(w) . Psi(x); for gated units act(g.x) (u.x) ..., with W the pair (G, U).

    Attributes:
        method: the name of the method.
        activation: the gate.
        maps_for: the maps as a function of the number of inputs.
        factors: the number of linear factors that multiply the gate.
        d: the number of inputs, or None if not given.
        polynomial: the polynomial of w.x, or None for other methods.
    """

    method: str
    activation: Activation
    maps_for: Callable[[int], Maps]
    factors: int = 0
    d: int | None = None
    polynomial: Polynomial | None = None

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        text = self.activation.name
        if self.factors:
            text += f" times {self.factors} linear"
        text += f" by {self.method}"
        if self.polynomial is not None:
            text += f" of degree {self.polynomial.degree}"
        if self.d is not None:
            text += f", d = {self.d}, m = {self.m}"
        return text

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """A polynomial with its activation, and their difference.

        The figure is written to `path` (.png, .svg or .pdf) if given, and drawn into `ax`, two axes, if given.
        """
        from gatelab.plotting import saved
        from gatelab.plotting.functions import approximation_figure

        if self.polynomial is None:
            raise GatelabError(f"{self.method} does not give a polynomial, which alone has a plot; use error()")
        z = from_unit(np.linspace(-1.3, 1.3, 601), self.polynomial.interval)
        exact = values(self.activation, z).numpy()
        curves = [(f"{self.method}, degree {self.polynomial.degree}", self.polynomial(z))]
        return saved(approximation_figure(z, exact, curves, self.polynomial.interval, str(self), ax=ax), path)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = [("method", self.method), ("activation", self.activation.name), ("linear factors", str(self.factors))]
        if self.d is not None:
            rows += [("inputs d", str(self.d)), ("features m", str(self.m))]
        if (p := self.polynomial) is not None:
            rows += [("degree", str(p.degree)), ("interval", f"[{p.interval[0]:g}, {p.interval[1]:g}]")]
            return html(str(self), rows, figure=self.plot())
        return html(str(self), rows)

    def features(self, d: int) -> Maps:
        """The two maps for inputs of d entries."""
        if self.d is not None and d != self.d:
            bias = "; a bias is one more input that is always 1" if d == self.d + 1 else ""
            raise GatelabError(f"inputs have {d} entries, the maps are for d = {self.d}{bias}; linearize with d={d}")
        return self.maps_for(d)

    @property
    def m(self) -> int:
        """The number of features."""
        if self.d is None:
            raise GatelabError("the number of inputs is not known; linearize with d=..., or use features(d).m")
        return self.maps_for(self.d).m

    def phi(self, W: Weights) -> Tensor:
        """(..., n, d) -> (..., n, m); W is a tuple (G, U, ...) for gated units."""
        parts = self._parts(W)
        return self._checked(parts[0].shape[-1], parts[0]).phi(self._stacked(parts))

    def psi(self, X: Tensor) -> Tensor:
        """(..., N, d) -> (..., N, m)."""
        if not isinstance(X, Tensor) or not X.ndim:
            raise GatelabError(f"X is {type(X).__name__} of shape {np.shape(X)}; give a tensor of rows, (..., N, d)")
        return self._checked(X.shape[-1], X).psi(X)

    def _checked(self, d: int, rows: Tensor) -> Maps:
        """The maps, if memory suffices for the features of the rows; maps of polynomials check this themselves."""
        maps, count = self.features(d), rows.shape[:-1].numel()
        if self.polynomial is None:
            what, instead = f"a table of {count} rows of {maps.m} features", "use product(W, X), which works in parts"
            check_memory(2 * rows.element_size() * maps.m * count, what, instead, rows.device)
        return maps

    def exact(self, W: Weights, X: Tensor) -> Tensor:
        """The exact values: act(X W^T), times the factors."""
        return gate_product(self.activation, self._parts(W), X)

    def product(self, W: Weights, X: Tensor) -> Tensor:
        """psi(X) phi(W)^T, (..., N, d) and (n, d) -> (..., N, n), in parts; polynomials of X W^T need no features."""
        parts = self._parts(W)
        if any(p.dtype != X.dtype or p.device != X.device or p.shape[1:] != X.shape[-1:] for p in parts):
            raise GatelabError(
                f"W is {tuple(parts[0].shape)} {parts[0].dtype} on {parts[0].device}, X is {tuple(X.shape)} {X.dtype} "
                f"on {X.device}; give both the same number of columns, one dtype and one device"
            )
        maps, stacked, flat = self.features(X.shape[-1]), self._stacked(parts), X.reshape(-1, X.shape[-1])
        out = X.new_empty((len(flat), len(stacked)))
        if self.polynomial is not None:
            rows = max(1, CHUNK // max(1, len(stacked)))
            for i in range(0, len(flat), rows):
                out[i : i + rows] = gate_product(self.polynomial, parts, flat[i : i + rows])
        else:
            rows = max(1, min(CHUNK // maps.m, isqrt(CHUNK)))
            for i in range(0, len(flat), rows):
                psi = maps.psi(flat[i : i + rows])
                for j in range(0, len(stacked), rows):
                    out[i : i + rows, j : j + rows] = psi @ maps.phi(stacked[j : j + rows]).mT
        return out.reshape(*X.shape[:-1], len(stacked))

    def error(self, distribution: str = "gaussian", **options: Any) -> Error:
        """RMSE, maximum and floor on a distribution, or on given W and X; see `error.measure`."""
        return measure(self, distribution, **options)

    def bound(self) -> Bound:
        """A proved bound on |act - p| over the interval of the polynomial."""
        if self.polynomial is None:
            raise GatelabError(f"{self.method} does not give a polynomial; bounds are for polynomials, use error()")
        return bound(self.polynomial, self.activation)

    def encrypted(self, x: Any) -> Encrypted:
        """The polynomial at numbers x of its interval under encryption, with the parts of its error."""
        if self.polynomial is None or self.factors:
            raise GatelabError(f"{self} is not a polynomial of one number; encrypt that of its gate, such as minimax")
        return encrypt_polynomial(self.polynomial, self.activation, x)

    def _parts(self, W: Weights) -> list[Tensor]:
        """W as a list: the tensor of the gate, then one per factor."""
        parts = [W] if isinstance(W, Tensor) else list(W)
        wanted = self.factors + 1
        if len(parts) != wanted or any(not isinstance(p, Tensor) or p.shape != parts[0].shape for p in parts):
            what = "a tensor W" if wanted == 1 else f"{wanted} tensors of one shape, the gate's first"
            raise GatelabError(f"{len(parts)} weights were given, {self} takes {what}")
        return parts

    def _stacked(self, parts: Sequence[Tensor]) -> Tensor:
        """The argument of phi: (..., d), or (..., 1 + factors, d) for gated units."""
        return torch.stack(list(parts), dim=-2) if self.factors else parts[0]
