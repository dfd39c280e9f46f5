"""The law in P and D: noisy data, every size of network with every number of data. Not a figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from gatelab.scaling import slope
from gatelab.studies.law_panels import law_panels
from gatelab.studies.measure import measured, ticker
from gatelab.studies.noisy import QUICK, Plan, measure_noisy
from gatelab.studies.study import Claim, Outcome, Request, Study
from gatelab.studies.unit_laws import UnitLaws, laws_table, ratios_table, share_of_noise, unit_laws, where_it_holds
from gatelab.studies.verdicts import ends


def run(request: Request) -> Outcome:
    plan = QUICK if request.quick else Plan()
    tick = ticker(request, plan.fits)
    fits = measure_noisy(request, plan, tick)
    clean = measured(request, plan.units, plan.target(max(plan.data), 0, noise=0.0), plan.widths, tick, **plan.how)
    found = [unit_laws(u, fits, plan, slope(*clean.curve(u, against="P"))) for u in plan.units]
    panels = [laws.panel for laws in found]
    figure = law_panels(panels, f"The law in P and D: Friedman 1 with noise of deviation {plan.noise:g}")
    errors = pd.DataFrame(
        [{"data": f.data, "draw": f.draw, "noise": plan.noise, **asdict(f.point)} for f in fits]
        + [{"data": max(plan.data), "draw": 0, "noise": 0.0, **asdict(p)} for p in clean.points]
    )
    tables = {"laws": laws_table(found), "ratios": ratios_table(found), "errors": errors}
    claims = [claim for laws in found for claim in (size_claim(laws), data_claim(laws), noise_claim(laws))]
    return Outcome(figure, tables, tuple(claims), _notes(plan, found))


def size_claim(laws: UnitLaws) -> Claim:
    """The exponent of P beside the slope without noise."""
    found, free = laws.additive.intervals.a, laws.noise_free
    agree = found[0] <= -free.value <= found[1]
    return Claim(
        f"exponent a of P, {laws.unit}",
        "-",
        _exponent(laws.additive.a),
        "new",
        f"Without noise the {laws.unit}'s error falls with slope {free} against P: the law's exponent "
        f"{'agrees' if agree else 'does not agree'} with it within its interval. The noise law's exponent is "
        f"{laws.noisy.a:.2f}.",
        _ends(laws.additive.a, found),
    )


def data_claim(laws: UnitLaws) -> Claim:
    """The exponent of D beside the 1/2 of theory."""
    found = laws.additive.intervals.b
    held = "holds" if found[0] <= 0.5 <= found[1] else "does not hold"
    few, many = share_of_noise(laws)
    return Claim(
        f"exponent b of D, {laws.unit}",
        "-",
        _exponent(laws.additive.b),
        "new",
        f"Noise alone would give 1/2, which the interval for the {laws.unit} {held}. By the noise law estimation makes "
        f"{few:.0%} of the squared error at the least P and the most D, and {many:.0%} at the most P and the least D.",
        _ends(laws.additive.b, found),
    )


def noise_claim(laws: UnitLaws) -> Claim:
    """The constant of the estimation error, and which law describes the table better."""
    return Claim(
        f"estimation error over noise (P/D)^1/2, {laws.unit}",
        "-",
        f"{laws.noisy.c:.2f}",
        "new",
        f"With 3 constants the noise law is within {laws.noisy.rmse:.1%} (RMS of log) of the {laws.unit}'s "
        f"{len(laws.kept)} fits, with 5 the additive one within {laws.additive.rmse:.1%}.",
    )


def _exponent(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.2f}"


def _ends(value: float, found: tuple[float, float]) -> str:
    """
    >>> _ends(1.234, (1.0, np.inf)), _ends(np.nan, (0.0, np.inf))
    ('[1.00, inf]', '')
    """
    return "" if np.isnan(value) else ends(*found, ".2f")


def _notes(plan: Plan, found: Sequence[UnitLaws]) -> tuple[str, ...]:
    return (
        f"Friedman 1 in its own units, noise of deviation {plan.noise:g} on the training targets, D from "
        f"{min(plan.data)} to {max(plan.data)}, n = {min(plan.widths)}..{max(plan.widths)}, {plan.draws} "
        f"draw{'s' * (plan.draws > 1)} of the data; errors on {plan.tests} clean points.",
        "Fits with P at least D/2 are left out of both laws and drawn hollow.",
        "The additive law has no term in which P and D meet; estimation error has: it grows with P at fixed D. "
        + " ".join(where_it_holds(laws) for laws in found),
        *(f"{laws.unit}: {note}." for laws in found for note in laws.additive.notes),
    )


STUDY = Study(
    "scaling/law",
    "The law in parameters and data",
    "Not in the paper, which varies the network alone: here data and their noise are varied too.",
    run,
    long=True,
)
