"""How well a unit can be linearised: Phi(w).Psi(x) of m features, and a polynomial of degree 8 of its gate.

Features: w ~ N(0, I / d) and x ~ N(0, I), d the number of inputs and one for the bias, which gives pre-activations of
deviation near 1. A plain unit gets the best maps of m features (`optimal`); a unit of q factors those of its gate
times the factors, act(g.x) (u.x) = (Phi(g) (x) u) . (Psi(x) (x) x), of which m // d^q are left for the gate. Errors are
over the deviation of what is approximated: 1 is what the mean alone leaves.

Polynomial: the largest error of the minimax polynomial over the interval that pre-activations of LeCun's weights reach
on the given rows, widened by a tenth and symmetric; over the deviation of the gate there. The factors of a gated unit
are polynomials already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.errors import GatelabError
from gatelab.linearize import calibrate, linearize
from gatelab.units import Activation, AnyUnit, Unit

Array = NDArray[np.float64]
DEGREE = 8
NEURONS = 256
PAIRS = 2**14
_MOST = 2**22  # numbers of features for all pairs at once: beyond it the maps are not measured


@dataclass(frozen=True)
class Linearity:
    """`error` of m features with its interval and `minimax`, both over the deviation; `features` is the m used.

    NaN where the unit is no gate times factors. `interval` is that of the polynomial, `degree` its degree.
    """

    error: float
    low: float
    high: float
    features: int
    minimax: float
    interval: tuple[float, float]
    degree: int = DEGREE


UNKNOWN = Linearity(np.nan, np.nan, np.nan, 0, np.nan, (np.nan, np.nan))


def check_features(m: int) -> int:
    if isinstance(m, bool) or not hasattr(m, "__index__") or int(m) < 1:
        raise GatelabError(f"features is {m!r}; give how many there may be, 1 or more")
    return int(m)


def linearity(unit: AnyUnit, x: Array, m: int, seed: int = 0) -> Linearity:
    """Errors of a unit on rows (n, d) that are standardised and end in 1.

    >>> rows = np.hstack([np.random.default_rng(0).standard_normal((100, 2)), np.ones((100, 1))])
    >>> found = linearity(Unit("gelu"), rows, 16)
    >>> found.features, 0 < found.low < found.error < found.high < 0.1, 0 < found.minimax < 0.1
    (16, True, True)
    """
    m = check_features(m)
    gate = _gate(unit)
    if gate is None or not isinstance(unit, Unit):
        return UNKNOWN
    worst, interval = _minimax(gate, x, seed)
    return Linearity(*_features(gate, unit.factors, x.shape[1], m, seed), worst, interval)


def _gate(unit: AnyUnit) -> Activation | None:
    """The gate, if the unit is a gate times factors: a function of several maps is not, or does not say."""
    if not isinstance(unit, Unit) or (unit.factors and type(unit) is not Unit):
        return None
    return unit.gate


def _features(gate: Activation, factors: int, d: int, m: int, seed: int) -> tuple[float, float, float, int]:
    share = m // d**factors
    if not share:
        return 1.0, 1.0, 1.0, 0  # not one feature for the gate: nothing but the mean, which is 0, is left
    # Neurons of many features are measured on fewer pairs; the interval says so.
    pairs = max(256, min(PAIRS, _MOST // m))
    if factors:
        made = linearize(Unit(gate, factors), "optimal", d=d, m=share, w_scale=d**-0.5)
    else:
        made = linearize(gate, "optimal", d=d, m=share, w_scale=d**-0.5)
    found = made.error("gaussian", w_scale=d**-0.5, samples=pairs, seed=seed)
    spread = _deviation(gate, factors, d, seed)
    return found.rmse / spread, found.low / spread, found.high / spread, found.m


def _deviation(gate: Activation, factors: int, d: int, seed: int) -> float:
    """That of act(g.x) (u.x) ... over w and x: given x, every w.x is normal with the deviation |x| / sqrt(d)."""
    draw = torch.Generator().manual_seed(seed)
    length = torch.randn(PAIRS, d, generator=draw, dtype=torch.float64).norm(dim=1) / d**0.5
    value = gate(length * torch.randn(PAIRS, generator=draw, dtype=torch.float64))
    for _ in range(factors):
        value = value * length * torch.randn(PAIRS, generator=draw, dtype=torch.float64)
    return float(value.std())


def _minimax(gate: Activation, x: Array, seed: int) -> tuple[float, tuple[float, float]]:
    draw = torch.Generator().manual_seed(seed)
    d = x.shape[1]
    z = torch.from_numpy(x) @ torch.randn(d, NEURONS, generator=draw, dtype=torch.float64) / d**0.5
    interval = calibrate(z, symmetric=True)
    made = linearize(gate, "minimax", degree=DEGREE, interval=interval)
    assert made.polynomial is not None
    try:
        largest = made.bound().value
    except GatelabError:
        largest = made.polynomial.error(gate)  # of a gate of one's own nothing is known beyond its values
    return largest / float(gate(z).std()), interval
