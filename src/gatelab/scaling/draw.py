"""From the points of a study to the arrays that `gatelab.plotting` draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from gatelab.errors import GatelabError
from gatelab.plotting import Curve, scaling_figure
from gatelab.units import unit as as_unit

if TYPE_CHECKING:
    from gatelab.scaling.result import Against, Scaling

Paper = Mapping[tuple[str, str], float]
Reference = Mapping[str, Mapping[int, float]]
AXES: dict[Against, str] = {"n": "neurons n", "P": "parameters P"}


def draw(
    study: Scaling,
    *,
    title: str | None = None,
    paper: Paper | None = None,
    reference: Reference | None = None,
    widths: tuple[int, int] | None = None,
    flagged: bool = False,
    reach: float = 1.5,
    ax: Any = None,
) -> Figure:
    """The figure of a study: error against n, error against P, local slopes.

    `paper` maps (unit, "n" or "P") to a published slope, `reference` maps a unit to {width: RMSE} of other code; both
    are drawn beside ours. Slopes are over `widths`, all by default, and with `flagged=True` take every point, as they
    would without floors and limits. A local slope is that of the widths within a factor `reach` on either side. `ax`
    are three axes to draw into.
    """
    options = {"paper": paper, "reference": reference, "widths": widths, "flagged": flagged}
    panels = [(label, curves(study, against, **options)) for against, label in AXES.items()]
    local = local_curves(study, reach)
    title = title or f"How the error falls on {study.problem}"
    return scaling_figure(panels, title=title, local=local, local_orders=orders(study), ax=ax)


def curves(
    study: Scaling,
    against: Against,
    *,
    paper: Paper | None = None,
    reference: Reference | None = None,
    widths: tuple[int, int] | None = None,
    flagged: bool = False,
) -> list[Curve]:
    """A curve a unit against n or P, with its slope as a note."""
    return [_curve(study, u, against, paper or {}, reference or {}, widths, flagged) for u in study.units]


def local_curves(study: Scaling, reach: float = 1.5) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each unit its name, sizes and local slopes."""
    return [(name, *_local_slopes(study, name, reach)) for name in study.units]


def orders(study: Scaling) -> dict[str, int]:
    """The orders of the units that have one."""
    return {name: order for name in study.units if (order := _order(name)) is not None}


def _curve(
    study: Scaling,
    name: str,
    against: Against,
    paper: Paper,
    reference: Reference,
    widths: tuple[int, int] | None,
    flagged: bool,
) -> Curve:
    sizes, errors = study.curve(name, against=against, flagged=True)
    slope = study._slope_or_none(name, against, "best", widths, flagged)
    published = paper.get((name, against))
    return Curve(
        label=name,
        sizes=sizes,
        errors=errors,
        kept=_kept(study, name, widths, flagged),
        limit=_limits(study, name),
        note=f"slope {slope}" if slope else "too few points for a slope",
        paper=None if published is None else f"{published:.2f}",
        reference=_crosses(study, name, against, reference.get(name, {})),
    )


def _kept(study: Scaling, name: str, widths: tuple[int, int] | None, flagged: bool) -> np.ndarray:
    """Which points (widths, seeds) take part in the slope."""
    sizes, errors = study.curve(name, flagged=flagged)
    low, high = widths or (sizes[0], sizes[-1])
    return np.isfinite(errors) & ((sizes >= low) & (sizes <= high))[:, None]


def _local_slopes(study: Scaling, name: str, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Slopes of neighbouring widths, each placed at the middle of those it was made from.

    Neighbours are counted by ratio: five consecutive widths span a factor of 5 at the left end and of 1.1 at n = 50,
    where the slope would be that of the scatter.
    """
    log_n, log_e = map(np.log, study.best(name))
    middles, slopes = [], []
    for i, centre in enumerate(log_n):
        near = np.abs(log_n - centre) <= np.log(reach)
        near[max(0, i - 1) : i + 2] = True
        if near.sum() >= 2:
            middles.append(np.exp(log_n[near].mean()))
            slopes.append(np.polyfit(log_n[near], log_e[near], 1)[0])
    return np.array(middles), np.array(slopes)


def _limits(study: Scaling, name: str) -> np.ndarray | None:
    by_width = {p.width: p.limit for p in study.points if p.unit == name}
    values = np.array([by_width[w] for w in sorted(by_width)])
    return values if np.isfinite(values).any() else None


def _crosses(
    study: Scaling, name: str, against: Against, errors: Mapping[int, float]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Other code's errors at the widths that the study has too."""
    sizes = {p.width: p.width if against == "n" else p.parameters for p in study.points if p.unit == name}
    common = [w for w in sorted(errors) if w in sizes]
    if not common:
        return None
    return np.array([sizes[w] for w in common], float), np.array([errors[w] for w in common])


def _order(name: str) -> int | None:
    """The order of a unit that the registry knows; a user's own unit has left only its name in the points."""
    try:
        return as_unit(name).order
    except GatelabError:
        return None
