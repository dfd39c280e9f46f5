"""Seconds of the same calls in this tree and in another: `python tools/speed.py OTHER`.

Both trees run in turns, in processes of their own with one thread, `ROUNDS` times; of each call the least CPU time
counts. Both must know the calls, which are public ones. A ratio above 1 means that this tree is slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 3
ROOT = Path(__file__).parents[1]


def calls() -> dict[str, Callable[[], object]]:
    """The calls by name, with their data made."""
    import numpy as np
    import torch

    import gatelab as gl

    torch.set_num_threads(1)
    line, friedman = gl.problem("paper-1d"), gl.problem("friedman1", n=1000)
    draw = np.random.default_rng(0)
    X = draw.uniform(size=(10_000, 20))
    y = np.sin(4 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * draw.standard_normal(len(X))
    rows = torch.from_numpy(draw.standard_normal((600, 100)))
    text = Path(tempfile.mkdtemp(), "text.txt")
    text.write_text("A gate that opens lets the line pass; one that closes does not. " * 500)
    model = gl.models.GPT2("tiny", "swiglu", vocabulary=2000, context=64, d_model=128, width=384)
    tokens = torch.from_numpy(draw.integers(2000, size=(64, 64)))
    ladder = {"steps": 40, "batch": 8, "lrs": {"swiglu": 2e-3}, "options": {"context": 128}}
    recipe = gl.train.recipe("gpt2", "swiglu", text, size="tiny", tokenizer="bytes", steps=60, batch=8, evaluations=4)

    def fits(unit: str, widths: tuple[int, ...]) -> Callable[[], object]:
        return lambda: [gl.fit(unit, line, width, progress=False) for width in widths]

    return {
        "1-D fits, MLP, 10 to 50 neurons": fits("mlp", (10, 20, 30, 40, 50)),
        "1-D fits, GLU, 10 to 50 neurons": fits("glu", (10, 20, 30, 40, 50)),
        "1-D fits, GQU, 10 to 50 neurons": fits("gqu", (10, 20, 30, 40, 50)),
        "64 fits of Friedman 1 in a batch": lambda: gl.fit_many(
            "glu", friedman, [4], seeds=64, starts=1, progress=False
        ),
        "kernel and spectrum, 600 rows": lambda: gl.ntk.spectrum(gl.ntk.analytic("glu", rows, width=512)),
        "a minimax polynomial, degree 12": lambda: gl.linearize("gelu", "minimax", degree=12, interval=5.0),
        "60 steps of a small GPT-2, batches of 8": lambda: gl.train.train(recipe),
        "kernel of a GPT-2, 64 samples": lambda: gl.ntk.empirical(model, tokens, (-1, 11), progress=False),
        "ladder, 3 decoders of 0.4M together": lambda: gl.ladder(["swiglu"], text, ["0.4M"], 3, device="cpu", **ladder),
        "a regressor, 10 000 x 20": lambda: gl.GatedRegressor(random_state=0).fit(X, y),
    }


def seconds() -> dict[str, float]:
    """CPU seconds of each call, the first of which loads what is imported on use."""
    import gatelab as gl

    gl.fit("mlp", "sin4x", 2, progress=False)
    measured = {}
    for name, call in calls().items():
        began = time.process_time()
        call()
        measured[name] = time.process_time() - began
    return measured


def main(other: str) -> None:
    times: dict[Path, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for tree in (Path(other).resolve(), ROOT):
            environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--seconds"]
            out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd="/").stdout
            found, best = json.loads(out.splitlines()[-1]), times.setdefault(tree, {})
            for name, value in found.items():
                best[name] = min(value, best.get(name, value))
    before, now = times.values()
    for name in before:
        print(f"{name:40} {before[name]:8.2f} s {now[name]:8.2f} s   ratio {now[name] / before[name]:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--seconds"]:
        print(json.dumps(seconds()))
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit("give the folder of the other tree")
