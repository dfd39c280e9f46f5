"""What a unit costs: operations counted from shapes, and rows a second of its block, measured here and now.

The block is the transformer's: d_model numbers in and out, no biases, and a width that gives every unit about as many
parameters as an MLP of 4 d_model neurons has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.scorecard.ladder import widest
from gatelab.units import AnyUnit, FeedForward, Unit
from gatelab.units.feedforward import two_thirds

TIMES_MODEL = 4
BATCH = 1024
REPEATS, WARM = 21, 3


@dataclass(frozen=True)
class Cost:
    """Of one block: its width and parameters, operations a row forward, and rows a second with their quartiles."""

    width: int
    parameters: int
    flops: int
    rows_per_second: float
    low: float
    high: float

    def __repr__(self) -> str:
        return one_line(
            self,
            f"width {self.width}, {self.parameters} parameters, {self.flops} operations a row, "
            f"{self.rows_per_second:.3g} rows a second",
        )


@dataclass(frozen=True)
class Bench:
    """What was measured where: the width of the model, rows a call, the device in words, threads."""

    d_model: int
    batch: int
    repeats: int
    device: str
    threads: int

    def __repr__(self) -> str:
        return one_line(
            self, f"d_model {self.d_model}, {self.batch} rows a call, {self.repeats} calls on {self.device}"
        )


def flops(unit: AnyUnit, width: int, d_in: int, d_out: int) -> int:
    """Operations a row: 2 for each weight, 1 for each gate and 1 for each factor; biases are left out.

    A user's class is run once, and the operations of its matrix products are counted.

    >>> from gatelab.units import unit
    >>> flops(unit("mlp"), 12, 3, 1), flops(unit("glu"), 7, 3, 1)
    (108, 112)
    """
    if isinstance(unit, Unit):
        return 2 * unit.parameter_count(width, d_in, d_out, bias=False) + width * (unit.factors + 1)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        unit.network(width, d_in, d_out).eval()(torch.zeros(1, d_in, dtype=torch.float64))
    return int(counter.get_total_flops())


def block(unit: AnyUnit, d_model: int) -> tuple[nn.Module, int]:
    """The block of a unit in float32 and its width, with the parameters of an MLP block of 4 d_model neurons."""
    plain = TIMES_MODEL * d_model
    if isinstance(unit, Unit):
        width = two_thirds(plain, unit.factors)
        return FeedForward(d_model, width, unit, seed=0), width
    width = widest(unit, 2 * plain * d_model, d_model, d_model)
    if width is None:
        raise GatelabError(f"one neuron of {unit.name} is larger than an MLP of {plain}; give a larger d_model")
    return unit.network(width, d_model, d_model, dtype=torch.float32), width


def check_model(d_model: int) -> int:
    if isinstance(d_model, bool) or not hasattr(d_model, "__index__") or int(d_model) < 1:
        raise GatelabError(f"d_model is {d_model!r}; give the inputs and outputs of the block, such as 128")
    return int(d_model)


def measure(
    units: Sequence[AnyUnit],
    d_model: int,
    device: str | torch.device,
    *,
    batch: int = BATCH,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Cost, ...], Bench]:
    """The cost of every block. Units take turns, so that whatever else the machine does is shared by all of them."""
    d_model, where = check_model(d_model), torch.device(device)
    made = [block(u, d_model) for u in units]
    blocks = [module.to(where).eval() for module, _ in made]
    x = torch.randn(batch, d_model, generator=torch.Generator().manual_seed(0)).to(where)
    seconds = np.empty((repeats, len(blocks)))
    with torch.inference_mode():
        for i in range(-WARM, repeats):
            for j, module in enumerate(blocks):
                taken = _time(module, x, where)
                if i >= 0:
                    seconds[i, j] = taken
            if progress and i >= 0:
                progress(i + 1, repeats)
    low, middle, high = np.quantile(batch / seconds, [0.25, 0.5, 0.75], axis=0)
    costs = tuple(
        Cost(
            width,
            sum(p.numel() for p in module.parameters()),
            flops(u, width, d_model, d_model),
            float(middle[j]),
            float(low[j]),
            float(high[j]),
        )
        for j, (u, (module, width)) in enumerate(zip(units, made, strict=True))
    )
    return costs, Bench(d_model, batch, repeats, _name(where), torch.get_num_threads())


def _time(module: nn.Module, x: torch.Tensor, where: torch.device) -> float:
    began = time.perf_counter()
    module(x)
    if where.type == "cuda":
        torch.cuda.synchronize(where)
    return time.perf_counter() - began


def _name(where: torch.device) -> str:
    if where.type == "cuda":
        return torch.cuda.get_device_name(where)
    return f"{where.type}, {os.cpu_count()} cores"
