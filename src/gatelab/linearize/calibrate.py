"""The interval that a polynomial must serve, from pre-activations that were seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linearize.polynomials import Array, Interval


def numbers(data: Any) -> Array:
    """Pre-activations as one row of float64, checked."""
    if isinstance(data, Tensor):
        data = data.detach().cpu().numpy()
    try:
        z = np.asarray(data, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise GatelabError(f"the data are {type(data).__name__}; give an array of pre-activations") from None
    if not z.size:
        raise GatelabError("the data are empty; give pre-activations, such as W @ x + b of a layer")
    if not np.isfinite(z).all():
        raise GatelabError(f"entry {int(np.argmin(np.isfinite(z)))} of the data is not finite; leave such rows out")
    return z


def calibrate(data: Any, margin: float = 0.1, symmetric: bool = False) -> Interval:
    """The range of the data, widened by `margin` of its half-width on both sides; about 0 if `symmetric`.

    >>> calibrate([-1.0, 3.0], margin=0.5), calibrate([-1.0, 3.0], margin=0.0, symmetric=True)
    ((-2.0, 4.0), (-3.0, 3.0))
    """
    z = numbers(data)
    if not np.isfinite(margin) or margin < 0:
        raise GatelabError(f"the margin is {margin!r}; give 0 or more, a part of the half-width such as 0.1")
    low, high = float(z.min()), float(z.max())
    if symmetric:
        high = max(-low, high)
        low = -high
    if low == high:
        raise GatelabError(f"all pre-activations are {low}; give some that differ")
    more = margin * (high - low) / 2
    return low - more, high + more
