"""Six units in a language model on enwik8, 0.4 to 26 million parameters: their differences, and the effect of size.

The record was made on a GPU (`benchmarks/gpu_ladder.py`). Laws, comparisons and intervals are those of
`gatelab.scaling_laws`; here they become tables. Every difference is tested twice, with the variance of all pairs of a
size and with that of the pair alone, and once more with losses minus the known cost of their learning rates: a claim
has the interval that covers all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from gatelab.feedforward import unit as as_unit
from gatelab.plotting.facets import Facets, Overlay
from gatelab.scaling_laws import LadderLaws, compare_ladder, fit_ladder, read_ladder
from gatelab.scaling_laws.ladder_comparisons import combined, independent_difference, size_words
from gatelab.scaling_laws.ladder_losses import DRAWS, SIGNIFICANT, LadderAxis, seed_noise
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, averaged, interval_at, interval_columns
from gatelab.studies.records import read_record, record_path
from gatelab.train import Ladder
from gatelab.train.ladders import BITS

COMMAND = "python -m benchmarks.gpu_ladder results/ladder/enwik8.json --store ladder.db"
GATE, RIVAL, REFERENCE = "swiglu", "relu2", "gelu"  # public evidence disagrees on the first two
TEXTS = {1: "every byte once", 20: "a 20th of the text 20 times"}  # by the number of epochs
AXES: dict[LadderAxis, str] = {"parameters": "parameters", "flops": "training FLOPs", "seconds": "GPU seconds"}
QUICK_DRAWS = 60
TRAINED, AT_BEST, ALL = "as trained", "minus rate costs", "all sizes"
STEEPER = "P^-3 for GLUs, P^-2 for MLPs, in regressions of one dimension"
LITERATURE = 1.11  # 12 layers, 44 million parameters, many passes over the text (arXiv 1808.04444)
LAW, UNSWEPT = Overlay("line", "law, one exponent (top)", "solid"), ("unswept", "rates not swept")
STUDY = Study(
    "ladder/enwik8",
    "Units in a language model: the ladder",
    "No paper has it: public runs contradict each other on whether a gate is better, and none has intervals.",
    position=1,
    beyond=True,
    figure=(
        Facets(
            table="bits", x="parameters", y="bits", hue="unit", row="text", xlog=True, points=True, lines=(LAW,),
            marks=UNSWEPT, ylabel="bits per byte", title="Losses on enwik8",
        ),
        Facets(
            table="bits", x="shown_at", y="excess", hue="unit", row="text", xlog=True, levels={"best unit": 0.0},
            xlabel="parameters, units side by side", ylabel="bits per byte above the best unit of the size",
            marks=UNSWEPT, title="Differences, paired by seed",
        ),
    ),
    cards={
        "Which unit, in a language model": Facets(
            table="bits", x="parameters", y="bits", hue="unit", xlog=True, ylabel="bits per byte",
            where={"repeats": 1, "unit": [REFERENCE, RIVAL, GATE]},
        ),
    },
)  # fmt: skip


# ---- tables


@STUDY.tables
def tables(request: Request) -> Tables:
    """The tables of the record; a quick run draws fewer seeds."""
    ladder = Ladder.read(record_path("ladder/enwik8.json", COMMAND))
    speeds = pd.concat([speed_rows("plain"), speed_rows("speed")], ignore_index=True)
    return {**tables_of(ladder, speeds, request), "speeds": speeds}


def tables_of(ladder: Ladder, speeds: Table, request: Request) -> Tables:
    """The tables of a ladder whose text is read once and 20 times."""
    rates: Table = ladder.rates()
    rates = rates.assign(excess=rates["excess"] / BITS, factor=rates["used"].fillna(rates["rule"]) / rates["best"])
    trained = trainings(ladder, speeds)
    texts = dict(iter(trained.groupby("repeats")))
    once, at_best = texts[1], best_rate_losses(texts[1], rates)
    compared = ((once, 1, TRAINED), (at_best, 1, AT_BEST), (texts[20], 20, TRAINED))
    pairs = pd.concat([pair_table(*one) for one in compared], ignore_index=True)
    fits: list[Any] = [(own, axis, losses, "none") for own, _, losses in compared[:2] for axis in AXES]
    fits += [(once[once["size"] != size], "parameters", TRAINED, size) for size in sizes_of(once)]
    laws, draws = [], QUICK_DRAWS if request.quick else DRAWS
    for own, axis, *_ in fits:
        laws.append(fit_ladder(own, against=axis, draws=draws, progress=False))
        if request.progress:
            request.progress(len(laws), len(fits))
    return {
        "bits": bits_table(ladder, trained, pairs, laws[0]).assign(unswept=lambda t: ~t["size"].isin(rates["size"])),
        "sizes": pd.concat([size_rows(repeats, own) for repeats, own in texts.items()], ignore_index=True),
        "laws": pd.concat([law_rows(own, *key) for own, (_, _, *key) in zip(laws, fits, strict=True)]),
        "worth": pd.DataFrame([row for own in laws[: len(AXES)] for row in worth_rows(own)]),
        "comparisons": pairs,
        "leads": leads_table(pairs),
        "rates": rates,
    }


def trainings(ladder: Ladder, speeds: Table) -> Table:
    """The trainings at the chosen rates, losses in bits, with the seconds of one among three on an idle device.

    The record's own seconds include other runs, which were trained on the device at the same time.
    """
    rates = speeds[speeds["models"] == 3].groupby(["unit", "size"])["tokens_per_second"].last()
    table: Table = ladder.table()
    seconds = table["tokens"] / rates.reindex(pd.MultiIndex.from_frame(table[["unit", "size"]])).to_numpy()
    return table.assign(loss=table["bits"], diverged=table["diverged"].notna(), seconds=seconds)


def sizes_of(trained: Table) -> list[str]:
    """The sizes, smallest first."""
    return list(dict.fromkeys(trained.sort_values("parameters")["size"]))


def best_rate_losses(trained: Table, rates: Table) -> Table:
    """Losses minus the known cost of their learning rates; a size without a sweep has that of the size below it."""
    costs = rates.pivot(index="size", columns="unit", values="excess").reindex(sizes_of(trained)).ffill().fillna(0.0)
    own = [costs.loc[size, unit] for size, unit in zip(trained["size"], trained["unit"], strict=True)]
    return trained.assign(loss=trained["loss"] - own)


def pair_table(trained: Table, repeats: int, losses: str) -> Table:
    """All pairs of units over all sizes and at each, by both rules of variance."""
    ladder, names = read_ladder(trained, least_sizes=1), dict(zip(trained["parameters"], trained["size"], strict=True))
    parts = [compare_ladder(ladder, variance=rule).assign(variance=rule) for rule in ("pooled", "pair")]
    table: Table = pd.concat(parts).rename(columns={"low": "difference_low", "high": "difference_high"})
    sizes = [ALL if np.isnan(count) else names[round(count)] for count in table["parameters"].astype(float)]
    return table.assign(repeats=repeats, losses=losses, size=sizes)


def law_rows(laws: LadderLaws, losses: str, without: str) -> Table:
    """All constants of the laws, with the answer and the p of its tests."""
    tests = {"p_units": laws.units_differ.p, "p_exponents": laws.exponents_differ.p}
    tests |= {"p_limits": laws.limits_differ.p, "p_beyond_shifts": laws.beyond_shifts.p}
    kind = {"against": laws.losses.against, "losses": losses, "without": without, "verdict": laws.verdict}
    return laws.table().assign(**kind, **tests, common_misfit=laws.common_misfit)


def worth_rows(laws: LadderLaws) -> Iterator[dict[str, Any]]:
    """The factor by which each reference would have to be larger for a unit's loss: over all sizes, and at each."""
    for reference, unit in product((REFERENCE, RIVAL), laws.losses.units):
        if unit == reference:
            continue
        worth = laws.worth(unit, reference)
        row = {"against": worth.against, "unit": unit, "reference": reference, "trend": worth.trend}
        row |= interval_columns("slope", worth.slope)
        places = (ALL, *map(size_words, worth.sizes))
        factors, extrapolated = (worth.overall, *worth.factor), (False, *worth.extrapolated)
        for place, factor, beyond in zip(places, factors, extrapolated, strict=True):
            yield {**row, "place": place, **interval_columns("factor", factor), "extrapolated": beyond}


