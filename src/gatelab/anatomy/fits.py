"""Maps fitted to the rows of a block: the best linear one, and units of any kind and width, within a budget.

    affine_of_rows(x, y, validation)               ridge least squares by Gram matrices
    fit_block(rows, "swiglu", 64, start=block)     D and d by ridge least squares, G and U by Adam on minibatches

`gl.fit` brings small networks to their optimum. Blocks of real models have hundreds of inputs and outputs and some
thousand neurons: here the last map is eliminated in the same way, by Gram matrices, and the gates move by some dozens
to hundreds of steps on parts of the rows. What comes out is an upper bound of the error that the unit can reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gatelab.display import Compact
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.feedforward import Unit
from gatelab.feedforward import unit as as_unit
from gatelab.models.layouts import Block

RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # times the mean diagonal of the Gram matrix; validation chooses
ROUNDS, EACH = 4, 10  # how often the last map is eliminated again, at most, and after how many steps at least
RATE = 0.03  # of a step, in root mean squares of the parameters


@dataclass(frozen=True, eq=False)
class BlockRows(Compact):
    """Inputs and outputs of a block: rows to fit on, to choose by, and to measure on.

    Attributes:
        x: inputs to fit on (N, d_in).
        y: outputs to fit on (N, d_out).
        validation: inputs and outputs by which ridges and steps are chosen.
        test: inputs and outputs that nothing is fitted to or chosen by.
        windows: for every test row the number of its window, by which intervals resample; None for a row each.
    """

    x: Tensor
    y: Tensor
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    windows: Tensor | None = None

    def to(self, device: str | torch.device) -> BlockRows:
        """The same on a device."""
        (x, y), validation, test = (
            (a.to(device), b.to(device)) for a, b in ((self.x, self.y), self.validation, self.test)
        )
        return BlockRows(x, y, validation, test, self.windows)


@dataclass(frozen=True, eq=False)
class Affine(Compact):
    """x -> A x + b, and the ridge that validation chose."""

    A: Tensor
    b: Tensor
    ridge: float

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.A.mT + self.b

    @property
    def parameters(self) -> int:
        """How many numbers it has."""
        return self.A.numel() + self.b.numel()


@dataclass(frozen=True, eq=False)
class BlockFit(Compact):
    """A unit fitted to the rows of a block, and an affine map beside it where there is one.

    Attributes:
        unit: the unit's name.
        width: its neurons.
        parameters: all numbers of it, those of the affine map too.
        block: the fitted weights.
        beside: the affine map that is added, None for none.
        error: the share of the test rows' variance that is left.
        validation: the same of the rows that chose.
        seconds: how long it took.
    """

    unit: str
    width: int
    parameters: int
    block: Block
    beside: Affine | None
    error: float
    validation: float
    seconds: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.block(x) if self.beside is None else self.block(x) + self.beside(x)


def left_over(predicted: Tensor, y: Tensor, centre: Tensor) -> float:
    """The share of the variance that is left: the sum of squared errors over that about the mean of the fitted rows.

    >>> y = torch.tensor([[1.0], [3.0]])
    >>> left_over(y + 0.5, y, torch.tensor([2.0]))
    0.25
    """
    return float((predicted - y).double().square().sum() / (y - centre).double().square().sum())


def damped(gram: Tensor, ridge: float) -> Tensor:
    """A Gram matrix with a share of its mean diagonal added to the diagonal."""
    out = gram.clone()
    out.diagonal().add_(max(ridge * float(gram.diagonal().mean()), torch.finfo(gram.dtype).tiny))
    return out


def ridge_map(xx: Tensor, xy: Tensor, ridge: float) -> Tensor:
    """The matrix A (outputs, inputs) that is best by centred Gram matrices (inputs, inputs or outputs).

    >>> round(float(ridge_map(torch.eye(1) * 2, torch.eye(1) * 4, 1.0)), 4)
    1.0
    """
    shifted = damped(xx, ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if int(failed):
        return torch.linalg.lstsq(shifted, xy).solution.mT
    return torch.cholesky_solve(xy, factor).mT


def best_affine(
    grams: tuple[Tensor, Tensor], means: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor],
    ridges: Sequence[float] = RIDGES,
) -> Affine:  # fmt: skip
    """The best affine map by ridge least squares, the ridge chosen on other rows, in whose precision it is.

    Gram matrices, (d_in, d_in) and (d_in, d_out), are centred; ridges are in mean diagonals of the first.
    """
    x, y = validation
    candidates = []
    for ridge in ridges:
        A = ridge_map(*grams, ridge)
        candidate = Affine(A.to(x.dtype), (means[1] - A @ means[0]).to(x.dtype), ridge)
        candidates.append((left_over(candidate(x), y, means[1].to(y.dtype)), candidate))
    return min(candidates, key=lambda pair: pair[0])[1]


def affine_of_rows(x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor], ridges: Sequence[float] = RIDGES) -> Affine:
    """`best_affine` of rows that are there as a whole."""
    mean_x, mean_y = x.double().mean(0), y.double().mean(0)
    a, b = x - mean_x.to(x.dtype), y - mean_y.to(y.dtype)
    return best_affine(((a.mT @ a).double(), (a.mT @ b).double()), (mean_x, mean_y), validation, ridges)


def fit_block(
    rows: BlockRows,
    unit: str | Unit,
    width: int,
    *,
    start: Block | None = None,
    beside: Affine | None = None,
    steps: int = 200,
    batch: int = 512,
    rate: float = RATE,
    seed: int = 0,
) -> BlockFit:
    """Fit a unit to the rows of a block.

    Args:
        rows: inputs and outputs of the block, on the device to compute on.
        unit: a product unit or its name.
        width: how many neurons it has.
        start: a block, the neurons of which with the largest share in the output the gates begin with; without it
            they begin at random.
        beside: an affine map that the unit is added to, and which stays as it is.
        steps: of Adam; 0 for the start with its last map fitted.
        batch: rows a step.
        rate: of a step at first, in root mean squares of the parameters; it falls to zero along a cosine.
        seed: of random starts and batches.

    Returns:
        The fit that was best on the validation rows, with its error on the test rows.
    """
    unit = product_unit(unit)
    width, steps = whole_number("width", width, 1, of="neurons"), whole_number("steps", steps, 0)
    began, generator = time.perf_counter(), torch.Generator().manual_seed(check_seed(seed))
    x, y, (x_chosen, y_chosen), (x_test, y_test) = rows.x, rows.y, rows.validation, rows.test
    centre = y.double().mean(0).to(y.dtype)
    if beside is not None:
        y, y_chosen = y - beside(x), y_chosen - beside(x_chosen)

    def share_left(block: Block, x: Tensor, y: Tensor) -> float:
        predicted = block(x) if beside is None else block(x) + beside(x)
        error = left_over(predicted, y, centre)
        return error if math.isfinite(error) else math.inf

    gates = starting_maps(unit, width, rows, start, generator)
    best = block = with_best_last_map(unit, gates, x, y, (x_chosen, y_chosen))
    least = share_left(best, *rows.validation)
    rounds = min(ROUNDS, math.ceil(steps / EACH))
    for r in range(rounds):
        counts = range(r * steps // rounds, (r + 1) * steps // rounds)
        rates = [0.5 * rate * (1 + math.cos(math.pi * i / steps)) for i in counts]
        gates = moved_by_adam(block, x, y, rates, batch, generator)
        block = with_best_last_map(unit, gates, x, y, (x_chosen, y_chosen))
        error = share_left(block, *rows.validation)
        if error < least:
            least, best = error, block
        if error == math.inf:
            break
    numbers = sum(p.numel() for p in parameters_of(best)) + (0 if beside is None else beside.parameters)
    return BlockFit(
        unit=unit.name, width=width, parameters=numbers, block=best, beside=beside,
        error=share_left(best, x_test, y_test), validation=least, seconds=time.perf_counter() - began,
    )  # fmt: skip


def product_unit(unit: str | Unit) -> Unit:
    """The unit of a name; units of one's own, which need not be a gate times factors, are refused."""
    known = as_unit(unit)
    if not isinstance(known, Unit):
        raise GatelabError(f"{unit!r} is no gate times factors; give a name such as 'swiglu', or gl.Unit(...)")
    return known


