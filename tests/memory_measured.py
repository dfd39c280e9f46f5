"""A program for the tests: prints, for calls of some size, the bytes that were asked for and the bytes that were taken.

Each call has a process of its own, for what one has freed the next may take without asking the system; they are forked
from one that has imported all they need.

python memory_measured.py
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gatelab as gl
from gatelab import memory


def peak(call: Callable[[], Any]) -> int:
    """By how much the memory of this process rises while the call runs."""
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS:")
    result = call()
    risen = status("VmHWM:") - before
    del result
    return risen


def status(line: str) -> int:
    return 1024 * int(Path("/proc/self/status").read_text().partition(line)[2].split()[0])


def largest_need(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the largest of the needs that `check_memory` was told of on the way."""
    needs: list[float] = []
    whole = memory.check_memory

    def listen(need: Any, *others: Any, **named: Any) -> None:
        needs.append(need if isinstance(need, float | int) else 8 * sum(map(math.prod, need)))  # or shapes
        whole(need, *others, **named)

    rooms = [m for name, m in sys.modules.items() if name.startswith("gatelab") and hasattr(m, "check_memory")]
    for room in rooms:
        room.check_memory = listen  # type: ignore[attr-defined]
    try:
        return call(), max(needs)
    finally:
        for room in rooms:
            room.check_memory = whole  # type: ignore[attr-defined]


def main() -> None:
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    X = draw.standard_normal((3000, 10))
    net = torch.nn.Linear(10, 1).double()
    wide = gl.Problem.from_arrays(draw.standard_normal((20_000, 5)), draw.standard_normal(20_000))
    line = gl.Problem.from_function(np.sin, n=16_000, n_test=16)
    K = gl.ntk.analytic("glu", X[:50], 100)
    calls = {
        "analytic": lambda: gl.ntk.analytic(["glu", "mlp"], X),
        "empirical": lambda: gl.ntk.empirical(net, torch.from_numpy(X), budget="20MB"),
        "steps": lambda: gl.dynamics.expected_loss(K, X[:50, 0], steps=150_000),
        "varpro": lambda: gl.fit("swiglu", wide, 20, solver="varpro", starts=1, rounds=0, steps=1),
        "adam": lambda: gl.fit("swiglu", wide, 200, solver="adam", steps=2),
        "knots": lambda: gl.fit("glu", line, 300, steps=1),
        "construct": lambda: gl.construct("glu", "exp(x)", 10**6),
        "points": lambda: gl.Problem.from_function(np.sin, n=10**6),
    }
    for name, call in calls.items():
        child = os.fork()
        if not child:
            # The pages of the libraries are not the call's, and a forked process has none before it uses them.
            gl.fit("glu", gl.problem("x2", n=60), 2, steps=1)
            gl.ntk.analytic("glu", X[:9])
            measure(name, call)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} could not be measured")


def measure(name: str, call: Callable[[], Any]) -> None:
    """Print what the call asked for and what it took."""
    needs: list[float] = []

    def run() -> Any:
        result, need = largest_need(call)
        needs.append(need)
        return result

    taken = peak(run)
    print(json.dumps({"name": name, "need": needs[0], "peak": taken}), flush=True)


if __name__ == "__main__":
    main()
