"""The parts of the ladder's design after the grid: tables of made-up records with known answers."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gatelab.studies.ladder import gain as study

STEPS = [0, 10, 20, 40, 80]
KEYS = ["pair", "optimizer", "unit", "variant", "series", "loss", "parameters", "score", "change"]
EMPTY = dict.fromkeys(
    ("early", "shares", "repeated", "predicted", "text", "ranks", "separated"), pd.DataFrame(columns=KEYS)
)


def early_rows(apart: dict[str, list[float]], deviation: float = 0.002) -> pd.DataFrame:
    """Losses of four units by step; those of a unit lie `apart` above the ones of swiglu."""
    generator = np.random.default_rng(0)
    rows = []
    for unit, seed in itertools.product(("swiglu", "geglu", "gelu", "relu2"), range(5)):
        losses = np.array([8.0, 6.0, 5.0, 4.0, 3.0])
        losses[1:] += np.array(apart.get(unit, [0.0] * 4)) + deviation * generator.standard_normal(4)
        rows.append({"unit": unit, "seed": seed, "measured": STEPS, "losses": losses.tolist()})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("relu2", "gelu", "verdicts"),
    [
        ([-0.1, -0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1], (study.CROSSING, study.GATED_LOWER)),
        ([0.1, 0.1, -0.1, -0.1], [-0.1, -0.1, -0.1, -0.1], (study.NEITHER, study.UNGATED_LOWER)),
    ],
)
def test_a_crossing_takes_an_ungated_lead_and_a_later_gated_one(
    relu2: list[float], gelu: list[float], verdicts: tuple[str, str]
) -> None:
    made = study.early_table(early_rows({"relu2": relu2, "gelu": gelu}))
    found = made.groupby("pair")["verdict"].first()
    assert (found["relu2 - swiglu"], found["gelu - swiglu"]) == verdicts
    row = made.set_index(["pair", "step"]).loc["relu2 - swiglu", 20]
    assert row["difference_low"] < relu2[1] < row["difference_high"] and set(made["step"]) == set(STEPS[1:])


def mechanism_rows(
    gains: dict[tuple[str, str], float], deviation: float, seeds: int = 6, seed: int = 0
) -> pd.DataFrame:
    """Losses below 2 bits by these gains; seeds have a noise in common and one of their own."""
    generator = np.random.default_rng(seed)
    common = 0.02 * generator.standard_normal(seeds)
    return pd.DataFrame(
        {"kind": "mechanism", "optimizer": "adamw", "unit": unit, "variant": variant, "seed": s}
        | {"averaged": 2 - gain + common[s] + deviation * generator.standard_normal()}
        for (unit, variant), gain in gains.items()
        for s in range(seeds)
    )


GAINS = {("gelu", ""): 0.0, ("gelu", "centered"): 0.006, ("gelu", "output bias"): 0.0, ("geglu", ""): 0.015}


def test_the_share_of_the_gain_is_that_of_the_means_and_noise_in_common_does_not_count() -> None:
    made = study.share_table(mechanism_rows(GAINS, 0.001)).set_index(["unit", "variant"])
    centered, bias = made.loc[("gelu", "centered")], made.loc[("gelu", "output bias")]
    assert list(made.index) == [("gelu", "centered"), ("gelu", "output bias")]  # relu2 has no rows
    assert centered["share"] == pytest.approx(0.4, abs=0.12)  # three standard errors
    assert bias["share"] == pytest.approx(0.0, abs=0.12)
    assert centered["fieller_low"] < 0.4 < centered["fieller_high"]
    assert centered["share_high"] - centered["share_low"] < 0.3
    assert centered["gain_low"] < 0.015 < centered["gain_high"]


def test_p_values_are_those_of_paired_t_tests_corrected_within_a_variant() -> None:
    adamw, sgd = (mechanism_rows(GAINS, 0.004, seed=seed) for seed in (0, 1))
    made = study.share_table(pd.concat([adamw, sgd.assign(optimizer="sgd")])).set_index(["variant", "optimizer"])
    for name, rows in (("adamw", adamw), ("sgd", sgd)):
        wide = rows.pivot(index="seed", columns=["unit", "variant"], values="averaged")
        for variant in ("centered", "output bias"):
            p = stats.ttest_rel(wide["gelu", ""], wide["gelu", variant]).pvalue
            assert made.loc[(variant, name), "p"] == pytest.approx(p)
    for _, own in made.groupby(level="variant"):  # Holm's of two: twice the smaller, then the larger of both
        least, most = sorted(own["p"])
        assert sorted(own["p_holm"]) == pytest.approx(sorted([min(2 * least, 1), max(min(2 * least, 1), most)]))


def test_changes_are_the_gain_of_the_gate_and_what_the_variants_recover() -> None:
    shares = study.share_table(mechanism_rows(GAINS, 0.001)).set_index("variant")
    made = study.change_table(shares.reset_index()).set_index("variant")
    assert list(made.index) == ["gate", "centered", "output bias"]
    for end in ("", "_low", "_high"):
        assert made.loc["gate", f"recovered{end}"] == shares.loc["centered", f"gain{end}"]
        assert made.loc["centered", f"recovered{end}"] == shares.loc["centered", f"recovered{end}"]


def test_more_tokens_and_more_updates_are_compared_seed_by_seed() -> None:
    """A gate's gain of 0.1 bits loses 0.05 by tokens and 0.02 by updates; GEGLU's does not change."""
    noise, rows = np.random.default_rng(0).normal(0.0, 0.003, (3, 4, 6)), []
    for c, (cell, gain) in enumerate({(16, 687): 0.1, (64, 687): 0.05, (16, 2747): 0.03}.items()):
        for u, (unit, share) in enumerate({"swiglu": 1.0, "relu2": 0.0, "geglu": 0.0, "gelu": 0.0}.items()):
            for seed, own in enumerate(noise[c, u]):
                row = dict(zip(("batch", "steps"), cell, strict=True))
                rows.append(row | {"unit": unit, "seed": seed, "averaged": 2 - share * gain + own, "kind": "batches"})
    more = [row | {"kind": "sweep", "averaged": 9.0} for row in rows]
    made = study.separated_table(pd.DataFrame(rows + more)).set_index(["pair", "change"])
    tokens, updates = study.SEPARATED
    gains = np.array([0.1, 0.05, 0.03])[:, None] + noise[:, 1] - noise[:, 0]
    p = [stats.ttest_1samp(gains[i] - gains[i + 1], 0.0).pvalue for i in (0, 1)]
    for i, change in enumerate((tokens, updates)):
        row = made.loc[("relu2 - swiglu", change)]
        assert list(row[["before", "after"]]) == pytest.approx(gains[i : i + 2].mean(1))
        assert row["fall"] == pytest.approx((gains[i] - gains[i + 1]).mean())
        assert row["positive"] == (gains[i] > gains[i + 1]).sum()
        assert row["p"] == pytest.approx(p[i])
    assert made["p_holm"].min() == pytest.approx(4 * made["p"].min())
    assert made.loc["gelu - geglu", "p_holm"].min() > 0.05


def test_a_repetition_is_analyzed_by_its_own_seeds_and_by_all() -> None:
    """Centering helps in the first six seeds by 0.006 and in the other six by 0.012."""
    first = mechanism_rows(GAINS, 0.0005)
    other = mechanism_rows(GAINS | {("gelu", "centered"): 0.012}, 0.0005, seed=1)
    other = other[other["variant"] != "output bias"].assign(kind="repetition", seed=lambda t: t["seed"] + 6)
    kernel = first[:1].assign(kind="kernel", when="end", rows=8, lr=0.1, largest=4.0, second=2.0, smallest=1.0)
    rows = pd.concat([first, other, kernel]).assign(optimizer="sgd", bits=lambda t: t["averaged"])
    made = study.mechanism_tables(rows)
    shares = made["shares"].set_index(["losses", "variant"])["recovered"]
    assert shares[study.PRIMARY, "centered"] == pytest.approx(0.006, abs=0.001)
    repeated = made["repeated"].set_index(["series", "losses"])
    assert repeated.index.tolist() == list(itertools.product((study.OTHER, study.TWELVE), (study.PRIMARY, study.LAST)))
    assert (repeated["variant"] == "centered").all()
    for series, seeds, recovered in ((study.OTHER, 6, 0.012), (study.TWELVE, 12, 0.009)):
        assert repeated["seeds"][series, study.PRIMARY] == seeds
        assert repeated["recovered"][series, study.PRIMARY] == pytest.approx(recovered, abs=0.001)
    titles = [claim.what for claim in study.later_claims(EMPTY | made)]
    assert made["changes"]["optimizer"].unique().tolist() == ["sgd", f"sgd, {study.OTHER}"]
    counts = [sum(series in title for title in titles) for series in (study.OTHER, study.TWELVE)]
    assert counts == [1, 1] and len(titles) == 4


def test_claims_cover_the_last_weights_too() -> None:
    """Last weights, on which centering recovers nothing, move the lower end and not the value."""
    rows = mechanism_rows(GAINS, 0.001)
    worse = rows["averaged"] + 0.006 * (rows["variant"] == "centered")
    shares = study.by_weights(study.share_table, rows.assign(bits=worse)).query("variant == 'centered'")
    (claim,) = study.later_claims(EMPTY | {"shares": shares})
    first, last = shares.to_dict("records")
    assert claim.value == first["share"] and claim.high == max(first["share_high"], first["fieller_high"])
    assert claim.low == min(last["share_low"], last["fieller_low"]) < 0 < first["share_low"]
    assert claim.support["p by Holm"] == max(first["p_holm"], last["p_holm"])


def test_shares_of_no_gain_are_not_defined() -> None:
    made = study.share_table(mechanism_rows(GAINS | {("geglu", ""): 0.0}, 0.002))
    assert made["share"].isna().all() and made["recovered"].notna().all()


def test_fiellers_intervals_hold_the_share_as_often_as_they_say_and_bootstraps_less_often() -> None:
    inside, gains = np.zeros(2), {key: gain for key, gain in GAINS.items() if key[1] != "output bias"}
    for seed in range(100):
        row = study.share_table(mechanism_rows(gains, 0.003, seed=seed)).iloc[0]
        inside += [row[f"{name}_low"] <= 0.4 <= row[f"{name}_high"] for name in ("share", "fieller")]
    assert 88 <= inside[1] <= 99  # 95 % are 95, with a standard deviation of 2.2
    assert 80 <= inside[0] < inside[1]


def test_claims_of_crossings_say_at_which_steps_and_noise_is_none() -> None:
    early = study.early_table(early_rows({"relu2": [-0.1, -0.1, 0.1, 0.1], "gelu": [0.1, 0.1, 0.1, 0.1]}))
    made = {claim.what: claim for claim in study.later_claims(EMPTY | {"early": early})}
    crossing = made["relu2 - swiglu: the ungated unit leads early and is overtaken"]
    assert crossing.verdict == "reproduced"
    assert list(crossing.support.values()) == [[10, 20], [40, 80]]
    assert made["gelu - swiglu: the ungated unit leads early and is overtaken"].verdict == "differs"
    noise = study.early_table(early_rows({}, deviation=0.1))
    assert set(noise["verdict"]) == {study.NEITHER}
    assert {claim.verdict for claim in study.later_claims(EMPTY | {"early": noise})} == {"undecided"}


def test_a_prediction_holds_if_the_mean_of_the_seeds_lies_inside() -> None:
    predicted = pd.DataFrame(
        [("relu2", 26, 1.10, 1.12), ("relu2 - swiglu", 26, 0.01, 0.03), ("relu2 - swiglu", 60, 0.01, 0.03)],
        columns=["loss", "parameters", "low", "high"],
    )
    losses = {"relu2": [1.13, 1.14, 1.15], "swiglu": [1.11, 1.12, 1.13]}
    rows = pd.DataFrame(
        {"kind": "prediction", "unit": unit, "parameters": 26, "seed": seed, "averaged": loss}
        for unit, own in losses.items()
        for seed, loss in enumerate(own)
    )
    made = study.prediction_table(predicted.assign(value=0.02), rows)
    assert made["held"].tolist() == [False, True]  # 60 has no trainings yet
    assert made["measured"].tolist() == pytest.approx([1.14, 0.02])
    assert made["measured_high"].iloc[1] == pytest.approx(0.02)  # paired by seed
    claims = list(study.later_claims(EMPTY | {"predicted": made}))
    assert [(claim.support["inside"], claim.support["seeds"]) for claim in claims] == [("no", 3), ("yes", 3)]


def test_the_bulk_of_a_kernel_is_without_its_largest_eigenvalue() -> None:
    names = ("optimizer", "unit", "variant", "when", "seed", "rows", "lr")
    rows = pd.DataFrame([dict.fromkeys(names, 0) | {"largest": 60.0, "second": 12.0, "smallest": 3.0}])
    assert study.kernel_table(rows)[["condition", "bulk"]].to_numpy().tolist() == [[20.0, 4.0]]


def test_differences_on_another_text_are_paired() -> None:
    rows = pd.DataFrame(
        {"unit": unit, "seed": s, "averaged": 1.0 + 0.1 * s + 0.02 * (unit == "relu2")}
        for unit in ("relu2", "gelu", "swiglu", "geglu")
        for s in range(3)
    )
    made = study.text_table(rows).set_index("pair")
    assert list(made.index) == [f"{a} - {b}" for a, b in study.PAIRS]
    assert made.loc["relu2 - swiglu", ["difference_low", "difference_high"]].tolist() == pytest.approx([0.02, 0.02])


def test_ranks_are_spearmans() -> None:
    generator = np.random.default_rng(0)
    units = [f"u{i}" for i in range(18)]
    scores = dict(zip(units, generator.standard_normal(18), strict=True))
    rows = pd.DataFrame(
        {"kind": "units", "unit": unit, "seed": s, "averaged": score + generator.standard_normal()}
        for unit, score in scores.items()
        for s in range(3)
    )
    made = study.rank_table(rows, {"κ": scores}).set_index("score")
    means = rows.groupby("unit")["averaged"].mean()
    assert made.loc["κ", "correlation"] == pytest.approx(
        stats.spearmanr(means, [scores[u] for u in means.index]).statistic
    )
    assert made.loc["κ", "correlation_low"] < made.loc["κ", "seeds"] < made.loc["κ", "correlation_high"]
    assert made.loc["κ", "units"] == 18
