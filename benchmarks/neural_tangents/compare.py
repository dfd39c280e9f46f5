"""Analytic kernels of gatelab against neural-tangents.

neural-tangents is archived and needs an old jax, so it lives in an environment of its own, and the kernels travel in a
folder. From the root of the repository:

    python -m venv /tmp/nt && /tmp/nt/bin/pip install -r benchmarks/neural_tangents/requirements.txt
    python benchmarks/neural_tangents/compare.py make /tmp/kernels          with gatelab's environment
    /tmp/nt/bin/python benchmarks/neural_tangents/compare.py check /tmp/kernels

`make` writes samples and kernels; `check` computes the same kernels with neural-tangents, prints the largest deviation
of each, and ends with 1 if a kernel of order 0 or 1 is off by more than 1e-12.

Two sets of 500 samples. `signs` are random signs times powers of two: X X^T is exact in either library, and the whole
kernels are compared, entry by entry. `gaussian` are normal: entries of X X^T near zero have rounding errors of the
size of the diagonal, so deviations are relative to sqrt(K_ii K_jj); and neural-tangents takes the diagonal from cosines
like 1 - 1e-16, angles of 1e-8, where gatelab has the formula. Its diagonal is therefore held against
(m + (q + 1) d) r^(2q + 2) / (2 d^(q + 1)) in a column of its own, beside ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

N, D, WIDTH = 500, 784, 1000
TARGET = 1e-12
UNITS = {"mlp": ("relu", 0), "glu": ("relu", 1), "gqu": ("relu", 2), "gelu": ("gelu", 0), "geglu": ("gelu", 1)}
WIDTHS = (WIDTH, None)


def make(folder: Path) -> None:
    from gatelab import ntk

    folder.mkdir(parents=True, exist_ok=True)
    for data, X in samples().items():
        np.save(folder / f"{data}.npy", X)
        for width in WIDTHS:
            for name, kernel in zip(UNITS, ntk.analytic(list(UNITS), X, width), strict=True):
                np.save(folder / f"{data}-{name}-{width}.npy", kernel.numpy())
    print(f"kernels of {', '.join(UNITS)} on {N} samples written to {folder}")


def check(folder: Path) -> int:
    import jax

    jax.config.update("jax_enable_x64", True)
    worst = 0.0
    for data in samples():
        X = np.load(folder / f"{data}.npy")
        for width in WIDTHS:
            for name, (gate, factors) in UNITS.items():
                ours = np.load(folder / f"{data}-{name}-{width}.npy")
                kind = "nngp" if width is None else "ntk"
                theirs = np.asarray(kernel_function(gate, factors, width or WIDTH)(jax.numpy.asarray(X), None, kind))
                text = f"{data:8} {name:5} {kind:4}"
                if data == "signs":
                    off = float((np.abs(ours - theirs) / np.where(theirs == 0, 1, np.abs(theirs))).max())
                    text += f" {off:.1e} of the entry, whole kernel"
                else:
                    off = scaled(ours, theirs)
                    text += f" {off:.1e} of sqrt(K_ii K_jj) off the diagonal"
                    if gate == "relu" and width:
                        exact = diagonal(X, factors, width)
                        on = [float(np.abs(K.diagonal() / exact - 1).max()) for K in (ours, theirs)]
                        text += f"; diagonal: {on[0]:.1e} ours, {on[1]:.1e} theirs"
                if factors < 2:
                    worst = max(worst, off)
                print(text)
    print(f"orders 0 and 1: largest deviation {worst:.1e}, {'within' if worst <= TARGET else 'ABOVE'} {TARGET:.0e}")
    return int(worst > TARGET)


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (N, D)) * 2.0 ** rng.integers(-2, 3, (N, 1))
    return {"signs": signs, "gaussian": rng.standard_normal((N, D))}


def scaled(ours: np.ndarray, theirs: np.ndarray) -> float:
    scale = np.sqrt(np.outer(ours.diagonal(), ours.diagonal()))
    return float((np.abs(ours - theirs) / scale)[~np.eye(len(ours), dtype=bool)].max())


def diagonal(X: np.ndarray, q: int, m: int) -> np.ndarray:
    s2 = (X * X).sum(1) / D
    return (m + (q + 1) * D) * s2 ** (q + 1) / 2


def kernel_function(gate: str, factors: int, width: int) -> Callable[..., Any]:
    """The unit in neural-tangents: standard parametrisation, whose kernel has the layers' widths in it."""
    from neural_tangents import stax

    def dense(size: int) -> Any:
        return stax.Dense(size, W_std=1.0, b_std=None, parameterization="standard")

    act = {"relu": stax.Relu, "gelu": stax.Gelu}[gate]
    gated = stax.serial(dense(width), act())
    if factors:
        branches = [gated, *(dense(width) for _ in range(factors))]
        gated = stax.serial(stax.FanOut(factors + 1), stax.parallel(*branches), stax.FanInProd())
    return stax.serial(gated, dense(1))[2]


if __name__ == "__main__":
    sys.exit({"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2])))
