"""Corollary 4.2, early stage: for which n and d the ReLU network leads at first, and by which of its terms.

By proposition 4.1 the expected loss begins at (|y|^2 + tr A)/2, A = K/m, and falls at the rate m (y^T A y + tr A^2)
times the learning rate. The corollary says that ReLU falls faster than ReGLU for n and d above bounds, which are lost
in the copy that was used, as is its assumption on the targets; its proof needs y^T K y and tr K^2 to be larger. Kernels
are those of the limit of great width, as in the corollary.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import roots_jacobi

from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay
from gatelab.statistics import bootstrap, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import UNITS, samples

TARGETS = 50  # random targets for each draw of the samples
FACTOR = 2.0  # sizes this many times above or below the bound are judged
SHOWN = {
    "x": "n", "hue": "d", "where": {"d": [2, 3, 5, 10, 20, 80]}, "xlog": True, "ylog": True, "table": "terms",
    "levels": {"equal": 1.0}, "names": {d: f"d = {d}" for d in (2, 3, 5, 10, 20, 80)}, "xlabel": "samples n",
    "ylabel": "ReLU over ReGLU",
}  # fmt: skip

STUDY = Study(
    "ntk/early",
    "Who leads at first, over n and d",
    "At the early stage ReLU converges faster than ReGLU, as long as n and d are large enough.",
    position=6.5,
    grid={"d": (2, 3, 5, 10, 20, 40, 80), "n": (2, 3, 5, 10, 20, 40, 80, 160), "draws": [40]},
    quick={"d": (3, 10, 20), "n": (3, 10, 30), "draws": [12]},
    figure=(
        Facets(y="rate", title="rate at which the loss begins to fall", **SHOWN),
        Facets(y="spread", title="Corollary 4.2: tr K²", **SHOWN),
        Facets(
            table="bounds", x="d", y="measured", xlog=True, ylog=True, points=True, xlabel="input dimension d",
            lines=(Overlay("expected", "expected from moments", "dashed"),), ylabel="smallest n that was run",
            title="n above which tr K² is larger for ReLU",
        ),
    ),
)  # fmt: skip


@STUDY.measure("terms")
def terms(d: int, n: int, draws: int) -> dict[str, float]:
    """Terms of ReLU over those of ReGLU, each a mean over draws of the samples, which the bootstrap resamples.

    `spread` is tr A^2, `start` is tr A, `rate` the rate at which the loss begins to fall, a mean over standard normal
    targets; `signal` is the share of such targets whose y^T A y is larger for ReLU.
    """
    values, signal = np.empty((3, 2, draws)), np.empty(draws)
    for seed in range(draws):
        A = np.stack([kernel.numpy() for kernel in analytic(list(UNITS), samples(n, d, seed), None)])
        y = np.random.default_rng([11, seed, n, d]).standard_normal((TARGETS, n))
        signals, spread = np.einsum("ti,uij,tj->ut", y, A, y), (A * A).sum((1, 2))
        values[..., seed] = spread, np.trace(A, axis1=1, axis2=2), signals.mean(1) + spread
        signal[seed] = np.mean(signals[0] > signals[1])
    row: dict[str, float] = {}
    for term, both in zip(("spread", "start", "rate"), values, strict=True):
        row |= interval_columns(term, bootstrap(list(both), lambda a, b: a.mean(-1) / b.mean(-1), paired=True))
    return row | interval_columns("signal", t_interval(signal))


def expected_bound(d: int) -> float:
    """The least n at which the expected tr K^2 is larger for ReLU, from the moments of lengths and angles.

    On the diagonals are r^2/2d and r^4/2d^2, of which the second has the larger mean square. The n - 1 times as many
    other entries are k1 and (G/d) k1, of which the first is larger. In few dimensions both are larger for ReGLU, at any
    n.

    >>> round(expected_bound(20), 1), round(expected_bound(80), 1), expected_bound(2)
    (6.6, 2.3, inf)
    """
    at, weights = roots_jacobi(200, (d - 3) / 2, (d - 3) / 2)
    weights = weights / weights.sum()
    shape = (np.sqrt(1 - at**2) + (np.pi - np.arccos(at)) * at) / (2 * np.pi)
    plain = float(np.sum(weights * shape**2))
    gated = ((d + 2) / d) ** 2 * float(np.sum(weights * at**2 * shape**2))
    if plain <= gated:
        return np.inf
    excess = (d + 2) * (d + 4) * (d + 6) / (4 * d**3) - (d + 2) / (4 * d)
    return 1 + excess / (plain - gated)


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The bound on n for each d: expected, and the least n of the grid from which tr K^2 is larger for ReLU."""
    table = tables["terms"]
    larger = table.pivot(index="n", columns="d", values="spread").sort_index(ascending=False) > 1
    measured = [float(min(larger.index[stays], default=np.nan)) for _, stays in larger.cummin().items()]
    bounds = pd.DataFrame({"d": larger.columns, "measured": measured, "expected": map(expected_bound, larger.columns)})
    over = table["n"] / table["d"].map(bounds.set_index("d")["expected"])
    return {"terms": table.assign(n_over_bound=over), "bounds": bounds}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Whether the loss of ReLU falls faster at every size well above the bound.

    The corollary assumes y^T K y to be larger for ReLU; the claim is therefore on tr K^2.
    """
    table, bounds = tables["terms"], tables["bounds"].set_index("d")
    above, below = table[table["n_over_bound"] >= FACTOR], table[table["n_over_bound"] <= 1 / FACTOR]
    least = above.loc[above["spread_low"].idxmin()]
    support = {"sizes above": len(above), "of these faster": int((above["spread_low"] > 1).sum())}
    support |= {"sizes below half the bound": len(below), "of these slower": int((below["spread_high"] < 1).sum())}
    finite = bounds["expected"][np.isfinite(bounds["expected"])]
    support |= {f"bound at d = {d}": bound for d, bound in finite.items()}
    yield Claim.of(
        f"tr K² of ReLU over that of ReGLU, smallest at n of {FACTOR:g} times the bound or more",
        interval_at(least, "spread"), 1.0, "above", place="corollary C.3, early stage over n and d", reconstructed=True,
        support=support, note=f"Smallest at n = {least['n']:.0f}, d = {least['d']:.0f}.",
    )  # fmt: skip
    support = {"sizes": len(above), "of these ReLU is faster anyway": int((above["rate_low"] > 1).sum())}
    signal = t_interval(above["signal"].to_numpy())
    yield Claim.of("share of random targets whose y·Ky is larger for ReLU", signal, support=support)
    ratio = table["d"] / (table["d"] + 2)
    inside = (table["start_low"] <= ratio) & (ratio <= table["start_high"])
    support = {"sizes": len(table), "of these with d/(d + 2) in the interval of the ratio": int(inside.sum())}
    what = "sizes at which the initial outputs of ReLU have the smaller mean square"
    yield Claim(what, float((table["start_high"] < 1).sum()), support=support)
