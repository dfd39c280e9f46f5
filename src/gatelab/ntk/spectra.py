"""The spectrum of a kernel: its ends with bounds, its condition number, its density.

The ends are computed by Lanczos and Cholesky (`gatelab.linalg.eigen`) with certified intervals, including rounding and
the kernel's own error.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from gatelab.arrays import Array, refuse_masked
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, whole_number
from gatelab.interrupts import apart
from gatelab.linalg.eigen import Apply, Extremes, extremes, operator_extremes, quadrature, start_vector
from gatelab.memory import check_memory
from gatelab.ntk.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bounds = tuple[float, float]
Status = Literal["resolved", "unresolved", "indefinite"]
# Asymmetry up to this number of units in the last place is rounding of long sums.
_ROUNDING = 4096
_BLOCK = 512
_GLANCE = 2000  # rows of the largest matrix whose density a notebook shows by default


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The ends of the spectrum of a kernel of n samples, with certified bounds.

    `status` is "resolved" if lambda_min is certainly positive, "indefinite" if it is certainly negative, otherwise
    "unresolved". `condition` is lambda_max / lambda_min, and inf unless resolved; `condition_bounds` has a lower bound
    in every case. `eigenvalues` are all of them, ascending, with `full=True`.
    """

    n: int
    lambda_max: float
    lambda_min: float
    condition: float
    lambda_max_bounds: Bounds
    lambda_min_bounds: Bounds
    condition_bounds: Bounds
    status: Status
    label: str = ""
    notes: tuple[str, ...] = ()
    eigenvalues: Array | None = field(default=None, repr=False)
    _apply: Apply = field(default=torch.clone, repr=False)
    _device: torch.device | str = field(default="cpu", repr=False)

    def __repr__(self) -> str:
        name = shorten(self.label or "kernel")
        return one_line(self, f"{name}: {self.n} eigenvalues, {self.status}, condition number {self.condition:.4g}")

    def density(
        self, points: int | ArrayLike = 400, *, log: bool = False, probes: int = 16, steps: int = 80, seed: int = 0
    ) -> tuple[Array, Array]:
        """Eigenvalues x and the spectral density there, which integrates to one (over log10 x with `log`).

        It is smoothed from the full spectrum if it is known, otherwise from a stochastic Lanczos quadrature.

        Args:
            points: the number of points, or the points.
            log: whether to return the density over log10 x.
            probes: random directions of the quadrature.
            steps: steps of Lanczos per direction.
            seed: seed of the directions.

        Returns:
            The points and the density there.
        """
        if self.eigenvalues is not None:
            nodes, weights = self.eigenvalues, np.full(self.n, 1 / self.n)
        else:
            nodes, weights = quadrature(self._apply, self.n, probes, steps, seed, self._device)
        if log:
            positive = nodes > 0
            nodes, weights = np.log10(nodes[positive]), weights[positive] / max(weights[positive].sum(), 1e-300)
            if not len(nodes):
                raise GatelabError("no eigenvalue is positive; draw the density with log=False")
        width = bandwidth(nodes, weights, self.n)
        if np.ndim(points) == 0:
            points = whole_number("points", points, 1)
            x = np.linspace(nodes.min() - 4 * width, nodes.max() + 4 * width, points)
        else:
            x = np.asarray(points, float)
            if log:
                if not bool((x > 0).all()):
                    raise GatelabError("a logarithmic density was asked for at points <= 0; give positive points")
                x = np.log10(x)
        away = (x[:, None] - nodes) / width
        values = (np.exp(-0.5 * away * away) * weights).sum(-1) / (width * math.sqrt(2 * math.pi))
        return (10.0**x if log else x), values

    def plot(
        self, path: str | Path | None = None, *, ax: Any = None, log: bool | None = None, **density: Any
    ) -> Figure:
        """Plot the density, by default on a logarithmic axis if the condition number is above 30.

        Saved to `path` if given, and drawn into axes `ax`; `density` are options of that method.
        """
        from gatelab.plotting import saved
        from gatelab.plotting.kernels import PlotLine, density_figure

        if log is None:
            log = self.status == "resolved" and self.condition > 30
        x, values = self.density(log=log, **density)
        note = f"condition {self.condition:.4g}" if self.status == "resolved" else self.status
        ends = (self.lambda_min, self.lambda_max)
        curve = PlotLine(self.label or "kernel", x, values, (0 * values, values), ends, note)
        return saved(density_figure([curve], f"{self.n} eigenvalues", log=log, ax=ax), path)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = []
        for name in ("lambda_max", "lambda_min", "condition"):
            low, high = getattr(self, f"{name}_bounds")
            rows.append((name, f"{getattr(self, name):.6g}", f"[{low:.6g}, {high:.6g}]"))
        rows += [("status", self.status, "")] + [("note", note, "") for note in self.notes]
        # Products of an operator or of a large matrix may be slow.
        known = self.eigenvalues is not None or (isinstance(self._apply, partial) and self.n <= _GLANCE)
        figure = self.plot(probes=4, steps=40) if known else None
        heading = f"{self.label or 'kernel'}: {self.n} eigenvalues"
        return html(heading, rows, columns=("", "value", "certain"), figure=figure)


