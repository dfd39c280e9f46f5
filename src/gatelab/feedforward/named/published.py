"""The units of papers and of published models: powers of relu, and smooth gates or none."""

from gatelab.feedforward.specification import Unit

POSITION = 1

# The gate is a power of relu: splines, which the knot solver fits and theory has orders for.
MLP = Unit("relu", 0, "mlp", "relu(Gx+g): piecewise linear, order 2", ("relu",))
RELU2 = Unit("relu2", 0, "relu2", "relu(Gx+g)^2: C1 quadratic spline, order 3 at 3n+1 parameters", ("relu^2",))
RELU3 = Unit("relu3", 0, "relu3", "relu(Gx+g)^3: C2 cubic spline, order 4 at 3n+1 parameters", ("relu^3",))
GLU = Unit("relu", 1, "glu", "relu(Gx+g)(Ux+u): the paper's GLU (ReGLU), C0 quadratic, order 3", ("reglu",))
GQU = Unit("relu", 2, "gqu", "relu(Gx+g)(Ux+u)(Qx+q): the paper's Gated Quadratic Unit, order 4")
LEAKY_RELU2 = Unit(
    "leaky-relu2",
    0,
    "leaky-relu2",
    "leaky_relu(Gx+g, 1/2)^2, of language-model speed runs: 3/4 relu^2 and 1/4 of a square, order 3 as relu2",
    ("leaky relu2", "leaky_relu2", "leaky-relu^2"),
)

# The gate is smooth, or missing: the blocks of transformers, for which no algebraic rate is known.
GEGLU = Unit("gelu", 1, "geglu", "gelu(Gx+g)(Ux+u): the block of Gemma, T5 v1.1")
SWIGLU = Unit("silu", 1, "swiglu", "silu(Gx+g)(Ux+u): the block of Llama, Qwen, Mistral")
SIGMOID_GLU = Unit("sigmoid", 1, "sigmoid-glu", "sigmoid(Gx+g)(Ux+u): the first GLU (Dauphin et al. 2017)")
BILINEAR = Unit("identity", 1, "bilinear", "(Gx+g)(Ux+u): no gate, a quadratic form")
GELU = Unit("gelu", 0, "gelu", "gelu(Gx+g)")
SILU = Unit("silu", 0, "silu", "silu(Gx+g)")
