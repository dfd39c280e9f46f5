"""The cost of a unit, and the errors of its linearizations.

The block that is timed is the transformer's: d_model inputs and outputs, no biases, and a width at which every unit has
about the parameters of an MLP with 4 d_model neurons. Features are for w ~ N(0, I / d) and x ~ N(0, I), with d the
number of inputs plus one for the bias: of q factors, act(g.x) (u.x) = (Phi(g) (x) u) . (Psi(x) (x) x) has m // d^q
features for the gate. Errors are relative to the standard deviation of the neuron, or of the gate.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.feedforward import Activation, AnyUnit, FeedForward, Unit
from gatelab.feedforward.network import two_thirds
from gatelab.linearization import Linearization, calibrate, linearize
from gatelab.scorecard.fits import widest
from gatelab.statistics import Interval

TIMES_MODEL, BATCH, REPEATS, WARM = 4, 1024, 21, 3
DEGREE, NEURONS, PAIRS = 8, 256, 2**14
MOST_NUMBERS = 2**22  # of features for all pairs together; with more features, fewer pairs are used
UNKNOWN = Interval(np.nan, np.nan, np.nan)


def flops(unit: AnyUnit, width: int, d_in: int, d_out: int) -> int:
    """Operations per row: 2 per weight, 1 per gate and 1 per factor, without biases; of a class, those torch counts."""
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


def block_costs(
    units: Sequence[AnyUnit], d_model: int, device: str | torch.device, *, batch: int = BATCH, repeats: int = REPEATS
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The cost of every unit's block as fields of a `Score`, timed in turns, and the settings of the measurement."""
    where = torch.device(device)
    built = [block(u, d_model) for u in units]
    blocks = [module.to(where).eval() for module, _ in built]
    x = torch.randn(batch, d_model, generator=torch.Generator().manual_seed(0)).to(where)
    seconds = np.empty((WARM + repeats, len(blocks)))
    with torch.inference_mode():
        for times in seconds:
            for j, module in enumerate(blocks):
                began = time.perf_counter()
                module(x)
                if where.type == "cuda":
                    torch.cuda.synchronize(where)
                times[j] = time.perf_counter() - began
    low, middle, high = np.quantile(batch / seconds[WARM:], [0.25, 0.5, 0.75], axis=0).tolist()
    costs = [
        {
            "block_width": width,
            "block_parameters": sum(p.numel() for p in module.parameters()),
            "block_flops": flops(u, width, d_model, d_model),
            "rows_per_second": Interval(middle[j], low[j], high[j], level=0.5),
        }
        for j, (u, (module, width)) in enumerate(zip(units, built, strict=True))
    ]
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else f"{where.type}, {os.cpu_count()} cores"
    sizes = {"d_model": d_model, "batch": batch, "repeats": repeats}
    return costs, {**sizes, "device": name, "threads": torch.get_num_threads()}


def preactivations(x: Array) -> torch.Tensor:
    """Pre-activations with LeCun's weights, on standardized rows (n, d) that end in 1."""
    draw = torch.Generator().manual_seed(0)
    d = x.shape[1]
    return torch.from_numpy(x) @ torch.randn(d, NEURONS, generator=draw, dtype=torch.float64) / d**0.5


def linearity(unit: AnyUnit, x: Array, m: int) -> dict[str, Any]:
    """The errors of a unit's linearizations, as fields of a `Score`; NaN unless it is a gate times factors."""
    if not isinstance(unit, Unit) or (unit.factors and type(unit) is not Unit):
        return {"linear": UNKNOWN, "features": 0, "minimax": np.nan}
    polynomial = minimax_error(unit.gate, preactivations(x))
    return {**feature_error(unit.gate, unit.factors, x.shape[1], m), "minimax": polynomial}


def feature_error(gate: Activation, factors: int, d: int, m: int) -> dict[str, Any]:
    """The relative error of m features, and the number of features used."""
    neuron = Unit(gate, factors) if factors else gate
    share = m // d**factors
    if not share:  # no feature for the gate: the map is the mean, which is 0
        return {"linear": Interval(1.0, 1.0, 1.0), "features": 0}

    def maps_of(count: int) -> Linearization | None:
        with suppress(GatelabError):
            return linearize(neuron, "optimal", d=d, m=count, w_scale=d**-0.5)

    # A polynomial gate has few singular functions, which bound the number of features.
    maps = maps_of(share) or maps_of(bisect_left(range(1, share), True, key=lambda count: maps_of(count) is None))
    if maps is None:
        return {"linear": UNKNOWN, "features": 0}
    # With many features, fewer pairs are used; the interval is wider then.
    pairs = max(256, min(PAIRS, MOST_NUMBERS // m))
    error = maps.error("gaussian", w_scale=d**-0.5, samples=pairs, seed=0)
    spread = neuron_deviation(gate, factors, d)
    return {"linear": Interval(error.rmse / spread, error.low / spread, error.high / spread), "features": error.m}


def neuron_deviation(gate: Activation, factors: int, d: int) -> float:
    """The standard deviation of act(g.x) (u.x) ...: given x, w.x is normal with deviation |x| / sqrt(d)."""
    draw = torch.Generator().manual_seed(0)
    length = torch.randn(PAIRS, d, generator=draw, dtype=torch.float64).norm(dim=1) / d**0.5
    value = gate(length * torch.randn(PAIRS, generator=draw, dtype=torch.float64))
    for _ in range(factors):
        value = value * length * torch.randn(PAIRS, generator=draw, dtype=torch.float64)
    return float(value.std())


def minimax_error(gate: Activation, z: torch.Tensor) -> float:
    """The largest error of a gate's minimax polynomial on the widened range of z, relative to the gate's deviation."""
    maps = linearize(gate, "minimax", degree=DEGREE, interval=calibrate(z, symmetric=True))
    assert maps.polynomial is not None
    try:
        largest = maps.bound().value
    except GatelabError:
        largest = maps.polynomial.error(gate)  # a custom gate has no bound on its derivatives
    return largest / float(gate(z).std())
