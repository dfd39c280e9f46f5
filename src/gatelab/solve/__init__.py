"""HOW we fit: `fit` with its solvers, and the constructions.

- `knots` (1-D, relu gates): splines with free knots; `frozen` keeps the gates where they start.
- `varpro` (any unit, any dimension): what is linear is eliminated, neurons come and go; many fits in one batch.
- `newton`: the paper's own method. `adam`, `lbfgs`: from torch, for comparison and for every other unit.
- `construct`: parameters written down from f, with the predicted error.
"""

from gatelab.solve.constructions import Construction, construct
from gatelab.solve.fits import SOLVERS, Fit, fit, fit_many, predict, rmse
from gatelab.solve.solution import Solution, Status

__all__ = ["SOLVERS", "Construction", "Fit", "Solution", "Status", "construct", "fit", "fit_many", "predict", "rmse"]
