"""Figure 2: the errors of MLP and GLU against neurons and parameters, by two trainings; and the GQU's.

The paper's code and the optimum (see `error_curves`) have different slopes, and each over different widths.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gatelab.plotting.facets import Facets, Overlay
from gatelab.scaling_laws import Scaling
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.inventory import printed
from gatelab.studies.scaling import constructions, error_curves
from gatelab.studies.scaling.error_curves import CODE, OPTIMUM, PAPER_SLOPES, best_errors, median_errors

UNITS = ("mlp", "glu")
NAMES = {"mlp": "MLP, P = 3n + 1", "glu": "GLU, P = 5n + 1", "gqu": "GQU, P = 7n + 1"}
LIMIT = Overlay("limit", "free-knot limit", "dashed", hue=False)
STUDY = Study(
    "scaling/fig2",
    "L(n) and L(P) of MLP and GLU",
    "The error of the MLP falls like n^-2.13 (P^-2.18) and that of the GLU like n^-3.08 (P^-3.12) for n = 1 to 50.",
    position=2,
    figure=(
        Facets(
            table="trainings", x="width", y="rmse", hue="training", row="unit", xlog=True, ylog=True, names=NAMES,
            lines=(LIMIT, Overlay("paper_slope", "the paper's slope", "dotted", hue=False)), xlabel="neurons n",
            ylabel="test RMSE", title="Figure 2: the same networks by two trainings",
        ),
        Facets(
            table="ranges", where={"against": "n"}, x="range", y="slope", hue="training", row="unit", points=True,
            paper="paper", names=NAMES, xlabel="widths n", ylabel="slope against n",
            title="their slopes by range of widths",
        ),
    ),
    cards={
        "Slopes at the optimum": Facets(
            table="errors", where={"unit": UNITS}, x="width", y="test_rmse", hue="unit", xlog=True, ylog=True,
            lines=(LIMIT,), xlabel="neurons n", ylabel="test RMSE",
        )
    },
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """Every unit at every width by two trainings; the constructions, and the equations of section 3."""
    target = error_curves.paper_target(request)
    widths = error_curves.widths_of(request)
    study = error_curves.fit_curves(request, error_curves.UNITS, target, widths)
    built = [constructions.built_errors(unit, target, sorted({*widths, *constructions.WIDTHS})) for unit in UNITS]
    return {
        "ranges": error_curves.range_slopes(study, error_curves.UNITS),
        "errors": study.table(),
        "slopes": study.slopes(flagged=True),
        "code": error_curves.code_curves().table(),
        "trainings": training_curves(study),
        "construction": pd.concat(built, ignore_index=True),
        "equations": constructions.equations_table(target),
    }


def training_curves(optimum: Scaling) -> Table:
    """Medians of the seeds by unit, training and width; of the paper's code with a line of the paper's slope."""
    parts, (low, high) = {}, error_curves.RANGES["5 to 14"]
    for unit in error_curves.UNITS:
        for training, study in ((CODE, error_curves.code_curves()), (OPTIMUM, optimum)):
            by_width = only(study.table(), unit=unit).groupby("width")
            part = pd.Series(median_errors(study, unit)).to_frame("rmse")
            if training == CODE:
                x, y = np.log(part["rmse"].loc[low:high].reset_index()).mean()
                line = np.exp(y + PAPER_SLOPES[unit, "n"] * (np.log(part.index) - x))
                ends = by_width["test_rmse"].agg(rmse_low="min", rmse_high="max")
                part = part.join(ends).assign(paper_slope=line)
            else:
                part["limit"] = by_width["limit"].first()
            parts[unit, training] = part
    return pd.concat(parts, names=["unit", "training", "width"]).reset_index()


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    study = error_curves.curves_of(tables["errors"])
    for unit in UNITS:
        yield from error_curves.training_claims(tables, unit, "figure 2")
        yield shift_claim(unit, study)
        yield from constructions.construction_claims(unit, tables["construction"], best_errors(study, unit))
    yield neurons_claim(study)
    yield from constructions.equation_claims(tables["equations"])


def shift_claim(unit: str, study: Scaling) -> Claim:
    """The caption states that P instead of n shifts the lines without changing their slopes; its numbers differ."""
    low, high = error_curves.upper_half(study)
    by_n, by_p = (
        [study.slope(unit, against=against, widths=widths, flagged=True).value for widths in (None, (low, high))]
        for against in ("n", "P")
    )
    support = {"by the paper's slopes": PAPER_SLOPES[unit, "P"] / PAPER_SLOPES[unit, "n"]}
    return Claim(
        f"slope of the {unit} against P over that against n", by_p[0] / by_n[0], paper=1.0, rule="number",
        place=f"figure 2, {unit.upper()}, caption", support=support | {f"n = {low} to {high}": by_p[1] / by_n[1]},
        note="The caption has equal slopes. P is not a power of n where n is small.",
    )  # fmt: skip


def neurons_claim(study: Scaling) -> Claim:
    """ "15 GLU neurons for 50 MLP neurons": the least GLU width below the widest MLP's error."""
    place = "section 5, GLU neurons for 50 of the MLP"
    paper, mlp_width = (int(number) for number in printed("scaling", place).split(" for "))
    mlp, glu = best_errors(study, "mlp"), best_errors(study, "glu")
    compared = max(width for width in mlp if width <= mlp_width)
    needed = next((w for w in sorted(glu) if glu[w] < mlp[compared]), None)
    support = {f"RMSE of the mlp of {compared}": mlp[compared]}
    if needed:
        support[f"RMSE of the glu of {needed}"] = glu[needed]
    return Claim(
        f"GLU neurons that match {mlp_width} of the MLP", needed, paper=paper, rule="at most", place=place,
        outside=f"the widest MLP here has {compared} neurons" * (compared != mlp_width), support=support,
    )  # fmt: skip
