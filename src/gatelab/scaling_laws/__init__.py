"""Scaling of the error with the size of a unit and the number of data.

`scaling` fits units at many widths and seeds, `slope` and related functions measure how fast the errors fall, `limit`
is the theoretical limit, and `spline_baseline` the error of splines. `fit_law` fits a law in the numbers of parameters
and data. `fit_ladder` tests whether units differ by an offset or in their exponents, from losses at several sizes and
seeds, and computes equivalent sizes; `compare_ladder` tests all pairs of units.
`ladder_power` is the power of these tests for a design. `fit_token_laws` and `token_differences` separate a gain in
parameters from a gain in data.
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
from gatelab.scaling_laws.power import ladder_power
from gatelab.scaling_laws.result import Point, Scaling
from gatelab.scaling_laws.slopes import Slope, corrected_slope, limit, local_slopes, slope, spline_baseline
from gatelab.scaling_laws.token_laws import TokenLaws, TokenTest, fit_token_laws, token_differences

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
    "TokenLaws",
    "TokenTest",
    "Worth",
    "compare_ladder",
    "corrected_slope",
    "fit_ladder",
    "fit_law",
    "fit_token_laws",
    "ladder_power",
    "limit",
    "local_slopes",
    "rank_units",
    "read_ladder",
    "scaling",
    "scaling_runs",
    "slope",
    "spline_baseline",
    "token_differences",
]
