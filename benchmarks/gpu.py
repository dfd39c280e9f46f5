"""Many networks at once on a GPU: `python benchmarks/gpu.py OUT.json`, on a machine that has one.

256 GLU fits (width 32, 5 inputs, 10 000 points) with `device="cuda"`, the same call on two cores of the same machine
for a few of them, the agreement of both, and the share of the chip's float64 matrix rate that the solver reaches.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from gatelab.data import problem
from gatelab.solve.solvers.varpro import varpro_many

FITS, ON_CPU, WIDTH, POINTS = 256, 4, 32, 10_000


def timed(device: str, fits: int, x: np.ndarray, y: np.ndarray, width: int = WIDTH) -> tuple[float, list[float]]:
    """Seconds and the training RMSE of every fit."""
    began = time.perf_counter()
    found = varpro_many("glu", x, y, [(width, seed) for seed in range(fits)], starts=1, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, [s.history[-1] for s in found]


def matrix_rate(size: int = 8192, repeats: int = 10) -> float:
    """TFLOP/s of a float64 product of square matrices: what the chip gives."""
    a = torch.randn(size, size, dtype=torch.float64, device="cuda")
    a @ a
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        a @ a
    torch.cuda.synchronize()
    return repeats * 2 * size**3 / (time.perf_counter() - began) / 1e12


def main(out: Path) -> None:
    data = problem("friedman1", n=POINTS)
    x, y = data.train.x, data.train.y
    record: dict[str, object] = {
        "what": f"{FITS} GLU fits, width {WIDTH}, {x.shape[1]} inputs, {POINTS} points, one start each",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python {' '.join(sys.argv)}",
        "device": torch.cuda.get_device_name(),
        "cpu": platform.processor() or platform.machine(),
        "torch": torch.__version__,
    }
    timed("cuda", 2, x[:500], y[:500], width=4)  # libraries load on first use
    torch.cuda.reset_peak_memory_stats()
    seconds, errors = timed("cuda", FITS, x, y)
    record |= {"cuda_seconds": seconds, "cuda_memory_gib": torch.cuda.max_memory_allocated() / 2**30}
    record |= {"rmse_best": min(errors), "rmse_median": float(np.median(errors))}
    save(out, record)
    with FlopCounterMode(display=False) as counter:
        again, _ = timed("cuda", FITS, x, y)
    rate = matrix_rate()
    achieved = counter.get_total_flops() / seconds / 1e12
    record |= {"matrix_tflop": counter.get_total_flops() / 1e12, "tflops": achieved, "matrix_tflops_of_the_chip": rate}
    record |= {"share_of_matrix_rate": achieved / rate, "cuda_seconds_again": again}
    save(out, record)
    torch.set_num_threads(2)
    few, on_cpu = timed("cpu", ON_CPU, x, y)
    record |= {"cpu_fits": ON_CPU, "cpu_seconds": few, "cpu_rmse": on_cpu, "cuda_rmse": errors[:ON_CPU]}
    record |= {"ratio": few * FITS / ON_CPU / seconds}
    save(out, record)


def save(out: Path, record: dict[str, object]) -> None:
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
