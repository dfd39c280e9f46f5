"""Whole feed-forward blocks under encryption, for one token, its numbers packed into one ciphertext.

    W2 act(W1 x + b1) + b2          two products with matrices, and the activation between them: 1 + L + 1 levels
    W2 (act(G x) * (U x))           gated: one level more

A matrix times a ciphertext is a sum over its diagonals (Halevi and Shoup, CRYPTO 2014): rotated inputs times plain
vectors, one level in all. Rotations by k = g B + b are done as B - 1 of the input and one of each partial sum: a matrix
of d columns needs about 2 sqrt(d) of them. W2 has fewer rows than columns: its diagonals run over the columns in
steps of d, and the parts are added up by rotations. The scale of the activation's interval is part of W1 and b1.

What is proved of the activation bounds the block: |error of output i| <= sum_j |W2_ij| bound, times |u_j| where gated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.encryption import (
    Clock,
    Number,
    Parameters,
    SealMachine,
    check_range,
    circuit_cost,
    parameters_for,
    run_polynomial,
)
from gatelab.linearization.polynomials import Polynomial, values
from gatelab.linearization.proofs import bound
from gatelab.models.layouts import Block


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """A block W2 (act(W1 x + b1) * (U x)) + b2; without U it is not gated.

    Attributes:
        W1: (n, d), into the activation.
        b1: (n,).
        W2: (d, n).
        b2: (d,).
        U: (n, d), or None.
    """

    W1: Array
    b1: Array
    W2: Array
    b2: Array
    U: Array | None = None

    def __post_init__(self) -> None:
        n, d = self.W1.shape
        shapes = {"b1": (n,), "W2": (d, n), "b2": (d,)}
        if self.U is not None:
            shapes["U"] = (n, d)
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise GatelabError(
                    f"{name} has the shape {getattr(self, name).shape}; with W1 of {(n, d)} give {shape}"
                )
        if n < d:
            raise GatelabError(
                f"the block has {n} neurons and {d} inputs; one with fewer neurons than inputs has no use"
            )

    def __repr__(self) -> str:
        gated = ""
        if self.U is not None:
            gated = ", gated"
        return one_line(self, f"{self.W1.shape[0]} neurons, d = {self.W1.shape[1]}{gated}")

    @classmethod
    def of(cls, block: Block) -> BlockWeights:
        """Of a block as `gatelab.models.blocks` gives it, with no factor or with one that has no bias."""

        def plain(tensor: Tensor) -> Array:
            return np.asarray(tensor.detach().double().cpu().numpy())

        if len(block.factors) > 1 or any(bool(u.any()) for _, u in block.factors):
            raise GatelabError(
                f"{block} has {counted(len(block.factors), 'factor')}; give a plain block, or one of a factor U x "
                "without biases"
            )
        W1, b1, W2, b2 = map(plain, (block.W1, block.b1, block.W2, block.b2))
        if block.factors:
            return cls(W1, b1, W2, b2, plain(block.factors[0][0]))
        return cls(W1, b1, W2, b2)

    def factor(self, x: Array) -> Array:
        """U x, or ones."""
        if self.U is None:
            return np.ones(len(self.W1))
        return self.U @ x

    def output(self, x: Array, act: Any) -> Array:
        """The block of one token with that function of pre-activations."""
        return self.W2 @ (act(self.W1 @ x + self.b1) * self.factor(x)) + self.b2


@dataclass(frozen=True, eq=False)
class EncryptedBlock:
    """A block of one token under encryption.

    Attributes:
        output: what came out.
        bound: proved: the polynomial alone changes no output by more than this.
        approximation: measured: the largest change by the polynomial alone.
        encryption: measured: the largest change by encryption alone.
        total: measured: the largest difference from the plain block.
        size: the largest output of the plain block.
        levels: that were used.
        rotations: of ciphertexts.
        seconds: by step.
        bytes: of the ciphertexts sent and returned.
        parameters: with their security level.
    """

    output: Array = field(repr=False)
    bound: float | None
    approximation: float
    encryption: float
    total: float
    size: float
    levels: int
    rotations: int
    seconds: Mapping[str, float]
    bytes: tuple[int, int]
    parameters: Parameters

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{counted(self.levels, 'level')}: off by {self.total:.3g} of {self.size:.3g}, encryption "
            f"{self.encryption:.2g}, {sum(self.seconds.values()):.1f} s",
        )


def encrypt_block(weights: BlockWeights, polynomial: Polynomial, activation: Activation, x: Any) -> EncryptedBlock:
    """A block of one token under encryption, its activation by a polynomial."""
    row = np.asarray(x, dtype=np.float64)
    d = weights.W1.shape[1]
    if row.shape != (d,):
        raise GatelabError(f"the token has the shape {row.shape}; give the {d} inputs of the block")
    check_range(weights.W1 @ row + weights.b1, polynomial.interval)

    def act(z: Array) -> Array:
        return values(activation, z).numpy()

    exact, replaced = weights.output(row, act), weights.output(row, polynomial)
    cost, gated = circuit_cost(polynomial.chebyshev), weights.U is not None
    packed = PackedBlock(weights, polynomial)
    sizes = (np.abs(polynomial.chebyshev).sum(), np.abs(replaced).max(), np.abs(weights.factor(row)).max())
    parameters = parameters_for(cost.levels + 2 + gated, largest=float(max(sizes)), slots=packed.slots)
    clock = Clock()
    machine = SealMachine(parameters, packed.steps)
    clock.note("keys")
    sent = machine.encrypt(np.resize(row, packed.slots))
    clock.note("encryption")
    hidden = run_polynomial(machine, packed.first(machine, sent), polynomial.chebyshev, cost.baby)
    if gated:
        hidden = machine.product(hidden, packed.second(machine, sent))
    result = packed.last(machine, hidden)
    clock.note("evaluation")
    output = machine.decrypt(result, d)
    clock.note("decryption")
    try:
        proved = float((np.abs(weights.W2) @ np.abs(weights.factor(row))).max() * bound(polynomial, activation).value)
    except GatelabError:
        proved = None
    return EncryptedBlock(
        output=output,
        bound=proved,
        approximation=float(np.abs(replaced - exact).max()),
        encryption=float(np.abs(output - replaced).max()),
        total=float(np.abs(output - exact).max()),
        size=float(np.abs(exact).max()),
        levels=result.level,
        rotations=packed.rotations,
        seconds=clock.seconds,
        bytes=(machine.size(sent), machine.size(result)),
        parameters=parameters,
    )


class PackedBlock:
    """The matrices of a block as diagonals: n is rounded up to a multiple of d, and hidden numbers repeat after n."""

    def __init__(self, weights: BlockWeights, polynomial: Polynomial) -> None:
        neurons, self.d = weights.W1.shape
        self.n = self.d * math.ceil(neurons / self.d)
        more = self.n - neurons
        low, high = polynomial.interval
        half, middle = (high - low) / 2, (high + low) / 2
        self.W1 = np.pad(weights.W1 / half, ((0, more), (0, 0)))
        self.b1 = np.pad((weights.b1 - middle) / half, (0, more))
        self.U = None
        if weights.U is not None:
            self.U = np.pad(weights.U, ((0, more), (0, 0)))
        self.W2, self.b2 = np.pad(weights.W2, ((0, 0), (0, more))), weights.b2
        self.baby = math.isqrt(self.d - 1) + 1
        self.long = self.n + self.d  # hidden numbers, those that repeat included
        self.slots = self.long + 2 * self.d + self.baby
        self.rotations = 0

    @property
    def steps(self) -> list[int]:
        """By how many slots ciphertexts are rotated."""
        giants = range(self.baby, self.d, self.baby)
        return sorted({*range(1, self.baby), *giants, *range(self.d, self.n, self.d)})

    def rotated(self, machine: SealMachine, a: Number, steps: int) -> Number:
        """A rotation, counted."""
        self.rotations += steps > 0
        return machine.rotated(a, steps)

    def matrix(self, machine: SealMachine, a: Number, diagonals: Array) -> Number:
        """sum_k diagonals[k] * (a rotated by k): B - 1 rotations of a, and one of each sum of B."""
        inputs = [self.rotated(machine, a, b) for b in range(min(self.baby, len(diagonals)))]
        total = None
        for g in range(0, len(diagonals), self.baby):
            part = diagonals[g : g + self.baby]
            terms = [(np.concatenate([np.zeros(g), part[b]]), inputs[b]) for b in range(len(part)) if part[b].any()]
            if not terms:
                continue
            product = self.rotated(machine, machine.combination(terms, 0.0), g)
            if total is not None:
                product = machine.add(total, product)
            total = product
        if total is None:
            raise GatelabError("a matrix of the block is zero; there is nothing to encrypt")
        return total

    def tall(self, M: Array) -> Array:
        """Diagonals k of a matrix (n, d): entry i belongs to output i, those beyond n repeat."""
        i = np.arange(self.long)
        return np.stack([M[i % self.n, (i + k) % self.d] for k in range(self.d)])

    def first(self, machine: SealMachine, a: Number) -> Number:
        """(W1 x + b1) on [-1, 1] over the polynomial's interval."""
        return machine.shifted(self.matrix(machine, a, self.tall(self.W1)), self.b1[np.arange(self.long) % self.n])

    def second(self, machine: SealMachine, a: Number) -> Number:
        """U x."""
        assert self.U is not None
        return self.matrix(machine, a, self.tall(self.U))

    def last(self, machine: SealMachine, a: Number) -> Number:
        """W2 h + b2 in the first d slots."""
        j = np.arange(self.n)
        diagonals = np.stack([self.W2[j % self.d, (j + k) % self.n] for k in range(self.d)])
        parts = self.matrix(machine, a, diagonals)
        total = parts
        for m in range(self.d, self.n, self.d):
            total = machine.add(total, self.rotated(machine, parts, m))
        return machine.shifted(total, self.b2)
