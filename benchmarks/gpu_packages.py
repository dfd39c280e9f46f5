"""Kernels and linearizations on a GPU: `python -m benchmarks.gpu_packages results/gpu-packages.json`.

Analytic kernels and the ends of their spectra, n = 10 000 and d = 784, on the CPU and on CUDA, with how far they agree;
and a layer of 4096 x 1024 on 8192 inputs through its features, in bounded memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import typer

from benchmarks.features import layer
from benchmarks.harness import Row, facts, timed, write_record
from gatelab.ntk import analytic, spectrum


def kernels(n: int, d: int, full: bool) -> list[Row]:
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((n, d)))
    places = {"CUDA": X.cuda(), "CPU": X}
    analytic("mlp", places["CUDA"][:64])
    rows = []
    for unit in ("mlp", "glu", "swiglu"):
        row: Row = {"unit": unit, "n": n, "d": d}
        row["X X^T, CUDA s"] = timed(lambda: places["CUDA"] @ places["CUDA"].T)[1]
        K, ends = {}, {}
        for place, x in places.items():
            K[place], row[f"kernel, {place} s"] = timed(lambda unit=unit, x=x: analytic(unit, x, width=4096))
            ends[place], row[f"ends, {place} s"] = timed(lambda K=K[place]: spectrum(K))
            if full:
                values, row[f"all, {place} s"] = timed(lambda K=K[place]: torch.linalg.eigvalsh(K.matrix))
                row["differs from all"] = abs(float(values[-1] / values[0]) / ends[place].condition - 1)
        scale, there = K["CPU"].matrix.diagonal().sqrt(), ends["CUDA"]
        away = (K["CUDA"].matrix.cpu() - K["CPU"].matrix) / scale / scale[:, None]
        row |= {"CUDA - CPU, largest": float(away.abs().max()), "condition": there.condition, "status": there.status}
        row["bounds"] = there.condition_bounds[1] / there.condition_bounds[0] - 1
        rows.append(row | {"conditions differ": abs(ends["CPU"].condition / there.condition - 1)})
        print(rows[-1], flush=True)
    return rows


def main(out: Path, n: int = 10_000, d: int = 784, threads: int = 2, full: bool = True) -> None:
    torch.set_num_threads(threads)
    record = facts() | {"threads": threads, "layer": layer(4096, 1024, 8192)[1]}
    print(record["layer"], flush=True)
    write_record(out, record | {"kernels": kernels(n, d, full)})


if __name__ == "__main__":
    typer.run(main)
