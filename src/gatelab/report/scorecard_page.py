"""The page of a scorecard: what to take and why, the numbers side by side, the figure, how it was measured."""

from __future__ import annotations

import math

import pandas as pd

from gatelab.plotting.chart import chart
from gatelab.report.markup import Markup, escape, points, table
from gatelab.report.page import Section, page
from gatelab.scorecard import Estimate, Line, Score, Scorecard

LIMITED = {
    "units": "The units limit the error: more parameters lower it still, so the least error at equal ones counts.",
    "noise": "Noise limits the error: more parameters do not lower it, so the cheapest unit that is as good counts.",
    "rows": "The rows limit the error: there are too few, so the cheapest unit that is as good counts.",
    "exact": "Nothing limits the error: the target is fitted to rounding, so the cheapest unit that does it counts.",
    "open": "What limits the error is open: the widths that were fitted do not tell, so the least error counts.",
}


def scorecard_page(card: Scorecard, command: str = "") -> str:
    """The scorecard as one HTML document that needs nothing else."""
    return page(
        f"{card.problem}: which unit?",
        f"{', '.join(card.units)} side by side on {card.train_rows} training and {card.test_rows} test rows of "
        f"{card.inputs} input{'s' * (card.inputs != 1)}, at {card.settings.budget} parameters.",
        [_advice(card, command), _numbers(card), _figure(card), _networks(card)],
        kicker="gatelab scorecard",
    )


def _advice(card: Scorecard, command: str) -> Section:
    r = card.recommendation
    lines = table(
        (f"{r.unit} beside", *(line.name for line in r.rivals[0].lines)),
        [[rival.unit, *(_side(line, rival.unit) for line in rival.lines)] for rival in r.rivals],
    )
    body = Markup(
        f"<h3>Because</h3>{points(r.reasons)}<h3>For and against {escape(r.unit)}, its number first</h3>{lines}"
        f"<h3>Keep in mind</h3>{points(r.caveats)}"
    )
    return Section("recommendation", f"Take {r}", LIMITED[r.regime], body, command=command)


def _side(line: Line, rival: str) -> str:
    if not line.decided:
        return f"undecided: {line.text}"
    return f"{'against' if line.favours == rival else 'for'}: {line.text}"


def _numbers(card: Scorecard) -> Section:
    s = card.settings
    error = table(
        ("unit", "width", "parameters", "test RMSE", "over best", "slope in P", "order", "limit"),
        [_errors(score, card) for score in card.scores],
        right=(1, 2, 3, 4, 5, 6, 7),
    )
    other = table(
        ("unit", "condition", "steps", f"m = {s.features}", "degree 8", "FLOPs", "rows/s"),
        [_others(score) for score in card.scores],
        right=(1, 2, 3, 4, 5, 6),
    )
    body = (
        f"<h3>Error at equal parameters, and how it falls</h3>{error}"
        f"<h3>Training, linearisation, and the cost of a block of d_model {s.bench.d_model}</h3>{other}"
    )
    lead = "Intervals are of 95 %, those of rows a second quartiles."
    return Section("numbers", "Side by side", lead, body, tables={"scorecard": card.table()}, notes=card.methods())


def _errors(s: Score, card: Scorecard) -> list[object]:
    slope = "-" if math.isnan(s.slope) else f"{s.slope:.2f}"
    if not math.isnan(s.slope_low):
        slope += f" [{s.slope_low:.2f}, {s.slope_high:.2f}]"
    return [
        _name(s, card),
        s.width,
        s.parameters,
        str(Estimate(s.rmse, s.rmse_low, s.rmse_high)),
        str(Estimate(s.behind, s.behind_low, s.behind_high)),
        slope,
        "-" if s.order is None else s.order,
        # From noisy rows a limit is that of the noise.
        "-" if card.floor is not None or math.isnan(s.limit) else f"{s.limit:.2g}",
    ]


def _name(s: Score, card: Scorecard) -> Markup:
    name = escape(s.unit)
    return Markup(f"<strong>{name}</strong>") if s.unit == card.recommendation.unit else name


def _others(s: Score) -> list[object]:
    return [
        s.unit,
        f"{s.condition:.3g}" if s.resolved else f"above {s.condition_low:.1g}",
        f"{s.steps:.3g}" if math.isfinite(s.steps) else "never",
        "-" if math.isnan(s.linear_error) else f"{s.linear_error:.2g} [{s.linear_low:.2g}, {s.linear_high:.2g}]",
        "-" if math.isnan(s.minimax_error) else f"{s.minimax_error:.2g}",
        f"{s.block_flops:,}",
        f"{s.rows_per_second:,.0f} [{s.rows_per_second_low:,.0f}, {s.rows_per_second_high:,.0f}]",
    ]


def _figure(card: Scorecard) -> Section:
    return Section("figure", "The figure", chart=chart(card.plot()), tables={"fits": card.scaling.table()})


def _networks(card: Scorecard) -> Section:
    """Every network that could have been chosen."""
    frame = pd.DataFrame(
        [
            {
                "unit": n.unit,
                "width": n.width,
                "parameters": n.parameters,
                "flops": n.flops,
                "train_rmse": n.train_rmse,
                "rmse": n.rmse.value,
                "low": n.rmse.low,
                "high": n.rmse.high,
                "behind": n.behind.value,
                "behind_low": n.behind.low,
                "behind_high": n.behind.high,
            }
            for n in card.networks
        ]
    )
    rows = [
        [n.unit, n.width, n.parameters, n.flops, f"{n.train_rmse:.3g}", str(n.rmse), str(n.behind)]
        for n in sorted(card.networks, key=lambda n: n.rmse.value)
    ]
    headings = ("unit", "width", "parameters", "FLOPs", "train RMSE", "test RMSE", "over best")
    body = table(headings, rows, right=(1, 2, 3, 4, 5, 6))
    if card.left_out:
        body = Markup(f"{body}<h3>Left out</h3>{points(map(str, card.left_out))}")
    lead = "Every network within the budget, the least error first; one that cannot be told from the best has 1 or less"
    return Section(
        "networks", "All networks", f"{lead} at the lower end of the last column.", body, tables={"all": frame}
    )
