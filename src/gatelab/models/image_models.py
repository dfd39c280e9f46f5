"""Models of images with any unit: ViT (Dosovitskiy et al. 2021) and the MLP-Mixer (Tolstikhin et al. 2021).

The Mixer's first unit of a block runs over the patches, one channel at a time, the second over the channels of a patch.
With N patches of C p^2 numbers, K classes, L layers, d = d_model, and a unit of q factors and width n (over tokens s):

    ViT     P = (C p^2 + 1) d + (N + 2) d + L (4 d^2 + 8 d + (q + 2) d n) + 2 d + (d + 1) K
    Mixer   P = (C p^2 + 1) d + L (4 d + (q + 2) (N s + d n)) + 2 d + (d + 1) K
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gatelab.models.block import (
    Feed,
    ImageConfig,
    ImageModel,
    UnitLike,
    feed_forward_count,
    layer_seeds,
    transformer_blocks,
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


@dataclass(frozen=True)
class MixerConfig(ImageConfig):
    """The sizes of a Mixer; `token_width` and `width` are those of plain units.

    >>> MIXER_SIZES["small"].patches
    64
    """

    layers: int = 8
    d_model: int = 192
    token_width: int = 192
    width: int = 768
    dropout: float = 0.0

    def parameter_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """P above, without building the model."""
        d = self.d_model
        mixing = ((self.patches, self.token_width), (d, self.width))
        block = 4 * d + sum(feed_forward_count(size, width, unit, match_mlp) for size, width in mixing)
        return (self.channels * self.patch**2 + 1) * d + self.layers * block + 2 * d + (d + 1) * self.classes


MIXER_SIZES = {
    "tiny": MixerConfig(image_size=8, patch=2, layers=2, d_model=32, token_width=24, width=96),
    "small": MixerConfig(),
    "base": MixerConfig(layers=12, d_model=384, token_width=192, width=1536),
}


class MixerBlock(nn.Module):
    """x + unit over the tokens, then x + unit over the channels."""

    def __init__(self, d_model: int, over_tokens: nn.Module, over_channels: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.over_tokens, self.over_channels = over_tokens, over_channels
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.over_tokens(self.norm_1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.dropout(self.over_channels(self.norm_2(x)))


class Mixer(ImageModel):
    """Images (N, channels, S, S) to logits (N, classes).

    `size` is a name of `MIXER_SIZES` or a `MixerConfig`; options replace single values of it: Tiny ImageNet takes
    `Mixer("small", image_size=64, patch=8, classes=200)`. Weights are LeCun's.

    >>> import torch
    >>> Mixer("tiny", "swiglu")(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 10])
    """

    kind, sizes = "Mixer", MIXER_SIZES
    config: MixerConfig

    def _build(self, c: MixerConfig, feed: Feed, seed: int) -> None:
        seeds = layer_seeds(seed, 2 * c.layers)
        self.embed = nn.Linear(c.channels * c.patch**2, c.d_model)
        self.blocks = nn.ModuleList(
            MixerBlock(c.d_model, feed(c.patches, c.token_width, s), feed(c.d_model, c.width, t), c.dropout)
            for s, t in zip(seeds[::2], seeds[1::2], strict=True)
        )
        self.norm = nn.LayerNorm(c.d_model)
        self.head = nn.Linear(c.d_model, c.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))
