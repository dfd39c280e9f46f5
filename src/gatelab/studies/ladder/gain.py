"""Where the gate's gain sits: four units on a grid of parameters and tokens (docs/results/ladder-design.md).

The analysis was fixed before the grid was run: differences of units regressed on log P and log D, and nested laws
E + A P^-a + B D^-b, with two rules of variance, on averaged weights and in three alternative analyses.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.interpolate import PchipInterpolator

from gatelab.arrays import Array
from gatelab.models import DECODER_SIZES
from gatelab.plotting.facets import Facets
from gatelab.scaling_laws.ladder_comparisons import rank_agreement
from gatelab.scaling_laws.ladder_losses import SIGNIFICANT
from gatelab.scaling_laws.slopes import line
from gatelab.scaling_laws.token_laws import NESTED, fit_token_laws, token_differences
from gatelab.statistics import LEVEL, Interval, bootstrap, holm, resampled, t_interval, t_reach
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, averaged, interval_at, interval_columns
from gatelab.studies.records import read_record, record_path
from gatelab.train.rates import at_end, best_rate, excess

COMMAND = "python -m benchmarks.gpu_gain results/ladder"
PAIRS = (("relu2", "swiglu"), ("gelu", "geglu"), ("gelu", "swiglu"), ("relu2", "geglu"))
GATED = {"gelu": "geglu", "relu2": "reglu"}
OPTIMIZERS = ("sgd", "adamw", "muon")
VARIANTS = ("centered", "output bias")
OTHER, TWELVE = "six other seeds", "all twelve seeds"  # of the repetition; both series, which the design does not have
UNGATED_LOWER, GATED_LOWER, CROSSING, NEITHER = "ungated lower", "gated lower", "crossing", "inconclusive"
LARGEST_DEVIATION = 0.015  # bits: a size with more is not part of the primary analysis
LAST, RATES, ALL = "last weights", "minus rate costs", "all sizes"
PRIMARY = "averaged weights"
DRAWS, FEWER, QUICK_DRAWS = 1000, 300, 20  # simulated tables per test: primary, alternatives, quick
TOKENS, PARAMETERS = "per doubling of tokens", "per doubling of parameters"
COVERS = "The interval covers both rules of variance and all alternative analyses."
LATER = "A t-interval over sizes, which is not part of the design."
RANKED = "The interval is over units, by Fisher's z, with averaged and last weights; p is not corrected."
BOTH = "The interval covers averaged and last weights."
WIDER = "The interval covers the bootstrap's and Fieller's, over seeds, with averaged and last weights."
SHOWN, NONE = ["relu2 - swiglu", "gelu - geglu"], {"no difference": 0.0}
PREDICTED = {size: replace(DECODER_SIZES[size], taps=4).body_count("swiglu") for size in ("26M", "60M")}
PREDICTED_TOKENS, PREDICTED_SEEDS = 10986 * 16 * 512, 3
SEPARATED = {  # two trainings each: windows of a batch and updates
    "4 times the tokens, 687 updates": ((16, 687), (64, 687)),
    "4 times the updates, 22.5M tokens": ((64, 687), (16, 2747)),
}
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
        Facets(
            table="changes", x="optimizer", y="recovered", hue="variant", row="unit", points=True, levels=NONE,
            ylabel="bits per byte below the ungated unit", title="A gate, centering or an output bias",
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
    larger = record_rows("prediction").query("kind == 'prediction'")
    made = analysis(grid, sweeps, quick=request.quick) | {"differences": difference_table(pd.concat([grid, larger]))}
    return made | {"rates": sweeps} | later_tables(made["predictions"])


def record_rows(name: str) -> Table:
    lines = record_path(f"ladder/{name}.jsonl", COMMAND).read_text(encoding="utf-8").splitlines()
    rows: Table = pd.DataFrame([row for row in map(json.loads, lines) if "kind" in row and "error" not in row])
    return rows.assign(variant=rows["variant"].fillna(""))


def later_tables(predicted: Table) -> dict[str, Table]:
    """The tables of the design's parts after the grid."""
    scores = read_record("ladder/unit-scores.json", "python -m benchmarks.gain_scores", "minutes")["scores"]
    return {
        "predicted": by_weights(lambda rows: prediction_table(predicted, rows), record_rows("prediction")),
        "early": early_table(record_rows("early")),
        **mechanism_tables(record_rows("mechanism")),
        "text": by_weights(text_table, record_rows("text")),
        "ranks": by_weights(lambda rows: rank_table(rows, scores), record_rows("units")),
        "separated": by_weights(separated_table, record_rows("batches")),
    }


