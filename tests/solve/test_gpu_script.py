"""The benchmark of many fits on a GPU: the whole of it in small, and that it tells what failed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from benchmarks import gpu


def test_the_whole_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gpu.least_squares, gpu.features):
        monkeypatch.setattr(module, "on_gpu", module.on_gpu)  # which the script replaces
    for name in ("GatedRegressor", "GatedClassifier"):  # without their search over units, widths and ridges
        monkeypatch.setattr(gpu, name, partial(getattr(gpu, name), unit="glu", width=1, ridge=1e-2))
    gpu.main(tmp_path / "record.json", seconds=1e9, tiny=True)
    values = json.loads((tmp_path / "record.json").read_text())
    assert "failed" not in values and "not_begun" not in values
    assert values["cuda_rmse"] == pytest.approx(values["cpu_rmse"], rel=1e-3)
    assert values["share_in_blocks"] > 0 and values["tflops"] > 0
    assert [len(values[kind]) for kind in ("regressor", "classifier")] == [2, 2]
