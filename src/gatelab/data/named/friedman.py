"""Friedman's three regression problems, whose rows scikit-learn draws.

J. H. Friedman, Multivariate adaptive regression splines, The Annals of Statistics 19 (1991).
"""

from gatelab.data.specification import ProblemSpec

POSITION = 3

FRIEDMAN1 = ProblemSpec(
    "friedman1",
    "10*sin(pi*x1*x2) + 20*(x3-0.5)**2 + 10*x4 + 5*x5",
    "Friedman's first, a sum of an interaction, a parabola and lines",
    interval=(0.0, 1.0),
    inputs=5,
    kind="friedman",
)
FRIEDMAN2 = ProblemSpec(
    "friedman2",
    "sqrt(x1**2 + (x2*x3 - 1/(x2*x4))**2)",
    "Friedman's second, the impedance of a circuit",
    interval=None,
    inputs=4,
    kind="friedman",
)
FRIEDMAN3 = ProblemSpec(
    "friedman3",
    "atan((x2*x3 - 1/(x2*x4)) / x1)",
    "Friedman's third, the phase of a circuit",
    interval=None,
    inputs=4,
    kind="friedman",
)
