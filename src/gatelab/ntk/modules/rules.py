"""Rules for functions of parameters: the gradient of every sample by a parameter, in factors (`contraction`).

A rule returns a `Part` for each parameter among the arguments. Rules are for functions, not modules, so that
`F.linear(x, self.W)` in a user's forward works like `nn.Linear`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.ntk.modules.contraction import Factors, Outer, Rows, Sum

Known = dict[int, str]  # the names of parameters by their id
# From the gradient by the call's output, N, and whether all samples share the input, to the factors of N samples.
Make = Callable[[Tensor, int, bool], Factors]


@dataclass(frozen=True)
class Part:
    """One parameter in one call: its name, and the function that computes its factors."""

    name: str
    make: Make


# From the arguments by name, and the names of those that are parameters.
Rule = Callable[[dict[str, Any], dict[str, str]], list[Part]]
RULES: dict[Any, tuple[tuple[str, ...], Rule]] = {}


def parts_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Known) -> list[Part]:
    """The parts of a call, empty without a known parameter or a rule."""
    if function not in RULES:
        return []
    keys, rule = RULES[function]
    call = dict(zip(keys, args, strict=False)) | kwargs  # trailing arguments may be missing
    names = {key: known[id(value)] for key, value in call.items() if id(value) in known}
    if not names:
        return []
    try:
        return rule(call, names)
    except KeyError:  # arguments with other names: automatic Jacobians
        return []


def rule_of(*functions: Any, names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these functions with these argument names, in order."""

    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(functions, (tuple(names.split()), rule)))
        return rule

    return enter


def per_sample(x: Tensor, n: int, shared: bool = False) -> Tensor:
    """A tensor with samples first, alone or merged with positions, as (N, T, features)."""
    rows = x.detach().reshape(-1, x.shape[-1])
    if shared:
        return rows.expand(n, *rows.shape)
    return rows.reshape(n, -1, rows.shape[-1])


def bias_parts(names: dict[str, str], key: str) -> list[Part]:
    """The part of a bias over the last dimension, if there is one."""
    if key not in names:
        return []
    return [Part(names[key], lambda g, n, _: Sum(g.reshape(n, -1, g.shape[-1]).sum(1)))]


