"""Batched least squares against LAPACK, at every condition number and with columns that are not there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linalg import least_squares
from gatelab.linalg.least_squares import SpreadColumns, cholesky_qr, gram, project


def matrices(log_condition: float, batch: int = 3, rows: int = 400, columns: int = 30, seed: int = 0) -> Tensor:
    """Tall matrices with singular values from 1 down to 10^-log_condition, mixed so that columns look alike."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.linalg.qr(torch.randn(batch, rows, columns, generator=generator, dtype=torch.float64))[0]
    V = torch.linalg.qr(torch.randn(batch, columns, columns, generator=generator, dtype=torch.float64))[0]
    return (U * torch.logspace(0, -log_condition, columns, dtype=torch.float64)) @ V.mT


def targets(F: Tensor, noise: float, outputs: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    c = torch.randn(len(F), F.shape[2], outputs, generator=generator, dtype=torch.float64)
    return F @ c + noise * torch.randn(len(F), F.shape[1], outputs, generator=generator, dtype=torch.float64)


def none(F: Tensor) -> Tensor:
    return torch.zeros(F.shape[0], F.shape[2], dtype=torch.float64)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("log_condition", [0, 3, 6, 8, 10])
def test_residuals_are_those_of_the_singular_value_decomposition(log_condition: float, outputs: int) -> None:
    F = matrices(log_condition)
    y = targets(F, noise=1e-8, outputs=outputs)
    found = project(F, y, none(F))
    for i in range(len(F)):
        exact = y[i] - F[i] @ torch.linalg.lstsq(F[i], y[i], rcond=1e-15, driver="gelsd").solution
        assert found.residual[i].norm() <= exact.norm() * (1 + 1e-6)
        assert found.loss[i] == pytest.approx(float(exact.square().sum()), rel=1e-6)


def test_a_member_does_not_feel_the_rest_of_the_batch() -> None:
    F = torch.cat([matrices(2, batch=2), matrices(11, batch=2)])
    y = targets(F, 1e-3)
    whole = project(F, y, none(F))
    assert whole.careful.tolist() == [False, False, True, True], "well-conditioned members are spared QR"
    for i in range(len(F)):
        alone = project(F[i : i + 1], y[i : i + 1], none(F[i : i + 1]))
        torch.testing.assert_close(alone.coefficients[0], whole.coefficients[i], rtol=1e-4 if i > 1 else 1e-12, atol=0)


def test_columns_of_zeros_and_copies() -> None:
    F = matrices(1, columns=6)
    full = torch.cat([F, torch.zeros_like(F[..., :2]), F[..., :1]], -1)
    y = targets(F, noise=0.1)
    found, plain = project(full, y, none(full)), project(F, y, none(F))
    assert torch.allclose(found.residual, plain.residual, atol=1e-10)
    assert bool((found.coefficients[:, 6:8] == 0).all())
    assert bool(torch.isfinite(found.coefficients).all())


@pytest.mark.parametrize("log_condition", [1, 9])
def test_penalty_is_that_of_augmented_rows(log_condition: float) -> None:
    F = matrices(log_condition, columns=8)
    y = targets(F, noise=0.1)
    penalty = torch.logspace(-6, -1, 8, dtype=torch.float64).expand(len(F), -1)
    found = project(F, y, penalty)
    rows = torch.cat([F, torch.diag_embed(penalty.sqrt())], 1)
    exact = torch.linalg.lstsq(rows, torch.cat([y, torch.zeros(len(F), 8, 1, dtype=torch.float64)], 1)).solution
    assert torch.allclose(found.coefficients, exact, rtol=1e-7, atol=1e-9)
    assert torch.allclose(
        found.loss, (F @ exact - y).square().sum((1, 2)) + (penalty[..., None] * exact**2).sum((1, 2))
    )


@pytest.mark.parametrize("log_condition", [1, 5, 8, 10])
def test_reduced_gram_is_that_of_the_projected_matrix(log_condition: float) -> None:
    F = matrices(log_condition)
    J = F[..., :5] + 1e-4 * torch.randn(3, 400, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    Q = torch.linalg.qr(F)[0]
    left = J - Q @ (Q.mT @ J)
    exact = left.mT @ left
    found = project(F, targets(F, 1e-3), none(F)).reduced_gram(F, J)
    assert bool((found - exact).norm() < 1e-5 * exact.norm())


@pytest.mark.parametrize("log_condition", [0, 7, 12, 14])
def test_cholesky_qr_is_orthonormal_where_plain_cholesky_fails(log_condition: float) -> None:
    A = matrices(log_condition)
    Q, R = cholesky_qr(A)
    eye = torch.eye(30, dtype=torch.float64)
    assert bool((Q.mT @ Q - eye).abs().max() < 1e-12)
    assert bool((Q @ R - A).abs().max() < 1e-13)
    assert bool((R.tril(-1).abs() < 1e-14).all())
    assert (int(torch.linalg.cholesky_ex(A.mT @ A).info.max()) > 0) == (log_condition > 9)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("columns", [1, 96, 97, 129, 193, 250, 400])
def test_gram_in_blocks(columns: int, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_squares, "on_gpu", lambda A: gpu)
    A = torch.randn(2, 40, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(gram(A), A.mT @ A, atol=1e-12)


@pytest.mark.parametrize("log_condition", [0, 3, 6, 8, 10])
def test_what_a_gpu_is_given_comes_to_the_same(log_condition: float, monkeypatch: pytest.MonkeyPatch) -> None:
    F = matrices(log_condition, columns=70)
    y, J = targets(F, noise=1e-3), matrices(1, columns=9, seed=5)
    plain = project(F, y, none(F))
    K = plain.reduced_gram(F, J)
    monkeypatch.setattr(least_squares, "on_gpu", lambda A: True)
    blocked = project(F, y, none(F))
    assert blocked.careful.tolist() == plain.careful.tolist()
    assert torch.allclose(blocked.loss, plain.loss, rtol=1e-9)
    assert torch.allclose(blocked.residual, plain.residual, atol=1e-9)
    assert bool((blocked.reduced_gram(F, J) - K).norm() < 1e-6 * K.norm())


@pytest.mark.parametrize("weighted", [False, True])
def test_products_without_the_matrix_are_those_with_it(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    h = torch.randn(3, 50, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    last = torch.rand(3 if weighted else 1, 50, 1, generator=generator, dtype=torch.float64)
    F = torch.cat([(h[..., None] * x[:, None]).flatten(-2), last.expand(3, -1, -1)], -1)
    y, c = (torch.randn(3, k, 1, generator=generator, dtype=torch.float64) for k in (50, 13))
    spread = SpreadColumns(h, x, last)
    assert torch.allclose(spread.times(c), F @ c, atol=1e-13)
    assert torch.allclose(spread.transposed_times(y), F.mT @ y, atol=1e-13)
    without, dense = project(F, y, none(F), spread=spread), project(F, y, none(F))
    assert torch.allclose(without.coefficients, dense.coefficients, atol=1e-12)
    assert torch.allclose(without.loss, dense.loss, rtol=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused_and_not_shifted_for_ever(value: float) -> None:
    F, y = torch.randn(2, 20, 3, dtype=torch.float64), torch.randn(2, 20, 1, dtype=torch.float64)
    F[1, 3, 1] = value
    with pytest.raises(GatelabError, match="NaN or infinite"):
        project(F, y, torch.zeros(2, 3, dtype=torch.float64))
