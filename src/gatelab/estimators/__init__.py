"""scikit-learn's door: the only room where arrays come first.

- `GatedRegressor`: networks of any unit with scikit-learn's conventions; unit, width, ridge and what each of several
  networks weighs are found by validation.
- `scaling_curve`: its error against the width, by cross-validation, with the slope.

Parts: `columns` makes numbers of a table; `frames` makes rows canonical and scales them, fits networks whose gates are
not trained, and saves and loads; `steps` grows networks of step gates; `search` chooses, `members` weighs.
"""

from gatelab.estimators.curves import ScalingCurve, scaling_curve
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedRegressor", "ScalingCurve", "scaling_curve"]
