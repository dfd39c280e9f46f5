"""Estimators for scikit-learn: the only package whose calls take arrays first."""

from gatelab.estimators.classifier import GatedClassifier
from gatelab.estimators.regressor import GatedRegressor

__all__ = ["GatedClassifier", "GatedRegressor"]