def spectrum(K: Kernel | Tensor | ArrayLike | LinearOperator, full: bool = False) -> Spectrum:
    """The ends of the spectrum of a symmetric matrix or kernel, with bounds, and its condition number.

    Args:
        K: a kernel or a matrix, (n, n). A scipy `LinearOperator` is assumed to be positive semidefinite; its bounds
            come from products only: they are wider and fail for one start vector in a million.
        full: compute all eigenvalues too.

    Returns:
        The `Spectrum`; a warning is issued if lambda_min is not distinguishable from zero.

    >>> s = spectrum(np.diag([1.0, 2.0, 8.0]))
    >>> round(s.condition, 6), s.status
    (8.0, 'resolved')
    >>> s.condition_bounds[0] < 8 < s.condition_bounds[1]
    True
    """
    if isinstance(K, LinearOperator):
        return operator_spectrum(K, full)
    label, error, notes = "", 0.0, []
    if isinstance(K, Kernel):
        K, label, error = K.matrix, K.label, K.error
    matrix = symmetric_matrix(K)
    if error:
        notes.append(f"the kernel's own error of {error:.1g} is part of the bounds")
    ends = extremes(matrix, entry_error=error)
    values = apart(torch.linalg.eigvalsh, matrix).cpu().numpy() if full else None
    plain = from_ends(ends, len(matrix), notes)
    return replace(plain, label=label, eigenvalues=values, _apply=partial(torch.mv, matrix), _device=matrix.device)


def symmetric_matrix(K: Kernel | Tensor | ArrayLike, what: str = "the matrix") -> Tensor:
    """A square, finite, symmetric matrix in float64; asymmetry by rounding is removed."""
    if not isinstance(K, Tensor):
        refuse_masked(K, what)
        try:
            K = torch.as_tensor(np.asarray(K))
        except (TypeError, ValueError) as problem:
            raise GatelabError(f"a kernel is a matrix of real numbers, not {type(K).__name__}: {problem}") from None
    matrix = K.detach()
    if matrix.is_complex() or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise GatelabError(f"{what} is {matrix.dtype} of shape {tuple(matrix.shape)}; a kernel is real, n by n, n >= 1")
    # A scaled or factorized copy, and a conversion to float64.
    copies = 1 if matrix.dtype == torch.float64 else 2
    check_memory([matrix.shape] * copies, f"the spectrum of {len(matrix)} rows", "give fewer rows", matrix.device)
    eps = torch.finfo(matrix.dtype).eps if matrix.is_floating_point() else 0.0
    matrix = matrix.to(torch.float64)
    blocks = [slice(i, i + _BLOCK) for i in range(0, len(matrix), _BLOCK)]
    size = float(torch.stack([matrix[b].abs().max() for b in blocks]).max())  # NaN where there is one
    if not math.isfinite(size):
        where = tuple((~torch.isfinite(matrix)).nonzero()[0].tolist())
        raise GatelabError(f"entry {where} of {what} is {float(matrix[where])}; all must be finite")
    if size and not 1e-100 < size < 1e100:
        raise GatelabError(f"the largest entry of {what} is {size:.3g}; scale it, so that squares are in float64")
    skew = max(
        float((matrix[a, b] - matrix[b, a].mT).abs().max()) for i, a in enumerate(blocks) for b in blocks[: i + 1]
    )
    if skew > _ROUNDING * eps * size:
        raise GatelabError(f"{what} is not symmetric: entries differ by {skew:.3g}; give (K + K.T) / 2")
    if skew == 0:
        return matrix
    return (matrix + matrix.mT) / 2


