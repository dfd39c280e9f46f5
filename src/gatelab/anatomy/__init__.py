"""What the feed-forward blocks of given models do, and smaller ones in their place.

load_model("smollm2")                a folder of Transformers, a GGUF file, llama2.c's format
windows("book.txt", tokenizer, 256)  a text as rows of tokens; split parts them, log_perplexity measures on them
shrink("smollm2", 0.8, "fineweb-edu")  fewer neurons in every block, the loss stated: .table() .save(folder)
"""

from gatelab.anatomy.shrinking import Shrunk, ShrunkLayer, shrink
from gatelab.anatomy.texts import load_model, log_perplexity, split, windows

__all__ = ["Shrunk", "ShrunkLayer", "load_model", "log_perplexity", "shrink", "split", "windows"]
