"""Table 2: the Taylor series as a product of lifted weights and inputs, for one W and x."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from torch import Tensor

from gatelab.arrays import Array
from gatelab.linearization import Linearization, linearize
from gatelab.linearization.polynomials import gate_and_factors, values
from gatelab.plotting.facets import Facets
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables
from gatelab.studies.inventory import printed
from gatelab.studies.linearize.table1 import DEGREE, polynomial

FEATURES = 66_432
PAIRS = 20  # of random W and x
ROUNDING = 1e-12  # of the largest terms: sums of 66 432 products
LAST_TERM = 24 * 2**4 * 9 * (2 * math.pi) ** 0.5  # the denominator of z^10 in the series
# The rows of the paper's table, and our columns for them.
ROWS = {
    "x' = Wx": "recovered",
    "GELU_Taylor,5(x')": "Taylor",
    "Linearized y' = Phi(W) Psi(x)": "Kronecker",
    "GELU_tanh(x')": "tanh-GELU",
}
PRINTED = {row: printed("linearize", f"table 2, {row}") for row in ROWS}
Z, _, _, TANH = ([float(v) for v in text.split(", ")] for text in PRINTED.values())
STUDY = Study(
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
    """GELU of numbers in one of its forms, "gelu" or "gelu-tanh"."""
    return values(gate_and_factors(form)[0], z).numpy()


def taylor(z: Array) -> Array:
    """Five terms of the series."""
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
    """Phi(W) Psi(x)."""
    return (maps.phi(W) @ maps.psi(x)).numpy()


def inverse_tanh_gelu(near: float, printed: float) -> float:
    """z from a printed tanh-GELU(z), on the side of the minimum where `near` lies."""
    minimum = -0.7523
    ends = (-6.0, minimum) if near < minimum else (minimum, 6.0)
    return float(brentq(lambda z: float(gelu(np.array([z]), "gelu-tanh")[0]) - printed, *ends))  # type: ignore[arg-type]


def residuals(pairs: int) -> list[float]:
    """The largest |Phi(W) Psi(x) - series(W x)| of each drawn W and x, over the largest sum of terms."""
    generator = torch.Generator().manual_seed(1)
    maps = taylor_maps("kronecker")
    found = []
    for _ in range(pairs):
        W = torch.randn(3, 3, generator=generator, dtype=torch.float64)
        x = torch.randn(3, generator=generator, dtype=torch.float64)
        largest = max(1.0, float((W.abs() @ x.abs()).max()) ** DEGREE / LAST_TERM)
        found.append(float(np.abs(product(maps, W, x) - taylor((W @ x).numpy())).max()) / largest)
    return found


@STUDY.measure("features", grid={"d": [3, 16, 64]})
def features(d: int) -> dict[str, float]:
    """The number of features of either kind that d inputs have."""
    kronecker, symmetric = (taylor_maps(kind, d).m for kind in ("kronecker", "symmetric"))
    return {"kronecker": kronecker, "symmetric": symmetric, "ratio": kronecker / symmetric}


@STUDY.tables
def tables(request: Request) -> Tables:
    """Table 2 in columns, products of drawn W and x, and the functions over z."""
    W, x = layer()
    z = (W @ x).numpy()
    table = pd.DataFrame(
        {
            "z = Wx": z,
            "Taylor": taylor(z),
            "Kronecker": product(taylor_maps("kronecker"), W, x),
            "symmetric": product(taylor_maps("symmetric"), W, x),
            "tanh-GELU": gelu(z, "gelu-tanh"),
            "erf-GELU": gelu(z),
            "recovered": [inverse_tanh_gelu(near, value) for near, value in zip(Z, TANH, strict=True)],
        }
    )
    grid = np.union1d(np.linspace(-3, 3, 121), Z)
    at = np.isin(grid, Z)
    curves = []
    for row, function in (("GELU_Taylor,5(x')", taylor(grid)), ("GELU_tanh(x')", gelu(grid, "gelu-tanh"))):
        printed = np.full(len(grid), np.nan)
        printed[at] = [float(v) for v in PRINTED[row].split(", ")]
        curves.append(pd.DataFrame({"function": row, "z": grid, "value": function, "paper": printed}))
    drawn = pd.DataFrame({"pair": range(PAIRS), "residual": residuals(PAIRS)})
    return {"table2": table, "drawn": drawn, "curves": pd.concat(curves)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The rows of table 2 to their digits, and the numbers of features."""
    table, counts = tables["table2"], tables["features"].set_index("d")
    for what, column in ROWS.items():
        first, *others = table[column]
        support = {f"at x' = {z}": value for z, value in zip(Z[1:], others, strict=True)}
        if column == "tanh-GELU":
            support["erf-GELU"] = list(table["erf-GELU"])
        yield Claim(what, first, paper=PRINTED[what], rule="digits", place=f"table 2, {what}", support=support)
    residual = float(tables["drawn"]["residual"].max())
    yield Claim(
        f"Phi(W) Psi(x) is the series, for {PAIRS} drawn W and x", float(residual < ROUNDING), paper="exactly",
        rule="holds", support={"largest difference over the largest sum of terms": residual},
    )  # fmt: skip
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
