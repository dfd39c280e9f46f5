"""Many networks at once on a GPU: `python benchmarks/gpu.py results/gpu.json`, on a machine that has one.

256 GLU fits (width 32, 5 inputs, 10 000 points) with `device="cuda"` and the share of the chip's float64 matrix rate
that the solver reaches; a few of the fits on two cores of the same machine, while both estimators are fitted to one
table on the GPU; and these on the CPU. What was measured is written after every part, a part that fails leaves the
others, and after `--seconds` no further part begins.

Operations are those that the algorithm needs, from the shapes of its calls: of a symmetric product each entry once,
nothing for what is recomputed with more care. `matrix_tflop_in_blocks` counts as torch's counter did before, when
symmetric products were cut into blocks of 96 columns and the squares on the diagonal were computed whole.

`--profile FILE` writes the 25 operations that took the device longest in three steps and in a short course, and the
record has how often the host waited in that.
`--tries` times the parts of a step, for the parameters at which the fits ended, with each of the ways in `WAYS`.
`--tiny` is all of it in small, for a CPU.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sklearn.datasets import make_friedman1
from torch import Tensor

from gatelab import GatedClassifier, GatedRegressor
from gatelab.data import problem
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.linalg import least_squares
from gatelab.solve import features, insertion, marquardt
from gatelab.solve.features import ProductModel
from gatelab.solve.solvers.varpro import varpro_many

INPUTS = 5
# What `--tries` compares: constants of `least_squares` and `features`, or which library torch is to prefer.
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "factors by cuSOLVER": {"library": "cusolver"},
    "factors by MAGMA": {"library": "magma"},
    "squares cut at 64": {"_GPU_BLOCK": 64},
    "squares whole": {"_GPU_BLOCK": 10**6},
    "vectors times the whole matrix": {"dense": True},
    "rows in one piece": {"_COLUMNS_IN_ONE_PIECE": False},
}


@dataclass(frozen=True)
class Sizes:
    """How much is computed: fits on the device and on the CPU, their width and points, rows of the table."""

    fits: int = 256
    on_cpu: int = 2
    width: int = 32
    points: int = 10_000
    rows: int = 10_000
    square: int = 8192
    rounds: int = 24


TINY = Sizes(fits=3, on_cpu=2, width=4, points=200, rows=200, square=64, rounds=2)


@dataclass
class Calls:
    """The shapes of the solver's calls, and the last model and parameters of the whole batch at its full width."""

    projections: list[tuple[int, int]] = field(default_factory=list)
    normals: list[tuple[int, int]] = field(default_factory=list)
    gains: list[tuple[int, int, int]] = field(default_factory=list)
    last: tuple[ProductModel, Tensor] | None = None

    def operations(self, n: int, square: Callable[[int, int], float]) -> float:
        """What products of matrices take for `n` rows, `square(rows, columns)` being what A^T A does.

        Args:
            n: the rows.
            square: the operations of a symmetric product.

        Returns:
            Multiplications and additions.
        """
        d, total = INPUTS + 1, 0.0
        for batch, width in self.projections:
            m = width * d + 1
            total += batch * (square(n, m) + 18 * n * m + 2 * n * d * width)
        for batch, width in self.normals:
            m, p = width * d + 1, width * d
            total += batch * (2 * n * m * p + square(n, p) + square(m, p) + 2 * n * p + 4 * n * d * width)
        for batch, width, number in self.gains:
            m = width * d + 1
            inner = 2 * d * m * number + 2 * (d**2 + d) * number + 2 * d * (width + number)
            total += batch * (n * inner + 2 * d**2 * m * number)
        return total


@contextmanager
def logged() -> Iterator[Calls]:
    """The calls of the solver while the context is open."""
    calls = Calls()
    project, normal, gains = ProductModel.project, ProductModel.normal, insertion.gains

    def logged_project(self: ProductModel, theta: Tensor) -> Any:
        calls.projections.append((len(theta), theta.shape[2]))
        largest = calls.last is None or theta.shape[:3:2] >= calls.last[1].shape[:3:2]
        if largest and theta.shape[2]:
            calls.last = (self, theta)
        return project(self, theta)

    def logged_normal(self: ProductModel, theta: Tensor, projection: Any) -> Any:
        calls.normals.append((len(theta), theta.shape[2]))
        return normal(self, theta, projection)

    def logged_gains(model: ProductModel, theta: Tensor, projection: Any, candidates: Tensor) -> Tensor:
        calls.gains.append((len(theta), theta.shape[2], candidates.shape[2]))
        return gains(model, theta, projection, candidates)

    ProductModel.project, ProductModel.normal, insertion.gains = logged_project, logged_normal, logged_gains
    try:
        yield calls
    finally:
        ProductModel.project, ProductModel.normal, insertion.gains = project, normal, gains


