"""The study of encrypted inference: its quick run, its parts, and what its record says, in the page too."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from gatelab.feedforward.gates import activation
from gatelab.linearization import find_published
from gatelab.studies import Request
from gatelab.studies.linearize import encrypted as study

TABLES = ("values", "blocks", "plans", "layers")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None or find_spec("tenseal") is None, reason="needs both packages")
def test_the_quick_study() -> None:
    progress: list[tuple[int, int]] = []
    request = Request(quick=True, progress=lambda done, total: progress.append((done, total)))
    tables = study.unrecorded().run(request).tables
    assert tuple(tables) == TABLES and progress[-1][0] == progress[-1][1] == len(progress)
    assert (tables["values"]["excess"] < 0).all() and (tables["values"]["security"] == 128).all()
    blocks = tables["blocks"]
    assert (blocks["total"] <= blocks["proved"] + blocks["encryption"]).all() and (blocks["encryption"] < 1e-6).all()
    for _, rows in tables["plans"].groupby("model"):
        ours = study.cheapest(rows, "our plan")
        assert ours is not None
        for way in ("uniform minimax", *study.NAMES):
            other = study.cheapest(rows, way)
            assert other is None or other["levels"] >= ours["levels"]
    plans = tables["plans"].groupby("model")["levels"].first()
    assert (tables["layers"].groupby("model")["levels"].sum() == plans).all()


def test_stretched_pieces_are_near_silu() -> None:
    z = np.linspace(-12, 12, 2001)
    silu = activation("silu")(torch.from_numpy(z)).numpy()
    for name in study.NAMES:
        assert np.abs(study.fitting(find_published(name), "silu")(z) - silu).max() < 0.06
        assert study.fitting(find_published(name), "gelu") is find_published(name)


def rows_of(*rows: tuple[str, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["way", "levels", "quality", "quality low"]).assign(**{"most of a layer": 9})


def test_a_way_is_told_by_its_cheapest_row_that_is_certain() -> None:
    rows = rows_of(("a", 10, 0.9995, 0.9985), ("a", 12, 0.9996, 0.9994), ("a", 14, 1.0, 1.0), ("b", 9, 0.5, 0.4))
    assert study.told_of(rows, "a") == "a 12 (0.99960)"
    assert study.told_of(rows, "b") == "b not with up to 9 levels a layer (quality 0.5000)"