Maps = list[tuple[Tensor, Tensor]]


def starting_maps(unit: Unit, width: int, rows: BlockRows, start: Block | None, generator: torch.Generator) -> Maps:
    """Gate and factors to begin with: those of the strongest neurons, and random ones beyond them."""
    d, sample = rows.x.shape[1], rows.x[:2048]
    scale = float(sample.double().square().sum(1).mean().sqrt()) or 1.0

    def random_maps(count: int) -> Maps:
        return [
            (
                (torch.randn(count, d, generator=generator) / scale).to(sample),
                (0.1 * torch.randn(count, generator=generator)).to(sample),
            )
            for _ in range(1 + unit.factors)
        ]

    if start is None:
        return random_maps(width)
    shares = start.hidden(sample).square().mean(0) * start.W2.square().sum(0)
    chosen = shares.argsort(descending=True)[:width]
    own = [(start.W1, start.b1), *start.factors]
    own = [own[min(i, len(own) - 1)] for i in range(1 + unit.factors)]
    others = random_maps(width - len(chosen))
    return [
        (torch.cat([W[chosen], V]).clone(), torch.cat([b[chosen], c]).clone())
        for (W, b), (V, c) in zip(own, others, strict=True)
    ]


def with_best_last_map(unit: Unit, gates: Maps, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor]) -> Block:
    """The block with these gates whose last map is the best by ridge least squares."""
    n, d_out = len(gates[0][0]), y.shape[1]
    blank = Block("", *gates[0], y.new_zeros(d_out, n), y.new_zeros(d_out), unit.gate, tuple(gates[1:]))
    with torch.no_grad():
        last = affine_of_rows(blank.hidden(x), y, (blank.hidden(validation[0]), validation[1]))
    return replace(blank, W2=last.A, b2=last.b)