def size_rows(repeats: int, trained: Table) -> Table:
    """The deviation of seeds at each size, and its weight in a mean over sizes."""
    deviation = trained.groupby(["size", "unit"])["loss"].var().groupby("size").mean() ** 0.5
    weights = 1 / seed_noise(read_ladder(trained, least_sizes=1)).own_variance
    sizes = sizes_of(trained)
    columns = {"deviation": deviation[sizes].to_numpy(), "share": weights / weights.sum()}
    return pd.DataFrame({"repeats": repeats, "size": sizes, **columns})


def differences_from(pairs: Table, second: str) -> Table:
    """The differences of all other units from one."""
    turned = {"first": "second", "second": "first", "difference_low": "difference_high"}
    mirrored = pairs.rename(columns={**turned, "difference_high": "difference_low"})
    numbers = mirrored[["difference", "difference_low", "difference_high"]]
    both = pd.concat([pairs, mirrored.assign(**-numbers)])
    return both[both["second"] == second]


def bits_table(ladder: Ladder, trained: Table, pairs: Table, laws: LadderLaws) -> Table:
    """Bits per byte of every unit and size, the distance from the best unit there, and columns for the figure."""
    keys = ["repeats", "size", "unit"]
    groups = trained.assign(lowest=trained["lowest"] / BITS).groupby(keys, sort=False)
    table: Table = averaged(trained[[*keys, "seed", "bits"]], "seed", keys, "arithmetic").set_index(keys)
    table = table.join(groups[["parameters", "flops", "tokens", "lr"]].first())
    table = table.join(groups["diverged"].sum()).join(groups["lowest"].mean())
    rows: list[Table] = []
    for (repeats, size), own in table.join(other_rates(ladder, table["lr"])).groupby(["repeats", "size"], sort=False):
        here = pairs[(pairs["repeats"] == repeats) & (pairs["size"] == size)]
        best = own["bits"].idxmin()[-1]
        above = differences_from(here.query("variance == 'pooled' and losses == @TRAINED"), best).set_index("first")
        above = above.rename(columns=lambda name: name.replace("difference", "excess"))
        columns = above[["excess", "excess_low", "excess_high", "p_holm"]]
        rows.append(own.reset_index().join(columns, on="unit").assign(best=best).fillna({"excess": 0.0}))
    made: Table = pd.concat(rows, ignore_index=True)
    units = list(dict.fromkeys(made["unit"]))
    law = [float(laws.laws["offset"].predict(*key)) for key in zip(made["unit"], made["parameters"], strict=True)]
    return made.assign(
        text=made["repeats"].map(TEXTS),
        shown_at=made["parameters"] * 1.07 ** (made["unit"].map(units.index) - 2.5),
        line=np.where(made["repeats"] == 1, law, made["bits"]),
    )


