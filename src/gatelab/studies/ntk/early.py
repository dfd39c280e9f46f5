"""Corollary 4.2, early stage: for which n and d the ReLU network falls faster at first.

By proposition 4.1 the expected loss falls at the rate m (y^T A y + tr A^2) times the learning rate, A = K/m. The bounds
of the corollary on n and d are lost in the copy that was used, as is its assumption on the targets; its proof needs
y^T K y and tr K^2 to be larger for ReLU. Kernels are those of the limit of great width, as in the corollary.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import roots_jacobi

from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets
from gatelab.statistics import bootstrap, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Tables, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import UNITS, samples

TARGETS = 50  # random targets for each draw of the samples
FACTOR = 2.0  # sizes this many times above or below the bound are judged

STUDY = Study(
    "ntk/early",
    "Who leads at first, over n and d",
    "At the early stage ReLU converges faster than ReGLU, as long as n and d are large enough.",
    position=6.5,
    grid={"d": (2, 3, 5, 10, 20, 40, 80), "n": (2, 3, 5, 10, 20, 40, 80, 160), "draws": [40]},
    quick={"d": (3, 10, 20), "n": (3, 10, 30), "draws": [12]},
    figure=Facets(
        table="terms", x="n", y="spread", hue="d", where={"d": [2, 3, 5, 10, 20, 80]}, xlog=True, ylog=True,
        levels={"equal": 1.0}, names={d: f"d = {d}" for d in (2, 3, 5, 10, 20, 80)}, xlabel="samples n",
        ylabel="ReLU over ReGLU", title="Corollary 4.2: tr K²",
    ),
)  # fmt: skip


@STUDY.measure("terms")
def terms(d: int, n: int, draws: int) -> dict[str, float]:
    """tr A^2 of ReLU over that of ReGLU, and the share of normal targets whose y^T A y is larger for ReLU."""
    spread, signal = np.empty((2, draws)), np.empty(draws)
    for seed in range(draws):
        A = np.stack([kernel.numpy() for kernel in analytic(list(UNITS), samples(n, d, seed), None)])
        y = np.random.default_rng([11, seed, n, d]).standard_normal((TARGETS, n))
        signals = np.einsum("ti,uij,tj->ut", y, A, y)
        spread[:, seed], signal[seed] = (A * A).sum((1, 2)), np.mean(signals[0] > signals[1])
    ratio = bootstrap(list(spread), lambda a, b: a.mean(-1) / b.mean(-1), paired=True)
    return interval_columns("spread", ratio) | interval_columns("signal", t_interval(signal))


def expected_bound(d: int) -> float:
    """The least n at which the expected tr K^2 is larger for ReLU, from the moments of lengths and angles.

    On the diagonals are r^2/2d and r^4/2d^2, elsewhere k1 and (G/d) k1. In few dimensions both are larger for ReGLU.

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


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The corollary assumes y^T K y to be larger for ReLU; the claim is therefore on tr K^2."""
    table = tables["terms"]
    bounds = {d: expected_bound(d) for d in table["d"].unique().tolist()}
    over = table["n"] / table["d"].map(bounds)
    above, below = table[over >= FACTOR], table[over <= 1 / FACTOR]
    least = above.loc[above["spread_low"].idxmin()]
    support = {"sizes above": len(above), "of these faster": int((above["spread_low"] > 1).sum())}
    support |= {"sizes below half the bound": len(below), "of these slower": int((below["spread_high"] < 1).sum())}
    support |= {f"bound at d = {d}": bound for d, bound in bounds.items() if np.isfinite(bound)}
    yield Claim.of(
        f"tr K² of ReLU over that of ReGLU, smallest at n of {FACTOR:g} times the bound or more",
        interval_at(least, "spread"), 1.0, "above", place="corollary C.3, early stage over n and d", reconstructed=True,
        support=support, note=f"Smallest at n = {least['n']:.0f}, d = {least['d']:.0f}.",
    )  # fmt: skip
    signal = t_interval(above["signal"].to_numpy())
    yield Claim.of("share of random targets whose y·Ky is larger for ReLU", signal, support={"sizes": len(above)})
