"""Units whose gate is smooth, or missing: the blocks of transformers, for which no algebraic rate is known."""

from gatelab.feedforward.specification import UnitSpec

POSITION = 2

GEGLU = UnitSpec("geglu", "gelu", 1, "gelu(Gx+g)(Ux+u): the block of Gemma, T5 v1.1")
SWIGLU = UnitSpec("swiglu", "silu", 1, "silu(Gx+g)(Ux+u): the block of Llama, Qwen, Mistral")
SIGMOID_GLU = UnitSpec("sigmoid-glu", "sigmoid", 1, "sigmoid(Gx+g)(Ux+u): the first GLU (Dauphin et al. 2017)")
BILINEAR = UnitSpec("bilinear", "identity", 1, "(Gx+g)(Ux+u): no gate, a quadratic form")
GELU = UnitSpec("gelu", "gelu", 0, "gelu(Gx+g)")
SILU = UnitSpec("silu", "silu", 0, "silu(Gx+g)")
