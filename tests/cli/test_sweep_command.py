"""Stores on the command line: what is computed once, what is said of it, how to go on."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import command, document, environment, ok, run
from test_command_line import living, names, wait_for

from gatelab import display
from gatelab.sweep import Record, Run, Store

pytestmark = pytest.mark.usefixtures("here")
SMALL = ["--points", "200", "--jobs", "1"]
SCALE = ["scale", "glu", "mlp", "--widths", "13,14", *SMALL]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with four fits, made once."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    ok(*SCALE, "--store", str(path))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.fixture
def runs_db(four: bytes, here: Path) -> Path:
    (here / "runs.db").write_bytes(four)
    return Path("runs.db")


def error(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and re.fullmatch(r"gatelab: .+\n", result.stderr)
    return result.stderr


def count(path: Path | str) -> int:
    with Store(path) as store:
        return store.count()


def fail(path: Path, which: int = 0) -> Record:
    """Make one record a failed one, as a run that raised leaves it."""
    with Store(path) as store:
        record = list(store.records())[which]
        store.delete([record.key])
        text = "Traceback (most recent call last):\n  ...\nRuntimeError: no luck"
        store.put(broken := replace(record, status="failed", metrics={}, history=(), error=text))
    return broken


def times(path: Path) -> dict[str, str]:
    with Store(path) as store:
        return {record.key: record.time for record in store.records()}


# scale


def test_a_second_scale_computes_only_what_is_missing(runs_db: Path) -> None:
    before = times(runs_db)
    ok("scale", "glu", "mlp", "--widths", "13,14,15", *SMALL, "--store", "runs.db", "--out", "a.csv")
    after = times(runs_db)
    assert len(after) == 6 and {k: after[k] for k in before} == before
    ok("scale", "glu", "mlp", "--widths", "13,14,15", *SMALL, "--store", "runs.db", "--out", "b.csv")
    assert times(runs_db) == after and Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def untimed(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_dry_run_of_a_new_store_makes_nothing(here: Path) -> None:
    text = ok(*SCALE, "--store", "new.db", "--dry-run")
    assert re.search(r"done +0\s+failed +0\s+to do +4\s+expected time +not known yet", text)
    found = document(*SCALE, "--store", "new.db", "--dry-run")
    assert found == {"done": 0, "failed": 0, "todo": 4, "expected_seconds": None, "store": "new.db"}
    assert not names(here)


def test_dry_run_counts_and_expects(runs_db: Path) -> None:
    fail(runs_db)
    args = ["scale", "glu", "mlp", "--widths", "13,14,15", *SMALL, "--store", "runs.db", "--dry-run"]
    found = document(*args)
    assert (found["done"], found["failed"], found["todo"]) == (3, 1, 2) and 0 < found["expected_seconds"] < 60
    text = ok(*args)
    assert re.search(r"expected time +(less than|about) \d+ s", text)
    assert "gatelab results list --status failed --store runs.db" in text
    found = document(*args, "--retry-failed")
    assert (found["done"], found["failed"], found["todo"]) == (3, 0, 3) and count(runs_db) == 4


def test_failed_fits_are_said_and_tried_again(runs_db: Path) -> None:
    fail(runs_db)  # of width 14, the widest
    text = ok(*SCALE, "--store", "runs.db")
    assert "1 of 4 fits failed" in text and "\ngatelab results list --status failed --store runs.db\n" in text
    assert "since they failed" in text
    found = document(*SCALE, "--store", "runs.db")
    assert found["failed"] == 1 and [p["test_rmse"] for p in found["points"]].count(None) == 1
    assert document(*SCALE, "--store", "runs.db", "--retry-failed")["failed"] == 0


def test_max_hours_stops_and_the_same_command_goes_on(here: Path) -> None:
    args = ["scale", "mlp", "--widths", "13,14,15", *SMALL, "--store", "runs.db"]
    assert "resumes from the store" in error(*args, "--max-hours", "1e-9")
    assert count("runs.db") < 3
    ok(*args)
    assert count("runs.db") == 3


# demo and reproduce


@pytest.mark.slow
def test_reproduce_again_computes_nothing(here: Path) -> None:
    args = ["reproduce", "scaling/fig2", "--quick", "--jobs", "1", "--store", "runs.db", "--json"]
    first = json.loads(ok(*args))
    before = times(Path("runs.db"))
    second = json.loads(ok(*args))
    assert len(before) == 9 and times(Path("runs.db")) == before
    assert second[0]["claims"] == first[0]["claims"]
    # Figure 5 shares no width with another solver, but all trained fits of the same data with figure 2.
    ok("reproduce", "scaling/fig5", *args[2:])
    after = times(Path("runs.db"))
    assert len(after) == 15 and {k: after[k] for k in before} == before


# Ctrl-C

MANY = ["scale", "glu", "--widths", "1:4", "--points", "100", "--seeds", "4"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The table of a sweep that was not interrupted."""
    path = tmp_path_factory.mktemp("whole") / "whole.csv"
    ok(*MANY, "--jobs", "1", "--out", str(path))
    return untimed(path)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted through /proc")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupt_keeps_what_is_done_and_goes_on(whole: list[dict[str, str]], jobs: str) -> None:
    args = [*MANY, "--store", "runs.db"]
    process = subprocess.Popen(
        command(*args, "--jobs", jobs),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        wait_for(lambda: Path("runs.db").exists() and kept() >= 2, 120)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130 and out == "" and "Traceback" not in err
        last = err.splitlines()[-1]  # on a slow machine there are lines of progress before it
        said = re.fullmatch(r"gatelab: interrupted; (\d+) of 16 fits are in runs\.db; the same command resumes", last)
        assert said and int(said[1]) == count("runs.db") and 2 <= int(said[1]) < 16
        wait_for(lambda: living(process.pid) == 0, 120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    before = times(Path("runs.db"))
    ok(*args, "--jobs", "1", "--out", "resumed.csv")
    assert before.items() <= times(Path("runs.db")).items() and count("runs.db") == 16
    assert untimed("resumed.csv") == whole


def kept() -> int:
    try:
        with sqlite3.connect("file:runs.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM records").fetchone()[0]
    except sqlite3.Error:
        return 0


def interrupted(monkeypatch: pytest.MonkeyPatch, *args: str):
    """The command, with Ctrl-C while the second point is reported: outside of the sweep, which must end too."""
    handler, honest = signal.getsignal(signal.SIGINT), display.Report.__call__

    def ctrl_c(self: display.Report, done: int, total: int, *rest: object) -> None:
        honest(self, done, total, *rest)
        if done == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(display.Report, "__call__", ctrl_c)
        try:
            return run(*args)
        finally:
            signal.signal(signal.SIGINT, handler)


def test_interrupt_outside_of_the_sweep_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    result = interrupted(monkeypatch, *SCALE, "--store", "runs.db")
    assert result.exit_code == 130 and result.stdout == ""
    # On a slow machine there are lines of progress before it.
    assert result.stderr.endswith("gatelab: interrupted; 2 of 4 fits are in runs.db; the same command resumes\n")
    with sqlite3.connect("runs.db") as db:
        assert db.execute("SELECT count(*) FROM claims").fetchone() == (0,)


def test_interrupted_reproduce_says_what_the_store_has(monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["reproduce", "scaling/fig2", "--quick", "--jobs", "1", "--store", "runs.db"]
    result = interrupted(monkeypatch, *args)
    assert result.exit_code == 130
    assert result.stderr.endswith("gatelab: interrupted; finished work is in runs.db; the same command resumes\n")


# results


def test_list_is_a_table_with_filters(runs_db: Path) -> None:
    text = ok("results", "list", "--store", "runs.db")
    assert max(map(len, text.splitlines())) <= 80 and "4 of 4 records" in text
    assert len(re.findall(r"^[0-9a-f]{10} ", text, re.M)) == 4

    def found(*args: str) -> list[tuple[str, int]]:
        rows = document("results", "list", "--store", "runs.db", *args)["records"]
        return [(r["arguments"]["unit"]["name"], r["arguments"]["width"]) for r in rows]

    assert found() == [("mlp", 13), ("glu", 13), ("mlp", 14), ("glu", 14)]  # the newest first, and wide ones go first
    assert found("--unit", "reglu") == [("glu", 13), ("glu", 14)]
    assert found("--unit", "mlp", "--width", "14") == [("mlp", 14)]
    assert found("--limit", "1") == [("mlp", 13)]
    assert len(found("--problem", "paper-1d")) == 4 and not found("--problem", "x2")
    assert len(found("--status", "done")) == 4 and not found("--status", "failed")
    assert "no record in runs.db fits" in ok("results", "list", "--store", "runs.db", "--width", "99")
    with Store(runs_db) as store:
        store.put(Record(Run("lab:measure", {"n": 3}), "done", {"y": 1.0}, time="2020-01-01T00:00:00.000000+00:00"))
    runs_db.rename("gatelab.db")  # the default
    text = ok("results", "list")
    assert "5 of 5 records" in text and "lab:measure" in text and max(map(len, text.splitlines())) <= 80


def test_show_tells_all_by_a_unique_beginning(runs_db: Path) -> None:
    broken = fail(runs_db)
    text = ok("results", "show", broken.key[:12].upper(), "--store", "runs.db")
    assert "RuntimeError: no luck" in text and broken.key in text
    row = document("results", "show", broken.key, "--store", "runs.db")
    assert row["error"] == broken.error and row["arguments"]["width"] == 14
    good = next(k for k in times(runs_db) if k != broken.key)
    row = document("results", "show", good, "--store", "runs.db")
    assert row["history"] and row["metrics"]["test_rmse"] > 0 and row["error"] is None
    assert "no key in runs.db begins with 'zz'" in error("results", "show", "zz", "--store", "runs.db")
    assert "begins with ''" in error("results", "show", "", "--store", "runs.db")


def test_a_network_of_a_store_is_written_as_a_file_that_loads(runs_db: Path, here: Path) -> None:
    import gatelab as gl

    key = next(iter(times(runs_db)))
    row = document("results", "show", key, "--store", "runs.db", "--out", "net.safetensors")
    assert row["files"] == ["net.safetensors"]
    fit = gl.load("net.safetensors")
    assert isinstance(fit, gl.Fit) and fit.test_rmse == row["metrics"]["test_rmse"]
    with pytest.raises(gl.GatelabError, match=r"gatelab results show KEY --store runs\.db --out FILE"):
        gl.load("runs.db")
    broken = fail(runs_db)
    assert "has no network" in error("results", "show", broken.key, "--store", "runs.db", "--out", "b.safetensors")
    assert "ends in .safetensors" in error("results", "show", key, "--store", "runs.db", "--out", "net.pt")
    assert names(here) == ["net.safetensors", "runs.db"]


def test_an_ambiguous_beginning_is_refused(here: Path) -> None:
    found = [Run("lab:measure", {"n": n}) for n in range(40)]
    first = {}
    with Store("runs.db") as store:
        for r in found:
            store.put(Record(r, "done"))
            first.setdefault(r.key[0], []).append(r.key)
    letter = next(k for k, keys in first.items() if len(keys) > 1)
    assert "give more of it" in error("results", "show", letter, "--store", "runs.db")


def mixed(path: Path) -> list[Record]:
    """A failed record and one of another task, whose columns the others lack."""
    fail(path)
    with Store(path) as store:
        other = Run("lab:measure", {"n": 3, "width": "wide", "flag": True})
        store.put(Record(other, "done", {"y": 1.0, "big": 2**70}, time="2020-01-01T00:00:00.000000+00:00"))
        return list(store.records())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_round_trip(runs_db: Path, here: Path, ending: str) -> None:
    import pandas as pd

    if ending == "parquet":
        pytest.importorskip("pyarrow")
    rows = [record.row() for record in mixed(runs_db)]
    said = ok("results", "export", "--store", "runs.db", "--out", f"o/a.{ending}")
    assert f"5 records\nwrote o/a.{ending}" in said and names(here / "o") == [f"a.{ending}"]
    table = {"csv": pd.read_csv, "parquet": pd.read_parquet}[ending](f"o/a.{ending}")
    for name in ("key", "status", "metric.test_rmse", "argument.width", "error"):
        given = [row[name] for row in rows if row.get(name) is not None]
        kept = table[name].dropna().tolist()
        assert kept == given if isinstance(given[0], float) else [*map(str, kept)] == [*map(str, given)], name
    assert int(float(table["metric.big"].dropna().iloc[0])) == 2**70
    if ending == "parquet":
        assert str(table["argument.seed"].dtype) == "Int64" and str(table["metric.test_rmse"].dtype) == "float64"
    ok("results", "export", "--store", "runs.db", "--unit", "mlp", "--out", "m.csv")
    assert {row["argument.unit.name"] for row in untimed("m.csv")} == {"mlp"}


def test_json_round_trips(runs_db: Path) -> None:
    records = mixed(runs_db)
    found = document("results", "export", "--store", "runs.db", "--out", "a.json")
    assert found == {"store": "runs.db", "records": 5, "files": ["a.json"]}
    rows = json.loads(Path("a.json").read_text())
    for row, record in zip(rows, records, strict=True):
        made = Run(row["task"], row["arguments"])
        assert made == record.run and made.key == row["key"]
        assert row["metrics"] == dict(record.metrics) and tuple(row["history"]) == record.history


def test_export_refuses_what_it_cannot_write(runs_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["results", "export", "--store", "runs.db", "--out"]
    assert ".csv, .parquet or .json" in error(*args, "a.xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "needs pyarrow" in error(*args, "a.parquet")
    assert not list(Path().glob("a.*"))


def test_prune_counts_and_removes(runs_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(runs_db)
    args = ["results", "prune", "--store", "runs.db"]
    assert "no condition" in error(*args)
    assert "1 record would be removed from runs.db, 3 would be left" in ok(*args, "--failed", "--dry-run")
    assert "give --yes" in error(*args, "--failed") and count(runs_db) == 4
    assert "0 records removed" in ok(*args, "--failed", "--older-than", "1")
    assert "0 records removed" in ok(*args, "--older-than", "inf")
    found = document(*args, "--failed", "--yes")
    assert found == {"store": "runs.db", "found": 1, "removed": 1, "left": 3}
    assert "0 records removed from runs.db, 3 left" in ok(*args, "--other-versions", "--yes")
    monkeypatch.setattr("gatelab.cli.results.__version__", "99.0")
    assert document(*args, "--other-versions", "--dry-run")["found"] == 3
    assert "3 records removed from runs.db, 0 left" in ok(*args, "--older-than", "0", "--yes")
