"""Where a function is sampled, and its values there.

Points of one input are arrays (N,), points of d inputs are arrays (N, d).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gatelab.errors import GatelabError, unknown_name
from gatelab.problems.checks import MAX_POINTS, Array, refuse_masked

Function = Callable[[Array], Array]
SAMPLINGS = ("random", "grid", "gauss")


def sample(sampling: str, interval: tuple[float, float], n: int, d_in: int, rng: np.random.Generator) -> Array:
    """n points of the interval, or of the cube that has it as every side; a grid in a cube has about n.

    >>> sample("grid", (0.0, 1.0), 10, 2, np.random.default_rng(0)).shape
    (9, 2)
    """
    if sampling not in SAMPLINGS:
        raise unknown_name("sampling", str(sampling), SAMPLINGS)
    if sampling == "random":
        return rng.uniform(*interval, n if d_in == 1 else (n, d_in))
    if d_in == 1:
        return np.linspace(*interval, n) if sampling == "grid" else _gauss_nodes(interval, n)
    if sampling == "gauss":
        raise GatelabError(f"sampling 'gauss' is for one input, the function has {d_in}; take 'random' or 'grid'")
    if grid_side(n, d_in) ** d_in > MAX_POINTS:
        raise GatelabError(f"a grid with {d_in} inputs has 2^{d_in} points or more; take sampling 'random'")
    side = np.linspace(*interval, grid_side(n, d_in))
    return np.stack(np.meshgrid(*[side] * d_in, indexing="ij"), axis=-1).reshape(-1, d_in)


def grid_side(n: int, d_in: int) -> int:
    """The points along each side of a product grid of about n points, 2 or more.

    >>> grid_side(10_000, 2), grid_side(10_000, 3), grid_side(5, 4)
    (100, 22, 2)
    """
    return max(2, round(n ** (1 / d_in)))


def _gauss_nodes(interval: tuple[float, float], n: int) -> Array:
    a, b = interval
    panels = 1 if n <= 64 else n // 8
    h = (b - a) / panels
    # Panels of two sizes, spread evenly, so that exactly n nodes come out whatever n is.
    counts = np.diff(np.arange(panels + 1) * n // panels)
    nodes = []
    for count in np.unique(counts):
        local = (np.polynomial.legendre.leggauss(int(count))[0] + 1) / 2
        nodes.append((a + h * (np.flatnonzero(counts == count)[:, None] + local)).ravel())
    return np.clip(np.sort(np.concatenate(nodes)), a, b)


def values(f: Function, x: Array) -> Array:
    """The function's values at x, finite and float64: (N,) for one input, (N,) or (N, d_out) for several."""
    shapes = "an (N,) array to an (N,) array" if x.ndim == 1 else f"an (N, {x.shape[1]}) array to (N,) or (N, d_out)"
    if not callable(f):
        raise GatelabError(f"f is {f!r}; give a function that maps {shapes}")
    try:
        with np.errstate(all="ignore"):
            # A copy, since a user's function may work in place.
            y = f(x.copy())
            refuse_masked(y, "what the function returned")
            y = np.asarray(y)
    except GatelabError:
        raise
    except Exception as error:
        hint = ", or wrap it in numpy.vectorize" if x.ndim == 1 else f"; it maps {shapes}"
        raise GatelabError(
            f"the function failed on an array of {len(x)} points: {type(error).__name__}: {error};"
            f" write it with numpy functions{hint}"
        ) from error
    fits = y.shape == x.shape if x.ndim == 1 else y.shape[:1] == x.shape[:1] and y.ndim <= 2 and y.size > 0
    if not fits or y.dtype.kind not in "biuf":
        raise GatelabError(
            f"the function returned {y.dtype} of shape {y.shape} for an array of shape {x.shape};"
            f" it must return {'one real number for each x' if x.ndim == 1 else 'real numbers, (N,) or (N, d_out)'}"
        )
    y = y.astype(np.float64)
    _require_finite(x, y)
    return y


def _require_finite(x: Array, y: Array) -> None:
    bad = ~np.isfinite(y.reshape(len(y), -1)).all(axis=1)
    if not bad.any():
        return
    where = np.flatnonzero(bad)
    first = where[np.argmin(x[bad])] if x.ndim == 1 else where[0]
    at = f"{x[first]:.6g}" if x.ndim == 1 else f"({', '.join(f'{v:.6g}' for v in x[first])})"
    raise GatelabError(
        f"the function is not finite at {int(bad.sum())} of {len(x)} points, the first of them at"
        f" x = {at} (value {y[first]}); choose an interval where it is defined"
    )
