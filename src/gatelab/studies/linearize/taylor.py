"""Tables 1 to 3 and section 3.3.1: GELU's Taylor series, the best polynomials, and the series as a product of maps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from torch import Tensor

from gatelab.arrays import Array
from gatelab.feedforward.gates import activation
from gatelab.linearization import Linearization, Polynomial, bound, linearize
from gatelab.linearization.polynomials import gate_and_factors, values
from gatelab.plotting.facets import Facets, Overlay
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables, interval_at, interval_columns
from gatelab.studies.inventory import printed

# ---- table 1: the largest error of five Taylor terms

DEGREE = 10  # five terms
ACCEPTABLE = 0.1  # the largest acceptable error, as a share of the largest |GELU|
GELU = activation("gelu")
TABLE1 = Study(
    "linearize/table1",
    "Taylor's series of GELU, and the best polynomials",
    "Five Taylor terms are acceptable on [-3, 3].",
    position=1,
    figure=(
        Facets(
            x="range", y="Taylor", ylog=True, paper="paper", xlabel="range of z = w.x", ylabel="largest error",
            lines=(Overlay("minimax", "best polynomial of that degree"),), title="five Taylor terms of GELU (points)",
        ),
        Facets(
            table="degrees", x="degree", y="minimax", hue="R", ylog=True, ylabel="largest error",
            lines=(Overlay("Taylor", "Taylor's series"),), names={r: f"±{r}" for r in (3, 5, 7)},
            title="best polynomials (points) and Taylor's series",
        ),
    ),
    cards={
        "The best polynomial": Facets(
            table="degrees", x="degree", y="minimax", where={"R": 3}, ylog=True, xlabel="degree, on ±3",
            ylabel="largest error", lines=(Overlay("Taylor", "Taylor's series", hue=False),),
        )
    },
)  # fmt: skip


def polynomial(method: str, degree: int, reach: float) -> Polynomial:
    made = linearize("gelu", method, degree=degree, interval=(-reach, reach)).polynomial
    assert made is not None
    return made


@TABLE1.measure("table1", grid={"R": [1, 3, 5, 7]})
def errors(R: int) -> dict[str, object]:
    taylor, minimax = (polynomial(method, DEGREE, float(R)) for method in ("taylor", "minimax"))
    return {
        "range": f"[-{R}, {R}]",
        "paper": float(printed("linearize", f"table 1, [-{R}, {R}]")),
        "Taylor": taylor.error(GELU),
        "Taylor, proved at most": bound(taylor, GELU).value,
        "of max |GELU|": taylor.error(GELU) / float(values(GELU, [float(R)])),
        "minimax": minimax.error(GELU),
        "minimax, proved at most": bound(minimax, GELU).value,
    }


@TABLE1.measure("degrees", grid={"degree": [2, 4, 6, 8, 10, 12, 16, 20, 24], "R": [3, 5, 7]}, quick={"degree": [4, 10]})
def by_degree(degree: int, R: int) -> dict[str, float]:
    return {name: polynomial(name.lower(), degree, float(R)).error(GELU) for name in ("Taylor", "minimax")}


@TABLE1.tables
def series(request: Request) -> Tables:
    """The coefficients of z/2 + (z^2/1 - z^4/6 + z^6/40 - z^8/336 + ...) / sqrt(2 pi)."""
    taylor = polynomial("taylor", DEGREE, 1.0)
    power = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebinterpolate(taylor, DEGREE))
    return {"series": pd.DataFrame({"power": range(DEGREE + 1), "coefficient": power})}


@TABLE1.claims
def table1_claims(tables: Tables) -> Iterator[Claim]:
    table = tables["table1"].set_index("range")
    for where, row in table.iterrows():
        yield Claim(
            f"largest error of 5 Taylor terms, Wx in {where}", row["Taylor"],
            paper=printed("linearize", f"table 1, {where}"), rule="digits", place=f"table 1, {where}",
            support={"proved to be at most": row["Taylor, proved at most"]},
        )  # fmt: skip
    share = float(table.loc["[-3, 3]", "of max |GELU|"])
    yield Claim(
        "Wx in [-3, 3], where the error is called acceptable", float(share < ACCEPTABLE), paper="acceptable",
        rule="holds", place="section 3.2.4, the error on [-3, 3]",
        support={"error over the largest |GELU| there": share},
    )  # fmt: skip
    coefficient = tables["series"].set_index("power")["coefficient"]
    denominators = {k: 1 / (coefficient[k] * math.sqrt(2 * math.pi)) for k in (2, 4, 6, 8)}
    others = {"z": coefficient[1], "largest coefficient of other odd powers": coefficient[3::2].abs().max()}
    yield Claim(
        "denominators of z^2, z^4, z^6, z^8 in the series, times sqrt(2 pi)", denominators[2], paper="1, -6, 40, -336",
        rule="digits", place="section 3.2.1, the series; eq. 6, the series",
        support={f"z^{k}": denominators[k] for k in (4, 6, 8)} | others,
    )  # fmt: skip
    for where, row in table.iterrows():
        support = {"Taylor's over it": row["Taylor"] / row["minimax"]}
        support["proved to be at most"] = row["minimax, proved at most"]
        title = f"largest error of the best polynomial of degree {DEGREE} on {where}"
        yield Claim(title, row["minimax"], support=support)


# ---- table 2: the series as a product of lifted weights and inputs

FEATURES, MINIMUM = 66_432, -0.7523  # of the paper; where tanh-GELU is least
# The rows of the paper's table, and our columns for them.
ROWS = {"x' = Wx": "recovered", "GELU_Taylor,5(x')": "Taylor", "Linearized y' = Phi(W) Psi(x)": "Kronecker"}
ROWS |= {"GELU_tanh(x')": "tanh-GELU"}
PRINTED = {row: printed("linearize", f"table 2, {row}") for row in ROWS}
Z, _, _, TANH = ([float(v) for v in text.split(", ")] for text in PRINTED.values())
TABLE2 = Study(
    "linearize/table2",
    "Taylor's series as a product of lifted weights and inputs",
    "Kronecker powers of W and x give the Taylor series of GELU(Wx) exactly.",
    position=2,
    figure=Facets(
        table="curves", x="z", y="value", hue="function", smooth=True, paper="paper", xlabel="z = w.x",
        ylabel="act(z)", title="GELU, its series, and the numbers of table 2",
        names={"GELU_Taylor,5(x')": "Taylor, five terms", "GELU_tanh(x')": "tanh-GELU"},
    ),
)  # fmt: skip


def gelu(z: Array, form: str = "gelu") -> Array:
    return values(gate_and_factors(form)[0], z).numpy()


def five_terms(z: Array) -> Array:
    return polynomial("taylor", DEGREE, max(3.0, float(np.abs(z).max())))(z)


def layer(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Any W and x with W x = Z: the table depends on the product alone."""
    draw = torch.Generator().manual_seed(seed)
    W = torch.randn(3, 3, generator=draw, dtype=torch.float64)
    x = torch.randn(3, generator=draw, dtype=torch.float64)
    return W + torch.outer(torch.tensor(Z, dtype=torch.float64) - W @ x, x) / x.dot(x), x


