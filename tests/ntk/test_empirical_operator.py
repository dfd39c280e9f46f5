"""The kernel as an operator: the same products, the same eigenvalues, nothing formed."""

from __future__ import annotations

import numpy as np
import pytest
from empirical_models import CASES, case, draw, gpt2, tokens
from torch import nn

from gatelab.errors import GatelabError
from gatelab.ntk import empirical, operator


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_matrix(name):
    model, X, outputs, _ = case(name)
    K = empirical(model, X, outputs).numpy()
    A = operator(model, X, outputs, batch=4)
    assert A.shape == K.shape
    v = draw(len(K), 2, seed=3).numpy()
    # Transformers' ViT takes its softmax in float32 even where all else is float64.
    slack = 1e-6 if name == "vit" else 1e-10
    assert np.allclose(A @ v, K @ v, rtol=slack, atol=slack * np.abs(K @ v).max())
    assert np.allclose(A.T @ v[:, 0], K @ v[:, 0], rtol=slack, atol=slack * np.abs(K @ v).max())


def test_fused_attention_and_sums_over_outputs():
    model, X = gpt2(attn_implementation="sdpa"), {"input_ids": tokens(5, 7, high=19)}
    outputs = lambda out: out.logits[:, -1, :3]  # noqa: E731
    K = empirical(model, X, outputs).numpy()
    v = draw(5, seed=4).numpy()
    assert np.allclose(operator(model, X, outputs) @ v, K @ v, rtol=1e-10, atol=1e-10 * np.abs(K @ v).max())


def test_the_same_models_are_refused():
    with pytest.raises(GatelabError, match="training mode"):
        operator(nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5)), draw(4, 3))
    with pytest.raises(GatelabError, match="batch is 0"):
        operator(nn.Linear(3, 1), draw(4, 3), batch=0)
