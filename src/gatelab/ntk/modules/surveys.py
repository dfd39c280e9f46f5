"""Forward passes that note every use of a parameter, and three samples ahead: which parameters have factors.

Two things make the gradient by a call's output that of each sample: samples are independent, so one backward pass from
the sum of all outputs serves all of them; and where a call gives one result for all samples (positions, for example),
that result is handed on stretched over the samples, so that their gradients stay apart.

Passes with two and with three samples tell results that belong to samples from those that all samples share. Then the
factors prove themselves: for random weights v, sum_i v_i (gradient of sample i) must be what automatic differentiation
gives for sum_i v_i f_i. A parameter that fails, for whatever reason (a use that no rule covers, samples that do not
come first, tokens routed between samples), is left to automatic Jacobians. Nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from gatelab.memory import ran_out
from gatelab.ntk.modules.contraction import Factors, Kind, Outer, Sum
from gatelab.ntk.modules.rules import Known, Part, parts_of
from gatelab.ntk.modules.samples import Samples, check_values

AHEAD = 3
Names = tuple[tuple[str, Kind], ...]  # of a call: (parameter, kind) of its parts
Outline = list[tuple[Names, tuple[int, ...]]]
Stretched = dict[int, tuple[int, ...]]  # by the number of a call: the shape of its result, which all samples share


class Misfit(Exception):
    """The pass was not what the survey saw: `names` are the parameters that must go another way."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


@dataclass(frozen=True)
class Call:
    """A use of parameters: the shape of the result as the model made it, and where its gradient arrives.

    `edge` is None where the result needs no gradient; `shared` says whether it was stretched over the samples.
    """

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    edge: GradientEdge | None
    shared: bool


class Recorder(TorchFunctionMode):
    """Notes calls in their order; `shared` has the shape of those results that are to be stretched over samples."""

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
            self.note_other(func, args, kwargs)
            return out
        shape = tuple(out.shape)
        stretch = self.shared.get(len(self.calls)) == shape
        if stretch:
            out = out.expand(self.n, *(shape[1:] if shape[:1] == (1,) else shape))
        edge = None if out.grad_fn is None else get_gradient_edge(out)
        self.calls.append(Call(tuple(parts), shape, edge, stretch))
        return out

    def note_other(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note parameters that go into a call without a rule; looking at their shape or device is no use of them."""
        if getattr(func, "__name__", "") == "__get__":
            return
        for value in (*args, *kwargs.values()):
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if isinstance(tensor, Tensor) and id(tensor) in self.known:
                    self.other.add(self.known[id(tensor)])

    @property
    def signature(self) -> tuple[Names, ...]:
        """The parameters of every call and the kinds of their factors."""
        return tuple(tuple((p.name, p.kind) for p in c.parts) for c in self.calls)


def gradients(total: Tensor, calls: Iterable[Call], keep: bool = False) -> list[Tensor | None]:
    """The gradients of `total` by the results of `calls`; no gradient by a weight is computed on the way."""
    edges = [call.edge for call in calls]
    wanted = [edge for edge in edges if edge is not None]
    if not wanted or not total.requires_grad:
        return [None] * len(edges)
    by_edge = iter(torch.autograd.grad(total, wanted, allow_unused=True, retain_graph=keep))
    return [None if edge is None else next(by_edge) for edge in edges]


def plain_gradients(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients by the parameters themselves, zero where there is none."""
    if not total.requires_grad:
        return [torch.zeros_like(p) for p in parameters]
    return list(torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True))


class View(NamedTuple):
    """A factor that is an input of the model's layers: equal inputs have equal numbers, and `side` is which factor."""

    number: int
    side: int


@dataclass(frozen=True)
class Use:
    """One part of one call.

    `positions` are T of a sample, those with a gradient where few have one: then it is `trimmed`. `view` says which
    factor is an input that other parameters may have too, None where none is.
    """

    call: int
    part: int
    kind: Kind
    positions: int
    trimmed: bool
    view: View | None


@dataclass(frozen=True)
class Share:
    """What is kept of a parameter: factors of all its uses, or, `summed`, each sample's gradient if that is smaller."""

    name: str
    shape: tuple[int, int]
    uses: tuple[Use, ...]
    summed: bool

    @staticmethod
    def smallest(name: str, p: Tensor, uses: Sequence[Use]) -> Share:
        """Factors, or gradients where these are fewer numbers or a use has no factors."""
        share = Share(name, matrix_shape(p), tuple(uses), summed=False)
        direct = any(use.kind is Sum for use in uses)
        return replace(share, summed=direct or p.numel() <= share.numbers())

    def numbers(self, views: Collection[View] = ()) -> int:
        """How many numbers a sample needs, where these views are there already."""
        if self.summed:
            return Sum.numbers(1, self.shape)
        total = sum(use.kind.numbers(use.positions, self.shape) for use in self.uses)
        if self.view is not None and self.view in views:
            total -= self.uses[0].positions * self.shape[self.view.side]
        return total

    @property
    def view(self) -> View | None:
        """The factor that can be shared with other parameters; of several uses none can."""
        if self.summed or len(self.uses) != 1:
            return None
        return self.uses[0].view