def mechanism_tables(rows: Table) -> dict[str, Table]:
    """Shares of the gate's gain with the first seeds and, repeated, with others and all; changes of losses; kernels."""
    of = dict(list(rows.groupby("kind")))
    shares, other = (by_weights(share_table, of[kind]) for kind in ("mechanism", "repetition"))
    twelve = rows.query("optimizer == 'sgd' and variant != 'output bias' and kind in ('mechanism', 'repetition')")
    repeated = pd.concat([other.assign(series=OTHER), by_weights(share_table, twelve).assign(series=TWELVE)])
    both = pd.concat([shares, other.assign(optimizer=f"sgd, {OTHER}")]).sort_values("optimizer", kind="stable")
    changes = change_table(both[both["losses"] == PRIMARY])
    return {"shares": shares, "kernels": kernel_table(of["kernel"]), "repeated": repeated, "changes": changes}


def by_weights(table: Callable[[Table], Table], rows: Table) -> Table:
    """A table of the averaged weights' losses and, as the alternative analysis, of those of the last weights."""
    last = table(rows.assign(averaged=rows["bits"]))
    return pd.concat([table(rows).assign(losses=PRIMARY), last.assign(losses=LAST)], ignore_index=True)


def rate_table(sweeps: Table, grid: Table) -> Table:
    """The best learning rate of every sweep of the grid's decoders, and the cost of the one that was used."""
    keys, rows = ["unit", "size", "steps", "variant"], []
    used = grid.groupby(keys)["lr"].first()
    for key, own in sweeps.groupby(keys, sort=False):
        if key not in used:
            continue
        lrs, losses = own["lr"].tolist(), own["averaged"].tolist()
        row = {"rates": len(own), "best": best_rate(lrs, losses), "used": used[key], "inside": at_end(lrs, losses) == 0}
        cost = excess(float(used[key]), lrs, losses)
        rows.append({**dict(zip(keys, key, strict=True)), **row, "cost": cost})
    return pd.DataFrame(rows)


