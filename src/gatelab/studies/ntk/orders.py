"""The condition number against the order q of the unit: a curve that the paper does not have.

Each order shrinks what is off the diagonal by the cosine between samples, about d^-1/2, and spreads the diagonal, which
goes with |x|^(2q+2). Samples of unequal length have a best order; for equal lengths the condition number falls to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gatelab.feedforward import Unit
from gatelab.ntk import analytic, estimate
from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Tables, interval_at
from gatelab.studies.ntk.gaussian import extremes, samples

STUDY = Study(
    "ntk/orders",
    "The condition number against the order of the unit",
    "The paper has orders 0 (ReLU) and 1 (ReGLU) and nothing beyond.",
    position=8,
    beyond=True,
    grid={
        "gate": ["relu", "gelu"],
        "data": ["Gaussian", "normalised"],
        "n, d": [(400, 400), (400, 100), (400, 50), (200, 20)],
        "seed": range(6),
        "order": range(9),
    },
    quick={"n, d": [(60, 30)], "seed": range(3)},
    over="seed",
    mean="geometric",
    figure=Facets(
        x="order", y="condition", hue="size", row="gate", col="data", ylog=True, marks=("best", "best order"),
        lines=(
            Overlay("diagonal_spread", "diagonal alone: largest entry over smallest", "dotted"),
            Overlay("estimate", "our estimate (relu)"),
        ),
        names={
            "relu": "relu gate", "gelu": "gelu gate", "Gaussian": "Gaussian samples",
            "normalised": "samples of length √d",
        },
        xlabel="order q: number of affine factors", ylabel="condition number κ",
        title="Condition number against the order q of the unit, infinite width",
    ),
)  # fmt: skip


@STUDY.measure(together="order")
def kernels(gate: str, data: str, n: int, d: int, seed: int, order: Sequence[int]) -> Iterator[dict[str, float]]:
    """Condition number, spread of the diagonal and size of the cosines, for all orders on the same samples."""
    for kernel in analytic([Unit(gate, q) for q in order], samples(n, d, seed, normalized=data == "normalised")):
        largest, smallest = extremes(kernel)
        diagonal = kernel.matrix.diagonal()
        root = diagonal.sqrt()
        squares = (kernel.matrix / (root[:, None] * root)).square().sum() - n
        yield {
            "condition": largest / smallest,
            "diagonal_spread": float(diagonal.max() / diagonal.min()),
            "off_diagonal": float((squares / (n * (n - 1))).sqrt()),
        }


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The estimate where there is one, the best order of each curve, and the size as one name."""
    table = tables["orders"]
    relu = (table["gate"] == "relu") & (table["data"] == "Gaussian")
    least = table.groupby(["gate", "data", "n", "d"])["condition"].transform("min")
    estimates = [
        estimate(Unit("relu", int(q)), int(n), int(d)).ours.condition if known else np.nan
        for known, q, n, d in zip(relu, table["order"], table["n"], table["d"], strict=True)
    ]
    sizes = [f"n = {n}, d = {d}" for n, d in zip(table["n"], table["d"], strict=True)]
    best = (table["condition"] == least) & (table["data"] == "Gaussian")
    return {"orders": table.assign(estimate=estimates, best=best, size=sizes)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for (gate, data, size), curve in tables["orders"].groupby(["gate", "data", "size"], sort=False):
        of_order = curve.set_index("order")
        kappa, cosine, last = of_order["condition"], of_order["off_diagonal"], int(curve["order"].max())
        support: dict[str, Any] = {"κ at q = 0": kappa[0], "κ at q = 1": kappa[1]}
        if data == "Gaussian":
            order = int(kappa.idxmin())
            what = f"κ at the best order, q = {order}, on Gaussian samples"
            support[f"κ at q = {last}"] = kappa[last]
            support["κ over the spread of the diagonal there"] = kappa[last] / of_order["diagonal_spread"][last]
            support[f"cosines between gradients at q = 0 and q = {order}"] = [cosine[0], cosine[order]]
        else:
            order, what = last, f"κ at q = {last} on samples of length √d"
            fall = (cosine[1] / cosine[last]) ** (1 / (last - 1))
            support["factor by which cosines fall with each order"] = fall
            support["1/√d"] = float(curve["d"].iloc[0]) ** -0.5
        condition = interval_at(of_order.loc[order], "condition")
        yield Claim.of(f"{what}, {gate} gate, {size}", condition, support=support)
