"""Where the gate's gain sits: four units on a grid of parameters and tokens (docs/results/ladder-design.md).

The analysis was fixed before the grid was run: differences of units regressed on log P and log D, and nested laws
E + A P^-a + B D^-b, with two rules of variance, on averaged weights and in three alternative analyses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gatelab.models import DECODER_SIZES
from gatelab.plotting.facets import Facets
from gatelab.scaling_laws.token_laws import NESTED, fit_token_laws, token_differences
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, averaged, interval_at, interval_columns
from gatelab.studies.ladder.mechanism import (
    PAIRS,
    early_table,
    kernel_table,
    prediction_table,
    rank_table,
    share_table,
    text_table,
)
from gatelab.studies.records import read_record, record_folders, record_path
from gatelab.train.rates import at_end, best_rate, excess

COMMAND = "python -m benchmarks.gpu_gain results/ladder"
LARGEST_DEVIATION = 0.015  # bits: a size with more is not part of the primary analysis
LAST, RATES, ALL = "last weights", "minus rate costs", "all sizes"
PRIMARY = "averaged weights"
DRAWS, FEWER, QUICK_DRAWS = 1000, 300, 20  # simulated tables per test: primary, alternatives, quick
TOKENS, PARAMETERS = "per doubling of tokens", "per doubling of parameters"
COVERS = "The interval covers both rules of variance and all alternative analyses."
SHOWN, NONE = ["relu2 - swiglu", "gelu - geglu"], {"no difference": 0.0}
PREDICTED = {size: replace(DECODER_SIZES[size], taps=4).body_count("swiglu") for size in ("26M", "60M")}
PREDICTED_TOKENS, PREDICTED_SEEDS = 10986 * 16 * 512, 3
RUNS = 500  # trainings of the design: 5 sizes, 5 numbers of tokens, 4 units, 5 seeds
STUDY = Study(
    "ladder/gain",
    "Where the gate's gain sits: parameters or data",
    "No paper has it: public comparisons vary the parameters or the tokens, not both.",
    position=2,
    beyond=True,
    figure=(
        Facets(
            table="differences", x="tokens", y="difference", hue="size", row="pair", xlog=True, levels=NONE,
            where={"pair": SHOWN}, ylabel="difference, bits per byte", title="Against training tokens, by size",
        ),
        Facets(
            table="differences", x="parameters", y="difference", hue="read", row="pair", xlog=True, levels=NONE,
            where={"pair": SHOWN}, ylabel="difference, bits per byte", title="Against parameters, by training tokens",
        ),
    ),
    cards={
        "Where the gate's gain sits": Facets(
            table="differences", x="tokens", y="difference", hue="size", xlog=True, levels=NONE,
            ylabel="ReLU² minus SwiGLU, bits", where={"pair": "relu2 - swiglu"},
        ),
    },
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The tables of the record; a quick run simulates less."""
    rows = record_rows("grid")
    grid = rows[rows["kind"] == "grid"].sort_values(["parameters", "tokens", "unit", "seed"])
    sweeps = rate_table(rows[rows["kind"] == "sweep"], grid)
    made = {**analysis(grid, sweeps, quick=request.quick), "rates": sweeps}
    return made | later_tables(made["predictions"])


def record_rows(name: str) -> Table:
    """The trainings of a record."""
    lines = record_path(f"ladder/{name}.jsonl", COMMAND).read_text(encoding="utf-8").splitlines()
    rows: Table = pd.DataFrame([row for row in map(json.loads, lines) if "kind" in row and "error" not in row])
    return rows.assign(variant=rows["variant"].fillna(""))


def later_tables(predicted: Table) -> dict[str, Table]:
    """The tables of the design's parts after the grid whose records there are."""
    parts = ("prediction", "early", "mechanism", "text", "units")
    there = [name for name in parts if any((folder / f"ladder/{name}.jsonl").is_file() for folder in record_folders())]
    rows = {name: record_rows(name) for name in there}
    made = {}
    if "prediction" in rows:
        made["predicted"] = prediction_table(predicted, rows["prediction"])
    if "mechanism" in rows:
        made |= {"shares": share_table(rows["mechanism"]), "kernels": kernel_table(rows["mechanism"])}
    if "units" in rows:
        scores = read_record("ladder/unit-scores.json", "python -m benchmarks.gain_scores", "minutes")["scores"]
        made["ranks"] = rank_table(rows["units"], scores)
    tables_of = {"early": early_table, "text": text_table}
    return made | {name: table(rows[name]) for name, table in tables_of.items() if name in rows}