def analysis(grid: Table, rates: Table, *, quick: bool) -> dict[str, Table]:
    """Means, differences, trends and laws of a grid of trainings."""
    keys = ["unit", "size", "parameters", "tokens", "steps"]
    cells = averaged(grid[[*keys, "seed"]].assign(bits=grid["averaged"]), "seed", keys, "arithmetic")
    variance = grid.groupby(["size", "parameters", "tokens", "unit"])["averaged"].var().groupby(["size", "parameters"])
    deviations = (variance.mean() ** 0.5).rename("deviation").reset_index().sort_values("parameters")
    deviations = deviations.assign(primary=deviations["deviation"] < LARGEST_DEVIATION)
    trends, tests, factors, predicted = [], [], [], pd.DataFrame()
    draws = (QUICK_DRAWS,) if quick else (DRAWS, FEWER, FEWER, FEWER)  # of the primary analysis and the alternatives
    for (name, losses), count in zip(analyses(grid, rates, deviations).items(), draws, strict=False):
        trends.append(token_differences(losses, PAIRS).assign(losses=name))
        laws = fit_token_laws(losses, draws=count, progress=False)
        tests.append(laws.table().assign(losses=name))
        if name == PRIMARY:
            places = {"tokens": PREDICTED_TOKENS, "seeds": PREDICTED_SEEDS, "draws": 2 * count}
            predicted = laws.predictions(PAIRS[0], list(PREDICTED.values()), **places).assign(trainings=len(grid))
        for reference, unit in PAIRS:
            P, D = (interval_columns(of, laws.factor(unit, reference, of)) for of in ("parameters", "tokens"))
            factors.append({"losses": name, "unit": unit, "reference": reference, **P, **D})
    means = {"cells": cells, "deviations": deviations}
    both = {name: pd.concat(parts, ignore_index=True) for name, parts in (("trends", trends), ("tests", tests))}
    return {**means, **both, "factors": pd.DataFrame(factors), "predictions": predicted}


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
    """Paired differences of units at every size and number of tokens that has both, with t-intervals over seeds."""
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
    """The tokens with which a falling curve has the mean of these losses, over `tokens`; NaN out of its range."""
    means = curve.dropna().groupby("tokens").mean()[::-1]  # from the lowest loss on
    if len(means) < 2 or not (means.is_unique and means.is_monotonic_increasing):
        return np.nan
    place = PchipInterpolator(means, np.log(means.index.to_numpy(float)), extrapolate=False)
    return float(np.exp(place(losses.mean())) / tokens)


# ---- the parts after the grid, whose records benchmarks/gain_parts.py describes; units are compared seed by seed


def prediction_table(predicted: Table, rows: Table) -> Table:
    """Predictions next to the means of the trainings that they are for, and whether these lie inside the interval."""
    wide = rows[rows["kind"] == "prediction"].pivot_table("averaged", ["parameters", "seed"], "unit")
    made = []
    for _, row in predicted.iterrows():
        first, _, second = row["loss"].partition(" - ")
        own = wide[wide.index.get_level_values("parameters") == row["parameters"]]
        losses = (own[first] - own[second] if second else own[first]).dropna()
        if len(losses):
            mean = t_interval(losses.to_numpy())
            held = bool(row["low"] <= mean.value <= row["high"])
            made.append({**row, **interval_columns("measured", mean), "seeds": len(losses), "held": held})
    return pd.DataFrame(made)


def early_table(rows: Table) -> Table:
    """Differences of ungated and gated units by step, with t-intervals, Holm's p over steps, and a verdict per pair."""
    wide = rows.assign(losses=rows["losses"].map(np.array)).pivot_table("losses", "seed", "unit", aggfunc="first")
    made, steps = [], rows["measured"].iloc[0][1:]  # all units start from one head of zeros
    for first, second in PAIRS:
        apart = np.array((wide[first] - wide[second]).tolist())[:, 1:]
        tested: Any = stats.ttest_1samp(apart, 0.0)
        p = holm(tested.pvalue)
        signs = np.where(p < SIGNIFICANT, np.sign(apart.mean(axis=0)), 0.0)
        for step, own, each in zip(steps, apart.T, p, strict=True):
            row = {"pair": f"{first} - {second}", "step": step, **interval_columns("difference", t_interval(own))}
            made.append(row | {"p_holm": each, "verdict": crossing_verdict(signs)})
    return pd.DataFrame(made)


def crossing_verdict(signs: Array) -> str:
    """What the significant signs of ungated minus gated losses say, in the order of steps."""
    lower, higher = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
    if len(lower) and len(higher):
        return CROSSING if lower[0] < higher[-1] else NEITHER
    if len(lower):
        return UNGATED_LOWER
    if len(higher):
        return GATED_LOWER
    return NEITHER