def taylor_maps(features: str, d: int = 3) -> Linearization:
    """The series on d inputs as maps, with Kronecker or with symmetric features."""
    return linearize("gelu", "taylor", degree=DEGREE, d=d, features=features)


def product(maps: Linearization, W: Tensor, x: Tensor) -> Array:
    return (maps.phi(W) @ maps.psi(x)).numpy()


@TABLE2.measure("features", grid={"d": [3, 16, 64]})
def features(d: int) -> dict[str, float]:
    kronecker, symmetric = (taylor_maps(kind, d).m for kind in ("kronecker", "symmetric"))
    return {"kronecker": kronecker, "symmetric": symmetric, "ratio": kronecker / symmetric}


@TABLE2.tables
def table2_tables(request: Request) -> Tables:
    W, x = layer()
    z = (W @ x).numpy()
    products = {kind: product(taylor_maps(kind.lower()), W, x) for kind in ("Kronecker", "symmetric")}
    forms = {"tanh-GELU": gelu(z, "gelu-tanh"), "erf-GELU": gelu(z)}
    recovered = []  # z from the printed tanh-GELU(z), on its side of the minimum
    for near, value in zip(Z, TANH, strict=True):
        ends = np.sort([np.copysign(6.0, near - MINIMUM), MINIMUM])
        recovered.append(brentq(lambda z, value=value: float(gelu(np.array([z]), "gelu-tanh")[0]) - value, *ends))
    columns = {"z = Wx": z, "Taylor": five_terms(z), **products, **forms, "recovered": recovered}
    grid = np.union1d(np.linspace(-3, 3, 121), Z)
    curves = []
    for row, function in (("GELU_Taylor,5(x')", five_terms(grid)), ("GELU_tanh(x')", gelu(grid, "gelu-tanh"))):
        known = pd.Series(map(float, PRINTED[row].split(", ")), index=Z).reindex(grid).to_numpy()
        curves.append(pd.DataFrame({"function": row, "z": grid, "value": function, "paper": known}))
    return {"table2": pd.DataFrame(columns), "curves": pd.concat(curves)}


