"""`gatelab train` and `gatelab gap`: what they print and write."""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_runs import document, ok, run

from gatelab.cli import output
from gatelab.train import Gap

TINY = ("--size", "tiny", "--tokenizer", "bytes", "--text", "text.txt", "--batch", "4", "--evaluations", "3")


@pytest.fixture(autouse=True)
def text(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GATELAB_CACHE", str(here / "cache"))
    (here / "text.txt").write_text("A gate that opens lets the line pass; one that closes does not. " * 60)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_train_prints_losses_speed_and_parameters(here: Path) -> None:
    text = ok("train", "gpt2", "swiglu", *TINY, "--steps", "6", "--out", "losses.csv", "--store", "run")
    assert re.search(r"after 6 steps; \d+ tokens/s", text.replace("\n", " ")) and "parameters, cpu" in text
    table = pd.read_csv(here / "losses.csv")
    assert table["step"].tolist() == [0, 1, 3, 6] and np.allclose(table["gap"], table["test"] - table["train"])
    assert (here / "run" / "checkpoint.safetensors").exists()


def test_train_json_is_the_history() -> None:
    said = document("train", "gpt2", "glu", *TINY, "--steps", "3", "--set", "layers=1", "--lr", "0.001")
    assert said["recipe"]["options"] == {"layers": 1} and said["recipe"]["lr"] == 0.001
    assert said["steps"] == [0, 1, 3] and said["diverged"] is None and said["counted"] == "tokens"
    assert said["running"][0] is None and said["test"][-1] < said["test"][0] + 1


def test_a_diverged_training_is_said() -> None:
    wild = ("--optimizer", "sgd", "--lr", "1e9", "--clip", "0", "--warmup", "0", "--steps", "30")
    text = ok("train", "gpt2", "glu", *TINY, *wild)
    assert "diverged at step" in text.replace("\n", " ")
    assert document("train", "gpt2", "glu", *TINY, *wild)["diverged"] >= 1


@pytest.mark.slow
def test_gap_compares_and_writes(here: Path) -> None:
    files = ("--plot", "gap.png", "--out", "points.csv", "--out", "gap.json")
    text = ok("gap", "--units", "silu,swiglu", "--model", "gpt2", "--seeds", "2", *TINY, "--steps", "6", *files)
    flat = " ".join(text.split())
    assert "swiglu compared with silu, gpt2, text.txt, sgd: 2 and 2 runs" in flat
    assert "adamw compared with sgd, gpt2, text.txt, swiglu" in flat and "p cannot fall below 0.33" in flat
    assert "not valid" in flat and "tokens/s" in flat
    assert (here / "gap.png").stat().st_size > 10_000 and len(pd.read_csv(here / "points.csv")) == 8 * 4
    assert len(Gap.load(here / "gap.json").histories) == 8
    again = document("gap", "--record", "gap.json")
    assert [c["second"] for c in again["comparisons"]] == ["swiglu", "swiglu", "adamw", "adamw"]
    assert again["runs"] == 8 and again["diverged"] == []


def test_one_unit_alone_is_nothing_to_compare() -> None:
    single = ("--units", "glu", "--optimizer", "adamw", "--model", "gpt2", "--seeds", "1", "--steps", "2")
    assert "no pair to compare" in ok("gap", *single, *TINY)


def test_ctrl_c_says_how_to_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def pressing(what: str):
        yield lambda done, total, speed: os.kill(os.getpid(), signal.SIGINT) if done == 4 else None

    monkeypatch.setattr(output, "progress", pressing)
    handler = signal.getsignal(signal.SIGINT)
    long = ("train", "gpt2", "glu", *TINY, "--steps", "100000")
    try:
        kept, lost = run(*long, "--store", "run"), None
        signal.signal(signal.SIGINT, handler)  # the shell has given up listening
        lost = run(*long)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert kept.exit_code == lost.exit_code == 130
    assert "in run; the same command resumes" in kept.stderr
    assert "nothing was written" in lost.stderr
    assert (here / "run" / "checkpoint.safetensors").exists()
