"""Shared parts of the models: the feed-forward part with any unit, attention, patches of images, initial weights.

Feed-forward parts have no biases. A plain part of `width` n has 2 d n weights; with `match_mlp` a unit of q factors has
the width 2 n / (q + 2), a whole number in the named sizes, so that every unit has the same number of weights.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.errors import GatelabError, check_seed, real_number, unknown_name, whole_number
from gatelab.feedforward import AnyUnit, FeedForward, ModuleUnit, two_thirds
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width

UnitLike = str | AnyUnit | Callable[..., object] | type[nn.Module]
C = TypeVar("C")
Feed = Callable[[int, int, int], nn.Module]  # d_model, width and seed to a feed-forward part


class UserBlock(nn.Module):
    """A user's module on rows (N, d_model), applied to the last dimension."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x.flatten(0, -2)).reshape(x.shape)


def feed_forward(
    d_model: int, width: int, unit: UnitLike, *, match_mlp: bool, seed: int, dtype: torch.dtype
) -> FeedForward | UserBlock:
    """The feed-forward part of a model: a product unit without biases, or a user's class."""
    chosen = as_unit(unit)
    if not isinstance(chosen, ModuleUnit):
        return FeedForward(d_model, width, chosen, match_mlp=match_mlp, seed=seed, dtype=dtype)
    n = matched_width(chosen, d_model, width) if match_mlp else check_width(width)
    return UserBlock(chosen.network(n, d_model, d_model, seed=seed, dtype=dtype))


def matched_width(unit: AnyUnit, d_model: int, width: int) -> int:
    """The width at which a block of `unit` has about the 2 d_model width parameters of a plain one of `width`."""
    if not isinstance(unit, ModuleUnit):
        return two_thirds(check_width(width), unit.factors)
    goal = 2 * d_model * check_width(width)

    def count(n: int) -> int:
        return unit.parameter_count(n, d_model, d_model)

    n = 1 + bisect_left(range(1, 4 * width), goal, key=count)
    return min(n, max(1, n - 1), key=lambda n: abs(count(n) - goal))


def feed_forward_count(d_model: int, width: int, unit: UnitLike, match_mlp: bool) -> int:
    chosen = as_unit(unit)
    n = matched_width(chosen, d_model, width) if match_mlp else check_width(width)
    if isinstance(chosen, ModuleUnit):
        return chosen.parameter_count(n, d_model, d_model)
    return chosen.parameter_count(n, d_model, d_model, bias=False)


class Attention(nn.Module):
    """Multi-head self-attention by torch's kernels, or, if not `fused`, by a formula that works under vmap."""

    def __init__(self, d_model: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout, self.fused = heads, causal, dropout, True
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout * self.training
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=dropout)
        else:
            scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            if self.causal:
                later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
                scores = scores.masked_fill(later, -torch.inf)
            # Cast to float32 explicitly: the effect of autocast under vmap depends on torch's version.
            wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
            mixed = functional.dropout(wide.softmax(-1), dropout).to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """x + attention(norm x), then x + unit(norm x): the pre-norm block of GPT-2 and of the ViT."""

    def __init__(
        self, d_model: int, heads: int, feed: nn.Module, *, causal: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = Attention(d_model, heads, causal=causal, dropout=dropout)
        self.feed_forward = feed
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.feed_forward(self.norm_2(x)))


def patches(images: Tensor, patch: int) -> Tensor:
    """Images (N, C, H, W) cut into squares: (N, H W / patch^2, C patch^2), row by row.

    >>> patches(torch.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 1]
    tensor([2., 3., 6., 7.])
    """
    n, c, h, w = images.shape
    cut = images.reshape(n, c, h // patch, patch, w // patch, patch)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(n, (h // patch) * (w // patch), c * patch * patch)


@dataclass(frozen=True)
class ImageConfig:
    """The common options of image models: image size, patches of `patch` pixels, channels and classes."""

    image_size: int = 32
    patch: int = 4
    channels: int = 3
    classes: int = 10

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch) ** 2