def once(n: int, k: int) -> float:
    """The operations of A^T A, A (n, k), each entry once."""
    return float(n) * k * (k + 1)


def in_blocks(n: int, k: int) -> float:
    """The operations of A^T A where the squares on the diagonal, of at most 96 columns, are computed whole.

    >>> in_blocks(10, 96) == 2 * 10 * 96**2, in_blocks(10, 97) < 2 * 10 * 97**2
    (True, True)
    """
    if k <= 96:
        return 2.0 * n * k * k
    half = -(-k // 2)
    return in_blocks(n, half) + in_blocks(n, k - half) + 2.0 * n * half * (k - half)


def wait(device: str) -> None:
    """Until the device has done all that it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(device: str, fits: int, sizes: Sizes, **course: Any) -> tuple[float, list[float]]:
    """Seconds and the training RMSE of every fit."""
    rows = problem("friedman1", n=sizes.points).train
    members = [(sizes.width, seed) for seed in range(fits)]
    wait(device)
    began = time.perf_counter()
    solutions = varpro_many("glu", rows.x, rows.y, members, starts=1, device=device, **course)
    wait(device)
    return time.perf_counter() - began, [s.history[-1] for s in solutions]


def matrix_rate(device: str, size: int, repeats: int = 10) -> float:
    """TFLOP/s of a float64 product of square matrices: what the chip gives."""
    a = torch.randn(size, size, dtype=torch.float64, device=device)
    return repeats * 2 * size**3 / milliseconds(lambda: a @ a, device, repeats) / repeats / 1e9


def milliseconds(call: Callable[[], object], device: str, repeats: int) -> float:
    """Of one call, after one that is not counted."""
    call()
    wait(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    wait(device)
    return (time.perf_counter() - began) / repeats * 1e3


@contextmanager
def way(settings: dict[str, Any]) -> Iterator[None]:
    """The solver with these constants while the context is open."""
    modules = {name: features if hasattr(features, name) else least_squares for name in settings if name[0] == "_"}
    before = {name: getattr(module, name) for name, module in modules.items()}
    spread_columns, library = features.SpreadColumns, None
    for name, module in modules.items():
        setattr(module, name, settings[name])
    if "library" in settings and torch.cuda.is_available():
        library = torch.backends.cuda.preferred_linalg_library()
        torch.backends.cuda.preferred_linalg_library(settings["library"])
    if "dense" in settings:
        features.SpreadColumns = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        for name, module in modules.items():
            setattr(module, name, before[name])
        features.SpreadColumns = spread_columns
        if library is not None:
            torch.backends.cuda.preferred_linalg_library(library)


def step_times(model: ProductModel, theta: Tensor, device: str, repeats: int) -> dict[str, float]:
    """Milliseconds of the parts of a step of the whole batch, and the mean loss that they give."""
    projection = model.project(theta)
    K, g = model.normal(theta, projection)
    damping = torch.full_like(projection.loss, 1e-2)
    F, there, present = model.columns(theta), theta.cpu(), model.present.cpu()
    generators = [torch.Generator().manual_seed(seed) for seed in range(len(theta))]
    calls: dict[str, Callable[[], object]] = {
        "project": lambda: model.project(theta),
        "normal": lambda: model.normal(theta, projection),
        "step": lambda: marquardt.damped_step(K, g, damping),
        "gains": lambda: insertion.gains(model, theta, projection, theta),
        "drawn": lambda: insertion.draw_batch(model, [64] * len(theta), generators, there, present),
        "columns": lambda: model.columns(theta),
        "gram": lambda: least_squares.gram(F),
        "crossed": lambda: least_squares.crossed(F, F[..., :-1]),
        "careful": lambda: least_squares.cholesky_qr(F),
        "library's Cholesky": lambda: torch.linalg.cholesky_ex(projection.lower @ projection.lower.mT),
        "library's solve": lambda: torch.cholesky_solve(g[..., None], torch.eye(g.shape[1]).to(K).expand_as(K)),
    }
    times = {name: milliseconds(call, device, repeats) for name, call in calls.items()}
    return {**times, "mean loss": float(projection.loss.mean()), "by QR": float(projection.careful.double().sum())}


def profiled(device: str, sizes: Sizes, file: Path, last: tuple[ProductModel, Tensor]) -> dict[str, Any]:
    """What took longest in three whole steps and, by kernels, in a short course; how often the host waited there."""
    model, theta = last
    key, everything = "self_cpu_time_total", [torch.profiler.ProfilerActivity.CPU]
    kernels = everything
    if device == "cuda":
        key, kernels = "self_device_time_total", [torch.profiler.ProfilerActivity.CUDA]
        everything = [*everything, *kernels]
    with torch.profiler.profile(activities=everything) as steps:
        for _ in range(3):
            projection = model.project(theta)
            K, g = model.normal(theta, projection)
            marquardt.damped_step(K, g, torch.full_like(projection.loss, 1e-2))
        wait(device)
    with torch.profiler.profile(activities=kernels) as course:
        seconds, _ = timed(device, sizes.fits, sizes, rounds=min(2, sizes.rounds), steps=140)
    averages = course.key_averages()
    tables = [p.table(sort_by=key, row_limit=25, max_name_column_width=90) for p in (steps.key_averages(), averages)]
    text = f"three steps of the whole batch\n{tables[0]}\na short course, {seconds:.2f} s\n{tables[1]}\n"
    write_whole(file, text)
    print(text, flush=True)
    waits = {e.key: e.count for e in averages if "Synchronize" in e.key or e.key == "aten::_local_scalar_dense"}
    launches = sum(e.count for e in averages if "LaunchKernel" in e.key)
    return {"profiled_seconds": seconds, "host_waits": waits, "kernel_launches": launches}


def last_of(log: list[Calls]) -> tuple[ProductModel, Tensor]:
    """The model and the parameters at which the fits ended."""
    if not log or log[0].last is None:
        raise GatelabError("the fits did not end, and there is no step to time; look for their error above")
    return log[0].last


def table_rows(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets with noise and classes: as many to fit as to predict."""
    x, y = make_friedman1(n_samples=2 * rows, n_features=20, noise=1.0, random_state=0)
    return x, y, np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))


