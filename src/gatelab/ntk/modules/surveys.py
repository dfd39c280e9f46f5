"""A forward pass that notes every use of a parameter, and the gradient by what came of it.

Two things make the gradient by a call's output that of each sample: samples are independent, so one backward pass from
the sum of all outputs serves all of them; and where a call gives one result for all samples (positions, for example),
that result is handed on stretched over the samples, so that their gradients stay apart.

Three samples go ahead: which parameters have factors, how large these are, and that they are right.

Passes with two and with three samples tell results that belong to samples from those that all samples share. Then the
factors prove themselves: for random weights v, sum_i v_i (gradient of sample i) must be what automatic differentiation
gives for sum_i v_i f_i. A parameter that fails, for whatever reason (a use that no rule covers, samples that do not
come first, tokens routed between samples), is left to automatic Jacobians. Nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from gatelab.memory import ran_out
from gatelab.ntk.modules.rules import Known, Part, parts_of
from gatelab.ntk.modules.samples import Samples, check_values


class Misfit(Exception):
    """The pass was not what the survey saw: `names` are the parameters that must go another way."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


@dataclass(frozen=True)
class Call:
    """A use of parameters: the shape of the result as the model made it, and where its gradient arrives."""

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    edge: GradientEdge | None
    shared: bool


class Recorder(TorchFunctionMode):
    """Notes calls in their order; `shared` has the shape of those results that are to be stretched over samples."""

    def __init__(self, known: Known, n: int, shared: dict[int, tuple[int, ...]]) -> None:
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
            self._note_other(func, args, kwargs)
            return out
        shape = tuple(out.shape)
        stretch = self.shared.get(len(self.calls)) == shape
        if stretch:
            out = out.expand(self.n, *(shape[1:] if shape[:1] == (1,) else shape))
        edge = None if out.grad_fn is None else get_gradient_edge(out)
        self.calls.append(Call(tuple(parts), shape, edge, stretch))
        return out

    def _note_other(self, func: Any, args: Any, kwargs: Any) -> None:
        """Parameters that go into a call without a rule; looking at their shape or device is no use of them."""
        if getattr(func, "__name__", "") == "__get__":
            return
        for value in (*args, *kwargs.values()):
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if isinstance(tensor, Tensor) and id(tensor) in self.known:
                    self.other.add(self.known[id(tensor)])

    @property
    def signature(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return tuple(tuple((p.name, p.kind) for p in c.parts) for c in self.calls)


def gradients(total: Tensor, calls: Iterable[Call], keep: bool = False) -> list[Tensor | None]:
    """The gradients of `total` by the results of `calls`; no gradient by a weight is computed on the way."""
    edges = [call.edge for call in calls]
    wanted = [e for e in edges if e is not None]
    if not wanted or not total.requires_grad:
        return [None] * len(edges)
    found = iter(torch.autograd.grad(total, wanted, allow_unused=True, retain_graph=keep))
    return [None if e is None else next(found) for e in edges]


def plain_gradients(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients by the parameters themselves, zero where there is none."""
    if not total.requires_grad:
        return [torch.zeros_like(p) for p in parameters]
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


AHEAD = 3
Names = tuple[tuple[str, str], ...]  # of a call: (parameter, kind) of its parts
Outline = list[tuple[Names, tuple[int, ...]]]


@dataclass(frozen=True)
class Use:
    """One part of one call: T positions of a sample (those with a gradient, where few have one)."""

    call: int
    part: int
    kind: str
    positions: int
    trimmed: bool
    source: int  # factors with equal source and side are one tensor; -1 for none
    side: int


@dataclass(frozen=True)
class Share:
    """What is kept of a parameter: factors of all its uses, or each sample's gradient where that is smaller."""

    name: str
    shape: tuple[int, int]
    uses: tuple[Use, ...]
    summed: bool

    def floats(self, taken: set[tuple[int, int]]) -> int:
        """Numbers a sample; sources in `taken` are there already."""
        p, q = self.shape
        if self.summed:
            return p * q
        total = 0
        for use in self.uses:
            if use.kind == "rows":
                total += use.positions * (2 * q + 2)  # values move once more on their way into a chunk of rows
                continue
            for side, width in ((0, p), (1, q)):
                alias = len(self.uses) == 1 and use.side == side and use.source >= 0
                total += 0 if alias and (use.source, side) in taken else use.positions * width
        return total

    @property
    def alias(self) -> tuple[int, int] | None:
        """The (source, side) under which one of the factors can be shared with other parameters."""
        use = self.uses[0]
        single = len(self.uses) == 1 and not self.summed and use.kind == "outer" and use.source >= 0
        return (use.source, use.side) if single else None


@dataclass(frozen=True)
class Survey:
    """What the passes ahead found; bytes are for one sample."""

    columns: int
    shares: tuple[Share, ...]
    free: tuple[str, ...]
    stretched: dict[int, tuple[int, ...]]
    signature: tuple[Names, ...]
    shapes: tuple[tuple[int, ...], ...]
    other: frozenset[str]
    pass_bytes: int
    values: Tensor

    def without(self, names: tuple[str, ...]) -> Survey:
        return replace(
            self, shares=tuple(s for s in self.shares if s.name not in names), free=tuple({*self.free, *names})
        )


@torch.enable_grad()
def survey(samples: Samples, parameters: dict[str, nn.Parameter], trim: bool = True) -> Survey:
    """Look at the model on three samples, repeated where there are fewer."""
    known: Known = {id(p): name for name, p in parameters.items()}
    index = torch.arange(AHEAD) % samples.n
    first, two = _outline(samples, known, index[:-1], {})
    second, three = _outline(samples, known, index, {})
    check_values(two, three)
    shared, dropped = _stretchable(first, second)
    stretched = _accepted(samples, known, index, three, shared)
    dropped |= {name for k in shared.keys() - stretched.keys() for name, _ in second[k][0]}
    with _SavedBytes(parameters) as saved:
        recorder, values = _forward(samples, known, index, stretched)
    kept = sum(_bytes(c.shape, values) for c in recorder.calls)
    shares, free = _shares(recorder, values, parameters, dropped, trim)
    once = saved() + kept + 3 * recorder.largest
    shapes = tuple(call.shape for call in recorder.calls)
    seen = (stretched, recorder.signature, shapes, frozenset(recorder.other), -(-once // AHEAD))
    return Survey(values.shape[1], shares, free, *seen, three)


def _accepted(samples: Samples, known: Known, index: Tensor, expected: Tensor, wanted: dict) -> dict:
    """Those results that the model takes stretched over the samples, with the same outputs: all, or else one by one."""

    def fits(stretched: dict) -> bool:
        if not stretched:
            return True
        try:
            values = _outline(samples, known, index, stretched)[1]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if ran_out(error):
                raise
            return False
        return torch.allclose(values, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))

    if fits(wanted):
        return wanted
    accepted: dict = {}
    for k, shape in wanted.items():
        if fits(accepted | {k: shape}):
            accepted[k] = shape
    return accepted


def _forward(samples: Samples, known: Known, index: Tensor, stretched: dict) -> tuple[Recorder, Tensor]:
    recorder = Recorder(known, len(index), stretched)
    inputs = samples.take(index)
    with recorder:
        values = samples.run(inputs, index.to(samples.device))
    return recorder, values


def _outline(samples: Samples, known: Known, index: Tensor, stretched: dict) -> tuple[Outline, Tensor]:
    """A pass of which only the calls, their shapes and the outputs remain.

    Gradients are on all the same: without them some modules take another way.
    """
    recorder, values = _forward(samples, known, index, stretched)
    return [
        (names, call.shape) for names, call in zip(recorder.signature, recorder.calls, strict=True)
    ], values.detach()


def _bytes(shape: tuple[int, ...], like: Tensor) -> int:
    return torch.Size(shape).numel() * like.element_size()


class _SavedBytes:
    """Counts what a forward pass keeps for its backward pass, each storage once, parameters not."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.own = {p.untyped_storage().data_ptr() for p in parameters.values()}
        self.seen: dict[int, int] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._note, lambda kept: kept)

    def _note(self, kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        if storage.data_ptr() not in self.own:
            self.seen[storage.data_ptr()] = storage.nbytes()
        return kept

    def __enter__(self) -> Callable[[], int]:
        self.hooks.__enter__()
        return lambda: sum(self.seen.values())

    def __exit__(self, *error: Any) -> None:
        self.hooks.__exit__(*error)


def _stretchable(first: Outline, second: Outline) -> tuple[dict[int, tuple[int, ...]], set[str]]:
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


def _shares(
    recorder: Recorder, values: Tensor, parameters: dict[str, nn.Parameter], dropped: set[str], trim: bool
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    calls = recorder.calls
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(values.shape[1], generator=generator).to(values)
    weigh = torch.randn(AHEAD, generator=generator).to(values)
    each = values @ mix
    found = gradients(each.sum(), calls, keep=True)
    truth = dict(zip(parameters, plain_gradients(weigh @ each, list(parameters.values())), strict=True))
    scale = float(torch.stack([g.norm() for g in truth.values()]).norm())
    sources: dict[Any, int] = {}
    uses: dict[str, list[tuple[int, int]]] = {}
    for k, call in enumerate(calls):
        for j, part in enumerate(call.parts):
            uses.setdefault(part.name, []).append((k, j))
    shares, free = [], []
    for name in sorted(parameters, key=lambda n: uses.get(n, [(len(calls), 0)])):
        p, places = parameters[name], uses.get(name, [])
        try:
            if name in dropped or (not places and name in recorder.other):
                raise RuntimeError
            sized, total = _examine(p, places, calls, found, weigh, sources, trim)
        except RuntimeError as error:
            if ran_out(error):
                raise
            free.append(name)
            continue
        if not _agree(total, truth[name], scale):
            free.append(name)
        elif sized:
            shares.append(_share(name, p, sized))
    return tuple(shares), tuple(free)


def _agree(total: Tensor, truth: Tensor, scale: float) -> bool:
    """Equal but for rounding; a gradient that is itself rounding (a key's bias, say) counts as zero in both."""
    slack, floor = (1e-3, 1e-4) if truth.dtype == torch.float32 else (1e-5, 1e-6)
    size, off = float(truth.norm()), float((total - truth).norm())
    return off <= slack * size or max(size, off) <= floor * scale


def matrix_shape(p: Tensor) -> tuple[int, int]:
    """A parameter as a matrix: rows by all the rest."""
    return (p.shape[0], p.numel() // p.shape[0]) if p.ndim > 1 else (1, p.numel())


def _examine(
    p: Tensor,
    places: list[tuple[int, int]],
    calls: list[Call],
    found: list[Tensor | None],
    weigh: Tensor,
    sources: dict[Any, int],
    trim: bool,
) -> tuple[list[Use], Tensor]:
    """The uses of a parameter, and sum_i v_i (its gradient of sample i) from their factors."""
    total = torch.zeros(matrix_shape(p), dtype=p.dtype, device=p.device)
    sized = []
    for k, j in places:
        g, part = found[k], calls[k].parts[j]
        if g is None:
            continue
        made = part.make(g, AHEAD, calls[k].shared)
        positions, trimmed, source = made[0].shape[1] if part.kind != "sum" else 1, False, -1
        if part.kind == "outer":
            total += torch.einsum("n,ntp,ntq->pq", weigh, *made)
            active = int((g_activity(part.side, made) > 0).sum(1).max())
            if trim and 2 * active <= positions:
                positions, trimmed = max(1, active), True
            elif part.side is not None and part.source is not None and not calls[k].shared:
                key = (part.source.data_ptr(), part.source.shape, part.source.stride())
                source = sources.setdefault(key, len(sources))
        elif part.kind == "rows":
            total.index_add_(0, made[0].flatten(), (weigh[:, None, None] * made[1]).flatten(0, 1))
        else:
            total += (weigh @ made[0]).reshape(total.shape)
        sized.append(Use(k, j, part.kind, positions, trimmed, source, part.side if part.side is not None else -1))
    return sized, total.reshape(p.shape)


def g_activity(side: int | None, made: tuple[Tensor, ...]) -> Tensor:
    """How large the gradient is at each position (N, T): the factor that is not a view of the input."""
    return torch.linalg.vector_norm(made[1 if side == 0 else 0], ord=float("inf"), dim=-1)


def _share(name: str, p: Tensor, uses: list[Use]) -> Share:
    share = Share(name, matrix_shape(p), tuple(uses), summed=False)
    direct = any(u.kind == "sum" for u in uses)
    return replace(share, summed=direct or p.numel() <= share.floats(set()))
