"""Where a user's gate or its slope jumps, and quadrature that stops there.

Gauss-Legendre panels are exact to rounding on smooth pieces and poor across a jump. Kinks at 0 sit between two panels
for every row; one at c sits at z = c / s, elsewhere for each row. The panel that holds it is taken out of the row's
sum and put back in pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CELLS = 1 << 13
HALVINGS = 40
JUMP = 1e-9  # relative to the largest value on the grid; what is smooth changes by far less in a cell halved so often


def find_breaks(function: Callable[[Tensor], Tensor], reach: float, device: torch.device) -> Tensor:
    """The points of (-reach, reach) other than 0 where the function jumps, at most one for each of 8192 cells.

    Every cell is halved forty times, always towards the half over which the function changes more.

    >>> find_breaks(lambda y: (y > 0.3).double() - (y < -2).double(), 5.0, torch.device("cpu"))
    tensor([-2.0000,  0.3000], dtype=torch.float64)
    """
    # Off-centre cells: a jump at a round number is inside a cell and not at its end.
    edges = torch.linspace(-reach, reach * (1 + 1e-4), CELLS + 1, dtype=torch.float64, device=device)
    left, right = edges[:-1].clone(), edges[1:].clone()
    low, high = function(left), function(right)
    scale = torch.maximum(low.abs().max(), high.abs().max())
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        value = function(middle)
        first = (value - low).abs() >= (high - value).abs()
        left, low = torch.where(first, left, middle), torch.where(first, low, value)
        right, high = torch.where(first, middle, right), torch.where(first, value, high)
    found = right[(high - low).abs() > JUMP * scale]
    return found[found.abs() > 1e-9 * reach]


@dataclass(frozen=True)
class Pieces:
    """For every row the panels that stay whole, (rows, panels), and the intervals in place of the others."""

    whole: Tensor
    start: Tensor
    end: Tensor

    @staticmethod
    def of(edges: Tensor, at: Tensor) -> Pieces:
        """`at`, (rows, breaks), in rising order; breaks beyond the last edge cut nothing off."""
        panel = torch.bucketize(at, edges).clamp_(1, len(edges) - 1)
        low, high = edges[panel - 1], edges[panel]
        at = torch.minimum(torch.maximum(at, low), high)
        whole = torch.ones(len(at), len(edges) - 1, dtype=torch.bool, device=edges.device)
        whole.scatter_(1, panel - 1, False)
        start, end = low.clone(), high.clone()
        together = panel[:, 1:] == panel[:, :-1]
        start[:, 1:] = torch.where(together, at[:, :-1], start[:, 1:])
        end[:, :-1] = torch.where(together, at[:, :-1], end[:, :-1])
        return Pieces(whole, torch.cat([start, at], 1), torch.cat([at, end], 1))

    def nodes(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and lengths of a rule (x, w) on [-1, 1] on every interval, (rows, intervals * nodes)."""
        half = (self.end - self.start)[:, :, None] / 2
        z = self.start[:, :, None] + half * (x + 1)
        return z.flatten(1), (half * w).flatten(1)
