"""Feed-forward blocks of one token under encryption, its numbers packed into one ciphertext.

    W2 act(W1 x + b1) + b2          two products with matrices, and the activation between them: 1 + L + 1 levels
    W2 (act(G x) * (U x))           gated: one more level

A matrix times a ciphertext is a sum over its diagonals (Halevi and Shoup, CRYPTO 2014): rotated inputs times plain
vectors, one level in total. Rotations by k = g B + b take B - 1 rotations of the input and one of each partial sum,
about 2 sqrt(d) for a matrix of d columns. W2 has fewer rows than columns: its diagonals run over the columns in steps
of d, and rotations add up the parts. The scale of the activation's interval is part of W1 and b1.

The proved bound of the activation bounds the block: |error of output i| <= sum_j |W2_ij| bound, times |u_j| if gated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.circuits import CircuitForm, Number
from gatelab.linearization.encryption import Encrypted, SealMachine, check_range, evaluate, parameters_for, proved_bound
from gatelab.linearization.polynomials import Polynomial, to_unit, values
from gatelab.models.layouts import Block


def encrypt_block(block: Block, polynomial: Polynomial, activation: Activation, x: Any) -> Encrypted:
    """A block of one token under encryption, its activation by a polynomial.

    Args:
        block: a block of `gatelab.models.blocks` with at most one factor, which has no bias.
        polynomial: the polynomial that replaces the activation.
        activation: the activation.
        x: the token, d numbers.

    Returns:
        An `Encrypted`; its `approximation` is a proved bound on the error of the block's outputs.
    """
    packed, row = PackedBlock(block, polynomial), np.asarray(x, dtype=np.float64)
    if row.shape != (packed.d,):
        raise GatelabError(f"the token has the shape {row.shape}; give the {packed.d} inputs of the block")
    check_range(packed.before(row), polynomial.interval)
    approximate, factor = packed.plain(row, polynomial), np.abs(packed.factor(row))
    sizes = (np.abs(polynomial.chebyshev).sum(), np.abs(approximate).max(), factor.max())
    levels = packed.form.cost.levels + 2 + (packed.U is not None)
    return evaluate(
        packed.run,
        [np.resize(row, packed.slots)],
        parameters_for(levels, largest=float(max(sizes)), slots=packed.slots),
        exact=packed.plain(row, lambda z: values(activation, z).numpy()),
        approximate=approximate,
        proved=proved_bound(polynomial, activation, (np.abs(packed.W2) @ factor).max()),
        rotations=packed.steps,
    )


class PackedBlock:
    """The matrices of a block as diagonals; n is rounded up to a multiple of d, and hidden numbers repeat after n."""

    def __init__(self, block: Block, polynomial: Polynomial) -> None:
        if len(block.factors) > 1 or any(bool(u.any()) for _, u in block.factors):
            raise GatelabError(
                f"{block} has {counted(len(block.factors), 'factor')}; give a plain block, or one of a factor U x "
                "without biases"
            )
        neurons, self.d = block.W1.shape
        if neurons < self.d:
            raise GatelabError(
                f"the block has {neurons} neurons and {self.d} inputs; give one with at least as many neurons as inputs"
            )
        self.n = self.d * math.ceil(neurons / self.d)

        def plain(tensor: Tensor) -> Array:
            return np.asarray(tensor.detach().double().cpu().numpy())

        self.W1, self.b1, self.W2, self.b2 = map(plain, (block.W1, block.b1, block.W2, block.b2))
        self.U = plain(block.factors[0][0]) if block.factors else None
        self.form, self.interval = CircuitForm.of(polynomial), polynomial.interval
        self.baby = math.isqrt(self.d - 1) + 1
        self.long = self.n + self.d  # hidden numbers, including the repeated ones
        self.slots = self.long + 2 * self.d + self.baby
        # The numbers of slots by which ciphertexts are rotated.
        giants = range(self.baby, self.d, self.baby)
        self.steps = sorted({*range(1, self.baby), *giants, *range(self.d, self.n, self.d)})

    def before(self, x: Array) -> Array:
        """The pre-activations of a token."""
        return self.W1 @ x + self.b1

    def factor(self, x: Array) -> Array:
        """U x, or ones."""
        if self.U is None:
            return np.ones(len(self.W1))
        return self.U @ x

    def plain(self, x: Array, act: Callable[[Array], Array]) -> Array:
        """The block of one token without encryption, with `act` as its activation."""
        return self.W2 @ (act(self.before(x)) * self.factor(x)) + self.b2

    def run(self, machine: SealMachine, x: Number) -> Number:
        """The block of a ciphertext that repeats the token."""
        low, high = self.interval
        first = self.matrix(machine, x, self.tall(self.W1 / ((high - low) / 2)))
        b1 = np.pad(to_unit(self.b1, self.interval), (0, self.n - len(self.b1)))
        hidden = self.form.run(machine, machine.shift(first, b1[np.arange(self.long) % self.n]))
        if self.U is not None:
            hidden = machine.product(hidden, self.matrix(machine, x, self.tall(self.U)))
        j, W2 = np.arange(self.n), np.pad(self.W2, ((0, 0), (0, self.n - len(self.W1))))
        diagonals = np.stack([W2[j % self.d, (j + k) % self.n] for k in range(self.d)])
        parts = self.matrix(machine, hidden, diagonals)
        turned = [machine.rotate(parts, m) for m in range(self.d, self.n, self.d)]
        return machine.shift(reduce(machine.add, turned, parts), self.b2)

    def matrix(self, machine: SealMachine, a: Number, diagonals: Array) -> Number:
        """sum_k diagonals[k] * (a rotated by k): B - 1 rotations of a, and one of each sum of B."""
        inputs = [machine.rotate(a, b) for b in range(min(self.baby, len(diagonals)))]
        products = []
        for g in range(0, len(diagonals), self.baby):
            part = diagonals[g : g + self.baby]
            terms = [(np.concatenate([np.zeros(g), part[b]]), inputs[b]) for b in range(len(part)) if part[b].any()]
            if terms:
                products.append(machine.rotate(machine.combination(terms, 0.0), g))
        return reduce(machine.add, products)

    def tall(self, M: Array) -> Array:
        """Diagonals k of a matrix (n, d): entry i belongs to output i; entries beyond n repeat."""
        M, i = np.pad(M, ((0, self.n - len(M)), (0, 0))), np.arange(self.long)
        return np.stack([M[i % self.n, (i + k) % self.d] for k in range(self.d)])
