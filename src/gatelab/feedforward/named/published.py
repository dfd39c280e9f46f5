"""The units of papers and of published models: powers of relu, and smooth gates or none."""

from gatelab.feedforward.specification import UnitSpec

POSITION = 1

# The gate is a power of relu: splines, which the knot solver fits and theory has orders for.
MLP = UnitSpec("mlp", "relu", 0, "relu(Gx+g): piecewise linear, order 2", aliases=("relu",))
RELU2 = UnitSpec(
    "relu2", "relu2", 0, "relu(Gx+g)^2: C1 quadratic spline, order 3 at 3n+1 parameters", aliases=("relu^2",)
)
RELU3 = UnitSpec("relu3", "relu3", 0, "relu(Gx+g)^3: C2 cubic spline, order 4 at 3n+1 parameters", aliases=("relu^3",))
GLU = UnitSpec("glu", "relu", 1, "relu(Gx+g)(Ux+u): the paper's GLU (ReGLU), C0 quadratic, order 3", aliases=("reglu",))
GQU = UnitSpec("gqu", "relu", 2, "relu(Gx+g)(Ux+u)(Qx+q): the paper's Gated Quadratic Unit, order 4")
LEAKY_RELU2 = UnitSpec(
    "leaky-relu2",
    "leaky-relu2",
    0,
    "leaky_relu(Gx+g, 1/2)^2, of language-model speed runs: 3/4 relu^2 and 1/4 of a square, order 3 as relu2",
    aliases=("leaky relu2", "leaky_relu2", "leaky-relu^2"),
)

# The gate is smooth, or missing: the blocks of transformers, for which no algebraic rate is known.
GEGLU = UnitSpec("geglu", "gelu", 1, "gelu(Gx+g)(Ux+u): the block of Gemma, T5 v1.1")
SWIGLU = UnitSpec("swiglu", "silu", 1, "silu(Gx+g)(Ux+u): the block of Llama, Qwen, Mistral")
SIGMOID_GLU = UnitSpec("sigmoid-glu", "sigmoid", 1, "sigmoid(Gx+g)(Ux+u): the first GLU (Dauphin et al. 2017)")
BILINEAR = UnitSpec("bilinear", "identity", 1, "(Gx+g)(Ux+u): no gate, a quadratic form")
GELU = UnitSpec("gelu", "gelu", 0, "gelu(Gx+g)")
SILU = UnitSpec("silu", "silu", 0, "silu(Gx+g)")
