"""Pages of single results: the demonstration, a scorecard, a profile of a model."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from gatelab.anatomy import Profile
from gatelab.report.pages import Markup, Section, drawn, page, part, table
from gatelab.scorecard import Scorecard
from gatelab.scorecard.result import frame
from gatelab.statistics import Interval
from gatelab.studies.demonstration import Demo, draw

NEXT = (
    "gatelab reproduce all, then gatelab report: the tables and figures of three papers on a page like this one.",
    "gatelab compare --data FILE: the units side by side on your data.",
    "docs/tutorial.md: from here to a custom unit in ten minutes.",
)
SMOOTH = (
    "Errors fall with parameters P as exp(-aP) (exponential), exp(-a P^1/2) (root-exponential) or P^-a (power). The "
    "form has the least residuals; those that a test at the level of 5 % does not reject are listed beside it."
)


def demo_page(demo: Demo, command: str = "gatelab demo") -> str:
    """The demonstration as one self-contained HTML document."""
    points = demo.scaling.points
    widest = max(p.width for p in points)
    slopes, rates = demo_tables(demo)
    shown = Section(
        "slopes",
        "Slopes, and the limit",
        "Least-squares lines through all widths with intervals of 95 %. The last two columns are the ratio to the "
        f"limit and the RMSE on test data at width {widest}.",
        frame_table(slopes, right=range(1, 7)),
        drawn(draw(demo.scaling), "slopes"),
        {"fits": demo.scaling.table(), "slopes": demo.slopes},
        command,
        origin=f"{len(points)} networks in {demo.seconds:.1f} s.",
    )
    smooth = Section("rates", "Smooth gates: a rate per parameter", SMOOTH, frame_table(rates, right=(2, 4, 5)))
    why = Section("why", "Why the slopes are not the orders", demo.reason)
    lead = (
        f"{len(points)} networks of up to {widest} neurons, trained to near their optimum; errors are on held-out data."
    )
    return page("How the error of a unit falls", lead, [shown, smooth, why, Section("next", "Next", notes=NEXT)])


def demo_tables(demo: Demo) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The slopes of units with a relu gate and the rates of those with a smooth gate, as texts."""

    def text(value: float, *ends: float) -> str:
        return f"{Interval(value, *ends or (math.nan,) * 2):.2f}".replace("nan", "-")

    widest = max(p.width for p in demo.scaling.points)
    errors = {p.unit: f"{p.test_rmse:.1e}" for p in demo.scaling.points if p.width == widest}
    slopes, rates = [], []
    for r in demo.slopes.to_dict("records"):
        row = {"unit": r["unit"]}
        for axis in ("n", "P"):
            row[f"slope in {axis}"] = text(*(r[f"{name}_{axis}"] for name in ("slope", "low", "high")))
            row[f"paper {axis}"] = text(r[f"paper_{axis}"])
        slopes.append({**row, "ratio": text(r["ratio_to_limit"]), "RMSE": errors[r["unit"]]})
    for r in demo.rates.to_dict("records"):
        row = {"unit": r["unit"], "form": r["form"], "rate a": text(r["rate"], r["low"], r["high"])}
        row |= {"not rejected": r["not_rejected"] or "-", "n": str(r["width"])}
        rates.append({**row, "RMSE": f"{r['test_rmse']:.1e}"})
    return pd.DataFrame(slopes), pd.DataFrame(rates)


def frame_table(frame: pd.DataFrame, **options: Any) -> Markup:
    """A data frame of texts as a table of the page."""
    return table(tuple(frame), frame.to_numpy().tolist(), **options)


LEFT_OUT, MEASURED = "Left out", "How was it measured?"


def scorecard_page(card: Scorecard, command: str = "") -> str:
    """The scorecard as one self-contained HTML document."""
    facts, tables = card.facts, {"fits": card.scaling.table()}
    figure = Section("figure", "The figure", figure=drawn(card.plot(), "figure"), tables=tables)
    return page(
        f"{facts['problem']}: which unit?",
        f"{', '.join(card.units)} side by side on {facts['train_rows']} training and {facts['test_rows']} held-out "
        f"rows of {facts['inputs']} input{'s' * (facts['inputs'] != 1)}, at {facts['budget']} parameters.",
        [_advice(card, command), _numbers(card), figure, _networks(card)],
        kicker="gatelab scorecard",
    )


def _advice(card: Scorecard, command: str) -> Section:
    title = f"Take {card.recommendation}"
    (_, (opening,)), *parts = card.sections.items()
    body = part("headed", [(heading, lines) for heading, lines in parts if heading not in (LEFT_OUT, MEASURED)])
    return Section("recommendation", title, opening.removeprefix(f"{title}. "), body, command=command)


def _numbers(card: Scorecard) -> Section:
    parts = []
    for heading, numbers in card.texts().items():
        rows = numbers.to_numpy().tolist()
        for row in rows:
            if row[0] == card.recommendation.unit:
                row[0] = Markup("<strong>{}</strong>").format(row[0])
        parts.append((heading, table(tuple(numbers), rows, right=range(1, numbers.shape[1]))))
    lead = "Every unit at the largest width within the budget; intervals of rows per second are quartiles."
    notes = card.sections[MEASURED]
    body = part("headed", parts)
    return Section("numbers", "Side by side", lead, body, tables={"scorecard": card.table()}, notes=notes)


def _networks(card: Scorecard) -> Section:
    rows = [
        [n.unit, n.width, n.parameters, n.flops, f"{n.train_rmse:.3g}", str(n.rmse), str(n.ratio)]
        for n in sorted(card.networks, key=lambda n: n.rmse.value)
    ]
    headings = ("unit", "width", "parameters", "FLOPs", "training RMSE", "held-out RMSE", "of the least")
    body = table(headings, rows, right=(1, 2, 3, 4, 5, 6))
    if LEFT_OUT in card.sections:
        body += part("headed", [(LEFT_OUT, card.sections[LEFT_OUT])])
    lead = (
        "Every network within the budget, by increasing error. For networks that are not significantly worse than the "
        "best, the interval in the last column includes 1."
    )
    return Section("networks", "All networks", lead, body, tables={"all": frame(card.networks)})


def profile_page(profile: Profile, command: str = "") -> str:
    """The profile of a model as one self-contained HTML document."""
    fitted, chosen, measured = profile.tokens
    losses = "nats per token" if math.isfinite(profile.loss) else "shares of the variance of the model's output"
    notes = (
        "Left: the share of the variance of a block's output that a map does not explain, on test windows; a block's "
        "linearity is 100 % minus that. Units are fitted within a budget of steps, so their shares are upper bounds.",
        f"Losses are in {losses}, with 95 % intervals over windows, one block changed at a time.",
        "Effective width and rank are participation ratios: of the neurons' second moments, and of the eigenvalues of "
        "the covariance. Largest and tail are single activations over their root mean square.",
    )
    numbers = Section(
        "blocks",
        "Block by block",
        f"Fitted on {fitted} tokens, selected on {chosen}, measured on {measured} others.",
        part("points", profile.sentences()),
        drawn(profile.plot(), "blocks"),
        {"blocks": profile.table(), "curves": profile.curves()},
        command,
        notes=notes,
        origin=f"{profile.seconds:.0f} s.",
    )
    lead = f"{len(profile.blocks)} feed-forward blocks: their activity, and how well other maps replace them."
    return page(f"Blocks of {profile.model}", lead, [numbers], kicker="gatelab profile")
