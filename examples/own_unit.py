"""Your own unit, as a function and as a class: does it conform, how does its error fall, how well does it train?

One learns what a unit must be to be taken everywhere, to compare at equal parameters and not at equal width, and to
ask the tangent kernel before training.

    python examples/own_unit.py
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import gatelab as gl


def sine_gate(z: Tensor, v: Tensor) -> Tensor:
    """y = d + D [ (1 + sin(Gx + g)) (Ux + u) ]: a gate that opens again and again."""
    return (1 + z.sin()) * v


class LowRankGLU(nn.Module):
    """A GLU whose gate is of rank one, no function of affine maps alone: a class, built as cls(width, d_in, d_out)."""

    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_in, 1, bias=False)
        self.outer = nn.Linear(1, width)
        self.U = nn.Linear(d_in, width)
        self.D = nn.Linear(width, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.D(self.outer(self.inner(x)).relu() * self.U(x))


def main() -> None:
    units = {"glu": "glu", "swiglu": "swiglu", "sine_gate": sine_gate, "LowRankGLU": LowRankGLU}

    print("Conformance: the suite that our own units pass")
    for name in ("sine_gate", "LowRankGLU"):
        failed = [c for c in gl.check_unit(units[name], raise_on_failure=False) if not c.passed]
        print(f"  {name:11} {'passes' if not failed else '; '.join(f'{c.name}: {c.message}' for c in failed)}")

    target = gl.problem("sin(4*x)*sin(4*y)", n=300)
    print(f"\n{target.name}, {target.train.n} points: test RMSE at about 60 parameters")
    for name, given in units.items():
        unit = gl.unit(given)
        width = max(n for n in range(1, 40) if unit.parameter_count(n, 2, 1) <= 60)
        fit = gl.fit(unit, target, width, starts=1, rounds=1, steps=150)
        print(f"  {name:11} n = {width:2}, P = {fit.parameters}  {fit.test_rmse:.1e}  ({fit.status.value})")

    X = torch.from_numpy(np.random.default_rng(0).standard_normal((100, 20)))
    print("\nCondition number of the tangent kernel, 100 Gaussian rows of 20 inputs, one network of 500 neurons")
    for name, given in units.items():
        network = gl.unit(given).network(500, 20, 1)
        print(f"  {name:11} {gl.ntk.spectrum(gl.ntk.empirical(network, X)).condition:8.0f}")


if __name__ == "__main__":
    main()
