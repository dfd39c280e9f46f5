"""Ctrl-C at random moments of six commands: how long they take to end, and what they leave.

It takes half an hour, so that `python -m benchmarks` runs it only by its name.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

Table = tuple[str, list[dict[str, float | str]], str]
MOMENTS = 20
LONGEST = 20.0  # seconds: of a command that takes longer the moments lie in the first ones
COMMANDS = {
    "fit": "fit swiglu friedman1 --width 60 --seeds 20 --steps 2000",
    "scale": "scale glu mlp swiglu --problem friedman1 --widths 1:30 --seeds 5 --jobs 2 --store runs.db",
    "train": "train gpt2 glu --text text.txt --tokenizer bytes --size tiny --store run",
    "compare": "compare friedman1 --seeds 20 --budget 300",
    "ntk": "ntk mlp glu --gaussian 4000,50 --full",
    "linearize": "linearize gelu --method optimal --d 400 --m 100000",
}


def run() -> Iterator[Table]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children would ignore Ctrl-C
    rows = []
    for name, line in COMMANDS.items():
        words = line.split()
        length = min(LONGEST, _length(words))
        moments = [random.Random(f"{name} {i}").uniform(0, length) for i in range(MOMENTS)]
        ends = [_interrupted(words, moment) for moment in moments]
        codes = Counter(code for code, *_ in ends)
        rows.append(
            {
                "command": name,
                "moments": len(ends),
                "up to s": length,
                "exit codes": ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())),
                "slowest end, s": max(seconds for _, seconds, *_ in ends),
                "median, s": sorted(seconds for _, seconds, *_ in ends)[len(ends) // 2],
                "before gatelab": sum(early for *_, early in ends),
                "tracebacks": sum(trace and not early for _, _, trace, _, _, early in ends),
                "not one line": sum(lines != 1 for code, _, _, lines, *_ in ends if code == 130),
                "children left": sum(left for *_, left, _ in ends),
            }
        )
    yield (
        "Ctrl-C at random moments",
        rows,
        "130: interrupted; 0: had ended before; before gatelab: while Python itself was starting",
    )


def _start(words: list[str], folder: str) -> subprocess.Popen[str]:
    (Path(folder) / "text.txt").write_text("It was the best of times, it was the worst of times. " * 2000)
    return subprocess.Popen(
        [sys.executable, "-m", "gatelab", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _length(words: list[str]) -> float:
    """How long the command takes, or `LONGEST` if that is less."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = _start(words, folder)
        try:
            process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return time.perf_counter() - began


def _interrupted(words: list[str], moment: float) -> tuple[int, float, bool, int, int, bool]:
    """Exit code, seconds to the end, whether there was a traceback, lines, children left, whether Python was starting.

    What has not ended as it should is told on stderr in full.
    """
    with TemporaryDirectory() as folder:
        process = _start(words, folder)
        time.sleep(moment)
        began = time.perf_counter()
        os.killpg(process.pid, signal.SIGINT)  # which reaches a process that has ended too, until it is waited for
        process.wait()
        seconds = time.perf_counter() - began
        _, err = process.communicate()
        deadline = time.monotonic() + 2
        while (left := _living(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
    lines = [line for line in err.splitlines() if not re.match(r"gatelab: .*: \d+ of \d+", line)]
    early = process.returncode not in (0, 130) and "gatelab" not in err
    if process.returncode != 0 and not early and (process.returncode, len(lines)) != (130, 1):
        print(f"{words[0]} after {moment:.2f} s: exit code {process.returncode}\n{err}", file=sys.stderr)
    return process.returncode, seconds, "Traceback" in err, len(lines), left, early


def _living(session: int) -> int:
    """How many processes of the session run; a zombie has ended and only waits to be collected."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        count += int(sid) == session and state not in "ZX"
    return count
