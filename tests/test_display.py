"""Progress: shown where somebody looks, after two seconds, with the time left; and the terminal is as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab import display, dynamics, ntk, train
from gatelab.data import TextData
from gatelab.display import Report, reporting

WORK = """
import time
from gatelab import display
display.PATIENCE = {patience}
print("ready", flush=True)
with display.reporting(None, "fitting") as report:
    for done in range(1, {steps} + 1):
        time.sleep(0.05)
        report(done, {steps})
print("done", flush=True)
"""
HIDDEN = b"\x1b[?25l"


class Terminal:
    """A program whose output goes to a terminal of its own."""

    def __init__(self, code: str) -> None:
        self.ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        words = [sys.executable, "-c", code]
        self.process = subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
        os.close(theirs)
        self.text = b""

    def read_until(self, mark: bytes, seconds: float = 120.0) -> bytes:
        """All that was written, once `mark` is part of it or the program has ended."""
        end = time.monotonic() + seconds
        while mark not in self.text and time.monotonic() < end:
            if not select.select([self.ours], [], [], 1.0)[0]:
                continue
            try:
                part = os.read(self.ours, 65536)
            except OSError:  # the program has ended and its terminal with it
                break
            if not part:
                break
            self.text += part
        return self.text

    def end(self) -> int:
        self.read_until(b"\0 never")
        os.close(self.ours)
        return self.process.wait(timeout=60)


def test_true_asks_for_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(True, "fitting") as report:
        assert isinstance(report, Report)
        report(1, 4)
        report.began -= display.EVERY
        report(2, 4, "9 rows/s")
        report(3, 4)
    assert re.fullmatch(r"gatelab: fitting, 9 rows/s: 2 of 4, .* left\n", capsys.readouterr().err)


@pytest.mark.parametrize("outer", [False, lambda *_: None], ids=["silent", "function"])
def test_work_within_work_is_not_shown(outer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with reporting(outer, "outer"), reporting(None, "inner") as inner:
        assert inner is None
    with pytest.raises(ZeroDivisionError), reporting(outer, "outer"):
        raise ZeroDivisionError
    assert display._depth == 0


def test_a_terminal_sees_a_bar_with_the_time_left() -> None:
    terminal = Terminal(WORK.format(patience=0.1, steps=60))
    seen = terminal.read_until(b"done")
    assert terminal.end() == 0
    assert b"fitting" in seen and re.search(rb"\d+/60", seen) and b"left" in seen
    assert HIDDEN not in seen, "a process that is killed could not show the cursor again"
    assert seen.rstrip().endswith(b"done")


def test_ctrl_c_ends_the_bar() -> None:
    terminal = Terminal(WORK.format(patience=0.1, steps=100_000))
    terminal.read_until(b"fitting")
    terminal.process.send_signal(signal.SIGINT)
    seen = terminal.read_until(b"KeyboardInterrupt")
    assert terminal.end() != 0
    after = seen[seen.index(b"Traceback") :]
    assert b"fitting" not in after.split(b"KeyboardInterrupt")[-1] and HIDDEN not in seen


def test_a_notebook_has_a_line_that_changes() -> None:
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = WORK.format(patience=0.1, steps=40)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    outputs = book.cells[0].outputs
    lines = [o.data["text/plain"] for o in outputs if o.output_type == "display_data"]
    assert len(lines) == 1 and re.fullmatch(r"fitting: done in \d+ s", lines[0])
    assert not [o for o in outputs if o.get("name") == "stderr"]


def _text() -> TextData:
    return TextData("counting", *(np.arange(n, dtype=np.uint16) % 16 for n in (4000, 400)), 16)


X = np.random.default_rng(0).standard_normal((20, 4))
TINY: dict[str, Any] = {"size": "tiny", "steps": 4, "batch": 2, "evaluations": 2}
P, D = (z.ravel() for z in np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11]))
LINE, PLANE = gl.problem("x2", n=100), gl.problem("x*y", n=100)
LONG_CALLS: dict[str, Any] = {
    "fit": lambda p: gl.fit("swiglu", PLANE, 1, seeds=2, starts=1, rounds=1, steps=2, progress=p),
    "fit by knots": lambda p: gl.fit("glu", LINE, 2, seeds=2, starts=1, progress=p),
    "fit_many": lambda p: gl.fit_many("glu", PLANE, [1], starts=1, rounds=0, steps=2, progress=p),
    "scaling": lambda p: gl.scaling("glu", LINE, [2, 3], jobs=1, starts=1, progress=p),
    "fit_law": lambda p: gl.fit_law(P, D, 1.69 + 406.4 / P**0.34 + 410.7 / D**0.28, bootstrap=2, progress=p),
    "compare": lambda p: gl.compare(
        ["mlp", "bilinear"], (X, X[:, 0] * X[:, 1]), widths=[1], seeds=1, features=4, d_model=4, progress=p
    ),
    "analytic": lambda p: ntk.analytic("glu", X, 10, progress=p),
    "empirical": lambda p: ntk.empirical(torch.nn.Linear(4, 1).double(), torch.from_numpy(X), progress=p),
    "dynamics.train": lambda p: dynamics.train("glu", X, X[:, 0], width=8, lr=1e-3, steps=3, seeds=2, progress=p),
    "finite_width_loss": lambda p: dynamics.finite_width_loss("glu", X, X[:, 0], 8, 1e-3, 2, seeds=2, progress=p),
    "train": lambda p: train.train(train.recipe("gpt2", "glu", "counting", **TINY), data=_text(), progress=p),
    "gap": lambda p: train.gap(
        ["silu", "swiglu"], model="gpt2", data=_text(), optimizers=["adamw"], seeds=1, progress=p, **TINY
    ),
    "linearize": lambda p: gl.linearize("gelu", "learned", d=2, m=4, steps=3, progress=p),
}


SLOWER = ("compare", "linearize")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOWER else name for name in LONG_CALLS]
)
def test_long_calls_tell_how_far_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[int, int]] = []
    LONG_CALLS[name](lambda done, total, *_: calls.append((done, total)))
    assert calls and calls[-1][0] == calls[-1][1] and calls == sorted(calls)
    assert len({total for _, total in calls}) == 1
    LONG_CALLS[name](False)
    LONG_CALLS[name](None)
    assert capsys.readouterr() == ("", "")


def test_the_regressor_speaks_when_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    defaults: Any = Report.__init__.__kwdefaults__
    monkeypatch.setattr(Report.__init__, "__kwdefaults__", {**defaults, "first": 0.0, "every": 0.0})
    quick: dict[str, Any] = {"width": 1, "ridge": 1e-2, "random_state": 0, "starts": 1, "rounds": 2, "steps": 30}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that ended early; they go to stderr too
        gl.GatedRegressor(**quick).fit(X, X[:, 0])
        assert capsys.readouterr() == ("", "")
        gl.GatedRegressor(**quick, verbose=1).fit(X, X[:, 0])
    assert re.match(r"gatelab: fitting swiglu of width 1: \d of \d", capsys.readouterr().err)
