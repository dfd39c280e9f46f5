"""Run the named benchmarks, or all of them, and print their tables."""

from __future__ import annotations

import platform
import sys
import time
from importlib import import_module

import torch
from rich.console import Console
from rich.table import Table

# Each is a module of this folder with a run(): imported when asked for, so that a missing peer stops only its own.
ALL = (
    *("solvers", "limits", "size", "peers", "sweep", "varpro", "regressors", "classifiers"),
    *("kernels", "eigen", "two_layer", "features", "startup"),
)
LONG = ("interrupts", "levenberg_marquardt")  # only by name


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(ALL)
    unknown = [n for n in names if n not in (*ALL, *LONG)]
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join((*ALL, *LONG))}")
    console = Console(width=max(Console().width, 130))
    console.print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, one thread")
    for name in names:
        began = time.perf_counter()
        for title, rows, note in import_module(f"benchmarks.{name}").run():
            table = Table(title=title, caption=note, title_justify="left", caption_justify="left")
            for column in rows[0]:
                table.add_column(column, no_wrap=True, justify="left" if isinstance(rows[0][column], str) else "right")
            for row in rows:
                table.add_row(
                    *(
                        v if isinstance(v, str) else f"{v:.3g}" if not isinstance(v, int) else str(v)
                        for v in row.values()
                    )
                )
            console.print(table)
        console.print(f"[dim]{name}: {time.perf_counter() - began:.0f} s[/dim]\n")


if __name__ == "__main__":
    main()
