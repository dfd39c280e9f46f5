"""The vision transformer (Dosovitskiy et al. 2021) with any unit as its feed-forward part.

    h = [class, patches W] + position;   h = h + attention(norm h);   h = h + unit(norm h);   logits = head norm h_class

Images of S x S pixels in C channels, cut into squares of p pixels, make N = (S / p)^2 patches of C p^2 numbers. With
K classes, L layers, d = d_model, and a unit of q factors and width n the parameters number

    P = (C p^2 + 1) d + (N + 2) d + L (4 d^2 + 8 d + (q + 2) d n) + 2 d + (d + 1) K
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.models.block import (
    ImageConfig,
    TransformerBlock,
    UnitLike,
    check_images,
    cross_entropy,
    feed_forward,
    feed_forward_count,
    initialise,
    layer_seeds,
    named,
    patches,
    quietly,
)


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


class ViT(nn.Module):
    """Images (N, channels, S, S) to logits (N, classes).

    `size` is a name of `VIT_SIZES` or a `ViTConfig`; options replace single values of it: Tiny ImageNet takes
    `ViT("small", image_size=64, patch=8, classes=200)`. Weights are LeCun's, positions N(0, 0.02^2).

    >>> ViT("tiny", "swiglu")(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        size: str | ViTConfig = "small",
        unit: UnitLike = "gelu",
        *,
        match_mlp: bool = True,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        super().__init__()
        self.config = c = named("ViT", VIT_SIZES, size, options)
        seeds = layer_seeds(seed, c.layers)
        with quietly():
            self.embed = nn.Linear(c.channels * c.patch**2, c.d_model)
            self.label = nn.Embedding(1, c.d_model)
            self.positions = nn.Embedding(c.patches + 1, c.d_model)
            self.blocks = nn.ModuleList(
                TransformerBlock(
                    c.d_model,
                    c.heads,
                    feed_forward(c.d_model, c.width, unit, match_mlp=match_mlp, seed=s, dtype=dtype),
                    dropout=c.dropout,
                )
                for s in seeds
            )
            self.norm = nn.LayerNorm(c.d_model)
            self.head = nn.Linear(c.d_model, c.classes)
            self.dropout = nn.Dropout(c.dropout)
        self.to(dtype)
        initialise(self, seed)

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.config)
        x = self.embed(patches(images, self.config.patch))
        x = torch.cat([self.label.weight.to(x.dtype).expand(len(x), 1, -1), x], 1) + self.positions.weight
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of the labels, in nats."""
        return cross_entropy(self(images), labels)
