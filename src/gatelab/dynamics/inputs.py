"""What every function of this room takes: kernels, targets, samples, and which loss is meant."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.memory import check_memory

Array = NDArray[np.float64]
Loss = Literal["sum", "mean"]
SYMMETRIC = 1e-8  # of the largest entry: what rounding may leave


def numbers(value: Any, what: str) -> Array:
    """The value as float64, or a message that says what it is instead."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise GatelabError(f"{what} is of type {array.dtype}; give real numbers")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise GatelabError(f"{what} holds NaN or infinite values; drop or fill them")
    return array


def kernel_matrix(K: Any, what: str = "K") -> Array:
    """A symmetric matrix of numbers, made exactly symmetric."""
    matrix = numbers(K, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise GatelabError(f"{what} has shape {matrix.shape}; give a kernel of n samples, (n, n)")
    # The matrix made symmetric, its eigenvectors, what LAPACK works in, and the covariance in their basis.
    check_memory(7 * matrix.nbytes, f"the dynamics of {len(matrix)} samples", "give a kernel of fewer rows")
    if np.abs(matrix - matrix.T).max() > SYMMETRIC * np.abs(matrix).max():
        raise GatelabError(f"{what} is not symmetric; give a kernel such as gl.ntk.analytic makes")
    return (matrix + matrix.T) / 2


def targets(y: Any, n: int) -> Array:
    """Targets as (n, k), a column an output."""
    array = numbers(y, "y")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n or not array.shape[1]:
        raise GatelabError(f"y has shape {np.shape(y)}; give {n} targets, ({n},) or ({n}, outputs)")
    return array


def samples(X: Any, what: str = "X") -> Array:
    array = numbers(X, what)
    if array.ndim != 2 or not array.size:
        raise GatelabError(f"{what} has shape {array.shape}; give (n, d), one row a sample")
    return array


def loss_scale(loss: str, n: int) -> float:
    """1 for (1/2)|f - y|^2, 1/n for its mean over the samples. A step on the mean is a step of lr/n on the sum."""
    if loss not in ("sum", "mean"):
        raise unknown_name("loss", str(loss), ("sum", "mean"))
    return 1.0 if loss == "sum" else 1.0 / n


def positive(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise GatelabError(f"{what} is {value!r}; give a positive number") from None
    if not 0 < number < float("inf"):
        raise GatelabError(f"{what} is {value!r}; give a positive number")
    return number


def whole(value: Any, what: str, least: int) -> int:
    return whole_number(what, value, least)


def step_list(steps: Any, n: int) -> Array:
    """An integer is all steps up to it, and 0; else the steps themselves, in their order; for losses of n samples."""
    if np.ndim(steps) == 0:
        last = whole(steps, "steps", 0)
        _check_steps(last + 1, n)
        return np.arange(last + 1, dtype=np.float64)
    array = numbers(steps, "steps")
    _check_steps(array.size, n)
    if array.ndim != 1 or not array.size or array.min() < 0:
        raise GatelabError(f"steps is {steps!r}; give a whole number, or a list of steps from 0 on")
    return array


def _check_steps(count: int, n: int) -> None:
    """Five arrays of a number for each step and sample: powers, their copies, and products with targets."""
    check_memory(
        8 * 5 * count * (n + 1), f"a curve of {count} losses of {n} samples", "give fewer steps, or a list of some"
    )


def pair(value: Any, what: str) -> tuple[Any, Any]:
    """One for both units, or one each."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise GatelabError(f"{what} has {len(value)} entries; give one for both units, or two")
        return value[0], value[1]
    return value, value
