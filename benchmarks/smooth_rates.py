"""Smooth gates on targets whose singularities are known: measured rates per parameter beside predicted ones.

`python -m benchmarks.smooth_rates results/smooth` writes the single fits, from which a second call goes on, and
rates.csv, also with the rates of the fits of benchmarks/smooth_precise.py in 115 digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

import gatelab as gl
from benchmarks.harness import Row, continued
from benchmarks.smooth_gates import chain
from gatelab.scaling_laws import decay, predicted_rate
from gatelab.theory import singularities, smooth_error

UNITS = {"swiglu": range(2, 9), "silu": range(2, 11)}
TARGETS = {
    "1/(1+cos(pi*x)**2)": "±½ ± 0.2805i",
    "1/((x-0.5)**2+0.04)+1/((x+0.6)**2+0.09)": "0.5 ± 0.2i and -0.6 ± 0.3i",
    "1/(1.2+x)": "-1.2",
    "1/(1+25*x**2)": "±0.2i",
    "1/(1+4*x**2)": "±0.5i",
    "tanh(10*x)": "±0.157i, ±0.471i, ...",
    "exp(sin(3*x))": "none",
    "cos(20*x)": "none",
    "sqrt(1+x)": "a branch point at -1",
}
ROWS, SEEDS, ROUNDING = 2000, range(5), 1e-11


def fits(target: str, unit: str, seed: int) -> Iterator[Row]:
    """A row per width."""
    for fit in chain(unit, gl.problem(target, n=ROWS), UNITS[unit], seed):
        row = {"target": target, "unit": unit, "seed": seed, "width": fit.width, "parameters": fit.parameters}
        yield row | {"test_rmse": fit.test_rmse, "status": str(fit.status)}


def rates(found: pd.DataFrame, precise: pd.DataFrame) -> pd.DataFrame:
    """Measured and predicted rates, of the best of all seeds; `over`: errors of four neurons over predicted ones."""
    rows = []
    for (unit, target), fitted in found[found["test_rmse"] > ROUNDING].groupby(["unit", "target"], sort=False):
        problem, factors = gl.problem(str(target), n=ROWS), gl.unit(str(unit)).factors
        best = fitted.groupby("width").agg({"parameters": "min", "test_rmse": "min"})
        P, errors = best["parameters"].to_numpy(float), best["test_rmse"].to_numpy()
        singular = singularities(problem.f, (-1.0, 1.0))
        row = {"unit": unit, "target": target, "singularities": TARGETS[str(target)], "decline": singular.decline}
        row |= {"seeds": fitted["seed"].nunique(), "least": best.index[0], "most": best.index[-1]}
        row["measured"] = -np.polyfit(P, np.log(errors), 1)[0]
        with suppress(gl.GatelabError):
            fall = decay(P, errors)
            line = fall.rates["exponential"]
            row |= {"low": line.low, "high": line.high, "accepted": " or ".join(fall.accepted) or "none"}
        if singular.poles:
            row["predicted"] = predicted_rate(str(unit), problem, best.index.tolist())
            row["ratio"] = row["measured"] / row["predicted"]
            (law,) = smooth_error(singular.poles, (-1.0, 1.0), factors, np.array([4.0]))
            row["over"] = best["test_rmse"][4] / (law * np.sqrt(np.mean(problem.test.y**2)))
            exact = precise[(precise["unit"] == unit) & (precise["target"] == target)]
            exact = exact.groupby(["width", "parameters"], as_index=False)["rmse"].min()  # of all searches
            if len(exact):
                row["precise"] = -np.polyfit(exact["parameters"], np.log(exact["rmse"]), 1)[0]
                row["precise_predicted"] = predicted_rate(str(unit), problem, exact["width"].tolist())
                row["precise_ratio"] = row["precise"] / row["precise_predicted"]
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cells = [(target, unit, seed) for unit in UNITS for seed in SEEDS for target in TARGETS]
    fitted = continued(folder / "rates-fits.csv", ["target", "unit", "seed"], cells, fits, float_format="%.4g")
    table = rates(fitted, pd.read_csv("results/smooth/precise.csv"))
    table.to_csv(folder / "rates.csv", index=False, float_format="%.4g")