def share_table(trained: Table) -> Table:
    """The share of the gate's gain that centering or an output bias recovers, by unit and optimizer.

    It is (plain - variant) / (plain - gated) of the means, NaN where the t-interval of plain - gated contains 0, with
    the design's percentile interval over seeds drawn with replacement (`share_low`) and Fieller's interval
    (`fieller_low`). The first is too narrow for six seeds: it held 85 % of 200 simulated shares, the second 95 %.
    `p` is that of plain - variant, `p_holm` corrected for the optimizers and units of a variant.
    """
    wide = trained.pivot_table(index="seed", columns=["optimizer", "unit", "variant"], values="averaged")
    made: list[dict[str, Any]] = []
    for optimizer, unit in itertools.product(OPTIMIZERS, GATED):
        for variant in VARIANTS:
            columns = [(optimizer, unit, ""), (optimizer, unit, variant), (optimizer, GATED[unit], "")]
            if not all(column in wide for column in columns):
                continue
            plain, other, gated = wide[columns].dropna().to_numpy().T
            gain, own = t_interval(plain - gated), t_interval(plain - other)
            row = {"optimizer": optimizer, "unit": unit, "variant": variant, "seeds": len(plain)}
            row |= {**interval_columns("gain", gain), **interval_columns("recovered", own)}
            tested: Any = stats.ttest_1samp(plain - other, 0.0)
            row["p"] = float(tested.pvalue)
            share = bootstrap([plain - other, plain - gated], lambda a, b: a.mean(-1) / b.mean(-1), paired=True)
            names = {**interval_columns("share", share), **fieller_columns(plain - other, plain - gated)}
            if not gain.excludes(0.0):
                names = dict.fromkeys(names, np.nan)
            made.append(row | names)
    rows: Table = pd.DataFrame(made)
    return rows.assign(p_holm=rows.groupby("variant")["p"].transform(lambda p: holm(p.to_numpy()))) if made else rows


def change_table(shares: Table) -> Table:
    """How many bits the gate and the variants take off the loss of the ungated unit."""
    both = [[f"{name}{end}" for end in ("", "_low", "_high")] for name in ("gain", "recovered")]
    gates = shares.drop_duplicates(["optimizer", "unit"]).assign(variant="gate").drop(columns=both[1])
    rows: Table = pd.concat([gates.rename(columns=dict(zip(*both, strict=True))), shares])
    return rows[["optimizer", "unit", "variant", *both[1]]]


def fieller_columns(part: Array, whole: Array) -> dict[str, float]:
    """Fieller's interval for the ratio of the means of paired values, of which the second must differ from 0."""
    (pp, pw), (_, ww) = np.cov(part, whole) / len(part) * t_reach(LEVEL, len(part) - 1) ** 2
    p, w = part.mean(), whole.mean()
    root = np.sqrt(max((p * w - pw) ** 2 - (w * w - ww) * (p * p - pp), 0.0))
    return {f"fieller_{end}": (p * w - pw + sign * root) / (w * w - ww) for end, sign in (("low", -1), ("high", 1))}


def kernel_table(rows: Table) -> Table:
    made = rows[["optimizer", "unit", "variant", "when", "seed", "rows", "lr", "largest"]]
    return made.assign(condition=rows["largest"] / rows["smallest"], bulk=rows["second"] / rows["smallest"])


def text_table(rows: Table) -> Table:
    """Differences of units on another text, paired by seed."""
    wide = rows.pivot_table(index="seed", columns="unit", values="averaged")
    apart = {f"{a} - {b}": t_interval((wide[a] - wide[b]).dropna().to_numpy()) for a, b in PAIRS}
    return pd.DataFrame([{"pair": pair, **interval_columns("difference", one)} for pair, one in apart.items()])


def rank_table(rows: Table, scores: Mapping[str, Mapping[str, float]]) -> Table:
    """Rank correlations of the units' mean losses with scores; intervals over seeds and over units."""
    wide = rows[rows["kind"] == "units"].pivot_table(index="unit", columns="seed", values="averaged").dropna()
    losses, made = wide.to_numpy(), []
    drawn = losses[:, resampled(losses.shape[1], 2 * DRAWS, np.random.default_rng(0))].mean(-1).T
    for name, values in scores.items():
        ranks = rank_agreement(wide.mean(axis=1).to_dict(), drawn, values)
        columns = {**interval_columns("seeds", ranks.correlation), **interval_columns("correlation", ranks.over_units)}
        made.append({"score": name, "units": len(wide), **columns, "p": ranks.p})
    return pd.DataFrame(made)