def other_rates(ladder: Ladder, counted: Table) -> Table:
    """Losses at the other learning rate, if a unit was trained with two at a size."""
    everything: Table = ladder.trainings[ladder.trainings["part"] == "test"]
    losses = everything.groupby([*counted.index.names, "lr"])["loss"].mean() / BITS
    other = losses.rename("other_bits").rename_axis(index={"lr": "other_lr"}).reset_index("other_lr").join(counted)
    return other[other["other_lr"] != other["lr"]].drop(columns="lr")


def leads_table(pairs: Table) -> Table:
    """Every gated unit minus relu2, in both regimes and from one to the other, at each size and over all.

    `widest` is the interval over all sizes that covers both rules of variance and the losses minus rate costs. Where
    sizes disagree by Cochran's Q, and not all to one side, it covers those of the sizes too.
    """
    rows: list[Any] = []
    apart = differences_from(pairs, RIVAL)
    for unit, own in apart[apart["first"].map(gated)].groupby("first", sort=False):
        found = []
        for repeats, of_text in own.groupby("repeats"):
            ends = [interval_at(row, "difference") for row in of_text[of_text["size"] == ALL].to_dict("records")]
            pooled = of_text.query("variance == 'pooled' and losses == @TRAINED").to_dict("records")
            found.append({row["size"]: interval_at(row, "difference") for row in pooled})
            rows += lead_rows(unit, TEXTS[repeats], found[-1], ends)
        if len(found) == 2:
            changes = {size: independent_difference(found[1][size], found[0][size]) for size in found[1] if size != ALL}
            mean, _ = combined(list(changes.values()))
            rows += lead_rows(unit, "repeated minus once", {ALL: mean, **changes}, [mean])
    return pd.DataFrame(rows)


