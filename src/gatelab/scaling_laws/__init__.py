"""How the error falls as a unit grows, and as data grow too.

`scaling` fits units at many widths and seeds, `slope` and its kin measure how fast the errors fall, `limit` is what
theory allows, `spline_baseline` what splines reach; `fit_law` fits the law in the numbers of parameters and data.
`fit_ladder` says of units at several sizes and seeds whether they differ by an offset or in their exponents, and what
one is worth beside another; `compare_ladder` says which differences are decided.
"""

from gatelab.scaling_laws.curves import scaling, scaling_runs
from gatelab.scaling_laws.ladder_comparisons import (
    LadderComparison,
    LadderComparisons,
    RankAgreement,
    Worth,
    compare_ladder,
    rank_units,
)
from gatelab.scaling_laws.ladder_fits import NestedTest
from gatelab.scaling_laws.ladder_laws import LadderLaw, LadderLaws, fit_ladder
from gatelab.scaling_laws.ladder_losses import LadderLosses, read_ladder
from gatelab.scaling_laws.laws import Law, fit_law
from gatelab.scaling_laws.result import Point, Scaling
from gatelab.scaling_laws.slopes import Slope, corrected_slope, limit, local_slopes, slope, spline_baseline

__all__ = [
    "LadderComparison",
    "LadderComparisons",
    "LadderLaw",
    "LadderLaws",
    "LadderLosses",
    "Law",
    "NestedTest",
    "Point",
    "RankAgreement",
    "Scaling",
    "Slope",
    "Worth",
    "compare_ladder",
    "corrected_slope",
    "fit_ladder",
    "fit_law",
    "limit",
    "local_slopes",
    "rank_units",
    "read_ladder",
    "scaling",
    "scaling_runs",
    "slope",
    "spline_baseline",
]
