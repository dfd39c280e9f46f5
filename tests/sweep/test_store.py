"""The store: what goes in comes out, once; files that are not ours or not whole; disks that are full."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatelab import GatelabError
from gatelab.sweep import Record, Run, Store, database


def record(n: int, **changes: Any) -> Record:
    run = Run("lab:fit", {"n": n, "unit": "glu" if n % 2 else "mlp", "net": {"width": n % 5}, "rate": n / 7})
    made = Record(run, "done", {"rmse": 1 / (n + 1)}, (1.0, 0.5), None, 0.25, {"torch": "2"}, "cpu", "2030-01-01T00:00")
    return replace(made, **changes)


def test_records_come_back_as_they_went_in(store: Store) -> None:
    odd = record(
        3,
        metrics={"deep": {"x": (1, 2.5, None, True)}, "nan": float("nan"), "text": "é\ud800"},
        history=(float("inf"), 5e-324),
        device="cuda:1",
    )
    failed = record(4, status="failed", metrics={}, error="Traceback\n  \udcff\0 end")
    assert store.put(odd) and store.put(failed)
    with Store(store.path) as again:
        back = again.get(odd.key)
        assert back is not None and repr(back) == repr(odd) and back.run == odd.run
        wrong = again.get(failed.key)
        assert wrong is not None and wrong.error == "Traceback\n  \\udcff\0 end"
        assert again.get("0" * 32) is None


def test_done_stays_and_failed_is_replaced(store: Store) -> None:
    bad, good = record(1, status="failed", error="no"), record(1, metrics={"rmse": 1.0})
    assert store.put(bad) and store.put(replace(bad, error="still no")) and store.put(good)
    assert not store.put(record(1, metrics={"rmse": 2.0})) and not store.put(bad)
    assert [r.metrics for r in store.records()] == [{"rmse": 1.0}]
    assert store.put(record(2), {"G": np.ones(2)}) and not store.put(record(2), {"G": np.zeros(2)})
    back = store.get_arrays(record(2).key)
    assert back is not None and back["G"].tolist() == [1, 1]


def test_filters_agree_with_plain_python(store: Store) -> None:
    everything = [record(n, status="failed" if n % 7 == 0 else "done") for n in range(60)]
    everything += [Record(Run("lab:other", {"n": n, "tags": [n, 1.5], "nan": float("nan")}), "done") for n in range(5)]
    assert store.put_all(everything) == 65

    def keys(**filters: Any) -> list[str]:
        found = [r.key for r in store.records(**filters)]
        assert store.count(**filters) == len(found)
        return found

    def expected(test: Any) -> list[str]:
        return [r.key for r in everything if test(r)]

    assert keys() == expected(lambda r: True)
    assert keys(task="lab:other") == expected(lambda r: r.task == "lab:other")
    assert keys(status="failed") == expected(lambda r: r.status == "failed")
    assert keys(where={"unit": "glu"}) == expected(lambda r: r.arguments.get("unit") == "glu")
    assert keys(where={"n": 3}) == expected(lambda r: r.arguments["n"] == 3)
    assert keys(where={"n": 3}, task="lab:fit") == [everything[3].key]
    assert keys(where={"net.width": 2, "unit": "mlp"}, status="done") == expected(
        lambda r: r.arguments.get("net") == {"width": 2} and r.arguments.get("unit") == "mlp" and r.ok
    )
    assert keys(where={"rate": 3 / 7}) == [everything[3].key]
    assert keys(where={"tags": (2, 1.5)}) == [everything[62].key]
    assert len(keys(where={"nan": float("nan")})) == 5
    assert keys(where={"unit": None}) == expected(lambda r: r.task == "lab:other")
    assert keys(where={"no such": 1}) == []
    with pytest.raises(GatelabError, match="status is 'ok'"):
        keys(status="ok")
    with pytest.raises(GatelabError, match="cannot filter"):
        keys(where={'a"b': 1})


def test_delete_takes_networks_along(store: Store) -> None:
    store.put(record(5), {"G": np.zeros(2)})
    store.put(record(6))
    assert store.delete([record(5).key, "f" * 32]) == 1 and store.get_arrays(record(5).key) is None
    assert store._read("SELECT count(*) FROM networks") == [(0,)]
    assert [r.arguments["n"] for r in store.records()] == [6]


def test_arrays(store: Store) -> None:
    key = record(1).key
    given = {"G": np.arange(6.0).reshape(2, 3).T, "scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 3), bool)}
    assert store.put(record(1), given) and store.put(record(2))
    back = store.get_arrays(key)
    assert back is not None and set(back) == set(given)
    for name in given:
        assert back[name].dtype == given[name].dtype and np.array_equal(back[name], given[name])
        assert back[name].shape == given[name].shape
    assert store.get_arrays("0" * 32) is None and store.get_arrays(record(2).key) is None
    with pytest.raises(GatelabError, match="names: object"):
        store.put(record(3), {"names": np.array([None])})
    assert store.get(record(3).key) is None
    store._db.execute("UPDATE networks SET content = substr(content, 1, 40)")
    with pytest.raises(GatelabError, match=f"the network of {key} in .* cannot be read"):
        store.get_arrays(key)


def test_a_run_of_too_many_bytes_is_refused_before_they_are_packed() -> None:
    huge = np.broadcast_to(np.zeros(1), (2**27,))  # a view: a gigabyte that takes eight bytes
    with pytest.raises(GatelabError, match=r"these arrays have 1\.07 GB"):
        database.pack({"huge": huge})
    with pytest.raises(GatelabError, match=r"these arrays have 0\.99 GB"):
        database.pack(bytes(990_000_001))


_KILLED = """
import os, signal, sys
import numpy as np
from gatelab.sweep import Record, Run, Store
store = Store(sys.argv[1])
for n in range(20):
    store.put(Record(Run("lab:fit", {"n": n}), "done"), {"G": np.full(5000, float(n))})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_the_next_who_opens_the_store_makes_it_one_file_again(
    tmp_path: Path, light: dict[str, str]
) -> None:
    path = tmp_path / "runs.db"
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], env=light, timeout=300)
    assert (tmp_path / "runs.db-wal").stat().st_size > 0  # what the kill left behind
    with Store(path):  # open, and not closed yet: the file alone is whole from here on
        (tmp_path / "copy.db").write_bytes(path.read_bytes())
    with Store(tmp_path / "copy.db") as copy:
        assert copy.count() == 20 and copy._read("SELECT count(*) FROM networks") == [(20,)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "runs.db"]


