"""Table 2 of paper 003: the Taylor series as a product of lifted weights and inputs, for one W and x."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.optimize import brentq
from torch import Tensor

from gatelab.linearization import Linearization, linearize
from gatelab.linearization.polynomials import gate_and_factors, values
from gatelab.plotting import Panel, Pen, new_figure, style
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.linearize.table1 import DEGREE, five_terms
from gatelab.studies.verdicts import reproduced_if, together

# Table 2 as printed.
Z = (-2.48, 1.55, 2.23)
TAYLOR = (0.3358, 1.4577, 2.3061)
LINEARIZED = (0.3358, 1.4577, 2.3061)
TANH = (-0.0159, 1.4559, 2.2016)
FEATURES = 66_432
DRAWN_PAIRS = 20
ROUNDING = 1e-12  # of the largest terms: sums of 66 432 products
LAST_TERM = 24 * 2**4 * 9 * (2 * math.pi) ** 0.5  # the denominator of z^10 in the series
MORE = (16, 64)  # inputs where the two kinds of features are counted too


def layer(seed: int = 0) -> tuple[Tensor, Tensor]:
    """W and x with W x = Z: the paper prints the product alone, and nothing in its table depends on more."""
    draw = torch.Generator().manual_seed(seed)
    W = torch.randn(3, 3, generator=draw, dtype=torch.float64)
    x = torch.randn(3, generator=draw, dtype=torch.float64)
    return W + torch.outer(torch.tensor(Z, dtype=torch.float64) - W @ x, x) / x.dot(x), x


def taylor_maps(features: str) -> Linearization:
    """The series on three inputs as maps, with Kronecker or with symmetric features."""
    return linearize("gelu", "taylor", degree=DEGREE, d=3, features=features)


def product(features: str, W: Tensor, x: Tensor) -> np.ndarray:
    """Phi(W) Psi(x) of the series."""
    maps = taylor_maps(features)
    return (maps.phi(W) @ maps.psi(x)).numpy()


def recovered(branch: float, printed: float) -> float:
    """z from a printed tanh-GELU(z): the root on the side of the function's minimum on which `branch` lies."""
    gate = gate_and_factors("gelu-tanh")[0]
    minimum = -0.7523  # of tanh-GELU
    ends = {True: (-6.0, minimum), False: (minimum, 6.0)}[branch < minimum]
    root: float = brentq(lambda z: float(values(gate, [z])[0]) - printed, *ends)  # pyright: ignore[reportAssignmentType]
    return root


def drawn_residual(pairs: int = DRAWN_PAIRS) -> float:
    """The largest |Phi(W) Psi(x) - series(W x)| over drawn W and x, over the largest sum of terms.

    W and x are standard normal, and nothing is adapted to the product.
    """
    generator = torch.Generator().manual_seed(1)
    maps = taylor_maps("kronecker")
    worst = 0.0
    for _ in range(pairs):
        W = torch.randn(3, 3, generator=generator, dtype=torch.float64)
        x = torch.randn(3, generator=generator, dtype=torch.float64)
        z = (W @ x).numpy()
        series = five_terms(float(np.abs(z).max()))(z)
        largest = max(1.0, float((W.abs() @ x.abs()).max()) ** DEGREE / LAST_TERM)
        worst = max(worst, float(np.abs((maps.phi(W) @ maps.psi(x)).numpy() - series).max()) / largest)
    return worst


def run(request: Request) -> Outcome:
    """Table 2; quick runs are the same."""
    tick = ticker(request, 2)
    W, x = layer()
    products = {}
    for kind in ("kronecker", "symmetric"):
        products[kind] = product(kind, W, x)
        tick()
    z = (W @ x).numpy()
    tanh, erf = (values(gate_and_factors(name)[0], z).numpy() for name in ("gelu-tanh", "gelu"))
    table = pd.DataFrame(
        {
            "z = Wx": z,
            "Taylor": five_terms(3.0)(z),
            "Kronecker": products["kronecker"],
            "symmetric": products["symmetric"],
            "tanh-GELU": tanh,
            "erf-GELU": erf,
        }
    )
    counts = pd.DataFrame([feature_counts(d) for d in (3, *MORE)])
    return Outcome(draw(table), {"table2": table, "features": counts}, claims(table, counts), NOTES)


def feature_counts(d: int) -> dict[str, float]:
    """How many features of either kind d inputs have."""
    kinds = {
        kind: linearize("gelu", "taylor", degree=DEGREE, d=d, features=kind).m for kind in ("kronecker", "symmetric")
    }
    return {"d": d, **kinds, "ratio": kinds["kronecker"] / kinds["symmetric"]}


# ---- what it says


