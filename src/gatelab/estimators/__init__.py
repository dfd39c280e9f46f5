"""Estimators for scikit-learn: the only package whose calls take arrays first.

- `GatedRegressor`: networks of any unit with scikit-learn's conventions; unit, width, ridge and what each of several
  networks weighs are found by validation.
- `GatedClassifier`: classes by such networks, calibrated; the same conventions.
- `scaling_curve`: the regressor's error against the width, by cross-validation, with the slope.

Parts: `reading` and `columns` make numbers of a table, `frames` makes rows canonical and scales them; `search` is what
both searches share, `squares` the regressor's and `classes` the classifier's, with `likelihood` for its networks;
`trees` grows step gates, `committee` weighs and averages, `estimator` checks, saves and loads.
"""

from gatelab.estimators.classifier import GatedClassifier
from gatelab.estimators.curves import ScalingCurve, scaling_curve
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedClassifier", "GatedRegressor", "ScalingCurve", "scaling_curve"]
