"""Gated units from the maps of their gate: act(g.x) (u.x) = (Phi(g) (x) u) . (Psi(x) (x) x)."""

from __future__ import annotations

from torch import Tensor

from gatelab.linearize.maps import Maps


def times_linear(maps: Maps, factors: int) -> Maps:
    """Maps of the gate times that many linear factors; phi takes (..., 1 + factors, d), m grows d times with each.

    Polynomials do better: their features are the monomials of one degree more (`lifted`).
    """

    def phi(rows: Tensor) -> Tensor:
        gate, *others = rows.unbind(-2)
        made = maps.phi(gate)
        for u in others:
            made = (made[..., :, None] * u[..., None, :]).flatten(-2)
        return made

    def psi(rows: Tensor) -> Tensor:
        made = maps.psi(rows)
        for _ in range(factors):
            made = (made[..., :, None] * rows[..., None, :]).flatten(-2)
        return made

    return Maps(phi, psi, maps.m * maps.d**factors, maps.d)
