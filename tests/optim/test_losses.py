"""Other losses: their quadratic models next to derivatives of autograd, and optima next to other solvers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from gatelab.errors import GatelabError
from gatelab.optim import LevenbergMarquardt
from gatelab.optim.systems import quadratic_model


def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(150, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(150, 3, generator=generator, dtype=torch.float64)
    return x, (x + 1.5 * noise).argmax(1)


def test_the_quadratic_model_has_the_gradient_and_the_hessian() -> None:
    x, y = rows()
    r, root = quadratic_model(lambda z: F.cross_entropy(z, y, reduction="none"), x)
    p = torch.softmax(x, 1)
    torch.testing.assert_close((root @ r[..., None])[..., 0], p - F.one_hot(y, 3))
    fisher = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    difference = torch.linalg.eigvalsh(root @ root.mT - fisher)
    assert float(difference.min()) > -1e-12


def test_huber_has_the_weights_of_reweighted_least_squares() -> None:
    z = torch.tensor([[0.2], [5.0], [-9.0]], dtype=torch.float64)
    r, root = quadratic_model(lambda z: F.huber_loss(z, torch.zeros_like(z), reduction="none"), z)
    assert root[0, 0, 0].item() == pytest.approx(1.0)
    losses = np.array([5.0, 9.0]) - 0.5
    np.testing.assert_allclose(root[1:, 0, 0].square(), 1 / (2 * losses))
    np.testing.assert_allclose((root[:, 0] * r)[:, 0], [0.2, 1.0, -1.0])


def test_cross_entropy_is_that_of_logistic_regression() -> None:
    x, y = rows()
    model = nn.Linear(3, 3).double()
    optimizer = LevenbergMarquardt(model, loss=lambda z: F.cross_entropy(z, y, reduction="none"))
    losses = [optimizer.step(lambda: model(x)) for _ in range(15)]
    peer = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(x.numpy(), y.numpy())
    best = -np.mean(peer.predict_log_proba(x.numpy())[np.arange(len(y)), y.numpy()])
    assert losses[-1] == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "steps"), [("poisson", 12), ("huber", 30)])
def test_other_losses_have_a_gradient_of_zero_in_the_end(name: str, steps: int, seed: int) -> None:
    """Poisson's loss can be negative: a curvature that takes zero for its bound holds rows at zero (seed 2)."""
    torch.manual_seed(seed)
    x, y = rows()
    target = (y.double() * 3)[:, None]

    def loss(z: Tensor) -> Tensor:
        if name == "huber":
            return F.huber_loss(z, target, reduction="none", delta=0.5)
        return F.poisson_nll_loss(z, target, reduction="none")

    model = nn.Linear(3, 1).double()
    optimizer = LevenbergMarquardt(model, loss=loss)
    for _ in range(steps):
        optimizer.step(lambda: model(x))
    gradient = torch.autograd.grad(loss(model(x)).mean(), list(model.parameters()))
    assert max(float(g.abs().max()) for g in gradient) < 1e-5


def test_a_loss_of_all_rows_is_refused() -> None:
    x, y = rows()
    model = nn.Linear(3, 3).double()
    with pytest.raises(GatelabError, match="give one per row, reduction='none'"):
        LevenbergMarquardt(model, loss=lambda z: F.cross_entropy(z, y)).step(lambda: model(x))
    with pytest.raises(GatelabError, match="give loss alone"):
        LevenbergMarquardt(model, loss=lambda z: z, linear="weight")
