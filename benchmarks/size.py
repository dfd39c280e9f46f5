"""How the cost of the knot solver grows with the number of points and with the width."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import gatelab as gl

Table = tuple[str, list[dict[str, float | str]], str]


def run() -> Iterator[Table]:
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
