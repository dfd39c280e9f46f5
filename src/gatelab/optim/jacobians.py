"""Residuals of any closure with their derivatives by the parameters of a module, by autograd alone.

A block of residuals with weight w counts w times its mean square. `Graph` has products with the Jacobian and its
transpose; J t is the derivative of J^T v by v. `row_jacobian` applies where row n of each block depends on row n of the
inputs alone, and needs one backward pass per column of a block: `Tape` records the inputs a of every linear map and of
its transpose, adds a zero to the output, and the derivative d by this zero gives d a^T, a row's derivative by the
weights. Whether rows are independent is tested by a product with the true Jacobian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.errors import GatelabError
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import gram

Residuals = Callable[[], Tensor | Sequence[Tensor]]
# Bytes of the vectors that one batched backward pass starts with; the pass itself needs a multiple.
_CHUNK_BYTES, _MOST_AT_ONCE = 2**24, 256
# Rows and columns of the products of which a Gram matrix is the sum.
_ROWS, _COLUMNS = 1024, 384


# Rows of a Jacobian by the first column of each parameter and the factors of its columns.
_Factors = dict[int, tuple[Tensor, Tensor]]
_Rows = tuple[slice, _Factors]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks that a closure returned, and their factors."""

    tensors: tuple[Tensor, ...]
    factors: tuple[float, ...]

    @property
    def flat(self) -> Tensor:
        """All residuals as one vector, whose sum of squares is the loss."""
        return torch.cat([f * t.reshape(-1) for f, t in zip(self.factors, self.tensors, strict=True)])


def blocks(residuals: Residuals, weights: Sequence[float] | None) -> Blocks:
    """Call the closure and check what it returns."""
    result: Any = residuals()
    tensors = (result,)
    if isinstance(result, tuple | list):
        tensors = tuple(result)
    kinds = [t for t in tensors if not (isinstance(t, Tensor) and t.is_floating_point())]
    if kinds or not tensors:
        name = type(result).__name__
        raise GatelabError(f"residuals() is of type {name}; give a floating-point tensor or a tuple of them")
    if not sum(t.numel() for t in tensors):
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        raise GatelabError(f"residuals() has shape {shapes}, no elements; give at least one residual")
    if weights is None:
        weights = [1.0] * len(tensors)
    if len(weights) != len(tensors):
        raise GatelabError(f"weights has {len(weights)} entries and residuals() {len(tensors)} blocks; give one each")
    pairs = zip(weights, tensors, strict=True)
    return Blocks(tensors, tuple((w / max(1, t.numel())) ** 0.5 for w, t in pairs))


