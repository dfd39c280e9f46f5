"""Functions of two variables, both on [-1, 1]."""

from gatelab.data.specification import ProblemSpec

POSITION = 2

X2_Y2 = ProblemSpec("x2-y2", "x**2+y**2", "a bowl, which two gated units hold exactly", inputs=2)
X3_Y3 = ProblemSpec("x3-y3", "x**3+y**3", "a sum of cubics", inputs=2)
COS4X_COS4Y = ProblemSpec("cos4x-cos4y", "cos(4*x)*cos(4*y)", "a product of waves, even", inputs=2)
SIN4X_SIN4Y = ProblemSpec("sin4x-sin4y", "sin(4*x)*sin(4*y)", "a product of waves, odd", inputs=2)
SIN4X_SIN4Y_R2 = ProblemSpec("sin4x-sin4y-r2", "sin(4*x)*sin(4*y) * (x**2+y**2)", "waves that grow outwards", inputs=2)
RUNGE1_2D = ProblemSpec("runge1-2d", "1/(1+x**2+y**2)", "Runge's function in the plane, wide", inputs=2)
RUNGE9_2D = ProblemSpec("runge9-2d", "1/(1+9*x**2+9*y**2)", "Runge's function in the plane, narrower", inputs=2)
ATAN_2D = ProblemSpec("atan-2d", "atan(x)+atan(y)", "a sum of smooth steps", inputs=2)
