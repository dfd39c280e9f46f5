"""Sweeps that are killed, again and again, and sweeps that meet: the table is the same as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sweep_tasks
from sweep_drive import runs
from test_backends import content

from gatelab.sweep import Run, Store, map_runs
from gatelab.sweep.leases import start_time

KILLS = int(os.environ.get("GATELAB_KILLS", "12"))
DRIVE = Path(__file__).with_name("sweep_drive.py")
SECONDS = 0.01
LIMIT = 120.0  # seconds after which a process hangs, on a machine as busy as one likes


def start(database: Path, backend: str, count: int, log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVE), str(database), backend, str(count), str(SECONDS), str(log)]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)


def rows(database: Path) -> dict[str, tuple[Any, ...]]:
    """All there is on file, times included."""
    with Store(database) as store:
        return {row[0]: row for row in store._read("SELECT * FROM records")}


def uninterrupted(wanted: list[Run]) -> list[str]:
    """The table of a sweep that nothing happens to: in one go, in one process, without a store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_tasks.time, "sleep", lambda seconds: None)  # the numbers do not depend on it
        return content(map_runs(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_killed_at_random_moments(backend: str, tmp_path: Path, light: dict[str, str]) -> None:
    rng = random.Random(f"{backend} {KILLS}")
    database, log = tmp_path / "runs.db", tmp_path / "log"
    # So many that the work outlasts the kills: each time less than half a second of it is done, by one worker or two.
    wanted = runs(KILLS * 60 * (1 if backend == "serial" else 2), SECONDS, str(log))
    before: dict[str, tuple[Any, ...]] = {}
    grew = 0
    for _ in range(KILLS):
        sweep = start(database, backend, len(wanted), log, light)
        # One in four while it starts; the others once it computes, however slow the machine is today.
        if rng.random() < 0.75:
            size = log.stat().st_size if log.exists() else 0
            while sweep.poll() is None and (not log.exists() or log.stat().st_size == size):
                time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.4))
        assert sweep.poll() is None, "it ended before it was killed: there is too little work"
        sweep.send_signal(signal.SIGKILL)
        sweep.wait()
        after = rows(database)
        assert before.items() <= after.items(), "a record was lost or written again"
        grew += len(after) > len(before)
        before = after
    assert grew >= KILLS / 2 and len(before) < len(wanted)  # killed in the middle of it, not only before or after
    assert start(database, backend, len(wanted), log, light).wait(timeout=300) == 0

    after = rows(database)
    assert before.items() <= after.items() and set(after) == {run.key for run in wanted}
    with Store(database) as store:
        survived = content(store.records())
        assert store._read("SELECT count(*) FROM claims") == [(0,)]
    computed = Counter(n for n, _, _ in sweep_tasks.computed(log))
    expected = uninterrupted(wanted)
    assert len(computed) == len(wanted)
    # Computed again is only what a kill caught between its end and its record: what was sent ahead, at the most.
    ahead = 1 if backend == "serial" else 2 * 10
    assert sum(computed.values()) - len(wanted) <= KILLS * ahead
    assert survived == expected


@pytest.mark.slow
@pytest.mark.parametrize("backends", [("serial", "serial"), ("serial", "processes"), ("processes", "processes")])
def test_two_sweeps_share_one_store(backends: tuple[str, str], tmp_path: Path, light: dict[str, str]) -> None:
    database, log = tmp_path / "runs.db", tmp_path / "log"
    wanted = runs(400, SECONDS, str(log))
    sweeps = [start(database, backend, len(wanted), log, {**light, "SWEEP_WAITS": "1"}) for backend in backends]
    while not all(Path(f"{log}.{sweep.pid}").exists() for sweep in sweeps):
        assert not any(sweep.poll() for sweep in sweeps)
        time.sleep(0.02)
    Path(f"{log}.go").touch()
    assert [sweep.wait(timeout=300) for sweep in sweeps] == [0, 0]
    log_lines = sweep_tasks.computed(log)
    assert Counter(n for n, _, _ in log_lines) == dict.fromkeys(range(400), 1)  # not one of them twice
    for sweep in sweeps:
        assert any(sweep.pid in line[1:] for line in log_lines)  # and both took part
    with Store(database) as store:
        survived = content(store.records())
    assert survived == uninterrupted(wanted)


@pytest.mark.slow
def test_one_of_two_sweeps_is_killed_and_the_other_takes_over(tmp_path: Path, light: dict[str, str]) -> None:
    database, log = tmp_path / "runs.db", tmp_path / "log"
    wanted = runs(300, SECONDS, str(log))
    first, second = (start(database, "processes", len(wanted), log, light) for _ in range(2))
    while len(rows(database)) < 60:
        time.sleep(0.02)
    first.kill()
    first.wait()
    assert second.wait(timeout=300) == 0  # and does not wait for what the dead one had leased
    with Store(database) as store:
        assert store._read("SELECT count(*) FROM claims") == [(0,)]
        survived = content(store.records())
    assert survived == uninterrupted(wanted)


def test_workers_end_when_their_sweep_is_killed(tmp_path: Path, light: dict[str, str]) -> None:
    command = [sys.executable, str(DRIVE), str(tmp_path / "runs.db"), "processes", "9", "60", str(tmp_path / "log")]
    sweep = subprocess.Popen(command, env=light, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT
    while len(workers := _children(sweep.pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # into the runs, which take a minute
    sweep.kill()
    sweep.wait()
    deadline = time.monotonic() + LIMIT
    while any(start_time(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its sweep"
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]
