"""Table 3: the error of the series on three numbers, and that of the product against the series; section 3.3.1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from gatelab.arrays import Array
from gatelab.linearization import linearize
from gatelab.linearization.polynomials import gate_and_factors
from gatelab.plotting.facets import Facets
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables, interval_at, interval_columns
from gatelab.studies.inventory import printed
from gatelab.studies.linearize.table1 import DEGREE, polynomial
from gatelab.studies.linearize.table2 import Z, gelu, layer, product, taylor, taylor_maps

SERIES, PRODUCT = "RMSE (Taylor vs. Tanh GELU)", "RMSE (Linearized vs. Taylor GELU)"
# Section 3.3.1: distances from the reference point, the number of points, and a cloud about one of them.
DISTANCES = np.geomspace(1e-4, 1e-2, 5)
REFERENCES, POINTS, SPREAD = 20, 4000, 0.5
BEST = f"minimax of degree {DEGREE} on [-3, 3] vs. erf-GELU"
LEAST_DRAWN = 1e-10  # smaller differences are drawn there
DRAWN = {
    "Taylor vs. tanh-GELU": "Taylor - tanh",
    "Taylor vs. erf-GELU": "Taylor - erf",
    "tanh-GELU vs. erf-GELU": "tanh - erf",
    BEST: "best - erf",
}
STUDY = Study(
    "linearize/table3",
    "The error of the series, and of the product",
    "The product of Phi and Psi is the Taylor series exactly, which is off by 0.21182.",
    position=3,
    figure=Facets(
        table="curves", x="z", y="error", hue="comparison", smooth=True, ylog=True, xlabel="z = w.x",
        ylabel="|difference|", marks=("printed", "the paper's z"), names=DRAWN, where={"comparison": list(DRAWN)},
        title="The functions compared in table 3",
    ),
)  # fmt: skip


def derivative(x: Array) -> Array:
    """GELU' as section 3.3.1 prints it."""
    inner = np.sqrt(2) * (8943 * x**3 / 200_000 + x) / np.sqrt(np.pi)
    outer = x * (26_829 * x**2 / 200_000 + 1) / np.cosh(inner) ** 2 / (np.sqrt(2) * np.sqrt(np.pi))
    return (np.tanh(inner) + 1) / 2 + outer


