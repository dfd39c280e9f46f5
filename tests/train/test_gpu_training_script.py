"""The script that makes the record: what it plans, and the whole of it in small."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import gpu_training as script

from gatelab.train import Gap


def test_what_the_paper_compares_comes_first_and_seeds_are_shared_by_none() -> None:
    todo = script.passes(5, False)
    names = [(p[0].model, p[0].unit.name, p[0].optimizer) for p in todo]
    assert len(names) == len(set(names)) == 2 * 4 * 2 + 4
    asked = {*((m, u, o) for m in ("mixer", "vit") for u in ("mlp", "glu") for o in ("sgd", "adamw"))}
    assert set(names[:10]) == asked | {("gpt2", "silu", "adamw"), ("gpt2", "swiglu", "adamw")}
    assert all(len(p) == 5 for p in todo)
    for model in ("mixer", "vit", "gpt2"):
        seeds = [r.seed for p in todo if p[0].model == model for r in p]
        assert len(set(seeds)) == len(seeds)
        counts = {script.MODELS[model]["options"]["width"] * 2 % (q + 2) for q in (0, 1, 2)}
        assert counts == {0}  # widths of all units are whole: equal parameters
    assert {script.lasting(p, 700)[0].warmup for p in todo} == {70}


@pytest.mark.slow
def test_the_whole_in_small(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    (tmp_path / "cifar10").mkdir()
    for name, rows in (("data_batch_1.bin", 10_000), ("test_batch_small.bin", 100)):
        row = generator.integers(0, 256, size=(rows, 3073), dtype=np.uint8)
        row[:, 0] %= 10
        (tmp_path / "cifar10" / name).write_bytes(row.tobytes())
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "fineweb_edu_sample.txt").write_text("A gate opens, a line passes. " * 300)
    env = {**os.environ, "GATELAB_DATA": str(tmp_path), "GATELAB_CACHE": str(tmp_path / "c"), "OMP_NUM_THREADS": "1"}
    out = tmp_path / "gap.json"
    command = [sys.executable, "-m", "benchmarks.gpu_training", str(out), "--tiny"]
    command += ["--seeds", "2", "--jobs", "1", "--device", "cpu"]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = Gap.load(out)
    assert found.origin["failures"] == [] and len(found.histories) == 20 * 2
    assert found.origin["device"] in (platform.processor(), platform.machine())
    assert "gpu_training" in found.origin["command"]
