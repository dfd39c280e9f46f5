"""The vision transformer (Dosovitskiy et al. 2021) with any unit as its feed-forward part.

    h = [class, patches W] + position;   h = h + attention(norm h);   h = h + unit(norm h);   logits = head norm h_class

Images of S x S pixels in C channels, cut into squares of p pixels, make N = (S / p)^2 patches of C p^2 numbers. With
K classes, L layers, d = d_model, and a unit of q factors and width n the number of parameters is

    P = (C p^2 + 1) d + (N + 2) d + L (4 d^2 + 8 d + (q + 2) d n) + 2 d + (d + 1) K
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gatelab.models.block import Feed, ImageConfig, ImageModel, UnitLike, feed_forward_count, transformer_blocks


@dataclass(frozen=True)
class ViTConfig(ImageConfig):
    """The sizes of a ViT; `width` is that of a plain feed-forward part.

    >>> VIT_SIZES["small"].patches
    64
    """

    layers: int = 8
    heads: int = 6
    d_model: int = 192
    width: int = 768
    dropout: float = 0.0

    def parameter_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """P above, without building the model."""
        d = self.d_model
        block = 4 * d * d + 8 * d + feed_forward_count(d, self.width, unit, match_mlp)
        ends = (self.channels * self.patch**2 + 1) * d + (self.patches + 2) * d + 2 * d + (d + 1) * self.classes
        return ends + self.layers * block


VIT_SIZES = {
    "tiny": ViTConfig(image_size=8, patch=2, layers=2, heads=2, d_model=32, width=96),
    "small": ViTConfig(),
    "base": ViTConfig(layers=12, heads=6, d_model=384, width=1536),
}


class ViT(ImageModel):
    """Images (N, channels, S, S) to logits (N, classes).

    `size` is a name of `VIT_SIZES` or a `ViTConfig`; options replace single values of it: Tiny ImageNet takes
    `ViT("small", image_size=64, patch=8, classes=200)`. Weights are LeCun's, positions N(0, 0.02^2).

    >>> ViT("tiny", "swiglu")(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    kind, sizes = "ViT", VIT_SIZES
    config: ViTConfig

    def _build(self, c: ViTConfig, feed: Feed, seed: int) -> None:
        self.embed = nn.Linear(c.channels * c.patch**2, c.d_model)
        self.label = nn.Embedding(1, c.d_model)
        self.positions = nn.Embedding(c.patches + 1, c.d_model)
        self.blocks = transformer_blocks(c, feed, seed, causal=False)
        self.norm = nn.LayerNorm(c.d_model)
        self.head = nn.Linear(c.d_model, c.classes)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images)
        x = torch.cat([self.label.weight.to(x.dtype).expand(len(x), 1, -1), x], 1) + self.positions.weight
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))
