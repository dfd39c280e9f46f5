"""GPT-2 (Radford et al. 2019) with any unit as its feed-forward part; the token embedding E is used at both ends.

With vocabulary V, context T, L layers, d = d_model, and a unit of q factors and width n the number of parameters is

    P = V d + T d + L (4 d^2 + 8 d + (q + 2) d n) + 2 d        (the original has L (n + d) more: biases)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.models.block import Feed, UnitLike, UnitModel, check_config, feed_forward_count, transformer_blocks


@dataclass(frozen=True)
class GPT2Config:
    """The sizes of a GPT-2; `width` is that of a plain feed-forward part.

    >>> GPT2_SIZES["gpt2"].parameter_count("gelu")
    124393728
    >>> GPT2_SIZES["gpt2"].parameter_count("swiglu")
    124393728
    """

    vocabulary: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    d_model: int = 768
    width: int = 3072
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_config(self)

    def parameter_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """P above, without building the model."""
        return (self.vocabulary + self.context) * self.d_model + self.body_count(unit, match_mlp)

    def body_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """The number of parameters without the embeddings of tokens and positions."""
        d = self.d_model
        return self.layers * (4 * d * d + 8 * d + feed_forward_count(d, self.width, unit, match_mlp)) + 2 * d

    def token_flops(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """Operations per token in a training step, counted as in `DecoderConfig`."""
        head = self.vocabulary * self.d_model
        return 6 * (self.body_count(unit, match_mlp) + head) + 6 * self.layers * self.context * self.d_model


GPT2_SIZES = {
    "tiny": GPT2Config(vocabulary=256, context=32, layers=2, heads=2, d_model=32, width=96),
    "small": GPT2Config(context=256, layers=6, heads=6, d_model=384, width=1536),
    "gpt2": GPT2Config(),
}


class GPT2(UnitModel):
    """Causal language model: tokens (N, T) to logits (N, T, vocabulary).

    `size` is a name of `GPT2_SIZES` or a `GPT2Config`; options replace single values of it. Weights are drawn as in
    the original: N(0, 0.02^2), 0.01 for positions, and output maps of blocks divided by sqrt(2 layers).

    >>> model = GPT2("tiny", "swiglu", context=8)
    >>> tokens = torch.arange(16).reshape(2, 8)
    >>> model(tokens).shape
    torch.Size([2, 8, 256])
    """

    kind, sizes, std = "GPT-2", GPT2_SIZES, 0.02
    config: GPT2Config

    def _build(self, c: GPT2Config, feed: Feed, seed: int) -> None:
        self.tokens = nn.Embedding(c.vocabulary, c.d_model)
        self.positions = nn.Embedding(c.context, c.d_model)
        self.blocks = transformer_blocks(c, feed, seed, causal=True)
        self.norm = nn.LayerNorm(c.d_model)
        self.dropout = nn.Dropout(c.dropout)

    def _scale(self, c: GPT2Config, seed: int) -> None:
        self.positions.weight /= 2
        for name, p in self.named_parameters():
            if name.endswith(("attention.out.weight", "feed_forward.D")):
                p /= (2 * c.layers) ** 0.5

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if tokens.ndim != 2 or length > self.config.context:
            raise GatelabError(
                f"the tokens have the shape {tuple(tokens.shape)}, the model takes (N, T) with T up to"
                f" {self.config.context}; cut the text, or build it with context={length}"
            )
        x = self.dropout(self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)
