"""Ctrl-C and closed streams in real processes: one line, the exit code, nobody left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_runs import command, environment, ok, run
from test_command_line import living, wait_for

LIMIT = 120  # seconds after which a process hangs, on a machine as busy as one likes
LINE = "gatelab: interrupted; nothing was written\n"

pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted through /proc"),
]


@contextmanager
def started(args: list[str], **options: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, which Ctrl-C reaches as it does in a terminal; gone at the end."""
    process = subprocess.Popen(
        args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **options},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def press(process: subprocess.Popen[str]) -> tuple[str, str]:
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    wait_for(lambda: living(process.pid) == 0, LIMIT)
    return out, err


def script(body: str) -> list[str]:
    """A command line with a command `own` more, whose body prints "ready" and is then interrupted."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    code = f"""
import ctypes, sys, threading, time
from gatelab.cli import interrupts, main
from gatelab.cli.application import app

def stuck():
    # A lock of C's, taken twice: no signal ends the wait for it, as none ends a long computation in C.
    lock = (ctypes.c_byte * 64)()
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)

def ready():
    print("ready", flush=True)

@app.command()
def own():
{lines}

sys.argv = ["gatelab", "own"]
main()
"""
    return [sys.executable, "-c", code]


def wait_for_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stdout.readline() == "ready\n"


KEPT = "gatelab: interrupted; 3 fits are in runs.db\n"
BODIES = {
    "threads that go on are not waited for": (
        "threading.Thread(target=stuck).start()\nready()\ntime.sleep(1000)",
        LINE,
    ),
    "what was kept is said": (
        'with interrupts.keeping(lambda: "3 fits are in runs.db"):\n    ready()\n    time.sleep(1000)',
        KEPT,
    ),
}


@pytest.mark.parametrize(("body", "line"), BODIES.values(), ids=BODIES)
def test_ctrl_c_ends_a_command_with_one_line(body: str, line: str) -> None:
    with started(script(body)) as process:
        wait_for_ready(process)
        assert press(process) == ("", line) and process.returncode == 130


def test_the_second_ends_at_once() -> None:
    body = """
try:
    ready()
    time.sleep(1000)
except KeyboardInterrupt:
    ready()
    time.sleep(1000)
"""
    with started(script(body)) as process:
        wait_for_ready(process)
        os.killpg(process.pid, signal.SIGINT)
        wait_for_ready(process)
        assert press(process) == ("", LINE) and process.returncode == 130


@pytest.mark.parametrize(
    "module",
    [
        "gatelab.cli.interrupts",
        "torch.version",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("typer", "torch.nn", "scipy.linalg")),
    ],
)
def test_while_importing(module: str) -> None:
    """Python tells on stderr of each import; at that of `module` Ctrl-C comes."""
    with started(command("fit", "glu", "--width", "200"), PYTHONPROFILEIMPORTTIME="1") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith(f" {module}"):
                break
        out, err = press(process)
        said = [line for line in err.splitlines() if not line.startswith("import time:")]
        assert (process.returncode, out, said) == (130, "", [LINE.rstrip()])


def test_an_import_is_not_interrupted_but_the_process_ends(tmp_path: Path) -> None:
    """An exception inside of an import that C++ has begun would end the process by a signal, without our line."""
    (tmp_path / "slow_to_import.py").write_text(
        """
import time
print("ready", flush=True)
try:
    time.sleep(1000)
except BaseException as error:
    print(error, flush=True)
"""
    )
    with started(script("sys.path.insert(0, '.')\nimport slow_to_import")) as process:
        wait_for_ready(process)
        assert press(process) == ("", LINE) and process.returncode == 130


@pytest.mark.slow
def test_files_that_are_complete_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ok("scale", "mlp", "--widths", "1,2", "--points", "100", "--jobs", "1", "--out", "old.csv")
    args = ("scale", "mlp", "--widths", "1,2", "--points", "100", "--jobs", "1", "--out", "s.csv", "--plot", "s.png")
    from gatelab.cli import output

    monkeypatch.setattr(output, "table", ctrl_c)
    result = run(*args)
    assert (result.exit_code, result.stderr) == (130, "gatelab: interrupted; complete: s.csv, s.png\n")
    assert sorted(p.name for p in Path().iterdir()) == ["old.csv", "s.csv", "s.png"]


# Closed streams


def closed(redirection: str, *args: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", f'exec "$0" "$@" {redirection}', *command(*args)]
    return subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=LIMIT)


def test_closed_stdout_is_one_line(here: Path) -> None:
    args = ("fit", "glu", "x3", "--out", "a.safetensors")
    done = closed(">&-", *args)
    assert done.returncode == 2 and re.fullmatch("gatelab: standard output is closed.*\n", done.stderr)
    assert closed(">&- 2>&-", *args).returncode == 2
    assert not list(here.iterdir())


def test_stderr_may_be_closed() -> None:
    done = closed("2>&-", "units")
    assert done.returncode == 0 and done.stdout == ok("units") and done.stderr == ""
