"""What `linearize` gives: the two maps, their product in bounded memory, their error, a module.

A linearised layer as a module: biases are the weights of an input that is always one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization import monomials
from gatelab.linearization.error import Error, drawn_pairs, measure
from gatelab.linearization.monomials import Maps
from gatelab.linearization.polynomials import Polynomial
from gatelab.linearization.remez import Bound, bound
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHUNK = 2**24  # numbers a part may hold: 128 MiB in float64
_GLANCE = 2**15  # the most features whose values a notebook shows unasked
Weights = Tensor | Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Linearization:
    """act(w.x) ~ Phi(w) . Psi(x), and for gated units act(g.x) (u.x) ..., W being the pair (G, U).

    Maps of polynomials serve every number of inputs; those of the other methods were made for d.
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
        degree = f" of degree {self.polynomial.degree}" if self.polynomial else ""
        size = f", d = {self.d}, m = {self.m}" if self.d is not None else ""
        gated = f" times {self.factors} linear" if self.factors else ""
        return f"{self.activation.name}{gated} by {self.method}{degree}{size}"

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """A polynomial beside its activation, and their difference; of other maps, values of random pairs of w and x.

        The pairs are standard normal. Written to `path` (.png, .svg or .pdf) if given, and drawn into your own axes
        with `ax`: two for a polynomial, else one.
        """
        from gatelab.plotting import saved

        return saved(self._polynomial_figure(ax) if self.polynomial is not None else self._pairs_figure(ax), path)

    def _polynomial_figure(self, ax: Any) -> Figure:
        from gatelab.linearization.polynomials import values
        from gatelab.plotting.maps import approximation_figure

        p = self.polynomial
        assert p is not None
        low, high = p.interval
        room = 0.15 * (high - low)
        z = np.linspace(low - room, high + room, 601)
        exact = values(self.activation, z).numpy()
        curves = [(f"{self.method}, degree {p.degree}", p(z))]
        return approximation_figure(z, exact, curves, p.interval, [], str(self), ax=ax)

    def _pairs_figure(self, ax: Any) -> Figure:
        from gatelab.plotting.functions import agreement_figure

        if self.d is None:
            raise GatelabError("maps of other methods than polynomials are drawn for a number of inputs; give d=...")
        exact, made = drawn_pairs(self, self.d, min(400, max(1, CHUNK // (4 * self.m))))
        return agreement_figure(exact, made, ("exact", "by features"), str(self), ax=ax)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = [("method", self.method), ("activation", self.activation.name), ("linear factors", str(self.factors))]
        if self.d is not None:
            rows += [("inputs d", str(self.d)), ("features m", str(self.m))]
        if (p := self.polynomial) is not None:
            rows += [("degree", str(p.degree)), ("interval", f"[{p.interval[0]:g}, {p.interval[1]:g}]")]
        drawable = self.polynomial is not None or (self.d is not None and self.m <= _GLANCE)
        return html(str(self), rows, figure=self.plot() if drawable else None)

    def features(self, d: int) -> Maps:
        """The two maps for inputs of d entries."""
        if self.d is not None and d != self.d:
            more = "; a bias is one input more, that is always 1" if d == self.d + 1 else ""
            raise GatelabError(
                f"inputs have {d} entries, the maps were made for d = {self.d}{more}; linearize with d={d}"
            )
        return self.maps_for(d)

    @property
    def m(self) -> int:
        """The number of features."""
        if self.d is None:
            raise GatelabError(
                "the number of features depends on that of inputs; linearize with d=..., or ask features(d).m"
            )
        return self.maps_for(self.d).m

    def phi(self, W: Weights) -> Tensor:
        """(..., n, d) -> (..., n, m); of a gated unit from (G, U, ...)."""
        parts = self._parts(W)
        rows = torch.stack(parts, dim=-2) if self.factors else parts[0]
        return self._checked(rows.shape[-1], parts[0]).phi(rows)

    def psi(self, X: Tensor) -> Tensor:
        """(..., N, d) -> (..., N, m)."""
        return self._checked(X.shape[-1], X).psi(X)

    def _checked(self, d: int, rows: Tensor) -> Maps:
        """The maps, if the features of so many rows fit; those of polynomials ask for themselves."""
        maps, count = self.features(d), rows.shape[:-1].numel()
        if self.polynomial is not None:
            return maps
        check_memory(
            2 * rows.element_size() * maps.m * count,
            f"a table of {count} rows of {maps.m} features",
            "give fewer rows or features, or use product(W, X), which works in parts",
            rows.device,
        )
        return maps

    def exact(self, W: Weights, X: Tensor) -> Tensor:
        """What is approximated: act(X W^T), times the factors."""
        gate, *others = self._parts(W)
        value = self.activation(X @ gate.mT)
        for u in others:
            value = value * (X @ u.mT)
        return value

    def product(self, W: Weights, X: Tensor, chunk: int = CHUNK, *, features: bool = False) -> Tensor:
        """real(psi(X) phi(W)^T), (..., N, d) and (..., n, d) -> (..., N, n), no part holding more than `chunk` numbers.

        The product of a polynomial's features is the polynomial of the product: they are not made unless `features`.
        """
        parts = self._parts(W)
        if chunk < 1:
            raise GatelabError(f"chunk is {chunk!r}; give how many numbers a part may hold, such as 2**24")
        if any(p.dtype != X.dtype or p.device != X.device or p.shape[-1] != X.shape[-1] for p in parts):
            raise GatelabError(
                f"W is {tuple(parts[0].shape)} {parts[0].dtype} on {parts[0].device}, X is {tuple(X.shape)} {X.dtype} "
                f"on {X.device}; give both with as many columns, of one dtype and on one device"
            )
        lead = torch.broadcast_shapes(X.shape[:-2], *(p.shape[:-2] for p in parts))
        if all(p.ndim == 2 for p in parts):
            made = self._flat(parts, X.reshape(-1, X.shape[-1]), chunk, features)
            return made.reshape(*X.shape[:-1], len(parts[0]))
        each = [t.expand(*lead, *t.shape[-2:]).flatten(0, -3) for t in (X, *parts)]
        made = [self._flat([p[i] for p in each[1:]], each[0][i], chunk, features) for i in range(len(each[0]))]
        return torch.stack(made).reshape(*lead, *made[0].shape)

    def _flat(self, parts: Sequence[Tensor], X: Tensor, chunk: int, features: bool) -> Tensor:
        if self.polynomial is not None:
            self.features(X.shape[1])
            how = monomials.product if features else monomials.evaluate
            return how(self.polynomial, parts, X, chunk)
        maps = self.features(X.shape[1])
        rows = max(1, min(chunk // maps.m, isqrt(chunk)))
        out = X.new_empty((len(X), len(parts[0])))
        stacked = torch.stack(list(parts), dim=-2) if self.factors else parts[0]
        for i in range(0, len(X), rows):
            psi = maps.psi(X[i : i + rows])
            for j in range(0, len(stacked), rows):
                made = psi @ maps.phi(stacked[j : j + rows]).mT
                out[i : i + rows, j : j + rows] = made.real if made.is_complex() else made
        return out

    def error(self, distribution: str = "gaussian", **options: Any) -> Error:
        """RMSE and maximum on a distribution, or on given W and X, beside the floor; see `error.measure`."""
        return measure(self, distribution, **options)

    def bound(self) -> Bound:
        """A proved bound on |act - p| over the interval of the polynomial."""
        if self.polynomial is None:
            raise GatelabError(f"{self.method} is no polynomial of w.x; bounds are proved for polynomials, see error()")
        return bound(self.polynomial, self.activation)

    def module(self, W: Weights, b: Any = None, *, features: bool = True) -> LinearizedLayer:
        """The layer act(W x + b) with Phi of its weights made beforehand; features=False keeps W, for polynomials."""
        return LinearizedLayer(self, self._parts(W), b, features)

    def _parts(self, W: Weights) -> list[Tensor]:
        parts = [W] if isinstance(W, Tensor) else list(W)
        wanted = self.factors + 1
        if len(parts) != wanted or any(not isinstance(p, Tensor) or p.shape != parts[0].shape for p in parts):
            what = "a tensor W" if wanted == 1 else f"{wanted} tensors of one shape, that of the gate first"
            raise GatelabError(f"{len(parts)} weights were given, {self} takes {what}")
        return parts


if TYPE_CHECKING:
    pass


class LinearizedLayer(nn.Module):
    """x (..., d) -> Psi([x, 1]) Phi([W, b])^T (..., n). Phi is a buffer: it moves and is saved with the module."""

    Phi: Tensor

    def __init__(self, made: Linearization, weights: Sequence[Tensor], b: Any, features: bool) -> None:
        super().__init__()
        biases = [None] * len(weights) if b is None else [b] if isinstance(b, Tensor) else list(b)
        if len(biases) != len(weights) or any(v is not None and v.shape != weights[0].shape[:-1] for v in biases):
            raise GatelabError(
                f"the biases do not fit W of shape {tuple(weights[0].shape)}; give one of shape "
                f"{tuple(weights[0].shape[:-1])} for each of {len(weights)} weights"
            )
        self.made, self.lifted, self.biased = made, features, any(v is not None for v in biases)
        rows = [w.detach() for w in weights]
        if self.biased:
            ends = [torch.zeros_like(w[..., 0]) if v is None else v.detach() for w, v in zip(rows, biases, strict=True)]
            rows = [torch.cat([w, v[..., None]], dim=-1) for w, v in zip(rows, ends, strict=True)]
        if not features and made.polynomial is None:
            raise GatelabError(
                f"{made.method} is no polynomial of w.x and has no product without features; leave features on"
            )
        maps = made.features(rows[0].shape[-1])
        if features:
            check_memory(
                2 * rows[0].element_size() * maps.m * rows[0].shape[:-1].numel(),
                f"Phi of {tuple(rows[0].shape)} weights with {maps.m} features a row",
                "lower the degree, or give features=False to keep W and evaluate the polynomial",
                rows[0].device,
            )
        self.count = len(rows)
        kept = made.phi(rows if made.factors else rows[0]) if features else torch.stack(rows)
        self.register_buffer("Phi", kept)

    def forward(self, x: Tensor) -> Tensor:
        if self.biased:
            x = torch.cat([x, x.new_ones((*x.shape[:-1], 1))], dim=-1)
        if self.lifted:
            made = self.made.psi(x) @ self.Phi.mT.to(x.device)
            return made.real if made.is_complex() else made
        assert self.made.polynomial is not None
        value = self.made.polynomial(x @ self.Phi[0].mT)
        for u in self.Phi[1:]:
            value = value * (x @ u.mT)
        return value

    def extra_repr(self) -> str:
        return f"{self.made}, {tuple(self.Phi.shape)}"