@dataclass(frozen=True)
class Survey:
    """What the passes ahead found; bytes are for one sample.

    `columns` is how many numbers of a sample the kernel is of. `shares` are the parameters with factors, `free` those
    without. `stretched`, `signature`, `shapes` and `other` are what every later pass must agree with. `values` are the
    outputs of the three samples.
    """

    columns: int
    shares: tuple[Share, ...]
    free: tuple[str, ...]
    stretched: Stretched
    signature: tuple[Names, ...]
    shapes: tuple[tuple[int, ...], ...]
    other: frozenset[str]
    pass_bytes: int
    values: Tensor

    def without(self, names: tuple[str, ...]) -> Survey:
        """The same with these parameters left to automatic Jacobians."""
        return replace(
            self,
            shares=tuple(s for s in self.shares if s.name not in names),
            free=tuple(dict.fromkeys((*self.free, *names))),
        )


@torch.enable_grad()
def survey(samples: Samples, parameters: dict[str, nn.Parameter], trim: bool = True) -> Survey:
    """Look at the model on three samples, repeated where there are fewer."""
    known: Known = {id(p): name for name, p in parameters.items()}
    index = torch.arange(AHEAD) % samples.n
    trial = PassAhead(samples, known, index)
    first, two = PassAhead(samples, known, index[:-1]).outline({})
    second, three = trial.outline({})
    check_values(two, three)
    shared, dropped = stretchable(first, second)
    stretched = trial.accepted(shared, three)
    dropped |= {name for k in shared.keys() - stretched.keys() for name, _ in second[k][0]}
    with SavedBytes(parameters) as saved:
        recorder, values = trial.forward(stretched)
    results = sum(torch.Size(call.shape).numel() * values.element_size() for call in recorder.calls)
    shares, free = find_shares(recorder, values, parameters, dropped, trim)
    return Survey(
        columns=values.shape[1],
        shares=shares,
        free=free,
        stretched=stretched,
        signature=recorder.signature,
        shapes=tuple(call.shape for call in recorder.calls),
        other=frozenset(recorder.other),
        pass_bytes=-(-(saved() + results + 3 * recorder.largest) // AHEAD),
        values=three,
    )


@dataclass(frozen=True)
class PassAhead:
    """Passes of a few samples, those of `index`, ahead of the others."""

    samples: Samples
    known: Known
    index: Tensor

    def forward(self, stretched: Stretched) -> tuple[Recorder, Tensor]:
        """The calls and the outputs."""
        recorder = Recorder(self.known, len(self.index), stretched)
        inputs = self.samples.take(self.index)
        with recorder:
            values = self.samples.run(inputs, self.index.to(self.samples.device))
        return recorder, values

    def outline(self, stretched: Stretched) -> tuple[Outline, Tensor]:
        """A pass of which only the calls, their shapes and the outputs remain.

        Gradients are on all the same: without them some modules take another way.
        """
        recorder, values = self.forward(stretched)
        shapes = [call.shape for call in recorder.calls]
        return list(zip(recorder.signature, shapes, strict=True)), values.detach()

    def fits(self, stretched: Stretched, expected: Tensor) -> bool:
        """Whether the model takes these results stretched over the samples, and gives the expected outputs."""
        if not stretched:
            return True
        try:
            _, values = self.outline(stretched)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if ran_out(error):
                raise
            return False
        return torch.allclose(values, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))

    def accepted(self, wanted: Stretched, expected: Tensor) -> Stretched:
        """Those results that the model takes stretched over the samples: all, or else one by one."""
        if self.fits(wanted, expected):
            return wanted
        accepted: Stretched = {}
        for k, shape in wanted.items():
            if self.fits(accepted | {k: shape}, expected):
                accepted[k] = shape
        return accepted


class SavedBytes:
    """Counts what a forward pass keeps for its backward pass, each storage once, parameters not."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.own = {p.untyped_storage().data_ptr() for p in parameters.values()}
        self.sizes: dict[int, int] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.note, lambda tensor: tensor)

    def note(self, tensor: Tensor) -> Tensor:
        """Count a tensor that is saved."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.own:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self) -> Callable[[], int]:
        self.hooks.__enter__()
        return lambda: sum(self.sizes.values())

    def __exit__(self, *error: Any) -> None:
        self.hooks.__exit__(*error)


