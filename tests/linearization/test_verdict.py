"""The verdict: its bound holds for every method, and its upper bound on held-out inputs."""

from __future__ import annotations

import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.feedforward import activation
from gatelab.linearization import verdict
from gatelab.linearization.builders.singular_functions import optimal_maps


def layer(n, N, d, seed=0, directions=None):
    draw = torch.Generator().manual_seed(seed)
    W = torch.randn(n, d, generator=draw, dtype=torch.float64) / d**0.5
    X = torch.randn(N, d, generator=draw, dtype=torch.float64)
    if directions:
        X[:, directions:] *= 1e-3
        X *= (d / directions) ** 0.5
    return W, X


def test_inputs_of_few_directions_are_possible_and_full_ones_are_not():
    thin = verdict("gelu", *layer(200, 1000, 32, directions=2), 0.05)
    assert thin.answer == "possible" and thin.enough < 40 and thin.rank_x < 2.5
    full = verdict("gelu", *layer(60, 1000, 32), 0.01)
    assert full.answer == "impossible" and full.needed >= 60 and full.rank_x > 25
    assert str(full) and "Next: fit maps" in str(thin)


def test_the_bound_holds_for_the_best_maps_and_for_truncation():
    W, X = layer(150, 150, 8)
    found = verdict("gelu", W, X, 0.1)
    Y = activation("gelu")(W @ X.T)
    U, S, Vt = torch.linalg.svd(Y)
    for m in (1, 9):
        truncated = float((Y - (U[:, :m] * S[:m]) @ Vt[:m]).square().mean().sqrt())
        assert found.floor(m) == pytest.approx(truncated, rel=1e-9)
        maps = optimal_maps(activation("gelu"), 8, m=m, w_scale=8**-0.5)
        assert float((Y - maps.phi(W) @ maps.psi(X).T).square().mean().sqrt()) >= found.floor(m)


def test_what_is_enough_is_reached_on_inputs_not_seen():
    W, X = layer(100, 3000, 6)
    found = verdict("gelu", W, X[:1500], 0.05)
    assert found.needed <= found.enough < 100
    known, new = (activation("gelu")(W @ part.T) for part in (X[:1500], X[1500:]))
    U = torch.linalg.svd(known, full_matrices=False).U[:, : found.enough]
    assert float((new - U @ (U.T @ new)).square().mean().sqrt()) < 1.1 * 0.05


def test_too_few_inputs_leave_it_open():
    found = verdict("gelu", *layer(400, 60, 16), 0.01)
    assert found.answer == "open" and "more inputs" in found.advice


def test_a_part_of_a_large_layer_bounds_from_below():
    W, X = layer(600, 900, 8)
    part, whole = verdict("gelu", W, X, 0.02, most=150), verdict("gelu", W, X, 0.02)
    assert part.sampled and not whole.sampled and "a part of it" in str(part)
    assert part.needed <= whole.needed


def test_a_bias_counts():
    W, X = layer(80, 300, 4)
    b = torch.linspace(-2, 2, 80, dtype=torch.float64)
    found = verdict("gelu", W, X, 0.02, bias=b)
    assert found.curve[0] == pytest.approx(float(activation("gelu")(W @ X.T + b[:, None]).square().mean().sqrt()))
    with pytest.raises(GatelabError, match="bias"):
        verdict("gelu", W, X, 0.02, bias=b[:5])


@pytest.mark.parametrize(
    ("W", "X", "error", "says"),
    [
        (torch.ones(3, 2), torch.ones(4, 5), 0.1, "d columns"),
        (torch.ones(3, 2), torch.ones(4, 2), 0.0, "error"),
        (torch.ones(3), torch.ones(4, 2), 0.1, "W is"),
        (torch.ones(3, 2), torch.full((4, 2), float("nan")), 0.1, "not finite"),
        (torch.ones(3, 2), torch.ones(1, 2), 0.1, "one row"),
    ],
)
def test_what_cannot_be_asked(W, X, error, says):
    with pytest.raises(GatelabError, match=says):
        verdict("gelu", W, X, error)
