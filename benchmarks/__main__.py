"""Run the named benchmarks, or all of them, and print their tables."""

from __future__ import annotations

from argparse import ArgumentParser
from importlib import import_module

import torch

from benchmarks.harness import machine, show, timed

# Each is a module of this folder with a run(); levenberg_marquardt is one by name only: 20 minutes, with other peers.
ALL = ("smooth_gates", "solvers", "tables")


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choices = (*ALL, "levenberg_marquardt")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(choices)}; default: all but the last")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in choices]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(choices)}")
    torch.set_num_threads(1)
    print(f"{machine()}, one thread")
    for name in names or ALL:
        _, seconds = timed(lambda name=name: show(import_module(f"benchmarks.{name}").run()))
        print(f"{name}: {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