def separated_table(rows: Table) -> Table:
    """What the gain of a gate loses with more tokens at equal updates, and with more updates at equal tokens."""
    wide = rows[rows["kind"] == "batches"].pivot_table("averaged", "seed", ["unit", "batch", "steps"])
    made: list[dict[str, Any]] = []
    for (first, second), (change, (less, more)) in itertools.product(PAIRS[:2], SEPARATED.items()):
        before, after = ((wide[first][cell] - wide[second][cell]).to_numpy() for cell in (less, more))
        row = {"pair": f"{first} - {second}", "change": change, "p": float(stats.ttest_rel(before, after).pvalue)}
        for name, values in (("before", before), ("after", after), ("fall", before - after)):
            row |= interval_columns(name, t_interval(values))
        made.append(row | {"positive": int((before > after).sum())})
    table: Table = pd.DataFrame(made)
    return table.assign(p_holm=holm(table["p"].to_numpy()))


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    trends = tables["trends"].rename(columns={"low": "value_low", "high": "value_high"})
    for (first, second), own in trends.groupby(["first", "second"], sort=False):
        for name in (TOKENS, PARAMETERS):
            rows = own[own["coefficient"] == name]
            yield Claim.of(f"{first} minus {second}, change {name}", covering(rows, "value"), unit="bits", note=COVERS)
    apart, primary = tables["differences"], tables["deviations"].query("primary")["size"]
    measured = apart[apart["size"].isin(primary)].groupby("pair")["factor"].agg(["min", "max"])
    for _, row in tables["factors"].query("losses == @PRIMARY").iterrows():
        support: dict[str, Any] = {"factor of parameters": interval_at(row, "parameters")}
        support["without the law, in single cells"] = measured.loc[f"{row['reference']} - {row['unit']}"].tolist()
        title = f"tokens that {row['reference']} needs for {row['unit']}'s data term, as a factor"
        yield Claim.of(title, interval_at(row, "tokens"), support=support, note="By the law with A and B per unit.")
    for pair in SHOWN:
        own = apart[(apart["pair"] == pair) & apart["size"].isin(primary)]
        last = own.pivot(index="size", columns="tokens", values="difference").T.diff().iloc[-1]
        yield Claim.of(f"{pair}, change over the last doubling of tokens", t_interval(last), unit="bits", note=LATER)
    own = apart.query("pair == @SHOWN[0] and tokens == tokens.max() and (size in @primary or size in @PREDICTED)")
    title = f"{SHOWN[0]} at 90 million tokens, change {PARAMETERS} up to {own['parameters'].max() / 1e6:.0f}M"
    yield Claim.of(title, line(np.log2(own["parameters"]), own["difference"]), unit="bits", note=LATER)
    tests = tables["tests"].fillna({"smaller": "", "larger": ""})  # an empty name is NaN in a table from a file
    for smaller, larger in NESTED:
        own = tests.query("smaller == @smaller and larger == @larger")
        p = {f"{row['losses']}, variance per {row['weights']}": row["p"] for _, row in own.iterrows()}
        more, fewer = (" and ".join(form) or "none" for form in (larger, smaller))
        title = f"p of {more} per unit against {fewer} per unit, the largest of all analyses"
        yield Claim(title, max(p.values()), support=p)
    for _, row in tables["predictions"].iterrows():
        title = f"predicted {row['loss']} at {row['parameters'] / 1e6:.0f}M parameters and 90 million tokens"
        yield Claim.of(title, interval_at(row, "value"), unit="bits", note="A 95 % prediction interval.")
    yield from later_claims(tables)
    lack = tests.query("larger == '' and losses == @PRIMARY")
    yield Claim("p of the law's lack of fit, the larger of both rules", float(lack["p"].max()))
    inside, runs = tables["rates"]["inside"], int(tables["cells"]["seeds"].sum())
    yield Claim("sweeps with the best rate inside, share", float(inside.mean()), support={"sweeps": len(inside)})
    yield Claim("trainings of the grid that are done, share", runs / RUNS, support={"trainings": runs})


