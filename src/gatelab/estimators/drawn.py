"""Networks whose gates are drawn and not trained: one linear problem, solved to the last digit.

Smooth gates that are nearly lines across the data span, in few dimensions, nearly the polynomials: a smooth target is
then reproduced to eight digits by a wide network that needs no descent. In many dimensions trained gates win by far.
The columns are dependent to all digits, so the problem is solved by QR with pivots and what is below 1e-15 left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.linalg import lstsq

from gatelab.estimators.frame import Rows
from gatelab.linalg.interruptible import apart
from gatelab.solve.features import ProductModel
from gatelab.units import Network, Unit

_RANK = 1e-15


def neuron_columns(unit: Unit, rows: Rows) -> int:
    """How many columns of the linear problem a neuron brings; zero where gates have no gentle form."""
    model = _model(unit, rows, 1)
    if model.homogeneous[0]:
        return 0
    return model.x.shape[1] if model.lines else 1


def drawn(unit: Unit, rows: Rows, width: int, steepness: float, seed: int) -> Network:
    """A network of gates with slopes up to `steepness`, each centred at a row, fitted to rows of unit variance.

    >>> from gatelab.units import unit
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> y = np.sin(2 * x[:, :1] * x[:, 1:])
    >>> net = drawn(unit("geglu"), Rows(x, y, np.ones(500)), 64, 2.0, seed=0)
    >>> bool(np.abs(net(torch.tensor(x)).detach().numpy() - y).max() < 1e-6)
    True
    """
    model = _model(unit, rows, width)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(model.maps, width, model.x.shape[1], generator=generator, dtype=torch.float64)
    gate = theta[0]
    slope = 0.5 * steepness * (1 + torch.rand(width, 1, generator=generator, dtype=torch.float64))
    gate[:, :-1] *= slope / gate[:, :-1].norm(dim=-1, keepdim=True)
    through = model.x[torch.randint(len(rows), (width,), generator=generator), :-1]
    gate[:, -1] = -(gate[:, :-1] * through).sum(-1)
    theta = model.normalised(theta[None])
    F = model.columns(theta)[0].numpy()
    length = np.linalg.norm(F, axis=0)
    length[length == 0] = 1.0
    weighted = rows.y * np.sqrt(rows.weight)[:, None]
    solved: Any = apart(lstsq, F / length, weighted, cond=_RANK, lapack_driver="gelsy", check_finite=False)
    c = solved[0]
    return model.network(theta, torch.tensor(c / length[:, None])[None], 0, width)


def _model(unit: Unit, rows: Rows, width: int) -> ProductModel:
    x = torch.tensor(np.concatenate([rows.x, np.ones((len(rows), 1))], axis=1))
    present = torch.ones(1, width, dtype=torch.bool)
    root = torch.tensor(np.sqrt(rows.weight))[None]
    return ProductModel(unit, x, torch.tensor(rows.y), present, torch.zeros(1, dtype=torch.float64), root)
