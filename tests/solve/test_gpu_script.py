"""The benchmark of many fits on a GPU: that it counts the operations that torch counts, and tells what failed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gatelab.feedforward import unit
from gatelab.solve import insertion
from gatelab.solve.features import ProductModel

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def in_blocks(n: int, k: int) -> float:
    """The operations of A^T A where the squares on the diagonal, of at most 96 columns, are computed whole."""
    if k <= 96:
        return 2.0 * n * k * k
    half = -(-k // 2)
    return in_blocks(n, half) + in_blocks(n, k - half) + 2.0 * n * half * (k - half)


@pytest.mark.parametrize("width", [5, 20])
def test_operations_are_those_of_the_counter(script: ModuleType, width: int) -> None:
    """Equal to torch's counter, which counts blocks; each entry once is less, and more than half."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(300, k, generator=generator, dtype=torch.float64) for k in (6, 1))
    chosen: Any = unit("glu")
    model = ProductModel(chosen, x, y, torch.ones(2, width, dtype=torch.bool), torch.zeros(2, dtype=torch.float64))
    theta, candidates = (
        model.normalized(torch.randn(2, 1, k, 6, generator=generator, dtype=torch.float64)) for k in (width, 64)
    )
    with script.logged() as calls, FlopCounterMode(display=False) as counter:
        projection = model.project(theta)
        model.normal(theta, projection)
        insertion.gains(model, theta, projection, candidates)
    assert not bool(projection.careful.any())
    assert calls.operations(300, in_blocks) == counter.get_total_flops()
    assert 0.5 < calls.operations(300, script.once) / counter.get_total_flops() < 1.0


def test_a_part_that_fails_leaves_the_others(script: ModuleType, tmp_path: Path) -> None:
    record = script.Recording(tmp_path / "record.json", 1e9, {})

    def fail() -> dict[str, Any]:
        raise RuntimeError("no such kernel")

    record.part("first", lambda: {"first": 1})
    record.part("second", fail)
    record.part("third", lambda: {"third": 3})
    record.seconds = -1.0
    record.part("late", lambda: {"late": 4})
    values = json.loads((tmp_path / "record.json").read_text())
    assert values == {
        "first": 1,
        "failed": {"second": "RuntimeError: no such kernel"},
        "third": 3,
        "not_begun": ["late"],
    }
