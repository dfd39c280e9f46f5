"""Constructions against their predicted error, trained networks against the free-knot limit, tail slopes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import gatelab as gl
from benchmarks.harness import Row, Table
from gatelab.solve import rmse

TARGETS = [
    ("paper-1d", None),
    ("exp(sin(3*x))", (0.0, 3.0)),
    ("tanh(3*x)+x**2", (-2.0, 1.0)),
    ("1/(1+25*x**2)", (-1.0, 2.0)),
]
TAIL = list(range(50, 201, 10))


def run() -> Iterator[Table]:
    yield "Constructions: measured RMSE over predicted, and order", _constructions(), "order: from n = 100 to 200"
    yield (
        "Trained networks: test RMSE over the free-knot limit",
        _ratios(),
        "10 000 random points to train on, 10 000 others to test on; forward pass of the network",
    )
    yield (
        "Tail slopes against n, widths 50 to 200",
        _tail(),
        "100 000 points, every tenth width; test RMSE. The best networks approach the limit from below (see ratios), "
        "so plain slopes are flat; 'with 1/n' fits log error = a + s log n + b/n.",
    )


def _constructions() -> list[Row]:
    rows = []
    for text, interval in TARGETS:
        p = gl.problem(text, interval=interval, n=100_001, sampling="grid")
        for name in ("mlp", "glu", "gqu"):
            made = [gl.construct(name, p, n) for n in (50, 100, 200)]
            errors = [rmse(m.network, p.train.x, p.train.y) for m in made]
            row: Row = {"target": p.name, "unit": name}
            row |= {f"n = {m.network.width}": e / m.predicted_rmse for m, e in zip(made, errors, strict=True)}
            rows.append(row | {"order": f"{np.log2(errors[1] / errors[2]):.3f}"})
    return rows


def _ratios() -> list[Row]:
    rows = []
    for text, interval in TARGETS:
        p = gl.problem(text, interval=interval)
        for name in ("mlp", "glu", "gqu", "relu2", "relu3"):
            row: Row = {"target": p.name, "interval": str(p.interval), "unit": name}
            rows.append(row | {f"n = {n}": gl.fit(name, p, n).test_rmse / gl.limit(name, p, n) for n in (25, 50, 100)})
    return rows


def _tail() -> list[Row]:
    rows = []
    for text, interval in (TARGETS[0], TARGETS[2]):
        p = gl.problem(text, interval=interval, n=100_000)
        study = gl.scaling(["mlp", "relu2", "relu3", "glu", "gqu"], p, TAIL)
        for name in study.units:
            rows.append(
                {
                    "target": p.name,
                    "unit": name,
                    "order": float(-(gl.unit(name).order or 0)),
                    "slope": str(study.slope(name)),
                    "100 to 200": f"{study.slope(name, widths=(100, 200)).value:.2f}",
                    "with 1/n": f"{gl.corrected_slope(*study.curve(name)):.2f}",
                    "ratio at 50": study.ratio(name, 50),
                    "100": study.ratio(name, 100),
                    "200": study.ratio(name, 200),
                }
            )
    return rows
