"""Kernel matrices (`Kernel`), and kernels of product units by formula, expected over LeCun initializations.

The weights of the gate and of the q factors are from N(0, 1/d), those of the output from N(0, 1/m), without biases.
With S = X X^T / d, width m and the duals A = E[act act], C = S * E[act' act'] of the gate (`duals`),

    NNGP = S^q * A           NTK = S^q * [ (m + q d) A + d C ]           all products elementwise

where the terms come from the weights of the output, of the q factors and of the gate (eq. 5 of the paper for m >> d).
Only tiles on and above the diagonal are computed, for all kernels of a list at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import finite_array
from gatelab.display import Compact, Listener, ProgressLike, counted, reporting
from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import product_unit
from gatelab.memory import check_device, check_memory, most_that_fits
from gatelab.ntk.duals import dual


@dataclass(frozen=True, eq=False)
class Kernel(Compact):
    """A kernel matrix of n samples in float64, on the device where it was computed.

    `width` is that of the networks, None for the limit. `error` is the estimated largest error of an entry, relative to
    the geometric mean of the two diagonal entries; 0 for closed forms. `np.asarray(kernel)` is the matrix.
    """

    matrix: Tensor
    label: str
    width: int | None = None
    error: float = 0.0

    def __len__(self) -> int:
        return len(self.matrix)

    def numpy(self) -> np.ndarray:
        """The matrix as a numpy array."""
        return self.matrix.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy:
            return np.array(self.numpy(), dtype=dtype, copy=True)
        return np.asarray(self.numpy(), dtype=dtype)


Kind = Literal["ntk", "nngp"]
Several = list[Any] | tuple[Any, ...]

TILES = {"cpu": 512, "cuda": 4096}  # rows per tile
PROMISED = 1e-10  # larger estimated errors cause a warning
# Cosines this close to 1 are set to 1, so that duplicates stay duplicates; angles below 6e-8 are lost in any case.
ROUNDING = 8 * torch.finfo(torch.float64).eps


@overload
def analytic(
    unit: Several, X: Any, width: int | None = ..., *, kind: Kind = ..., progress: ProgressLike = ...
) -> tuple[Kernel, ...]: ...
@overload
def analytic(
    unit: str | AnyUnit | Callable[..., object],
    X: Any,
    width: int | None = ...,
    *,
    kind: Kind = ...,
    progress: ProgressLike = ...,
) -> Kernel: ...
def analytic(
    unit: Any, X: Any, width: int | None = None, *, kind: Kind = "ntk", progress: ProgressLike = None
) -> Kernel | tuple[Kernel, ...]:
    """The tangent kernel (or NNGP kernel) of a product unit on the rows of X, expected over LeCun initializations.

    Gates with a closed form (relu and its powers, gelu, identity, erf) are exact to rounding; for others `Kernel.error`
    is estimated, with a warning above 1e-10.

    Args:
        unit: an argument of `gl.unit` that is a gate times affine factors; the kernels of a list are computed in one
            pass over X X^T.
        X: (n, d), one row per sample, converted to float64; the kernel is computed on the device of a tensor.
        width: None is the limit of NTK / width for wide networks, which equals the NNGP kernel. (`width=d` is d times
            the kernel in NTK parametrization.)
        kind: "ntk", or "nngp" for the covariance of the outputs at initialization, at any width.
        progress: False for none, or a function of (done, total) that is called after every tile.

    Returns:
        The `Kernel`, n by n in float64; for a list of units, a tuple of kernels.

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> relu, reglu = analytic(["mlp", "glu"], X, width=100)
    >>> relu.matrix.diagonal()                           # (m + d) r^2 / (2 d)
    tensor([ 25.5000, 102.0000, 229.5000], dtype=torch.float64)
    >>> reglu.matrix[0]                                  # (m + 2 d) r^4 / (2 d^2) on the diagonal
    tensor([ 13.0000,   0.0000, 117.0000], dtype=torch.float64)
    >>> analytic("swiglu", X, width=100).error < 1e-12
    True
    """
    several = isinstance(unit, list | tuple)
    units = [formula_unit(u) for u in (unit if several else [unit])]
    if not units:
        raise GatelabError("the list of units is empty; give at least one, such as ['mlp', 'glu']")
    if kind not in ("ntk", "nngp"):
        raise GatelabError(f"kind is {kind!r}; give 'ntk' or 'nngp'")
    if width is not None:
        width = check_width(width)
    x = checked_samples(X)
    n, count = len(x), len(units)
    remedy = f"give {int(most_that_fits(8 * count, x.device) ** 0.5)} rows or fewer"
    check_memory(8 * count * n * n, f"a kernel of {n} rows for {counted(count, 'unit')}", remedy, x.device)
    with reporting(progress, f"kernel of {', '.join(u.name for u in units)}") as report:
        tiling = Tiling(units, x, width if kind == "ntk" else None)
        matrices = tiling.kernels(TILES.get(x.device.type, 4096), report)
    kernels, suffix = [], {"ntk": "", "nngp": " NNGP"}[kind]
    for u, (matrix, error) in zip(units, matrices, strict=True):
        kernels.append(Kernel(matrix, u.name + suffix, width, error))
        if error > PROMISED:
            off = f"the kernel of {u.name!r} is off by up to {error:.1e} of the diagonal's scale"
            why = f"the series of the gate {u.gate.name!r} did not converge for these samples"
            warnings.warn(f"{off}: {why}; scale them down, or use a smooth gate", UserWarning, stacklevel=2)
    return tuple(kernels) if several else kernels[0]


class Tiling:
    """Kernels of several units on the same rows x, (n, d), from the same tiles of X X^T.

    Rows are scaled by powers of two, against overflow of squares; `inverse` is one over their lengths, and `s` is
    |x| / sqrt(d) of the unscaled rows. Without a `width` only A is computed: the limit, which is the NNGP kernel.
    """

    def __init__(self, units: Sequence[Unit], x: Tensor, width: int | None) -> None:
        largest = x.abs().amax(1)
        power = torch.where(largest > 0, largest / torch.frexp(largest).mantissa, torch.ones_like(largest))
        self.x = x / power[:, None]
        norm = torch.linalg.vector_norm(self.x, dim=1)
        self.inverse = torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))
        self.d = x.shape[1]
        self.s = norm * power / self.d**0.5
        self.units, self.width = units, width
        gates = list(dict.fromkeys(u.gate for u in units))
        self.duals = [dual(gate, self.s, slopes=width is not None) for gate in gates]
        self.gates = [gates.index(u.gate) for u in units]

    def kernels(self, size: int, progress: Listener | None = None) -> list[tuple[Tensor, float]]:
        """The matrix of each unit and its error, from tiles of `size` rows."""
        pairs, squares, n = [d.diagonal() for d in self.duals], self.s.square(), len(self.x)
        diagonals = [self.combined(*pairs[g], squares, u.factors) for u, g in zip(self.units, self.gates, strict=True)]
        if not all(torch.isfinite(diagonal).all() for diagonal in diagonals):
            longest = float(self.s.max()) * self.d**0.5
            raise GatelabError(f"samples as long as {longest:.1e} overflow float64; scale them down")
        K = [torch.empty(n, n, dtype=torch.float64, device=self.x.device) for _ in self.units]
        corners = [(i, j) for i in range(0, n, size) for j in range(i, n, size)]
        top = 0.0
        for count, (i, j) in enumerate(corners, 1):
            top = max(top, self.fill(K, slice(i, min(i + size, n)), slice(j, min(j + size, n))))
            if progress:
                progress(count, len(corners))
        for matrix, diagonal in zip(K, diagonals, strict=True):
            matrix.diagonal().copy_(diagonal)
        return [(matrix, self.duals[g].error(top)) for matrix, g in zip(K, self.gates, strict=True)]

    def correlations(self, rows: slice, cols: slice) -> tuple[Tensor, float]:
        """The cosines of every pair, 1 or -1 for parallel rows, and the largest other one; 0 on the diagonal."""
        rho = (self.x[rows] @ self.x[cols].T).mul_(self.inverse[rows, None]).mul_(self.inverse[cols])
        if rows == cols:
            rho.fill_diagonal_(0.0)
        low, high = torch.aminmax(rho)
        top = max(float(high), -float(low))
        if top >= 1 - ROUNDING:
            parallel = rho.abs() >= 1 - ROUNDING
            top = float(rho.abs().masked_fill_(parallel, 0.0).max())
            rho = torch.where(parallel, rho.sign(), rho)
        return rho, top

    def fill(self, K: Sequence[Tensor], I: slice, J: slice) -> float:
        """Fill tile (I, J) of every kernel and its mirror image; return the largest |rho| of pairs not parallel."""
        rho, top = self.correlations(I, J)
        pairs = [d.tile(rho, top, I, J) for d in self.duals]
        S = rho.mul_(self.s[I, None] * self.s[J])  # in the memory of rho
        for matrix, u, g in zip(K, self.units, self.gates, strict=True):
            block = self.combined(*pairs[g], S, u.factors)
            if I == J:
                block.triu_(1)
                torch.add(block, block.T, out=matrix[I, J])
            else:
                matrix[I, J] = block
                matrix[J, I] = block.T
        return top

    def combined(self, A: Tensor, C: Tensor | None, S: Tensor, q: int) -> Tensor:
        """S^q * [(m + q d) A + d C], or S^q * A without a width."""
        total = A.clone()
        if self.width is not None and C is not None:
            total.mul_(self.width + q * self.d).add_(C, alpha=self.d)
        for _ in range(q):
            total.mul_(S)
        return total


def formula_unit(spec: Any) -> Unit:
    """The unit, which must be a gate times factors."""
    u = product_unit(spec, "use gl.ntk.empirical on its network")
    if u.factors and type(u).neuron is not Unit.neuron:
        raise GatelabError(f"{u.name!r} is a function of {u.factors + 1} affine maps; use gl.ntk.empirical")
    return u


def checked_samples(X: Any) -> Tensor:
    """X as a finite (n, d) float64 tensor on its device."""
    if isinstance(X, Tensor):
        if X.is_complex() or X.layout != torch.strided:
            raise GatelabError(f"the samples are {X.dtype} and {X.layout}; give a dense (n, d) array of real numbers")
        x = X.detach()
    else:
        x = torch.from_numpy(finite_array("X", X))
    if x.ndim != 2 or not x.numel():
        raise GatelabError(f"X has the shape {tuple(x.shape)}; give (n, d), as by X.reshape(1, -1)")
    x = x.to(device=check_device(x.device), dtype=torch.float64)
    bad = ~torch.isfinite(x).all(1)
    if bad.any():
        raise GatelabError(f"{int(bad.sum())} rows of X hold NaN or infinite values; drop or fill them")
    return x