def operator_spectrum(K: LinearOperator, full: bool) -> Spectrum:
    """The spectrum of an operator; `full` forms the matrix."""
    n = K.shape[0]
    if K.shape != (n, n) or n < 1:
        raise GatelabError(f"the operator has shape {tuple(K.shape)}; a kernel is n by n, n >= 1")
    dtype = np.dtype(K.dtype)
    if dtype.kind not in "fiub":
        raise GatelabError(f"the operator has dtype {K.dtype}; a kernel is real")

    def apply(v: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(K.matvec(v.cpu().numpy()), dtype=np.float64).ravel())

    x, y = start_vector(n, 100), start_vector(n, 101)
    Kx, Ky = apply(x), apply(y)
    if not bool(torch.isfinite(Kx).all()):
        raise GatelabError("the operator's products are not finite")
    eps = float(np.finfo(dtype.name).eps) if dtype.kind == "f" else 2.0**-52
    if abs(float(y @ Kx - x @ Ky)) > _ROUNDING * eps * float(Kx.norm() + Ky.norm()):
        raise GatelabError("the operator is not symmetric: x.Ky and y.Kx differ")
    if full:
        check_memory(3 * 8 * n * n, f"all eigenvalues of {n} rows", "leave full=True out, or give fewer rows")
        return spectrum(torch.stack([apply(row) for row in torch.eye(n, dtype=torch.float64)]), full=True)
    ends = operator_extremes(apply, n, unit=eps / 2)
    note = "an operator: positive semidefinite by assumption, bounds fail for one start vector in a million"
    return replace(from_ends(ends, n, [] if ends.proved else [note]), _apply=apply)


def from_ends(ends: Extremes, n: int, notes: Sequence[str]) -> Spectrum:
    """The result, with a warning if lambda_min is not resolved."""
    low, high = ends.lambda_min, ends.lambda_max
    status: Status = "unresolved"
    condition, bounds, message = math.inf, (1.0, math.inf), ""
    if low.lower > 0:
        status, condition, bounds = "resolved", high.value / low.value, (high.lower / low.upper, high.upper / low.lower)
    elif low.upper < 0:
        status, bounds = "indefinite", (math.inf, math.inf)
        message = f"the matrix is not positive semidefinite: lambda_min is {low.value:.3g}, at most {low.upper:.3g}"
    else:
        if low.upper > 0:
            bounds = (max(1.0, high.lower / low.upper), math.inf)
        where = f"it lies in [{low.lower:.3g}, {low.upper:.3g}], the condition number is at least {bounds[0]:.3g}"
        message = f"lambda_min is not resolved by products alone: {where}; form the matrix, or give full=True"
        if ends.proved:
            remedy = "drop duplicate and zero rows, or add a multiple of the identity"
            message = f"lambda_min is not distinguishable from zero in float64: {where}; {remedy}"
    if message:
        notes = [*notes, message]
        warnings.warn(message, UserWarning, stacklevel=3)
    top, bottom = (high.lower, high.upper), (low.lower, low.upper)
    return Spectrum(n, high.value, low.value, condition, top, bottom, bounds, status=status, notes=tuple(notes))


def bandwidth(nodes: Array, weights: Array, n: int) -> float:
    """Silverman's width for n values, from the smaller of standard deviation and quartile range."""
    order = np.argsort(nodes)
    sums = weights[order].cumsum()
    quartiles = nodes[order][np.searchsorted(sums, (0.25 * sums[-1], 0.75 * sums[-1]))]
    mean = float((weights * nodes).sum())
    deviation = math.sqrt(max(float((weights * (nodes - mean) ** 2).sum()), 0.0))
    spread = min([s for s in (deviation, float(quartiles[1] - quartiles[0]) / 1.34) if s > 0], default=0.0)
    return 0.9 * spread * n**-0.2 or 1e-3 * (abs(mean) or 1.0)
