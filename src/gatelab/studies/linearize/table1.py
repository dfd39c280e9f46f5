"""Table 1: the largest error of five Taylor terms of GELU, next to the best polynomial of the same degree."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from gatelab.feedforward.gates import activation
from gatelab.linearization import Polynomial, bound, linearize
from gatelab.linearization.polynomials import values
from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables
from gatelab.studies.inventory import printed

DEGREE = 10  # five terms
ACCEPTABLE = 0.1  # the largest acceptable error, as a share of the largest |GELU|
GELU = activation("gelu")
STUDY = Study(
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
    """The polynomial of GELU by a method on [-reach, reach]."""
    made = linearize("gelu", method, degree=degree, interval=(-reach, reach)).polynomial
    assert made is not None
    return made


@STUDY.measure("table1", grid={"R": [1, 3, 5, 7]})
def errors(R: int) -> dict[str, object]:
    """The largest errors on [-R, R], found and proved."""
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


@STUDY.measure("degrees", grid={"degree": [2, 4, 6, 8, 10, 12, 16, 20, 24], "R": [3, 5, 7]}, quick={"degree": [4, 10]})
def by_degree(degree: int, R: int) -> dict[str, float]:
    """The largest errors of both kinds of polynomials."""
    return {name: polynomial(name.lower(), degree, float(R)).error(GELU) for name in ("Taylor", "minimax")}


@STUDY.tables
def series(request: Request) -> Tables:
    """The coefficients of z/2 + (z^2/1 - z^4/6 + z^6/40 - z^8/336 + ...) / sqrt(2 pi)."""
    taylor = polynomial("taylor", DEGREE, 1.0)
    power = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebinterpolate(taylor, DEGREE))
    return {"series": pd.DataFrame({"power": range(DEGREE + 1), "coefficient": power})}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The numbers of table 1 to their digits, the series, and the best polynomial of the same degree."""
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
        yield Claim(
            f"largest error of the best polynomial of degree {DEGREE} on {where}", row["minimax"],
            support={
                "Taylor's over it": row["Taylor"] / row["minimax"],
                "proved to be at most": row["minimax, proved at most"],
            },
        )  # fmt: skip