def derivative_error(form: str) -> float:
    """The largest distance on [-6, 6] between the printed derivative and that of a form of GELU by autodiff."""
    z = torch.linspace(-6, 6, 2401, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(gate_and_factors(form)[0](z).sum(), z)
    return float(np.abs(derivative(z.detach().numpy()) - slope.numpy()).max())


def reference_maps(W: Array, centre: Array, x: Array) -> Array:
    """Phi(W) Psi(x) of section 3.3.1: tanh-GELU and its slope at W times the reference point, as printed."""
    z = W @ centre
    phi = np.column_stack([derivative(z)[:, None] * W, gelu(z, "gelu-tanh")])
    psi = np.column_stack([x - centre, np.ones(len(x))])
    return psi @ phi.T


def reference_power(form: str) -> Interval:
    """The power of |x - reference point| in the error of the maps, over random W and points."""
    powers = []
    for seed in range(REFERENCES):
        generator = np.random.default_rng([33, seed])
        W, centre, way = generator.standard_normal((3, 3)), generator.standard_normal(3), generator.standard_normal(3)
        x = centre + np.outer(DISTANCES, way / np.linalg.norm(way))
        errors = np.sqrt(np.mean((reference_maps(W, centre, x) - gelu(x @ W.T, form)) ** 2, axis=1))
        powers.append(np.polyfit(np.log(DISTANCES), np.log(errors), 1)[0])
    return t_interval(np.array(powers))


def reference_biases() -> list[Interval]:
    """The mean error of the maps over a cloud about one reference point, of each of three outputs."""
    generator = np.random.default_rng(331)
    W, centre = generator.standard_normal((3, 3)) / 3**0.5, generator.standard_normal(3)
    x = centre + SPREAD * generator.standard_normal((POINTS, 3))
    return [t_interval(column) for column in (reference_maps(W, centre, x) - gelu(x @ W.T, "gelu-tanh")).T]


def comparisons(z: Array) -> dict[str, tuple[Array, Array]]:
    """The pairs of functions of z that are compared, by name."""
    hermite = linearize("gelu", "hermite", degree=DEGREE, scale=1.0).polynomial
    assert hermite is not None
    series, tanh, erf = taylor(z), gelu(z, "gelu-tanh"), gelu(z)
    return {
        "Taylor vs. tanh-GELU": (series, tanh),
        "Taylor vs. erf-GELU": (series, erf),
        "tanh-GELU vs. erf-GELU": (tanh, erf),
        BEST: (polynomial("minimax", DEGREE, 3.0)(z), erf),
        f"Hermite of degree {DEGREE}, N(0, 1), vs. erf-GELU": (hermite(z), erf),
    }


@STUDY.tables
def tables(request: Request) -> Tables:
    """Table 3, the compared functions over z, and the maps at a reference point."""
    z, (W, x) = np.array(Z), layer()
    pairs = comparisons(z)
    for kind in ("Kronecker", "symmetric"):
        pairs[f"{kind} product vs. Taylor"] = (product(taylor_maps(kind.lower()), W, x), taylor(z))
    errors = [{"metric": name, "RMSE": float(np.sqrt(np.mean((a - b) ** 2)))} for name, (a, b) in pairs.items()]
    grid = np.union1d(np.linspace(-3, 3, 241), Z)
    curves = [
        pd.DataFrame({"comparison": name, "z": grid, "error": np.maximum(np.abs(a - b), LEAST_DRAWN)})
        for name, (a, b) in comparisons(grid).items()
    ]
    maps = [
        {"form": form, "derivative_error": derivative_error(form), **interval_columns("power", reference_power(form))}
        for form in ("gelu-tanh", "gelu")
    ]
    return {
        "table3": pd.DataFrame(errors),
        "curves": pd.concat(curves).assign(printed=lambda rows: rows["z"].isin(Z)),
        "reference": pd.DataFrame(maps),
        "bias": pd.DataFrame([interval_columns("bias", bias) for bias in reference_biases()]),
    }


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The two numbers of table 3 to their digits, and section 3.3.1."""
    rmse, forms = tables["table3"].set_index("metric")["RMSE"], tables["reference"].set_index("form")
    rounding, least, erf = rmse["Kronecker product vs. Taylor"], rmse[BEST], rmse["Taylor vs. erf-GELU"]
    yield Claim(
        SERIES, rmse["Taylor vs. tanh-GELU"], paper=printed("linearize", f"table 3, {SERIES}"), rule="digits",
        place=f"table 3, {SERIES}", support={"against erf-GELU, whose series it is": erf},
        note=f"Nearly all of the error is that at z = {Z[0]}.",
    )  # fmt: skip
    yield Claim(
        PRODUCT, rounding, paper=printed("linearize", f"table 3, {PRODUCT}"), rule="digits",
        place=f"table 3, {PRODUCT}", support={"with 163 symmetric features": rmse["symmetric product vs. Taylor"]},
    )  # fmt: skip
    yield Claim(
        f"RMSE of the best polynomial of degree {DEGREE} on [-3, 3], on the same three numbers", least,
        support={"Taylor's over it": erf / least},
    )  # fmt: skip
    off = forms["derivative_error"]
    yield Claim(
        "the derivative of GELU (section 3.3.1)", float(off["gelu-tanh"] < 1e-12),
        paper="with 8943/200000 and 26829/200000", rule="holds", place="section 3.3.1, GELU'",
        support={"largest error for tanh-GELU": off["gelu-tanh"], "for erf-GELU, which eq. 1 defines": off["gelu"]},
    )  # fmt: skip
    yield Claim.of(
        "power of |x - reference point| with which the maps of section 3.3.1 are off",
        interval_at(forms.loc["gelu-tanh"], "power"), 2.0, "number", place="section 3.3.1, maps at a reference point",
        support={"against erf-GELU": interval_at(forms.loc["gelu"], "power"), "distances": list(DISTANCES[[0, -1]])},
        note="A first-order expansion leaves 2. Its values and slopes are those of the tanh form.",
    )  # fmt: skip
    biases = [interval_at(row, "bias") for row in tables["bias"].to_dict("records")]
    nearest = min(biases, key=lambda bias: max(bias.low, -bias.high))
    ends = sorted(abs(end) if nearest.excludes(0) else end for end in (nearest.low, nearest.high))
    yield Claim(
        "mean error of the maps at a reference point, the output with the smallest", abs(nearest.value), *ends,
        paper=0.0, rule="above", place="section 3.3.1, biased",
        support={"of the three outputs": biases, "deviation of the inputs": SPREAD},
        note="The paper calls the maps biased. To second order the bias is -GELU'' |w|² σ²/2.",
    )  # fmt: skip
