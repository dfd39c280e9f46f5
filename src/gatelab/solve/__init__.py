"""HOW we fit: `fit` with its solvers, and the constructions.

- `knots` (1-D, relu gates): splines with free knots; `frozen` keeps the gates where they start.
- `newton`: the paper's own method. `adam`, `lbfgs`: from torch, for comparison and for every other unit.
- `construct`: parameters written down from f, with the predicted error.
"""

from gatelab.solve.construct import Construction, construct
from gatelab.solve.fit import SOLVERS, Fit, fit, predict, rmse
from gatelab.solve.solution import Solution, Status

__all__ = ["SOLVERS", "Construction", "Fit", "Solution", "Status", "construct", "fit", "predict", "rmse"]
