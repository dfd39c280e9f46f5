"""What every method makes: a map of weights and a map of inputs whose product stands for the activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gatelab.display import one_line


@dataclass(frozen=True, eq=False)
class Maps:
    """phi: (..., d) -> (..., m) of rows w of W, psi: (..., d) -> (..., m) of inputs x; act(w.x) ~ phi(w) . psi(x).

    Both act on the last dimension, keep dtype and device, and may be complex: then the real part of the product counts.
    """

    phi: Callable[[Tensor], Tensor]
    psi: Callable[[Tensor], Tensor]
    m: int
    d: int

    def __repr__(self) -> str:
        return one_line(self, f"m = {self.m} features of d = {self.d} inputs")
