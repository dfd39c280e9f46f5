"""Blocks under encryption: diagonals against the matrices themselves, errors in parts, refusals."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.feedforward.gates import activation
from gatelab.linearization import linearize
from gatelab.linearization.encrypted_blocks import PackedBlock, encrypt_block
from gatelab.models import GPT2, blocks
from gatelab.models.layouts import Block

needs_tenseal = pytest.mark.skipif(
    importlib.util.find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'"
)


def block_of(n: int, d: int, gated: bool, seed: int = 0) -> Block:
    draw = torch.Generator().manual_seed(seed)
    W1, U = torch.randn(2, n, d, generator=draw, dtype=torch.float64) / d**0.5
    W2 = torch.randn(d, n, generator=draw, dtype=torch.float64) / n**0.5
    b1, b2 = torch.linspace(-0.4, 0.4, n).double(), torch.linspace(-1, 1, d).double()
    return Block("", W1, b1, W2, b2, torch.nn.SiLU(), ((U, torch.zeros(n).double()),) if gated else ())


@needs_tenseal
@pytest.mark.parametrize(("n", "d", "gated"), [(12, 4, False), (10, 4, True), (5, 5, False)])
def test_a_block_under_encryption_is_the_block(n: int, d: int, gated: bool) -> None:
    block, x = block_of(n, d, gated), np.random.default_rng(1).normal(size=d)
    maps = linearize("silu", "minimax", degree=3, interval=6.0)
    assert maps.polynomial is not None
    result = encrypt_block(block, maps.polynomial, activation("silu"), x)
    # The slow twin: plain matrices, the polynomial in between.
    twin = replace(block, activation=maps.polynomial)(torch.from_numpy(x)).numpy()
    assert np.abs(result.values - twin).max() == pytest.approx(result.encryption, abs=1e-14)
    assert result.encryption < 1e-7 and result.levels == 2 + 2 + gated == result.parameters.levels
    assert result.approximation is not None and result.measured <= result.approximation
    assert result.total <= result.approximation + result.encryption and result.parameters.security == 128
    assert result.rotations > 0 and "levels" in repr(result)


def test_diagonals_give_the_product_with_the_matrix() -> None:
    polynomial = linearize("gelu", "minimax", degree=2, interval=(-3.0, 5.0)).polynomial
    assert polynomial is not None
    packed = PackedBlock(block_of(10, 4, True), polynomial)
    x = np.random.default_rng(2).normal(size=4)
    slots = np.resize(x, packed.slots)
    tall = sum(d * np.roll(slots, -k)[: packed.long] for k, d in enumerate(packed.tall(packed.W1)))
    assert np.allclose(tall[:10], packed.W1 @ x) and np.allclose(tall[12:16], tall[:4])
    assert packed.steps == [1, 2, 4, 8]


def test_bad_input_is_refused_before_anything_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatelab.linearization.encryption.SealMachine", None)
    polynomial = linearize("gelu", "minimax", degree=2, interval=0.5).polynomial
    assert polynomial is not None
    gelu, block = activation("gelu"), block_of(12, 4, False)
    with pytest.raises(GatelabError, match=r"of 12 numbers .* lie outside \[-0.5, 0.5\]"):
        encrypt_block(block, polynomial, gelu, 9 * np.ones(4))
    with pytest.raises(GatelabError, match="give the 4 inputs"):
        encrypt_block(block, polynomial, gelu, np.ones(3))
    with pytest.raises(GatelabError, match="as many neurons"):
        encrypt_block(block_of(4, 12, False), polynomial, gelu, np.ones(12))
    with pytest.raises(GatelabError, match="has 2 factors"):
        encrypt_block(blocks(GPT2("tiny", "gqu"))[0], polynomial, gelu, np.ones(32))
