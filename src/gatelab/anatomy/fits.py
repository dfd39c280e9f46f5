"""Fit maps to the inputs and outputs of a block: the best linear map, and units of any kind and width.

    affine_of_rows(x, y, validation)               ridge least squares by Gram matrices
    fit_block(rows, "swiglu", 64, start=block)     D and d by ridge least squares, G and U by Adam on minibatches

For the blocks of real models, which are too large for `gl.fit`: an upper bound of the error that the unit can reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gatelab.display import Compact
from gatelab.errors import check_seed, whole_number
from gatelab.feedforward import Unit
from gatelab.feedforward.registry import product_unit
from gatelab.models.layouts import Block

RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # times the mean diagonal of the Gram matrix, chosen by validation
ROUNDS, EACH = 4, 10  # the last map is eliminated up to 4 times, after 10 steps or more
RATE = 0.03  # initial learning rate, relative to the root mean square of the parameters; decays to 0 by a cosine


@dataclass(frozen=True, eq=False)
class BlockRows(Compact):
    """Inputs and outputs of a block for training, validation and test.

    Attributes:
        x: training inputs (N, d_in).
        y: training outputs (N, d_out).
        validation: inputs and outputs that choose ridges and steps.
        test: inputs and outputs that are used for the final errors only.
    """

    x: Tensor
    y: Tensor
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def to(self, device: str | torch.device) -> BlockRows:
        """The same rows on a device."""
        pairs = ((self.x, self.y), self.validation, self.test)
        (x, y), validation, test = ((a.to(device), b.to(device)) for a, b in pairs)
        return BlockRows(x, y, validation, test)


@dataclass(frozen=True, eq=False)
class Affine(Compact):
    """The map x -> A x + b, and the ridge that validation chose."""

    A: Tensor
    b: Tensor
    ridge: float

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.A.mT + self.b

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self.A.numel() + self.b.numel()


@dataclass(frozen=True, eq=False)
class BlockFit(Compact):
    """A unit fitted to the rows of a block.

    Attributes:
        unit: the unit's name.
        width: the number of neurons.
        parameters: the number of parameters.
        block: the fitted weights.
        error: the unexplained share of the variance on the test rows.
        validation: the unexplained share on the validation rows.
        seconds: the time of the fit.
    """

    unit: str
    width: int
    parameters: int
    block: Block
    error: float
    validation: float
    seconds: float


def left_over(predicted: Tensor, y: Tensor, center: Tensor) -> float:
    """The unexplained share of the variance: squared errors over squared deviations from the training mean."""
    return float((predicted - y).double().square().sum() / (y - center).double().square().sum())


def damped(gram: Tensor, ridge: float) -> Tensor:
    """A Gram matrix plus `ridge` times its mean diagonal on the diagonal."""
    out = gram.clone()
    out.diagonal().add_(max(ridge * float(gram.diagonal().mean()), torch.finfo(gram.dtype).tiny))
    return out


def ridge_map(xx: Tensor, xy: Tensor, ridge: float) -> Tensor:
    """The least-squares matrix A (outputs, inputs) from Gram matrices (inputs, inputs or outputs)."""
    shifted = damped(xx, ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if int(failed):
        return torch.linalg.lstsq(shifted, xy).solution.mT
    return torch.cholesky_solve(xy, factor).mT


def best_affine(
    grams: tuple[Tensor, Tensor], means: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor],
    ridges: Sequence[float] = RIDGES,
) -> Affine:  # fmt: skip
    """The best affine map from centered Gram matrices, with the ridge and the precision of the validation rows."""
    x, y = validation
    candidates = []
    for ridge in ridges:
        A = ridge_map(*grams, ridge)
        candidate = Affine(A.to(x.dtype), (means[1] - A @ means[0]).to(x.dtype), ridge)
        candidates.append((left_over(candidate(x), y, means[1].to(y.dtype)), candidate))
    return min(candidates, key=lambda pair: pair[0])[1]


def affine_of_rows(x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor], ridges: Sequence[float] = RIDGES) -> Affine:
    """`best_affine` of given rows."""
    mean_x, mean_y = x.double().mean(0), y.double().mean(0)
    a, b = x - mean_x.to(x.dtype), y - mean_y.to(y.dtype)
    return best_affine(((a.mT @ a).double(), (a.mT @ b).double()), (mean_x, mean_y), validation, ridges)


def fit_block(
    rows: BlockRows,
    unit: str | Unit,
    width: int,
    *,
    start: Block | None = None,
    steps: int = 200,
    batch: int = 512,
    seed: int = 0,
) -> BlockFit:
    """Fit a unit to the rows of a block.

    Args:
        rows: inputs and outputs of the block, on the device to compute on.
        unit: a product unit or its name.
        width: the number of neurons.
        start: a block whose neurons with the largest contributions initialize the gates; None for random gates.
        steps: steps of Adam; with 0 only the last map is fitted.
        batch: rows per step.
        seed: seed of random gates and batches.

    Returns:
        The fit with the smallest error on the validation rows, with its error on the test rows.
    """
    unit = product_unit(unit)
    width, steps = whole_number("width", width, 1, of="neurons"), whole_number("steps", steps, 0)
    began, generator = time.perf_counter(), torch.Generator().manual_seed(check_seed(seed))
    x, y = rows.x, rows.y
    center = y.double().mean(0).to(y.dtype)

    def share_left(block: Block, x: Tensor, y: Tensor) -> float:
        error = left_over(block(x), y, center)
        return error if math.isfinite(error) else math.inf

    gates = starting_maps(unit, width, rows, start, generator)
    best = block = with_best_last_map(unit, gates, x, y, rows.validation)
    least = share_left(best, *rows.validation)
    rounds = min(ROUNDS, math.ceil(steps / EACH))
    for r in range(rounds):
        counts = range(r * steps // rounds, (r + 1) * steps // rounds)
        rates = [0.5 * RATE * (1 + math.cos(math.pi * i / steps)) for i in counts]
        gates = moved_by_adam(block, x, y, rates, batch, generator)
        block = with_best_last_map(unit, gates, x, y, rows.validation)
        error = share_left(block, *rows.validation)
        if error < least:
            least, best = error, block
        if error == math.inf:
            break
    return BlockFit(
        unit=unit.name, width=width, parameters=sum(W.numel() + b.numel() for W, b in best.maps), block=best,
        error=share_left(best, *rows.test), validation=least, seconds=time.perf_counter() - began,
    )  # fmt: skip


Maps = list[tuple[Tensor, Tensor]]


def starting_maps(unit: Unit, width: int, rows: BlockRows, start: Block | None, generator: torch.Generator) -> Maps:
    """Initial gate and factors: those of the strongest neurons of `start`, then random ones."""
    d, sample = rows.x.shape[1], rows.x[:2048]
    scale = float(sample.double().square().sum(1).mean().sqrt()) or 1.0

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def random_maps(count: int) -> Maps:
        pairs = ((drawn(count, d) / scale, 0.1 * drawn(count)) for _ in range(1 + unit.factors))
        return [(W.to(sample), b.to(sample)) for W, b in pairs]

    if start is None:
        return random_maps(width)
    shares = start.hidden(sample).square().mean(0) * start.W2.square().sum(0)
    chosen = shares.argsort(descending=True)[:width]
    own = start.maps[:-1]
    own = [own[min(i, len(own) - 1)] for i in range(1 + unit.factors)]
    others = random_maps(width - len(chosen))
    return [
        (torch.cat([W[chosen], V]).clone(), torch.cat([b[chosen], c]).clone())
        for (W, b), (V, c) in zip(own, others, strict=True)
    ]


def with_best_last_map(unit: Unit, gates: Maps, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor]) -> Block:
    """The block with these gates and factors, and the last map by ridge least squares."""
    n, d_out = len(gates[0][0]), y.shape[1]
    blank = Block("", *gates[0], y.new_zeros(d_out, n), y.new_zeros(d_out), unit.gate, tuple(gates[1:]))
    with torch.no_grad():
        last = affine_of_rows(blank.hidden(x), y, (blank.hidden(validation[0]), validation[1]))
    return replace(blank, W2=last.A, b2=last.b)


class BlockAdam:
    """Adam on the mean squared error of a block; a pair of rates for each of its maps, None for fixed tensors."""

    def __init__(
        self, block: Block, scales: Sequence[tuple[float, float | None]], betas: tuple[float, float], eps: float
    ) -> None:
        self.block = detached(block)
        groups = [
            {"params": [p.requires_grad_()], "scale": scale}
            for tensors, pair in zip(self.block.maps, scales, strict=True)
            for p, scale in zip(tensors, pair, strict=True)
            if scale is not None
        ]
        self.adam = torch.optim.Adam(groups, lr=1.0, betas=betas, eps=eps)

    def step(self, x: Tensor, y: Tensor, size: float, rate: float) -> None:
        for group in self.adam.param_groups:
            group["lr"] = rate * group["scale"]
        with torch.enable_grad():
            loss = ((self.block(x) - y) / size).square().mean()
            self.adam.zero_grad()
            loss.backward()
        self.adam.step()


def detached(block: Block) -> Block:
    return block.with_maps((W.detach().clone(), b.detach().clone()) for W, b in block.maps)


def root_mean_square(values: Tensor) -> float:
    """The root mean square of numbers, 1 for zeros."""
    return float(values.double().square().mean().sqrt()) or 1.0


def moved_by_adam(
    block: Block, x: Tensor, y: Tensor, rates: Sequence[float], batch: int, generator: torch.Generator
) -> Maps:
    """Gates and factors after one step of Adam per rate; the last map is trained too."""
    size = root_mean_square(y)
    length = float(x.double().square().sum(1).mean().sqrt()) or 1.0
    *scales, last = (root_mean_square(W) for W, _ in block.maps)
    # A bias moves as much as a weight does on a typical input: by the length of x over the root of d.
    pairs = [(scale, scale * length / x.shape[1] ** 0.5) for scale in scales]
    adam = BlockAdam(block, [*pairs, (last, size)], (0.9, 0.99), 1e-8)
    for rate in rates:
        chosen = torch.randint(len(x), (min(batch, len(x)),), generator=generator).to(x.device)
        adam.step(x[chosen], y[chosen], size, rate)
    return detached(adam.block).maps[:-1]
