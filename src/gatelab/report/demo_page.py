"""The page of the demonstration: the figure, the slopes beside the paper's, and why they are what they are."""

from __future__ import annotations

import math
from typing import Any

from gatelab.plotting.chart import chart
from gatelab.report.markup import table
from gatelab.report.page import Section, page
from gatelab.studies.demo import Demo, draw

NEXT = (
    "gatelab reproduce all, then gatelab report: every table and figure of three papers on a page like this one.",
    "gatelab compare --data FILE: the units side by side on data of your own.",
    "docs/tutorial.md: from here to a unit of your own in ten minutes.",
)


def demo_page(found: Demo, command: str = "gatelab demo") -> str:
    """The demonstration as one HTML document that needs nothing else."""
    points = found.scaling.points
    widest = max(p.width for p in points)
    errors = {p.unit: p.test_rmse for p in points if p.width == widest}
    rows = [
        (r["unit"], *_axis(r, "n"), *_axis(r, "P"), f"{r['ratio_to_limit']:.2f}", f"{errors[r['unit']]:.1e}")
        for r in found.slopes.to_dict("records")
    ]
    headings = ("unit", "slope in n", "paper", "slope in P", "paper", "over the limit", "test RMSE")
    body = table(headings, rows, right=(1, 2, 3, 4, 5, 6))
    shown = Section(
        "slopes",
        "Slopes, and the limit",
        f"Least-squares lines through all widths with intervals of 95 %; the last two columns are at width {widest}.",
        body,
        chart(draw(found.scaling)),
        {"fits": found.scaling.table(), "slopes": found.slopes},
        command,
        made=f"{len(points)} networks in {found.seconds:.1f} s.",
    )
    why = Section("why", "Why the slopes are not the orders", found.reason)
    lead = (
        f"{len(points)} networks of widths 1 to {widest}, trained to their optimum; errors on data they have not seen."
    )
    return page("How the error of a unit falls", lead, [shown, why, Section("next", "Next", notes=NEXT)])


def _axis(row: dict[Any, Any], axis: str) -> tuple[str, str]:
    value, low, high, paper = (row[f"{what}_{axis}"] for what in ("slope", "low", "high", "paper"))
    said = "-" if math.isnan(value) else f"{value:.2f}"
    if not math.isnan(low):
        said += f" [{low:.2f}, {high:.2f}]"
    return said, "-" if math.isnan(paper) else f"{paper:.2f}"
