"""Levenberg-Marquardt on a GPU: `python -m benchmarks.gpu_optim results/optim/gpu.json`, on a machine that has one.

- `large`: a million parameters and 10 000 residuals, by conjugate gradients: seconds, rate and peak of memory.
  Operations are those of products of matrices, by torch's counter.
- `poisson`: the example `examples/pde_poisson.py`, seconds per step and relative error.

`--device cpu --tiny` is the same in small, on a CPU.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gatelab as gl
from benchmarks.harness import Recording, facts, timed
from gatelab.optim import systems


def large(device: str, tiny: bool) -> dict[str, Any]:
    """Steps by conjugate gradients, for a smooth function of eight inputs."""
    width, rows, memory = ((1000, 10_000, 2.0**20), (20, 50, 2.0**10))[tiny]
    torch.manual_seed(0)
    layers = nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    model = nn.Sequential(*layers).double().to(device)
    x = torch.rand(rows, 8, dtype=torch.float64, device=device)
    y = torch.exp(-(x - 0.5).square().sum(1, keepdim=True))
    optimizer = gl.optim.LevenbergMarquardt(model, memory=memory)

    def step() -> float:
        return optimizer.step(lambda: model(x) - y)

    first = step()
    with FlopCounterMode(display=False) as counter:  # its own time is small beside products of this size
        loss, seconds = timed(step)
    values = {"parameters": sum(p.numel() for p in model.parameters()), "residuals": rows, "losses": [first, loss]}
    values |= {"seconds_per_step": seconds, "most_iterations": systems._ITERATIONS}
    values |= {"tflops": counter.get_total_flops() / seconds / 1e12}
    return {"large": values | {"peak_gib": torch.cuda.max_memory_allocated() / 2**30}}


def poisson(device: str, tiny: bool) -> dict[str, Any]:
    """The example on this device."""
    steps, width, points = ((300, 20, 900), (3, 4, 50))[tiny]
    before = torch.get_default_dtype()
    example = import_module("examples.pde_poisson")  # sets the precision and the seed
    model = example.Solution(width).to(device)
    inside, other = torch.rand(points, 2).to(device).requires_grad_(), torch.rand(5000, 2).to(device)
    f = -example.laplacian(example.exact(inside), inside).detach()
    optimizer = gl.optim.LevenbergMarquardt(model, linear="head")
    step = partial(optimizer.step, lambda: example.laplacian(model(inside), inside) + f)
    _, seconds = timed(lambda: [step() for _ in range(steps)])
    torch.set_default_dtype(before)
    with torch.no_grad():
        error = float((model(other) - example.exact(other)).norm() / example.exact(other).norm())
    return {"poisson": {"steps": steps, "seconds_per_step": seconds / steps, "relative_error": error}}


def main(
    out: Path,
    device: str = "cuda",
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small.")] = False,
) -> None:
    """Measure, and write the record after every part."""
    record = Recording(out, 300.0, facts(device))
    for part in (large, poisson):
        record.part(part.__name__, lambda part=part: part(device, tiny))


if __name__ == "__main__":
    typer.run(main)