def later_claims(tables: Mapping[str, Table]) -> Iterator[Claim]:
    """Early crossings, shares of the gate's gain, predictions that held or not, the second text, and ranks of units."""
    for pair, own in tables["early"].groupby("pair", sort=False):
        lower, upper = ((own["p_holm"] < SIGNIFICANT) & (own["difference"] * sign > 0) for sign in (-1, 1))
        verdict = own["verdict"].iloc[0]
        support = {"steps with the ungated unit significantly lower": own["step"][lower].tolist()}
        support["steps with the gated unit significantly lower"] = own["step"][upper].tolist()
        what, paper = "the ungated unit leads early and is overtaken", "the ungated unit first, the gated one later"
        value = None if verdict == NEITHER else float(verdict == CROSSING)
        yield Claim(f"{pair}: {what}", value, paper=paper, rule="holds", support=support)
    yield from share_claims(tables["shares"], "")
    for series, shares in tables["repeated"].groupby("series", sort=False):
        yield from share_claims(shares, f", {series}")
    for (loss, parameters), rows in tables["predicted"].groupby(["loss", "parameters"], sort=False):
        title = f"measured {loss} at {parameters / 1e6:.0f}M parameters and 90 million tokens"
        support = {"predicted": interval_at(rows.iloc[0], "value"), "inside": ("no", "yes")[bool(rows["held"].all())]}
        support["seeds"] = int(rows["seeds"].min())
        yield Claim.of(title, covering(rows, "measured"), unit="bits", support=support, note=BOTH)
    for pair, rows in tables["text"].groupby("pair", sort=False):
        yield Claim.of(f"{pair} on Python sources", covering(rows, "difference"), unit="bits", note=BOTH)
    for (pair, change), rows in tables["separated"].groupby(["pair", "change"], sort=False):
        support = {name: covering(rows, name) for name in ("before", "after")} | {"p by Holm": rows["p_holm"].max()}
        support["seeds with a fall"] = int(rows["positive"].min())
        yield Claim.of(f"{pair}, fall with {change}", covering(rows, "fall"), unit="bits", support=support, note=BOTH)
    for score, rows in tables["ranks"].groupby("score", sort=False):
        support = {"units": int(rows["units"].min()), "over seeds": covering(rows, "seeds"), "p": rows["p"].max()}
        title = f"rank correlation of the units' losses with {score}"
        yield Claim.of(title, covering(rows, "correlation"), support=support, note=RANKED)


def share_claims(shares: Table, seeds: str) -> Iterator[Claim]:
    for (optimizer, unit, variant), rows in shares.groupby(["optimizer", "unit", "variant"], sort=False):
        title = f"share of the gate's gain over {unit}, {variant}, {optimizer}{seeds}"
        support = {"gain, bits": covering(rows, "gain"), "p": rows["p"].max(), "p by Holm": rows["p_holm"].max()}
        yield Claim.of(title, covering(rows, "share", "fieller"), support=support, note=WIDER)


def covering(rows: Table, name: str, *others: str) -> Interval:
    """The number of the first row with the interval that covers those of all rows, of this name and of the others."""
    low, high = (rows[[f"{each}_{end}" for each in (name, *others)]].to_numpy(float) for end in ("low", "high"))
    return Interval(float(rows[name].iloc[0]), float(low.min()), float(high.max()))
