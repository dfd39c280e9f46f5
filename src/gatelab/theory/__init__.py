"""WHAT TO EXPECT: free-knot limits, rates and constants of constructions; pure functions, no training."""

from gatelab.theory.derivatives import PiecewiseChebyshev, derivative, interpolate
from gatelab.theory.limits import (
    constant,
    construction_constant,
    free_knot_rmse,
    norm_of_data,
    norm_of_function,
    uniform_knot_rmse,
)

__all__ = [
    "PiecewiseChebyshev",
    "constant",
    "construction_constant",
    "derivative",
    "free_knot_rmse",
    "interpolate",
    "norm_of_data",
    "norm_of_function",
    "uniform_knot_rmse",
]
