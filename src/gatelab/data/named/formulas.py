"""Problems with a formula: functions of one and two variables, and Friedman's three.

J. H. Friedman, Multivariate adaptive regression splines, The Annals of Statistics 19 (1991).
"""

from gatelab.data.specification import ProblemSpec

POSITION = 1

# Functions of one variable on [-1, 1].
PAPER_1D = ProblemSpec("paper-1d", "1/(1+cos(pi*x)**2)", "the paper's one-dimensional target, two smooth humps")
X2 = ProblemSpec("x2", "x**2", "a parabola, which one gated unit holds exactly")
X3 = ProblemSpec("x3", "x**3", "a cubic")
COS4X = ProblemSpec("cos4x", "cos(4*x)", "a little more than one period, even")
SIN4X = ProblemSpec("sin4x", "sin(4*x)", "a little more than one period, odd")
SIN4X2 = ProblemSpec("sin4x2", "sin(4*(x-1)**2)", "a chirp, fast on the left and flat on the right")
RUNGE1 = ProblemSpec("runge1", "1/(1+x**2)", "Runge's function, wide")
RUNGE9 = ProblemSpec("runge9", "1/(1+9*x**2)", "Runge's function, narrower")
ATAN = ProblemSpec("atan", "atan(x)", "a smooth step")

# Functions of two variables, both on [-1, 1].
X2_Y2 = ProblemSpec("x2-y2", "x**2+y**2", "a bowl, which two gated units hold exactly", inputs=2)
X3_Y3 = ProblemSpec("x3-y3", "x**3+y**3", "a sum of cubics", inputs=2)
COS4X_COS4Y = ProblemSpec("cos4x-cos4y", "cos(4*x)*cos(4*y)", "a product of waves, even", inputs=2)
SIN4X_SIN4Y = ProblemSpec("sin4x-sin4y", "sin(4*x)*sin(4*y)", "a product of waves, odd", inputs=2)
SIN4X_SIN4Y_R2 = ProblemSpec("sin4x-sin4y-r2", "sin(4*x)*sin(4*y) * (x**2+y**2)", "waves that grow outwards", inputs=2)
RUNGE1_2D = ProblemSpec("runge1-2d", "1/(1+x**2+y**2)", "Runge's function in the plane, wide", inputs=2)
RUNGE9_2D = ProblemSpec("runge9-2d", "1/(1+9*x**2+9*y**2)", "Runge's function in the plane, narrower", inputs=2)
ATAN_2D = ProblemSpec("atan-2d", "atan(x)+atan(y)", "a sum of smooth steps", inputs=2)

# Friedman's regression problems, whose rows scikit-learn draws.
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
