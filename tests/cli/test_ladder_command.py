"""`gatelab ladder`: the whole flow on a small text, the dry run, records, and what it refuses."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import command_runs
import numpy as np
import pandas as pd
import pytest

from gatelab.train import Ladder

run, ok, document = (partial(call, "ladder") for call in (command_runs.run, command_runs.ok, command_runs.document))
RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.mark.slow
def test_the_whole_flow_on_a_text_of_ones_own(text: Path, tmp_path: Path) -> None:
    how = ["--text", str(text), "--steps", "4", "--batch", "2", "--seeds", "2", "--lr", "0.01", "--device", "cpu"]
    saved, figure, table = (tmp_path / name for name in ("ladder.json", "ladder.png", "ladder.csv"))
    files = ["--out", str(saved), "--plot", str(figure), "--out", str(table), "--store", str(tmp_path / "runs.db")]
    said = ok("gelu", "swiglu", "--sizes", "tiny,mini,small", *how, *files)
    assert "swiglu is worth" in said or "no law" in said
    assert saved.exists() and len(table.read_text().splitlines()) == 1 + 2 * 3 * 2
    again = document("--record", str(saved))
    assert len(again["points"]) == 12 and ("law" in again) != ("no_law" in again)


@pytest.mark.slow
def test_the_table_and_the_document_tell_trainings_that_count_from_others() -> None:
    """The record has trainings of gqu at 26M at two learning rates; three seeds count."""
    record = RESULTS / "ladder/enwik8.json"
    table = Ladder.read(record).table()
    counted = table[(table["unit"] == "gqu") & (table["size"] == "26M") & (table["repeats"] == 1)]
    shown = ok("--record", str(record))
    (row,) = (line.split() for line in shown.splitlines() if line.split()[:3] == ["1", "26M", "gqu"])
    losses = counted["loss"].tolist()
    assert row[3:] == [
        f"{counted['lr'].iloc[0]:.3g}",
        f"{np.mean(losses):.4f}",
        f"{np.mean(losses) / np.log(2):.4f}",
        "3",
        "0",
    ]
    law = re.search(r"swiglu is worth (\S+) \[", shown)
    said = document("--record", str(record))
    assert law and said["law"]["exponent"]["value"] == pytest.approx(Ladder.read(record).law().exponent.value)
    marked = [p["loss"] for p in said["points"] if p["counts"]]
    assert marked == table["loss"].tolist() and len(marked) < len(said["points"])


@pytest.mark.slow
def test_a_seed_that_diverged_leaves_the_others_their_mean(tmp_path: Path) -> None:
    record = json.loads((RESULTS / "ladder/enwik8.json").read_text())
    (run,) = (r for r in record["rungs"] if is_tested(r["arguments"], "geglu", "26M"))
    losses = run["metrics"]["loss"]
    run["metrics"] |= {"loss": [None, *losses[1:]], "diverged": [7, None, None]}
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps(record))
    shown = ok("--record", str(path))
    (row,) = (line.split() for line in shown.splitlines() if line.split()[:3] == ["1", "26M", "geglu"])
    assert row[4] == f"{np.mean(losses[1:]):.4f}" and row[6:] == ["3", "1"]


def is_tested(arguments: dict[str, Any], unit: str, size: str) -> bool:
    recipe = arguments["recipe"]
    return (recipe["unit"]["name"], recipe["size"], arguments["purpose"]) == (unit, size, "climb")


def test_a_figure_is_written_where_there_is_no_law_and_a_line_where_there_is_no_loss(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ["gelu", "--sizes", "tiny", "--text", str(text), "--steps", "2", "--batch", "2", "--lr", "0.01"]
    how += ["--seeds", "2", "--device", "cpu", "--plot", str(tmp_path / "a.png")]
    assert "no law" in ok(*how) and (tmp_path / "a.png").stat().st_size > 1000
    (tmp_path / "a.png").unlink()
    monkeypatch.setattr("gatelab.train.ladder_runs.final_loss", lambda *_: None)
    result = run(*how)
    assert result.exit_code == 0 and "a.png was not written" in result.stderr.replace("\n", "")
    assert not (tmp_path / "a.png").exists() and "wrote" not in result.output


def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_trained(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatelab.train.ladder_runs.train_many", None)
    result = run("glu", "--text", str(text), "--steps", "2", "--plot", f"{text}/x.png")
    assert result.exit_code == 2 and "is not a folder" in " ".join(result.output.split())


def test_a_dry_run_says_what_it_would_take(text: Path) -> None:
    how = ["gelu", "--text", str(text), "--sizes", "tiny", "--steps", "4", "--seeds", "2", "--dry-run"]
    facts, told = document(*how), ok(*how)
    assert facts["runs"] == 2 and facts["trainings"] == 4 + 2 and facts["flops"] > 0
    assert "flops" in told and "sweeps of learning rates" in told
    assert "sweeps" not in ok(*how, "--lr", "0.001")


def test_the_power_of_a_design_is_that_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RESULTS / "ladder/enwik8.json"
    rows = [("units differ", "A", 0.02, 0.98, 0.9, 2.0), ("exponents differ", "Aa", 0.4, 0.31, 0.22, np.nan)]
    table = pd.DataFrame(rows, columns=["question", "true", "p", "power", "power_f", "seeds_for_95"])
    designs = []

    def power(losses: Any, *, progress: Any, **design: Any) -> pd.DataFrame:
        designs.append((len(losses), design))
        return table

    monkeypatch.setattr("gatelab.scaling_laws.ladder_power", power)
    how = ["--record", str(record), "--power", "--sizes", "0.4M, 3.2M,26", "--seeds", "2"]
    said, shown = document(*how), ok(*how)
    assert pd.DataFrame(said["power"]).equals(table)
    for row in said["power"]:
        numbers = f"{row['p']:.2g} +{row['power']:.2f} +{row['power_f']:.2f}"
        assert re.search(f"{row['question']} +{row['true']} +{numbers}", shown)
    assert designs == 2 * [(len(Ladder.read(record).regime(1)), {"sizes": [4e5, 3.2e6, 2.6e7], "seeds": 2})]


def test_power_needs_a_record_and_sizes_that_are_numbers() -> None:
    result = run("--power")
    assert result.exit_code == 2 and "give --record FILE" in " ".join(result.output.split())
    how = ["--record", str(RESULTS / "ladder/enwik8.json"), "--power", "--sizes"]
    for sizes, message in (("big", "--sizes is 'big'"), ("1M,2M", "give 3 or more different positive numbers")):
        result = run(*how, sizes)
        assert result.exit_code == 2 and message in " ".join(result.output.split())
