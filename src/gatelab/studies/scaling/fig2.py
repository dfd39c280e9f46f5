"""Figure 2: how the error of MLP and GLU falls with neurons and with parameters."""

from __future__ import annotations

from gatelab.plotting import GREY, look
from gatelab.scaling_laws import Scaling
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Study,
    Tables,
    beside,
    bracket,
    last,
    only,
    stroke,
)
from gatelab.studies.progress import ticker
from gatelab.studies.scaling.constructions import cell_claims, construction_claims, count_claim, eq6_claim, shift_claim
from gatelab.studies.scaling.error_curves import (
    QUICK_WIDTHS,
    REFERENCE_RMSE,
    SOURCE,
    best_errors,
    by_newton,
    fit_curves,
    median_errors,
    newton_claims,
    paper_target,
    ratio_sentence,
    slope_claims,
    tail_slope,
    upper_half,
    widths_for,
    with_reference,
)
from gatelab.studies.scaling.printed import GLU_FOR_MLP, PAPER_SLOPES
from gatelab.studies.verdicts import errors_claim, fewer_verdict

UNITS = ("mlp", "glu")


def run(request: Request) -> Outcome:
    """Both units at every width, the paper's slopes and constructions beside them."""
    target = paper_target(request)
    widths = widths_for(request, range(1, 51))
    fits = len(UNITS) * (len(widths) + len(QUICK_WIDTHS) * request.quick)
    tick = ticker(request, fits)
    study = fit_curves(request, UNITS, target, widths, tick)
    newton = by_newton(request, UNITS, target, tick)
    figure = study.plot(
        title="Figure 2: L(n) and L(P) of MLP and GLU on 1/(1+cos²πx)",
        paper=PAPER_SLOPES,
        reference={unit: median_errors(newton, unit) for unit in UNITS},
        flagged=True,
    )
    claims = [claim for unit in UNITS for claim in newton_claims(newton, study, unit, "figure 2")]
    claims += [claim for unit in UNITS for claim in slope_claims(study, unit)]
    claims += [errors_claim(unit, REFERENCE_RMSE[unit], best_errors(study, unit)) for unit in UNITS]
    claims.append(neurons_claim(study))
    claims += [shift_claim(unit, study) for unit in UNITS]
    claims += [claim for unit in UNITS for claim in construction_claims(unit, target, study)]
    claims += [eq6_claim(target), *cell_claims(), *(count_claim(unit) for unit in UNITS)]
    low, high = upper_half(study)
    notes = (
        f"Fitted by the knot solver to {target.train.n} points; errors are on {target.test.n} other points.",
        "Crosses are networks trained by the paper's method, Newton's in its stages from alternating gates: the median "
        "of the seeds.",
        f"The errors that claims compare with are those of {SOURCE}.",
        "Slopes take every width, as the paper's do, so that like stands beside like; brackets are 95 % intervals.",
        *(f"{ratio_sentence(study, unit)}." for unit in UNITS),
        f"Over n = {low}..{high} the slopes are "
        + " and ".join(f"{tail_slope(study, unit)} ({unit})" for unit in UNITS)
        + "; figure 6 follows them further.",
    )
    tables = {
        "errors": with_reference(study),
        "slopes": study.slopes(flagged=True),
        "newton": newton.table(),
        "newton-slopes": newton.slopes(flagged=True),
    }
    return Outcome(figure, tables, tuple(claims), notes)


def neurons_claim(study: Scaling) -> Claim:
    """ "15 GLU neurons for 50 MLP neurons": the least GLU width below the widest MLP's error."""
    paper, mlp_width = GLU_FOR_MLP
    mlp, glu = best_errors(study, "mlp"), best_errors(study, "glu")
    compared = mlp_width
    if mlp_width not in mlp:
        compared = max(mlp)
    needed = next((w for w in sorted(glu) if glu[w] < mlp[compared]), None)
    ours, reached = f"none of those run for {compared}", ""
    if needed:
        ours, reached = f"{needed} for {compared}", f"; the glu of {needed} reaches {glu[needed]:.1e}"
    verdict = fewer_verdict(paper, needed)
    if compared != mlp_width:
        verdict = "new"  # with fewer neurons than the paper's 50 to match, its number says nothing
    return Claim(
        "GLU neurons that match the MLP",
        f"{paper} for {mlp_width}",
        ours,
        verdict,
        f"The mlp of {compared} neurons has RMSE {mlp[compared]:.1e}{reached}.",
        place="section 5, GLU neurons for 50 of the MLP",
    )


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The slopes through all widths beside the paper's, and where the errors lie against the limit."""
    errors, slopes = tables["errors"], tables["slopes"]
    laws, compared, papers = [], [], []
    narrow, wide = [], []
    for unit in UNITS:
        row = last(slopes, unit=unit, against="n", aggregate="best")
        paper = PAPER_SLOPES[unit, "n"]
        ratios = stroke(unit, only(errors, unit=unit), "width", "ratio", GREY).y
        laws.append(f"n^{row['slope']:.2f}{bracket(row['low'], row['high'])} ({unit.upper()})")
        compared.append(beside(row["low"], row["high"], paper, "steeper than", "flatter than"))
        papers.append(f"{paper}")
        narrow.append(f"{ratios[0]:.2f}")
        wide.append(f"{ratios[-1]:.2f}")
    sentence = (
        f"Trained to near their optimum, networks have errors that fall like {' and '.join(laws)}, "
        f"{' and '.join(dict.fromkeys(compared))} the paper's {' and '.join(papers)}."
    )
    sizes = (
        f"1/(1+cos²πx), n = {errors['width'].min()} to {errors['width'].max()}. The narrowest have "
        f"{' and '.join(narrow)} times the error of the limit of free knots, the widest {' and '.join(wide)}."
    )
    strokes = [stroke(unit.upper(), only(errors, unit=unit), "width", "test_rmse", look(unit).colour) for unit in UNITS]
    strokes += [stroke("limit", only(errors, unit=unit), "width", "limit", GREY, dashed=True) for unit in UNITS]
    return (Finding("Slopes at the optimum", sentence, sizes, Sketch("neurons n", "test RMSE", tuple(strokes))),)


STUDY = Study(
    "scaling/fig2",
    "L(n) and L(P) of MLP and GLU",
    "The error of the MLP falls like n^-2.13 (P^-2.18) and that of the GLU like n^-3.08 (P^-3.12) for n = 1 to 50.",
    run,
    findings=findings,
    position=2,
)