def rate_table(sweeps: Table, grid: Table) -> Table:
    """The best learning rate of every sweep of the grid's decoders, and the cost of the one that was used."""
    used = grid.groupby(["unit", "size", "steps", "variant"])["lr"].first()
    rows = []
    for key, own in sweeps.groupby(["unit", "size", "steps", "variant"], sort=False):
        if key not in used:
            continue
        lrs, losses = own["lr"].tolist(), own["averaged"].tolist()
        inside = at_end(lrs, losses) == 0
        row: dict[str, Any] = dict(zip(("unit", "size", "steps", "variant"), key, strict=True))
        row |= {"rates": len(own), "best": best_rate(lrs, losses), "used": used[key], "inside": inside}
        rows.append(row | {"cost": excess(float(used[key]), lrs, losses)})
    return pd.DataFrame(rows)


def analysis(grid: Table, rates: Table, *, quick: bool) -> dict[str, Table]:
    """Means, differences, trends and laws of a grid of trainings."""
    keys = ["unit", "size", "parameters", "tokens", "steps"]
    cells = averaged(grid[[*keys, "seed"]].assign(bits=grid["averaged"]), "seed", keys, "arithmetic")
    variance = grid.groupby(["size", "parameters", "tokens", "unit"])["averaged"].var().groupby(["size", "parameters"])
    deviations = (variance.mean() ** 0.5).rename("deviation").reset_index().sort_values("parameters")
    deviations = deviations.assign(primary=deviations["deviation"] < LARGEST_DEVIATION)
    trends, tests, factors, predicted = [], [], [], pd.DataFrame()
    draws = (DRAWS, FEWER, FEWER, FEWER)  # of the primary analysis and of the alternatives
    if quick:
        draws = (QUICK_DRAWS,)
    for (name, losses), count in zip(analyses(grid, rates, deviations).items(), draws, strict=False):
        trends.append(token_differences(losses, PAIRS).assign(losses=name))
        laws = fit_token_laws(losses, draws=count, progress=False)
        tests.append(laws.table().assign(losses=name))
        if name == PRIMARY:
            places = {"tokens": PREDICTED_TOKENS, "seeds": PREDICTED_SEEDS, "draws": 2 * count}
            predicted = laws.predictions(PAIRS[0], list(PREDICTED.values()), **places).assign(trainings=len(grid))
        for reference, unit in PAIRS:
            columns = {}
            for of in ("parameters", "tokens"):
                columns |= interval_columns(of, laws.factor(unit, reference, of))
            factors.append({"losses": name, "unit": unit, "reference": reference, **columns})
    return {
        "differences": difference_table(grid),
        "cells": cells,
        "deviations": deviations,
        "trends": pd.concat(trends, ignore_index=True),
        "tests": pd.concat(tests, ignore_index=True),
        "factors": pd.DataFrame(factors),
        "predictions": predicted,
    }


def analyses(grid: Table, rates: Table, deviations: Table) -> dict[str, Table]:
    """The losses of the primary analysis and of the alternatives."""
    primary = grid[grid["size"].isin(deviations["size"][deviations["primary"]])]
    cost = rates.set_index(["unit", "size"]).sort_values("steps")
    mistuned = []
    for key, own in primary.groupby(["unit", "size"]):
        swept = cost.loc[[key]]
        mistuned.append(pd.Series(np.interp(np.log(own["steps"]), np.log(swept["steps"]), swept["cost"]), own.index))
    return {
        PRIMARY: primary.assign(loss=primary["averaged"]),
        LAST: primary.assign(loss=primary["bits"]),
        RATES: primary.assign(loss=primary["averaged"] - pd.concat(mistuned)),
        ALL: grid.assign(loss=grid["averaged"]),
    }


