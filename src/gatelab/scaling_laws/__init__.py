"""How the error falls as a unit grows, and as data grow too.

`scaling` fits units at many widths and seeds, `slope` and its kin measure how fast the errors fall, `limit` is what
theory allows, `spline_baseline` what splines reach; `fit_law` fits the law in the numbers of parameters and data.
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
