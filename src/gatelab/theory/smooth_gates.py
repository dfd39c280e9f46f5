"""Singularities of a target, and how fast networks of sigmoid and silu gates approach it.

The predicted error is exp(-max_k (N - c k) / cap(E, F_k)), a conjecture (docs/derivations/smooth-gates.md): n neurons
with q factors are rational functions with N = (3 + q) n + 1 free numbers, and can remove the k nearest poles at a cost
of c = 4 numbers (q = 1) or 6 (q = 0) each. cap is the capacity of the condenser of the interval E and the vertical rays
F_k over the lowest singularities that are left, the third rung of each removed pole's ladder among them. No neuron has
a real pole: with one at z the rate is that of polynomials, Green's function of the interval.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import AAA

from gatelab.arrays import AnyArray as Array
from gatelab.arrays import check_interval
from gatelab.errors import GatelabError

Decline = Literal["exponential", "root-exponential", "faster"]
# Points of the function; the loose and the tight tolerance of AAA and the most points that it may need.
_POINTS, _TOLERANCES, _TERMS = 600, (1e-9, 1e-13), 80
# Poles that both tolerances give, to this share of their distance; others nearer than this belong to a kink or a branch
# point on the interval; farther ones are not reliable; smaller residues are rounding.
_SAME, _TOUCHING, _FAR, _ROUNDING = 1e-2, 0.05, 4.0, 1e-12
# Pieces of the interval and of each ray, and how high rays are in half lengths of the interval.
_PIECES, _HIGH = 80, 1e4


@dataclass(frozen=True)
class Singularities:
    """Poles of a function in the upper half plane, the nearest first, their residues, and the decline that they imply.

    `decline` is "exponential" with poles, "root-exponential" with a kink or branch point on the interval, and "faster"
    than exponential for a function that has no singularity nearby.
    """

    poles: tuple[complex, ...]
    residues: tuple[complex, ...]
    decline: Decline


def green(z: NDArray[np.complex128] | complex, interval: tuple[float, float]) -> Array:
    """Green's function of the interval at complex z: the rate at which polynomials converge up to z.

    Args:
        z: one or more complex numbers.
        interval: (a, b).

    Returns:
        The values, zero on the interval.

    >>> float(green(0.2j, (-1.0, 1.0)).round(6)) == round(float(np.log(0.2 + 1.04**0.5)), 6)
    True
    """
    low, high = check_interval(interval)
    w = (2 * np.asarray(z, complex) - low - high) / (high - low)
    return np.abs(np.log(np.abs(w + np.sqrt(w - 1) * np.sqrt(w + 1))))


def singularities(f: Callable[[Array], Array], interval: tuple[float, float]) -> Singularities:
    """The poles of a function, by the AAA algorithm on values in the interval.

    Poles that depend on the tolerance are not the function's. Branch points near the interval are not recognized.

    Args:
        f: a function from an (N,) array to an (N,) array, in double precision.
        interval: (a, b).

    Returns:
        The poles and the form of decline.

    >>> found = singularities(lambda x: 1 / (1 + 25 * x**2), (-1.0, 1.0))
    >>> found.decline, [round(abs(pole), 6) for pole in found.poles]
    ('exponential', [0.2])
    """
    low, high = check_interval(interval)
    x = (low + high) / 2 - (high - low) / 2 * np.cos((np.arange(_POINTS) + 0.5) * np.pi / _POINTS)
    y = np.asarray(f(x), float)
    (rough, _), (poles, residues) = (_poles(x, y, tolerance) for tolerance in _TOLERANCES)
    distance = np.abs(poles[:, None] - rough)
    room = _SAME * np.minimum(np.abs(poles.imag) + np.maximum(np.abs(poles.real) - 1, 0), 1.0)
    same, near = distance < room[:, None], green(rough, interval)
    if (near < _TOUCHING).any() and not same[:, np.argmin(near)].any():
        return Singularities((), (), "root-exponential")
    gamma = green(poles, interval)
    chosen = np.flatnonzero(same.any(axis=1) & (poles.imag >= 0) & (gamma < _FAR))
    if not len(chosen):
        return Singularities((), (), "faster")
    order = chosen[np.argsort(gamma[chosen])]
    return Singularities(tuple(poles[order].tolist()), tuple(residues[order].tolist()), "exponential")


def _poles(x: Array, y: Array, tolerance: float) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Poles of the rational approximation with their residues, if these are more than rounding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rational = AAA(x, y, rtol=tolerance, max_terms=_TERMS)
        poles, residues = rational.poles(), rational.residues()
    real = np.abs(residues) > _ROUNDING * np.abs(y).max()
    return poles[real], residues[real]


def smooth_error(poles: tuple[complex, ...], interval: tuple[float, float], factors: int, widths: Array) -> Array:
    """The conjectured error of n neurons with a sigmoid or silu gate, relative to the size of the target.

    Args:
        poles: of the target in the upper half plane.
        interval: (a, b).
        factors: 0 or 1.
        widths: numbers of neurons.

    Returns:
        An error for each width.

    >>> [f"{error:.0e}" for error in smooth_error((0.2j,), (-1.0, 1.0), 1, np.array([2, 4, 6]))]
    ['6e-04', '9e-08', '3e-12']
    """
    if not poles or factors not in (0, 1):
        raise GatelabError(f"{len(poles)} poles and {factors} factors have no predicted error; give poles and 0 or 1")
    low, high = interval
    cost, numbers = (6, 4)[factors], (3 + factors) * np.asarray(widths, float) + 1
    # In the coordinate of [-1, 1]; a rung of a ladder on another singularity is one with it.
    left = [complex(p) for p in (2 * np.array(poles) - low - high) / (high - low)]
    best, most = np.zeros_like(numbers), int(numbers.max()) // cost + 1
    for k in range(most):
        best = np.maximum(best, column_rate(np.array(left)) * (numbers - cost * k))
        nearest = min(left, key=lambda z: float(green(z, (-1.0, 1.0))))
        if nearest.imag == 0:  # a real pole stays
            break
        rungs = [complex(nearest.real, nearest.imag * r) for r in range(3, 2 * most + 4, 2)]
        left = [z for z in [*left, *rungs] if abs(z - nearest) > _SAME * nearest.imag]
    return np.exp(-best)


def column_rate(singularities: NDArray[np.complex128]) -> float:
    """1 / cap of the condenser of [-1, 1] and the vertical rays over singularities, or γ of a real one if less."""
    real = singularities.imag == 0
    rates = list(green(singularities[real], (-1.0, 1.0)))
    columns: dict[float, float] = {}
    for z in sorted(singularities[~real], key=lambda z: -z.imag):
        columns[round(z.real, 3)] = z.imag
    if columns:
        heights = np.expm1(np.linspace(0, 1, _PIECES + 1) ** 2 * np.log(_HIGH))
        rays = [x + 1j * (h + heights) for x, h in columns.items()]
        arcs = [-np.cos(np.linspace(0, np.pi, _PIECES + 1)) + 0j, *rays, *(ray.conj() for ray in rays)]
        middles = np.concatenate([(arc[1:] + arc[:-1]) / 2 for arc in arcs])
        lengths = np.concatenate([np.abs(np.diff(arc)) for arc in arcs])
        potential = -np.log(np.abs(middles[:, None] - middles) + np.diag(lengths / (2 * np.e)))
        plates = np.zeros((len(middles), 2))
        plates[:_PIECES, 0] = plates[_PIECES:, 1] = 1
        system = np.block([[potential, -plates], [plates.T, np.zeros((2, 2))]])
        charged = np.linalg.solve(system, np.append(np.zeros(len(middles)), (1.0, -1.0)))
        rates.append(charged[-2] - charged[-1])
    return float(min(rates))
