"""scikit-learn's door: the only room where arrays come first.

- `GatedRegressor`: a network of any unit with scikit-learn's conventions; width and ridge chosen by validation.
- `scaling_curve`: its error against the width, by cross-validation, with the slope.

Parts: `frames` makes rows canonical and scales them, fits networks whose gates are not trained, and saves and loads;
`search` chooses.
"""

from gatelab.estimators.curves import ScalingCurve, scaling_curve
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedRegressor", "ScalingCurve", "scaling_curve"]
