"""Table 1 of paper 003: the largest error of five Taylor terms of GELU, and what the same degree can do instead.

Beside it stands GELU by Monte Carlo, section 4.1, whose bias and variance the paper derives and does not measure.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.feedforward.gates import activation
from gatelab.linearization import Polynomial, bound, linearize, monte_carlo, monte_carlo_variance
from gatelab.linearization.polynomials import values
from gatelab.plotting import NEURON_COLOURS, Panel, Pen, new_figure, style
from gatelab.plotting.maps import ErrorCurve, draw_errors
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Study,
    Tables,
    last,
    only,
    stroke,
    ticker,
)
from gatelab.studies.verdicts import reproduced_if

# As printed; mantissas are compared in as many digits.
PAPER = {1.0: "9e-06", 3.0: "3.0e+00", 5.0: "7.8e+02", 7.0: "2.7e+04"}
SERIES = (1, -6, 40, -336)  # sections 3.2.1 and 3.3
TERMS, DEGREE = 5, 10
DEGREES, QUICK_DEGREES = (2, 4, 6, 8, 10, 12, 16, 20, 24), (4, 10)
GELU = activation("gelu")
DRAWS, SAMPLES = 4000, (16, 256)
Z = (-2.48, -1.0, 0.5, 1.55, 2.23)
SURE = 4.5  # standard errors: in less than one of 10 000 studies does one of five means lie beyond it at random


def run(request: Request) -> Outcome:
    """Table 1, and both kinds of polynomials by their degree."""
    degrees = DEGREES
    if request.quick:
        degrees = QUICK_DEGREES
    tick = ticker(request, len(PAPER) + len(degrees))
    rows = []
    for reach, printed in PAPER.items():
        taylor, minimax = five_terms(reach), best(DEGREE, reach)
        rows.append(
            {
                "range": f"[-{reach:.0f}, {reach:.0f}]",
                "paper": float(printed),
                "Taylor": taylor.error(GELU),
                "Taylor, proved at most": bound(taylor, GELU).value,
                "of max |GELU|": taylor.error(GELU) / float(values(GELU, [reach])),
                "minimax": minimax.error(GELU),
                "minimax, proved at most": bound(minimax, GELU).value,
            }
        )
        tick()
    growth = []
    for degree in degrees:
        for reach in (3.0, 5.0, 7.0):
            taylor, minimax = polynomial("taylor", degree, reach), best(degree, reach)
            errors = {"Taylor": taylor.error(GELU), "minimax": minimax.error(GELU)}
            growth.append({"degree": degree, "R": reach, **errors})
        tick()
    table, by_degree = pd.DataFrame(rows), pd.DataFrame(growth)
    claims = (*taylor_claims(table), acceptable_claim(table), series_claim(), *minimax_claims(table))
    return Outcome(draw(by_degree), {"table1": table, "degrees": by_degree}, claims, NOTES)


# ---- polynomials, and printed digits


def five_terms(reach: float) -> Polynomial:
    """Taylor's series as the paper has it, to be looked at on [-reach, reach]."""
    return polynomial("taylor", DEGREE, reach)


def best(degree: int, reach: float) -> Polynomial:
    """The polynomial of the least greatest error on [-reach, reach]."""
    return polynomial("minimax", degree, reach)


def polynomial(method: str, degree: int, reach: float) -> Polynomial:
    """That of GELU by a method on [-reach, reach]."""
    series = linearize("gelu", method, degree=degree, interval=(-reach, reach)).polynomial
    assert series is not None
    return series


def as_printed(value: float, printed: str) -> str:
    """The value in as many digits as the paper prints.

    >>> as_printed(784.6, "7.8e+02"), as_printed(8.82e-6, "9e-06")
    ('7.8e+02', '9e-06')
    """
    mantissa = printed.split("e")[0]
    digits = len(mantissa.partition(".")[2])
    return f"{value:.{digits}e}"


def rounded_twice(value: float, printed: str) -> str:
    """The same from three digits: halves then go to even.

    >>> as_printed(785.25, "7.8e+02"), rounded_twice(785.25, "7.8e+02")
    ('7.9e+02', '7.8e+02')
    """
    return as_printed(float(f"{value:.2e}"), printed)


# ---- what it says


