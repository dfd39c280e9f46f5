"""What every kernel is: a symmetric matrix of the samples, what it belongs to, and how far it may be off.

Kernels of product units by formula: expected over LeCun initialisations, tile by tile.

Weights of the gate and of the q factors are from N(0, 1/d), those of the output from N(0, 1/m), and there are no
biases. With S = X X^T / d, width m and the duals A = E[act act], C = S * E[act' act'] of the gate (`duals`),

    NNGP = S^q * A           NTK = S^q * [ (m + q d) A + d C ]           all products elementwise

the three terms being the gradients in the output's weights, in the q factors' and in the gate's. For m >> d the kernel
of order 1 is (X X^T / d) times that of order 0: eq. 5 of the paper.

Only tiles on and above the diagonal are computed; every kernel of a list is made from the same tile of X X^T.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from gatelab.display import ProgressLike, Told, one_line, reporting
from gatelab.errors import GatelabError
from gatelab.feedforward import Activation, AnyUnit, Unit
from gatelab.feedforward import unit as find_unit
from gatelab.feedforward.definition import check_width
from gatelab.memory import check_device, check_memory, most_that_fits
from gatelab.ntk.duals import Dual, dual


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel matrix in float64, n samples by n, on the device where it was made.

    `error` is the largest error of an entry, relative to the geometric mean of the two diagonal entries, where it
    was estimated; 0 for closed forms. `np.asarray(kernel)` is the matrix.
    """

    matrix: Tensor
    label: str
    width: int | None = None
    error: float = 0.0

    def __repr__(self) -> str:
        width = "" if self.width is None else f", width {self.width}"
        return one_line(self, f"{self.label}: {len(self)} samples{width}")

    def __len__(self) -> int:
        return len(self.matrix)

    def numpy(self) -> np.ndarray:
        return self.matrix.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        matrix = self.numpy()
        return np.array(matrix, dtype=dtype, copy=True) if copy else np.asarray(matrix, dtype=dtype)


Kind = Literal["ntk", "nngp"]

TILES = {"cpu": 512, "cuda": 4096}  # rows of a tile: large enough for the product, small enough to weigh little
PROMISED = 1e-10  # an estimated error above this is worth a warning
# The product of two unit vectors is off by a few units of rounding: cosines this near to 1 are 1. Angles below 6e-8
# are lost either way; this way duplicates stay duplicates.
ROUNDING = 8 * torch.finfo(torch.float64).eps


