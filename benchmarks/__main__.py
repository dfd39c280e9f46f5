"""Run the named benchmarks, or all of them, and print their tables."""

from __future__ import annotations

import sys
from importlib import import_module

import torch

from benchmarks.harness import machine, show, timed

# Each is a module of this folder with a run(); levenberg_marquardt is one by name only: 20 minutes, with other peers.
ALL = ("smooth_gates", "solvers", "tables")


def main() -> None:
    torch.set_num_threads(1)
    print(f"{machine()}, one thread")
    for name in sys.argv[1:] or ALL:
        _, seconds = timed(lambda name=name: show(import_module(f"benchmarks.{name}").run()))
        print(f"{name}: {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
