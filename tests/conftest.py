"""What all tests share."""

import functools
import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.testing
from xdist.scheduler import LoadFileScheduling

STUDIES = "tests/studies/"


class ByFile(LoadFileScheduling):
    """The tests of a file stay together on one worker, and so do those that look at the quick studies of one paper.

    What they share, the fixtures of a module or of a session, is made once then, and not by every worker again.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if not file.startswith(STUDIES):
            return file
        place = file.removeprefix(STUDIES + "test_") + name.partition("[")[2]
        return next((paper for paper in ("ntk", "linearize") if paper in place), "scaling")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: Python need not look through it for garbage again and again.

    That took a third of the time of the collection and a twentieth of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def commands_are_built_once() -> Iterator[None]:
    """Typer's runner builds the tree of all commands for every call: three quarters of what a refused call costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(autouse=True, scope="module")
def shared_modules_start_alike() -> None:
    """A module that a fixture builds once for all tests of a file has the same weights in any order of files."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def modules_start_alike() -> None:
    """A module that a test builds without a seed has the same weights in every run and in every order of tests."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts background jobs with Ctrl-C ignored: tests would wait for ever for an interrupt never heard."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 5,600 bytes on which ladders of small decoders are trained."""
    path = tmp_path_factory.mktemp("text") / "gates.txt"
    path.write_bytes(b"the gate opens and the line passes; the gate closes and nothing does. " * 80)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the present one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
