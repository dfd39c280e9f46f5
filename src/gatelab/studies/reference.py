"""Numbers of others: the paper's slopes, and errors of its reference code.

The errors were measured with the reference code of the paper, run as it is: networks fully trained by its second-order
solver in float64 on 10 000 points of 1/(1 + cos^2(pi x)); RMSE by width. A GQU of width 50 was not run.
"""

from __future__ import annotations

from collections.abc import Mapping

SOURCE = "the reference code of the paper, run as it is"

REFERENCE_RMSE: Mapping[str, Mapping[int, float]] = {
    "mlp": {5: 3.4e-2, 10: 9.6e-3, 20: 2.1e-3, 35: 8.2e-4, 50: 4.4e-4},
    "glu": {5: 1.5e-2, 10: 1.9e-3, 20: 3.5e-4, 35: 7.8e-5, 50: 2.8e-5},
    "gqu": {5: 4.0e-2, 10: 2.6e-3, 20: 2.5e-4, 35: 5.4e-5},
}

# Figure 2 and table 1; for the GQU against P the caption of figure 6, which rounds.
PAPER_SLOPES: Mapping[tuple[str, str], float] = {
    ("mlp", "n"): -2.13,
    ("mlp", "P"): -2.18,
    ("glu", "n"): -3.08,
    ("glu", "P"): -3.12,
    ("gqu", "n"): -3.55,
    ("gqu", "P"): -3.5,
}

# The conclusion of the paper: "to the same error with 15 neurons versus 50".
GLU_FOR_MLP = (15, 50)

# Table 1, slopes against n. The paper has no GQU beyond one dimension.
TABLE1: Mapping[str, Mapping[str, float]] = {
    "paper-1d": {"mlp": -2.13, "glu": -3.08, "gqu": -3.55},
    "sin4x-sin4y": {"mlp": -0.91, "glu": -1.55},
    "friedman1": {"mlp": -0.55, "glu": -1.00},
    "friedman2": {"mlp": -0.75, "glu": -1.12},
    "friedman3": {"mlp": -0.31, "glu": -0.56},
    "airfoil": {"mlp": -0.25, "glu": -0.39},
    "california": {"mlp": -0.09, "glu": -0.09},
}
