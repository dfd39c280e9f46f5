"""Every backend: what comes out, what is computed, and what happens to runs that misbehave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweep_tasks
import torch

from gatelab import GatelabError
from gatelab.sweep import Progress, Record, Run, Store, map_runs, plan, worker
from gatelab.sweep.backends import seconds_of
from gatelab.sweep.run import RunOutcome

pytestmark = pytest.mark.usefixtures("light_path")
BOTH = pytest.mark.parametrize("backend", ["serial", "processes"])


def runs(task: str, count: int, **arguments: Any) -> list[Run]:
    return [Run(f"sweep_tasks:{task}", {"n": n, **arguments}) for n in range(count)]


def content(records: Any) -> list[str]:
    """What two sweeps must agree on: everything but when, how long and where."""
    return sorted(repr((r.key, r.task, r.arguments, r.status, r.metrics, r.history, r.error)) for r in records)


def test_hours_in_seconds() -> None:
    assert seconds_of(None) is None and seconds_of(1.5) == 5400


@BOTH
def test_each_run_once_whatever_is_asked_for_twice(backend: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    wanted = runs("work", 30, log=str(log), fail_each=7)
    got = list(map_runs([*wanted, *wanted[:10]], store=tmp_path / "runs.db", backend=backend, jobs=2))
    assert sorted(r.key for r in got) == sorted(r.key for r in wanted)
    assert Counter(n for n, _, _ in sweep_tasks.computed(log)) == dict.fromkeys(range(30), 1)
    assert {r.arguments["n"] for r in got if not r.ok} == {0, 7, 14, 21, 28}
    assert all(r.metrics["square"] == r.arguments["n"] ** 2 for r in got if r.ok)
    bad = next(r for r in got if r.arguments["n"] == 7)
    assert bad.error is not None and bad.error.startswith("Traceback") and "run 7 does not want to" in bad.error
    assert "compute.py" not in bad.error
    with Store(tmp_path / "runs.db") as store:
        assert content(store.records()) == content(got)
        assert store._read("SELECT * FROM claims") == []
    # Again, with ten more: only those are computed, and the stored ones come first.
    more = runs("work", 40, log=str(log), fail_each=7)
    again = list(map_runs(more, store=tmp_path / "runs.db", backend=backend, jobs=2))
    assert [r.key for r in again[:30]] == [r.key for r in wanted]
    assert Counter(n for n, _, _ in sweep_tasks.computed(log)) == dict.fromkeys(range(40), 1)
    assert content(again) == content(map_runs(more))  # whatever the backend


@BOTH
def test_failed_runs_stay_until_they_are_to_be_tried_again(backend: Any, tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "runs.db"
    wanted = runs("thrice", 3, log=str(log), tries=2)
    statuses = []
    for retry in (False, False, True, True):
        statuses.append({r.status for r in map_runs(wanted, store=path, backend=backend, jobs=1, retry_failed=retry)})
    assert statuses == [{"failed"}, {"failed"}, {"done"}, {"done"}]
    assert Counter(log.read_text().split()) == {"0": 2, "1": 2, "2": 2}


@BOTH
def test_results_that_cannot_be_stored_are_failures_of_their_run(backend: Any, tmp_path: Path) -> None:
    wanted = [*runs("returns_a_set", 1), *runs("returns_nothing", 1), *runs("bad_arrays", 1), *runs("work", 1)]
    got = {r.task: r for r in map_runs(wanted, store=tmp_path / "runs.db", backend=backend, jobs=1)}
    assert "metrics.values is {0} (set)" in (got["sweep_tasks:returns_a_set"].error or "")
    assert "returned a NoneType" in (got["sweep_tasks:returns_nothing"].error or "")
    assert "names: object" in (got["sweep_tasks:bad_arrays"].error or "")
    assert got["sweep_tasks:work"].ok


@BOTH
def test_arrays_are_kept_beside_the_store(backend: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        (record,) = map_runs(runs("arrays", 5)[4:], store=store, backend=backend, jobs=1)
        kept = store.get_arrays(record.key)
    assert kept is not None and record.device == "cpu:0"
    assert np.array_equal(kept["G"], np.arange(4.0)) and np.array_equal(kept["view"], np.eye(3)[:, ::2])


ENDS = {
    "exit": "SystemExit: 7",
    "os._exit": "ended twice: exit code 7",
    "SIGKILL": "ended twice: killed by SIGKILL, as the system does when memory runs out",
    "SIGSEGV": "ended twice: killed by SIGSEGV",
}


@pytest.mark.parametrize("ways", [list(ENDS)[:3], pytest.param(["SIGSEGV"], marks=pytest.mark.slow)])
def test_runs_that_take_their_worker_along(ways: list[str]) -> None:
    wanted = [Run("sweep_tasks:die", {"n": 0, "how": how}) for how in ways] + runs("die", 40, how="not")[1:]
    got = {(r.arguments["n"], r.arguments["how"]): r for r in map_runs(wanted, backend="processes", jobs=2)}
    assert len(got) == len(wanted) and all(r.ok == (n > 0) for (n, _), r in got.items())
    assert all(ENDS[how] in (got[0, how].error or "") for how in ways)


def test_a_worker_killed_by_others_costs_its_run_nothing(tmp_path: Path) -> None:
    got = list(map_runs(runs("die_once", 4, folder=str(tmp_path)), backend="processes", jobs=2))
    assert [r.ok for r in got] == [True] * 4


def test_a_dead_worker_is_noticed_though_its_children_hold_the_pipe() -> None:
    got = {r.arguments["n"]: r for r in map_runs(runs("fork_and_die", 3), backend="processes", jobs=1)}
    assert "exit code 3" in (got[0].error or "") and got[1].ok and got[2].ok


def test_what_a_task_prints_or_reads_disturbs_nothing() -> None:
    got = list(map_runs(runs("prints", 5), backend="processes", jobs=1))
    assert [r.ok and r.metrics["read"] == "" for r in got] == [True] * 5


def test_one_thread_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (here,) = map_runs(runs("threads", 1))
        assert here.metrics["torch"] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (there,) = map_runs(runs("threads", 1), backend="processes", jobs=1)
    assert there.metrics["omp"] == "1"


def test_workers_that_cannot_start_end_the_sweep_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MAIN", "raise SystemExit(5)")
    with pytest.raises(GatelabError, match="3 worker processes in a row ended during startup"):
        list(map_runs(runs("work", 3), backend="processes", jobs=1))


@BOTH
@pytest.mark.slow
def test_no_new_runs_after_max_seconds(backend: Any, tmp_path: Path) -> None:
    wanted = runs("work", 50, seconds=0.5)
    got = list(map_runs(wanted, store=tmp_path / "runs.db", backend=backend, jobs=1, max_seconds=8.0))
    assert 1 <= len(got) <= 18  # workers take a while to start on a busy machine
    with Store(tmp_path / "runs.db") as store:
        assert store.count() == len(got) and store._read("SELECT * FROM claims") == []
    assert list(map_runs(wanted[-1:], backend=backend, max_seconds=0)) == []


@BOTH
def test_leaving_the_loop_stops_the_workers_and_gives_leases_back(backend: Any, tmp_path: Path) -> None:
    wanted = [*runs("work", 1), *runs("work", 9, seconds=60.0)]
    sweep: Any = map_runs(wanted, store=tmp_path / "runs.db", backend=backend, jobs=2)
    with Store(tmp_path / "runs.db") as store, closing(sweep):
        assert next(sweep).arguments == {"n": 0}
        in_work = len(store._read("SELECT * FROM claims"))
        assert in_work == (0 if backend == "serial" else 1) and len(_workers()) == 2 * in_work
        sweep.close()
        assert store._read("SELECT * FROM claims") == [] and store.count() == 1
    assert _workers() == []


def _workers() -> list[str]:
    """Processes that compute for us and still live."""
    found = subprocess.run(["ps", "-o", "pid=,stat=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [line for line in found.stdout.splitlines() if "gatelab.sweep.worker" in line and " Z" not in line]


@BOTH
def test_ctrl_c(backend: str, tmp_path: Path, light: dict[str, str]) -> None:
    """As a terminal sends it: to the whole group. What was done is on file, leases are free, workers are gone."""
    drive, log = Path(__file__).with_name("sweep_drive.py"), tmp_path / "log"
    command = [sys.executable, str(drive), str(tmp_path / "runs.db"), backend, "500", "0.02", str(log)]
    sweep = subprocess.Popen(
        command, env=light, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert sweep.stdout is not None
    for _ in range(20):
        sweep.stdout.readline()
    os.killpg(sweep.pid, signal.SIGINT)
    out, err = sweep.communicate(timeout=300)
    assert sweep.returncode == -signal.SIGINT and "KeyboardInterrupt" in err
    told = 20 + len(out.splitlines())
    with Store(tmp_path / "runs.db") as store:
        kept = store.count()
        assert told <= kept < 400
        assert store._read("SELECT * FROM claims") == []
    finished = len(sweep_tasks.computed(log))
    assert kept <= finished <= kept + 2  # at most the runs that ended while the workers were being stopped
    time.sleep(0.1)
    assert len(sweep_tasks.computed(log)) == finished


def test_interrupted_in_the_middle_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(**arguments: Any) -> RunOutcome:
        if arguments["n"] == 2:
            signal.raise_signal(signal.SIGINT)
        return RunOutcome({})

    monkeypatch.setattr(worker, "resolve", lambda task: interrupted)
    got: list[Record] = []
    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(KeyboardInterrupt):
            got.extend(map_runs(runs("work", 5), store=store))
        assert store.count() == 2 and store._read("SELECT * FROM claims") == []


def test_plan(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    wanted = runs("work", 10, fail_each=5)
    assert plan(wanted, path).expected_seconds is None
    list(map_runs(wanted[:6], store=path))
    with Store(path) as store:
        mean = np.mean([r.seconds for r in store.records(status="done")])
        now = plan([*wanted, wanted[0]], store)
        assert (now.done, now.failed, now.todo) == (4, 2, 4)
        assert now.expected_seconds == pytest.approx(4 * mean)
        again = plan(wanted, store, retry_failed=True, jobs=2)
        assert (again.done, again.failed, again.todo) == (4, 0, 6)
        assert again.expected_seconds == pytest.approx(3 * mean)
        assert plan([*wanted, *runs("hang", 2)], store).expected_seconds is None
        assert plan(wanted[:6], store).expected_seconds == 0


def test_progress_counts_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    list(map_runs(runs("work", 3, fail_each=2, seconds=0.02), store=path))
    states: list[Progress] = []
    list(map_runs(runs("work", 8, fail_each=2, seconds=0.02), store=path, progress=states.append))
    assert [(p.stored, p.computed, p.finished) for p in states] == [(min(i, 3), max(0, i - 3), i) for i in range(1, 9)]
    assert states[-1].failed == 4 and states[3].total == 8


def test_what_cannot_be_asked_for() -> None:
    one = runs("work", 1)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"backend": "threads"}, "no backend is called 'threads'"),
        ({"jobs": -1}, "jobs is -1"),
        ({"address": "here:1"}, "for Ray, but backend is 'serial'"),
        ({"gpus_per_run": 1, "backend": "processes"}, "for Ray"),
    ]
    for options, message in cases:
        with pytest.raises(GatelabError, match=message):
            map_runs(one, **options)
    with pytest.raises(GatelabError, match="one of the runs is a str"):
        map_runs(["sweep_tasks:work"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(GatelabError, match="'sweep_tasks:wrok' cannot be found"):
        list(map_runs([Run("sweep_tasks:wrok")]))


def test_a_full_store_ends_the_sweep_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        store._db.execute("PRAGMA max_page_count = 40")
        with pytest.raises(GatelabError, match="no space left"):
            list(map_runs(runs("work", 1000), store=store, backend="processes", jobs=2))
        kept = store.count()
        assert kept > 10 and _workers() == []
        store._db.execute("PRAGMA max_page_count = 100000")
        assert len(list(map_runs(runs("work", 1000), store=store))) == 1000