def test_a_file_that_was_emptied_gives_its_space_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for n in range(10):
            store.put(record(n), {"G": np.zeros(50_000)})
    assert path.stat().st_size > 4_000_000
    with Store(path) as store:
        store.delete([record(n).key for n in range(9)])
    assert path.stat().st_size < 1_000_000
    with Store(path) as store:
        assert store._read("SELECT count(*) FROM networks") == [(1,)]


@pytest.mark.parametrize("version", [database.VERSION + 5, 1])
def test_another_schema_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(record(1))
        store._db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(GatelabError, match=f"schema {version}.*update gatelab"):
        Store(path)
    assert path.read_bytes() == before


def test_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database\n" * 100)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE records (key TEXT)")
    db.close()
    for path, message in ((text, "is not a gatelab store"), (other, "of another program")):
        before = path.read_bytes()
        with pytest.raises(GatelabError, match=message):
            Store(path)
        assert path.read_bytes() == before


@pytest.mark.parametrize("part", [0.02, 0.5, 0.97])
def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, part: float) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put_all(record(n) for n in range(300))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    before = path.read_bytes()
    with pytest.raises(GatelabError, match="damaged or was cut short"):
        list(Store(path).get_all(record(n).key for n in range(300)))  # as a sweep reads it
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", [".", "file.txt/runs.db", "/proc/no/runs.db"])
def test_places_where_no_file_can_be(tmp_path: Path, path: str) -> None:
    (tmp_path / "file.txt").write_text("a file, not a folder")
    with pytest.raises(GatelabError, match="folder"):
        Store(tmp_path / path)


