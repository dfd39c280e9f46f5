"""The rooms on a GPU: `python benchmarks/gpu_packages.py results/gpu-packages.json`.

Analytic kernels and the ends of their spectra, n = 10 000 and d = 784, on the CPU and on CUDA, with how far they agree;
and a layer of 4096 x 1024 on 8192 inputs through its features, in bounded memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from benchmarks.features import _layer
from gatelab.ntk import analytic, spectrum


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = call()
    torch.cuda.synchronize()
    return found, time.perf_counter() - began


def kernels(n: int, d: int, full: bool) -> list[dict[str, Any]]:
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((n, d)))
    there = X.cuda()
    analytic("mlp", there[:64])
    rows = []
    for unit in ("mlp", "glu", "swiglu"):
        row: dict[str, Any] = {"unit": unit, "n": n, "d": d}
        _, row["X X^T, CUDA s"] = timed(lambda: there @ there.T)
        K, row["kernel, CUDA s"] = timed(lambda unit=unit: analytic(unit, there, width=4096))
        ends, row["ends, CUDA s"] = timed(lambda K=K: spectrum(K))
        here, row["kernel, CPU s"] = timed(lambda unit=unit: analytic(unit, X, width=4096))
        scale = here.matrix.diagonal().sqrt()
        away = (K.matrix.cpu() - here.matrix) / scale / scale[:, None]
        row |= {"CUDA - CPU, largest": float(away.abs().max()), "condition": ends.condition, "status": ends.status}
        row["bounds"] = ends.condition_bounds[1] / ends.condition_bounds[0] - 1
        same, row["ends, CPU s"] = timed(lambda here=here: spectrum(here))
        row["conditions differ"] = abs(same.condition / ends.condition - 1)
        if full:
            values, row["all, CUDA s"] = timed(lambda K=K: torch.linalg.eigvalsh(K.matrix))
            row["differs from all"] = abs(float(values[-1] / values[0]) / ends.condition - 1)
            _, row["all, CPU s"] = timed(lambda here=here: torch.linalg.eigvalsh(here.matrix))
        rows.append(row)
        print(row, flush=True)
    return rows


def main(out: Path, n: int = 10_000, d: int = 784, threads: int = 2, full: bool = True) -> None:
    torch.set_num_threads(threads)
    made: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python {' '.join(sys.argv)}",
        "device": f"{torch.cuda.get_device_name()}; {threads} threads of its host",
        "torch": torch.__version__,
    }
    made["layer"] = _layer(4096, 1024, 8192)[1]
    print(made["layer"], flush=True)
    made["kernels"] = kernels(n, d, full)
    out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
