"""The verdict: can fewer features than neurons reach a wanted error on these inputs?

By Eckart and Young no maps of m features have a smaller RMSE on given rows and inputs than the truncated singular value
decomposition of act(W X^T), so `needed` features are necessary for every method. The number that is `enough` is
measured on held-out inputs: with U the leading left singular vectors of the other half, Phi(W) = U and
Psi(x) = U^T act(W x) are maps of m features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError, check_seed, real_number, whole_number
from gatelab.feedforward import Activation
from gatelab.feedforward import activation as gate_of
from gatelab.interrupts import apart
from gatelab.memory import check_memory


@dataclass(frozen=True, eq=False)
class Verdict(Compact):
    """Lower and upper bounds on the number of features for a wanted error.

    Attributes:
        activation: the name of the gate.
        error: the wanted RMSE.
        width: the number of neurons.
        d: the number of inputs.
        needed: no maps with fewer features reach the error; None if there are too few rows to decide.
        enough: some maps with this number reach it on held-out inputs; None if there are too few rows to decide.
        curve: the floor at m = 0, 1, 2, ... features.
        held_out: the error on held-out inputs at the same m.
        rank_w: the effective rank of the weights.
        rank_x: the effective rank of the inputs.
        spread: the root mean square of the pre-activations.
        sampled: whether only a part of W or X was used.
    """

    activation: str
    error: float
    width: int
    d: int
    needed: int | None
    enough: int | None
    curve: Array
    held_out: Array
    rank_w: float
    rank_x: float
    spread: float
    sampled: bool

    @property
    def answer(self) -> Literal["possible", "impossible", "open"]:
        """Whether fewer features than neurons are enough; "open" if there are too few inputs to decide."""
        if self.enough is not None and self.enough < self.width:
            return "possible"
        if self.needed is not None and self.needed >= self.width:
            return "impossible"
        return "open"

    def floor(self, m: int) -> float:
        """The smallest possible RMSE of maps of m features on these rows and inputs."""
        return float(self.curve[min(whole_number("m", m, 0, of="features"), len(self.curve) - 1)])

    def __str__(self) -> str:
        part = " (a part of it)" * self.sampled
        at_least = f"{len(self.curve) - 1} or more" if self.needed is None else str(self.needed)
        answers = {
            "possible": f"Possible: m = {self.enough} features reach it on held-out inputs; any maps need {at_least}.",
            "impossible": f"Not possible below the layer's width: any maps need m >= {at_least} features.",
            "open": f"Open: any maps need m >= {at_least} features, and up to {len(self.held_out) - 1} from half of "
            f"these inputs leave {self.held_out.min():.3g} on the other half.",
        }
        return (
            f"{self.activation}(Wx) with {self.width} neurons on {self.d} inputs{part}; wanted RMSE {self.error:.3g}.\n"
            f"{answers[self.answer]}\n"
            f"Effective rank: inputs {self.rank_x:.1f} of {self.d}, weights {self.rank_w:.1f} of {self.d}; "
            f"pre-activations have a spread of {self.spread:.3g}.\nNext: {self.advice}"
        )

    @property
    def advice(self) -> str:
        """The next step."""
        if self.answer == "possible":
            return (
                f"fit maps to these inputs, and compare the error with the floor, {self.floor(self.enough or 0):.3g}."
            )
        if self.answer == "open":
            return "give more inputs, or a larger error."
        if self.rank_x < self.d / 4:
            return "the inputs have a low effective rank; use a low-rank W to save time, and keep the activation."
        return "keep the activation as it is, or give a larger error."


def verdict(
    activation: str | Activation,
    W: Tensor,
    X: Tensor,
    error: float,
    *,
    bias: Tensor | None = None,
    most: int = 2048,
    seed: int = 0,
) -> Verdict:
    """Whether act(W x) can be Phi(W) Psi(x) with RMSE at most `error` on the inputs X, (N, d), for rows W, (n, d).

    Args:
        activation: a name, an `Activation` or a function of one tensor.
        W: the weights of the layer, (n, d).
        X: inputs of the layer, (N, d).
        error: the wanted RMSE.
        bias: the biases of the layer, (n,).
        most: the most rows of W and of X that are used.
        seed: the seed for sampling rows and for the held-out inputs.

    Returns:
        A `Verdict`.

    >>> draw = torch.Generator().manual_seed(0)
    >>> W, X = torch.randn(2, 300, 64, generator=draw, dtype=torch.float64) / 8
    >>> thin = X @ torch.diag(torch.tensor([8.0] * 3 + [0.0] * 61, dtype=torch.float64))
    >>> verdict("gelu", W, thin, 1e-3).answer, verdict("gelu", 8 * W, 8 * X, 1e-3).answer
    ('possible', 'open')
    """
    gate = gate_of(activation)
    W, X, b = _layer(W, X, bias)
    error = real_number("error, the wanted RMSE,", error, above=0)
    most = whole_number("most", most, 2, of="rows")
    generator = torch.Generator().manual_seed(check_seed(seed))
    # The values, their halves, singular vectors, and LAPACK's workspace.
    check_memory([(min(len(W), most), min(len(X), most))] * 6, "the verdict", "give a smaller `most`")
    rows, inputs = (_pick(len(matrix), most, generator) for matrix in (W, X))
    z = W[rows] @ X[inputs].T + b[rows][:, None]
    Y = gate(z)
    curve, held_out = _floor(Y), _held_out(Y, generator)
    return Verdict(
        activation=gate.name,
        error=error,
        width=len(W),
        d=W.shape[1],
        # With fewer values than neurons, the last point of the curve, which is 0, proves nothing.
        needed=_first(curve[:-1] if min(Y.shape) < len(W) else curve, error),
        enough=_first(held_out, error),
        curve=curve,
        held_out=held_out,
        rank_w=_effective_rank(W),
        rank_x=_effective_rank(X),
        spread=float(z.square().mean().sqrt()),
        sampled=max(len(W), len(X)) > most,
    )


def _layer(W: Tensor, X: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The weights, inputs and biases of a layer in float64, if they fit together."""
    W, X = _rows("W", W), _rows("X", X)
    if W.shape[1] != X.shape[1]:
        raise GatelabError(f"W is {tuple(W.shape)} and X is {tuple(X.shape)}; give both d columns")
    if len(X) < 2:
        raise GatelabError("X has one row; give hundreds or more, some of which are held out")
    b = W.new_zeros(len(W)) if bias is None else bias.detach().to(W)
    if b.shape != W.shape[:1]:
        raise GatelabError(f"the bias has shape {tuple(b.shape)}; give one number for each of the {len(W)} rows of W")
    return W, X, b


