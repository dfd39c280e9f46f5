"""Run the named benchmarks, or all of them, and print their tables."""

from __future__ import annotations

import sys
from importlib import import_module

import torch

from benchmarks.harness import machine, show, timed

# Each is a module of this folder with a run(): imported when asked for, so that a missing peer stops only its own.
ALL = ("smooth_gates", "solvers", "tables")
LONG = ("levenberg_marquardt",)  # by name only: 20 minutes, with other peers


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(ALL)
    unknown = [n for n in names if n not in (*ALL, *LONG)]
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join((*ALL, *LONG))}")
    print(f"{machine()}, one thread")
    for name in names:
        benchmark = import_module(f"benchmarks.{name}")
        _, seconds = timed(lambda benchmark=benchmark: show(benchmark.run()))
        print(f"{name}: {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
