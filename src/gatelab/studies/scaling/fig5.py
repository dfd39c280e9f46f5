"""Figure 5: MLP and GLU, with frozen and with trained gates, beside splines with as many equally spaced nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from gatelab.data import Problem
from gatelab.plotting import Curve, scaling_figure
from gatelab.scaling_laws import Scaling, Slope, slope, spline_baseline
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.scaling.errors import best_errors, measured, paper_target, ticker, upper_half, widths_for
from gatelab.studies.verdicts import NEAR, slope_claim, slope_ends

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
    """Slightly smaller errors than the spline's at every width are what the paper says; less than half is more.

    >>> gain_verdict(np.array([0.8, 0.9])), gain_verdict(np.array([0.9, 1.2])), gain_verdict(np.array([0.1, 0.4]))
    ('reproduced', 'differs', 'exceeded')
    """
    if not len(ratios) or ratios.max() >= 1:
        return "differs"
    return "exceeded" if ratios.max() < 0.5 else "reproduced"


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
            f"rate of the {name} with frozen gates, upper half of the widths",
            float(-order),
            tail,
            f"Over n = {low}..{high}. Frozen gates lose a factor: at n = {high} the frozen {name} has "
            f"{errors[f'{name} frozen'][high] / errors[f'{name} trained'][high]:.1f} times the trained one's error.",
        ),
        order_claim(name, errors, (low, high)),
    ]


def order_claim(name: str, errors: Mapping[str, Errors], span: tuple[int, int]) -> Claim:
    """The caption: a similar order of convergence. Slopes over the same widths agree within NEAR or not."""
    kinds = (f"{name} frozen", f"{name} trained", COUNTERPART[name])
    found = [_slope_over(errors[kind], span) for kind in kinds]
    apart = max(abs(s.value - found[-1].value) for s in found[:-1])
    return Claim(
        f"order of the {name} beside that of the {COUNTERPART[name]}, upper half of the widths",
        "similar",
        ", ".join(f"{s.value:.2f} ({kind})" for s, kind in zip(found, kinds, strict=True)),
        "reproduced" if apart <= NEAR else "differs",
        f"Slopes over n = {span[0]}..{span[1]}, at most {apart:.2f} apart from the spline's; n nodes make n - 1 cells, "
        "which makes the spline's steeper at few nodes.",
        ", ".join(filter(None, map(slope_ends, found))),
    )


def _slope_over(errors: Errors, span: tuple[int, int]) -> Slope:
    widths = [w for w in errors if span[0] <= w <= span[1]]
    return slope(np.array(widths, float), np.array([errors[w] for w in widths])[:, None])


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
    position=5,
)
