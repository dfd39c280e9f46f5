"""Small models of Transformers with random weights, in every layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

CLASSES = {
    "llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel", "bert": "BertModel", "vit": "ViTModel",
    "opt": "OPTForCausalLM", "distil": "DistilBertModel", "neox": "GPTNeoXForCausalLM",
}  # fmt: skip


def tiny(kind: str, vocabulary: int = 40, hidden: int = 16, width: int = 24, std: float = 0.3, **options: Any) -> Any:
    """Two layers whose weights are large enough that blocks matter; a layout, or what a class is called by."""
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {
        "vocab_size": vocabulary, "hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": width, "max_position_embeddings": 64, "initializer_range": std,
    }  # fmt: skip
    if kind == "gpt2":
        sizes |= {"n_inner": width, "bos_token_id": 0, "eos_token_id": 0}
    elif kind == "opt":
        sizes |= {"ffn_dim": width, "word_embed_proj_dim": hidden, "init_std": std}
    elif kind == "distil":
        sizes |= {"hidden_dim": width}
    elif kind == "vit":
        sizes |= {"image_size": 16, "patch_size": 4}
    elif kind not in CLASSES:
        sizes |= {"pad_token_id": 0}
    name = CLASSES.get(kind, f"{kind}ForCausalLM")
    model = getattr(transformers, name)
    config = getattr(transformers, f"{kind}TextConfig", model.config_class)
    torch.manual_seed(0)
    return model(config(**(sizes | options))).eval()


class OwnUnit(nn.Module):
    """A user's own block, biases and all."""

    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(d_in, width), nn.Linear(width, d_out)

    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2
        return self.b(torch.tanh(self.a(x)))
