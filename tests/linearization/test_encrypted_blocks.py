"""Blocks under encryption: diagonals against the matrices themselves, errors in parts, refusals."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.feedforward.gates import activation
from gatelab.linearization import linearize
from gatelab.linearization.encrypted_blocks import BlockWeights, PackedBlock, encrypt_block
from gatelab.models import GPT2, blocks

needs_tenseal = pytest.mark.skipif(
    importlib.util.find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'"
)


def weights(n: int, d: int, gated: bool, seed: int = 0) -> BlockWeights:
    draw = np.random.default_rng(seed)
    U = draw.normal(size=(n, d)) / d**0.5 if gated else None
    W1, W2 = draw.normal(size=(n, d)) / d**0.5, draw.normal(size=(d, n)) / n**0.5
    return BlockWeights(W1, draw.normal(size=n) / 4, W2, draw.normal(size=d), U)


@needs_tenseal
@pytest.mark.parametrize(("n", "d", "gated"), [(12, 4, False), (10, 4, True), (5, 5, False)])
def test_a_block_under_encryption_is_the_block(n: int, d: int, gated: bool) -> None:
    block, x = weights(n, d, gated), np.random.default_rng(1).normal(size=d)
    maps = linearize("silu", "minimax", degree=3, interval=6.0)
    assert maps.polynomial is not None
    result = encrypt_block(block, maps.polynomial, activation("silu"), x)
    # The slow twin: plain matrices, the polynomial in between.
    hidden = maps.polynomial(block.W1 @ x + block.b1)
    if block.U is not None:
        hidden = hidden * (block.U @ x)
    assert np.abs(result.output - (block.W2 @ hidden + block.b2)).max() == pytest.approx(result.encryption, abs=1e-15)
    assert result.encryption < 1e-7 and result.levels == 2 + 2 + gated == result.parameters.levels
    assert result.bound is not None and result.approximation <= result.bound
    assert result.total <= result.bound + result.encryption and result.parameters.security == 128
    assert result.rotations > 0 and "levels" in repr(result)


def test_diagonals_give_the_product_with_the_matrix() -> None:
    block = weights(10, 4, True)
    polynomial = linearize("gelu", "minimax", degree=2, interval=(-3.0, 5.0)).polynomial
    assert polynomial is not None
    packed = PackedBlock(block, polynomial)
    x = np.random.default_rng(2).normal(size=4)
    slots = np.resize(x, packed.slots)
    tall = sum(d * np.roll(slots, -k)[: packed.long] for k, d in enumerate(packed.tall(packed.W1)))
    z = block.W1 @ x
    assert np.allclose(tall[:10] * 4, z) and np.allclose(tall[12:16], tall[:4])
    assert set(packed.steps) == {1, 2, 4, 8}


def test_blocks_of_models_are_read() -> None:
    plain = BlockWeights.of(blocks(GPT2("tiny", "gelu"))[0])
    assert plain.W1.shape == (96, 32) and plain.U is None
    gated = blocks(GPT2("tiny", "swiglu"))[0]
    x = torch.randn(32)
    wanted = gated.W2 @ (torch.tanh(gated.W1 @ x) * (gated.factors[0][0] @ x))
    assert np.allclose(BlockWeights.of(gated).output(x.double().numpy(), np.tanh), wanted.numpy(), atol=1e-6)
    with pytest.raises(GatelabError, match="has 2 factors"):
        BlockWeights.of(blocks(GPT2("tiny", "gqu"))[0])


def test_bad_input_is_refused_before_anything_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatelab.linearization.encrypted_blocks.SealMachine", None)
    polynomial = linearize("gelu", "minimax", degree=2, interval=0.5).polynomial
    assert polynomial is not None
    block = weights(12, 4, False)
    with pytest.raises(GatelabError, match=r"of 12 numbers .* lie outside \[-0.5, 0.5\]"):
        encrypt_block(block, polynomial, activation("gelu"), 9 * np.ones(4))
    with pytest.raises(GatelabError, match="give the 4 inputs"):
        encrypt_block(block, polynomial, activation("gelu"), np.ones(3))
    with pytest.raises(GatelabError, match="W2 has the shape"):
        BlockWeights(block.W1, block.b1, block.W1, block.b2)
    with pytest.raises(GatelabError, match="fewer neurons"):
        BlockWeights(block.W1.T, np.zeros(4), block.W2.T, np.zeros(12))
