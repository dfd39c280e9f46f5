"""Eq. 5 and 8 as laws: how far they are off at a finite width, against d/m, with the predicted power and coefficient.

Eq. 5 has K~ = (G/d) * K by elements for m >> d, K of a ReLU network with m neurons and K~ of a ReGLU. By the paper's
own eq. 3 and 4, K = m k1 + G k0 and K~ = (G/d) * [(m + d) k1 + G k0]: eq. 5 is exact for a ReLU network of m + d
neurons, and off by (d/m) times K~ to first order. Every eigenvalue is off alike, so that the condition number and the
angles of eq. 8 are off to second order alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.ntk import analytic
from gatelab.plotting import Panel, Pen, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series, legend_below, size_ticks
from gatelab.statistics import Interval, t_interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.angles import UNITS, cosines, drawn_kernels
from gatelab.studies.ntk.gaussian import interval, interval_cells, interval_columns, samples
from gatelab.studies.verdicts import number_verdict, restored, together

# d/m of the expected kernels; up to FEW the power and the coefficient are fitted.
SHARES = (1 / 1024, 1 / 512, 1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
FEW = 1 / 32
# d/m of drawn networks: with less, chance hides what is to be measured.
DRAWN_SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
NEAR = 0.02  # a power or a coefficient as near as this to the predicted one agrees
QUANTITIES = {
    "eq. 5": "eq. 5, Frobenius norm",
    "lambda_max": "λ_max by eq. 5",
    "lambda_min": "λ_min by eq. 5",
    "condition": "κ by eq. 5",
    "eq. 8": "eq. 8, rms over pairs",
}


@dataclass(frozen=True)
class WidthPlan:
    """Samples, inputs and seeds of the expected kernels, the same of drawn networks, and neurons drawn for each."""

    n: int
    d: int
    seeds: int
    drawn_n: int
    drawn_d: int
    drawn_seeds: int
    neurons: int


FULL, QUICK = WidthPlan(200, 100, 8, 60, 20, 8, 200_000), WidthPlan(40, 20, 3, 30, 10, 3, 20_000)


@dataclass(frozen=True, eq=False)
class DrawnErrors:
    """Of kernels averaged over drawn networks, (shares, seeds): how far eq. 5 and 8 are off, and the law of each."""

    eq5: Array
    eq5_law: Array
    eq8: Array
    eq8_law: Array


def run(request: Request) -> Outcome:
    """Expected kernels and drawn networks at every d/m."""
    sizes = FULL
    if request.quick:
        sizes = QUICK
    tick = ticker(request, len(SHARES) * sizes.seeds + len(DRAWN_SHARES) * sizes.drawn_seeds)
    errors, exact = expected_errors(sizes, tick)
    drawn = drawn_errors(sizes, tick)
    claims = (*drawn_claims(drawn, sizes), *expected_claims(errors, sizes), exact_claim(exact, sizes))
    tables = {"expected": expected_table(errors, sizes), "drawn": drawn_table(drawn, sizes)}
    return Outcome(draw(errors, drawn, sizes), tables, claims, notes(sizes))


# ---- the laws


def eq5_law(share: float) -> float:
    """How far eq. 5 is off on the diagonal, over K~, at d/m = `share`: x / (1 + 2 x).

    >>> eq5_law(1.0), round(eq5_law(0.001) / 0.001, 2)
    (0.3333333333333333, 1.0)
    """
    return share / (1 + 2 * share)


def eq8_law(cosine: Array, share: float) -> Array:
    """cos(phi~) / (cos(phi) cos(theta)) - 1 of pairs with this cos(theta), at d/m = `share`.

    With s = G k0 / (d k1), which is 0 for orthogonal samples and 1 for equal ones, it is
    x^2 (1 - s) / (1 + x (2 + s) + 2 x^2 s).

    >>> eq8_law(np.array([0.0, 1.0]), 1.0)
    array([0.33333333, 0.        ])
    """
    theta = np.arccos(np.clip(cosine, -1, 1))
    away = (np.pi - theta) * cosine
    s = away / (np.sin(theta) + away)
    return share**2 * (1 - s) / (1 + share * (2 + s) + 2 * share**2 * s)


def power_and_coefficient(shares: Array, errors: Array) -> tuple[Interval, Interval]:
    """p and c of errors c x^p / (1 + 2 x)^b, fitted seed by seed, with t-intervals over the seeds.

    Shares are x = d/m, errors (shares, seeds) are positive, and the coefficient is a geometric mean.
    """
    design = np.stack([np.ones(len(shares)), np.log(shares), np.log1p(2 * shares)], axis=1)
    logs = np.linalg.lstsq(design, np.log(errors), rcond=None)[0]
    return t_interval(logs[1]), interval(np.exp(logs[0]))


# ---- measurement


def expected_errors(sizes: WidthPlan, tick: Callable[[], None]) -> tuple[dict[str, Array], float]:
    """How far eq. 5 and 8 are off for expected kernels, (shares, seeds) by quantity; and eq. 5 with m + d neurons.

    The latter is the largest difference from K~ over the largest entry, of all shares and seeds.
    """
    errors = {name: np.empty((len(SHARES), sizes.seeds)) for name in QUANTITIES}
    exact = 0.0
    upper = np.triu_indices(sizes.n, 1)
    for i, share in enumerate(SHARES):
        for seed in range(sizes.seeds):
            x = samples(sizes.n, sizes.d, seed)
            gram, width = x @ x.T / sizes.d, round(sizes.d / share)
            plain, gated = (kernel.numpy() for kernel in analytic(list(UNITS), x, width))
            wider = analytic("mlp", x, width + sizes.d).numpy()
            exact = max(exact, float(np.abs(gram * wider - gated).max() / np.abs(gated).max()))
            by_eq5 = gram * plain
            ours, theirs = np.linalg.eigvalsh(gated), np.linalg.eigvalsh(by_eq5)
            theta, phi, gated_phi = (cosines(kernel)[upper] for kernel in (gram, plain, gated))
            row = {
                "eq. 5": np.linalg.norm(by_eq5 - gated) / np.linalg.norm(gated),
                "lambda_max": 1 - theirs[-1] / ours[-1],
                "lambda_min": 1 - theirs[0] / ours[0],
                "condition": abs(theirs[-1] / theirs[0] / (ours[-1] / ours[0]) - 1),
                "eq. 8": np.sqrt(np.mean((phi * theta - gated_phi) ** 2) / np.mean(gated_phi**2)),
            }
            for name, value in row.items():
                errors[name][i, seed] = value
            tick()
    return errors, exact


def drawn_errors(sizes: WidthPlan, tick: Callable[[], None]) -> DrawnErrors:
    """The same of gradients multiplied out: no formula of a kernel enters, and no expectation but the mean of draws.

    Eq. 5 is held against the trace of K~, eq. 8 against the line through cos(phi~) over cos(phi) cos(theta): both are
    linear in what was drawn for K~, so that chance does not add to them as it adds to squares.
    """
    values = np.empty((4, len(DRAWN_SHARES), sizes.drawn_seeds))
    upper = np.triu_indices(sizes.drawn_n, 1)
    for i, share in enumerate(DRAWN_SHARES):
        for seed in range(sizes.drawn_seeds):
            x = samples(sizes.drawn_n, sizes.drawn_d, seed)
            gram, width = x @ x.T / sizes.drawn_d, round(sizes.drawn_d / share)
            plain, gated = drawn_kernels(x, width, seed, networks=sizes.neurons // width)
            theta, phi, gated_phi = (cosines(kernel)[upper] for kernel in (gram, plain, gated))
            product = phi * theta
            weights = product**2 / np.sum(product**2)
            values[:, i, seed] = (
                1 - np.trace(gram * plain) / np.trace(gated),
                eq5_law(share),
                np.sum(product * gated_phi) / np.sum(product**2) - 1,
                np.sum(weights * eq8_law(theta, share)),
            )
            tick()
    return DrawnErrors(*values)


# ---- tables


def expected_table(errors: dict[str, Array], sizes: WidthPlan) -> pd.DataFrame:
    """A row a quantity and d/m: how far it is off for expected kernels."""
    rows = []
    for name, values in errors.items():
        for share, of_seeds in zip(SHARES, values, strict=True):
            row = {"quantity": name, "d_over_m": share, "width": round(sizes.d / share), "n": sizes.n, "d": sizes.d}
            rows.append(row | interval_cells("error", interval(of_seeds)) | {"seeds": sizes.seeds})
    return pd.DataFrame(rows)


def drawn_table(drawn: DrawnErrors, sizes: WidthPlan) -> pd.DataFrame:
    """A row an equation and d/m: how far it is off in drawn networks, and by its law."""
    rows = []
    for name, values, law in (("eq. 5", drawn.eq5, drawn.eq5_law), ("eq. 8", drawn.eq8, drawn.eq8_law)):
        for share, of_seeds, expected in zip(DRAWN_SHARES, values, law, strict=True):
            width = round(sizes.drawn_d / share)
            row = {"equation": name, "d_over_m": share, "width": width, "networks": sizes.neurons // width}
            row |= interval_cells("error", t_interval(of_seeds)) | {"law": float(expected.mean())}
            rows.append(row | interval_cells("over_law", t_interval(of_seeds / expected)))
    return pd.DataFrame(rows)


# ---- what it says


def drawn_claims(drawn: DrawnErrors, sizes: WidthPlan) -> list[Claim]:
    """Power and coefficient of eq. 5 and 8 in drawn networks, beside those that follow from the paper's eq. 3 and 4."""
    claims = []
    for name, power, values, law in (
        ("eq. 5", 1, drawn.eq5, drawn.eq5_law),
        ("eq. 8", 2, drawn.eq8, drawn.eq8_law),
    ):
        # The law bends; what is left of the power is that of measured over predicted.
        bend = measured_power(np.array(DRAWN_SHARES), values / law)
        grown = Interval(power + bend.value, power + bend.low, power + bend.high)
        coefficient = t_interval(np.sum(values * law, axis=0) / np.sum(law**2, axis=0))
        claims.append(
            Claim(
                f"how far {name} is off in drawn networks, against d/m",
                f"nothing for large m; coefficient 1 of (d/m)^{power} by its eq. 3 and 4 (lost, derived again)",
                f"coefficient {coefficient.value:.3f} of (d/m)^{grown.value:.2f}",
                restored(together([number_verdict(1, 0, coefficient, NEAR), number_verdict(power, 0, grown, NEAR)])),
                f"{DRAWN_LAWS[name]} m = {round(sizes.drawn_d / DRAWN_SHARES[-1])}.."
                f"{round(sizes.drawn_d / DRAWN_SHARES[0])}, n = {sizes.drawn_n}, d = {sizes.drawn_d}, gradients of "
                f"{sizes.neurons} neurons multiplied out at each width and for each of {sizes.drawn_seeds} draws of "
                "the samples.",
                f"{coefficient.ends('.3f')}, power {grown.ends('.2f')}",
                place=f"{name}, against d/m",
            )
        )
    return claims


