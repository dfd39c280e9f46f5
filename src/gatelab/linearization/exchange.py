"""Export and import of polynomials as JSON for encrypted inference, and published approximations of GELU.

PUMA (arXiv 2307.12533) and BOLT (IEEE S&P 2024) are for secret sharing, where comparisons are cheap: pieces with
clamps. NEXUS (NDSS 2025) has one polynomial between two clamps. MPCFormer (ICLR 2023) uses one quadratic and retrains
the network. "taylor" is the five terms of paper 003.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import Compact
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.gates import Activation
from gatelab.files import write_whole
from gatelab.linearization.builders.taylor_series import power_series
from gatelab.linearization.circuits import CircuitForm, Cost
from gatelab.linearization.polynomials import Polynomial, from_unit, gate_and_factors, values
from gatelab.linearization.proofs import bound
from gatelab.plain import from_plain

FORMAT = "gatelab polynomial 1"
OUTSIDE = (1.1, 1.25, 1.5, 2.0)  # distances from the center, in half-widths


@dataclass(frozen=True)
class Export(Compact):
    """A polynomial with its cost and errors.

    Attributes:
        polynomial: the polynomial.
        cost: the cost of an evaluation under encryption.
        measured: the largest error on a grid over the interval.
        bound: a proved bound on the error; None if there is none for the activation.
        outside: pairs of a distance from the center in half-widths, and the largest error there.
    """

    polynomial: Polynomial
    cost: Cost
    measured: float
    bound: float | None
    outside: tuple[tuple[float, float], ...]

    def document(self) -> dict[str, Any]:
        """A dict for JSON."""
        p = self.polynomial
        return {
            "format": FORMAT,
            "activation": p.activation,
            "method": p.method,
            "degree": p.degree,
            "interval": list(p.interval),
            "powers": list(p.coefficients),
            "chebyshev": list(p.chebyshev),
            "error": {"measured": self.measured, "bound": self.bound},
            "cost": asdict(self.cost),
            "outside": [{"half_widths": k, "error": e} for k, e in self.outside],
        }

    def save(self, path: str | Path) -> Path:
        """Write a JSON file for `gatelab.load`."""
        return write_whole(path, json.dumps(self.document(), indent=2, allow_nan=False) + "\n")


def export(polynomial: Polynomial, activation: Activation | None = None) -> Export:
    """The polynomial with its cost and errors.

    Args:
        polynomial: the polynomial.
        activation: the function that it approximates; by default the one named in the polynomial.

    Returns:
        An `Export`.

    >>> from gatelab.linearization import linearize
    >>> figures = export(linearize("gelu", "minimax", interval=5.0).polynomial)
    >>> figures.cost.levels, f"{figures.measured:.3g} <= {figures.bound:.3g}"
    (4, '0.0257 <= 0.0257')
    >>> [f"{k}: {e:.2g}" for k, e in figures.outside][-1]
    '2.0: 9.9e+02'
    """
    gate = activation or gate_and_factors(polynomial.activation)[0]
    try:
        proved = bound(polynomial, gate)
        measured, value = max(proved.measured, polynomial.error(gate)), proved.value
    except GatelabError:
        measured, value = polynomial.error(gate), None
    outside = []
    for k in OUTSIDE:
        ends = from_unit(np.array([-k, k]), polynomial.interval)
        outside.append((k, float(np.abs(values(gate, ends).numpy() - polynomial(ends)).max())))
    return Export(polynomial, CircuitForm.of(polynomial).cost, measured, value, tuple(outside))


def read_polynomial(document: dict[str, Any], path: Path) -> Polynomial:
    """The polynomial of a file that `Export.save` wrote, bit for bit; its two bases must agree."""
    parts = {**document, "coefficients": document.get("powers")}
    polynomial = from_plain(Polynomial, parts, f"the polynomial in {path}")
    powers = polynomial.coefficients
    other = Polynomial.from_chebyshev(polynomial.chebyshev, polynomial.interval).coefficients
    reach = max(map(abs, polynomial.interval))
    gap = sum(abs(a - b) * reach**k for k, (a, b) in enumerate(zip_longest(powers, other, fillvalue=math.nan)))
    size = sum(abs(a) * reach**k for k, a in enumerate(powers))
    if not gap <= 1e-9 * max(size, 1e-300):
        raise GatelabError(f"{path} is damaged: its two lists of coefficients disagree by {gap:.2g}; export it again")
    return polynomial


@dataclass(frozen=True)
class Published(Compact):
    """A published approximation by pieces: piece i, in powers of z, is used from breaks[i - 1] to breaks[i].

    Attributes:
        name: its name in gatelab.
        source: the publication.
        breaks: the points where pieces meet.
        pieces: their coefficients of 1, z, z^2, ...

    >>> bolt = find_published("bolt")
    >>> bolt.breaks, [len(piece) - 1 for piece in bolt.pieces], bolt.comparisons
    ((-2.7, 0.0, 2.7), [0, 4, 4, 1], 3)
    """

    name: str
    source: str
    breaks: tuple[float, ...]
    pieces: tuple[tuple[float, ...], ...]

    @property
    def comparisons(self) -> int:
        """The number of comparisons of encrypted numbers, most of the cost."""
        return len(self.breaks)

    @property
    def degree(self) -> int:
        """The highest degree of the pieces."""
        return max(len(piece) - 1 for piece in self.pieces)

    def __call__(self, z: Any) -> Any:
        """The values at z: a tensor for a tensor, otherwise an array."""
        at = z if isinstance(z, Tensor) else torch.from_numpy(np.array(z, dtype=np.float64, order="C"))
        which = torch.bucketize(at, torch.tensor(self.breaks, dtype=at.dtype, device=at.device), right=True)
        outputs = torch.zeros_like(at)
        for i, piece in enumerate(self.pieces):
            value = torch.full_like(at, piece[-1])
            for c in piece[-2::-1]:
                value = value * at + c
            outputs = torch.where(which == i, value, outputs)
        return outputs if at is z else outputs.numpy()


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
    return tuple(c * side**k + 0.5 * (k == 1) for k, c in enumerate(_BOLT))


def _even(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """A polynomial of z^2, plus z / 2."""
    powers = [0.0] * (2 * len(coefficients) - 1)
    powers[::2] = coefficients
    powers[1] = 0.5
    return tuple(powers)


_APPROXIMATIONS = (
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
    Published(
        "taylor", "paper 003: five terms at 0", (), (tuple(power_series(gate_and_factors("gelu")[0], 10).tolist()),)
    ),
)


PUBLISHED = {approximation.name: approximation for approximation in _APPROXIMATIONS}  # of GELU


def find_published(name: str) -> Published:
    """A published approximation by its name.

    Args:
        name: such as "bolt".

    Returns:
        A `Published`.
    """
    if name.lower() not in PUBLISHED:
        raise unknown_name("published approximation", name, PUBLISHED)
    return PUBLISHED[name.lower()]
