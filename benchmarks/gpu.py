"""Many networks at once on a GPU: `python -m benchmarks.gpu results/gpu.json`, on a machine that has one.

256 GLU fits (width 32, 5 inputs, 10 000 points) with `device="cuda"` and the share of the chip's float64 matrix rate
that the solver reaches, by torch's count of operations; a few of the fits on two cores; and both estimators on a table,
on the GPU and on the CPU. The record is written after every part. `--tiny` is the same in small, for a CPU.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from sklearn.datasets import make_friedman1
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import Recording, device_name, facts, timed
from gatelab import GatedClassifier, GatedRegressor
from gatelab.data import problem
from gatelab.linalg import least_squares
from gatelab.solve import features
from gatelab.solve.solvers.varpro import varpro_many


class Sizes(NamedTuple):
    """How much is computed."""

    fits: int = 256  # on the device
    width: int = 32
    points: int = 10_000
    square: int = 8192
    rounds: int = 24
    members: int = 8
    threads: int = 2


TINY = Sizes(fits=3, width=4, points=200, square=64, rounds=2, members=1, threads=1)
ON_CPU = 2


def fit_many(device: str, fits: int, sizes: Sizes) -> list[float]:
    """The training RMSE of every fit."""
    rows = problem("friedman1", n=sizes.points).train
    members = [(sizes.width, seed) for seed in range(fits)]
    solutions = varpro_many("glu", rows.x, rows.y, members, starts=1, device=device, rounds=sizes.rounds)
    return [solution.history[-1] for solution in solutions]


def fits_on_device(device: str, sizes: Sizes) -> dict[str, Any]:
    """Seconds, memory and errors of all fits, their operations, and the rate of the chip."""
    fit_many(device, 2, TINY)  # libraries load on first use
    rmse, seconds = timed(lambda: fit_many(device, sizes.fits, sizes))
    memory = torch.cuda.max_memory_allocated() / 2**30
    with FlopCounterMode(display=False) as counter:  # a second time: counting takes time
        fit_many(device, sizes.fits, sizes)
    operations = counter.get_total_flops()
    a = torch.randn(sizes.square, sizes.square, dtype=torch.float64, device=device)
    rate = 2 * sizes.square**3 / min(timed(lambda: a @ a)[1] for _ in range(10))
    costs = {"cuda_seconds": seconds, "cuda_memory_gib": memory, "cuda_rmse": rmse[:ON_CPU]}
    costs |= {"rmse_best": min(rmse), "rmse_median": float(np.median(rmse))}
    costs |= {"matrix_tflop_in_blocks": operations / 1e12, "tflops": operations / seconds / 1e12}
    return costs | {"matrix_tflops_of_the_chip": rate / 1e12, "share_in_blocks": operations / seconds / rate}


def fits_on_two_cores(values: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Some of the fits on two cores, and how many times longer one takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(sizes.threads)
    rmse, seconds = timed(lambda: fit_many("cpu", ON_CPU, sizes))
    torch.set_num_threads(before)
    ratio = seconds / ON_CPU / (values["cuda_seconds"] / sizes.fits)
    return {"cpu_fits": ON_CPU, "cpu_seconds": seconds, "cpu_rmse": rmse, "ratio": ratio}


def estimator(kind: str, device: str, values: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """An estimator on one device: seconds, and errors on fresh rows (Friedman's, noise 1; their thirds as classes)."""
    x, y = make_friedman1(n_samples=2 * sizes.points, n_features=20, noise=1.0, random_state=0)
    if kind == "classifier":
        y = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    made = {"regressor": GatedRegressor, "classifier": GatedClassifier}[kind]
    unfitted = made(members=sizes.members, random_state=0, device=device)
    x, fresh, y, truth = train_test_split(x, y, test_size=0.5, shuffle=False)
    model, seconds = timed(lambda: unfitted.fit(x, y))
    if kind == "regressor":
        errors = {"rmse": root_mean_squared_error(truth, model.predict(fresh))}
    else:
        p = model.predict_proba(fresh)
        errors = {"accuracy": accuracy_score(truth, p.argmax(1)), "log_loss": log_loss(truth, p)}
    row = {"device": device, "seconds": seconds, **errors, "unit": model.unit_}
    return {kind: [*values.get(kind, []), row], "cpu_threads": torch.get_num_threads()}


def main(
    out: Path,
    seconds: Annotated[float, typer.Option(help="After them no further part begins.")] = 100.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small, on a CPU too.")] = False,
) -> None:
    """Measure, and write the record after every part."""
    sizes, device = (Sizes(), TINY)[tiny], "cuda"
    if tiny and not torch.cuda.is_available():
        device = "cpu"
        least_squares.on_gpu = features.on_gpu = lambda A: True
    what = f"{sizes.fits} GLU fits, width {sizes.width}, 5 inputs, {sizes.points} points, one start each"
    record = Recording(out, seconds, {"what": what, **facts(device), "cpu": device_name("cpu")})
    values = record.values
    record.part("fits", lambda: fits_on_device(device, sizes))
    for where in (device, "cpu"):
        for kind in ("regressor", "classifier"):
            record.part(f"{kind}, {where}", partial(estimator, kind, where, values, sizes))
        if where == device:
            record.part("fits, CPU", lambda: fits_on_two_cores(values, sizes))


if __name__ == "__main__":
    typer.run(main)