@TABLE2.claims
def table2_claims(tables: Tables) -> Iterator[Claim]:
    table, counts = tables["table2"], tables["features"].set_index("d")
    for what, column in ROWS.items():
        first, *others = table[column]
        support = {f"at x' = {z}": value for z, value in zip(Z[1:], others, strict=True)}
        if column == "tanh-GELU":
            support["erf-GELU"] = list(table["erf-GELU"])
        yield Claim(what, first, paper=PRINTED[what], rule="digits", place=f"table 2, {what}", support=support)
    yield Claim(
        "features of W and x in R^3, Kronecker powers", float(counts.loc[3, "kronecker"]), paper=f"{FEATURES}",
        rule="digits", place="section 3.2.4, features", note="3 + 3^2 + 3^4 + 3^6 + 3^8 + 3^10.",
    )  # fmt: skip
    yield Claim(
        "features that the same function needs", float(counts.loc[3, "symmetric"]), paper=float(FEATURES),
        rule="at most",
        support={"largest difference of the two": float((table["Kronecker"] - table["symmetric"]).abs().max())}
        | {f"with {d} inputs, of either kind": list(counts.loc[d, ["kronecker", "symmetric"]]) for d in (16, 64)},
        note="Kronecker powers repeat monomials; here each is counted once, with its multinomial weight.",
    )  # fmt: skip


# ---- table 3 and section 3.3.1: the error of the series, and of maps at a reference point

SERIES, PRODUCT = "RMSE (Taylor vs. Tanh GELU)", "RMSE (Linearized vs. Taylor GELU)"
# Section 3.3.1: distances from the reference point, the number of points, and a cloud about one of them.
DISTANCES = np.geomspace(1e-4, 1e-2, 5)
REFERENCES, POINTS, SPREAD = 20, 4000, 0.5
BEST = f"minimax of degree {DEGREE} on [-3, 3] vs. erf-GELU"
LEAST_DRAWN = 1e-10  # smaller differences are drawn there
DRAWN = {"Taylor vs. tanh-GELU": "Taylor - tanh", "Taylor vs. erf-GELU": "Taylor - erf"}
DRAWN |= {"tanh-GELU vs. erf-GELU": "tanh - erf", BEST: "best - erf"}
TABLE3 = Study(
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


def reference_maps(W: Array, center: Array, x: Array) -> Array:
    """Phi(W) Psi(x) of section 3.3.1: tanh-GELU and its slope at W times the reference point, as printed."""
    z = W @ center
    phi = np.column_stack([derivative(z)[:, None] * W, gelu(z, "gelu-tanh")])
    psi = np.column_stack([x - center, np.ones(len(x))])
    return psi @ phi.T


def reference_power(form: str) -> Interval:
    """The power of |x - reference point| in the error of the maps, over random W and points."""
    powers = []
    for seed in range(REFERENCES):
        generator = np.random.default_rng([33, seed])
        W, center, way = generator.standard_normal((3, 3)), generator.standard_normal(3), generator.standard_normal(3)
        x = center + np.outer(DISTANCES, way / np.linalg.norm(way))
        errors = np.sqrt(np.mean((reference_maps(W, center, x) - gelu(x @ W.T, form)) ** 2, axis=1))
        powers.append(np.polyfit(np.log(DISTANCES), np.log(errors), 1)[0])
    return t_interval(np.array(powers))


def comparisons(z: Array) -> dict[str, tuple[Array, Array]]:
    """The pairs of functions of z that are compared, by name."""
    series, tanh, erf = five_terms(z), gelu(z, "gelu-tanh"), gelu(z)
    best = polynomial("minimax", DEGREE, 3.0)(z)
    return dict(zip(DRAWN, ((series, tanh), (series, erf), (tanh, erf), (best, erf)), strict=True))


@TABLE3.tables
def table3_tables(request: Request) -> Tables:
    z, (W, x) = np.array(Z), layer()
    pairs = comparisons(z)
    for kind in ("Kronecker", "symmetric"):
        pairs[f"{kind} product vs. Taylor"] = (product(taylor_maps(kind.lower()), W, x), five_terms(z))
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
    drawn = pd.concat(curves).assign(printed=lambda rows: rows["z"].isin(Z))
    # The mean error over a cloud about one reference point, of each of three outputs.
    generator = np.random.default_rng(331)
    W, center = generator.standard_normal((3, 3)) / 3**0.5, generator.standard_normal(3)
    x = center + SPREAD * generator.standard_normal((POINTS, 3))
    off = (reference_maps(W, center, x) - gelu(x @ W.T, "gelu-tanh")).T
    bias = pd.DataFrame([interval_columns("bias", t_interval(column)) for column in off])
    return {"table3": pd.DataFrame(errors), "curves": drawn, "reference": pd.DataFrame(maps), "bias": bias}


@TABLE3.claims
def table3_claims(tables: Tables) -> Iterator[Claim]:
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
