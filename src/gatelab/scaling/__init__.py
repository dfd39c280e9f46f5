"""How the error falls as a unit grows: slopes with intervals, local slopes, the limit, spline baselines."""

from gatelab.scaling.baselines import spline_baseline
from gatelab.scaling.limit import limit
from gatelab.scaling.result import Point, Scaling
from gatelab.scaling.scaling import scaling, scaling_runs
from gatelab.scaling.slopes import Slope, corrected_slope, local_slopes, slope

__all__ = [
    "Point",
    "Scaling",
    "Slope",
    "corrected_slope",
    "limit",
    "local_slopes",
    "scaling",
    "scaling_runs",
    "slope",
    "spline_baseline",
]
