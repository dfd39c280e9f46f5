"""Record every use of a parameter in a forward pass, and find the parameters with factors on three samples.

Samples are independent, so one backward pass from the sum of all outputs gives the gradients of each. A result that all
samples share (of positions, for example), which passes with two and with three samples reveal, is expanded over them.
Then the factors are verified: for random weights v, sum_i v_i (gradient of sample i) must agree with the gradient of
sum_i v_i f_i. A parameter that fails is handled by automatic Jacobians.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from gatelab.memory import ran_out
from gatelab.ntk.modules.contraction import Factors, Outer, Rows, Sum
from gatelab.ntk.modules.rules import Known, Part, parts_of
from gatelab.ntk.modules.samples import Samples, check_values

AHEAD = 3
Outline = list[tuple[tuple[str, ...], tuple[int, ...]]]  # the parameters of each call and the shape of its result
Stretched = dict[int, tuple[int, ...]]  # shapes of the results that all samples share, by the index of the call


class Misfit(Exception):
    """A pass differs from the survey."""


@dataclass(frozen=True)
class Call:
    """A use of parameters: the shape of the result and the edge for its gradient; `shared` if it was expanded."""

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    edge: GradientEdge | None
    shared: bool


class Recorder(TorchFunctionMode):
    """Records calls in order; `shared` has the shapes of the results to expand over samples."""

    def __init__(self, known: Known, n: int, shared: Stretched) -> None:
        super().__init__()
        self.known, self.n, self.shared = known, n, shared
        self.calls: list[Call] = []
        self.other: set[str] = set()
        self.largest = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        parts = parts_of(func, args, kwargs, self.known)
        out = func(*args, **kwargs)
        if isinstance(out, Tensor):
            self.largest = max(self.largest, out.numel() * out.element_size())
        if not parts or not isinstance(out, Tensor):
            if getattr(func, "__name__", "") != "__get__":  # reads of attributes, such as the shape
                for value in (*args, *kwargs.values()):
                    several = value if isinstance(value, list | tuple) else (value,)
                    self.other |= {self.known[id(v)] for v in several if isinstance(v, Tensor) and id(v) in self.known}
            return out
        shape = tuple(out.shape)
        stretch = self.shared.get(len(self.calls)) == shape
        if stretch:
            out = out.expand(self.n, *(shape[1:] if shape[:1] == (1,) else shape))
        edge = None if out.grad_fn is None else get_gradient_edge(out)
        self.calls.append(Call(tuple(parts), shape, edge, stretch))
        return out

    @property
    def outline(self) -> Outline:
        return [(tuple(part.name for part in call.parts), call.shape) for call in self.calls]


def gradients(total: Tensor, calls: Iterable[Call], keep: bool = False) -> list[Tensor | None]:
    """The gradients of `total` by the results of `calls`, without those by weights."""
    edges = [call.edge for call in calls]
    wanted = [edge for edge in edges if edge is not None]
    if not wanted or not total.requires_grad:
        return [None] * len(edges)
    by_edge = iter(torch.autograd.grad(total, wanted, allow_unused=True, retain_graph=keep))
    return [None if edge is None else next(by_edge) for edge in edges]


def plain_gradients(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients by the parameters, zero for unused ones."""
    if not total.requires_grad:
        return [torch.zeros_like(p) for p in parameters]
    return list(torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True))


@dataclass(frozen=True)
class Share:
    """A parameter's factors in its uses (a call and one of its parts), or, if `summed`, its gradients themselves."""

    name: str
    shape: tuple[int, int]
    uses: tuple[tuple[int, int], ...]
    summed: bool
    numbers: int


@dataclass(frozen=True)
class Survey:
    """The number of outputs per sample, the parameters with and without factors, and the memory of a pass per sample.

    Every later pass must agree with `outline` and `other`.
    """

    columns: int
    shares: tuple[Share, ...]
    free: tuple[str, ...]
    stretched: Stretched
    outline: Outline
    other: set[str]
    pass_bytes: int