DRAWN_LAWS = {
    "eq. 5": "The law on the diagonal is x/(1 + 2x), x = d/m: what eq. 5 leaves out is the gradient in the factor's "
    "weights, d k1 beside m k1.",
    "eq. 8": "The law of a pair is x²(1 - s)/(1 + x(2 + s) + 2x²s), s = G k0/(d k1): 1 for orthogonal samples, and "
    "0 for equal ones, where eq. 8 is exact. The coefficient is of the whole law.",
}


def measured_power(shares: Array, ratios: Array) -> Interval:
    """The slope of log ratios over log shares, seed by seed; ratios that chance made negative count for nothing."""
    slopes = []
    for of_seed in ratios.T:
        positive = of_seed > 0
        slopes.append(np.polyfit(np.log(shares[positive]), np.log(of_seed[positive]), 1)[0])
    return t_interval(np.array(slopes))


def expected_claims(errors: dict[str, Array], sizes: WidthPlan) -> list[Claim]:
    """Powers and coefficients of expected kernels: eigenvalues to first order, the condition number to second."""
    small = np.array([share <= FEW for share in SHARES])
    shares = np.array(SHARES)[small]
    claims = []
    for name, words in QUANTITIES.items():
        power, coefficient = power_and_coefficient(shares, errors[name][small])
        claims.append(
            Claim(
                f"{words}: how far it is off for expected kernels, against d/m",
                "-",
                f"{coefficient.value:.3f} (d/m)^{power.value:.2f}",
                "new",
                f"d/m = 1/{1 / shares[0]:.0f}..1/{1 / shares[-1]:.0f}, n = {sizes.n}, d = {sizes.d}. {REASONS[name]}",
                f"{coefficient.ends('.3f')}, power {power.ends('.2f')}",
            )
        )
    return claims


