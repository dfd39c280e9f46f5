"""Your own data: which unit, how wide, and is it the unit or the data that sets the error?

One learns to hold training and test errors side by side over the width, to let validation choose, and to compare with
what is simple. Give a CSV file and the name of its target, or see it on data that are made here.

    python examples/own_data.py [FILE.csv TARGET]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gatelab as gl

NOISE = 0.05


def made_here(path: Path) -> Path:
    """Power of a small wind turbine, in a unit of its own: the cube of the wind, the density of the air, noise."""
    draw = np.random.default_rng(0)
    wind, warmth, age = draw.uniform(0.2, 1.2, 300), draw.uniform(-10, 35, 300), draw.integers(0, 9, 300)
    power = wind**3 * 293 / (273 + warmth) * (1 - 0.01 * age) + NOISE * draw.standard_normal(300)
    rows = np.column_stack([wind, warmth, age, power])
    np.savetxt(path, rows, delimiter=",", header="wind,warmth,age,power", comments="", fmt="%.5f")
    return path


def main(file: str | None = None, target: str = "power") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(file) if file else made_here(Path(folder) / "turbine.csv")
        data = gl.Problem.from_file(path, target=target, standardize=True)
    print(f"{data.name}: {data.train.n} rows to train on, {data.test.n} to test on, inputs {', '.join(data.columns)}")

    print("\nRMSE in deviations of the target, training and test")
    widths = [n for n in (1, 2, 8) if 2 * gl.unit("glu").parameter_count(n, data.d_in) <= data.train.n]
    for unit in ("mlp", "glu", "swiglu"):
        fits = gl.fit_many(unit, data, widths, starts=1, rounds=1, steps=150)
        said = "   ".join(f"n = {f.width}: {f.train_rmse:.3f} {f.test_rmse:.3f}" for f in fits)
        worse = fits[-1].test_rmse > fits[-2].test_rmse
        print(f"  {unit:7} {said}   {'wider is worse: the data set the error' if worse else 'wider is better'}")

    X, y = data.train.x, data.train.y[:, 0]
    held = data.test.x, data.test.y[:, 0]
    model = gl.GatedRegressor("swiglu", ridge=1e-4, random_state=0, starts=1, rounds=1).fit(X, y)
    line = make_pipeline(StandardScaler(), RidgeCV()).fit(X, y)
    print(f"\nChosen by validation among {len(model.validation_)}: width {model.width_}, gates {model.gates_}")
    print(f"R2 on the test rows: GatedRegressor {model.score(*held):.3f}, a line {line.score(*held):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