def _rows(name: str, matrix: Tensor) -> Tensor:
    """A matrix of finite float64."""
    if not isinstance(matrix, Tensor) or matrix.ndim != 2 or min(matrix.shape) < 1:
        raise GatelabError(f"{name} is {type(matrix).__name__} of {np.shape(matrix)}; give a tensor of rows, (rows, d)")
    if not bool(torch.isfinite(matrix).all()):
        raise GatelabError(f"{name} has entries that are not finite; leave those rows out")
    return matrix.detach().double()


def _pick(n: int, most: int, generator: torch.Generator) -> Tensor:
    """The indices of at most `most` of n rows, in order."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=generator)[:most].sort().values


def _floor(Y: Tensor) -> Array:
    """The smallest RMSE of any m = 0, 1, ... features."""
    # Sum from the smallest up, to avoid the difference of two large sums.
    squares = apart(torch.linalg.svdvals, Y).square().cpu().numpy()
    return np.sqrt(np.concatenate([np.cumsum(squares[::-1])[::-1], [0.0]]) / Y.numel())


def _held_out(Y: Tensor, generator: torch.Generator) -> Array:
    """The error at m = 0, 1, ... on half of the inputs, with Phi(W) the leading singular vectors of the others."""
    order = torch.randperm(Y.shape[1], generator=generator).to(Y.device)
    known, new = Y[:, order[::2]], Y[:, order[1::2]]
    U = apart(torch.linalg.svd, known, full_matrices=False).U
    caught = (U.T @ new).square().sum(1).cpu().numpy()
    left = float(new.square().sum()) - np.concatenate([[0.0], np.cumsum(caught)])
    return np.sqrt(np.maximum(left, 0.0) / new.numel())


def _first(curve: Array, error: float) -> int | None:
    """The smallest m at which the curve is at most `error`."""
    return next((m for m, value in enumerate(curve) if value <= error), None)


def _effective_rank(rows: Tensor) -> float:
    """(sum lambda)^2 / sum lambda^2 of the second moments."""
    gram = rows.T @ rows if len(rows) >= rows.shape[1] else rows @ rows.T
    total = float(gram.diagonal().sum())
    return total * total / float(gram.square().sum()) if total > 0 else 0.0