def check_config(config: Any) -> None:
    """Check that sizes are positive whole numbers that divide each other as needed, and that floats are in range."""
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(field.default, float):
            real_number(field.name, value, least=0, below={"dropout": 1.0}.get(field.name, math.inf))
        elif isinstance(field.default, bool):
            if not isinstance(value, bool):
                raise GatelabError(f"{field.name} is {value!r}; give True or False")
        else:
            whole_number(field.name, value, 1)
    for whole, part in (("image_size", "patch"), ("d_model", "heads")):
        a, b = getattr(config, whole, 0), getattr(config, part, 1)
        if a % b:
            raise GatelabError(f"{whole} is {a}, which {part} = {b} does not divide; give one that it divides")


def named(kind: str, sizes: dict[str, C], size: str | C, options: dict[str, Any]) -> C:
    """The configuration of that name with some of its values replaced."""
    if isinstance(size, str):
        if size not in sizes:
            raise unknown_name(f"{kind} size", size, sizes)
        size = sizes[size]
    known = [field.name for field in fields(size)]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            raise unknown_name(f"{kind} option", name, known)
    return replace(size, **options)  # type: ignore[type-var]


def layer_seeds(seed: int, layers: int) -> list[int]:
    return [int(s) for s in np.random.SeedSequence(check_seed(seed)).generate_state(layers)]


def initialize(model: nn.Module, seed: int, std: float | None = None) -> None:
    """Draw the weights from N(0, std^2), None for LeCun's 1 / sqrt(fan-in), in float32; biases are zero.

    Layer norms and a user's own modules keep their initial values.
    """
    generator = torch.Generator().manual_seed(check_seed(seed))

    def draw(p: Tensor, std: float) -> None:
        p.copy_(std * torch.randn(p.shape, generator=generator, dtype=torch.float32))

    def visit(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | FeedForward):
            for p in module.parameters():
                if p.ndim == 1:  # a bias
                    p.zero_()
                else:
                    draw(p, p.shape[1] ** -0.5 if std is None else std)
        elif isinstance(module, nn.Embedding):
            draw(module.weight, 0.02)
        elif not isinstance(module, UserBlock):
            for child in module.children():
                visit(child)

    with torch.no_grad():
        visit(model)


class UnitModel(nn.Module):
    """A model with one unit in all of its feed-forward parts; `std` is that of `initialize`."""

    kind: ClassVar[str]
    sizes: ClassVar[dict[str, Any]]
    std: ClassVar[float | None] = None

    def __init__(
        self,
        size: Any = "small",
        unit: UnitLike = "gelu",
        *,
        match_mlp: bool = True,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        super().__init__()
        self.config = named(self.kind, self.sizes, size, options)

        def feed(d_model: int, width: int, seed: int) -> FeedForward | UserBlock:
            return feed_forward(d_model, width, unit, match_mlp=match_mlp, seed=seed, dtype=dtype)

        with torch.random.fork_rng(devices=[]):  # torch's layers draw from its global generator
            self._build(self.config, feed, seed)
        self.to(dtype)
        initialize(self, seed, self.std)
        with torch.no_grad():
            self._scale(self.config, seed)

    def _build(self, c: Any, feed: Feed, seed: int) -> None:
        raise NotImplementedError

    def _scale(self, c: Any, seed: int) -> None:
        """Rescale some initial weights."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy in nats, of labels or of next tokens."""
        return cross_entropy(self(x), y)


def transformer_blocks(c: Any, feed: Feed, seed: int, causal: bool) -> nn.ModuleList:
    return nn.ModuleList(
        TransformerBlock(c.d_model, c.heads, feed(c.d_model, c.width, s), causal=causal, dropout=c.dropout)
        for s in layer_seeds(seed, c.layers)
    )


class ImageModel(UnitModel):
    """Images (N, channels, S, S) to logits (N, classes)."""

    config: Any
    embed: nn.Module

    def patches(self, images: Tensor) -> Tensor:
        """The embedded patches of images of the configured shape."""
        channels, size = self.config.channels, self.config.image_size
        if images.ndim != 4 or tuple(images.shape[1:]) != (channels, size, size):
            raise GatelabError(
                f"the images have the shape {tuple(images.shape)}, the model takes (N, {channels}, {size}, {size});"
                " build it with image_size and channels of the data"
            )
        if not images.is_floating_point():
            raise GatelabError(f"the images are {images.dtype}; give numbers of unit variance: data.normalized(x)")
        return self.embed(patches(images, self.config.patch))


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The mean negative log-likelihood of the classes y, in float32 or float64."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(wide.flatten(0, -2), y.flatten())
