"""Blocks with fewer neurons, or of another unit: which neurons stay, and what is fitted again once others are gone.

    magnitude       |G_i| |U_i| |D_i|: weights alone
    wanda           rms(h_i) |D_i|: how much a neuron carries on the calibration rows (Wanda, by whole neurons)
    flap            var(h_i) |D_i|^2: what it carries less its mean, which a bias can take over (FLAP)
    surgeon         min over D' of |D h - D' h|^2, neuron after neuron: the exact cost once D is refitted (ZipLM)

    last_map        min over D of  E|t - D h|^2 + ridge |D - D_0|^2        a Gram matrix and one solve, in float64
    joint_refit     the same over the gates and the factors too            Adam, then D eliminated once more
    smaller_block   the block of a layer by a method, from rows of its inputs and of what it should give there

Few rows are easily fitted too well: a model's hidden values are sparse, and what replaces a lost neuron on some
thousand tokens need not do so on others. So everything pulls towards the weights that there were, and how strongly is
decided on windows that nothing is fitted to. On one layer of SmolLM2-135M-Instruct (4-bit weights, 6144 tokens, a weak
ridge) Gauss-Newton steps with D eliminated fitted the rows at hand faster than Adam and held-out ones no better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.anatomy.fits import BlockAdam, damped, root_mean_square
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.models.layouts import Block, Elementwise

CHUNK = 4096  # rows whose hidden values are held at once
RIDGES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
BATCH, WARM = 256, 10  # rows of a step; steps until the rate is what it is to be
DECAY = (0.9, 0.95)  # of the gradient's mean and of the mean of its square
EPOCHS, RATE = 3, 0.02  # of the joint refit of a block
DAMPING = 1e-2  # of surgeon's refit, as SparseGPT, ZipLM and FASP have it


# ---- which neurons stay


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Means over rows with the hidden values h (n,) of a block and targets t (d,), in float64."""

    gram: Tensor  # of h h^T (n, n)
    mean: Tensor  # of h (n,)
    cross: Tensor  # of h t^T (n, d)
    size: float  # of |t|^2

    def take(self, neurons: Tensor) -> HiddenSums:
        """Those of some neurons alone."""
        gram = self.gram[neurons][:, neurons]
        return HiddenSums(gram, self.mean[neurons], self.cross[neurons], self.size)

    def error(self, D: Tensor) -> float:
        """The mean of |t - D h|^2."""
        D = D.to(self.gram)
        return float(self.size - 2 * (D.T * self.cross).sum() + ((D @ self.gram) * D).sum())


def magnitude(block: Block, sums: HiddenSums) -> Tensor:
    """The product of the lengths of a neuron's weights; the rows do not matter."""
    return math.prod((U.norm(dim=1) for U, _ in block.factors), start=block.W1.norm(dim=1) * block.W2.norm(dim=0))


def wanda(block: Block, sums: HiddenSums) -> Tensor:
    """How much a neuron carries: the root mean square of its value times the length of its column in the last map."""
    return sums.gram.diagonal().sqrt() * block.W2.double().norm(dim=0)


def flap(block: Block, sums: HiddenSums) -> Tensor:
    """How much it carries beside its mean."""
    variance = (sums.gram.diagonal() - sums.mean.square()).clamp(min=0)
    return variance * block.W2.double().square().sum(0)


SCORES = {"magnitude": magnitude, "wanda": wanda, "flap": flap}
METHODS = ("ours", *SCORES, "surgeon")


def neurons_that_stay(method: str, block: Block, sums: HiddenSums, width: int) -> Tensor:
    """So many neurons in ascending order: by the largest scores of a method, or those that surgeon leaves."""
    if method == "surgeon":
        return surgeon(block, sums, width)
    return SCORES[method](block, sums).argsort(descending=True, stable=True)[:width].sort().values