@rule_of(functional.linear, names="input weight bias")
def linear(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """x W^T + b: L is the gradient and R the input."""
    x, parts = call["input"], bias_parts(names, "bias")
    if "weight" in names:
        make: Make = lambda g, n, shared: Outer(per_sample(g, n), per_sample(x, n, shared))  # noqa: E731
        parts.insert(0, Part(names["weight"], make))
    return parts


@rule_of(torch.matmul, Tensor.matmul, torch.mm, names="mat1 mat2")
def matmul(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """x W: L is the input and R the gradient."""
    x = call["mat1"]
    if "mat2" not in names or call["mat2"].ndim != 2 or x.ndim < 2:
        return []
    return [Part(names["mat2"], lambda g, n, shared: Outer(per_sample(x, n, shared), per_sample(g, n)))]


@rule_of(torch.addmm, names="input mat1 mat2")
def addmm(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """b + x W, unscaled, b a vector."""
    scaled = call.get("alpha", 1) != 1 or call.get("beta", 1) != 1
    if scaled or (call["input"].ndim != 1 and "input" in names):
        return []
    return [*matmul(call, names), *bias_parts(names, "input")]


@rule_of(functional.embedding, names="input weight padding_idx max_norm norm_type scale_grad_by_freq sparse")
def embedding(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """Rows of a table by their numbers; the row of the padding has no gradient."""
    padding = call.get("padding_idx")
    if "weight" not in names or call.get("max_norm") is not None or call.get("scale_grad_by_freq"):
        return []
    index, count = call["input"], call["weight"].shape[0]

    def make(g: Tensor, n: int, shared: bool) -> Rows:
        rows = index.reshape(1, -1).expand(n, -1) if shared else index.reshape(n, -1)
        values = per_sample(g, n)
        if padding is not None:
            values = values.masked_fill((rows == padding % count)[..., None], 0)
        return Rows(rows, values)

    return [Part(names["weight"], make)]


@rule_of(functional.conv1d, functional.conv2d, names="input weight bias stride padding dilation groups")
def convolution(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """L is the gradient by position and channel, R the patch of the input; with groups, group by group."""
    x, weight, groups, parts = call["input"], call["weight"], call.get("groups", 1), []
    if x.ndim != weight.ndim:
        return []

    def outer(g: Tensor, n: int, shared: bool) -> Outer:
        patches = unfold(x.detach(), weight.shape[2:], call).transpose(1, 2)
        if shared:
            patches = patches.expand(n, -1, -1)
        return Outer(g.reshape(n, len(weight), -1).transpose(1, 2), patches)

    def grouped(g: Tensor, n: int, shared: bool) -> Sum:
        left, right = (t.unflatten(2, (groups, -1)) for t in vars(outer(g, n, shared)).values())
        return Sum(torch.einsum("ntgp,ntgq->ngpq", left, right).flatten(1))

    if "weight" in names:
        parts.append(Part(names["weight"], grouped) if groups > 1 else Part(names["weight"], outer))
    if "bias" in names:
        parts.append(Part(names["bias"], lambda g, n, _: Sum(g.reshape(n, len(weight), -1).sum(2))))
    return parts


def unfold(x: Tensor, kernel: torch.Size, call: dict[str, Any]) -> Tensor:
    """The patches (N, C kernel, positions) that a convolution sees; `padding` may be "same" or "valid"."""

    def option(key: str, default: int) -> tuple[int, ...]:
        value = call.get(key, default)
        if isinstance(value, str):
            value = 0
        if isinstance(value, int):
            value = (value,)
        # A sequence is treated as an image of one row.
        return (default,) * (4 - x.ndim) + tuple(value) * ((x.ndim - 2) // len(value))

    kernel = torch.Size((1,) * (4 - x.ndim)) + kernel
    stride, padding, dilation = option("stride", 1), option("padding", 0), option("dilation", 1)
    if x.ndim == 3:
        x = x[:, :, None]
    if call.get("padding") == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        x = functional.pad(x, [part for t in reversed(total) for part in (t // 2, t - t // 2)])
    return functional.unfold(x, tuple(kernel), dilation, padding, stride)  # type: ignore[arg-type]


def norm_rule(function: Callable[..., Tensor], names: str, last: bool) -> None:
    """Register y = w * plain(x) + b, with w over the last dimensions or over the channels, dimension 1."""

    def rule(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
        if call.get("training") or call.get("use_input_stats"):
            return []
        others = {key: v for key, v in call.items() if key not in ("weight", "bias", "training", "momentum")}

        def part(key: str) -> Part:
            size = call[key].numel()

            def make(g: Tensor, n: int, shared: bool) -> Sum:
                if key == "weight":
                    g = g * function(**others).detach()
                if last:
                    return Sum(g.reshape(n, -1, size).sum(1))
                return Sum(g.reshape(n, -1, size, g.shape[2:].numel()).sum((1, 3)))

            return Part(names[key], make)

        return [part(key) for key in ("weight", "bias") if key in names]

    rule_of(function, names=names)(rule)


norm_rule(functional.layer_norm, "input normalized_shape weight bias eps", last=True)
norm_rule(functional.rms_norm, "input normalized_shape weight eps", last=True)
norm_rule(functional.group_norm, "input num_groups weight bias eps", last=False)
norm_rule(functional.batch_norm, "input running_mean running_var weight bias training momentum eps", last=False)


def broadcast(call: dict[str, Any], names: dict[str, str], product: bool) -> list[Part]:
    """A sum or product of one parameter and another tensor, in which the parameter is broadcast."""
    if len(names) != 1 or call.get("alpha", 1) != 1 or call.get("out") is not None:
        return []
    ((key, name),) = names.items()
    other = call[{"input": "other", "other": "input"}[key]]
    if not isinstance(other, Tensor):
        return []
    return [stretched(name, call[key], other.detach() if product else None)]


rule_of(torch.add, Tensor.add, Tensor.__radd__, names="input other")(partial(broadcast, product=False))
rule_of(torch.mul, Tensor.mul, Tensor.__rmul__, names="input other")(partial(broadcast, product=True))


def stretched(name: str, p: Tensor, factor: Tensor | None) -> Part:
    """A parameter that is broadcast over the samples and other dimensions, and multiplied by `factor`, if any."""

    def make(g: Tensor, n: int, shared: bool) -> Sum:
        if factor is not None:
            g = g * factor
        g = g.reshape(n, -1, *g.shape[1:])
        own = p.shape[-(g.ndim - 2) :] if g.ndim > 2 else ()  # without the dimension of the samples
        missing = (1,) * (g.ndim - 2 - len(own))
        return Sum(g.sum_to_size(n, 1, *missing, *own).reshape(n, p.numel()))

    return Part(name, make)


@rule_of(Tensor.expand, names="input")
def expansion(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    return [stretched(names["input"], call["input"], None)]


@rule_of(Tensor.__getitem__, names="input index")
def slicing(call: dict[str, Any], names: dict[str, str]) -> list[Part]:
    """p[...] with integers and slices."""
    p, index = call["input"], call["index"]
    if not isinstance(index, tuple):
        index = (index,)
    if not all(isinstance(k, int | slice) or k is None or k is Ellipsis for k in index):
        return []

    def make(g: Tensor, n: int, shared: bool) -> Sum:
        whole = g.new_zeros(n, *p.shape)
        view = whole[(slice(None), *index)]
        view += g.reshape(view.shape)
        return Sum(whole.reshape(n, -1))

    return [Part(names["input"], make)]
