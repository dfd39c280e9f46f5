from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import gatelab
from gatelab.sweep import Store

HERE = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `import gatelab.sweep` takes a fraction of a second, for programs started by the dozen.

    All of it is the real package but for the front page, which imports torch.
    """
    folder = tmp_path_factory.mktemp("light")
    (folder / "gatelab").mkdir()
    (folder / "gatelab" / "__init__.py").write_text(f"__path__.append({str(Path(gatelab.__file__).parent)!r})\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(HERE)])}


@pytest.fixture
def light_path(light: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the worker processes of a sweep in the test's own process."""
    monkeypatch.setattr(sys, "path", [light["PYTHONPATH"].split(os.pathsep)[0], *sys.path])