def surgeon(block: Block, sums: HiddenSums, width: int, ridge: float = 1e-3) -> Tensor:
    """Neurons go one after another, the one whose loss costs least once the last map of the others is refitted.

    With A = E[h h^T] + ridge and D at its best for all neurons, neuron i costs |D_i|^2 / (A^-1)_ii exactly; a rank-one
    change of D and of A^-1 accounts for its loss.
    """
    stays = torch.ones(block.width, dtype=torch.bool)
    neurons, _ = surgeon_costs(block, sums, block.width - width, ridge)
    stays[neurons] = False
    return stays.nonzero()[:, 0].to(sums.gram.device)


def surgeon_costs(block: Block, sums: HiddenSums, count: int, ridge: float = 1e-3) -> tuple[list[int], list[float]]:
    """Which neurons go, one after another, and what each costs beside those before it, in the mean of |t - D h|^2."""
    A = damped(sums.gram, ridge)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
    start = block.W2.to(A)
    D = start + torch.linalg.solve(A, sums.cross - sums.gram @ start.T).T
    gone = torch.zeros(len(inverse), dtype=torch.bool, device=inverse.device)
    order: list[int] = []
    costs: list[Tensor] = []
    for _ in range(count):
        cost = (D.square().sum(0) / inverse.diagonal()).masked_fill(gone, torch.inf)
        i = int(cost.argmin())
        order.append(i)
        costs.append(cost[i])
        gone[i] = True
        column = inverse[:, i] / inverse[i, i]
        row = inverse[i].clone()
        D.addr_(D[:, i].clone(), column, alpha=-1)
        inverse.addr_(column, row, alpha=-1)
        inverse[i, i], D[:, i] = 1.0, 0.0  # out of the way of the divisions
    return order, [float(cost) for cost in costs]


# ---- weights that are fitted again


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

    def moments(self, block: Block) -> HiddenSums:
        """One pass over the rows for what last maps and orders of neurons need."""
        n, d, count = block.width, self.targets.shape[1], len(self.inputs)
        gram, mean, cross = (self.inputs.new_zeros(shape, dtype=torch.float64) for shape in ((n, n), (n,), (n, d)))
        size = 0.0
        for x, t in zip(self.inputs.split(CHUNK), self.targets.split(CHUNK), strict=True):
            h = block.hidden(x)
            gram += h.T @ h
            mean += h.sum(0, dtype=torch.float64)
            cross += h.T @ t
            size += float(t.double().square().sum())
        return HiddenSums(gram / count, mean / count, cross / count, size / count)


def last_map(block: Block, sums: HiddenSums, ridge: float) -> Tensor:
    """The last map at its best for the neurons as they are.

    The ridge, a share of the mean of h_i^2, pulls towards the block's own; D (d, n) is in its precision.
    """
    start = block.W2.to(sums.gram)
    factor = torch.linalg.cholesky(damped(sums.gram, ridge))
    change = torch.cholesky_solve(sums.cross - sums.gram @ start.T, factor)
    return (start + change.T).to(block.W2)


def last_map_by_held_out(block: Block, sums: HiddenSums, held_out: HiddenSums) -> Tensor:
    """The last map with the ridge that does best on other rows, or as it is where none does better."""
    return min([*(last_map(block, sums, ridge) for ridge in RIDGES), block.W2], key=held_out.error)


