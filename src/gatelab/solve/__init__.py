"""Fits: `fit` with its solvers, and the constructions.

- `knots` (1-D, relu gates): splines with free knots; `frozen` keeps the gates where they start.
- `varpro` (any unit, any dimension): linear parameters are eliminated, neurons are exchanged; many fits in one batch.
- `newton`: Newton's method, after the paper. `adam`, `lbfgs`: from torch, for comparison and for every other unit.
- `construct`: parameters written down from f, with the predicted error.

A solver is a file in `solvers/`; the modules of this folder are shared by several solvers.
"""

from typing import TYPE_CHECKING

from gatelab.lazy import import_on_use

if TYPE_CHECKING:
    from gatelab.solve.constructions import Construction, construct
    from gatelab.solve.fits import Fit, fit, fit_many, predict, rmse
    from gatelab.solve.solution import Solution, Status
    from gatelab.solve.solvers import SOLVERS

# On first use: the names of the solvers are listed without torch.
import_on_use(
    __name__,
    {
        "constructions": ("Construction", "construct"),
        "fits": ("Fit", "fit", "fit_many", "predict", "rmse"),
        "solution": ("Solution", "Status"),
        "solvers": ("SOLVERS",),
    },
)

__all__ = ["SOLVERS", "Construction", "Fit", "Solution", "Status", "construct", "fit", "fit_many", "predict", "rmse"]
