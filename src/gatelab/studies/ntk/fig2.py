"""Figure 2: the condition number against the input dimension: measured, the paper's estimate, ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from gatelab.arrays import Array
from gatelab.ntk import analytic, estimate
from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import CLOSE, Claim
from gatelab.studies.definition import limits
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.ntk.gaussian import NAMES, UNITS, WIDTH, extremes, farthest_from_1, samples

WHO = {"paper": "the paper's estimate", "ours": "our estimate"}


def sizes(
    rows: int, inputs: Sequence[int], multiples: Sequence[float], sides: Sequence[int], seeds: tuple[int, int]
) -> list[tuple[int, int, bool, bool, int]]:
    """n, d, whether n is fixed, whether it is in proportion to d, and the seed; below 400 rows there are more seeds.

    >>> sizes(60, [20, 60], [2], [20, 30], (1, 1))[:2]
    [(60, 20, True, False, 0), (60, 60, True, False, 0)]
    """
    fixed = [(rows, d) for d in inputs]
    scaled = [(round(multiple * d), d) for multiple in multiples for d in sides]
    return [
        (n, d, (n, d) in fixed, (n, d) in scaled, seed)
        for n, d in dict.fromkeys([*fixed, *scaled])
        for seed in range(seeds[n < 400])
    ]


STUDY = Study(
    "ntk/fig2",
    "Condition number against input dimension",
    "The theoretical estimates closely match the numerically computed condition numbers across input dimensions.",
    position=2,
    grid={
        "n, d, fixed, scaled, seed": sizes(
            400, (50, 71, 100, 141, 200, 283, 400, 566, 800, 1600), (0.5, 1, 2, 4), (50, 100, 200, 400), (5, 20)
        ),
        "unit": UNITS,
    },
    quick={"n, d, fixed, scaled, seed": sizes(60, (20, 60), (2,), (20, 30), (3, 3))},
    over="seed",
    mean="geometric",
    figure=(
        Facets(
            x="d", y="condition", row="unit", where={"fixed": True}, xlog=True, ylog=True, names=NAMES,
            lines=(
                Overlay("paper", "the paper's estimate", "dotted"),
                Overlay("ours", "our estimate"),
                Overlay("taylor", "of the Taylor form", "solid", hue=False),
            ),
            xlabel="input dimension d", ylabel="measured condition number κ", title="Figure 2: n fixed",
        ),
        Facets(
            x="d", y="ours_over_measured", hue="proportion", row="unit", where={"scaled": True}, xlog=True, ylog=True,
            lines=(Overlay("paper_over_measured", "the paper's", "dotted"),),
            levels={"1.25": 1 + CLOSE, "0.8": 1 / (1 + CLOSE)}, names=NAMES,
            xlabel="input dimension d", ylabel="our estimate of κ over the measured", title="n in proportion to d",
        ),
    ),
)  # fmt: skip


@STUDY.measure("conditions", together="unit")
def conditions(n: int, d: int, fixed: bool, scaled: bool, seed: int, unit: Sequence[str]) -> Iterator[dict[str, float]]:
    """The condition number of the kernel and, for the fixed n, of its Taylor form, which the paper measures."""
    x = samples(n, d, seed)
    forms = taylor_forms(x, WIDTH)
    for name, kernel in zip(unit, analytic(list(unit), x, WIDTH), strict=True):
        largest, smallest = extremes(kernel)
        row = {"condition": largest / smallest, "taylor": np.nan}
        if fixed:
            ends = np.linalg.eigvalsh(forms[name])[[0, -1]]
            row["taylor"] = ends[1] / ends[0]
        yield row


def taylor_forms(x: Array, width: int) -> dict[str, Array]:
    """Prop. B.1: c1 G + c2 r r^T + c3 diag(r^2), and a1 (r r^T)*G + a2 G*G + a3 diag(r^4)."""
    d, G = x.shape[1], x @ x.T
    r = np.sqrt(np.diag(G))
    c1, c2 = (width + d) / (4 * d), width / (2 * np.pi * d)
    a1, a2 = (width + d) / (2 * np.pi * d * d), (width + 2 * d) / (4 * d * d)
    rr = np.outer(r, r)
    return {
        "mlp": c1 * G + c2 * rr + np.diag((c1 - c2) * r**2),
        "glu": a1 * rr * G + a2 * G * G + np.diag((a2 - a1) * r**4),
    }


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """Both estimates, and their ratios to the measured numbers."""
    table = tables["conditions"]
    expected = [estimate(unit, n, d, WIDTH) for unit, n, d in table[["unit", "n", "d"]].itertuples(index=False)]
    table = table.assign(width=WIDTH, proportion=[f"n = {multiple:g} d" for multiple in table["n"] / table["d"]])
    for who in WHO:
        table[who] = [getattr(e, who).condition for e in expected]
        for end, opposite in (("", ""), ("_low", "_high"), ("_high", "_low")):
            table[f"{who}_over_measured{end}"] = table[who] / table[f"condition{opposite}"]
    return {"conditions": table}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    table = tables["conditions"]
    for chosen, where, place in (("fixed", "across d", ""), ("scaled", "n in proportion to d", ", n in proportion")):
        for (who, words), unit in product(WHO.items(), UNITS):
            own, what = table[table[chosen] & (table["unit"] == unit)], f"{words} of κ over the measured, {NAMES[unit]}"
            places = {"paper": f"figure 2, {NAMES[unit]}{place}"}
            yield estimate_claim(f"{what}, {where}", own, own[f"{who}_over_measured"], places.get(who, ""), {})
    for unit in UNITS:
        own = table[table["fixed"] & (table["unit"] == unit)]
        what = f"the paper's estimate of κ over that of its Taylor form, {NAMES[unit]}"
        form = limits(own["taylor"] / own["condition"])
        more = {"κ of the Taylor form over that of the kernel, smallest and largest": form}
        yield estimate_claim(what, own, own["paper"] / own["taylor"], f"prop. B.1, {NAMES[unit]}", more)


def estimate_claim(what: str, table: Table, ratio: Table, place: str, more: dict[str, Any]) -> Claim:
    """The ratio that is farthest from 1; only the paper's estimates have a place in the paper."""
    worst, many = farthest_from_1(ratio), table["n"] >= 2 * table["d"]
    support: dict[str, Any] = {"smallest": ratio.min(), "largest": ratio.max()}
    support["farthest from 1 at n and d"] = [int(size) for size in table.loc[worst, ["n", "d"]]]
    support["sizes within a quarter"] = f"{int(((ratio - 1).abs() <= CLOSE).sum())} of {len(ratio)}"
    printed: dict[str, Any] = {}
    if place:
        printed = {"paper": "closely match", "rule": "close", "place": place, "reconstructed": True}
        for where, chosen in (("n >= 2 d", many), ("n < 2 d", ~many)):
            if chosen.any():
                support[f"for {where}"] = limits(ratio[chosen])
    return Claim(what, float(ratio[worst]), support=support | more, **printed)
