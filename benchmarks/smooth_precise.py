"""Smooth gates beyond float64: fits trained further by Levenberg-Marquardt steps in 77 digits.

In float64 the neurons of a small error nearly cancel, and training ends before the optimum. Here networks of the pole
solver go on as Gauss-Newton problems of all their parameters, in the midpoints of python-flint's intervals of 256 bits.
Errors are root mean squares over Gauss-Legendre nodes. Every width starts from fits of the pole solver, and from the
network of one neuron less with a further neuron on one of several places.

`python -m benchmarks.smooth_precise results/smooth/precise.csv` writes a row per unit, target and width. Targets that
are in the file are not computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from flint import arb, arb_mat, ctx

import gatelab as gl

ctx.prec = 256
UNITS, WIDTHS, SEEDS, ROWS = ("swiglu", "silu"), range(2, 9), range(6), 2000
NODES, STEPS, SCREENED = 96, 250, 12  # steps of a fit, and of each place of a further neuron
PATIENCE = 25  # steps that must lower the error by a thousandth
POLISHED, FURTHER = 6, 3  # networks that are trained to the end: of the pole solver, and with a further neuron
PLACES = [complex(real, height) for real in (-0.9, -0.45, 0.0, 0.45, 0.9) for height in (0.3, 0.9, 2.5)]
PI = arb.pi()
# The targets of benchmarks.smooth_rates that have poles.
EXACT: dict[str, Callable[[arb], arb]] = {
    "1/(1+cos(pi*x)**2)": lambda x: 1 / (1 + (PI * x).cos() ** 2),
    "1/((x-0.5)**2+0.04)+1/((x+0.6)**2+0.09)": lambda x: (
        1 / ((x - 0.5) ** 2 + arb("0.04")) + 1 / ((x + arb("0.6")) ** 2 + arb("0.09"))
    ),
    "1/(1.2+x)": lambda x: 1 / (arb("1.2") + x),
    "1/(1+25*x**2)": lambda x: 1 / (1 + 25 * x**2),
    "1/(1+4*x**2)": lambda x: 1 / (1 + 4 * x**2),
    "tanh(10*x)": lambda x: (10 * x).tanh(),
}
Neurons = list[list[arb]]  # of each neuron G, g, the amplitude, and with a factor its change per x; at the end [d]


class Trained(NamedTuple):
    """Parameters and error of a network."""

    neurons: Neurons
    rmse: float


def neurons_of(network: gl.feedforward.Network) -> Neurons:
    """The parameters of a network of one input and output."""
    names = ("G", "g", "D", "U", "u")
    values = {name: getattr(network, name).detach().flatten().tolist() for name in names if hasattr(network, name)}
    G, g, D = values["G"], values["g"], values["D"]
    if not network.unit.factors:
        made = [[arb(v) for v in row] for row in zip(G, g, D, strict=True)]
    else:
        rows = zip(G, g, D, values["U"], values["u"], strict=True)
        made = [[arb(G), arb(g), arb(D) * u, arb(D) * U] for G, g, D, U, u in rows]
    return [*made, [arb(network.d.item())]]


class Rows:
    """Gauss-Legendre nodes with the target at them, as exact numbers."""

    def __init__(self, exact: Callable[[arb], arb], count: int = NODES) -> None:
        t, weights = np.polynomial.legendre.leggauss(count)
        self.x = [arb(v) for v in t.tolist()]
        self.y = [exact(x).mid() for x in self.x]
        self.w = [(arb(v) / 2).sqrt().mid() for v in weights.tolist()]

    def residuals(self, neurons: Neurons, jacobian: bool) -> tuple[arb_mat, arb_mat | None]:
        """Weighted residuals, and the derivatives of the network at the nodes."""
        (d,) = neurons[-1]
        r, rows = [], []
        for x, y, w in zip(self.x, self.y, self.w, strict=True):
            total, row = d, []
            for G, g, *amplitude in neurons[:-1]:
                z = G * x + g
                s = 1 / (1 + (-z).exp())
                gate, line = z * s, amplitude[0]
                if len(amplitude) > 1:
                    line += amplitude[1] * x
                total += gate * line
                if jacobian:
                    move = w * line * s * (1 + z * (1 - s))
                    row += [move * x, move, w * gate, w * gate * x][: 2 + len(amplitude)]
            r.append((w * (y - total)).mid())
            rows.append([v.mid() for v in (*row, w)])
        return arb_mat(len(r), 1, r), arb_mat(rows) if jacobian else None

    def train(self, neurons: Neurons, steps: int) -> Trained:
        """Damped Gauss-Newton steps, until `PATIENCE` of them lower the error by less than a thousandth."""
        r, J = self.residuals(neurons, True)
        loss, damping, history = square(r), arb("1e-8"), []
        for _ in range(steps):
            assert J is not None
            A, b = J.transpose() * J, J.transpose() * r
            p = A.nrows()
            sizes = [A[i, i].mid() for i in range(p)]
            scale = [size.sqrt() if size > 0 else arb(1) for size in sizes]  # a neuron without amplitude has zeros
            S = arb_mat(p, p, [(A[i, j] / (scale[i] * scale[j])).mid() for i in range(p) for j in range(p)])
            right = arb_mat(p, 1, [(b[i, 0] / scale[i]).mid() for i in range(p)])
            for _ in range(12):
                damped = S + damping * arb_mat(p, p, [int(i == j) for i in range(p) for j in range(p)])
                step = damped.solve(right, algorithm="approx")
                values = iter([(step[i, 0] / scale[i]).mid() for i in range(p)])
                trial = [[(v + next(values)).mid() for v in neuron] for neuron in neurons]
                after, _ = self.residuals(trial, False)
                if square(after) < loss:
                    break
                damping *= 8
            else:
                break
            neurons, damping = trial, damping / 10
            r, J = self.residuals(neurons, True)
            loss = square(r)
            history.append(float(loss))
            if len(history) > PATIENCE and history[-1] > 0.998 * history[-1 - PATIENCE]:
                break
        return Trained(neurons, float(loss) ** 0.5)

    def further(self, neurons: Neurons, places: list[complex]) -> Iterator[Trained]:
        """The network with one more neuron, by the place of its pole, after a few steps."""
        zeros = [arb(0)] * (len(neurons[0]) - 2)
        for place in places:
            G = np.pi / place.imag
            yield self.train([*neurons[:-1], [arb(G), arb(-G * place.real), *zeros], neurons[-1]], SCREENED)


def square(r: arb_mat) -> arb:
    return (r.transpose() * r)[0, 0].mid()


def best(unit: str, target: str) -> list[dict[str, float | str]]:
    """A row per width: the least error of all starts, in float64 and after training in 77 digits."""
    exact, problem = Rows(EXACT[target]), gl.problem(target, n=ROWS)
    chains: list[gl.Fit | None] = [None for _ in SEEDS]
    last: Trained | None = None
    rows = []
    for width in WIDTHS:
        options = [{} if fit is None else {"start": fit} for fit in chains]
        pairs = list(zip(SEEDS, options, strict=True))
        chains = [gl.fit(unit, problem, width, seed=seed, progress=False, **start) for seed, start in pairs]
        alone = [gl.fit(unit, problem, width, seed=seed, progress=False) for seed in SEEDS]
        fits = sorted([*chains, *alone], key=lambda fit: fit.train_rmse)
        ends = [exact.train(neurons_of(fit.network), STEPS) for fit in fits[:POLISHED]]
        if last:
            screened = sorted(exact.further(last.neurons, PLACES), key=lambda trained: trained.rmse)
            ends += [exact.train(trained.neurons, STEPS) for trained in screened[:FURTHER]]
        last = min(ends, key=lambda trained: trained.rmse)
        row = {"unit": unit, "target": target, "width": width, "parameters": fits[0].parameters}
        rows.append(row | {"float64": fits[0].test_rmse, "rmse": last.rmse})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    path, found = Path(sys.argv[1]), pd.DataFrame(columns=["unit", "target"])
    if path.exists():
        found = pd.read_csv(path)
    for unit, target in product(UNITS, EXACT):
        if not ((found["unit"] == unit) & (found["target"] == target)).any():
            found = pd.concat([found, pd.DataFrame(best(unit, target))])
            found.to_csv(path, index=False, float_format="%.4g")
