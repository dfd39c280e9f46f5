"""Inputs, pre-activations, neurons and outputs of the blocks of a model, and their counters and Gram matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.models.hooks import captured, first_tensor
from gatelab.models.layouts import OWN, Block, Layer, check_module, layers_of, part

TAIL = 1e-4  # the share of activations above the quantile "tail"


@dataclass(frozen=True, eq=False)
class Tap:
    """The modules at the input and the output of a block; other modules have no layer, block and number."""

    name: str
    entrance: nn.Module
    exit: nn.Module
    layer: Layer | None = None
    block: Block | None = None
    number: int | None = None  # the index of the layer among those with a block


@dataclass(frozen=True, eq=False)
class Flow:
    """Rows of one batch: inputs x, outputs y, pre-activations z, neurons h, and the hidden states after the block."""

    x: Tensor
    y: Tensor
    z: Tensor | None = None
    h: Tensor | None = None
    stream: Tensor | None = None


def taps_of(model: nn.Module, modules: Sequence[str] | None = None) -> list[Tap]:
    """The blocks of a model: modules or layers by name, or all blocks of a known layout."""
    check_module(model)

    def tap_of(layer: Layer, number: int) -> Tap:
        return Tap(layer.name, layer.entrance, layer.exit, layer, layer.read(), number)

    if modules is None:
        return [tap_of(layer, i) for i, layer in enumerate(layers_of(model))]
    if isinstance(modules, str) or not modules or not all(isinstance(name, str) for name in modules):
        raise GatelabError(f"modules is {modules!r}; give a list of names, such as ['model.layers.0.mlp']")
    known = dict(model.named_modules())
    taps, layers = [], {}
    with suppress(GatelabError):  # any module can be named
        layers = {layer.name: (layer, i) for i, layer in enumerate(layers_of(model))}
        layers |= {f"{name}.{pair[0].layout.exit}": pair for name, pair in layers.items() if pair[0].is_whole}
    for name in modules:
        if name in layers:
            taps.append(tap_of(*layers[name]))
        elif name in known and name:
            taps.append(Tap(name, known[name], known[name]))
        else:
            near = [other for other in known if other and (name in other or other.endswith(name.rpartition(".")[2]))]
            advice = f"did you mean {', '.join(map(repr, near[:3]))}?" if near else "model.named_modules() lists them"
            raise GatelabError(f"{type(model).__name__} has no module {name!r}; {advice}")
    return taps


def as_rows(value: Any) -> Tensor:
    """(..., d) as (rows, d), a copy, since Falcon changes the output of its blocks in place."""
    tensor = first_tensor(value).detach().clone()
    return tensor.reshape(-1, tensor.shape[-1])


def not_called_once(name: str) -> GatelabError:
    return GatelabError(
        f"{name} does not call its block exactly once per batch; set chunk_size_feed_forward=0 in its configuration"
    )


@contextmanager
def tapped(taps: Sequence[Tap], listen: Callable[[int, Flow], None]) -> Iterator[None]:
    """Call `listen` with the index of a tap and its rows each time that the model calls the block."""
    values: list[dict[str, Tensor]] = [{} for _ in taps]
    inputs: dict[tuple[int, str], nn.Module] = {}
    outputs: dict[tuple[int, str], nn.Module] = {}
    for i, tap in enumerate(taps):
        inputs[i, "x"] = tap.entrance
        if tap.layer is None:
            outputs[i, "end"] = tap.exit
            continue
        outputs[i, "y"] = tap.exit
        if tap.layer.layout is not OWN:
            outputs[i, "z"] = part(tap.layer.module, tap.layer.layout.first)
            inputs[i, "h"] = part(tap.layer.module, tap.layer.layout.last)
        outputs[i, "end"] = tap.layer.module

    def hear(key: tuple[int, str], value: Any) -> None:
        i, name = key
        if name == "end":
            listen(i, flow_of(taps[i], values[i], value))
            values[i].clear()
        elif name in values[i]:
            raise not_called_once(taps[i].name)
        else:
            values[i][name] = as_rows(value)

    with captured(inputs, outputs, hear):
        yield


def flow_of(tap: Tap, values: Mapping[str, Tensor], result: Any) -> Flow:
    """The rows of a tap after the call of its module or of the layer around it."""
    if "x" not in values:
        raise GatelabError(f"{tap.name} is called without a tensor as its first argument; give another module")
    x, after = values["x"], as_rows(result)
    if len(after) != len(x):
        raise GatelabError(f"{tap.name} maps {len(x)} rows to {len(after)}; name modules with one row per input row")
    if tap.block is None or tap.layer is None:
        return Flow(x, after)
    if tap.layer.layout is OWN:
        values = {**values, "z": tap.block.before(x), "h": tap.block.hidden(x)}
    if tap.layer.layout.post_norm:
        after = x + values["y"]  # the output of the layer is normalized
    return Flow(x, values["y"], values["z"], values["h"], after)


def without_head(model: nn.Module) -> nn.Module:
    return getattr(model, "base_model", model)


class Moments:
    """Counters and Gram matrices of one block, summed over batches in float64."""

    def __init__(self, tap: Tap, rows: int) -> None:
        self.tap, self.rows, self.count = tap, rows, 0
        self.sums: dict[str, Tensor] = {}
        self.largest = torch.zeros(0)
        self.stream_share = 0.0

    def add(self, flow: Flow) -> None:
        self.count += len(flow.x)
        x, y = flow.x, flow.y
        self.sum("x", x.sum(0))
        self.sum("y", y.sum(0))
        self.sum("xx", x.mT @ x)
        self.sum("xy", x.mT @ y)
        if flow.h is None or flow.z is None or flow.stream is None:
            self.sum("yy", y.mT @ y)
            return
        self.sum("h", flow.h.sum(0))
        self.sum("hh", flow.h.mT @ flow.h)
        self.sum("open", (flow.z > 0).sum(0))
        sizes = flow.h.abs().flatten()
        most = math.ceil(TAIL * self.rows * flow.h.shape[1])
        if len(self.largest) >= most:
            sizes = sizes[sizes > self.largest[-1]]
        top = torch.cat([self.largest, sizes.topk(min(most, len(sizes))).values.cpu()])
        self.largest = top.sort(descending=True).values[:most]
        share = flow.y.norm(dim=1) / flow.stream.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        self.stream_share += float(share.double().sum())

    def sum(self, name: str, value: Tensor) -> None:
        value = value.double()
        self.sums[name] = self.sums[name].add_(value) if name in self.sums else value.clone()

    def mean(self, name: str) -> Tensor:
        return self.sums[name] / self.count

    def centered(self, a: str, b: str) -> Tensor:
        """The centered Gram matrix of two of x, y and h."""
        return self.sums[a + b] - torch.outer(self.sums[a], self.sums[b]) / self.count

    def effective_rank(self, name: str) -> float:
        """The participation ratio of the eigenvalues of a covariance: (their sum)^2 / sum of their squares."""
        block = self.tap.block
        if name == "y" and block is not None:
            W2 = block.W2.double()
            C = W2 @ self.centered("h", "h") @ W2.mT  # y is W2 h + b2
        else:
            C = self.centered(name, name)
        return float(C.trace() ** 2 / C.square().sum().clamp_min(torch.finfo(torch.float64).tiny))

    def statistics(self) -> dict[str, float]:
        values = {"rank in": self.effective_rank("x"), "rank out": self.effective_rank("y")}
        block = self.tap.block
        if block is None or "hh" not in self.sums:
            return values
        energy = self.sums["hh"].diagonal() / self.count
        root = float(energy.mean().sqrt()) or 1.0
        open_share = self.sums["open"] / self.count
        return values | {
            "open gates": float(open_share.mean()),
            "never open": int((open_share == 0).sum()),
            "dead": int((energy < 1e-6 * energy.mean()).sum()),
            "effective width": float(energy.sum() ** 2 / energy.square().sum().clamp_min(1e-300)),
            "rank hidden": self.effective_rank("h"),
            "largest": float(self.largest[0]) / root,
            "tail": float(self.largest[max(1, math.ceil(TAIL * self.count * block.width)) - 1]) / root,
            "alignment": alignment(block),
            "stream share": self.stream_share / self.count,
        }


def alignment(block: Block) -> float:
    """The mean absolute cosine between the gate row and the up row of a neuron; NaN without factors."""
    if not block.factors:
        return math.nan
    return float(nn.functional.cosine_similarity(block.W1, block.factors[0][0], dim=1).abs().mean())
