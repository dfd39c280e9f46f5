"""Units whose gate is a power of relu: splines, which the knot solver fits and theory has orders for."""

from gatelab.feedforward.specification import UnitSpec

POSITION = 1

MLP = UnitSpec("mlp", "relu", 0, "relu(Gx+g): piecewise linear, order 2", aliases=("relu",))
RELU2 = UnitSpec(
    "relu2", "relu2", 0, "relu(Gx+g)^2: C1 quadratic spline, order 3 at 3n+1 parameters", aliases=("relu^2",)
)
RELU3 = UnitSpec("relu3", "relu3", 0, "relu(Gx+g)^3: C2 cubic spline, order 4 at 3n+1 parameters", aliases=("relu^3",))
GLU = UnitSpec("glu", "relu", 1, "relu(Gx+g)(Ux+u): the paper's GLU (ReGLU), C0 quadratic, order 3", aliases=("reglu",))
GQU = UnitSpec("gqu", "relu", 2, "relu(Gx+g)(Ux+u)(Qx+q): the paper's Gated Quadratic Unit, order 4")
