"""What a unit costs, and how well it can be linearised.

Costs are operations counted from shapes, and rows a second of the unit's block, measured here and now. The block is the
transformer's: d_model numbers in and out, no biases, and a width that gives every unit about as many parameters as an
MLP of 4 d_model neurons has. Linearised, a unit is Phi(w).Psi(x) of m features, or has a polynomial of degree 8 for a
gate.

Features: w ~ N(0, I / d) and x ~ N(0, I), d the number of inputs and one for the bias, which gives pre-activations of
deviation near 1. A plain unit gets the best maps of m features (`optimal`); a unit of q factors those of its gate
times the factors, act(g.x) (u.x) = (Phi(g) (x) u) . (Psi(x) (x) x), of which m // d^q are left for the gate. Errors are
over the deviation of what is approximated: 1 is what the mean alone leaves.

Polynomial: the largest error of the minimax polynomial over the interval that pre-activations of LeCun's weights reach
on the given rows, widened by a tenth and symmetric; over the deviation of the gate there. The factors of a gated unit
are polynomials already.
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

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import Activation, AnyUnit, FeedForward, Unit
from gatelab.feedforward.block import two_thirds
from gatelab.linearization import calibrate, linearize
from gatelab.scorecard.fits import widest

TIMES_MODEL = 4
BATCH = 1024
REPEATS, WARM = 21, 3
DEGREE = 8
NEURONS = 256
PAIRS = 2**14
MOST_NUMBERS = 2**22  # of features for all pairs at once: beyond it the maps are measured on fewer pairs


@dataclass(frozen=True)
class BlockCost(Compact):
    """Of one block: its width and parameters, operations a row forward, and rows a second with their quartiles."""

    width: int
    parameters: int
    flops: int
    rows_per_second: float
    low: float
    high: float


@dataclass(frozen=True)
class Bench(Compact):
    """What was measured where: the width of the model, rows a call, the device in words, threads."""

    d_model: int
    batch: int
    repeats: int
    device: str
    threads: int


def flops(unit: AnyUnit, width: int, d_in: int, d_out: int) -> int:
    """Operations a row: 2 for each weight, 1 for each gate and 1 for each factor; biases are left out.

    A user's class is run once, and the operations of its matrix products are counted.

    >>> from gatelab.feedforward import unit
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
    """The size of the model as an int, refused unless it is one."""
    return whole_number("d_model", d_model, 1, of="inputs and outputs of the block")


def measure(
    units: Sequence[AnyUnit],
    d_model: int,
    device: str | torch.device,
    *,
    batch: int = BATCH,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[BlockCost, ...], Bench]:
    """The cost of every block. Units take turns, so that whatever else the machine does is shared by all of them."""
    d_model, where = check_model(d_model), torch.device(device)
    built = [block(u, d_model) for u in units]
    blocks = [module.to(where).eval() for module, _ in built]
    x = torch.randn(batch, d_model, generator=torch.Generator().manual_seed(0)).to(where)
    seconds = np.empty((repeats, len(blocks)))
    with torch.inference_mode():
        for i in range(-WARM, repeats):
            for j, module in enumerate(blocks):
                began = time.perf_counter()
                module(x)
                if where.type == "cuda":
                    torch.cuda.synchronize(where)
                duration = time.perf_counter() - began
                if i >= 0:
                    seconds[i, j] = duration
            if progress and i >= 0:
                progress(i + 1, repeats)
    low, middle, high = np.quantile(batch / seconds, [0.25, 0.5, 0.75], axis=0)
    costs = tuple(
        BlockCost(
            width,
            sum(p.numel() for p in module.parameters()),
            flops(u, width, d_model, d_model),
            float(middle[j]),
            float(low[j]),
            float(high[j]),
        )
        for j, (u, (module, width)) in enumerate(zip(units, built, strict=True))
    )
    name = f"{where.type}, {os.cpu_count()} cores"
    if where.type == "cuda":
        name = torch.cuda.get_device_name(where)
    return costs, Bench(d_model, batch, repeats, name, torch.get_num_threads())


