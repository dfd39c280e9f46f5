"""Scaling of the error with the size of a unit and the number of data.

`scaling` fits units at many widths and seeds; `slope`, `decay` and others say how the errors fall, `limit` and
`predicted_rate` what theory expects, `spline_baseline` what splines reach. `fit_law` fits a law in the numbers of
parameters and data. `compare_ladder`, `fit_ladder` and `ladder_power` are for losses of units at several sizes and
seeds; `fit_token_laws` and `token_differences` separate a gain in parameters from a gain in data.
"""

from gatelab.scaling_laws.curves import scaling, scaling_runs
from gatelab.scaling_laws.ladder_comparisons import compare_ladder
from gatelab.scaling_laws.ladder_laws import LadderLaw, fit_ladder
from gatelab.scaling_laws.ladder_losses import LadderLosses, read_ladder
from gatelab.scaling_laws.laws import Law, fit_law
from gatelab.scaling_laws.power import ladder_power
from gatelab.scaling_laws.result import Point, Scaling
from gatelab.scaling_laws.slopes import (
    Decay,
    Slope,
    corrected_slope,
    decay,
    limit,
    local_slopes,
    predicted_rate,
    slope,
    spline_baseline,
)
from gatelab.scaling_laws.token_laws import TokenLaws, fit_token_laws, token_differences

__all__ = [
    "Decay",
    "LadderLaw",
    "LadderLosses",
    "Law",
    "Point",
    "Scaling",
    "Slope",
    "TokenLaws",
    "compare_ladder",
    "corrected_slope",
    "decay",
    "fit_ladder",
    "fit_law",
    "fit_token_laws",
    "ladder_power",
    "limit",
    "local_slopes",
    "predicted_rate",
    "read_ladder",
    "scaling",
    "scaling_runs",
    "slope",
    "spline_baseline",
    "token_differences",
]
