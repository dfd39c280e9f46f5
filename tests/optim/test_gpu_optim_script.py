"""The script for a GPU, in small on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu_optim import main


def test_the_script_records_its_parts(tmp_path: Path) -> None:
    main(tmp_path / "gpu.json", device="cpu", tiny=True)
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert "failed" not in record and record["command"]
    assert record["large"]["losses"][1] < record["large"]["losses"][0] and record["large"]["tflops"] > 0
    assert record["poisson"]["relative_error"] < 1
