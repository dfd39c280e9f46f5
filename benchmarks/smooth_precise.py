"""Smooth gates beyond float64: fits by variable projection in 115 digits, to see the law of their errors.

In float64 the neurons of a small error nearly cancel, and training ends before the optimum. Here Levenberg-Marquardt
steps are taken in the midpoints of python-flint's intervals of 384 bits. Errors are root mean squares over
Gauss-Legendre nodes. Starts are fits of the pole solver; networks with neurons on the nearest poles of the target and
the others over them at random heights; and the best network of one neuron less with a further neuron.
`python -m benchmarks.smooth_precise results/smooth/precise.csv` writes a row per unit, target, search and width.
What is in it is not computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import torch
from flint import arb, arb_mat, ctx

import gatelab as gl
from benchmarks.harness import continued
from benchmarks.smooth_gates import chain
from gatelab.theory import singularities

ctx.prec = 384
UNITS, SEEDS, ROWS, NODES = {"swiglu": range(2, 8)}, range(6), 2000, 96
SCREENED, STEPS, ATTEMPTS = 12, 120, 12  # steps of a start and of the best of them; dampings of a step
PATIENCE = 25  # steps that must lower the error by a thousandth
SEARCHES = range(2)  # with random starts of their own
STARTS, FURTHER, TRAINED = 30, 10, 4  # random starts, further neurons, and how many starts are trained to the end
# Random poles: the logarithm of their height over the height of the target's, and their distance from its column.
HEIGHTS, ASIDE = (0.3, 3.5), 0.5
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
Gates = list[tuple[arb, arb]]  # G and g of each neuron


def gates_of(network: gl.feedforward.Network) -> Gates:
    """The gates of a network of one input."""
    G, g = (parameter.detach().flatten().tolist() for parameter in (network.G, network.g))
    return [(arb(a), arb(b)) for a, b in zip(G, g, strict=True)]


class Rows:
    """Gauss-Legendre nodes with the target at them, as exact numbers, for networks with `factors` 0 or 1."""

    def __init__(self, exact: Callable[[arb], arb], factors: int) -> None:
        t, weights = np.polynomial.legendre.leggauss(NODES)
        self.x = [arb(v) for v in t.tolist()]
        self.w = [(arb(v) / 2).sqrt().mid() for v in weights.tolist()]
        self.y = arb_mat(NODES, 1, [(w * exact(x)).mid() for x, w in zip(self.x, self.w, strict=True)])
        self.powers = range(factors + 1)

    def project(self, gates: Gates) -> tuple[arb_mat, arb_mat, arb_mat]:
        """Weighted features, the best output weights, and the residuals that they leave."""
        rows = []
        for x, w in zip(self.x, self.w, strict=True):
            silu = [w * z / (1 + (-z).exp()) for z in (G * x + g for G, g in gates)]
            rows.append([(value * x**k).mid() for k in self.powers for value in silu] + [w])
        F = arb_mat(rows)
        return F, *projected(F, self.y)

    def jacobian(self, gates: Gates, F: arb_mat, c: arb_mat) -> arb_mat:
        """The derivatives of the network by its gates, less what output weights can follow (Kaufman)."""
        rows, n = [], len(gates)
        for x, w in zip(self.x, self.w, strict=True):
            lines = [sum((c[k * n + i, 0] * x**k for k in self.powers), arb(0)) for i in range(n)]
            z = [G * x + g for G, g in gates]
            s = [1 / (1 + (-v).exp()) for v in z]
            slopes = [w * lines[i] * s[i] * (1 + z[i] * (1 - s[i])) for i in range(n)]
            rows.append([v.mid() for slope in slopes for v in (slope * x, slope)])
        return projected(F, arb_mat(rows))[1]

    def train(self, gates: Gates, steps: int) -> tuple[float, Gates]:
        """Error and gates after Levenberg-Marquardt steps, until `PATIENCE` of them lower it by less than 0.001."""
        F, c, r = self.project(gates)
        loss, damping, history = square(r), arb("1e-6"), []
        while len(history) < steps:
            J = self.jacobian(gates, F, c)
            A, b, p = J.transpose() * J, J.transpose() * r, 2 * len(gates)
            sizes = [A[i, i].mid() for i in range(p)]
            scale = [size.sqrt() if size > 0 else arb(1) for size in sizes]  # a neuron without weights has zeros
            for _ in range(ATTEMPTS):
                damped = [[A[i, j] / (scale[i] * scale[j]) + damping * (i == j) for j in range(p)] for i in range(p)]
                step = solve(arb_mat(damped), arb_mat(p, 1, [b[i, 0] / scale[i] for i in range(p)]))
                moves = [(step[i, 0] / scale[i]).mid() for i in range(p)]
                trial = [((G + moves[2 * i]).mid(), (g + moves[2 * i + 1]).mid()) for i, (G, g) in enumerate(gates)]
                with suppress(ZeroDivisionError):  # two neurons are one
                    after = self.project(trial)
                    if square(after[2]) < loss:
                        break
                damping *= 8
            else:
                break
            gates, (F, c, r), damping = trial, after, damping / 10
            loss = square(r)
            history.append(float(loss))
            if len(history) > PATIENCE and history[-1] > 0.998 * history[-1 - PATIENCE]:
                break
        return float(loss) ** 0.5, gates


def neuron(pole: complex) -> tuple[arb, arb]:
    """The gate with its first pole there."""
    G = np.pi / max(pole.imag, 1e-3)
    return arb(G), arb(-G * pole.real)


def drawn(poles: Sequence[complex], random: np.random.Generator) -> complex:
    """A random place over a pole of the target."""
    below = poles[random.integers(len(poles))]
    height = max(below.imag, 0.1) * np.exp(random.uniform(*HEIGHTS))
    return complex(below.real + ASIDE * height * random.standard_normal(), height)


def starts(poles: Sequence[complex], width: int, last: Gates, random: np.random.Generator) -> Iterator[Gates]:
    """Random networks of this width; half of them have a neuron on each of the nearest poles."""
    pairs = [pole for pole in poles if pole.imag]
    for k in range(STARTS):
        known = list(pairs[: random.integers(min(width, len(pairs)) + 1) if k % 2 else width])
        yield [neuron(p) for p in [*known, *(drawn(poles, random) for _ in range(width - len(known)))]]
    if last:
        yield from ([*last, neuron(drawn(poles, random))] for _ in range(FURTHER))


def solve(A: arb_mat, b: arb_mat) -> arb_mat:
    return A.mid().solve(b.mid(), algorithm="approx").mid()


def projected(F: arb_mat, y: arb_mat) -> tuple[arb_mat, arb_mat]:
    """The coefficients of least squares, and what they leave."""
    c = solve(F.transpose() * F, F.transpose() * y)
    return c, (y - F * c).mid()


def square(r: arb_mat) -> arb:
    return (r.transpose() * r)[0, 0].mid()


def best(unit: str, target: str, search: int) -> Iterator[dict[str, float | str]]:
    """A row per width: the least error of the pole solver, and the least one of all starts in 115 digits."""
    rows, random = Rows(EXACT[target], gl.unit(unit).factors), np.random.default_rng(search)
    problem, last = gl.problem(target, n=ROWS), []
    poles = singularities(problem.f, (-1.0, 1.0)).poles
    chains = [chain(unit, problem, UNITS[unit], seed) for seed in SEEDS]
    for width, *fits in zip(UNITS[unit], *chains, strict=True):
        fit = min(fits, key=lambda fit: fit.train_rmse)
        tried = [rows.train(gates_of(one.network), SCREENED) for one in fits]
        for gates in starts(poles, width, last, random):
            with suppress(ZeroDivisionError):  # two neurons are one
                tried.append(rows.train(gates, SCREENED))
        ends = [rows.train(gates, STEPS) for _, gates in sorted(tried, key=lambda t: t[0])[:TRAINED]]
        rmse, last = min(ends, key=lambda t: t[0])
        places = " ".join(f"{float(-g / G):.3g}+{float(PI / abs(G)):.3g}i" for G, g in last)
        row = {"unit": unit, "target": target, "search": search, "width": width, "parameters": fit.parameters}
        yield row | {"float64": fit.test_rmse, "rmse": rmse, "poles": places}


if __name__ == "__main__":
    torch.set_num_threads(1)
    cells = [(unit, target, search) for search, unit, target in product(SEARCHES, UNITS, EXACT)]
    continued(Path(sys.argv[1]), ["unit", "target", "search"], cells, best, float_format="%.4g")