def stretchable(first: Outline, second: Outline) -> tuple[Stretched, set[str]]:
    """Calls whose result is as large for two samples as for three; and the parameters of calls that fit neither."""
    if [names for names, _ in first] != [names for names, _ in second]:
        return {}, {name for names, _ in first + second for name, _ in names}
    stretched, dropped = {}, set()
    for k, ((names, a), (_, b)) in enumerate(zip(first, second, strict=True)):
        if a == b:
            stretched[k] = a
        elif a[1:] != b[1:] or AHEAD * a[0] != (AHEAD - 1) * b[0]:
            dropped |= {name for name, _ in names}
    return stretched, dropped


def find_shares(
    recorder: Recorder, values: Tensor, parameters: dict[str, nn.Parameter], dropped: set[str], trim: bool
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """The parameters whose factors prove right, in the order of their first use; and those without."""
    calls = recorder.calls
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(values.shape[1], generator=generator).to(values)
    weights = torch.randn(AHEAD, generator=generator).to(values)
    each = values @ mix
    proof = Proof(calls, gradients(each.sum(), calls, keep=True), weights, trim)
    truth = dict(zip(parameters, plain_gradients(weights @ each, list(parameters.values())), strict=True))
    scale = float(torch.stack([g.norm() for g in truth.values()]).norm())
    places: dict[str, list[tuple[int, int]]] = {}
    for k, call in enumerate(calls):
        for j, part in enumerate(call.parts):
            places.setdefault(part.name, []).append((k, j))
    shares, free = [], []
    for name in sorted(parameters, key=lambda n: places.get(n, [(len(calls), 0)])):
        p, own = parameters[name], places.get(name, [])
        if name in dropped or (not own and name in recorder.other):
            free.append(name)
            continue
        try:
            uses, total = proof.uses(p, own)
        except RuntimeError as error:
            if ran_out(error):
                raise
            free.append(name)
            continue
        if not agree(total, truth[name], scale):
            free.append(name)
        elif uses:
            shares.append(Share.smallest(name, p, uses))
    return tuple(shares), tuple(free)


@dataclass(frozen=True)
class Proof:
    """Factors of three samples, from the gradients by the results of `calls`, summed with random weights.

    `inputs` numbers the inputs of calls by their place in memory.
    """

    calls: list[Call]
    by_result: list[Tensor | None]
    weights: Tensor
    trim: bool
    inputs: dict[Any, int] = field(default_factory=dict)

    def uses(self, p: Tensor, places: Sequence[tuple[int, int]]) -> tuple[list[Use], Tensor]:
        """The uses of a parameter, and sum_i v_i (its gradient of sample i) from their factors."""
        total = torch.zeros(matrix_shape(p), dtype=p.dtype, device=p.device)
        uses = []
        for k, j in places:
            g, call = self.by_result[k], self.calls[k]
            if g is None:
                continue
            factors = call.parts[j].make(g, AHEAD, call.shared)
            factors.add_weighted(total, self.weights)
            positions = self.positions(factors)
            trimmed = positions is not None
            view = None if trimmed else self.view(call, call.parts[j], factors)
            uses.append(Use(k, j, call.parts[j].kind, positions or factors.positions, trimmed, view))
        return uses, total.reshape(p.shape)

    def positions(self, factors: Factors) -> int | None:
        """How many positions have a gradient, where at most half of them have one; None where all are kept."""
        if not isinstance(factors, Outer):
            return None
        active = int((factors.activity() > 0).sum(1).max())
        if self.trim and 2 * active <= factors.positions:
            return max(1, active)
        return None

    def view(self, call: Call, part: Part, factors: Factors) -> View | None:
        """Which factor is a view of an input that other calls may have too."""
        if not isinstance(factors, Outer) or factors.side is None or part.input is None or call.shared:
            return None
        key = (part.input.data_ptr(), part.input.shape, part.input.stride())
        return View(self.inputs.setdefault(key, len(self.inputs)), factors.side)


def agree(total: Tensor, truth: Tensor, scale: float) -> bool:
    """Equal but for rounding; a gradient that is itself rounding (a key's bias, say) counts as zero in both."""
    slack, floor = (1e-3, 1e-4) if truth.dtype == torch.float32 else (1e-5, 1e-6)
    size, off = float(truth.norm()), float((total - truth).norm())
    return off <= slack * size or max(size, off) <= floor * scale


def matrix_shape(p: Tensor) -> tuple[int, int]:
    """A parameter as a matrix: its first dimension by all others; a vector is one row."""
    if p.ndim > 1:
        return p.shape[0], p.numel() // p.shape[0]
    return 1, p.numel()
