"""Losses other than squares as least squares: their second-order model in the outputs (generalized Gauss-Newton).

A loss has one value per row of outputs z (N, C). With its gradient g and Hessian H = V diag(e) V^T by the outputs of a
row, g d + d H d / 2 is, up to a constant, half of |root^T d + r|^2, root = V diag(sqrt e), r = V^T g / sqrt e. An e is
raised where the model would promise more than the loss of the row, g^2 / (2 e) > loss: for Huber's loss this gives the
weights of iteratively reweighted least squares, where H is zero and g is not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gatelab.errors import GatelabError

RowLoss = Callable[[Tensor], Tensor]


def row_losses(loss: RowLoss, outputs: Tensor) -> Tensor:
    """The loss of each row (N,)."""
    values = loss(outputs)
    if values.shape[:1] != outputs.shape[:1]:
        shape = tuple(values.shape)
        raise GatelabError(
            f"the loss of outputs {tuple(outputs.shape)} has shape {shape}; give one per row, reduction='none'"
        )
    return values.reshape(len(values), -1).sum(1)


def quadratic_model(loss: RowLoss, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """r (N, C) and root (N, C, C) at these outputs."""
    z = outputs.detach().reshape(len(outputs), -1).requires_grad_()
    values = row_losses(loss, z.view_as(outputs))
    (g,) = torch.autograd.grad(values.sum(), z, create_graph=True)
    columns = [torch.zeros_like(z)] * z.shape[1]
    if g.requires_grad:
        columns = [torch.autograd.grad(g[:, k].sum(), z, retain_graph=True)[0] for k in range(z.shape[1])]
    e, V = torch.linalg.eigh(torch.stack(columns, 1))
    along = (V.mT @ g.detach()[..., None])[..., 0]
    tiny = torch.finfo(z.dtype).tiny ** 0.5
    least = along.square() / (2 * values.detach().clamp_min(tiny)[:, None])
    # Without a positive loss there is no bound; a flat direction then has no step.
    e = torch.where(values.detach()[:, None] > 0, torch.maximum(e, least), e).clamp_min(tiny)
    r = torch.where(e > tiny, along / e.sqrt(), 0.0)
    return r, V * e.sqrt()[:, None, :]
