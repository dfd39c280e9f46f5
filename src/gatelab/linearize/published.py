"""Published polynomials for GELU under encryption, as their authors give them, to compare with.

PUMA (Dong et al., arXiv 2307.12533) and BOLT (Pang et al., IEEE S&P 2024) are for secret sharing, where comparisons
are cheap: pieces with clamps. NEXUS (Zhang et al., NDSS 2025) has one polynomial between two clamps. MPCFormer (Li et
al., ICLR 2023) takes one quadratic and trains the network again. The reference is paper 003: Taylor's five terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gatelab.display import counted, one_line
from gatelab.errors import unknown_name
from gatelab.linearize.given import Given, meant, values
from gatelab.linearize.polynomials import Array
from gatelab.linearize.taylor import series


@dataclass(frozen=True)
class Published:
    """Pieces between `breaks`: piece i, coefficients of 1, z, z^2, ..., holds from breaks[i - 1] to breaks[i].

    >>> bolt = find_published("bolt")
    >>> bolt.breaks, [len(piece) - 1 for piece in bolt.pieces], bolt.comparisons
    ((-2.7, 0.0, 2.7), [0, 4, 4, 1], 3)
    """

    name: str
    source: str
    breaks: tuple[float, ...]
    pieces: tuple[tuple[float, ...], ...]

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {counted(len(self.pieces), 'piece')} of degree {self.degree} or less")

    @property
    def comparisons(self) -> int:
        """Comparisons of encrypted numbers that an evaluation needs: most of its cost."""
        return len(self.breaks)

    @property
    def degree(self) -> int:
        return max(len(piece) - 1 for piece in self.pieces)

    def __call__(self, z: Any) -> Array:
        z = np.asarray(z, dtype=np.float64)
        which = np.searchsorted(self.breaks, z, side="right")
        made = np.empty_like(z)
        for i, piece in enumerate(self.pieces):
            made[which == i] = np.polynomial.polynomial.polyval(z[which == i], piece)
        return made

    def errors(self, activation: Given = "gelu", reach: float = 8.0, points: int = 160_001) -> dict[str, float]:
        """The largest error on [-reach, reach] and where, and away from the outer clamps (`inside`)."""
        ends = [float(np.nextafter(b, b + side)) for b in self.breaks for side in (-1, 1)]
        z = np.union1d(np.linspace(-reach, reach, points), [e for e in ends if abs(e) <= reach])
        gap = np.abs(values(meant(activation)[0], z).numpy() - self(z))
        outer = (self.breaks[0], self.breaks[-1]) if self.breaks else (-reach, reach)
        inside = gap[(z >= outer[0]) & (z < outer[1])] if self.breaks else gap
        return {"maximum": float(gap.max()), "at": float(z[gap.argmax()]), "inside": float(inside.max())}


_ZERO, _LINE = (0.0,), (0.0, 1.0)
_BOLT = (0.001620808531841547, -0.03798164612714154, 0.5410550166368381, -0.18352506127082727, 0.020848611754127593)
_NEXUS = (
    2.25775755e-04,
    3.96880960e-01,
    -6.37042698e-02,
    8.38841647e-03,
    -7.17830961e-04,
    3.49617829e-05,
    -7.26059653e-07,
)


def _bolt(side: int) -> tuple[float, ...]:
    """A polynomial of |z|, plus z / 2, on one side of 0."""
    made = [c * side**k for k, c in enumerate(_BOLT)]
    made[1] += 0.5
    return tuple(made)


def _even(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """A polynomial of z^2, plus z / 2."""
    made = [0.0] * (2 * len(coefficients) - 1)
    made[::2] = coefficients
    made[1] = 0.5
    return tuple(made)


_PUBLISHED = {
    p.name: p
    for p in (
        Published(
            "puma",
            "Dong et al., PUMA, arXiv 2307.12533",
            (-4.0, -1.95, 3.0),
            (
                _ZERO,
                (-0.5054031199708174, -0.42226581151983866, -0.11807612951181953, -0.011034134030615728),
                _even((0.008526321541038084, 0.3603292692789629, -0.037688200365904236, 0.0018067462606141187)),
                _LINE,
            ),
        ),
        Published("bolt", "Pang et al., BOLT, IEEE S&P 2024", (-2.7, 0.0, 2.7), (_ZERO, _bolt(-1), _bolt(1), _LINE)),
        Published("nexus", "Zhang et al., NEXUS, NDSS 2025", (-3.5, 3.5), (_ZERO, _even(_NEXUS), _LINE)),
        Published("mpcformer", "Li et al., MPCFormer, ICLR 2023", (), ((0.5, 0.25, 0.125),)),
        Published("taylor", "paper 003: five terms at 0", (), (tuple(series(meant("gelu")[0], 10).tolist()),)),
    )
}


def published() -> tuple[Published, ...]:
    """Every one of the registry.

    >>> [p.name for p in published()]
    ['puma', 'bolt', 'nexus', 'mpcformer', 'taylor']
    """
    return tuple(_PUBLISHED.values())


def find_published(name: str) -> Published:
    """The one of that name."""
    if name.lower() not in _PUBLISHED:
        raise unknown_name("published approximation", name, _PUBLISHED)
    return _PUBLISHED[name.lower()]
