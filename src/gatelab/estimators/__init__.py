"""scikit-learn's door: the only room where arrays come first.

- `GatedRegressor`: networks of any unit with scikit-learn's conventions; unit, width, ridge and what each of several
  networks weighs are found by validation.
- `GatedClassifier`: classes by such networks, calibrated; the same conventions.
- `scaling_curve`: the regressor's error against the width, by cross-validation, with the slope.

Parts: `columns` makes numbers of a table; `frames` makes rows canonical and scales them, fits networks whose gates are
not trained, and saves and loads; `steps` grows networks of step gates; `search` chooses, `members` weighs. For classes
`likelihood` descends and `committee` chooses and averages.
"""

from gatelab.estimators.classifier import GatedClassifier
from gatelab.estimators.curves import ScalingCurve, scaling_curve
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedClassifier", "GatedRegressor", "ScalingCurve", "scaling_curve"]
