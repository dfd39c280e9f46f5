"""`Scaling`: the points of a study and what follows from them, and the figure that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gatelab.display import counted, one_line, shorten
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward import unit as as_unit
from gatelab.plotting import Curve, scaling_figure
from gatelab.scaling_laws.slopes import Aggregate, Slope, local_slopes, slope

if TYPE_CHECKING:  # tables and figures are for the one who looks at them, not for every worker: imported where used
    import pandas as pd
    from matplotlib.figure import Figure

Against = Literal["n", "P"]
Flag = Literal["", "floor", "interpolation", "noise", "optimiser", "failed"]
Paper = Mapping[tuple[str, str], float]
Reference = Mapping[str, Mapping[int, float]]
AXES: dict[Against, str] = {"n": "neurons n", "P": "parameters P"}
_NO_SLOPE = Slope(np.nan, np.nan, np.nan, intercept=np.nan, points=0)


@dataclass(frozen=True)
class Point:
    """One fit: what was fitted, its errors, the limit, their ratio, and the reason, if any, why slopes leave it out.

    The reasons are flags. `floor`: at the rounding of float64. `interpolation`: so many parameters that the data, not
    the unit, set the error. `noise`: without what the noise of the data leaves in it, about sigma (P/N)^1/2 on clean
    test points, the error would be less by a tenth or more. `optimiser`: above 1.1 times the limit, so that training
    (or a width below the asymptotic range) sets it. `failed`: the run did not end; its errors are NaN.

    A network contains narrower ones and those of simpler units, so that its training error should not be larger than
    theirs. Where a search missed that, the fit was made again from the network that it contains, and `start` says from
    which. `breaks` names the network whose training error is still less, and is empty where there is none.
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
        return one_line(
            self,
            f"{self.unit}, width {self.width}, seed {self.seed}: test RMSE {self.test_rmse:.2g}, "
            f"{self.flag or self.status}",
        )

    def size(self, against: Against) -> int:
        """The number of neurons, or of parameters."""
        if against == "n":
            return self.width
        return self.parameters