def lead_rows(unit: Any, text: str, values: Mapping[str, Interval], ends: Sequence[Interval]) -> Iterator[Any]:
    """A difference over all sizes with its widest interval, and at each size."""
    sizes = [value for size, value in values.items() if size != ALL]
    _, p = combined(sizes)
    disagree = p <= SIGNIFICANT and len({one.value > 0 for one in sizes}) == 2
    covered = [*ends, *sizes * disagree]
    widest = {"widest_low": min(one.low for one in covered), "widest_high": max(one.high for one in covered)}
    for size, one in values.items():
        row = {"unit": unit, "rival": RIVAL, "text": text, "size": size, **interval_columns("difference", one)}
        yield row | {**widest, "p_sizes": p, "disagree": disagree} if size == ALL else row


def gated(unit: str) -> bool:
    """Whether a unit multiplies its gate by a line or more."""
    return getattr(as_unit(unit), "factors", 0) > 0


def speed_rows(name: str) -> Table:
    """Tokens per second by unit, size and loop; the first record has one unit for all rows."""
    record = read_record(f"ladder/{name}.json", f"{COMMAND} --record-only --speeds FILE")
    rows: Table = pd.json_normalize([{"unit": record.get("unit"), **row} for row in record["rows"]], sep="_")
    return rows.assign(run=name)


# ---- claims


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The claims on laws, factors, differences and learning rates."""
    yield from law_claims(tables["laws"])
    yield from worth_claims(tables["worth"])
    yield from lead_claims(tables)
    yield from (pairs_claim(repeats, own) for repeats, own in tables["comparisons"].groupby("repeats"))
    yield from rate_claims(tables["rates"])
    once = tables["bits"].query("repeats == 1")
    best = once[once["parameters"] == once["parameters"].max()].sort_values("bits").iloc[0]
    yield Claim.of(
        "bits per byte of the best unit of the largest size",
        interval_at(best, "bits"),
        LITERATURE,
        support={"unit": best["unit"], "parameters": int(best["parameters"]), "bytes read": int(best["tokens"])},
        note="The literature's model has 44 million parameters and read the text many times (arXiv 1808.04444).",
    )


def law_claims(laws: Table) -> Iterator[Claim]:
    """Whether gates have larger exponents, whether one size decides that, and E."""
    tests = {
        "answer": "verdict",
        "p of an exponent per unit": "p_exponents",
        "p of an exponent per unit, next to an E per unit": "p_beyond_shifts",
        "p of an E per unit, next to an offset per unit": "p_limits",
    }
    for axis, noun in AXES.items():
        own = laws[(laws["without"] == "none") & (laws["against"] == axis)]
        answers = {gates_steeper(part) for _, part in own.groupby("losses")}
        exponents = own.query("losses == @TRAINED and form == 'exponent'")
        support = {words: exponents[column].iloc[0] for words, column in tests.items()}
        support["exponents over their mean"] = [exponents["ratio_low"].min(), exponents["ratio_high"].max()]
        value = answers.pop() if len(answers) == 1 else None  # also minus the costs of learning rates, or not at all
        title = f"gates have larger exponents, L against {noun}, {TEXTS[1]}"
        yield Claim(title, value, paper=STEEPER, rule="holds", support=support)
    trained = laws.query("against == 'parameters' and losses == @TRAINED")
    whole, *others = trained.groupby("without", sort=False)["verdict"].first().items()
    changed = float(sum(answer != whole[1] for _, answer in others))
    support = {f"without {size}": answer for size, answer in others}
    yield Claim(f"sizes without which the answer is another, {TEXTS[1]}", changed, support=support)
    offset = trained.query("without == 'none' and form == 'offset'").iloc[0]
    title, support = f"E of the law with one exponent, {TEXTS[1]}", {"exponent": interval_at(offset, "exponent")}
    note = "E is a constant of this fit and training, not of the text: a longer training goes below it."
    yield Claim.of(title, interval_at(offset, "E"), LITERATURE, unit="bits", support=support, note=note)


def gates_steeper(laws: Table) -> float | None:
    """Whether every gate has a larger exponent than every other unit; None where that is not significant."""
    own = laws[laws["form"] == "exponent"]
    gates, others = own[own["unit"].map(gated)], own[~own["unit"].map(gated)]
    verdict = own["verdict"].iloc[0]
    if verdict == "offset" or (verdict == "exponent" and gates["ratio_high"].min() < others["ratio_low"].max()):
        return 0.0
    if verdict == "exponent" and gates["ratio_low"].min() > others["ratio_high"].max():
        return 1.0
    return None


def worth_claims(worth: Table) -> Iterator[Claim]:
    """The factor by which another unit would have to be larger for swiglu's losses."""
    for reference in (RIVAL, REFERENCE):
        own = worth.query("against == 'parameters' and unit == @GATE and reference == @reference").set_index("place")
        factors = {place: interval_at(row, "factor") for place, row in own.iterrows()}
        title = f"{GATE} in parameters of {reference}, one factor for all sizes, {TEXTS[1]}"
        yield Claim.of(title, factors.pop(ALL), support={**factors, "with size": own["trend"].iloc[0]})


