"""Where data lie: the folder that a user names, and the cache."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path | None:
    """`GATELAB_DATA`, a folder of data sets for use offline; None where it is not set."""
    given = os.environ.get("GATELAB_DATA")
    return Path(given).expanduser() if given else None


def cache_folder() -> Path:
    """`GATELAB_CACHE`, or `~/.cache/gatelab`."""
    given = os.environ.get("GATELAB_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "gatelab"
