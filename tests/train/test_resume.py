"""Trainings that are killed or stopped end with the numbers of one that was left alone, bit by bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from training_data import images, small

from gatelab.data.text import TextData
from gatelab.errors import GatelabError
from gatelab.train import History, recipe, train, train_many
from gatelab.train.loop import CHECKPOINT as NAME

DRIVE = Path(__file__).with_name("training_data.py")
NUMBERS = ("steps", "train", "test", "running", "accuracy", "lr")


def same(a: History, b: History) -> bool:
    return all(np.array_equal(getattr(a, n), getattr(b, n), equal_nan=True) for n in NUMBERS)


def start(folder: Path, optimizer: str, steps: int) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(DRIVE), str(folder), optimizer, str(steps)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def step_reached(process: subprocess.Popen[str], least: int) -> int:
    """Read its progress until it has made so many steps."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= least:
            return int(line)
    raise AssertionError("it ended before that")


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "kills"), [("sgd", (7,)), ("adamw", (5,))])
def test_killed_it_goes_on_to_equal_losses(optimizer: str, kills: tuple[int, ...], tmp_path: Path) -> None:
    steps = 24
    for at in kills:
        process = start(tmp_path, optimizer, steps)
        reached = step_reached(process, at)
        time.sleep(0.013)  # somewhere in the steps after that
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert reached < steps
    made = [small(optimizer=optimizer, steps=steps, seed=s) for s in (0, 1)]
    seen: list[int] = []
    resumed = train_many(made, folder=tmp_path, data=images(), progress=lambda done, *_: seen.append(done))
    alone = train_many(made, data=images())
    assert kills[-1] <= seen[0] < steps  # it went on, and did not begin anew
    for a, b in zip(resumed, alone, strict=True):
        assert same(a, b)


def test_ctrl_c_keeps_the_state_and_the_next_call_goes_on(tmp_path: Path) -> None:
    data, made = images(), small()

    def press(done: int, total: int, text: str) -> None:
        if done == 9:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(made, folder=tmp_path, data=data, progress=press, save_seconds=1e9)
    seen: list[int] = []
    resumed = train(made, folder=tmp_path, data=data, progress=lambda done, *_: seen.append(done))
    assert seen[0] == 10
    assert same(resumed, train(made, data=data))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_is_called_after_the_step(tmp_path: Path) -> None:
    steps: list[int] = []
    reached: list[int] = []

    def press(done: int, total: int, text: str) -> None:
        steps.append(done)
        if done == 9:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, lambda *_: reached.append(steps[-1]))
    history = train(small(), folder=tmp_path, data=images(), progress=press, save_seconds=1e9)
    assert reached == [9] and same(history, train(small(), data=images()))


def test_what_is_finished_is_read(tmp_path: Path) -> None:
    data, made = images(), small(steps=6)
    first = train(made, folder=tmp_path, data=data)
    seen: list[int] = []
    again = train(made, folder=tmp_path, data=data, progress=lambda done, *_: seen.append(done))
    assert not seen and same(first, again) and again.throughput == first.throughput
    assert np.array_equal(again.seconds, first.seconds)


def test_divergence_is_remembered(tmp_path: Path) -> None:
    data = images()
    made = small(optimizer="sgd", lr=1e6, clip=None, warmup=0, steps=50)
    first, again = (train(made, folder=tmp_path, data=data) for _ in range(2))
    assert first.diverged is not None and again.diverged == first.diverged and same(first, again)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    data = images()
    train(small(steps=2, evaluations=1), folder=tmp_path, data=data)
    with pytest.raises(GatelabError, match=r"another recipe \(it differs in lr"):
        train(small(steps=2, evaluations=1, lr=0.5), folder=tmp_path, data=data)
    with pytest.raises(GatelabError, match="other data"):
        train(small(steps=2, evaluations=1), folder=tmp_path, data=images(100))
    # The same tokens in other parts, as another test_fraction cuts them.
    tokens, windows = np.arange(4400, dtype=np.uint16) % 16, recipe("gpt2", "glu", "counting", size="tiny", steps=1)
    first, second = (TextData("counting", tokens[:-test], tokens[-test:], 16) for test in (400, 800))
    train(windows, folder=tmp_path / "text", data=first)
    with pytest.raises(GatelabError, match="other data"):
        train(windows, folder=tmp_path / "text", data=second)
    (tmp_path / NAME).write_bytes(b"rubbish")
    with pytest.raises(GatelabError, match="delete it"):
        train(small(steps=2, evaluations=1), folder=tmp_path, data=data)


def test_a_user_unit_is_trained_and_cannot_be_kept(tmp_path: Path) -> None:
    made = small(unit=lambda z, v: z * v, steps=2)  # type: ignore[arg-type]
    assert np.isfinite(train(made, data=images()).test).all()
    with pytest.raises(GatelabError, match="cannot be found by name"):
        train(made, folder=tmp_path, data=images())
