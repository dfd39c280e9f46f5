"""A folder of records as `gatelab reproduce` writes them, small and hostile, for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gatelab.plain import to_plain
from gatelab.plotting import Curve, new_figure, scaling_figure, style
from gatelab.plotting.kernels import Cloud, clouds_figure
from gatelab.plotting.svg import svg_text
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.inventory import Item

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
SHORT = "</script><b>"  # in a figure, which has little room
N = np.array([2.0, 4.0, 8.0, 16.0])
ITEMS = (
    Item("scaling", "figure 2", "GLU against n", "-3.08"),
    Item("scaling", "figure 2", "gone", "1"),
    Item("scaling", "table 1", "airfoil, mlp, true split", "-0.25"),
    Item("ntk", "figure 8", "(a)", why="its caption is lost", missing="nothing was trained on Tiny ImageNet"),
    Item("ntk", "definition 1", "the kernel", why="a definition", measurable=False),
)


def write_records(out: Path) -> Path:
    """Three studies of three papers: curves against n and P, a heat map, runs with hostile words."""
    _write(out, "scaling/fig2", _curves, {"errors": pd.DataFrame({"n": [2, 4], "rmse": [0.1, 1 / 3], "unit": EVIL})})
    _write(out, "ntk/fig4", _heat, {}, recorded=True, device="one H200", ours=Interval(1.5, 1.0, 2.0))
    _write(out, "linearize/table1", _clouds, {"long": pd.DataFrame({"m": range(700)})}, ours=Interval(-4, -4, -4))
    return out


def claim(what: str, ours: Interval = Interval(-3.0, -3.1, -2.9), **changed: Any) -> dict[str, Any]:
    base = {"paper": -3.08, "rule": "slope", "note": "n^-3."}
    return to_plain(Claim.of(what, ours, **(base | changed)))


@cache
def _svg(draw: Callable[[], Any]) -> str:
    """A figure as SVG, which is drawn once for all tests."""
    with style():
        return svg_text(draw())


def _write(out: Path, study: str, draw: Callable[[], Any], tables: dict[str, pd.DataFrame], **changed: Any) -> None:
    paper, stem = study.split("/")
    folder = out / paper
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{stem}-{name}.csv", index=False)
    (folder / f"{stem}.svg").write_text(_svg(draw))
    ours = changed.pop("ours", Interval(-3.0, -3.1, -2.9))
    place = {"scaling/fig2": "figure 2, GLU against n"}.get(study, "")
    record = {
        "study": study,
        "title": f"Title of {study} <b>",
        "paper": "It falls like n^-2.13.",
        "command": f"gatelab reproduce {study}",
        "gatelab": "0.8.0",
        "fingerprint": "0",
        "quick": False,
        "seconds": 12.34,
        "date": "2025-11-02T10:00:00+00:00",
        "device": "2 cores",
        "recorded": False,
        "claims": [
            claim("slope of the glu against n", ours, place=place),
            claim(EVIL, rule="new", paper=EVIL, unit=EVIL, note=EVIL),
        ],
        "notes": [EVIL, "A note."],
        "files": [f"{stem}-{name}.csv" for name in tables] + [f"{stem}.json"],
    } | changed
    (folder / f"{stem}.json").write_text(json.dumps(record))


def _curves() -> Any:
    curves = [Curve(unit, N, np.outer(N**-k, [1.0, 1.5]), note=f"slope -{k}") for unit, k in (("mlp", 2), ("glu", 3))]
    return scaling_figure([("neurons n", curves), ("parameters P", curves)], title="L(n) and L(P)")


def _heat() -> Any:
    with style():
        figure = new_figure(5, 3)
        axes = figure.subplots()
        shown = axes.imshow(np.arange(16.0).reshape(4, 4))
        axes.set(title="a kernel", xlabel="sample j", ylabel="sample i")
        figure.colorbar(shown, ax=axes, label="entries")
    return figure


def _clouds() -> Any:
    run = np.array([[2.0, 0.1], [1.0, 0.2]])
    clouds = [Cloud("ReLU", [run], "#0072B2"), Cloud(SHORT, [run + 0.1], "#D55E00", "s", hollow=True)]
    return clouds_figure([("(a)", clouds), (SHORT, clouds)], SHORT)
