"""What each use of a parameter leaves of it: the gradient of every sample, in factors (`contraction`).

A call of `linear`, `addmm`, `matmul`, `embedding`, `conv1d`, `conv2d`, a normalisation or a broadcast sum, product,
slice or expansion with parameters among its arguments has a rule, which gives a `Part` for each of them. The rules look
at functions, not at modules: `F.linear(x, self.W)` in a user's own forward is as good as `nn.Linear`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.ntk.modules.contraction import Factors, Kind, Outer, Rows, Sum

Known = dict[int, str]  # the names of parameters by their id
# Of the gradient by the call's output, N, and whether the input is one for all samples: the factors of N samples.
Make = Callable[[Tensor, int, bool], Factors]


@dataclass(frozen=True)
class Part:
    """One parameter in one call: its name, the kind of its factors, and how they are made.

    `input` is the input of the call where one of the factors is a view of it, else None.
    """

    name: str
    kind: Kind
    make: Make
    input: Tensor | None = None


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call by their names, and which tensors are parameters."""

    values: Mapping[str, Any]
    known: Known

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The argument of that name, or what it is by default."""
        return self.values.get(key, default)

    def parameter(self, key: str) -> str | None:
        """The name of the parameter that is this argument, None where it is none."""
        return self.known.get(id(self.values.get(key)))


Rule = Callable[[Arguments], list[Part]]
RULES: dict[Any, tuple[tuple[str, ...], Rule]] = {}


def parts_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Known) -> list[Part]:
    """The parts of a call, none where it holds no known parameter or in a way that no rule covers."""
    if function not in RULES:
        return []
    names, rule = RULES[function]
    try:
        return rule(Arguments(dict(zip(names, args, strict=False)) | kwargs, known))
    except KeyError:  # arguments under other names: left to automatic Jacobians
        return []


def rule_of(*functions: Any, names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for these functions, whose arguments have these names, in their order."""

    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(functions, (tuple(names.split()), rule)))
        return rule

    return enter


def per_sample(x: Tensor, n: int, shared: bool = False) -> Tensor:
    """(N, T, features) of a tensor whose samples come first, alone or with their positions in one dimension."""
    rows = x.detach().reshape(-1, x.shape[-1])
    if shared:
        return rows.expand(n, *rows.shape)
    return rows.reshape(n, -1, rows.shape[-1])


def bias_parts(call: Arguments, key: str) -> list[Part]:
    """Of a bias over the last dimension, or of none."""
    name = call.parameter(key)
    if name is None:
        return []
    return [Part(name, Sum, lambda g, n, _: Sum(g.reshape(n, -1, g.shape[-1]).sum(1)))]


@rule_of(functional.linear, names="input weight bias")
def linear(call: Arguments) -> list[Part]:
    """x W^T + b: L is the gradient and R the input."""
    x, name = call["input"], call.parameter("weight")
    if name is None:
        return bias_parts(call, "bias")
    make: Make = lambda g, n, shared: Outer(per_sample(g, n), per_sample(x, n, shared), side=1)  # noqa: E731
    return [Part(name, Outer, make, x.detach()), *bias_parts(call, "bias")]


@rule_of(torch.matmul, Tensor.matmul, torch.mm, names="mat1 mat2")
def matmul(call: Arguments) -> list[Part]:
    """x W: L is the input and R the gradient."""
    x, weight, name = call["mat1"], call["mat2"], call.parameter("mat2")
    if name is None or weight.ndim != 2 or x.ndim < 2:
        return []
    make: Make = lambda g, n, shared: Outer(per_sample(x, n, shared), per_sample(g, n), side=0)  # noqa: E731
    return [Part(name, Outer, make, x.detach())]


@rule_of(torch.addmm, names="input mat1 mat2")
def addmm(call: Arguments) -> list[Part]:
    """b + x W, unscaled, b a vector."""
    scaled = call.get("alpha", 1) != 1 or call.get("beta", 1) != 1
    if scaled or (call["input"].ndim != 1 and call.parameter("input") is not None):
        return []
    return [*matmul(call), *bias_parts(call, "input")]


@rule_of(functional.embedding, names="input weight padding_idx max_norm norm_type scale_grad_by_freq sparse")
def embedding(call: Arguments) -> list[Part]:
    """Rows of a table by their numbers; the row of the padding has no gradient."""
    name, padding = call.parameter("weight"), call.get("padding_idx")
    if name is None or call.get("max_norm") is not None or call.get("scale_grad_by_freq"):
        return []
    index, count = call["input"], call["weight"].shape[0]

    def make(g: Tensor, n: int, shared: bool) -> Rows:
        rows = index.reshape(1, -1).expand(n, -1) if shared else index.reshape(n, -1)
        values = per_sample(g, n)
        if padding is not None:
            values = values.masked_fill((rows == padding % count)[..., None], 0)
        return Rows(rows, values)

    return [Part(name, Rows, make)]


@rule_of(functional.conv1d, functional.conv2d, names="input weight bias stride padding dilation groups")
def convolution(call: Arguments) -> list[Part]:
    """L is the gradient by position and channel, R the patch of the input there; with groups, group by group."""
    x, weight, groups = call["input"], call["weight"], call.get("groups", 1)
    dimensions, channels = weight.ndim - 2, weight.shape[0]
    if x.ndim != weight.ndim:
        return []
    name, bias, parts = call.parameter("weight"), call.parameter("bias"), []
    steps = (("stride", 1), ("padding", 0), ("dilation", 1))
    options = [for_each(call.get(key, default), dimensions) for key, default in steps]

    def outer(g: Tensor, n: int, shared: bool) -> Outer:
        patches = unfold(x.detach(), weight.shape[2:], *options).transpose(1, 2)
        if shared:
            patches = patches.expand(n, -1, -1)
        return Outer(g.reshape(n, channels, -1).transpose(1, 2), patches)

    def grouped(g: Tensor, n: int, shared: bool) -> Sum:
        both = outer(g, n, shared)
        left, right = both.left.unflatten(2, (groups, -1)), both.right.unflatten(2, (groups, -1))
        return Sum(torch.einsum("ntgp,ntgq->ngpq", left, right).flatten(1))

    if name is not None:
        parts.append(Part(name, Sum, grouped) if groups > 1 else Part(name, Outer, outer))
    if bias is not None:
        parts.append(Part(bias, Sum, lambda g, n, _: Sum(g.reshape(n, channels, -1).sum(2))))
    return parts


