"""Measure the feed-forward blocks of a given model, and replace them by smaller ones.

load_model("smollm2")                a folder of Transformers, a GGUF file, llama2.c's format
windows("book.txt", tokenizer, 256)  a text as windows of tokens, for `split` and `log_perplexity`
profile(model, "book.txt", tokenizer=tokenizer)   statistics of every block: .table() .sentences() .plot()
fit_block(rows, "swiglu", 64)        a unit fitted to the inputs and outputs of a block
shrink(model, 0.8, "book.txt", tokenizer=tokenizer)   fewer neurons in every block: .table() .save(folder)
"""

from gatelab.anatomy.distillation import Distillation
from gatelab.anatomy.fits import Affine, BlockFit, BlockRows, fit_block
from gatelab.anatomy.profiles import BlockProfile, Profile
from gatelab.anatomy.profiling import layer_problem, layer_rows, profile
from gatelab.anatomy.shrinking import Shrunk, ShrunkLayer, shrink
from gatelab.anatomy.texts import continued, log_perplexity, split, windows
from gatelab.models.pretrained import load_model

__all__ = [
    "Affine",
    "BlockFit",
    "BlockProfile",
    "BlockRows",
    "Distillation",
    "Profile",
    "Shrunk",
    "ShrunkLayer",
    "continued",
    "fit_block",
    "layer_problem",
    "layer_rows",
    "load_model",
    "log_perplexity",
    "profile",
    "shrink",
    "split",
    "windows",
]
