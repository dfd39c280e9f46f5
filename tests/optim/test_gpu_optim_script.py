"""The script for a GPU, in small on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu_optim import main

from gatelab.optim import systems


def test_the_script_records_its_three_parts(tmp_path: Path) -> None:
    before = systems._ITERATIONS
    try:
        main(tmp_path / "gpu.json", device="cpu", iterations=20, tiny=True)
    finally:
        systems._ITERATIONS = before
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert "failed" not in record and record["command"]
    assert record["large"]["losses"][1] < record["large"]["losses"][0]
    assert record["dense"]["cholesky"]["of_67_tflops"] > 0 and record["dense"]["qr"]["seconds_per_step"] > 0
    assert record["poisson"]["relative_error"] < 1
