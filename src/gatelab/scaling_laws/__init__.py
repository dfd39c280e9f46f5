"""How the error falls as a unit grows: slopes with intervals, local slopes, the limit, spline baselines.

And as data grow too: the law in P and D.
"""

from gatelab.scaling_laws.curves import scaling, scaling_runs
from gatelab.scaling_laws.laws import Law, fit_law
from gatelab.scaling_laws.result import Point, Scaling
from gatelab.scaling_laws.slopes import Slope, corrected_slope, limit, local_slopes, slope, spline_baseline

__all__ = [
    "Law",
    "Point",
    "Scaling",
    "Slope",
    "corrected_slope",
    "fit_law",
    "limit",
    "local_slopes",
    "scaling",
    "scaling_runs",
    "slope",
    "spline_baseline",
]
