"""Functions of one variable on [-1, 1]."""

from gatelab.data.specification import ProblemSpec

POSITION = 1

PAPER_1D = ProblemSpec("paper-1d", "1/(1+cos(pi*x)**2)", "the paper's one-dimensional target, two smooth humps")
X2 = ProblemSpec("x2", "x**2", "a parabola, which one gated unit holds exactly")
X3 = ProblemSpec("x3", "x**3", "a cubic")
COS4X = ProblemSpec("cos4x", "cos(4*x)", "a little more than one period, even")
SIN4X = ProblemSpec("sin4x", "sin(4*x)", "a little more than one period, odd")
SIN4X2 = ProblemSpec("sin4x2", "sin(4*(x-1)**2)", "a chirp, fast on the left and flat on the right")
RUNGE1 = ProblemSpec("runge1", "1/(1+x**2)", "Runge's function, wide")
RUNGE9 = ProblemSpec("runge9", "1/(1+9*x**2)", "Runge's function, narrower")
ATAN = ProblemSpec("atan", "atan(x)", "a smooth step")
