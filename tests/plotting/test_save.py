"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.plotting import new_figure, save

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def small() -> Figure:
    figure = new_figure(2, 1)
    figure.subplots().plot([0, 1], [0, 1])
    return figure


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG", ".pdf"])
def test_the_suffix_decides_and_equal_figures_give_equal_files(tmp_path: Path, suffix: str) -> None:
    one, two = (save(small(), tmp_path / "new" / f"{name}{suffix}").read_bytes() for name in "ab")
    assert one == two and one.startswith(MAGIC[suffix.lower()])
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GatelabError, match=r"fig\.bmp.*\.png, \.svg or \.pdf"):
        save(small(), tmp_path / "fig.bmp")
    assert not list(tmp_path.iterdir())