def lead_claims(tables: Tables) -> Iterator[Claim]:
    """Gated units minus relu2: the hypothesis is that gates win when data repeat, and relu2 when they do not."""
    lowest = tables["bits"].query("repeats == 20").set_index(["size", "unit"])["lowest"]
    for (unit, text), own in tables["leads"].groupby(["unit", "text"], sort=False):
        values = {row["size"]: interval_at(row, "difference") for row in own.to_dict("records")}
        overall, largest = own[own["size"] == ALL].iloc[0], list(values)[-1]
        support: dict[str, Any] = {"pooled variance": values.pop(ALL), **values}
        if text == TEXTS[20]:
            support[f"{largest}, lowest losses during training"] = lowest[largest, unit] - lowest[largest, RIVAL]
        yield Claim(
            f"{unit} minus {RIVAL} over all sizes, {text}",
            *overall[["difference", "widest_low", "widest_high"]].astype(float),
            paper=0.0,
            rule="above" if text == TEXTS[1] else "below",
            unit="bits",
            support=support,
            note="The sizes disagree: the interval covers all of them." * overall["disagree"],
        )


def pairs_claim(repeats: int, pairs: Table) -> Claim:
    """The number of pairs that differ significantly after Holm's correction, by each rule of variance and by both."""
    support = {}
    places = np.where(pairs["size"] == ALL, "over all sizes", "at single sizes")
    for (losses, variance, place), rows in pairs.groupby(["losses", "variance", places], sort=False):
        support[f"{variance} variance, {losses}, {place}, of {len(rows)}"] = int(rows["decided"].sum())
    decided = pairs.query("size == @ALL and decided and losses == @TRAINED")
    rules = decided.groupby(["first", "second", np.sign(decided["difference"])])["variance"].nunique()
    title = f"pairs of units that differ significantly by both rules of variance, {TEXTS[repeats]}"
    return Claim(title, float((rules == 2).sum()), support=support)


def rate_claims(rates: Table) -> Iterator[Claim]:
    """The spread of the best learning rates, and the cost of those that were used."""
    sizes = rates.groupby("size", sort=False)
    spread, cost = sizes["best"].max() / sizes["best"].min(), sizes["excess"].max()
    note = "Others: a GLU fails at another unit's rate (marin)."
    title = "best learning rates of units, largest over smallest"
    yield Claim(title, float(spread.max()), support=spread.to_dict(), note=note)
    title = "loss at the learning rates used minus loss at the best, largest over units"
    note = "From the sweeps, one seed per rate; a size that is not listed has no sweep."
    yield Claim(title, float(cost.max()), unit="bits", support=cost.to_dict(), note=note)
