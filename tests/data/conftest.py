"""Data for tests of problems: never the user's own cache, and real files only where they are at hand."""

import os
from pathlib import Path

import pytest
from loopback import loopback

from gatelab.data import archives

BESIDE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """A cache of its own for each test, and no data folder unless the test asks for it."""
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GATELAB_DATA", raising=False)


GIVEN = os.environ.get("GATELAB_DATA")


@pytest.fixture
def real_data(monkeypatch, own_folders):
    """`GATELAB_DATA` set to a folder with the real data sets."""
    folder = Path(GIVEN) if GIVEN else BESIDE
    if not (folder / "tabular").is_dir():
        pytest.skip("needs the real data sets: set GATELAB_DATA")
    monkeypatch.setenv("GATELAB_DATA", str(folder))
    return folder


@pytest.fixture
def real_enwik8(monkeypatch, own_folders):
    """`GATELAB_DATA` set to a folder with enwik8."""
    folder = Path(GIVEN) if GIVEN else BESIDE
    if archives.first_file([folder / "text", folder], ("enwik8", "enwik8.gz", "enwik8.zip")) is None:
        pytest.skip("needs enwik8: set GATELAB_DATA")
    monkeypatch.setenv("GATELAB_DATA", str(folder))


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network was touched")

    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with loopback() as state:
        yield state