def test_read_only_folder_and_file(tmp_path: Path) -> None:
    """For real: as a user who has no rights there, for root may write anywhere. Stores can be read."""
    path = tmp_path / "folder" / "runs #1.db"
    with Store(path) as store:
        store.put(record(1), {"G": np.ones(2)})

    def read() -> None:
        with Store(path) as store:
            assert [r.arguments["n"] for r in store.records()] == [1]
            assert (store.get_arrays(record(1).key) or {})["G"].tolist() == [1, 1]

    for p, mode in ((path, 0o444), (path.parent, 0o555)):
        p.chmod(mode)
    outer = [p for p in tmp_path.parents if p.stat().st_uid == os.getuid() and not p.stat().st_mode & 0o001]
    modes = [(p, p.stat().st_mode) for p in [tmp_path, *outer]]
    for p, mode in modes:
        p.chmod(mode | 0o011)
    try:
        _as_nobody(read)
        for wanted in (path, path.parent / "new.db"):
            with pytest.raises(GatelabError, match=r"cannot be written.*folder that you may write to"):
                _as_nobody(lambda wanted=wanted: Store(wanted).put(record(2)))
        log = path.with_name("runs #1.db-wal")
        log.write_bytes(b"records that a killed sweep left")
        with pytest.raises(GatelabError, match=r"its last records are still in runs #1.db-wal; copy both files"):
            _as_nobody(lambda: Store(path))
        log.unlink()
    finally:
        for p, mode in modes:
            p.chmod(mode)
        path.parent.chmod(0o755)
    path.chmod(0o644)
    with Store(path) as store:
        assert [r.arguments["n"] for r in store.records()] == [1]


def _as_nobody(call: Any) -> None:
    if os.geteuid() != 0:
        call()
        return
    os.seteuid(65534)
    try:
        call()
    finally:
        os.seteuid(0)


_FILL = """
import resource, sys
import numpy as np
from gatelab.errors import GatelabError
from gatelab.sweep import Record, Run, Store
store = Store(sys.argv[1])
if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
arrays = {"G": np.zeros(int(sys.argv[3]))} if sys.argv[3] != "0" else None
kept = 0
try:
    while True:
        store.put(Record(Run("lab:fit", {"n": kept}), "done", {"text": "x" * 2000}), arrays)
        kept += 1
except GatelabError as error:
    print(kept, error)
"""


@pytest.mark.parametrize("numbers", [0, 2_000], ids=["records", "networks"])
def test_a_full_disk(tmp_path: Path, light: dict[str, str], numbers: int) -> None:
    """On a small disk where one can be mounted, else with a limit on the size of files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "gatelab-test", str(disk)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        command = [sys.executable, "-c", _FILL, str(disk / "runs.db"), "0" if mounted else str(2**20), str(numbers)]
        done = subprocess.run(command, env=light, capture_output=True, text=True, check=True, timeout=300)
        kept, message = done.stdout.split(maxsplit=1)
        assert int(kept) > 10 and "records are safe" in message
        assert ("no space left" if mounted else "could not be read or written") in message
        target = tmp_path / "copy.db"
        for file in disk.iterdir():  # elsewhere, where there is room to go on
            (tmp_path / file.name.replace("runs", "copy")).write_bytes(file.read_bytes())
        with Store(target) as store:
            assert store.count() == int(kept) and store._read("PRAGMA integrity_check") == [("ok",)]
            for r in store.records():
                assert len((store.get_arrays(r.key) or {"G": []})["G"]) == numbers
            assert store.put(record(1))
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def test_a_lock_held_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    path = tmp_path / "runs.db"
    with Store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(GatelabError, match="stays locked by another program"):
            store.put(record(1))
        assert store.count() == 0  # reading goes on
        other.execute("COMMIT")
        assert store.put(record(1))
        other.close()


def test_threads_share_a_store(store: Store) -> None:
    threads = [threading.Thread(target=lambda: [store.put(record(n)) for n in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count() == 100


def test_new_files_opened_by_many_at_once(tmp_path: Path, light: dict[str, str]) -> None:
    code = (
        "import sys\nfrom gatelab.sweep import Record, Run, Store\n"
        "for n in range(8):\n"
        "    with Store(f'{sys.argv[1]}/{n}.db') as store:\n"
        "        store.put(Record(Run('lab:fit', {'who': sys.argv[2]}), 'done'))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen([*command, str(i)], env=light, stderr=subprocess.PIPE, text=True) for i in range(3)]
    assert [(p.communicate()[1], p.returncode) for p in both] == [("", 0)] * 3
    for n in range(8):
        with Store(tmp_path / f"{n}.db") as store:
            assert store.count() == 3
