"""Expected errors: free-knot limits, rates and constants of constructions, without training."""

from gatelab.theory.derivatives import PiecewiseChebyshev, interpolate
from gatelab.theory.limits import (
    constant,
    construction_constant,
    estimation_rmse,
    free_knot_rmse,
    noise_of_data,
    norm_of_data,
    norm_of_function,
    ridge_rate,
    worst_case_rate,
)
from gatelab.theory.smooth_gates import Singularities, green, singularities, smooth_error

__all__ = [
    "PiecewiseChebyshev",
    "Singularities",
    "constant",
    "construction_constant",
    "estimation_rmse",
    "free_knot_rmse",
    "green",
    "interpolate",
    "noise_of_data",
    "norm_of_data",
    "norm_of_function",
    "ridge_rate",
    "singularities",
    "smooth_error",
    "worst_case_rate",
]
