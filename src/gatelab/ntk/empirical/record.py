"""A forward pass that notes every use of a parameter, and the gradient by what came of it.

Two things make the gradient by a call's output that of each sample: samples are independent, so one backward pass from
the sum of all outputs serves all of them; and where a call gives one result for all samples (positions, for example),
that result is handed on stretched over the samples, so that their gradients stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from gatelab.ntk.empirical.layers import Known, Part, parts_of


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
