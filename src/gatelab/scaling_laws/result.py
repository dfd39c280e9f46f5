"""`Scaling`: the points of a study, with slopes, tables and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.display import counted, one_line, shorten
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward import unit as as_unit
from gatelab.plotting import Curve, saved, scaling_figure
from gatelab.plotting.theme import html
from gatelab.scaling_laws.slopes import Aggregate, Decay, Slope, decay, local_slopes, slope

Against = Literal["n", "P"]
Flag = Literal["", "floor", "interpolation", "noise", "optimizer", "failed"]
Paper = Mapping[tuple[str, str], float]
Reference = Mapping[str, Mapping[int, float]]
AXES: dict[Against, str] = {"n": "neurons n", "P": "parameters P"}
_NO_SLOPE = Slope(np.nan, np.nan, np.nan, intercept=np.nan, points=0)


@dataclass(frozen=True)
class Point:
    """One fit: its unit, width, seed, errors, limit, their ratio, and a flag if slopes leave it out.

    Flags: `floor`, the error is at the rounding of float64. `interpolation`, the parameters are at least half as many
    as the data. `noise`, at least a tenth of the error is due to noise in the data. `optimizer`, the error is above 1.1
    times the limit, due to the solver or to a width below the asymptotic range. `failed`, the run raised an error.

    A network contains narrower ones and those of simpler units. If its training error was larger than theirs, the fit
    was repeated from the contained network, which `start` names; `breaks` names one whose error is still smaller.
    """

    unit: str
    width: int
    parameters: int
    seed: int
    train_rmse: float
    test_rmse: float
    limit: float
    ratio: float
    flag: Flag
    status: str
    seconds: float
    start: str = ""
    breaks: str = ""

    def __repr__(self) -> str:
        where = f"{self.unit}, width {self.width}, seed {self.seed}"
        return one_line(self, f"{where}: test RMSE {self.test_rmse:.2g}, {self.flag or self.status}")

    def size(self, against: Against) -> int:
        """The number of neurons or parameters."""
        if against == "n":
            return self.width
        return self.parameters


@dataclass(frozen=True)
class Scaling:
    """The points of a study on one problem, with slopes, tables and figures."""

    problem: str
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        text = f"{shorten(', '.join(self.units))} on {shorten(self.problem)}: {counted(len(self.points), 'fit')}"
        if self.broken:
            text += f", {len(self.broken)} with a larger training error than a contained network"
        return one_line(self, text)

    @property
    def broken(self) -> tuple[Point, ...]:
        """The points whose training error exceeds that of a network that they contain."""
        return tuple(p for p in self.points if p.breaks)

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the units, in the order of the points."""
        return tuple(dict.fromkeys(p.unit for p in self.points))

    def table(self) -> pd.DataFrame:
        """One row per fit."""
        return pd.DataFrame([asdict(p) for p in self.points])

    def curve(
        self,
        unit: str,
        *,
        against: Against = "n",
        widths: tuple[int, int] | None = None,
        flagged: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sizes (k,) and test errors (k, seeds) of a unit; flagged points are NaN unless `flagged`."""
        if against not in AXES:
            raise unknown_name("size", str(against), AXES)
        mine = [p for p in self.points if p.unit == unit and (widths is None or widths[0] <= p.width <= widths[1])]
        if not mine:
            raise GatelabError(f"no point of unit {unit!r} in that range; the study has {', '.join(self.units)}")
        rows = sorted({p.width for p in mine})
        columns = sorted({p.seed for p in mine})
        errors = np.full((len(rows), len(columns)), np.nan)
        sizes = np.zeros(len(rows))
        for p in mine:
            i = rows.index(p.width)
            sizes[i] = p.size(against)
            if flagged or not p.flag:
                errors[i, columns.index(p.seed)] = p.test_rmse
        return sizes, errors

    def best(self, unit: str, *, against: Against = "n") -> tuple[np.ndarray, np.ndarray]:
        """Sizes and smallest test errors over seeds, including flagged points."""
        sizes, errors = self.curve(unit, against=against, flagged=True)
        measured = np.isfinite(errors).any(axis=1)
        return sizes[measured], np.nanmin(errors[measured], axis=1)

    def slope(
        self,
        unit: str,
        *,
        against: Against = "n",
        widths: tuple[int, int] | None = None,
        aggregate: Aggregate = "best",
        flagged: bool = False,
    ) -> Slope:
        """The slope of a unit over a range of widths, without flagged points unless `flagged`."""
        return slope(*self.curve(unit, against=against, widths=widths, flagged=flagged), aggregate=aggregate)

    def decay(self, unit: str, *, against: Against = "P", widths: tuple[int, int] | None = None) -> Decay:
        """Whether the best errors of a unit fall as a power, exponentially or root-exponentially, with the rate."""
        return decay(*self.curve(unit, against=against, widths=widths))

    def slopes(self, *, widths: tuple[int, int] | None = None, flagged: bool = False) -> pd.DataFrame:
        """One row per unit and axis (n and P): slope, interval, and the numbers of points used and left out."""
        rows = []
        for name, against, aggregate in product(self.units, AXES, get_args(Aggregate)):
            inside = [p for p in self.points if p.unit == name and (not widths or widths[0] <= p.width <= widths[1])]
            options = {"against": against, "aggregate": aggregate}
            s = self.slope_or_none(name, **options, widths=widths, flagged=flagged) or _NO_SLOPE
            left_out = sum(bool(p.flag) and not flagged for p in inside)
            interval = {"slope": s.value, "low": s.low, "high": s.high}
            rows.append({"unit": name, **options, **interval, "widths": s.points, "left_out": left_out})
        return pd.DataFrame(rows)

    def slope_or_none(self, unit: str, **options: Any) -> Slope | None:
        """The slope, or None if too few points are left."""
        with suppress(GatelabError):
            return self.slope(unit, **options)
        return None

    def local_slopes(self, unit: str, *, against: Against = "n", window: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and local slopes of the best-of-seeds curve, including flagged points."""
        sizes, errors = self.best(unit, against=against)
        return sizes, local_slopes(sizes, np.where(errors > 0, errors, np.nan), window=window)

    def ratio(self, unit: str, width: int) -> float:
        """Test RMSE over the limit, for the best seed at a width."""
        ratios = [p.ratio for p in self.points if p.unit == unit and p.width == width]
        if not ratios:
            raise GatelabError(f"the study has no fit of {unit!r} at width {width}; give one of its units and widths")
        return min(ratios)

    def plot(self, path: str | Path | None = None, *, ax: Any = None, **options: Any) -> Figure:
        """Error against n and against P with limits and slopes, and the local slopes.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into your three axes `ax` if given; `options` are
        those of `gatelab.scaling_laws.result.draw`: a title, the paper's slopes, errors of other code.
        """
        return saved(draw(self, ax=ax, **options), path)

    def _repr_html_(self) -> str:
        rows = []
        for name in self.units:
            mine = [p for p in self.points if p.unit == name]
            slopes = [str(self.slope_or_none(name, against=against) or "none") for against in AXES]
            best = np.nanmin([np.inf, *(p.test_rmse for p in mine)])
            rows.append([name, *slopes, f"{best:.2e}", str(sum(bool(p.flag) for p in mine))])
        columns = ("unit", "slope against n", "against P", "least RMSE", "left out")
        heading = f"{counted(len(self.points), 'fit')} on {self.problem}"
        return html(heading, rows, columns=columns, figure=self.plot(title=self.problem))

    def to_json(self) -> str:
        """The study as JSON text, for `from_json`."""
        return json.dumps({"problem": self.problem, "points": [asdict(p) for p in self.points]})

    @classmethod
    def from_json(cls, text: str) -> Scaling:
        """Read the study that `to_json` wrote."""
        raw = json.loads(text)
        return cls(raw["problem"], tuple(Point(**p) for p in raw["points"]))


def draw(study: Scaling, *, title: str | None = None, reach: float = 1.5, ax: Any = None, **options: Any) -> Figure:
    """The figure of a study: error against n, error against P, local slopes.

    Local slopes are within a factor `reach` on either side; `ax` are three axes to draw into, and the other options are
    those of `curves`.
    """
    panels = [(label, curves(study, against, **options)) for against, label in AXES.items()]
    known = orders(study)
    # Local slopes of errors that fall faster than any power are below the range of the orders.
    local = [
        curve for curve in local_curves(study, reach) if curve[0] in known or _not_a_power(study, curve[0]) is None
    ]
    title = title or f"How the error falls on {study.problem}"
    return scaling_figure(panels, title=title, local=local, local_orders=known, ax=ax)


def curves(
    study: Scaling,
    against: Against,
    *,
    paper: Paper | None = None,
    reference: Reference | None = None,
    widths: tuple[int, int] | None = None,
    flagged: bool = False,
) -> list[Curve]:
    """One curve per unit against n or P, with its slope as a note, or the rate of one that does not fall as a power.

    `paper` maps (unit, "n" or "P") to a published slope, and `reference` maps a unit to {width: RMSE} of other code.
    Slopes are over `widths`, and with `flagged` over all points.
    """
    all_curves = []
    for name in study.units:
        sizes, errors = study.curve(name, against=against, flagged=True)
        slope = study.slope_or_none(name, against=against, widths=widths, flagged=flagged)
        note = f"slope {slope}" if slope else "too few points for a slope"
        found = _not_a_power(study, name, against=against, widths=widths)
        if found is not None:
            note = f"{found.form.replace('-', ' ')}, rate {found.rate}"
        published = (paper or {}).get((name, against))
        if published is not None:
            published = f"{published:.2f}"
        inside, left = study.curve(name, flagged=flagged and found is None)
        low, high = widths or (inside[0], inside[-1])
        fitted = np.isfinite(left) & ((inside >= low) & (inside <= high))[:, None]
        own = {p.width: p for p in sorted(study.points, key=lambda p: p.width) if p.unit == name}
        limit = np.array([p.limit for p in own.values()])
        other = {own[n].size(against): error for n, error in (reference or {}).get(name, {}).items() if n in own}
        shown = {"fitted": fitted, "note": note, "paper": published}
        if np.isfinite(limit).any():
            shown["limit"] = limit
        if other:
            shown["reference"] = np.array(sorted(other.items()), float).T
        all_curves.append(Curve(label=name, sizes=sizes, errors=errors, **shown))
    return all_curves


def local_curves(study: Scaling, reach: float = 1.5) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each unit its name, the centers of widths within a factor `reach`, and the slopes there."""
    all_curves = []
    for name in study.units:
        sizes, errors = study.best(name)
        log_n, log_e = np.log(sizes[errors > 0]), np.log(errors[errors > 0])
        middles, slopes = [], []
        for i, center in enumerate(log_n):
            near = np.abs(log_n - center) <= np.log(reach)
            near[max(0, i - 1) : i + 2] = True
            if near.sum() >= 2:
                middles.append(np.exp(log_n[near].mean()))
                slopes.append(np.polyfit(log_n[near], log_e[near], 1)[0])
        all_curves.append((name, np.array(middles), np.array(slopes)))
    return all_curves


def orders(study: Scaling) -> dict[str, int]:
    """The orders of registered units that have one; points hold only the name of a custom unit."""
    known = {}
    for name in study.units:
        with suppress(GatelabError):
            known[name] = as_unit(name).order
    return {name: order for name, order in known.items() if order is not None}


def _not_a_power(study: Scaling, name: str, **options: Any) -> Decay | None:
    """The form of the errors of a unit without an order, if a power is rejected."""
    if name not in orders(study):
        with suppress(GatelabError):
            found = study.decay(name, **options)
            if "power" not in found.accepted:
                return found
    return None