REASONS = {
    "eq. 5": "Predicted: 1 and 1.",
    "lambda_max": "Predicted: 1 and 1, as for every eigenvalue, since what is left out is d/m of what is kept.",
    "lambda_min": "Predicted: 1 and 1.",
    "condition": "Predicted: power 2, since eigenvalues are off alike: gating's effect on κ is in eq. 5 long before "
    "its eigenvalues are.",
    "eq. 8": "Predicted: power 2 and the root mean square of 1 - s, below 1 at this d.",
}


def exact_claim(exact: float, sizes: WidthPlan) -> Claim:
    """Eq. 5 with m + d neurons in the ReLU network."""
    return Claim(
        "eq. 5 with a ReLU network of m + d neurons",
        "-",
        f"exact: off by {exact:.0e} of the largest entry at most",
        "new",
        f"K~ of m neurons is (G/d) * K of m + d neurons at every width: {len(SHARES)} widths from {sizes.d} to "
        f"{round(sizes.d / SHARES[0])}. A unit with q factors has (G/d)^q * K of m + q d neurons.",
    )


def notes(sizes: WidthPlan) -> tuple[str, ...]:
    """What was measured, and how powers are fitted."""
    return (
        f"Gaussian samples. Expected kernels: n = {sizes.n}, d = {sizes.d}, {sizes.seeds} seeds. Errors are relative "
        "to the ReGLU's own kernel, eigenvalue or condition number.",
        "Powers p and coefficients c of expected kernels are of c x^p/(1 + 2x)^b, fitted seed by seed; intervals are "
        "t-intervals over seeds, 95 %.",
    )


