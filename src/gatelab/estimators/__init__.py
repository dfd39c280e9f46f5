"""Estimators for scikit-learn: the only package whose calls take arrays first.

`reading` and `columns` encode a table as numbers, `frames` sorts and scales the rows; `search` is the base of the
regressor's search in `squares` and of the classifier's in `classes`, with `likelihood` for its networks; `trees` grows
step gates, `estimator` checks, saves and loads.
"""

from gatelab.estimators.classifier import GatedClassifier
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedClassifier", "GatedRegressor"]