@overload
def analytic(
    unit: list[Any] | tuple[Any, ...],
    X: Any,
    width: int | None = None,
    *,
    kind: Kind = "ntk",
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> tuple[Kernel, ...]: ...
@overload
def analytic(
    unit: str | AnyUnit | Callable[..., object],
    X: Any,
    width: int | None = None,
    *,
    kind: Kind = "ntk",
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Kernel: ...
def analytic(
    unit: Any,
    X: Any,
    width: int | None = None,
    *,
    kind: Kind = "ntk",
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Kernel | tuple[Kernel, ...]:
    """The tangent kernel (or NNGP kernel) of a product unit on the rows of X, expected over LeCun initialisations.

    `unit` is whatever `gl.unit` takes, so long as it is a gate times affine factors; of a list, all kernels are made
    in one pass over X X^T. `width=None` is the limit of NTK / width for wide networks, in which only the output's
    weights count: it equals the NNGP kernel. (`width=d` is d times the kernel in NTK parametrisation, where the
    layers learn at equal rates.) `kind="nngp"` is the covariance of the outputs at initialisation, at any width.

    X is (n, d), one row a sample; integers and lower precisions are computed in float64, which the kernel is in too.
    The device is that of a tensor X, else the CPU, unless `device` says otherwise. Gates with a closed form (relu and
    its powers, gelu, identity, erf) are exact to rounding; for others `Kernel.error` is estimated, and above 1e-10
    there is a warning. `progress` is shown on a terminal and in a notebook unless it is False, or a function of
    (done, total) that is called after every tile.

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> relu, reglu = analytic(["mlp", "glu"], X, width=100)
    >>> relu.matrix.diagonal()                           # (m + d) r^2 / (2 d)
    tensor([ 25.5000, 102.0000, 229.5000], dtype=torch.float64)
    >>> reglu.matrix[0]                                  # (m + 2 d) r^4 / (2 d^2) on the diagonal
    tensor([ 13.0000,   0.0000, 117.0000], dtype=torch.float64)
    >>> analytic("swiglu", X, width=100).error < 1e-12
    True
    """
    given = list(unit) if isinstance(unit, list | tuple) else [unit]
    if not given:
        raise GatelabError("the list of units is empty; give at least one, such as ['mlp', 'glu']")
    units = [_product_unit(u) for u in given]
    if kind not in ("ntk", "nngp"):
        raise GatelabError(f"kind is {kind!r}; give 'ntk' or 'nngp'")
    if width is not None:
        width = check_width(width)
    x = _samples(X, device)
    _check_memory(len(x), len(units), x.device)
    with reporting(progress, f"kernel of {', '.join(u.name for u in units)}") as report:
        kernels = _kernels(units, x, width if kind == "ntk" else None, TILES.get(x.device.type, 4096), report)
    for u, (_, error) in zip(units, kernels, strict=True):
        if error > PROMISED:
            warnings.warn(
                f"the kernel of {u.name!r} is off by up to {error:.1e} of the diagonal's scale: the gate "
                f"{u.gate.name!r} has no closed form here, and its series did not reach {PROMISED:.0e} for these "
                "samples (kinks, steep gates and large inputs do that); scale the samples down, or use a smooth gate",
                UserWarning,
                stacklevel=2,
            )
    suffix = "" if kind == "ntk" else " NNGP"
    made = tuple(
        Kernel(matrix, u.name + suffix, width, error) for u, (matrix, error) in zip(units, kernels, strict=True)
    )
    return made if isinstance(unit, list | tuple) else made[0]


@dataclass(frozen=True)
class _Rows:
    """The samples, each times a power of two, one over their lengths, and s = |x| / sqrt(d) of the samples as given."""

    x: Tensor
    inverse: Tensor
    s: Tensor

    @property
    def d(self) -> int:
        return self.x.shape[1]

    def correlations(self, rows: slice, cols: slice) -> tuple[Tensor, float]:
        """The cosines of every pair, 1 or -1 where parallel, and the largest other; 0 for rows that are zero.

        A tile on the diagonal has zeros there, for the samples with themselves are not its concern.
        """
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


def _kernels(
    units: Sequence[Unit], x: Tensor, width: int | None, tile: int, progress: Told | None = None
) -> list[tuple[Tensor, float]]:
    """The matrix of each unit and its error. Without a width only A is wanted: the limit, which is the NNGP kernel."""
    rows = _rows(x)
    gates: list[Activation] = []
    for u in units:
        if u.gate not in gates:
            gates.append(u.gate)
    duals = [dual(gate, rows.s, slopes=width is not None) for gate in gates]
    of = [gates.index(u.gate) for u in units]
    ends = [
        _combine(*duals[g].diagonal(), rows.s.square(), u.factors, width, rows.d)
        for u, g in zip(units, of, strict=True)
    ]
    if not all(torch.isfinite(end).all() for end in ends):
        raise GatelabError(
            f"samples as long as {float(rows.s.max()) * rows.d**0.5:.1e} overflow float64; scale them down"
        )
    n = len(x)
    K = [torch.empty(n, n, dtype=torch.float64, device=x.device) for _ in units]
    corners = [(i, j) for i in range(0, n, tile) for j in range(i, n, tile)]
    top = 0.0
    for done, (i, j) in enumerate(corners, 1):
        top = max(top, _tile(K, units, of, duals, rows, width, slice(i, min(i + tile, n)), slice(j, min(j + tile, n))))
        if progress:
            progress(done, len(corners))
    for matrix, end in zip(K, ends, strict=True):
        matrix.diagonal().copy_(end)
    return [(matrix, duals[g].error(top)) for matrix, g in zip(K, of, strict=True)]


def _tile(
    K: Sequence[Tensor],
    units: Sequence[Unit],
    of: Sequence[int],
    duals: Sequence[Dual],
    rows: _Rows,
    width: int | None,
    I: slice,
    J: slice,
) -> float:
    """Fill tile (I, J) of every kernel and its mirror image; the largest |rho| of pairs that are not parallel."""
    rho, top = rows.correlations(I, J)
    made = [d.tile(rho, top, I, J) for d in duals]
    # rho has served; from here on the tile is S.
    S = rho.mul_(rows.s[I, None] * rows.s[J]) if any(u.factors for u in units) else rho
    for matrix, u, g in zip(K, units, of, strict=True):
        A, C = made[g]
        block = _combine(A, C, S, u.factors, width, rows.d)
        if I == J:
            block.triu_(1)
            torch.add(block, block.T, out=matrix[I, J])
        else:
            matrix[I, J] = block
            matrix[J, I] = block.T
    return top


def _combine(A: Tensor, C: Tensor | None, S: Tensor, q: int, width: int | None, d: int) -> Tensor:
    """S^q * [(m + q d) A + d C], or S^q * A without a width."""
    if width is None or C is None:
        total = A.clone()
    else:
        total = (A * (width + q * d)).add_(C, alpha=d)
    for _ in range(q):
        total.mul_(S)
    return total


def _check_memory(n: int, kernels: int, device: torch.device) -> None:
    """The matrices; what a tile needs beside them is a few megabytes, whatever n is."""
    each = 8 * n * n
    most = int(most_that_fits(8 * kernels, device) ** 0.5)
    what = f"the kernel of {n} rows" if kernels == 1 else f"a list of {kernels} kernels of {n} rows"
    check_memory(kernels * each, what, f"give {most} rows or fewer", device)


def _product_unit(spec: Any) -> Unit:
    u = find_unit(spec)
    if not isinstance(u, Unit):
        raise GatelabError(
            f"the unit {u.name!r} was given as a class, and has no formula for its kernel; "
            "use gl.ntk.empirical on its network"
        )
    if u.factors and type(u).neuron is not Unit.neuron:
        raise GatelabError(
            f"the unit {u.name!r} is a function of {u.factors + 1} affine maps, not a gate times factors: its kernel "
            "has no formula here; use gl.ntk.empirical on its network, or gl.Unit(activation=..., factors=...)"
        )
    return u


def _samples(X: Any, device: str | torch.device | None) -> Tensor:
    """X as an (n, d) float64 tensor on its device, or a message that says what is wrong with it."""
    if isinstance(X, Tensor):
        x = X.detach()
    else:
        array = np.asarray(X)
        if array.dtype.kind not in "fiub":
            raise GatelabError(f"the samples are of type {array.dtype}; give an (n, d) array of numbers")
        x = torch.from_numpy(array.astype(np.float64))
    if x.is_meta:
        raise GatelabError(
            "the samples are on the device 'meta', which holds no numbers; give them on the CPU or a GPU"
        )
    if x.is_complex() or x.layout != torch.strided:
        raise GatelabError(f"the samples are {x.dtype} and {x.layout}; give a dense (n, d) array of real numbers")
    if x.ndim != 2 or not x.numel():
        way = "; one sample of d values is X.reshape(1, -1), n samples of one value X.reshape(-1, 1)"
        raise GatelabError(
            f"the samples have shape {tuple(x.shape)}; give (n, d), one row a sample"
            + (way if x.ndim == 1 and x.numel() else ", neither n nor d zero" if x.ndim == 2 else "")
        )
    x = x.to(device=x.device if device is None else check_device(device), dtype=torch.float64)
    bad = ~torch.isfinite(x).all(1)
    if bad.any():
        first = int(torch.nonzero(bad)[0, 0])
        raise GatelabError(
            f"{int(bad.sum())} of the {len(x)} samples hold NaN or infinite values, the first is row {first}; "
            "drop or fill them"
        )
    return x


def _rows(x: Tensor) -> _Rows:
    """Scaled exactly, so that no square overflows or vanishes before its row does, and integers stay exact."""
    largest = x.abs().amax(1)
    power = torch.where(largest > 0, largest / torch.frexp(largest).mantissa, torch.ones_like(largest))
    x = x / power[:, None]
    norm = torch.linalg.vector_norm(x, dim=1)
    inverse = torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))
    return _Rows(x, inverse, norm * power / x.shape[1] ** 0.5)