def regressor(device: str, sizes: Sizes) -> dict[str, Any]:
    """GatedRegressor on one device: seconds, and the RMSE on fresh rows, of which the noise has 1."""
    x, y, _ = table_rows(sizes.rows)
    began = time.perf_counter()
    model = GatedRegressor(members=8, random_state=0, device=device).fit(x[: sizes.rows], y[: sizes.rows])
    seconds = time.perf_counter() - began
    error = model.predict(x[sizes.rows :]) - y[sizes.rows :]
    return {"device": device, "seconds": seconds, "rmse": float(np.sqrt(np.mean(error**2))), "unit": model.unit_}


def classifier(device: str, sizes: Sizes) -> dict[str, Any]:
    """GatedClassifier on one device: seconds, and accuracy and log loss on fresh rows of three classes."""
    x, _, y = table_rows(sizes.rows)
    began = time.perf_counter()
    model = GatedClassifier(members=8, random_state=0, device=device).fit(x[: sizes.rows], y[: sizes.rows])
    seconds = time.perf_counter() - began
    p = model.predict_proba(x[sizes.rows :])
    log_loss = float(-np.log(p[np.arange(sizes.rows), y[sizes.rows :]]).mean())
    accuracy = float((p.argmax(1) == y[sizes.rows :]).mean())
    return {"device": device, "seconds": seconds, "accuracy": accuracy, "log_loss": log_loss, "unit": model.unit_}


def on_two_cores(sizes: Sizes, answers: Any) -> None:
    """Some of the fits on two cores, in a process of their own."""
    torch.set_num_threads(2)
    answers.put(timed("cpu", sizes.on_cpu, sizes, rounds=sizes.rounds))


