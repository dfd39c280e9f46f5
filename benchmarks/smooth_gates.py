"""Smooth gates on the paper's target: errors and CPU seconds for 1 to 12 neurons, beside rationals and polynomials.

Every fit but the first starts from the one with a neuron less, so that errors never rise. AAA has (P + 1) / 2 support
points, a quotient of polynomials with P numbers; the polynomial of degree P - 1 is the least-squares one.
`python -m benchmarks.smooth_gates FILE [UNIT ...]` writes the single fits as a table, or those of some units anew.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.polynomial import Chebyshev
from scipy.interpolate import AAA

import gatelab as gl

UNITS, WIDTHS, SEEDS = ("swiglu", "silu", "geglu", "gelu", "sigmoid-glu"), range(1, 13), range(5)
PROBLEM = "paper-1d"


def run() -> Iterator[tuple[str, list[dict], str]]:
    for unit in UNITS:
        fits = table(unit)
        columns = {"test_rmse": ["min", "median"], "cpu": ["max"], "aaa": ["min"], "chebyshev": ["min"]}
        rows = fits.groupby(["width", "parameters"]).agg(columns).reset_index()
        names = ("n", "P", "best RMSE", "median", "CPU s at most", "AAA", "Chebyshev")
        found = [dict(zip(names, (int(r[0]), int(r[1]), *r[2:]), strict=True)) for r in rows.itertuples(index=False)]
        yield f"{unit} on {PROBLEM}, five seeds", found, "AAA and Chebyshev have as many numbers as the unit."


@cache
def table(unit: str) -> pd.DataFrame:
    """A row per width and seed."""
    target, rows = gl.problem(PROBLEM), []
    gl.fit(unit, target, 1, progress=False)  # what is loaded on first use is not counted
    for seed in SEEDS:
        fit = None
        for width in WIDTHS:
            options = {} if fit is None else {"start": fit}
            began = time.process_time()
            fit = gl.fit(unit, target, width, seed=seed, progress=False, **options)
            cpu = time.process_time() - began
            row = {"unit": unit, "width": width, "parameters": fit.parameters, "seed": seed, "cpu": round(cpu, 3)}
            row |= {"train_rmse": fit.train_rmse, "test_rmse": fit.test_rmse, "status": str(fit.status)}
            rows.append(row | peers(fit.parameters))
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
    return {
        name: float(np.sqrt(np.mean((g(t) - f) ** 2))) for name, g in (("aaa", rational), ("chebyshev", polynomial))
    }


if __name__ == "__main__":
    path, units = Path(sys.argv[1]), sys.argv[2:] or list(UNITS)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = pd.DataFrame()
    if path.exists():
        kept = pd.read_csv(path, comment="#").query("unit not in @units")
    fits = pd.concat([kept, *map(table, units)]).sort_values("unit", key=lambda u: u.map(UNITS.index), kind="stable")
    with path.open("w") as file:
        file.write(f"# {time.strftime('%Y-%m-%d')}, python -m benchmarks.smooth_gates {path}, one thread\n")
        fits.to_csv(file, index=False, float_format="%.4g")
