"""Figure 5: MLP and GLU, with frozen and with trained gates, beside splines with as many equally spaced nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.plotting import Curve, scaling_figure
from gatelab.scaling_laws import Scaling, slope, spline_baseline
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.scaling.error_curves import best_errors, fit_curves, paper_target, upper_half, widths_for
from gatelab.studies.verdicts import near, reproduced_if, slope_claim, slope_ends

UNITS = ("mlp", "glu")
SPLINES = {1: "linear spline", 2: "quadratic spline", 3: "cubic spline"}
LINES: Mapping[str, Literal["-", ":"]] = {"trained": "-", "frozen": ":"}
COUNTERPART = {"mlp": "linear spline", "glu": "quadratic spline"}
Errors = dict[int, float]


def run(request: Request) -> Outcome:
    """Both units with trained and with frozen gates, and the splines, at every width."""
    target = paper_target(request)
    widths = widths_for(request, range(2, 51))
    tick = ticker(request, len(widths) * (2 * len(UNITS) + len(SPLINES)))
    trained = fit_curves(request, UNITS, target, widths, tick)
    frozen = fit_curves(request, UNITS, target, widths, tick, solver="frozen")
    errors: dict[str, Errors] = {}
    for name in UNITS:
        errors[f"{name} trained"] = best_errors(trained, name)
        errors[f"{name} frozen"] = best_errors(frozen, name)
    for degree, name in SPLINES.items():
        errors[name] = {}
        for nodes in widths:
            errors[name][nodes] = spline_baseline(degree, target, nodes)[1]
            tick()
    figure = scaling_figure(
        [("neurons n, or nodes of a spline", [error_curve(name, e) for name, e in errors.items()])],
        title="Figure 5: networks and splines on 1/(1+cos²πx)",
    )
    figure.set_size_inches(5.4, 5.6)
    claims = [claim for name in UNITS for claim in unit_claims(name, errors, frozen)]
    columns = {name.replace(" ", "_"): list(e.values()) for name, e in errors.items()}
    table = pd.DataFrame({"width": list(widths)} | columns)
    return Outcome(figure, {"errors": table}, tuple(claims), notes(errors))


def error_curve(name: str, errors: Errors) -> Curve:
    """A curve of the figure: splines are dashed, trained units drawn through, frozen ones dotted."""
    sizes, values = np.array(list(errors), float), np.array(list(errors.values()))[:, None]
    unit, _, way = name.partition(" ")
    note = f"slope {slope(sizes, values)}"
    if way == "spline":
        return Curve(name, sizes, values, note=note, line="--")
    return Curve(name, sizes, values, note=note, look=unit, line=LINES[way])


def spline_ratios(name: str, way: str, errors: Mapping[str, Errors]) -> Array:
    """Errors over those of the spline counterpart, from ten neurons on, where both have left their first plateau."""
    ours, theirs = errors[f"{name} {way}"], errors[COUNTERPART[name]]
    return np.array([ours[w] / theirs[w] for w in ours if w >= 10])


def gain_verdict(ratios: Array) -> Verdict:
    """Slightly smaller errors than the spline's at every width are what the paper says; less than half is more.

    >>> gain_verdict(np.array([0.8, 0.9])), gain_verdict(np.array([0.9, 1.2])), gain_verdict(np.array([0.1, 0.4]))
    ('reproduced', 'differs', 'exceeded')
    """
    if not len(ratios) or ratios.max() >= 1:
        return "differs"
    if ratios.max() < 0.5:
        return "exceeded"
    return "reproduced"


def unit_claims(name: str, errors: Mapping[str, Errors], frozen: Scaling) -> list[Claim]:
    """What is said of one unit: its error and its order beside those of its spline, and the rate of frozen gates."""
    moved, still = spline_ratios(name, "trained", errors), spline_ratios(name, "frozen", errors)
    low, high = upper_half(frozen)
    order, panel = {"mlp": (2, "a"), "glu": (3, "d")}[name]
    tail = frozen.slope(name, widths=(low, high), flagged=True)
    return [
        Claim(
            f"error of the {name} beside the {COUNTERPART[name]}",
            "comparable, slightly smaller",
            f"{np.median(moved):.2f} times trained, {np.median(still):.2f} times frozen (medians, n >= 10)",
            gain_verdict(moved),
            f"Moving the knots gains a constant factor: over n >= 10 the trained {name} is {moved.min():.2f} to "
            f"{moved.max():.2f} times the spline.",
            place=f"figure 5, {name.upper()}, error",
        ),
        slope_claim(
            f"rate of the {name} with frozen gates, upper half of the widths",
            float(-order),
            tail,
            f"Over n = {low}..{high}. Frozen gates lose a factor: at n = {high} the frozen {name} has "
            f"{errors[f'{name} frozen'][high] / errors[f'{name} trained'][high]:.1f} times the trained one's error.",
            place=f"figure 4, ({panel}), rate",
        ),
        order_claim(name, errors, (low, high)),
    ]


def order_claim(name: str, errors: Mapping[str, Errors], span: tuple[int, int]) -> Claim:
    """The caption: a similar order of convergence. Slopes over the same widths agree within 5 % or not."""
    kinds = (f"{name} frozen", f"{name} trained", COUNTERPART[name])
    slopes = []
    for kind in kinds:
        widths = [w for w in errors[kind] if span[0] <= w <= span[1]]
        slopes.append(slope(np.array(widths, float), np.array([errors[kind][w] for w in widths])[:, None]))
    apart = max(abs(s.value - slopes[-1].value) for s in slopes[:-1])
    return Claim(
        f"order of the {name} beside that of the {COUNTERPART[name]}, upper half of the widths",
        "similar",
        ", ".join(f"{s.value:.2f} ({kind})" for s, kind in zip(slopes, kinds, strict=True)),
        reproduced_if(all(near(slopes[-1].value, s.value) for s in slopes[:-1])),
        f"Slopes over n = {span[0]}..{span[1]}, at most {apart:.2f} apart from the spline's; n nodes make n - 1 cells, "
        "which makes the spline's steeper at few nodes.",
        ", ".join(filter(None, map(slope_ends, slopes))),
        place=f"figure 5, {name.upper()}, order",
    )


def notes(errors: Mapping[str, Errors]) -> tuple[str, ...]:
    """How the splines are made, and where the cubic one lies, which the paper does not have."""
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