@dataclass
class Recording:
    """The record while it grows: a part that fails is noted in it, and after `seconds` no part begins."""

    out: Path
    seconds: float
    values: dict[str, Any]
    began: float = field(default_factory=time.monotonic)

    def part(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure a part, and write what there is.

        Args:
            name: of the part.
            measure: gives what is added to the record.
        """
        if time.monotonic() - self.began > self.seconds:
            self.values.setdefault("not_begun", []).append(name)
        else:
            try:
                self.values |= measure()
            except Exception as error:  # whatever it is, the other parts are measured
                traceback.print_exc()
                self.values.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
        write_whole(self.out, json.dumps(self.values, indent=1) + "\n")
        print(f"{time.monotonic() - self.began:.0f} s: {name}\n{json.dumps(self.values, indent=1)}", flush=True)


def main(
    out: Path,
    profile: Annotated[Path | None, typer.Option(help="Where the longest operations of a short course go.")] = None,
    tries: Annotated[bool, typer.Option("--tries", help="Time a step with every way of `WAYS`.")] = False,
    seconds: Annotated[float, typer.Option(help="After them no further part begins.")] = 100.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small, on a CPU too.")] = False,
) -> None:
    """Measure, and write the record after every part."""
    sizes, device, repeats = Sizes(), "cuda", 5
    if tiny:
        sizes, repeats = TINY, 1
    if tiny and not torch.cuda.is_available():
        device = "cpu"
        least_squares.on_gpu = features.on_gpu = lambda A: True
    name = platform.processor() or platform.machine()
    what = f"{sizes.fits} GLU fits, width {sizes.width}, {INPUTS} inputs, {sizes.points} points, one start each"
    record = Recording(
        out,
        seconds,
        {
            "what": what,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": f"python {' '.join(sys.argv)}",
            "device": torch.cuda.get_device_name() if device == "cuda" else name,
            "cpu": name,
            "torch": torch.__version__,
        },
    )
    errors: list[float] = []
    log: list[Calls] = []

    def fits() -> dict[str, Any]:
        timed(device, 2, TINY)  # libraries load on first use
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with logged() as calls:
            elapsed, rmse = timed(device, sizes.fits, sizes, rounds=sizes.rounds)
        log.append(calls)
        errors.extend(rmse)
        memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
        operations = calls.operations(sizes.points, once)
        rate = matrix_rate(device, sizes.square)
        return {
            "cuda_seconds": elapsed,
            "cuda_memory_gib": memory,
            "rmse_best": min(rmse),
            "rmse_median": float(np.median(rmse)),
            "matrix_tflop": operations / 1e12,
            "matrix_tflop_in_blocks": calls.operations(sizes.points, in_blocks) / 1e12,
            "tflops": operations / elapsed / 1e12,
            "matrix_tflops_of_the_chip": rate,
            "share_of_matrix_rate": operations / elapsed / 1e12 / rate,
            "share_in_blocks": calls.operations(sizes.points, in_blocks) / elapsed / 1e12 / rate,
            "projections": len(calls.projections),
            "projections_of_members": sum(batch for batch, _ in calls.projections),
        }

    def tried() -> dict[str, Any]:
        model, theta = last_of(log)
        rows: dict[str, Any] = {}
        for title, settings in WAYS.items():
            try:
                with way(settings):
                    rows[title] = step_times(model, theta, device, repeats)
            except Exception as error:  # a library that is not there
                rows[title] = f"{type(error).__name__}: {error}"
            print(title, rows[title], flush=True)
        return {"milliseconds": rows}

    record.part("fits", fits)
    if profile is not None:
        record.part("profile", lambda: profiled(device, sizes, profile, last_of(log)))
    if tries:
        record.part("tries", tried)
    log.clear()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=on_two_cores, args=(sizes, answers), daemon=True)
    process.start()
    record.part("regressor", lambda: {"regressor": [regressor(device, sizes)]})
    record.part("classifier", lambda: {"classifier": [classifier(device, sizes)]})

    def few() -> dict[str, Any]:
        elapsed, rmse = answers.get(timeout=max(1.0, seconds + 30 - (time.monotonic() - record.began)))
        each = record.values["cuda_seconds"] / sizes.fits
        pairs = {"cpu_rmse": rmse, "cuda_rmse": errors[: sizes.on_cpu]}
        return {"cpu_fits": sizes.on_cpu, "cpu_seconds": elapsed, **pairs, "ratio": elapsed / sizes.on_cpu / each}

    record.part("fits, CPU", few)
    for estimator in (classifier, regressor):
        title = estimator.__name__
        record.part(
            f"{title}, CPU",
            lambda estimator=estimator, title=title: {
                title: [*record.values.get(title, []), estimator("cpu", sizes)],
                "cpu_threads": torch.get_num_threads(),
            },
        )
    process.join(timeout=1)


if __name__ == "__main__":
    typer.run(main)