class BlockAdam:
    """Adam on the mean square of what a block gets wrong: every weight moves by a scale of its own.

    Scales are in the order of `parameters_of`; what has none, stays.
    """

    def __init__(self, block: Block, scales: Sequence[float | None], betas: tuple[float, float], eps: float) -> None:
        tensors = [p.detach().clone() for p in parameters_of(block)]
        groups = [
            {"params": [p.requires_grad_()], "scale": scale}
            for p, scale in zip(tensors, scales, strict=True)
            if scale is not None
        ]
        self.block = with_parameters(block, tensors)
        self.adam = torch.optim.Adam(groups, lr=1.0, betas=betas, eps=eps)

    def step(self, x: Tensor, y: Tensor, size: float, rate: float) -> None:
        """One step on some rows, whose targets are of that size, at a rate that multiplies the scales."""
        for group in self.adam.param_groups:
            group["lr"] = rate * group["scale"]
        with torch.enable_grad():
            loss = ((self.block(x) - y) / size).square().mean()
            self.adam.zero_grad()
            loss.backward()
        self.adam.step()

    def result(self) -> Block:
        """The block as it is now, a copy."""
        return with_parameters(self.block, [p.detach().clone() for p in parameters_of(self.block)])


def parameters_of(block: Block) -> list[Tensor]:
    """The weights of gate, factors and last map, then their biases."""
    maps = ((block.W1, block.b1), *block.factors, (block.W2, block.b2))
    return [W for W, _ in maps] + [b for _, b in maps]


def with_parameters(block: Block, tensors: Sequence[Tensor]) -> Block:
    """The block with other weights and biases, as `parameters_of` lists them."""
    half = len(tensors) // 2
    (W1, b1), *factors, (W2, b2) = zip(tensors[:half], tensors[half:], strict=True)
    return replace(block, W1=W1, b1=b1, W2=W2, b2=b2, factors=tuple(factors))


def root_mean_square(values: Tensor) -> float:
    """The usual size of numbers; of zeros 1."""
    return float(values.double().square().mean().sqrt()) or 1.0


def moved_by_adam(
    block: Block, x: Tensor, y: Tensor, rates: Sequence[float], batch: int, generator: torch.Generator
) -> Maps:
    """Gates and factors after a step of Adam for each rate, the last map moving with them."""
    size = root_mean_square(y)
    length = float(x.double().square().sum(1).mean().sqrt()) or 1.0
    scales = [root_mean_square(W) for W in parameters_of(block)[: 2 + len(block.factors)]]
    # A bias moves as much as a weight does on an input of usual size: by the length of x over the root of d.
    adam = BlockAdam(
        block, [*scales, *(scale * length / x.shape[1] ** 0.5 for scale in scales[:-1]), size], (0.9, 0.99), 1e-8
    )
    for rate in rates:
        chosen = torch.randint(len(x), (min(batch, len(x)),), generator=generator).to(x.device)
        adam.step(x[chosen], y[chosen], size, rate)
    moved = adam.result()
    return [(moved.W1, moved.b1), *moved.factors]