def taylor_claims(table: pd.DataFrame) -> list[Claim]:
    """The numbers of table 1, to their digits."""
    claims = []
    for (reach, printed), row in zip(PAPER.items(), table.to_dict("records"), strict=True):
        ours, interval = row["Taylor"], f"[-{reach:.0f}, {reach:.0f}]"
        because = (
            f"Against erf-GELU the error at the end of the range is {ours:.5g}; proved to be nowhere more than "
            f"{row['Taylor, proved at most']:.5g}."
        )
        if as_printed(ours, printed) != printed:
            because = (
                f"The printed number is {ours:.3g} rounded again, half to even; at once it is "
                f"{as_printed(ours, printed)}. {because}"
            )
        claims.append(
            Claim(
                f"largest error of {TERMS} Taylor terms, Wx in {interval}",
                printed,
                f"{ours:.3g}",
                reproduced_if(printed in (as_printed(ours, printed), rounded_twice(ours, printed))),
                because,
                place=f"table 1, {interval}",
            )
        )
    return claims


def acceptable_claim(table: pd.DataFrame) -> Claim:
    """Whether the error on [-3, 3] is small beside the function."""
    share = table.iloc[1]["of max |GELU|"]
    return Claim(
        "Wx in [-3, 3], where the error is called acceptable",
        "acceptable",
        f"{share:.0%} of the largest |GELU| there",
        reproduced_if(share < 0.1),
        f"At z = -3 the series gives {float(five_terms(3.0)(-3.0)):.3f} where GELU is "
        f"{float(values(GELU, [-3.0])):.4f}.",
        place="section 3.2.4, the error on [-3, 3]",
    )


def series_claim() -> Claim:
    """The expansion of section 3.2.1: z/2 + (z^2/1 - z^4/6 + z^6/40 - z^8/336 + ...) / sqrt(2 pi)."""
    series = polynomial("taylor", DEGREE, 1.0)
    power = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebinterpolate(series, DEGREE))
    inverse = [1 / (power[k] * math.sqrt(2 * math.pi)) for k in (2, 4, 6, 8)]
    others = max(abs(power[0]), abs(power[1] - 0.5), *(abs(power[k]) for k in (3, 5, 7, 9)))
    same = others < 1e-12 and [round(v, 6) for v in inverse] == list(SERIES)
    return Claim(
        "denominators of z^2, z^4, z^6, z^8 in the series, times sqrt(2 pi)",
        ", ".join(f"{v:g}" for v in SERIES),
        ", ".join(f"{v:.6g}" for v in inverse),
        reproduced_if(same),
        f"Beside them z/2 and no other power, to {others:.0e}. The same numbers stand in eq. 6 of section 3.3.",
        place="section 3.2.1, the series; eq. 6, the series",
    )


def minimax_claims(table: pd.DataFrame) -> list[Claim]:
    """What the same degree can do instead."""
    return [
        Claim(
            f"largest error of the best polynomial of degree {DEGREE} on [-{reach:.0f}, {reach:.0f}]",
            "-",
            f"{row['minimax']:.3g}, {row['Taylor'] / row['minimax']:.3g} times less than Taylor's",
            "new",
            f"Remez's exchange; proved to be nowhere more than {row['minimax, proved at most']:.4g}.",
        )
        for reach, row in zip(PAPER, table.to_dict("records"), strict=True)
    ]


# ---- Monte Carlo, section 4.1