def joint_refit(
    block: Block, fitted: BlockTargets, held_out: BlockTargets, *, epochs: int = EPOCHS, rate: float = RATE,
    seed: int = 0,
) -> Block:  # fmt: skip
    """Gates, factors and the last map together: Adam in the weights, and D at its best for the others in the end.

    Held-out rows decide when it ends, `epochs` at most, how far D follows, and whether the given block is better. The
    rate is the change of a weight in a step, as a share of the root mean square of its matrix and biases; biases that
    are zero in the whole map stay so. The seed is of the order of the rows.
    """
    best, least = block, held_out.error(block)
    generator = torch.Generator().manual_seed(seed)
    affine = [(block.W1, block.b1), *block.factors]
    scales = [root_mean_square(torch.cat([W, b[:, None]], 1)) for W, b in affine]
    bias_scales = [scale if bool(b.any()) else None for scale, (_, b) in zip(scales, affine, strict=True)]
    without_bias = replace(block, b2=torch.zeros_like(block.b2))
    adam = BlockAdam(without_bias, [*scales, root_mean_square(block.W2), *bias_scales, None], DECAY, 1e-12)
    size, count = root_mean_square(fitted.targets), len(fitted.inputs)
    batch = min(BATCH, count)
    steps, step = epochs * (count // batch), 0
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(fitted.inputs.device)
        for chosen in order[: count // batch * batch].split(batch):
            step += 1
            share = min(1.0, step / WARM) * (1 - 0.95 * step / steps)
            adam.step(fitted.inputs[chosen], fitted.targets[chosen], size, rate * share)
        current = replace(adam.result(), b2=block.b2)
        error = held_out.error(current)
        if error < least:
            best, least = current, error
    return replace(best, W2=last_map_by_held_out(best, fitted.moments(best), held_out.moments(best)))


# ---- smaller blocks


def smaller_block(
    block: Block, fitted: BlockTargets, others: BlockTargets, width: int, method: str
) -> tuple[Block, float]:
    """A block with fewer neurons, and the share of its output that is lost where they only are left out.

    magnitude and wanda: the others stay as they are. flap: a bias takes over the means of those that go. surgeon: the
    order of ZipLM and the last map refitted, as in FASP: our combination. ours: see `our_block`.
    """
    if method == "ours":
        return our_block(block, fitted, others, width)
    sums = fitted.moments(block)
    chosen = neurons_that_stay(method, block, sums, width)
    small = narrowed(block, chosen)
    dropped = others.error(small) / others.size()
    if method == "surgeon":
        small = replace(small, W2=last_map(small, sums.take(chosen), DAMPING))
    if method == "flap":
        gone = torch.ones(block.width, dtype=torch.bool, device=chosen.device)
        gone[chosen] = False
        small = replace(small, b2=block.b2 + (block.W2[:, gone].double() @ sums.mean[gone]).to(block.b2))
    return small, dropped


def our_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> tuple[Block, float]:
    """Neurons by the exact cost after refitting, then all weights together, decided on held-out windows.

    The exact cost is that on the rows at hand, which few rows make too good to be true; so the order by what neurons
    carry is tried as well, and held-out windows say which is better once the last map is refitted.
    """
    sums, decisive = fitted.moments(block), others.moments(block)
    candidates: list[tuple[float, Block, float]] = []
    for order in ("surgeon", "wanda"):
        chosen = neurons_that_stay(order, block, sums, width)
        small, its_decisive = narrowed(block, chosen), decisive.take(chosen)
        D = last_map_by_held_out(small, sums.take(chosen), its_decisive)
        candidates.append((its_decisive.error(D), replace(small, W2=D), its_decisive.error(small.W2)))
    _, start, dropped = min(candidates, key=lambda candidate: candidate[0])
    return joint_refit(start, fitted, others), dropped / others.size()


def other_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int, unit: Unit) -> Block:
    """A block of another unit that does what the old one does, as well as it can."""
    order = wanda(block, fitted.moments(block)).argsort(descending=True)
    start = another_unit(block, unit.gate, unit.factors, width, order)
    D = last_map_by_held_out(start, fitted.moments(start), others.moments(start))
    return joint_refit(replace(start, W2=D), fitted, others)


def narrowed(block: Block, neurons: Tensor) -> Block:
    """The block with these neurons alone, their weights as they are."""
    factors = tuple((U[neurons], u[neurons]) for U, u in block.factors)
    return replace(block, W1=block.W1[neurons], b1=block.b1[neurons], W2=block.W2[:, neurons], factors=factors)


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


class BlockModule(nn.Module):
    """A block as a module: D [act(Gx + g) * (Ux + u) * ...] + d, its weights free to move."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        affine = ((block.W1, block.b1), *block.factors, (block.W2, block.b2))
        self.weights = nn.ParameterList(nn.Parameter(W.clone()) for W, _ in affine)
        self.biases = nn.ParameterList(nn.Parameter(b.clone()) for _, b in affine)
        self.activation = block.activation

    def forward(self, x: Tensor) -> Tensor:
        values = [functional.linear(x, W, b) for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True)]
        hidden = math.prod(values[1:], start=self.activation(values[0]))
        return functional.linear(hidden, self.weights[-1], self.biases[-1])