@torch.enable_grad()
def survey(samples: Samples, parameters: dict[str, nn.Parameter]) -> Survey:
    """Survey the model on three samples, repeated if there are fewer."""
    known: Known = {id(p): name for name, p in parameters.items()}
    index = torch.arange(AHEAD) % samples.n
    first, two = outline(samples, known, index[:-1], {})
    second, three = outline(samples, known, index, {})
    check_values(two, three)
    shared, dropped = stretchable(first, second)
    stretched: Stretched = {}
    for k, shape in shared.items():
        if fits(samples, known, index, stretched | {k: shape}, three):
            stretched[k] = shape
        else:
            dropped |= set(second[k][0])
    with saved_bytes(parameters) as sizes:
        recorder, values = forward(samples, known, index, stretched)
    saved = sum(sizes.values()) + sum(torch.Size(c.shape).numel() * values.element_size() for c in recorder.calls)
    shares, free = find_shares(recorder, values, parameters, dropped)
    bytes_each = -(-(saved + 3 * recorder.largest) // AHEAD)
    return Survey(values.shape[1], shares, free, stretched, recorder.outline, recorder.other, pass_bytes=bytes_each)


def forward(samples: Samples, known: Known, which: Tensor | slice, stretched: Stretched) -> tuple[Recorder, Tensor]:
    """The calls and the outputs of some samples, with gradients, since some modules depend on them."""
    inputs, numbers = samples.take(which)
    recorder = Recorder(known, len(numbers), stretched)
    with torch.enable_grad(), recorder:
        values = samples.run(inputs, numbers)
    return recorder, values


def outline(samples: Samples, known: Known, index: Tensor, stretched: Stretched) -> tuple[Outline, Tensor]:
    """The calls and the outputs of a pass, without its graph."""
    recorder, values = forward(samples, known, index, stretched)
    return recorder.outline, values.detach()


def stretchable(first: Outline, second: Outline) -> tuple[Stretched, set[str]]:
    """Calls whose result has the same size for two and three samples; and the parameters of inconsistent calls."""
    if [names for names, _ in first] != [names for names, _ in second]:
        return {}, {name for names, _ in first + second for name in names}
    stretched, dropped = {}, set()
    for k, ((names, a), (_, b)) in enumerate(zip(first, second, strict=True)):
        if a == b:
            stretched[k] = a
        elif a[1:] != b[1:] or AHEAD * a[0] != (AHEAD - 1) * b[0]:
            dropped |= set(names)
    return stretched, dropped


def fits(samples: Samples, known: Known, index: Tensor, stretched: Stretched, expected: Tensor) -> bool:
    """Whether the model accepts these results expanded over the samples, with the expected outputs."""
    try:
        _, values = outline(samples, known, index, stretched)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if ran_out(error):
            raise
        return False
    return torch.allclose(values, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@contextmanager
def saved_bytes(parameters: dict[str, nn.Parameter]) -> Iterator[dict[int, int]]:
    """The sizes of the storages that a forward pass saves for the backward pass, without parameters."""
    own, sizes = {p.untyped_storage().data_ptr() for p in parameters.values()}, {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield sizes


def find_shares(
    recorder: Recorder, values: Tensor, parameters: dict[str, nn.Parameter], dropped: set[str]
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """The parameters with verified factors, in the order of their first use; and the others."""
    calls = recorder.calls
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(values.shape[1], generator=generator).to(values)
    weights = torch.randn(AHEAD, generator=generator).to(values)
    each = values @ mix
    by_result = gradients(each.sum(), calls, keep=True)
    truth = dict(zip(parameters, plain_gradients(weights @ each, list(parameters.values())), strict=True))
    scale = float(torch.stack([g.norm() for g in truth.values()]).norm())
    uses: dict[str, list[tuple[int, int]]] = {}
    for k, call in enumerate(calls):
        for j, part in enumerate(call.parts):
            uses.setdefault(part.name, []).append((k, j))
    shares, free = [], []
    for name in sorted(parameters, key=lambda n: uses.get(n, [(len(calls), 0)])):
        rows, columns = torch.atleast_2d(parameters[name]).flatten(1).shape
        shape, own = (rows, columns), tuple(uses.get(name, ()))
        right = name not in dropped and bool(own or name not in recorder.other)
        factors: list[Factors] = []
        if right:
            try:
                factors = factors_of(own, calls, dict(enumerate(by_result)), AHEAD)
                total = torch.zeros_like(truth[name])
                for part in factors:
                    total += (weights @ part.gradients(shape)).reshape(total.shape)
                right = agree(total, truth[name], scale)
            except RuntimeError as error:
                if ran_out(error):
                    raise
                right = False
        # The values of rows are copied when chunks of rows are formed.
        sizes = [(1 + isinstance(part, Rows)) * sum(t.numel() for t in vars(part).values()) for part in factors]
        if not right:
            free.append(name)
        elif factors:
            size, numbers = truth[name].numel(), sum(sizes) // AHEAD
            if any(isinstance(part, Sum) for part in factors):
                numbers = size
            shares.append(Share(name, shape, own, size <= numbers, min(size, numbers)))
    return tuple(shares), tuple(free)


def factors_of(
    uses: Sequence[tuple[int, int]], calls: Sequence[Call], by_call: dict[int, Tensor | None], n: int
) -> list[Factors]:
    """The factors of all uses of a parameter that need a gradient, for n samples."""
    found: list[Factors] = []
    for k, j in uses:
        g = by_call[k]
        if g is not None:
            factors = calls[k].parts[j].make(g, n, calls[k].shared)
            if isinstance(factors, Outer):
                factors = factors.trimmed()
            found.append(factors)
    return found


def agree(total: Tensor, truth: Tensor, scale: float) -> bool:
    """Equal up to rounding; gradients that are only rounding errors (of a key's bias, for example) count as zero."""
    slack, floor = (1e-3, 1e-4) if truth.dtype == torch.float32 else (1e-5, 1e-6)
    size, off = float(truth.norm()), float((total - truth).norm())
    return off <= slack * size or max(size, off) <= floor * scale
