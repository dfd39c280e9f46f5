"""How the cost of the knot solver grows with points and width, and what the regressor takes on large tables.

python -m benchmarks size                            both, as tables
python -m benchmarks.size results/tables/large.json  the large tables, as a record
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

import gatelab as gl
from benchmarks.estimators import estimator_code
from benchmarks.harness import Row, Table, facts, write_record
from benchmarks.tables import MemoryWatch

# Rows, columns, and what is said of the time; Friedman's first problem with noise of deviation 1.
LARGE: tuple[tuple[int, int, dict[str, Any]], ...] = ((10_000, 20, {}), (1_000_000, 10, {"time_budget": 150}))
TESTED = 20_000


def large_tables() -> Iterator[Row]:
    """The regressor with its defaults and boosting on large tables: seconds, memory and error, one thread."""
    for rows, columns, settings in LARGE:
        X, y = make_friedman1(rows + TESTED, columns, noise=1.0, random_state=0)
        models = (gl.GatedRegressor(random_state=0, **settings), HistGradientBoostingRegressor(random_state=0))
        for model in models:
            watch, began, clock = MemoryWatch(), time.process_time(), time.perf_counter()
            model.fit(X[:rows], y[:rows])
            cost = {"cpu_s": time.process_time() - began, "wall_s": time.perf_counter() - clock, "mib": watch.risen()}
            rmse = float(np.sqrt(np.mean(np.square(model.predict(X[rows:]) - y[rows:]))))
            yield {"rows": rows, "columns": columns, "method": type(model).__name__, **cost, "rmse": rmse}


def run() -> Iterator[Table]:
    noted = "noise 1; MiB: how far memory rises; the regressor has a time_budget of 150 s on a million rows"
    yield "GatedRegressor on large tables", list(large_tables()), noted
    rows = []
    for name in ("mlp", "glu", "gqu"):
        seconds = {}
        for n in (10_000, 100_000, 1_000_000):
            p = gl.problem("paper-1d", n=n, n_test=10_000)
            seconds[n] = min(gl.fit(name, p, 30).seconds for _ in range(2))
        slope = np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0]
        growth = (seconds[1_000_000] - seconds[100_000]) / (seconds[100_000] - seconds[10_000])
        rows.append(
            {"unit": name, **{f"N = {n:.0e}": s for n, s in seconds.items()}, "exponent": slope, "growth": growth}
        )
    yield (
        "Seconds against the number of points, width 30",
        rows,
        "growth: what the step from 1e5 to 1e6 adds over what that from 1e4 to 1e5 adds; 10 is linear",
    )
    p = gl.problem("paper-1d", n=40_000)
    rows = []
    for name in ("mlp", "glu", "relu2"):
        for width in (100, 300, 1000):
            f = gl.fit(name, p, width)
            rows.append({"unit": name, "width": width, "seconds": f.seconds, "test RMSE": f.test_rmse})
            rows[-1]["over the limit"] = f.test_rmse / gl.limit(name, p, width)
    yield "Wide networks, 40 000 points", rows, ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_record(Path(sys.argv[1]), facts("cpu") | {"version": estimator_code(), "rows": [*large_tables()]}, "rows")