@dataclass(frozen=True)
class Scaling:
    """The points of a study on one problem, and what follows from them."""

    problem: str
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        text = f"{shorten(', '.join(self.units))} on {shorten(self.problem)}: {counted(len(self.points), 'fit')}"
        if self.broken:
            text += f", {len(self.broken)} with a larger training error than a network that they contain"
        return one_line(self, text)

    @property
    def broken(self) -> tuple[Point, ...]:
        """The points whose training error is larger than that of a network that theirs contains."""
        return tuple(p for p in self.points if p.breaks)

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the units, in the order of the points."""
        return tuple(dict.fromkeys(p.unit for p in self.points))

    def table(self) -> pd.DataFrame:
        """A row a fit."""
        import pandas as pd

        return pd.DataFrame([asdict(p) for p in self.points])

    def curve(
        self,
        unit: str,
        *,
        against: Against = "n",
        widths: tuple[int, int] | None = None,
        flagged: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sizes (k,) and test errors (k, seeds) of a unit; points left out are NaN unless `flagged`."""
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
        """Sizes and least test errors over the seeds, flagged points included; without sizes where every fit failed."""
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
        """The global slope of a unit over a range of widths, without the flagged points unless asked for."""
        return slope(*self.curve(unit, against=against, widths=widths, flagged=flagged), aggregate=aggregate)

    def slopes(self, *, widths: tuple[int, int] | None = None, flagged: bool = False) -> pd.DataFrame:
        """A row a unit and axis (n and P): slope, interval, how many points made it and how many were left out."""
        import pandas as pd

        rows = []
        for name in self.units:
            inside = [p for p in self.points if p.unit == name and (not widths or widths[0] <= p.width <= widths[1])]
            for against in ("n", "P"):
                for aggregate in ("best", "median"):
                    options = {"against": against, "aggregate": aggregate}
                    s = self.slope_or_none(name, **options, widths=widths, flagged=flagged) or _NO_SLOPE
                    left_out = sum(bool(p.flag) and not flagged for p in inside)
                    interval = {"slope": s.value, "low": s.low, "high": s.high}
                    rows.append({"unit": name, **options, **interval, "widths": s.points, "left_out": left_out})
        return pd.DataFrame(rows)

    def slope_or_none(self, unit: str, **options: Any) -> Slope | None:
        """What `slope` gives, or None where too few points are left for one."""
        try:
            return self.slope(unit, **options)
        except GatelabError:
            return None

    def local_slopes(self, unit: str, *, against: Against = "n", window: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and local slopes of the best-of-seeds curve, all points included."""
        sizes, errors = self.best(unit, against=against)
        return sizes, local_slopes(sizes, np.where(errors > 0, errors, np.nan), window=window)

    def ratio(self, unit: str, width: int) -> float:
        """Test RMSE over the limit of the best seed at that width."""
        ratios = [p.ratio for p in self.points if p.unit == unit and p.width == width]
        if not ratios:
            raise GatelabError(f"the study has no fit of {unit!r} at width {width}")
        return min(ratios)

    def plot(self, path: str | Path | None = None, *, ax: Any = None, **options: Any) -> Figure:
        """Error against n and against P with limits and slopes, and the local slopes.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into three axes of your own with `ax`. Further
        options are those of `gatelab.scaling_laws.result.draw`: a title, the paper's slopes, other code's errors.
        """
        from gatelab.plotting import saved

        return saved(draw(self, ax=ax, **options), path)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = []
        for name in self.units:
            mine = [p for p in self.points if p.unit == name]
            slopes = [str(self.slope_or_none(name, against=against) or "none") for against in ("n", "P")]
            best = np.nanmin([np.inf, *(p.test_rmse for p in mine)])
            left_out = sum(bool(p.flag) for p in mine)
            rows.append([name, *slopes, f"{best:.2e}", str(left_out)])
        columns = ("unit", "slope against n", "against P", "least RMSE", "left out")
        heading = f"{counted(len(self.points), 'fit')} on {self.problem}"
        return html(heading, rows, columns=columns, figure=self.plot(title=self.problem))

    def to_json(self) -> str:
        """The study as text, which `from_json` reads."""
        return json.dumps({"problem": self.problem, "points": [asdict(p) for p in self.points]})

    @classmethod
    def from_json(cls, text: str) -> Scaling:
        """The study that `to_json` wrote."""
        raw = json.loads(text)
        return cls(raw["problem"], tuple(Point(**p) for p in raw["points"]))


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
    all_curves = []
    for name in study.units:
        sizes, errors = study.curve(name, against=against, flagged=True)
        slope = study.slope_or_none(name, against=against, widths=widths, flagged=flagged)
        note = f"slope {slope}" if slope else "too few points for a slope"
        published = (paper or {}).get((name, against))
        if published is not None:
            published = f"{published:.2f}"
        fitted, limit = _in_slope(study, name, widths, flagged), _limits(study, name)
        crosses = _crosses(study, name, against, (reference or {}).get(name, {}))
        shown = {"fitted": fitted, "limit": limit, "note": note, "paper": published, "reference": crosses}
        all_curves.append(Curve(label=name, sizes=sizes, errors=errors, **shown))
    return all_curves


def local_curves(study: Scaling, reach: float = 1.5) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each unit its name, the middles of neighbouring widths, and their slopes.

    Neighbours are counted by ratio: five consecutive widths span a factor of 5 at the left end and of 1.1 at n = 50,
    where the slope would be that of the scatter.
    """
    all_curves = []
    for name in study.units:
        sizes, errors = study.best(name)
        log_n, log_e = np.log(sizes[errors > 0]), np.log(errors[errors > 0])
        middles, slopes = [], []
        for i, centre in enumerate(log_n):
            near = np.abs(log_n - centre) <= np.log(reach)
            near[max(0, i - 1) : i + 2] = True
            if near.sum() >= 2:
                middles.append(np.exp(log_n[near].mean()))
                slopes.append(np.polyfit(log_n[near], log_e[near], 1)[0])
        all_curves.append((name, np.array(middles), np.array(slopes)))
    return all_curves


def orders(study: Scaling) -> dict[str, int]:
    """The orders of the units that have one and that the registry knows.

    A user's own unit has left only its name in the points.
    """
    known = {}
    for name in study.units:
        with suppress(GatelabError):
            known[name] = as_unit(name).order
    return {name: order for name, order in known.items() if order is not None}


def _in_slope(study: Scaling, name: str, widths: tuple[int, int] | None, flagged: bool) -> np.ndarray:
    """Which points (widths, seeds) take part in the slope."""
    sizes, errors = study.curve(name, flagged=flagged)
    low, high = widths or (sizes[0], sizes[-1])
    return np.isfinite(errors) & ((sizes >= low) & (sizes <= high))[:, None]


def _limits(study: Scaling, name: str) -> np.ndarray | None:
    by_width = {p.width: p.limit for p in study.points if p.unit == name}
    values = np.array([by_width[w] for w in sorted(by_width)])
    return values if np.isfinite(values).any() else None


def _crosses(
    study: Scaling, name: str, against: Against, errors: Mapping[int, float]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Other code's errors at the widths that the study has too."""
    sizes = {p.width: p.size(against) for p in study.points if p.unit == name}
    common = [w for w in sorted(errors) if w in sizes]
    if not common:
        return None
    return np.array([sizes[w] for w in common], float), np.array([errors[w] for w in common])
