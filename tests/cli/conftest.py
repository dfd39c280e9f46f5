"""What the tests of commands share."""

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the present one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
