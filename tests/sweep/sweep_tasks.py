"""Tasks for the tests of sweeps: at the top of a module, so that every worker can import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from gatelab.sweep import RunOutcome


def _note(log: str, text: object) -> None:
    # One write with O_APPEND is never mixed with another process's.
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def computed(log: str | Path) -> list[tuple[int, int, int]]:
    """What `work` has noted: n, the process that computed it and that one's parent."""
    lines = Path(log).read_text().splitlines()
    return [tuple(map(int, line.split())) for line in lines]  # pyright: ignore[reportReturnType]


def work(n: int, seconds: float = 0.0, log: str = "", fail_each: int = 0) -> RunOutcome:
    """Some numbers that depend on n alone; a line in the log, with who did it, once it is computed."""
    time.sleep(seconds)
    if log:
        _note(log, f"{n} {os.getpid()} {os.getppid()}")
    if fail_each and n % fail_each == 0:
        raise RuntimeError(f"run {n} does not want to")
    return RunOutcome({"square": n * n, "third": n / 3, "none": None}, history=(1.0, 1 / (n + 1), float("nan")))


def arrays(n: int) -> RunOutcome:
    return RunOutcome({"n": n}, arrays={"G": np.arange(n, dtype=np.float64), "view": np.eye(3)[:, ::2]}, device="cpu:0")


def bad_arrays(n: int) -> RunOutcome:
    return RunOutcome({"n": n}, arrays={"names": np.array(["a"] * n, dtype=object)})


def returns_a_set(n: int) -> dict[str, object]:
    return {"values": {n}}


def returns_nothing(n: int) -> None:
    return None


def hang(n: int) -> dict[str, int]:
    """Out of Python's reach: one call into C that checks no signal and keeps the lock of the interpreter."""
    if n == 0:
        sum(range(10**11))
    return {"n": n}


def die(n: int, how: str) -> dict[str, int]:
    if n == 0:
        if how == "exit":
            sys.exit(7)
        if how == "os._exit":
            os._exit(7)
        os.kill(os.getpid(), getattr(signal, how))
    return {"n": n}


def die_once(n: int, folder: str) -> dict[str, int]:
    """Killed in the middle at the first try, by no fault of its own."""
    mark = Path(folder) / f"tried-{n}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": n}


def fork_and_die(n: int) -> dict[str, int]:
    """Leaves a process behind that holds the worker's pipes open."""
    if n == 0:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        os._exit(3)
    return {"n": n}


def prints(n: int) -> dict[str, object]:
    print("a line to standard output", n, flush=True)
    os.write(1, b"and one past Python\n")
    return {"n": n, "read": sys.stdin.read()}


def threads(n: int) -> dict[str, object]:
    torch = sys.modules.get("torch")
    return {"torch": torch.get_num_threads() if torch else None, "omp": os.environ.get("OMP_NUM_THREADS")}


def thrice(n: int, log: str, tries: int) -> dict[str, int]:
    """Fails until it has been called so many times."""
    _note(log, n)
    if Path(log).read_text().split().count(str(n)) < tries:
        raise RuntimeError("not yet")
    return {"n": n}
