"""scikit-learn's door: the only room where arrays come first.

- `GatedRegressor`: a network of any unit with scikit-learn's conventions; width and ridge chosen by validation.
- `GatedClassifier`: classes by such networks, calibrated; the same conventions.
- `scaling_curve`: the regressor's error against the width, by cross-validation, with the slope.

Parts: `frames` makes rows canonical and scales them, fits networks whose gates are not trained, and saves and loads;
`search` chooses. Of the classifier, `likelihood` has the solvers and `committee` the choice and the average.
"""

from gatelab.estimators.classifier import GatedClassifier
from gatelab.estimators.curves import ScalingCurve, scaling_curve
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedClassifier", "GatedRegressor", "ScalingCurve", "scaling_curve"]
