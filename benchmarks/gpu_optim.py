"""Levenberg-Marquardt on a GPU: `python -m benchmarks.gpu_optim results/optim/gpu.json`, on a machine that has one.

- `large`: a million parameters and 10 000 residuals, by conjugate gradients: seconds, rate and peak of memory.
- `dense`: steps that factor a Jacobian of 20 000 x 4155 in float64, as shares of the rates that NVIDIA states for the
  H200, 67 TFLOP/s in float64 with tensor cores and 34 without. Operations are those of products of matrices, by torch's
  counter.
- `poisson`: the example `examples/pde_poisson.py`, seconds per step and relative error.

On a CPU: `--device cpu`, with `--only large --iterations 3` for the peak of memory in a few minutes, or with `--tiny`.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gatelab as gl
from benchmarks.gpu import Recording
from benchmarks.harness import facts, timed
from gatelab.optim import systems

_TENSOR_RATE, _PLAIN_RATE = 67e12, 34e12


def peak(device: str) -> float:
    """The most memory so far, in GiB: of a GPU that which torch holds, of a CPU that of the process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def rates(counter: FlopCounterMode, seconds: float) -> dict[str, float]:
    """Operations per second, and as shares of the stated rates."""
    rate = counter.get_total_flops() / seconds
    return {"tflops": rate / 1e12, "of_67_tflops": rate / _TENSOR_RATE, "of_34_tflops": rate / _PLAIN_RATE}


def fit(layers: tuple[int, ...], rows: int, device: str, **options: Any) -> tuple[nn.Module, Callable[[], float]]:
    """A network for a smooth function of its inputs, and a step of its training."""
    torch.manual_seed(0)
    parts = [part for a, b in pairwise(layers) for part in (nn.Linear(a, b), nn.Tanh())]
    model = nn.Sequential(*parts[:-1]).double().to(device)
    x = torch.rand(rows, layers[0], dtype=torch.float64, device=device)
    y = torch.exp(-(x - 0.5).square().sum(1, keepdim=True))
    optimizer = gl.optim.LevenbergMarquardt(model, **options)
    return model, lambda: optimizer.step(lambda: model(x) - y)


def large(device: str, tiny: bool) -> dict[str, Any]:
    """Steps by conjugate gradients."""
    width, rows = 1000, 10_000
    if tiny:
        width, rows = 20, 50
    model, step = fit((8, width, width, 1), rows, device, memory=2.0**20 / 2 ** (10 * tiny))
    first = step()
    with FlopCounterMode(display=False) as counter:  # its own time is small beside products of this size
        loss, seconds = timed(step)
    size = sum(p.numel() for p in model.parameters())
    return {
        "large": {
            "parameters": size,
            "residuals": rows,
            "losses": [first, loss],
            "seconds_per_step": seconds,
            "most_iterations": systems._ITERATIONS,
            **rates(counter, seconds),
            "peak_gib": peak(device),
        }
    }


def dense(device: str, tiny: bool) -> dict[str, Any]:
    """Steps by Cholesky and by QR, at equal Jacobians."""
    width, rows = 62, 20_000
    if tiny:
        width, rows = 6, 100
    result: dict[str, Any] = {}
    for name, damping in (("cholesky", 1e-3), ("qr", 1e-16)):
        model, step = fit((2, width, width, 1), rows, device, damping=damping, acceleration=False, memory=2.0**34)
        p = sum(q.numel() for q in model.parameters())
        step()  # the first one also tests whether rows are independent
        with FlopCounterMode(display=False) as counter:
            step()
        _, seconds = timed(step)
        result[name] = {"parameters": p, "residuals": rows, "seconds_per_step": seconds}
        if name == "cholesky":  # the counter knows no QR
            result[name] |= rates(counter, seconds)
    return {"dense": result}


def poisson(device: str, tiny: bool) -> dict[str, Any]:
    """The example on this device."""
    steps, width, points = 300, 20, 900
    if tiny:
        steps, width, points = 3, 4, 50
    before = torch.get_default_dtype()
    example = import_module("examples.pde_poisson")  # sets the precision and the seed
    model = example.Solution(width).to(device)
    inside, other = torch.rand(points, 2).to(device).requires_grad_(), torch.rand(5000, 2).to(device)
    f = -example.laplacian(example.exact(inside), inside).detach()
    optimizer = gl.optim.LevenbergMarquardt(model, linear="head")

    def train() -> None:
        for _ in range(steps):
            optimizer.step(lambda: example.laplacian(model(inside), inside) + f)

    _, seconds = timed(train)
    torch.set_default_dtype(before)
    with torch.no_grad():
        error = float((model(other) - example.exact(other)).norm() / example.exact(other).norm())
    return {"poisson": {"steps": steps, "seconds_per_step": seconds / steps, "relative_error": error}}


def main(
    out: Path,
    device: str = "cuda",
    only: Annotated[str, typer.Option(help="One part.")] = "",
    iterations: Annotated[int, typer.Option(help="The most iterations of conjugate gradients per step.")] = 200,
    seconds: Annotated[float, typer.Option(help="After them no further part begins.")] = 300.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small.")] = False,
) -> None:
    """Measure, and write the record after every part."""
    systems._ITERATIONS = iterations
    record = Recording(out, seconds, facts(device))
    for part in (large, dense, poisson):
        if only in ("", part.__name__):
            record.part(part.__name__, lambda part=part: part(device, tiny))


if __name__ == "__main__":
    typer.run(main)
