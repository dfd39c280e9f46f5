"""The script that makes the record: what it plans, and the whole of it in small."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gatelab.train import Gap

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_training.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_training_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_what_the_paper_compares_comes_first_and_seeds_are_shared_by_none(script: ModuleType) -> None:
    todo = script.passes(5, False)
    names = [(p.model, p.recipes[0].unit.name, p.recipes[0].optimiser) for p in todo]
    assert len(names) == len(set(names)) == 2 * 4 * 2 + 4
    asked = {*((m, u, o) for m in ("mixer", "vit") for u in ("mlp", "glu") for o in ("sgd", "adamw"))}
    assert set(names[:10]) == asked | {("gpt2", "silu", "adamw"), ("gpt2", "swiglu", "adamw")}
    assert all(len(p.recipes) == 5 for p in todo)
    for model in ("mixer", "vit", "gpt2"):
        seeds = [r.seed for p in todo if p.model == model for r in p.recipes]
        assert len(set(seeds)) == len(seeds)
        counts = {script.MODELS[model]["options"]["width"] * 2 % (q + 2) for q in (0, 1, 2)}
        assert counts == {0}  # widths of all units are whole: equal parameters


def test_steps_fill_the_time_and_units_of_a_model_get_equal_ones(script: ModuleType) -> None:
    todo = script.passes(5, False)
    pace = {"mixer": 0.01, "vit": 0.01, "gpt2": 0.02}
    fast = script.plan_steps(todo, dict.fromkeys(pace, 1e-4), 500, 3)
    assert fast == {m: most for m, (_, most) in script.STEPS.items()}
    planned = script.plan_steps(todo, pace, 400, 3)
    needed = sum(planned[p.model] * pace[p.model] for p in todo) * script.MEASURING / 3
    assert 300 < needed <= 400
    slow = script.plan_steps(todo, dict.fromkeys(pace, 10.0), 400, 3)
    assert slow == {m: least for m, (least, _) in script.STEPS.items()}
    assert {p.lasting(700).recipes[0].warmup for p in todo} == {70}


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
    env = {
        **os.environ,
        "GATELAB_DATA": str(tmp_path),
        "GATELAB_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    out = tmp_path / "gap.json"
    command = [sys.executable, str(SCRIPT), str(out), "--tiny", "--seeds", "2", "--jobs", "1", "--device", "cpu"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = Gap.load(out)
    assert found.origin["failures"] == [] and len(found.histories) == 20 * 2
    assert found.origin["device"] == "cpu" and "gpu_training.py" in found.origin["command"]
