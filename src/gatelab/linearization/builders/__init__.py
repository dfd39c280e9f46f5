"""The methods of `gatelab.linearize`: every module in this folder is imported when a method is first asked for.

A new method is a new file. A function from a gate to a `Polynomial` is decorated with `polynomial_method`, a function
from a gate and a number of inputs to `Maps` with `maps_method`; both are in `gatelab.linearization.registry`. That is
enough for `gatelab.linearize`, for `methods()`, for `gatelab linearize --method` and for the tests of all methods.
"""