class Graph:
    """Residuals at the current parameters with their products with J and J^T, for some of the parameters."""

    def __init__(self, flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, self.value = list(parameters), flat.detach()
        self.shape = len(flat), sum(p.numel() for p in parameters)
        self._flat = flat
        self._dual: tuple[Tensor, Tensor] | None = None

    def transposed(self, v: Tensor, *, batched: bool = False) -> Tensor:
        """J^T v (p,), or the rows of V J (k, p) for V (k, m)."""
        return _joined(_product(self._flat, self.parameters, v, batched), batched)

    def times(self, t: Tensor, *, batched: bool = False) -> Tensor:
        """J t (m,), or the rows of T J^T (k, m) for T (k, p)."""
        if self._dual is None:
            v = torch.zeros_like(self._flat, requires_grad=True)
            rows = torch.autograd.grad(
                (self._flat * v).sum(), self.parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
            self._dual = v, _joined(rows, False)
        v, row = self._dual
        if not row.requires_grad:
            return t.new_zeros(*t.shape[:-1], len(v))
        return _product(row, [v], t, batched)[0]

    def jacobian(self) -> Tensor:
        """Dense (m, p), by the shorter side, in chunks."""
        m, p = self.shape
        most = max(1, min(_MOST_AT_ONCE, _CHUNK_BYTES // (self.value.element_size() * (m + p))))
        product, n, pieces = self.times, p, []
        if m <= p:
            product, n = self.transposed, m
        for first in range(0, n, most):
            stop_if_asked()
            unit = self.value.new_zeros(min(most, n - first), n)
            unit.diagonal(first).fill_(1.0)
            pieces.append(product(unit, batched=True))
        if m <= p:
            return torch.cat(pieces)
        return torch.cat(pieces).mT.contiguous()


def _product(of: Tensor, by: Sequence[Tensor], v: Tensor, batched: bool) -> Sequence[Tensor]:
    """The derivative of v^T of, or of the rows of V of."""
    grad = partial(torch.autograd.grad, retain_graph=True, allow_unused=True, materialize_grads=True)
    if batched:
        return grad(of, by, v, is_grads_batched=True)
    # By a sum: `grad` with a direction imports torch's symbolic shapes and sympy, a third of a second.
    return grad((of * v).sum(), by)


def _joined(rows: Sequence[Tensor], batched: bool) -> Tensor:
    return torch.cat([r.flatten(int(batched)) for r in rows], -1)


@dataclass(frozen=True, eq=False)
class _Use:
    """One product of rows with a parameter: z = a W^T, or z = a W if `backward`, or a bias; `tap` was added to z."""

    parameter: int
    tap: Tensor
    rows: Tensor | None = None
    backward: bool = False

    def factors(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """(N, s, o) and (N, s, i), whose products, summed over s, are the derivatives of the rows by the parameter."""
        left = d.reshape(len(d), -1, d.shape[-1])
        if self.rows is None:
            return left.sum(1, keepdim=True), left.new_ones(len(d), 1, 1)
        right = self.rows.reshape(len(d), -1, self.rows.shape[-1])
        if self.backward:
            return right, left
        return left, right


class Jacobian:
    """A Jacobian as a matrix, or by rows that are outer products, whose matrix is only formed where it is needed."""

    def __init__(self, r: Tensor, p: int, rows: Sequence[_Rows] = (), matrix: Tensor | None = None) -> None:
        self.r, self.shape, self.rows, self._matrix = r, (len(r), p), rows, matrix

    @property
    def matrix(self) -> Tensor:
        if self._matrix is None:
            self._matrix = self.r.new_zeros(self.shape)
            for where, factors in self.rows:
                self._write(self._matrix[where], factors, slice(None))
        return self._matrix

    @staticmethod
    def _write(to: Tensor, factors: _Factors, some: slice) -> None:
        for first, pair in factors.items():
            left, right = (f[some].to(to.dtype) for f in pair)
            columns = to[:, first : first + left.shape[2] * right.shape[2]].unflatten(1, (left.shape[2], -1))
            if left.shape[1] == 1:
                torch.mul(left.mT, right, out=columns)
            else:
                columns.copy_(left.mT @ right)

    def times(self, v: Tensor) -> Tensor:
        """J v."""
        if self._matrix is not None:
            return self._matrix @ v
        result = v.new_zeros(self.shape[0])
        for where, factors in self.rows:
            for first, (left, right) in factors.items():
                o, i = left.shape[2], right.shape[2]
                result[where] += ((right @ v[first : first + o * i].view(o, i).mT) * left).sum((1, 2))
        return result

    def transposed(self, u: Tensor) -> Tensor:
        """J^T u."""
        if self._matrix is not None:
            return self._matrix.mT @ u
        result = u.new_zeros(self.shape[1])
        for where, factors in self.rows:
            for first, (left, right) in factors.items():
                product = (left * u[where, None, None]).flatten(0, 1).mT @ right.flatten(0, 1)
                result[first : first + product.numel()] += product.flatten()
        return result

    def norm(self) -> float:
        """The Frobenius norm; not finite if an element is not."""
        if self._matrix is not None:
            return float(self._matrix.norm())
        squares = [(a @ a.mT * (b @ b.mT)).sum() for _, factors in self.rows for a, b in factors.values()]
        return float(torch.stack(squares).sum()) ** 0.5 if squares else 0.0

    def gram(self, dtype: torch.dtype) -> Tensor:
        """J^T J, of which the part below the diagonal is not filled."""
        p = self.shape[1]
        result = self.r.new_zeros(p, p, dtype=dtype)
        for block in self._pieces(dtype):
            stop_if_asked()
            for first in range(0, p, _COLUMNS):
                last = min(first + _COLUMNS, p)
                result[first:last, first:].addmm_(block[:, first:last].mT, block[:, first:])
        return result

    def _pieces(self, dtype: torch.dtype) -> Iterator[Tensor]:
        """Some rows at a time, in a buffer that is used again."""
        if self._matrix is not None:
            for some in self._matrix.split(_ROWS):
                yield some.to(dtype)
            return
        for where, factors in self.rows:
            count = len(range(*where.indices(self.shape[0])))
            buffer = self.r.new_zeros(min(count, _ROWS), self.shape[1], dtype=dtype)
            for first in range(0, count, _ROWS):
                some = slice(first, min(first + _ROWS, count))
                piece = buffer[: some.stop - first]
                self._write(piece, factors, some)
                yield piece

    def outer(self, dtype: torch.dtype) -> Tensor:
        """J J^T, by the factors if each row is one outer product per parameter."""
        single = all(left.shape[1] == 1 for _, factors in self.rows for left, _ in factors.values())
        if self._matrix is not None or not single:
            return gram(self.matrix.mT.to(dtype)[None])[0]
        result = self.r.new_zeros(self.shape[0], self.shape[0], dtype=dtype)
        for down, one in self.rows:
            for across, other in self.rows:
                product = result[down, across]
                for first in one.keys() & other.keys():
                    (a, b), (c, d) = ([f[:, 0].to(dtype) for f in factors[first]] for factors in (one, other))
                    left = a @ c.mT
                    product += left if b.shape[1] == 1 else left.mul_(b @ d.mT)
        return result


class Tape(TorchFunctionMode):
    """Records the linear maps of a closure whose weights are parameters of the module."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.index = {id(p): i for i, p in enumerate(parameters)}
        self.uses: list[_Use] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear and not kwargs and len(args) >= 2 and self._covers(args):
            z = self.product(args[0], args[1].detach(), self.index[id(args[1])], False)
            for bias in args[2:]:
                if bias is not None:
                    self.uses.append(_Use(self.index[id(bias)], self.uses[-1].tap))
                    z = z + bias.detach()
            return z
        return func(*args, **(kwargs or {}))

    def _covers(self, args: Any) -> bool:
        """Whether the weights are parameters and the inputs have rows."""
        weights = [w for w in args[1:] if w is not None]
        return all(id(w) in self.index for w in weights) and args[0].ndim >= 2

    def product(self, a: Tensor, W: Tensor, parameter: int, backward: bool) -> Tensor:
        """a W^T, recorded if it may be differentiated."""
        z = _Product.apply(a, W, parameter, backward, self)
        if not torch.is_grad_enabled():
            return z
        tap = torch.zeros_like(z, requires_grad=True)
        self.uses.append(_Use(parameter, tap, a.detach(), backward))
        return z + tap


class _Product(torch.autograd.Function):
    """a W^T, whose backward pass is recorded on the tape like the product itself."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, W: Tensor, parameter: int, backward: bool, tape: Tape) -> Tensor:
        ctx.save_for_backward(W)
        ctx.use = parameter, backward, tape
        return a @ W.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (W,) = ctx.saved_tensors
        parameter, backward, tape = ctx.use
        return tape.product(gradients[0], W.mT, parameter, not backward), None, None, None, None


def row_jacobian(
    residuals: Residuals, weights: Sequence[float] | None, parameters: Sequence[nn.Parameter]
) -> Jacobian | None:
    """The Jacobian with its residuals if rows are independent, which the caller tests, or None."""
    with torch.enable_grad(), Tape(parameters) as tape:
        values = blocks(residuals, weights)
    uses, flat = tuple(tape.uses), values.flat
    sizes = [p.numel() for p in parameters]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    parts, first = [], 0
    for block, factor in zip(values.tensors, values.factors, strict=True):
        columns = block.reshape(-1, max(1, math.prod(block.shape[1:])))
        for k in range(columns.shape[1] * block.requires_grad):
            taps = [use.tap for use in uses]
            by_taps = torch.autograd.grad(columns[:, k].sum(), taps, retain_graph=True, allow_unused=True)
            found: dict[int, list[tuple[Tensor, Tensor]]] = {}
            for use, d in zip(uses, by_taps, strict=True):
                if d is None:
                    continue
                if len(d) != len(columns):
                    return None
                found.setdefault(ends[use.parameter] - sizes[use.parameter], []).append(use.factors(factor * d))
            factors = {
                start: (torch.cat([a for a, _ in terms], 1), torch.cat([b for _, b in terms], 1))
                for start, terms in found.items()
            }
            where = slice(first + k, first + block.numel(), columns.shape[1])
            parts.append((where, factors))
        first += block.numel()
    jacobian = Jacobian(flat.detach(), sum(sizes), parts)
    loose: Sequence[Tensor | None] = ()
    if flat.requires_grad:
        loose = torch.autograd.grad(flat.sum(), parameters, retain_graph=True, allow_unused=True)
    for p, end, g in zip(parameters, ends, loose, strict=False):
        if g is not None:
            jacobian.matrix[:, end - p.numel() : end] += Graph(flat, [p]).jacobian()
    return jacobian
