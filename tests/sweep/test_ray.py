"""Ray, for real: a local cluster, its workers killed, its drivers killed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sweep_tasks
from sweep_drive import runs as work_runs
from test_backends import content, runs
from test_survival import DRIVE, uninterrupted

from gatelab import GatelabError
from gatelab.sweep import Store, map_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray_env(light: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a token made for these tests alone: Ray asks whoever joins a cluster for the one it was started with."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    # Ray's workers are nice to all others, and would wait for as long as the other tests compute.
    return {**light, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_worker_niceness": "0"}


@pytest.fixture(scope="module")
def cluster(ray_env: dict[str, str]) -> Iterator[str]:
    """The address of a small cluster that this process is connected to."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_worker_niceness"):
            patch.setenv(name, ray_env[name])  # before the import, which reads them
        import ray

        ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


def test_ray_computes_what_serial_computes_and_only_once(cluster: str, tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "runs.db"
    wanted = runs("work", 300, log=str(log), fail_each=7)
    got = list(map_runs(wanted[:200], store=path, backend="ray"))
    got = list(map_runs(wanted, store=path, backend="ray", jobs=2))
    assert Counter(n for n, _, _ in sweep_tasks.computed(log)) == dict.fromkeys(range(300), 1)
    assert content(got) == uninterrupted(wanted)
    with Store(path) as store:
        assert content(store.records()) == content(got) and store._read("SELECT * FROM claims") == []
    assert len({pid for _, pid, _ in sweep_tasks.computed(log)[:300]}) >= 2
    import ray

    assert ray.is_initialized()  # it was not ours to end


def test_a_ladder_takes_a_gpu_for_each_run(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that the cluster only pretends to have: what is trained there is what is trained here."""
    from gatelab.sweep.ray_backend import RayPool
    from gatelab.train import ladder

    asked = []
    pool = RayPool.__init__

    def noted(self: RayPool, jobs: int | None, address: str | None, gpus: float) -> None:
        asked.append(gpus)
        pool(self, jobs, address, gpus)

    monkeypatch.setattr(RayPool, "__init__", noted)
    text = tmp_path / "gates.txt"
    text.write_bytes(b"the gate opens and the line passes; the gate closes and nothing does. " * 80)
    how: dict[str, Any] = {"lrs": {"glu": 1e-2}, "batch": 4, "steps": 6, "test_size": 8, "evaluations": 2}
    there = ladder(["glu"], text, ["tiny"], 2, store=tmp_path / "runs.db", backend="ray", progress=False, **how)
    here = ladder(["glu"], text, ["tiny"], 2, device="cpu", progress=False, **how)
    assert asked == [1.0] and there.table()["loss"].tolist() == here.table()["loss"].tolist()


def test_ray_workers_killed_in_the_middle(cluster: str, tmp_path: Path) -> None:
    """Three times whoever finished a run last is killed, as the system does it: some run is lost each time."""
    log, path = tmp_path / "log", tmp_path / "runs.db"
    wanted = work_runs(400, 0.01, str(log))
    killed: set[int] = set()

    def kill() -> None:
        while len(killed) < 3:
            time.sleep(0.3)
            lines = sweep_tasks.computed(log) if log.exists() else []
            if len(lines) > 20 and lines[-1][1] not in killed:
                killed.add(lines[-1][1])
                os.kill(lines[-1][1], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    got = list(map_runs(wanted, store=path, backend="ray", jobs=2))
    assert len(killed) == 3
    assert len(got) == 400 and content(got) == uninterrupted(wanted)
    with Store(path) as store:
        assert content(store.records()) == content(got)
    assert {n for n, _, _ in sweep_tasks.computed(log)} == set(range(400))


def test_a_run_that_takes_its_ray_worker_along(cluster: str) -> None:
    got = {r.arguments["n"]: r for r in map_runs(runs("die", 30, how="SIGKILL"), backend="ray")}
    assert len(got) == 30 and "its Ray worker died twice" in (got[0].error or "")
    assert all(got[n].ok for n in range(1, 30))


def test_leaving_the_loop_stops_what_ray_computes(cluster: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Store(tmp_path / "runs.db") as store:
        sweep = map_runs(runs("work", 100, seconds=0.3, log=str(log)), store=store, backend="ray", jobs=2)
        next(sweep)
        sweep.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert 1 <= store.count() <= 4 and store._read("SELECT * FROM claims") == []
    finished = len(sweep_tasks.computed(log))
    time.sleep(1.0)
    assert len(sweep_tasks.computed(log)) == finished


def test_what_the_cluster_cannot_give(cluster: str) -> None:
    one = runs("work", 1)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"gpus_per_run": 64}, "each run wants 64 GPUs"),
        ({"address": "203.0.113.9:1"}, "connected to the Ray cluster at"),
    ]
    for options, message in cases:
        with pytest.raises(GatelabError, match=message):
            list(map_runs(one, backend="ray", **options))


def test_a_sweep_killed_on_a_cluster_it_joined(cluster: str, tmp_path: Path, ray_env: dict[str, str]) -> None:
    log, path = tmp_path / "log", tmp_path / "runs.db"
    wanted = work_runs(300, 0.01, str(log))
    command = [sys.executable, str(DRIVE), str(path), "ray", "300", "0.01", str(log), cluster]
    sweep = subprocess.Popen(command, env=ray_env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with Store(path) as store:
        while store.count() < 20:
            assert sweep.poll() is None, sweep.communicate()[1]
            time.sleep(0.02)
        sweep.kill()
        sweep.communicate()
        before = {r.key: r for r in store.records()}
        assert len(before) < 300
        assert content(map_runs(wanted, store=store, backend="ray")) == uninterrupted(wanted)
        assert all(repr(store.get(key)) == repr(record) for key, record in before.items())


def test_ray_starts_a_cluster_of_its_own_and_ends_it(tmp_path: Path, ray_env: dict[str, str]) -> None:
    code = (
        "import ray\nfrom sweep_drive import runs\nfrom gatelab.sweep import map_runs\n"
        f"got = list(map_runs(runs(20, 0.0, {str(tmp_path / 'log')!r}), backend='ray', jobs=1))\n"
        "print(len(got), ray.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ray_env, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["20", "False"], done.stderr


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    options: dict[str, Any] = {"backend": "ray"}
    with pytest.raises(GatelabError, match=r"pip install 'gatelab\[ray\]'"):
        map_runs(runs("work", 1), **options)
