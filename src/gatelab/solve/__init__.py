"""Fits: `fit` with its solvers, one file each in `solvers/`, and the constructions."""

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
