"""How the error falls as a unit grows: slopes with intervals, local slopes, the limit, spline baselines.

And as data grow too: the law in P and D.
"""

from gatelab.scaling.baselines import spline_baseline
from gatelab.scaling.fit_law import fit_law
from gatelab.scaling.law import Law
from gatelab.scaling.limit import limit
from gatelab.scaling.result import Point, Scaling
from gatelab.scaling.scaling import scaling, scaling_runs
from gatelab.scaling.slopes import Slope, corrected_slope, local_slopes, slope

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