def digits_text(numbers: Iterable[float], digits: int = 4) -> str:
    """A row of numbers as it is printed.

    >>> digits_text([1, 0.25], 2)
    '1.00, 0.25'
    """
    return ", ".join(f"{v:.{digits}f}" for v in numbers)


def printed(paper: Iterable[float], ours: Iterable[float], digits: int = 4) -> Verdict:
    """Reproduced where every number agrees in all digits that are printed."""
    return reproduced_if(digits_text(paper, digits) == digits_text(ours, digits))


def claims(table: pd.DataFrame, counts: pd.DataFrame) -> tuple[Claim, ...]:
    """The rows of table 2 to their digits, and the numbers of features."""
    columns = {name: table[name].to_numpy(float) for name in table}
    gap = float(np.abs(columns["Kronecker"] - columns["symmetric"]).max())
    three = counts.iloc[0]
    columns["recovered"] = np.array([recovered(z, value) for z, value in zip(Z, TANH, strict=True)])
    residual = drawn_residual()
    by_product = (
        f"{FEATURES} Kronecker features, row by row. In {DRAWN_PAIRS} drawn W and x it is off by {residual:.0e}."
    )
    rows = (
        (
            "x' = Wx",
            Z,
            "recovered",
            2,
            "The paper prints Wx alone. W and x are lost; these are the numbers whose tanh-GELU is the last row.",
        ),
        ("GELU_Taylor,5(x')", TAYLOR, "Taylor", 4, "Five terms of eq. 2, degree 10."),
        ("Linearized y' = Phi(W) Psi(x)", LINEARIZED, "Kronecker", 4, by_product),
        ("GELU_tanh(x')", TANH, "tanh-GELU", 4, f"erf-GELU would be {digits_text(columns['erf-GELU'])}."),
    )
    # The product is held against the series also where W and x were not made to fit.
    checks: dict[str, list[Verdict]] = {"Linearized y' = Phi(W) Psi(x)": [reproduced_if(residual < ROUNDING)]}
    return (
        *(
            Claim(
                what,
                digits_text(paper, n),
                digits_text(columns[name], n),
                together([printed(paper, columns[name], n), *checks.get(what, ())]),
                because,
                place=f"table 2, {what}",
            )
            for what, paper, name, n, because in rows
        ),
        Claim(
            "features of W and x in R^3, Kronecker powers",
            str(FEATURES),
            str(int(three["kronecker"])),
            reproduced_if(int(three["kronecker"]) == FEATURES),
            "3 + 3^2 + 3^4 + 3^6 + 3^8 + 3^10.",
            place="section 3.2.4, features",
        ),
        Claim(
            "features that the same function needs",
            str(FEATURES),
            str(int(three["symmetric"])),
            "exceeded" if gap < 1e-10 else "differs",
            f"Kronecker powers repeat monomials; each once, with its multinomial weight, gives the same to {gap:.1g}. "
            + " ".join(
                f"With {int(row['d'])} inputs it is {row['symmetric']:.3g} instead of {row['kronecker']:.3g}."
                for row in counts.iloc[1:].to_dict("records")
            ),
        ),
    )


# ---- figure


def draw(table: pd.DataFrame) -> Figure:
    """GELU and its series, with the three numbers of the table."""
    z = np.linspace(-3, 3, 601)
    with style():
        figure = new_figure(6.4, 4.2)
        panel = Panel(figure.subplots())
        panel.line(z, values(gate_and_factors("gelu-tanh")[0], z).numpy(), Pen("#222222"), label="tanh-GELU")
        panel.line(z, five_terms(3.0)(z), Pen("#0072B2", "--"), label="Taylor, five terms")
        squares, crosses = Pen("#0072B2", "", marker="s", size=8, face="none"), Pen("#D55E00", "", marker="x", size=7)
        panel.line(table["z = Wx"], table["symmetric"], squares, label="Φ(W)Ψ(x), 163 features")
        panel.line(Z, LINEARIZED, crosses, label="the paper's Table 2")
        panel.line(Z, TANH, crosses)
        panel.set(xlabel="z = w.x", ylabel="act(z)")
        panel.legend(loc="upper left")
        figure.suptitle("Table 2: GELU, its series, and the product of lifted weights and inputs")
    return figure


NOTES = (
    "Psi takes the whole x, not its element x_i as in section 2.",
    "Eq. 3 shifts the coefficients by one: a_0 belongs to z, and a_n to z^(2n).",
    "W (x) W in section 3.2.2 must be the Kronecker product of each row with itself: d x d^2, not d^2 x d^2.",
    "Eq. 5 must concatenate Phi_n and Psi_n, not add them: they differ in length, and cross terms would remain.",
)
STUDY = Study(
    "linearize/table2",
    "Taylor's series as a product of lifted weights and inputs",
    "Kronecker powers of W and x give the Taylor series of GELU(Wx) exactly.",
    run,
    position=2,
)
