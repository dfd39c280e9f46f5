"""A modern language model: RMS norms without parameters, rotary positions, normalized queries and keys, no biases.

With L layers, d = d_model, and a unit of q factors and width n, there are P = L (4 d^2 + (q + 2) d n) parameters
besides those of the vocabulary. Every product is written for parameters (..., out, in) and tokens (..., N, T), so that
`torch.func.functional_call` runs the stacked parameters of many models by a few batched products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.feedforward import FeedForward
from gatelab.feedforward.network import factor_names
from gatelab.models.block import Feed, UnitLike, UnitModel, check_config, feed_forward_count, layer_seeds

FEW_TOKENS = 1024  # vocabularies up to this size are embedded by a product with one-hot rows, with a fast gradient
EPSILON = 1e-6
REMEMBERED = 100.0  # passes in the running mean of a centered unit


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder; `width` is that of a plain feed-forward part.

    Normalized queries and keys of size k have products of at most k, which are multiplied by `sharpness` / k: the
    logits of attention lie between -sharpness and sharpness; 0 means the usual sqrt(k). `base` is the base of the
    wavelengths of rotary positions. With `taps` above 1, queries and keys are sums over that number of tokens, with
    learned weights; initially, keys equal the queries of the previous token, so that attention finds the continuation
    of an earlier copy of the text from the first step. With `centered`, a running mean of every hidden activation
    is subtracted from it; with `output_bias`, feed-forward parts have an output bias, initially zero.

    >>> DECODER_SIZES["0.4M"].parameter_count("gelu") == DECODER_SIZES["0.4M"].parameter_count("swiglu")
    True
    >>> {name: round(size.body_count("swiglu") / 1e6, 2) for name, size in DECODER_SIZES.items()}
    {'tiny': 0.02, 'mini': 0.06, 'small': 0.11, '0.1M': 0.11, '0.2M': 0.2, '0.4M': 0.4, '0.8M': 0.81, '1.3M': 1.33,
    '1.6M': 1.62, '3.2M': 3.21, '6.4M': 6.35, '11M': 10.62, '26M': 25.69, '60M': 60.38}
    """

    vocabulary: int = 256
    context: int = 512
    layers: int = 6
    heads: int = 6
    d_model: int = 384
    width: int = 1536
    sharpness: float = 0.0
    base: float = 10000.0
    taps: int = 1
    centered: bool = False
    output_bias: bool = False

    def __post_init__(self) -> None:
        check_config(self)
        if self.d_model // self.heads % 2:
            raise GatelabError(f"d_model {self.d_model} over {self.heads} heads is odd; give another number of heads")

    @property
    def attention_scale(self) -> float:
        """The factor of the products of queries and keys."""
        k = self.d_model // self.heads
        return (self.sharpness or k**0.5) / k

    def body_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """P above: the number of parameters without embedding and head."""
        d = self.d_model
        extra = 2 * self.taps * d * (self.taps > 1) + d * self.output_bias
        return self.layers * (4 * d * d + extra + feed_forward_count(d, self.width, unit, match_mlp))

    def parameter_count(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """The number of all parameters, without building the model."""
        return 2 * self.vocabulary * self.d_model + self.body_count(unit, match_mlp)

    def token_flops(self, unit: UnitLike = "gelu", match_mlp: bool = True) -> int:
        """Operations per token in a training step: 6 per parameter in a product, and half the products of attention."""
        head = self.vocabulary * self.d_model
        return 6 * (self.body_count(unit, match_mlp) + head) + 6 * self.layers * self.context * self.d_model


# All widths are multiples of 48: units of one and of two factors have exactly as many parameters as a plain unit.
DECODER_SIZES = {
    "tiny": DecoderConfig(context=32, layers=2, heads=2, d_model=32, width=96),
    "mini": DecoderConfig(context=32, layers=2, heads=2, d_model=48, width=192),
    "small": DecoderConfig(context=32, layers=2, heads=2, d_model=64, width=288),
    "0.1M": DecoderConfig(layers=2, heads=2, d_model=64, width=288),
    "0.2M": DecoderConfig(layers=2, heads=3, d_model=96, width=336),
    "0.4M": DecoderConfig(layers=2, heads=2, d_model=128, width=528),
    "0.8M": DecoderConfig(layers=2, heads=3, d_model=192, width=672),
    "1.3M": DecoderConfig(layers=3, heads=3, d_model=192, width=768),
    "1.6M": DecoderConfig(layers=4, heads=3, d_model=192, width=672),
    "3.2M": DecoderConfig(layers=4, heads=4, d_model=256, width=1056),
    "6.4M": DecoderConfig(layers=5, heads=5, d_model=320, width=1344),
    "11M": DecoderConfig(layers=6, heads=6, d_model=384, width=1536),
    "26M": DecoderConfig(layers=8, heads=8, d_model=512, width=2112),
    "60M": DecoderConfig(layers=10, heads=11, d_model=704, width=2880),
}


def rms(x: Tensor) -> Tensor:
    """The rows of x scaled to a root mean square of 1, with the mean in float32 or float64."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def turns(length: int, k: int, base: float, device: torch.device) -> Tensor:
    """Cosines and sines (2, length, 2, k/2) of the positions times the frequencies of k/2 pairs of numbers."""
    frequencies = base ** (-torch.arange(0, k, 2, device=device, dtype=torch.float32) / k)
    angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.stack((cos, cos), 1), torch.stack((-sin, sin), 1)))


def rotated(x: Tensor, by: Tensor) -> Tensor:
    """x (..., T, k) with its pairs of numbers (i, i + k/2) rotated by angles with these cosines and sines."""
    cos, sin = by
    # One formula for both numbers of a pair: a compiled concatenation would compute both halves everywhere.
    pairs = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (2, -1))
    return (pairs * cos + pairs.flip(-2) * sin).flatten(-2).to(x.dtype)


def convolved(x: Tensor, taps: Tensor, length: int) -> Tensor:
    """Rows (..., N T, d) of sequences of that length, summed over the last tokens with weights per column."""
    sequences = x.unflatten(-2, (-1, length))
    total = sequences * taps[..., 0, :].unsqueeze(-2).unsqueeze(-2).to(x.dtype)
    for lag in range(1, taps.shape[-2]):
        before = functional.pad(sequences[..., :-lag, :], (0, 0, lag, 0))
        total = total + before * taps[..., lag, :].unsqueeze(-2).unsqueeze(-2).to(x.dtype)
    return total.flatten(-3, -2)


class DecoderBlock(nn.Module):
    """x + attention(rms x), then x + unit(rms x), on rows (..., N T, d)."""

    mean: Tensor | None
    taps: nn.Parameter | None
    bias: nn.Parameter | None
    passes: Tensor

    def __init__(self, config: DecoderConfig, feed: nn.Module) -> None:
        super().__init__()
        d = config.d_model
        self.heads, self.scale = config.heads, config.attention_scale
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.taps = self.bias = None
        if config.taps > 1:
            self.taps = nn.Parameter(torch.empty(config.taps, 2 * d))
        if config.output_bias:
            self.bias = nn.Parameter(torch.zeros(d))
        for name, shape in (("mean", getattr(feed, "width", 0)), ("passes", 1)):
            self.register_buffer(name, None)
            if config.centered:
                self.register_buffer(name, torch.zeros(shape))
        if (config.centered or config.output_bias) and not isinstance(feed, FeedForward):
            raise GatelabError("the unit was given as a class; centered and output_bias need a product unit, give one")
        self.feed_forward = feed

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        x = x + self.attention(rms(x), by)
        return x + self.unit(rms(x))

    def attention(self, x: Tensor, by: Tensor) -> Tensor:
        """Causal attention with normalized queries and keys and rotary positions."""
        joined = x @ self.qkv.weight.mT
        if self.taps is not None:
            both, values = joined.split((2 * x.shape[-1], x.shape[-1]), -1)
            joined = torch.cat((convolved(both, self.taps, by.shape[1]), values), -1)
        joined = joined.reshape(-1, by.shape[1], 3, self.heads, x.shape[-1] // self.heads)
        q, k, v = joined.permute(2, 0, 3, 1, 4).unbind()
        q, k = rotated(rms(q), by), rotated(rms(k), by)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return mixed.transpose(1, 2).reshape(x.shape) @ self.out.weight.mT

    def unit(self, x: Tensor) -> Tensor:
        """The feed-forward part; a user's own module is mapped over the models by vmap."""
        feed = self.feed_forward
        if isinstance(feed, FeedForward):
            # By name, since stacked parameters are plain tensors.
            *maps, out = (getattr(feed, name).mT for name in ("G", *factor_names(feed.unit.factors), "D"))
            y = self.minus_mean(feed.unit.neuron(*(x @ each for each in maps))) @ out
            if self.bias is not None:
                y = y + self.bias.unsqueeze(-2).to(y.dtype)
            return y
        if x.ndim == 2:
            return feed(x)
        return vmap(lambda params, rows: functional_call(feed, params, (rows,)))(dict(feed.named_parameters()), x)

    def minus_mean(self, hidden: Tensor) -> Tensor:
        """Hidden activations minus their running mean, which training passes update for the next ones."""
        if self.mean is None:
            return hidden
        centered = (hidden - self.mean.unsqueeze(-2)).to(hidden.dtype)
        if self.training and torch.is_grad_enabled():
            with torch.no_grad():
                self.passes.add_(1).clamp_(max=REMEMBERED)
                self.mean.lerp_(hidden.mean(-2, dtype=self.mean.dtype), 1 / self.passes)
        return centered


class Decoder(UnitModel):
    """Causal language model: tokens (N, T) to logits (N, T, vocabulary).

    `size` is a name of `DECODER_SIZES` or a `DecoderConfig`; options replace single values of it. Weights are drawn
    from N(0, 1 / fan-in), output maps of blocks divided by sqrt(2 layers); the head is zero initially.

    >>> model = Decoder("tiny", "swiglu", context=8)
    >>> tokens = torch.arange(16).reshape(2, 8)
    >>> model(tokens).shape
    torch.Size([2, 8, 256])
    """

    kind, sizes = "decoder", DECODER_SIZES
    config: DecoderConfig

    def __init__(self, size: str | DecoderConfig = "0.4M", unit: UnitLike = "swiglu", **options: Any) -> None:
        super().__init__(size, unit, **options)

    def _build(self, c: DecoderConfig, feed: Feed, seed: int) -> None:
        self.tokens = nn.Embedding(c.vocabulary, c.d_model)
        seeds = layer_seeds(seed, c.layers)
        self.blocks = nn.ModuleList(DecoderBlock(c, feed(c.d_model, c.width, s)) for s in seeds)
        self.head = nn.Linear(c.d_model, c.vocabulary, bias=False)

    def _scale(self, c: DecoderConfig, seed: int) -> None:
        generator = torch.Generator().manual_seed(layer_seeds(seed, c.layers + 1)[-1])
        self.head.weight.zero_()
        for name, p in self.named_parameters():
            if name.endswith((".out.weight", "feed_forward.D")):
                p /= (2 * c.layers) ** 0.5
            elif name.endswith("qkv.weight") and c.taps > 1:
                p[c.d_model : 2 * c.d_model] = p[: c.d_model]
            elif name.endswith(".taps"):
                queries, keys = p.split(c.d_model, 1)
                queries.copy_(torch.randn(queries.shape, generator=generator) / c.taps**0.5)
                keys[0], keys[1:] = 0, queries[:-1]

    def forward(self, tokens: Tensor, following: Tensor | None = None) -> Tensor:
        """Logits, or, with the tokens that follow, their mean cross-entropy in nats per token for each model."""
        length = tokens.shape[-1]
        if length > self.config.context:
            raise GatelabError(
                f"the tokens have the shape {tuple(tokens.shape)}, the model takes up to {self.config.context} in a "
                f"row; cut the text, or build it with context={length}"
            )
        x = self.embedded(tokens)
        # Once for all layers: a compiled block would recompute cosines for every number.
        by = turns(length, self.config.d_model // self.config.heads, self.config.base, x.device)
        for block in self.blocks:
            x = block(x, by)
        if following is None:
            return self.logits(x).unflatten(-2, tokens.shape[-2:])
        return self.losses(x, following)

    def embedded(self, tokens: Tensor) -> Tensor:
        """The normalized embedding of tokens (..., N, T): (..., N T, d)."""
        tokens, weight = tokens.flatten(-2), self.tokens.weight
        vocabulary, d = weight.shape[-2:]
        if vocabulary <= FEW_TOKENS:
            return rms(functional.one_hot(tokens, vocabulary).to(weight.dtype) @ weight)
        model = torch.arange(weight[..., 0, 0].numel(), device=tokens.device).view(*weight.shape[:-2], 1)
        return rms(functional.embedding(tokens + vocabulary * model, weight.reshape(-1, d)))

    def logits(self, x: Tensor) -> Tensor:
        return rms(x) @ self.head.weight.mT

    def losses(self, x: Tensor, following: Tensor) -> Tensor:
        """The mean cross-entropy of the tokens that follow, (...), in float32 or float64."""
        logits = self.logits(x)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        each = functional.cross_entropy(wide.flatten(0, -2), following.flatten(), reduction="none")
        return each.view(*x.shape[:-2], -1).mean(-1)

    def compile_parts(self) -> None:
        """Compile the blocks, the embedding and the loss for the shapes of their first call."""
        for block in self.blocks:
            block.compile(dynamic=False)
        self.embedded = torch.compile(self.embedded, dynamic=False)
        self.losses = torch.compile(self.losses, dynamic=False)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of the tokens that follow, in nats per token."""
        return self(x, y)
