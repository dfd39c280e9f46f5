"""The demonstration: the errors of seven units on the paper's target, slopes and rates, and the reasons for them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab._version import __version__
from gatelab.data import problem
from gatelab.display import Compact, Listener
from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.plotting import save
from gatelab.scaling_laws import Scaling, Slope, scaling
from gatelab.studies.engine import sections
from gatelab.studies.scaling.error_curves import PAPER_SLOPES, SMALL, code_medians, complete, upper_half

UNITS = ("mlp", "relu2", "relu3", "glu", "gqu")
# Units with smooth gates; wider ones are at the rounding of float64.
SMOOTH, MOST_SMOOTH = ("swiglu", "gelu"), 12
AXES: tuple[Literal["n", "P"], ...] = ("n", "P")
NO_SLOPE = Slope(np.nan, np.nan, np.nan, np.nan, 0)  # of a unit with too few points


@dataclass(frozen=True, eq=False)
class Demo(Compact):
    """The result of the demonstration.

    Attributes:
        scaling: The fits of all units at all widths.
        slopes: One row per unit with a relu gate: its slopes, the paper's, and the ratio of its error to the limit.
        rates: One row per unit with a smooth gate: the form in which its error falls, and the rate per parameter.
        figure: The file of the figure.
        files: All files that were written.
        seconds: The duration of the fits.
        reason: Why the slopes differ from the paper's, in measured numbers.
    """

    scaling: Scaling
    slopes: pd.DataFrame
    rates: pd.DataFrame
    figure: Path
    files: tuple[Path, ...]
    seconds: float
    reason: str


def demo(
    out: str | Path,
    *,
    widths: Sequence[int] = range(1, 51),
    jobs: int | None = None,
    progress: Listener | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Demo:
    """Fit seven units to 10 000 points of the paper's target; write demo.png, .csv and .json.

    mlp, relu2, relu3, glu and gqu have slopes; swiglu and gelu, up to 12 neurons, a form of decline and its rate.

    Args:
        out: The folder to write to; it is created if missing.
        widths: The numbers of neurons; those above 12 are left out for swiglu and gelu.
        jobs: The number of processes that fit at once; by default one per core.
        progress: Called after each fit with the number of finished fits and the total.
        sweep: Options of `gatelab.scaling`: with `{"store": "runs.db"}` a second call computes only missing fits.

    Returns:
        The fits, their slopes next to the paper's, and the files.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GatelabError(f"{folder} cannot be made ({error.strerror or error}); give a folder of your own") from error
    began = time.perf_counter()
    options = {"jobs": jobs, **(sweep or {})}
    if progress:
        options["progress"] = lambda count, total, _: progress(count, total)
    few = [width for width in widths if width <= MOST_SMOOTH] or [min(widths)]
    sizes = dict.fromkeys(UNITS, widths) | dict.fromkeys(SMOOTH, few)
    study = scaling(sizes, problem("paper-1d"), sizes, **options)
    complete(study, options.get("store"))
    seconds = time.perf_counter() - began
    slopes, rates, reason = slopes_table(study), rates_table(study), reason_for(study)
    record = {
        "gatelab": __version__,
        "problem": study.problem,
        "seconds": round(seconds, 3),
        "slopes": json.loads(slopes.to_json(orient="records") or "[]"),
        "rates": json.loads(rates.to_json(orient="records") or "[]"),
        "reason": reason,
    }
    files = (
        save(draw(study), folder / "demo.png"),
        write_whole(folder / "demo.csv", study.table().to_csv(index=False)),
        write_whole(folder / "demo.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n"),
    )
    return Demo(study, slopes, rates, files[0], files, seconds, reason)


def draw(study: Scaling) -> Figure:
    title = "Seven units on 1/(1+cos²πx)"
    return study.plot(title=title, paper=PAPER_SLOPES, reference=code_medians(), flagged=True)


def slopes_table(study: Scaling) -> pd.DataFrame:
    """One row per unit: its slopes, the paper's, and the ratio to the limit at the widest."""
    rows = []
    for name in UNITS:
        widest = max(p.width for p in study.points if p.unit == name)
        row: dict[str, object] = {"unit": name}
        for against in AXES:
            s = study.slope_or_none(name, against=against, flagged=True) or NO_SLOPE
            row |= {f"slope_{against}": s.value, f"low_{against}": s.low, f"high_{against}": s.high}
            row[f"paper_{against}"] = PAPER_SLOPES.get((name, against), np.nan)
        row["ratio_to_limit"] = study.ratio(name, widest)
        rows.append(row)
    return pd.DataFrame(rows)


def rates_table(study: Scaling) -> pd.DataFrame:
    """One row per unit with a smooth gate: the form of its errors against P, by a test, and the rate of that form."""
    rows = []
    for name in SMOOTH:
        widest = max((p for p in study.points if p.unit == name), key=lambda p: p.width)
        row: dict[str, object] = {"unit": name, "form": "too few widths", "not_rejected": ""}
        rate = NO_SLOPE
        with suppress(GatelabError):
            found = study.decay(name)
            rate = found.rate
            row |= {"form": found.form, "not_rejected": ", ".join(found.accepted)}
        row |= {"rate": rate.value, "low": rate.low, "high": rate.high, "sizes": rate.points}
        rows.append(row | {"width": widest.width, "parameters": widest.parameters, "test_rmse": widest.test_rmse})
    return pd.DataFrame(rows)


def reason_for(study: Scaling) -> str:
    """Why the slopes over all widths are not the orders, from the measured ratios and the upper half of the widths."""
    named = [name for name in ("mlp", "glu", "gqu") if name in study.units]
    low, high = upper_half(study)
    tails = {name: study.slope_or_none(name, widths=(low, high), flagged=True) for name in named}
    code, table = code_medians(), study.table()
    values = {
        "ratios": {name: table[table["unit"] == name].groupby("width")["ratio"].min() for name in named},
        "tails": {name: tail.value for name, tail in tails.items() if tail},
        "shared": [p.test_rmse / code[p.unit][p.width] for p in study.points if p.width in code.get(p.unit, {})],
    }
    template = Path(__file__).with_suffix(".md")
    return " ".join(sections(template, **values, low=low, high=high, small=SMALL)[""])
