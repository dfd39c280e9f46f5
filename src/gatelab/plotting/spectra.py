"""Spectral densities, measured and expected, on a linear or a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gatelab.plotting.style import canvas, looks, style

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DensityCurve:
    """One density over eigenvalues x; `ends` are marked on the axis, `note` stands in the legend."""

    label: str
    x: Array
    density: Array
    ends: tuple[float, ...] = ()
    note: str = ""
    line: Literal["-", "--", "-.", ":"] = "-"


def density_figure(curves: Sequence[DensityCurve], *, log: bool = False, title: str = "", ax: Any = None) -> Figure:
    """All curves in one panel. With `log` densities are per decade of the eigenvalue."""
    appearance = looks([c.label for c in curves])
    with style():
        place = canvas(4.8, 3.4 + 0.18 * len(curves), 1, ax)
        panel = place.panels[0]
        for curve in curves:
            colour = appearance[curve.label].colour
            legend = f"{curve.label}: {curve.note}" if curve.note else curve.label
            panel.plot(curve.x, curve.density, curve.line, color=colour, label=legend)
            panel.fill_between(curve.x, curve.density, color=colour, alpha=0.12, linewidth=0)
            for end in curve.ends:
                panel.plot([end], [0], marker="|", markersize=12, color=colour, clip_on=False)
        if log:
            panel.set_xscale("log")
        panel.set_xlabel("eigenvalue")
        panel.set_ylabel("share of eigenvalues per decade" if log else "density")
        panel.set_ylim(bottom=0)
        panel.set_title(title)
        place.legend()
    return place.figure