@dataclass(frozen=True)
class Linearity:
    """`error` of m features with its interval and `minimax`, both over the deviation; `features` is the m used.

    NaN where the unit is no gate times factors. `interval` is that of the polynomial, `degree` its degree.
    """

    error: float
    low: float
    high: float
    features: int
    minimax: float
    interval: tuple[float, float]
    degree: int = DEGREE


UNKNOWN = Linearity(np.nan, np.nan, np.nan, 0, np.nan, (np.nan, np.nan))


def check_features(m: int) -> int:
    """The number of features as an int, refused unless it is one."""
    return whole_number("features", m, 1)


def linearity(unit: AnyUnit, x: Array, m: int, seed: int = 0) -> Linearity:
    """Errors of a unit on rows (n, d) that are standardised and end in 1.

    >>> rows = np.hstack([np.random.default_rng(0).standard_normal((100, 2)), np.ones((100, 1))])
    >>> errors = linearity(Unit("gelu"), rows, 16)
    >>> errors.features, 0 < errors.low < errors.error < errors.high < 0.1, 0 < errors.minimax < 0.1
    (16, True, True)
    """
    m = check_features(m)
    # A function of several maps is no gate times factors, or does not say.
    if not isinstance(unit, Unit) or (unit.factors and type(unit) is not Unit):
        return UNKNOWN
    worst, interval = minimax_error(unit.gate, x, seed)
    return Linearity(*feature_error(unit.gate, unit.factors, x.shape[1], m, seed), worst, interval)


def feature_error(gate: Activation, factors: int, d: int, m: int, seed: int) -> tuple[float, float, float, int]:
    """The error of m features with its interval, over the deviation, and how many features there are."""
    share = m // d**factors
    if not share:
        return 1.0, 1.0, 1.0, 0  # not one feature for the gate: nothing but the mean, which is 0, is left
    # Neurons of many features are measured on fewer pairs; the interval says so.
    pairs = max(256, min(PAIRS, MOST_NUMBERS // m))
    neuron: Activation | Unit = gate
    if factors:
        neuron = Unit(gate, factors)
    maps = linearize(neuron, "optimal", d=d, m=share, w_scale=d**-0.5)
    error = maps.error("gaussian", w_scale=d**-0.5, samples=pairs, seed=seed)
    spread = neuron_deviation(gate, factors, d, seed)
    return error.rmse / spread, error.low / spread, error.high / spread, error.m


def neuron_deviation(gate: Activation, factors: int, d: int, seed: int) -> float:
    """That of act(g.x) (u.x) ... over w and x: given x, every w.x is normal with the deviation |x| / sqrt(d)."""
    draw = torch.Generator().manual_seed(seed)
    length = torch.randn(PAIRS, d, generator=draw, dtype=torch.float64).norm(dim=1) / d**0.5
    value = gate(length * torch.randn(PAIRS, generator=draw, dtype=torch.float64))
    for _ in range(factors):
        value = value * length * torch.randn(PAIRS, generator=draw, dtype=torch.float64)
    return float(value.std())


def minimax_error(gate: Activation, x: Array, seed: int) -> tuple[float, tuple[float, float]]:
    """The largest error of the minimax polynomial of a gate, over the gate's deviation, and its interval."""
    draw = torch.Generator().manual_seed(seed)
    d = x.shape[1]
    z = torch.from_numpy(x) @ torch.randn(d, NEURONS, generator=draw, dtype=torch.float64) / d**0.5
    interval = calibrate(z, symmetric=True)
    maps = linearize(gate, "minimax", degree=DEGREE, interval=interval)
    assert maps.polynomial is not None
    try:
        largest = maps.bound().value
    except GatelabError:
        largest = maps.polynomial.error(gate)  # of a gate of one's own nothing is known beyond its values
    return largest / float(gate(z).std()), interval
