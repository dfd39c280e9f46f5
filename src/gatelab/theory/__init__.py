"""Expected errors: free-knot limits, rates in many dimensions and of smooth gates, without training."""

from gatelab.theory.derivatives import PiecewiseChebyshev, interpolate
from gatelab.theory.limits import constant, worst_case_rate
from gatelab.theory.smooth_gates import Singularities, green, singularities, smooth_error

__all__ = [
    "PiecewiseChebyshev",
    "Singularities",
    "constant",
    "green",
    "interpolate",
    "singularities",
    "smooth_error",
    "worst_case_rate",
]
