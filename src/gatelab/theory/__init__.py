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

__all__ = [
    "PiecewiseChebyshev",
    "constant",
    "construction_constant",
    "estimation_rmse",
    "free_knot_rmse",
    "interpolate",
    "noise_of_data",
    "norm_of_data",
    "norm_of_function",
    "ridge_rate",
    "worst_case_rate",
]
