"""What is fitted again once neurons are gone: the last map alone, or the gates, the factors and the last map together.

    last_map    min over D of  E|t - D h|^2 + ridge |D - D_0|^2        a Gram matrix and one solve, in float64
    joint       the same over the gates and the factors too            Adam, then D eliminated once more

Few rows are easily fitted too well: a model's hidden values are sparse, and what replaces a lost neuron on some
thousand tokens need not do so on others. So everything pulls towards the weights that there were, and how strongly is
decided on windows that nothing is fitted to. On one layer of SmolLM2-135M-Instruct (4-bit weights, 6144 tokens, a weak
ridge) Gauss-Newton steps with D eliminated fitted the rows at hand faster than Adam and held-out ones no better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gatelab.anatomy.orders import CHUNK, HiddenSums, damped, moments
from gatelab.errors import GatelabError
from gatelab.models.layouts import Block, Elementwise

RIDGES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
BATCH, WARM = 256, 10  # rows of a step; steps until the rate is what it is to be
DECAY = (0.9, 0.95)  # of the gradient's mean and of the mean of its square


@dataclass(frozen=True, eq=False)
class BlockTargets:
    """Inputs of a block (N, d) and what its output less the last bias should be (N, d)."""

    inputs: Tensor
    targets: Tensor

    def error(self, block: Block) -> float:
        """The mean of |t - D h|^2."""
        total = 0.0
        for x, t in zip(self.inputs.split(CHUNK), self.targets.split(CHUNK), strict=True):
            total += float((t - block.hidden(x) @ block.W2.T).double().square().sum())
        return total / len(self.inputs)

    def size(self) -> float:
        """The mean of |t|^2; of a block that gives nothing 1, so that an error of 0 is no share of nothing."""
        return float(self.targets.double().square().sum() / len(self.targets)) or 1.0


def last_map(block: Block, sums: HiddenSums, ridge: float) -> Tensor:
    """The last map at its best for the neurons as they are.

    The ridge, a share of the mean of h_i^2, pulls towards the block's own; D (d, n) is in its precision.
    """
    start = block.W2.to(sums.gram)
    factor = torch.linalg.cholesky(damped(sums.gram, ridge))
    change = torch.cholesky_solve(sums.cross - sums.gram @ start.T, factor)
    return (start + change.T).to(block.W2)


def last_map_by_held_out(block: Block, sums: HiddenSums, held_out: HiddenSums) -> tuple[Tensor, float]:
    """The last map with the ridge that does best on other rows, or as it is where none does better.

    The second value is the ridge, infinity where D stays as it is.
    """
    candidates = [(last_map(block, sums, ridge), ridge) for ridge in RIDGES]
    return min([*candidates, (block.W2, math.inf)], key=lambda pair: held_out.error(pair[0]))


def joint(
    block: Block, fitted: BlockTargets, held_out: BlockTargets, *, epochs: int, rate: float, seed: int = 0
) -> Block:
    """Gates, factors and the last map together: Adam in the weights, and D at its best for the others in the end.

    Held-out rows decide when it ends, `epochs` at most, how far D follows, and whether the given block is better. The
    rate is the change of a weight in a step, as a share of the root mean square of its matrix; the seed is of the order
    of the rows.
    """
    best, least = block, held_out.error(block)
    generator = torch.Generator().manual_seed(seed)
    maps = [W.clone() for W in weights(block)]
    rates = [rate * float(W.square().mean().sqrt()) for W in maps]
    first, second = [torch.zeros_like(W) for W in maps], [torch.zeros_like(W) for W in maps]
    size = min(BATCH, len(fitted.inputs))
    batches = len(fitted.inputs) // size
    step, total = 0, epochs * batches
    for _ in range(epochs):
        order = torch.randperm(len(fitted.inputs), generator=generator).to(fitted.inputs.device)
        for chosen in order[: batches * size].split(size):
            gradients = gradient(with_weights(block, maps), fitted.inputs[chosen], fitted.targets[chosen])
            step += 1
            share = min(1.0, step / WARM) * (1 - 0.95 * step / total)
            corrections = [1 - decay**step for decay in DECAY]
            for W, g, m, v, speed in zip(maps, gradients, first, second, rates, strict=True):
                m.lerp_(g, 1 - DECAY[0])
                v.lerp_(g.square(), 1 - DECAY[1])
                scale = (v / corrections[1]).sqrt_().add_(1e-12)
                W.sub_(m / scale, alpha=speed * share / corrections[0])
        current = with_weights(block, maps)
        error = held_out.error(current)
        if error < least:
            best, least = current_copy(current), error
    sums, others = (moments(best, rows.inputs, rows.targets) for rows in (fitted, held_out))
    D, _ = last_map_by_held_out(best, sums, others)
    return replace(best, W2=D)


def another_unit(block: Block, gate: Elementwise, factors: int, width: int, neurons: Tensor) -> Block:
    """A block of another unit to begin a refit with: directions of the old one, and a last map of zeros.

    Gates look along the old gates and, where factors go, along sums and differences of both: a product of two lines is
    a difference of two squares, g u = ((g + u)^2 - (g - u)^2) / 4. Factors are the old ones, then constants 1.

    `neurons` are the old ones, those that carry most first; the last bias is the old one's.
    """
    W, b = block.W1[neurons], block.b1[neurons]
    lines = [(U[neurons], u[neurons]) for U, u in block.factors]
    gates = [(W, b)]
    if factors < len(lines):
        gates = [(W + U, b + u) for U, u in lines] + [(W - U, b - u) for U, u in lines] + gates
    elif len(neurons) < width:
        gates += [(-W, -b)]
    # Neuron after neuron, all of its directions together.
    W1, b1 = (torch.stack(parts, 1).flatten(0, 1) for parts in zip(*gates, strict=True))
    if len(W1) < width:
        raise GatelabError(
            f"{width} neurons are asked for and the old block gives {len(W1)} directions; give a smaller keep"
        )
    old = torch.arange(len(W1), device=W1.device)[:width] // len(gates)
    ones = (torch.zeros_like(W1[:width]), torch.ones_like(b1[:width]))
    new_factors = [(lines[l][0][old], lines[l][1][old]) if l < len(lines) else ones for l in range(factors)]
    return Block(
        layer=block.layer, W1=W1[:width].clone(), b1=b1[:width].clone(), W2=block.W2.new_zeros(len(block.W2), width),
        b2=block.b2, activation=gate, factors=tuple(new_factors),
    )  # fmt: skip


def weights(block: Block) -> list[Tensor]:
    """Gate with bias, factors with theirs, last map; biases are further columns where the block has any."""
    affine = [(block.W1, block.b1), *block.factors]
    return [torch.cat([W, b[:, None]], 1) for W, b in affine] + [block.W2]


def with_weights(block: Block, maps: list[Tensor]) -> Block:
    """The block with other weights, as `weights` lists them."""
    (W1, b1), *factors = [(W[:, :-1], W[:, -1]) for W in maps[:-1]]
    return replace(block, W1=W1, b1=b1, factors=tuple(factors), W2=maps[-1])


def current_copy(block: Block) -> Block:
    """A block whose weights nobody changes."""
    return with_weights(block, [W.clone() for W in weights(block)])


def gradient(block: Block, x: Tensor, t: Tensor) -> list[Tensor]:
    """The gradient of half the mean of |t - D h(x)|^2 by every map, as `weights` lists them, in closed form.

    Biases that are zero in the whole map stay so: their column gets no gradient.
    """
    affine = [(block.W1, block.b1), *block.factors]
    z = [torch.nn.functional.linear(x, W, b) for W, b in affine]
    value, slope = value_and_slope(block.activation, z[0])
    factors = math.prod(z[1:], start=torch.ones_like(value))
    hidden = value * factors
    residual = (hidden @ block.W2.T - t) / len(x)
    back = residual @ block.W2
    partials = [slope * factors]
    for l in range(1, len(z)):
        partials.append(math.prod((z[j] for j in range(1, len(z)) if j != l), start=value))
    gradients = []
    for (_, bias), partial in zip(affine, partials, strict=True):
        delta = back * partial
        column = delta.sum(0) if bool(bias.any()) else torch.zeros_like(bias)
        gradients.append(torch.cat([delta.T @ x, column[:, None]], 1))
    return [*gradients, residual.T @ hidden]


def value_and_slope(activation: Elementwise, z: Tensor) -> tuple[Tensor, Tensor]:
    """An activation and its derivative, entry by entry."""
    with torch.enable_grad():
        point = z.detach().requires_grad_()
        value = activation(point)
        (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), slope
