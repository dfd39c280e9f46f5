"""Ctrl-C stops a fit, threads and long calls included: KeyboardInterrupt comes, and nothing goes on behind it.

The limit distinguishes a hang, which took 70 s, also on a busy machine. Times are not measured.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

# Imported here, since Ctrl-C during an import on first use is not the subject.
from gatelab import GatedRegressor, dynamics, fit, ntk, problem
from gatelab.interrupts import apart, on_threads, stop_if_asked

LIMIT = 60.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")


def pressed(call: Callable[[], object], delay: float) -> float:
    """Ctrl-C during the call; how long it took to be heard."""
    moments: list[float] = []

    def press() -> None:
        moments.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(delay, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
        return time.monotonic() - moments[0]
    finally:
        timer.cancel()


def calm() -> bool:
    """Whether no thread of ours is left within the limit."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if not [t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor")]:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("delay", [0.3, pytest.param(1.5, marks=pytest.mark.slow)])
def test_a_long_fit_here(delay: float) -> None:
    target = problem("friedman1", n=2000)
    assert pressed(lambda: fit("glu", target, 40), delay) < LIMIT
    assert calm()
    again = fit("glu", problem("x**2 + y**2", n=100), 1, starts=1, rounds=0)
    assert np.isfinite(again.test_rmse)


def test_a_regressor_leaves_no_trace() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (1500, 5))
    model = GatedRegressor(random_state=0)
    assert pressed(lambda: model.fit(x, np.sin(3 * x[:, 0]) * x[:, 1]), 0.5) < LIMIT
    assert calm()
    assert not hasattr(model, "network_")


def trained() -> object:
    x = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    return dynamics.train("glu", x, x[:, 0], 2048, lr=1e-6, steps=100_000, seeds=2)


def kernels() -> object:
    """One pass of all samples takes a while: it is left to end by itself."""
    model = torch.nn.Sequential(torch.nn.Linear(200, 1500), torch.nn.ReLU(), torch.nn.Linear(1500, 1)).double()
    x = torch.randn(1000, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return [ntk.empirical(model, x) for _ in range(1000)]


def spectra() -> object:
    a = torch.randn(700, 700, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return [ntk.spectrum(a @ a.T, full=True) for _ in range(500)]


@pytest.mark.parametrize("work", [trained, kernels, spectra])
def test_other_long_work(work: Callable[[], object]) -> None:
    assert pressed(work, 0.5) < LIMIT
    assert calm()


def test_a_call_that_cannot_be_cut_is_left_to_itself() -> None:
    """As LAPACK is: the main thread hears at once, the call ends when it ends."""
    goes_on, ended = threading.Event(), threading.Event()

    def call() -> None:
        goes_on.wait(LIMIT)
        ended.set()

    assert pressed(lambda: apart(call), 0.2) < LIMIT
    assert not ended.is_set()
    goes_on.set()
    assert ended.wait(LIMIT)


def test_threads_hear_the_sign_in_the_midst_of_their_work() -> None:
    stopped = threading.Event()

    def work(_: int) -> None:
        try:
            while True:
                stop_if_asked()
                time.sleep(0.01)
        finally:
            stopped.set()

    assert pressed(lambda: list(on_threads(work, [0, 1], threads=2)), 0.2) < LIMIT
    assert stopped.wait(LIMIT)
    assert calm()
    stop_if_asked()  # the main thread was never asked


def test_an_error_in_one_thread_stops_the_others() -> None:
    def work(piece: int) -> None:
        if piece == 0:
            raise KeyError(piece)
        while True:
            stop_if_asked()
            time.sleep(0.01)

    with pytest.raises(KeyError):
        list(on_threads(work, [0, 1], threads=2))
    assert calm()


def test_a_call_apart_is_the_call() -> None:
    assert apart(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0)
    before = torch.get_num_threads()
    with torch.no_grad():
        assert apart(lambda: (torch.is_grad_enabled(), torch.get_num_threads())) == (False, before)
    assert torch.get_num_threads() == before