def for_each(value: Any, dimensions: int) -> Any:
    """An option of a convolution for each of its dimensions; a text stays as it is.

    >>> for_each(2, 2), for_each((1, 3), 2), for_each("same", 2)
    ((2, 2), (1, 3), 'same')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return (int(value),) * dimensions
    return tuple(value) * (dimensions // len(value))


def unfold(x: Tensor, kernel: torch.Size, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """The patches (N, C kernel, positions) that a convolution sees; `padding` may be "same" or "valid"."""
    named = isinstance(padding, str)
    if x.ndim == 3:
        x, kernel = x[:, :, None], torch.Size((1, *kernel))
        stride, dilation = (1, *stride), (1, *dilation)
        if not named:
            padding = (0, *padding)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        x = functional.pad(x, [part for t in reversed(total) for part in (t // 2, t - t // 2)])
    if named:
        padding = (0, 0)
    return functional.unfold(x, tuple(kernel), dilation, padding, stride)  # type: ignore[arg-type]


def norm_rule(function: Callable[..., Tensor], names: str, last: bool) -> None:
    """Enter y = w * plain(x) + b, with w over the last dimensions or over the channels, dimension 1."""

    def rule(call: Arguments) -> list[Part]:
        if call.get("training") or call.get("use_input_stats"):
            return []
        others = {key: v for key, v in call.values.items() if key not in ("weight", "bias", "training", "momentum")}
        parts = []
        for key in ("weight", "bias"):
            name = call.parameter(key)
            if name is None:
                continue

            def make(
                g: Tensor, n: int, shared: bool, scaled: bool = key == "weight", size: int = call[key].numel()
            ) -> Sum:
                if scaled:
                    g = g * function(**others).detach()
                if last:
                    return Sum(g.reshape(n, -1, size).sum(1))
                return Sum(g.reshape(n, -1, size, g.shape[2:].numel()).sum((1, 3)))

            parts.append(Part(name, Sum, make))
        return parts

    rule_of(function, names=names)(rule)


norm_rule(functional.layer_norm, "input normalized_shape weight bias eps", last=True)
norm_rule(functional.rms_norm, "input normalized_shape weight eps", last=True)
norm_rule(functional.group_norm, "input num_groups weight bias eps", last=False)
norm_rule(functional.batch_norm, "input running_mean running_var weight bias training momentum eps", last=False)


@rule_of(torch.add, Tensor.add, Tensor.__radd__, names="input other")
def addition(call: Arguments) -> list[Part]:
    """x + p and p + x."""
    return broadcast(call, product=False)


@rule_of(torch.mul, Tensor.mul, Tensor.__rmul__, names="input other")
def multiplication(call: Arguments) -> list[Part]:
    """x * p and p * x."""
    return broadcast(call, product=True)


def broadcast(call: Arguments, product: bool) -> list[Part]:
    """Of a sum or product of one parameter with something else: p is stretched over the samples."""
    pair = (call["input"], call["other"])
    if call.get("alpha", 1) != 1 or call.get("out") is not None or not all(isinstance(t, Tensor) for t in pair):
        return []
    names = (call.parameter("input"), call.parameter("other"))
    factors = [other.detach() if product else None for other in reversed(pair)]
    parts = [stretched(name, p, f) for name, p, f in zip(names, pair, factors, strict=True) if name is not None]
    if len(parts) != 1:
        return []
    return parts


def stretched(name: str, p: Tensor, factor: Tensor | None) -> Part:
    """Of a parameter that is stretched over the samples and whatever else, and then multiplied by `factor`, if any."""

    def make(g: Tensor, n: int, shared: bool) -> Sum:
        if factor is not None:
            g = g * factor
        g = g.reshape(n, -1, *g.shape[1:])
        shape = (1,) * (g.ndim - 2 - p.ndim) + tuple(p.shape[max(0, p.ndim - g.ndim + 2) :])
        over = [1, *(k + 2 for k, (a, b) in enumerate(zip(shape, g.shape[2:], strict=True)) if a == 1 and b > 1)]
        return Sum(g.sum(over).reshape(n, p.numel()))

    return Part(name, Sum, make)


@rule_of(Tensor.expand, names="input")
def expansion(call: Arguments) -> list[Part]:
    """p.expand(...)."""
    name = call.parameter("input")
    if name is None:
        return []
    return [stretched(name, call["input"], None)]


@rule_of(Tensor.__getitem__, names="input index")
def slicing(call: Arguments) -> list[Part]:
    """p[...] with numbers and slices."""
    p, name, index = call["input"], call.parameter("input"), call["index"]
    if not isinstance(index, tuple):
        index = (index,)
    if name is None or not all(isinstance(k, int | slice) or k is None or k is Ellipsis for k in index):
        return []

    def make(g: Tensor, n: int, shared: bool) -> Sum:
        whole = g.new_zeros(n, *p.shape)
        view = whole[(slice(None), *index)]
        view += g.reshape(view.shape)
        return Sum(whole.reshape(n, -1))

    return [Part(name, Sum, make)]
