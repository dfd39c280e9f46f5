"""What each use of a parameter leaves of it: the gradient of every sample, in factors.

A call of `linear`, `addmm`, `matmul`, `embedding`, `conv1d`, `conv2d`, a normalisation or a broadcast sum, product,
slice or expansion with parameters among its arguments has, for each of them, one of three kinds. With g the gradient by
the call's output, sample i's gradient is

    outer    sum_t L_it R_it^T      L, R: (N, T, p), (N, T, q); weight matrices, T positions a sample
    rows     sum_t e_{r_it} v_it^T  r: (N, T) row numbers, v: (N, T, q); embeddings
    sum      the gradient itself    (N, P); biases, norms, whatever is small

The rules look at functions, not at modules: `F.linear(x, self.W)` in a user's own forward is as good as `nn.Linear`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

Make = Callable[[Tensor, int, bool], tuple[Tensor, ...]]
Known = dict[int, str]


@dataclass(frozen=True)
class Part:
    """One parameter in one call. `make(g, N, shared)` gives the factors; shared: the input is one for all samples."""

    name: str
    kind: Literal["outer", "rows", "sum"]
    make: Make
    source: Tensor | None = None  # the input, where a factor is a view of it
    side: int | None = None  # which factor is a view of it: 0 for L, 1 for R


Rule = Callable[[dict[str, Any], Known], list[Part]]


def parts_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Known) -> list[Part]:
    """The parts of a call, none where it holds no known parameter or in a way that no rule covers."""
    found = _RULES.get(function)
    if found is None:
        return []
    names, rule = found
    try:
        return rule(dict(zip(names, args, strict=False)) | kwargs, known)
    except KeyError:  # arguments under other names: left to automatic Jacobians
        return []


def _name(value: Any, known: Known) -> str | None:
    return known.get(id(value)) if isinstance(value, Tensor) else None


def _per_sample(x: Tensor, n: int, shared: bool) -> Tensor:
    """(N, T, features) of an input whose samples come first, alone or with their positions in one dimension."""
    rows = x.detach().reshape(-1, x.shape[-1])
    return rows.expand(n, *rows.shape) if shared else rows.reshape(n, -1, rows.shape[-1])


def _add_bias(parts: list[Part], bias: Any, known: Known) -> list[Part]:
    name = _name(bias, known)
    if name is not None:
        parts.append(Part(name, "sum", lambda g, n, _: (g.reshape(n, -1, g.shape[-1]).sum(1),)))
    return parts


def _linear(call: dict[str, Any], known: Known) -> list[Part]:
    x, name = call["input"], _name(call["weight"], known)
    parts = []
    if name is not None:
        made: Make = lambda g, n, s: (_per_sample(g, n, False), _per_sample(x, n, s))  # noqa: E731
        parts.append(Part(name, "outer", made, x.detach(), side=1))
    return _add_bias(parts, call.get("bias"), known)


def _matmul(call: dict[str, Any], known: Known) -> list[Part]:
    x, weight = call["mat1"], call["mat2"]
    name = _name(weight, known)
    if name is None or weight.ndim != 2 or x.ndim < 2:
        return []
    made: Make = lambda g, n, s: (_per_sample(x, n, s), _per_sample(g, n, False))  # noqa: E731
    return [Part(name, "outer", made, x.detach(), side=0)]


def _addmm(call: dict[str, Any], known: Known) -> list[Part]:
    if call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        return []
    bias = call["input"]
    if bias.ndim != 1 and _name(bias, known) is not None:
        return []
    return _add_bias(_matmul(call, known), bias, known)


def _embedding(call: dict[str, Any], known: Known) -> list[Part]:
    name, padding = _name(call["weight"], known), call.get("padding_idx")
    if name is None or call.get("max_norm") is not None or call.get("scale_grad_by_freq"):
        return []
    index, rows = call["input"], call["weight"].shape[0]

    def make(g: Tensor, n: int, shared: bool) -> tuple[Tensor, ...]:
        found = index.reshape(1, -1).expand(n, -1) if shared else index.reshape(n, -1)
        values = _per_sample(g, n, False)
        if padding is not None:
            values = values.masked_fill((found == padding % rows)[..., None], 0)
        return found, values

    return [Part(name, "rows", make)]


def _conv(dimensions: int) -> Rule:
    def rule(call: dict[str, Any], known: Known) -> list[Part]:
        x, weight, groups = call["input"], call["weight"], call.get("groups", 1)
        if x.ndim != dimensions + 2:
            return []
        name, parts = _name(weight, known), []
        options = [_many(call.get(key, default), dimensions) for key, default in _STEPS]
        channels = weight.shape[0]

        def outer(g: Tensor, n: int, shared: bool) -> tuple[Tensor, ...]:
            patches = unfold(x.detach(), weight.shape[2:], *options).transpose(1, 2)
            return g.reshape(n, channels, -1).transpose(1, 2), patches.expand(n, -1, -1) if shared else patches

        def grouped(g: Tensor, n: int, shared: bool) -> tuple[Tensor, ...]:
            left, right = outer(g, n, shared)
            left, right = left.unflatten(2, (groups, -1)), right.unflatten(2, (groups, -1))
            return (torch.einsum("ntgp,ntgq->ngpq", left, right).flatten(1),)

        if name is not None:
            made, kind = (grouped, "sum") if groups > 1 else (outer, "outer")
            parts.append(Part(name, kind, made))
        bias = _name(call.get("bias"), known)
        if bias is not None:
            parts.append(Part(bias, "sum", lambda g, n, _: (g.reshape(n, channels, -1).sum(2),)))
        return parts

    return rule


_STEPS = (("stride", 1), ("padding", 0), ("dilation", 1))


def _many(value: Any, dimensions: int) -> Any:
    if isinstance(value, str):
        return value
    return (int(value),) * dimensions if isinstance(value, int) else tuple(value) * (dimensions // len(value))


def unfold(x: Tensor, kernel: torch.Size, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """The patches (N, C kernel, positions) that a convolution sees; `padding` may be "same" or "valid"."""
    if x.ndim == 3:
        x, kernel = x[:, :, None], torch.Size((1, *kernel))
        stride, dilation = (1, *stride), (1, *dilation)
        padding = padding if isinstance(padding, str) else (0, *padding)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        x = functional.pad(x, [part for t in reversed(total) for part in (t // 2, t - t // 2)])
    return functional.unfold(x, tuple(kernel), dilation, (0, 0) if isinstance(padding, str) else padding, stride)


def _norm(last: bool, plain: Callable[[dict[str, Any]], Tensor]) -> Rule:
    """y = w * plain(x) + b, with w over the last dimensions or over the channels, dimension 1."""

    def rule(call: dict[str, Any], known: Known) -> list[Part]:
        if call.get("training") or call.get("use_input_stats"):
            return []
        parts = []
        for key, scaled in (("weight", True), ("bias", False)):
            name = _name(call.get(key), known)
            if name is None:
                continue
            shape = call[key].shape

            def make(g: Tensor, n: int, shared: bool, scaled: bool = scaled, size: int = shape.numel()) -> tuple:
                g = g * plain(call).detach() if scaled else g
                if last:
                    return (g.reshape(n, -1, size).sum(1),)
                return (g.reshape(n, -1, size, g.shape[2:].numel()).sum((1, 3)),)

            parts.append(Part(name, "sum", make))
        return parts

    return rule


def _broadcast(product: bool) -> Rule:
    """x + p, x * p and p + x: p is stretched over the samples."""

    def rule(call: dict[str, Any], known: Known) -> list[Part]:
        pair = (call["input"], call["other"])
        if call.get("alpha", 1) != 1 or call.get("out") is not None or not all(isinstance(t, Tensor) for t in pair):
            return []
        names = [_name(t, known) for t in pair]
        parts = []
        for name, p, other in zip(names, pair, reversed(pair), strict=True):
            if name is not None:
                factor = other.detach() if product else None
                parts.append(_stretched(name, p, factor))
        return parts if sum(name is not None for name in names) == 1 else []

    return rule


def _stretched(name: str, p: Tensor, factor: Tensor | None) -> Part:
    def make(g: Tensor, n: int, shared: bool) -> tuple[Tensor, ...]:
        g = g if factor is None else g * factor
        g = g.reshape(n, -1, *g.shape[1:])
        shape = (1,) * (g.ndim - 2 - p.ndim) + tuple(p.shape[max(0, p.ndim - g.ndim + 2) :])
        over = [1, *(k + 2 for k, (a, b) in enumerate(zip(shape, g.shape[2:], strict=True)) if a == 1 and b > 1)]
        return (g.sum(over).reshape(n, p.numel()),)

    return Part(name, "sum", make)


def _expand(call: dict[str, Any], known: Known) -> list[Part]:
    name = _name(call["input"], known)
    return [] if name is None else [_stretched(name, call["input"], None)]


def _slice(call: dict[str, Any], known: Known) -> list[Part]:
    p, name = call["input"], _name(call["input"], known)
    index = call["index"] if isinstance(call["index"], tuple) else (call["index"],)
    if name is None or not all(isinstance(k, int | slice) or k is None or k is Ellipsis for k in index):
        return []

    def make(g: Tensor, n: int, shared: bool) -> tuple[Tensor, ...]:
        whole = g.new_zeros(n, *p.shape)
        view = whole[(slice(None), *index)]
        view += g.reshape(view.shape)
        return (whole.reshape(n, -1),)

    return [Part(name, "sum", make)]


def _layer_norm(c: dict[str, Any]) -> Tensor:
    return functional.layer_norm(c["input"], c["normalized_shape"], eps=c.get("eps", 1e-5))


def _rms_norm(c: dict[str, Any]) -> Tensor:
    return functional.rms_norm(c["input"], c["normalized_shape"], eps=c.get("eps"))


def _group_norm(c: dict[str, Any]) -> Tensor:
    return functional.group_norm(c["input"], c["num_groups"], eps=c.get("eps", 1e-5))


def _batch_norm(c: dict[str, Any]) -> Tensor:
    return functional.batch_norm(c["input"], c["running_mean"], c["running_var"], eps=c.get("eps", 1e-5))


_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_BATCH = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_TWO = ("input", "other")
_RULES: dict[Any, tuple[tuple[str, ...], Rule]] = {
    functional.linear: (("input", "weight", "bias"), _linear),
    torch.addmm: (("input", "mat1", "mat2"), _addmm),
    torch.matmul: (("mat1", "mat2"), _matmul),
    Tensor.matmul: (("mat1", "mat2"), _matmul),
    torch.mm: (("mat1", "mat2"), _matmul),
    functional.embedding: (
        ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
        _embedding,
    ),
    functional.conv1d: (_CONV, _conv(1)),
    functional.conv2d: (_CONV, _conv(2)),
    functional.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _norm(True, _layer_norm)),
    functional.rms_norm: (("input", "normalized_shape", "weight", "eps"), _norm(True, _rms_norm)),
    functional.group_norm: (("input", "num_groups", "weight", "bias", "eps"), _norm(False, _group_norm)),
    functional.batch_norm: (_BATCH, _norm(False, _batch_norm)),
    **{f: (_TWO, _broadcast(False)) for f in (torch.add, Tensor.add, Tensor.__radd__)},
    **{f: (_TWO, _broadcast(True)) for f in (torch.mul, Tensor.mul, Tensor.__rmul__)},
    Tensor.expand: (("input",), _expand),
    Tensor.__getitem__: (("input", "index"), _slice),
}