# ---- figure


def draw(errors: dict[str, Array], drawn: DrawnErrors, sizes: WidthPlan) -> Figure:
    """What is off to first order, what to second order, and drawn networks over the laws."""
    with style():
        figure = new_figure(11.4, 4.6)
        first, second, last = map(Panel, figure.subplots(1, 3))
        draw_orders(first, errors, ("eq. 5", "lambda_max", "lambda_min"), 1)
        draw_orders(second, errors, ("condition", "eq. 8"), 2)
        draw_drawn(last, drawn)
        figure.suptitle(f"Eq. 5 and 8 against d/m: expected kernels (n = {sizes.n}, d = {sizes.d}) and drawn networks")
    return figure


COLOURS = {
    "eq. 5": look("glu").colour,
    "lambda_max": look("mlp").colour,
    "lambda_min": look("relu3").colour,
    "condition": look("gqu").colour,
    "eq. 8": look("relu2").colour,
}
MARKERS = {"eq. 5": "s", "lambda_max": "^", "lambda_min": "v", "condition": "D", "eq. 8": "o"}


def draw_orders(panel: Panel, errors: dict[str, Array], names: tuple[str, ...], power: int) -> None:
    """Some quantities over d/m, and the power of d/m with the coefficient 1."""
    x = np.array(SHARES)
    series = []
    for name in names:
        value, low, high = interval_columns([interval(row) for row in errors[name]])
        series.append(Series(QUANTITIES[name], x, value, low, high, colour=COLOURS[name], marker=MARKERS[name]))
    law = Series({1: "d/m", 2: "(d/m)²"}[power], x, x**power, colour="black", line="--")
    bent = Series({1: "x/(1 + 2x)", 2: "x²/(1 + 2x)"}[power], x, x**power / (1 + 2 * x), line=":", colour="black")
    draw_series(panel, [*series, law, bent])
    share_ticks(panel, SHARES[::5])
    words = {1: "first", 2: "second"}[power]
    panel.set(xlabel="inputs over width, x = d/m", ylabel="relative error", title=f"off to {words} order in d/m")
    legend_below(panel, [s.entry() for s in (*series, law, bent)])


def draw_drawn(panel: Panel, drawn: DrawnErrors) -> None:
    """Measured in drawn networks over the laws, which should be 1."""
    series = []
    for name, ratios, shift in (("eq. 5", drawn.eq5 / drawn.eq5_law, 0.97), ("eq. 8", drawn.eq8 / drawn.eq8_law, 1.03)):
        value, low, high = interval_columns([t_interval(row) for row in ratios])
        x = shift * np.array(DRAWN_SHARES)
        series.append(Series(name, x, value, low, high, colour=COLOURS[name], marker=MARKERS[name], line=""))
    draw_series(panel, series, y_log=False)
    panel.rule("y", 1.0, Pen("black", "--", 0.8))
    share_ticks(panel, DRAWN_SHARES)
    panel.set(xlabel="inputs over width, x = d/m", ylabel="measured error over its law", title="drawn networks")
    legend_below(panel, [s.entry() for s in series])


def share_ticks(panel: Panel, shares: tuple[float, ...]) -> None:
    """A tick for each of these d/m, as a fraction."""
    size_ticks(panel, shares)
    panel.axes.set_xticks(list(shares), labels=[f"1/{1 / s:.0f}" if s < 1 else f"{s:g}" for s in shares])


STUDY = Study(
    "ntk/width",
    "Eq. 5 and 8 as laws in d/m",
    "The kernel of ReGLU is that of ReLU times the Gram matrix, and cos φ~ = cos φ cos θ, for m much larger than d.",
    run,
    position=4.5,
)