def difference_table(grid: Table) -> Table:
    """Paired differences of units at every size and number of tokens, with t-intervals over seeds."""
    rows: list[dict[str, Any]] = []
    keys = ["size", "parameters", "tokens", "steps"]
    wide = grid.pivot_table(index=[*keys, "seed"], columns="unit", values="averaged")
    for first, second in PAIRS:
        apart = (wide[first] - wide[second]).dropna()
        for key, own in apart.groupby(keys):
            columns = interval_columns("difference", t_interval(own.to_numpy()))
            place = dict(zip(keys, key, strict=True))
            columns["factor"] = token_factor(wide[first].loc[key[0]], wide[second].loc[key], place["tokens"])
            rows.append({"pair": f"{first} - {second}", "read": f"{place['tokens'] / 1e6:.3g}M", **place, **columns})
    return pd.DataFrame(rows).sort_values(["pair", "parameters", "tokens"], ignore_index=True)


def token_factor(curve: Table, losses: Table, tokens: float) -> float:
    """The tokens with which a curve has the mean of these losses, over `tokens`; NaN if it does not reach that."""
    means = curve.dropna().groupby("tokens").mean()[::-1]  # from the lowest loss on
    place = np.interp(losses.mean(), means, np.log(means.index.to_numpy(float)), left=np.nan)
    return float(np.exp(place) / tokens)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """How differences change with tokens and parameters, which constants differ, and the equivalent data."""
    for (first, second), own in tables["trends"].groupby(["first", "second"], sort=False):
        for name in (TOKENS, PARAMETERS):
            rows = own[own["coefficient"] == name]
            yield Claim.of(f"{first} minus {second}, change {name}", widest(rows, "value"), unit="bits", note=COVERS)
    apart, primary = tables["differences"], tables["deviations"].query("primary")["size"]
    measured = apart[apart["size"].isin(primary)].groupby("pair")["factor"].agg(["min", "max"])
    for _, row in tables["factors"].query("losses == @PRIMARY").iterrows():
        support: dict[str, Any] = {"factor of parameters": interval_at(row, "parameters")}
        support["without the law, in single cells"] = measured.loc[f"{row['reference']} - {row['unit']}"].tolist()
        title = f"tokens that {row['reference']} needs for {row['unit']}'s data term, as a factor"
        yield Claim.of(title, interval_at(row, "tokens"), support=support, note="By the law with A and B per unit.")
    for smaller, larger in NESTED:
        own = tables["tests"].query("smaller == @smaller and larger == @larger")
        p = {f"{row['losses']}, variance per {row['weights']}": row["p"] for _, row in own.iterrows()}
        more, fewer = (" and ".join(form) or "none" for form in (larger, smaller))
        title = f"p of {more} per unit against {fewer} per unit, the largest of all analyses"
        yield Claim(title, max(p.values()), support=p)
    for _, row in tables["predictions"].iterrows():
        title = f"predicted {row['loss']} at {row['parameters'] / 1e6:.0f}M parameters and 90 million tokens"
        yield Claim.of(title, interval_at(row, "value"), unit="bits", note="A 95 % prediction interval.")
    for _, row in tables.get("shares", pd.DataFrame()).iterrows():
        title = f"share of the gate's gain over {row['unit']}, {row['variant']}, {row['optimizer']}"
        yield Claim.of(title, interval_at(row, "share"))
    lack = tables["tests"].query("larger == '' and losses == @PRIMARY")
    yield Claim("p of the law's lack of fit, the larger of both rules", float(lack["p"].max()))
    rates, runs = tables["rates"], int(tables["cells"]["seeds"].sum())
    yield Claim(
        "sweeps with the best rate inside, share", float(rates["inside"].mean()), support={"sweeps": len(rates)}
    )
    yield Claim("trainings of the grid that are done, share", runs / RUNS, support={"trainings": runs})


def widest(rows: Table, name: str) -> Interval:
    """The number of the primary analysis, variance per size, with the interval that covers those of all rows."""
    first = rows[(rows["losses"] == PRIMARY) & (rows["weights"] == "size")].iloc[0]
    return Interval(float(first[name]), float(rows["low"].min()), float(rows["high"].max()))
