"""Smooth gates on the paper's target: errors and CPU seconds for 1 to 12 neurons, beside rationals and polynomials.

AAA has (P + 1) / 2 support points, a quotient of polynomials with P numbers; the polynomial of degree P - 1 is the
least-squares one. `python -m benchmarks.smooth_gates FILE` writes the single fits as a table.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.polynomial import Chebyshev
from scipy.interpolate import AAA
from sklearn.metrics import root_mean_squared_error

import gatelab as gl
from benchmarks.harness import Table

UNITS, WIDTHS, SEEDS = ("swiglu", "silu", "geglu", "gelu", "sigmoid-glu"), range(1, 13), range(5)
PROBLEM = "paper-1d"


def chain(unit: str, problem: Any, widths: Iterable[int], seed: int) -> Iterator[gl.Fit]:
    """Fits of which every one but the first starts from the one with a neuron less, so that errors never rise."""
    fit = None
    for width in widths:
        fit = gl.fit(unit, problem, width, seed=seed, start=fit, progress=False)
        yield fit


def run() -> Iterator[Table]:
    for unit in UNITS:
        columns = {"test_rmse": ["min", "median"], "cpu": "max", "aaa": "min", "chebyshev": "min"}
        rows = table(unit).groupby(["width", "parameters"]).agg(columns).reset_index()
        rows.columns = ["n", "P", "best RMSE", "median", "CPU s at most", "AAA", "Chebyshev"]
        note = "AAA and Chebyshev have as many numbers as the unit."
        yield f"{unit} on {PROBLEM}, five seeds", rows.to_dict("records"), note


def table(unit: str) -> pd.DataFrame:
    """A row per width and seed."""
    target, rows = gl.problem(PROBLEM), []
    gl.fit(unit, target, 1, progress=False)  # what is loaded on first use is not counted
    for seed in SEEDS:
        began = time.process_time()
        for fit in chain(unit, target, WIDTHS, seed):
            cpu = round(time.process_time() - began, 3)
            row = {"unit": unit, "width": fit.width, "parameters": fit.parameters, "seed": seed, "cpu": cpu}
            row |= {"train_rmse": fit.train_rmse, "test_rmse": fit.test_rmse, "status": str(fit.status)}
            rows.append(row | peers(fit.parameters))
            began = time.process_time()
    return pd.DataFrame(rows)


@cache
def peers(parameters: int) -> dict[str, float]:
    """Test errors of AAA and of a polynomial with as many numbers."""
    target = gl.problem(PROBLEM)
    (x, y), (t, f) = ((rows.x[:, 0], rows.y[:, 0]) for rows in (target.train, target.test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rational = AAA(x, y, rtol=0, max_terms=(parameters + 1) // 2)
    polynomial = Chebyshev.fit(x, y, parameters - 1)
    return {"aaa": root_mean_squared_error(f, rational(t)), "chebyshev": root_mean_squared_error(f, polynomial(t))}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with path.open("w") as file:
        file.write(f"# {time.strftime('%Y-%m-%d')}, python -m benchmarks.smooth_gates {path}, one thread\n")
        pd.concat(map(table, UNITS)).to_csv(file, index=False, float_format="%.4g")
