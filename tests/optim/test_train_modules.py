"""Many modules in one batch, next to one at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.optim import LevenbergMarquardt, train_modules


def models() -> tuple[list[nn.Module], Tensor]:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    return [nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)).double() for _ in range(3)], x


def test_each_member_is_trained_as_it_would_be_alone() -> None:
    starts, x = models()
    trained = train_modules(starts, lambda model: model(x) - torch.sin(3 * x), steps=6)
    alone = [train_modules([model], lambda model: model(x) - torch.sin(3 * x), steps=6).losses[0] for model in starts]
    assert trained.losses == pytest.approx(sorted(alone), rel=1e-6)
    best = (trained.best(x) - torch.sin(3 * x)).square().mean().item()
    assert best == pytest.approx(trained.losses[0], rel=1e-9)


def test_the_first_accepted_step_is_that_of_the_optimizer() -> None:
    starts, x = models()
    by_steps = [train_modules(starts[:1], lambda m: m(x) - torch.sin(3 * x), steps=n).losses[0] for n in range(7)]
    optimizer = LevenbergMarquardt(starts[0], acceleration=False)
    first = next(loss for loss in by_steps if loss < by_steps[0])
    assert first == pytest.approx(optimizer.step(lambda: starts[0](x) - torch.sin(3 * x)), rel=1e-9)


def test_no_models_and_residuals_that_are_not_finite_are_refused() -> None:
    starts, x = models()
    with pytest.raises(GatelabError, match="models is empty"):
        train_modules([], lambda model: model(x))
    with pytest.raises(GatelabError, match="not finite"):
        train_modules(starts, lambda model: model(x) / 0)
    with pytest.raises(GatelabError, match="the parameters are float16 on cpu"):
        train_modules([nn.Linear(1, 1).half()], lambda model: model(x.half()))
