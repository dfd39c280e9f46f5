"""Figure 5: MLP and GLU, with frozen and with trained gates, beside splines with as many equally spaced nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from gatelab.plotting import Curve, scaling_figure
from gatelab.problems import Problem
from gatelab.scaling import Scaling, slope, spline_baseline
from gatelab.studies.measure import best_errors, measured, paper_target, ticker, upper_half, widths_for
from gatelab.studies.study import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.verdicts import slope_claim

UNITS = ("mlp", "glu")
SPLINES = {1: "linear spline", 2: "quadratic spline", 3: "cubic spline"}
COUNTERPART = {"mlp": "linear spline", "glu": "quadratic spline"}
Errors = dict[int, float]


def run(request: Request) -> Outcome:
    target = paper_target(request)
    widths = widths_for(request, range(2, 51))
    tick = ticker(request, len(widths) * (2 * len(UNITS) + len(SPLINES)))
    trained = measured(request, UNITS, target, widths, tick)
    frozen = measured(request, UNITS, target, widths, tick, solver="frozen")
    errors: dict[str, Errors] = {}
    for name in UNITS:
        errors[f"{name} trained"] = best_errors(trained, name)
        errors[f"{name} frozen"] = best_errors(frozen, name)
    for degree, name in SPLINES.items():
        errors[name] = _spline(degree, target, widths, tick)
    figure = scaling_figure(
        [("neurons n, or nodes of a spline", [_curve(name, e) for name, e in errors.items()])],
        title="Figure 5: networks and splines on 1/(1+cos²πx)",
    )
    figure.set_size_inches(5.4, 5.6)
    claims = [claim for name in UNITS for claim in _claims(name, errors, trained, frozen)]
    return Outcome(
        figure, {"errors": pd.DataFrame({"width": list(widths)} | _columns(errors))}, tuple(claims), _notes(errors)
    )


def _spline(degree: int, target: Problem, widths: Sequence[int], tick: Callable[..., None]) -> Errors:
    found: Errors = {}
    for nodes in widths:
        found[nodes] = spline_baseline(degree, target, nodes)[1]
        tick()
    return found


def _columns(errors: Mapping[str, Errors]) -> dict[str, list[float]]:
    return {name.replace(" ", "_"): list(e.values()) for name, e in errors.items()}


def _curve(name: str, errors: Errors) -> Curve:
    sizes, values = np.array(list(errors), float), np.array(list(errors.values()))[:, None]
    unit, _, way = name.partition(" ")
    note = f"slope {slope(sizes, values)}"
    if way == "spline":
        return Curve(name, sizes, values, note=note, line="--")
    return Curve(name, sizes, values, note=note, look=unit, line="-" if way == "trained" else ":")


def _ratios(name: str, way: str, errors: Mapping[str, Errors]) -> np.ndarray:
    """Errors over those of the spline counterpart, from ten neurons on, where both have left their first plateau."""
    ours, theirs = errors[f"{name} {way}"], errors[COUNTERPART[name]]
    return np.array([ours[w] / theirs[w] for w in ours if w >= 10])


def gain_verdict(ratios: np.ndarray) -> Verdict:
    """Smaller errors than the spline's at every width are what the paper says; by how much, it does not.

    >>> gain_verdict(np.array([0.8, 0.9])), gain_verdict(np.array([0.9, 1.2]))
    ('reproduced', 'differs')
    """
    return "reproduced" if len(ratios) and ratios.max() < 1 else "differs"


def _claims(name: str, errors: Mapping[str, Errors], trained: Scaling, frozen: Scaling) -> list[Claim]:
    moved, still = _ratios(name, "trained", errors), _ratios(name, "frozen", errors)
    low, high = upper_half(frozen)
    order = {"mlp": 2, "glu": 3}[name]
    tail = frozen.slope(name, widths=(low, high), flagged=True)
    return [
        Claim(
            f"error of the {name} beside the {COUNTERPART[name]}",
            "comparable, slightly smaller",
            f"{np.median(moved):.2f} times trained, {np.median(still):.2f} times frozen (medians, n >= 10)",
            gain_verdict(moved),
            f"Moving the knots gains a constant factor: over n >= 10 the trained {name} is {moved.min():.2f} to "
            f"{moved.max():.2f} times the spline.",
        ),
        slope_claim(
            f"rate of the {name} with frozen gates, n = {low}..{high}",
            float(-order),
            tail,
            f"Frozen gates keep the order {order} and lose a factor: at n = {high} the frozen {name} has "
            f"{errors[f'{name} frozen'][high] / errors[f'{name} trained'][high]:.1f} times the trained one's error.",
        ),
    ]


def _notes(errors: Mapping[str, Errors]) -> tuple[str, ...]:
    widest = max(errors["cubic spline"])
    cubic = errors["glu trained"][widest] / errors["cubic spline"][widest]
    word = "less" if cubic < 1 else "more"
    return (
        "Splines are least-squares splines of full smoothness with equally spaced nodes, both ends included; the "
        "linear one is the MLP's space, the quadratic one is smoother than the GLU's. n nodes make n - 1 cells, n "
        "frozen gates make n.",
        "The cubic spline is not in the paper's figure. At "
        f"{widest} the trained GLU has {max(cubic, 1 / cubic):.1f} times {word} error than the cubic spline.",
        "The paper's solver gains only slightly over splines; with knots trained to their optimum the gain is the "
        "ratio of free to uniform knots.",
    )


STUDY = Study(
    "scaling/fig5",
    "Networks beside splines",
    "MLP and GLU have errors and orders like those of linear and quadratic splines, and slightly smaller errors.",
    run,
)