def estimates(samples: int, seed: int = 0) -> np.ndarray:
    """DRAWS estimates at every z, (draws, z)."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.tensor(Z, dtype=torch.float64)
    return torch.stack([monte_carlo(z, samples, "naive", draw) for _ in range(DRAWS)]).numpy()


def monte_carlo_claims() -> tuple[Claim, Claim]:
    """Unbiased: the mean of many estimates. Consistent: their variance goes as 1/N."""
    z = torch.tensor(Z, dtype=torch.float64)
    exact = torch.nn.functional.gelu(z).numpy()
    draws = {n: estimates(n) for n in SAMPLES}
    few, many = SAMPLES
    error = draws[few].std(axis=0, ddof=1) / DRAWS**0.5
    distance = np.abs(draws[few].mean(axis=0) - exact) / error
    falls = draws[few].var(axis=0, ddof=1) / draws[many].var(axis=0, ddof=1)
    # A variance of so many draws is known to about sqrt(2 / draws), heavy tails aside: a quarter is far beyond that.
    near = np.abs(np.log(falls / (many / few))) < 0.25
    theory = (draws[many].var(axis=0, ddof=1) / monte_carlo_variance(z, many).numpy()).tolist()
    return (
        Claim(
            "mean of the Monte-Carlo estimates less GELU (section 4.1)",
            "0: unbiased",
            f"at most {distance.max():.1f} standard errors from 0",
            reproduced_if(distance.max() < SURE),
            f"{DRAWS} estimates of N = {few} at z = {', '.join(f'{v:g}' for v in Z)}; the largest standard error is "
            f"{error.max():.1e}. The estimator holds for one z: it does not factor into a map of w and a map of x.",
            place="section 4.1.2, unbiased",
        ),
        Claim(
            f"what {many // few} times the samples divide the variance by (section 4.1)",
            f"{many // few}, for it is consistent",
            f"{falls.min():.1f} to {falls.max():.1f}",
            reproduced_if(near.all()),
            f"N = {few} and {many}; the variance is {min(theory):.2f} to {max(theory):.2f} times z² Φ(1 - Φ)/N.",
            place="section 4.1.2, consistent",
        ),
    )


# What eq. 1 gives as it is printed: x times the integral of t phi(t), that is -x phi(x).
STRAY = f"{-math.exp(-0.5) / math.sqrt(2 * math.pi):.3f} at x = 1, where GELU is {float(values(GELU, [1.0])):.3f}"
NOTES = (
    "The errors are largest at the ends of the ranges, so that no grid enters.",
    f"Eq. 1 has a stray t in the integrand; as printed it gives {STRAY}.",
    "Section 3.1.3 drops the power 2n + 2 in its second line; section 3.3 has e^(-5z^2) for e^(-0.5 z^2).",
    "GELU, SiLU and ReLU are z/2 + an even function: an odd top degree gains nothing.",
)


# ---- figure


def draw(by_degree: pd.DataFrame) -> Figure:
    """Errors over z, and the largest ones by degree."""
    z = np.linspace(-7, 7, 1401)
    exact = values(GELU, z).numpy()
    with style():
        figure = new_figure(9.6, 4.0)
        left, right = map(Panel, figure.subplots(1, 2))
        curves = [ErrorCurve(f"Taylor, degree {DEGREE}", z, five_terms(7.0)(z) - exact, "#222222")]
        for i, reach in enumerate((3.0, 5.0, 7.0)):
            inside = np.abs(z) <= reach
            curve = best(DEGREE, reach)(z[inside]) - exact[inside]
            curves.append(ErrorCurve(f"minimax on ±{reach:.0f}", z[inside], curve, NEURON_COLOURS[i]))
        draw_errors(left, curves, floor=1e-9, xlabel="z = w.x")
        ends, printed = zip(*((r, float(p)) for r, p in PAPER.items()), strict=True)
        left.line(ends, printed, Pen("#D55E00", "", marker="x", size=7), label="the paper's Table 1")
        left.set(ylim=(1e-9, 1e5))
        left.legend(loc="lower right", fontsize=7)
        for i, (reach, part) in enumerate(by_degree.groupby("R")):
            x = part["degree"].to_numpy(float)
            lines = [
                ErrorCurve(f"Taylor, ±{reach:.0f}", x, part["Taylor"].to_numpy(float), NEURON_COLOURS[i], "--", "o"),
                ErrorCurve(f"minimax, ±{reach:.0f}", x, part["minimax"].to_numpy(float), NEURON_COLOURS[i], "-", "s"),
            ]
            draw_errors(right, lines, xlabel="degree")
        right.set(ylabel="largest error")
        right.legend(ncol=2, fontsize=7)
        figure.suptitle("Table 1: Taylor's series of GELU and the best polynomials")
    return figure


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """The best polynomial beside Taylor's of the same degree, on the interval that the paper calls acceptable."""
    reach = 3.0
    row = last(tables["table1"], range=f"[-{reach:.0f}, {reach:.0f}]")
    sentence = (
        f"The best polynomial of degree {DEGREE} is off from GELU by at most {row['minimax']:.2g} on {row['range']}; "
        f"Taylor's of that degree, which the paper calls acceptable there, by {row['Taylor']:#.2g}, "
        f"{row['Taylor'] / row['minimax']:.0f} times more."
    )
    sizes = (
        f"Proved: nowhere off by more than {row['minimax, proved at most']:.4g}. Taylor's error is "
        f"{row['of max |GELU|']:.0%} of GELU's largest value on the interval."
    )
    degrees = only(tables["degrees"], R=reach)
    strokes = (
        stroke("Taylor", degrees, "degree", "Taylor", NEURON_COLOURS[1]),
        stroke("best", degrees, "degree", "minimax", NEURON_COLOURS[0]),
    )
    sketch = Sketch(f"degree, on ±{reach:.0f}", "largest error", strokes, log_x=False)
    return (Finding("The best polynomial", sentence, sizes, sketch),)


STUDY = Study(
    "linearize/table1",
    "Taylor's series of GELU, and the best polynomials",
    "Five Taylor terms are acceptable on [-3, 3].",
    run,
    findings=findings,
    position=1,
)
