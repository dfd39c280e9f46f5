"""Made-up ladders with known truth: laws, tests, worth and comparisons; every fast path beside a slow one."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.optimize import minimize, nnls
from scipy.stats import permutation_test, spearmanr, ttest_rel

from gatelab.errors import GatelabError
from gatelab.plain import to_plain
from gatelab.scaling_laws.ladder_comparisons import (
    combined,
    compare_ladder,
    log_factors,
    rank_agreement,
)
from gatelab.scaling_laws.ladder_fits import (
    ALL_ALIKE,
    EXPONENT,
    FORMS,
    OFFSET,
    OFFSET_AND_SHIFT,
    SHIFT,
    SHIFT_AND_EXPONENT,
    Cells,
    fit_form,
    loosened,
    nested_test,
)
from gatelab.scaling_laws.ladder_laws import fit_ladder, redrawn_laws
from gatelab.scaling_laws.ladder_losses import LadderLosses, read_ladder, seed_noise, shrunk_variances
from gatelab.statistics import Interval

SIZES = np.geomspace(0.4e6, 25e6, 5)
UNITS = ("gelu", "swiglu", "relu2", "reglu", "gqu", "geglu")
GAINS = (1.0, 0.93, 0.97, 0.95, 0.98, 0.92)
E, EXCESS, SLOPE = 0.8, 0.8, 0.28  # losses go from 1.6 to about 1.05 nats


def true_losses(gains, exponents, sizes=SIZES, floor=E):
    """L of each unit and size: offsets at the smallest size, exponents of their own from there."""
    return floor + EXCESS * np.array(gains)[:, None] * (sizes / sizes[0]) ** -np.array(exponents)[:, None]


def made_up(seed, units=6, *, gains=None, exponents=None, sd=0.01, shared=0.4, seeds=3, floor=E):
    """A ladder whose seeds scatter by `sd`, a share of the variance common to all units of a seed."""
    generator = np.random.default_rng(seed)
    truth = true_losses(GAINS[:units] if gains is None else gains, exponents or [SLOPE] * units, floor=floor)
    noise = np.sqrt(1 - shared) * generator.standard_normal((units, len(SIZES), seeds))
    noise += np.sqrt(shared) * generator.standard_normal((len(SIZES), seeds))
    sizes = np.broadcast_to(SIZES, truth.shape).copy()
    return LadderLosses(UNITS[:units], SIZES, sizes, truth[..., None] + sd * noise, tuple(range(seeds)))


def with_gaps(ladder):
    """Without one seed here, and without one size there."""
    losses = ladder.losses.copy()
    losses[0, 1, 2] = losses[1, 4] = np.nan
    return replace(ladder, losses=losses)


def cells_of(ladder):
    return Cells.of(ladder, seed_noise(ladder))


@pytest.fixture(scope="module")
def offset():
    return fit_ladder(made_up(1), draws=300)


@pytest.fixture(scope="module")
def steeper():
    exponents = [SLOPE, SLOPE + 0.03, SLOPE - 0.02, SLOPE, SLOPE, SLOPE]
    return fit_ladder(made_up(1, exponents=exponents), draws=300)


def slow_misfit(ladder, form):
    """Least squares of all rows with their whole covariance matrix, as a function of the exponents; by nnls."""
    noise, rows = seed_noise(ladder), np.argwhere(ladder.present)
    unit, place, seed = rows.T
    paired = (place[:, None] == place) & (seed[:, None] == seed)
    alike = np.where(unit[:, None] == unit, 1.0, noise.correlation)
    white = np.linalg.cholesky(np.linalg.inv(paired * alike * noise.variance[place])).T
    losses, sizes = white @ ladder.losses[ladder.present], ladder.sizes[unit, place]
    centre = np.exp(np.log(ladder.sizes[ladder.present.any(axis=2)]).mean())
    # What seeds scatter about the means of their cells is the same for every law.
    cell = np.unique(rows[:, :2], axis=0, return_inverse=True)[1].ravel()
    each = white @ np.eye(cell.max() + 1)[cell]
    within = losses - each @ np.linalg.lstsq(each, losses, rcond=None)[0]

    def misfit(exponents):
        own = np.broadcast_to(exponents, len(ladder.units))
        power = (sizes / centre) ** -own[unit]
        amplitudes = np.eye(len(ladder.units))[unit] if form.own_amplitude else np.ones((len(rows), 1))
        limits = np.eye(len(ladder.units))[unit] if form.own_limit else np.ones((len(rows), 1))
        theta, length = nnls(white @ np.column_stack((amplitudes * power[:, None], limits)), losses)
        return length**2 - within @ within, theta

    return misfit


@pytest.mark.parametrize(
    ("form", "floor"),
    [(form, floor) for form in FORMS for floor in (E, 0.0)]
    + [(SHIFT, E), (SHIFT_AND_EXPONENT, E), (OFFSET_AND_SHIFT, E)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_variable_projection_is_as_low_as_a_slow_search_over_whole_matrices(form, floor):
    """With seeds and a size missing; without a floor the noise would have E negative now and then, and may not."""
    ladder = with_gaps(made_up(3, units=3, exponents=[0.28, 0.31, 0.26], floor=floor))
    cells = cells_of(ladder)
    ours = fit_form(cells, (cells.root @ cells.means)[None], form)
    exponents = ours.exponent[0] if form.own_exponent else ours.exponent[0, :1]
    slowly = slow_misfit(ladder, form)
    misfit, theta = slowly(exponents)
    assert ours.misfit[0] == pytest.approx(misfit, abs=1e-6)
    amplitudes = 3 if form.own_amplitude else 1
    assert np.ravel(ours.E[0]) == pytest.approx(theta[amplitudes:], abs=1e-6)
    assert ours.excess[0][:amplitudes] == pytest.approx(theta[:amplitudes], rel=1e-6)
    for begin in (0.15, 0.5):
        slow = minimize(
            lambda q: slowly(np.exp(q))[0],
            np.log(np.full(len(exponents), begin)),
            method="L-BFGS-B",
            options={"maxiter": 30},
        )
        assert ours.misfit[0] <= slow.fun + 1e-6


def test_the_floor_is_never_negative():
    """Curves that fall ever faster ask for E < 0: the law without E takes their place."""
    ladder = made_up(0, units=2)
    falling = (
        2.0 - 0.2 * np.log(SIZES / SIZES[0])[None, :, None] ** 1.1 + 0.001 * (ladder.losses - ladder.losses.mean())
    )
    cells = cells_of(replace(ladder, losses=falling))
    for form in FORMS:
        assert fit_form(cells, (cells.root @ cells.means)[None], form).E[0] == 0.0


def test_exact_losses_give_the_constants_back():
    exponents = [0.28, 0.31, 0.26]
    cells = cells_of(made_up(0, units=3, exponents=exponents, sd=1e-7))
    law = fit_form(cells, (cells.root @ cells.means)[None], EXPONENT)
    assert law.E[0] == pytest.approx(E, abs=1e-5)
    assert law.exponent[0] == pytest.approx(exponents, rel=1e-4)
    amid = EXCESS * np.array(GAINS[:3]) * (cells.center / SIZES[0]) ** -np.array(exponents)
    assert law.excess[0] == pytest.approx(amid, rel=1e-4)


def test_weights_know_how_seeds_scatter_and_what_they_share():
    """One ladder of 200 seeds: the estimates are then within a few percent."""
    noise = seed_noise(made_up(0, units=4, seeds=200, sd=0.02, shared=0.5))
    assert np.sqrt(noise.variance) == pytest.approx(np.full(5, 0.02), rel=0.08)
    assert noise.correlation == pytest.approx(0.5, abs=0.08)
    assert np.sqrt(noise.own_variance) == pytest.approx(np.full(5, 0.02 * np.sqrt(0.5)), rel=0.08)
    assert noise.freedom.tolist() == [3 * 199] * 5


@pytest.mark.parametrize(
    ("forms", "units"),
    [
        pytest.param((OFFSET, EXPONENT), 2, id="ii"),
        pytest.param((ALL_ALIKE, OFFSET), 3, id="i", marks=pytest.mark.slow),
        pytest.param((SHIFT, SHIFT_AND_EXPONENT), 2, id="iii", marks=pytest.mark.slow),
        pytest.param((OFFSET, OFFSET_AND_SHIFT), 2, id="iv", marks=pytest.mark.slow),
    ],
)
def test_a_true_null_hypothesis_is_rejected_in_five_of_a_hundred(forms, units):
    """100 ladders under the null: a test of 5 % has 1 to 13 rejections with a probability of 99.3 %."""
    gains = GAINS[:units] if forms[0] is OFFSET else [1.0] * units
    p = [
        nested_test(loosened(cells_of(made_up(seed, units, gains=gains))), *forms, draws=19, seed=seed).p
        for seed in range(100)
    ]
    assert 1 <= sum(value <= 0.05 for value in p) <= 13
    assert 0.4 < np.mean(p) < 0.6


def test_what_moves_a_whole_size_does_not_hide_exponents():
    """Deviations of 0.03 nats common to all units, whose curves cross, which no offset can do."""
    ladder = made_up(1, units=3, gains=[1.0, 1.06, 0.97], exponents=[SLOPE, SLOPE + 0.04, SLOPE])
    common = 0.03 * np.random.default_rng(2).standard_normal(len(SIZES))
    moved = replace(ladder, losses=ladder.losses + common[:, None])
    plain = cells_of(moved)
    cells = loosened(plain)
    assert 0.01 < cells.common < 0.1 and loosened(cells_of(ladder)).common < 0.01
    before, after = (np.linalg.inv(c.root.T @ c.root) for c in (plain, cells))
    assert after - before == pytest.approx(cells.common**2 * (cells.size[:, None] == cells.size), abs=1e-9)
    p = [nested_test(c, OFFSET, EXPONENT, draws=199, seed=0).p for c in (plain, cells)]
    assert p[1] <= 0.01 < p[0]
    assert fit_ladder(moved, draws=40).common_misfit == pytest.approx(cells.common)


def test_an_offset_is_called_an_offset(offset):
    assert offset.verdict == "offset"
    assert not offset.exponents_differ.decided and offset.units_differ.decided
    law = offset.laws["offset"]
    assert E in law.E and SLOPE in law.exponent[0]
    truth = EXCESS * np.array(GAINS) * (law.center / SIZES[0]) ** -SLOPE
    assert all(value in interval for value, interval in zip(truth, law.excess, strict=True))
    assert all(1.0 in ratio for ratio in offset.ratio)
    assert "one exponent is enough" in offset.sentence


def test_an_offset_next_to_which_an_e_per_unit_is_better_is_undecided(offset):
    """Amplitudes and limits of their own, exponents alike: neither an offset alone nor an exponent."""
    assert not offset.limits_differ.decided, "a true offset: 5 of a hundred are rejected"
    better = replace(offset, limits_differ=replace(offset.limits_differ, p=0.01))
    assert (
        better.verdict == "undecided" and "by more than an offset: an E per unit is better (p 0.01" in better.sentence
    )
    ladder = made_up(2, 3, gains=[1.0, 0.9, 0.8])
    shifts = np.array([0.0, 0.09, 0.16])[:, None, None]  # gains and limits that outweigh each other midway
    laws = fit_ladder(replace(ladder, losses=ladder.losses + shifts), draws=99)
    assert laws.limits_differ.p == 0.01 and laws.verdict != "offset"


def test_an_exponent_is_called_an_exponent(steeper):
    assert steeper.verdict == "exponent" and steeper.exponents_differ.p < 0.01
    own = steeper.laws["exponent"].exponent
    assert SLOPE + 0.03 in own[1] and SLOPE - 0.02 in own[2]
    assert steeper.ratio[1].low > 1 > steeper.ratio[2].high
    swiglu, relu2 = steeper.worth("swiglu", "gelu"), steeper.worth("relu2", "gelu")
    assert (swiglu.trend, relu2.trend) == ("rising", "falling")
    # The factors that were measured are told, size by size, and no ends of a line through them.
    for size, k in zip(("0.4M", "1.1M", "3.2M", "8.9M", "25M"), swiglu.factor, strict=True):
        ends = f"[{100 * (k.low - 1):.0f}, {100 * (k.high - 1):.0f}]"
        assert f"{100 * (k.value - 1):+.0f} % {ends} at {size}" in swiglu.sentence
    assert swiglu.sentence.count("%") == 5 and "at 25M: rising with size" in swiglu.sentence


def test_as_many_bits_at_every_size_are_seldom_called_an_exponent():
    """Units that lie 0.03 nats apart at all sizes: an amplitude each is rejected, exponents in 5 of a hundred cases.

    More than 3 of 10 ladders are called exponents with a probability of 0.1 %.
    """
    shifts = np.array([0.0, -0.03, 0.03])[:, None, None]
    ladders = [made_up(seed, 3, gains=[1.0] * 3) for seed in range(10)]
    laws = [fit_ladder(replace(ladder, losses=ladder.losses + shifts), draws=99) for ladder in ladders]
    assert all(law.exponents_differ.decided for law in laws)
    calm = [law for law in laws if not law.beyond_shifts.decided]
    assert len(calm) >= 7 and all(law.verdict == "undecided" for law in calm)
    assert all("by more than a factor of parameters" in law.sentence for law in calm)


def test_no_difference_is_undecided():
    """The gains are alike: no verdict may say more. Seed 5 is one of the 95 of a hundred."""
    laws = fit_ladder(made_up(5, units=3, gains=[1.0] * 3), draws=99)
    assert laws.verdict == "undecided" and "no difference" in laws.sentence
    worth = laws.worth("swiglu", "gelu")
    assert "is undecided: " in worth.sentence and "%" in worth.sentence
    # Ends at which factors are cut are no numbers to tell.
    for ends in ((1e-6, 3.0), (0.5, 1e6)):
        flat = replace(worth, overall=replace(worth.overall, value=1.2, low=ends[0], high=ends[1]))
        assert "is undecided: the curves are too flat" in flat.sentence and "%" not in flat.sentence


def test_worth_is_the_true_factor_at_every_size(offset):
    worth = offset.worth("swiglu", "gelu")
    truth = GAINS[1] ** (-1 / SLOPE)
    assert truth in worth.overall and worth.trend == "constant"
    assert sum(truth in factor for factor in worth.factor) >= 4
    assert worth.extrapolated == (False, False, False, False, True)
    assert worth.sentence.startswith("swiglu is worth") and "at every size" in worth.sentence
    assert "25M by extrapolation of gelu" in worth.sentence
    inverse = offset.worth("gelu", "swiglu")
    assert inverse.overall.value == pytest.approx(1 / worth.overall.value)
    assert inverse.extrapolated == (True, False, False, False, False) and "fewer" in inverse.sentence
    itself = offset.worth("gelu", "gelu")
    assert [factor.value for factor in itself.factor] == pytest.approx([1.0] * 5)


def test_factors_are_exact_for_a_law_and_follow_a_curve_that_does_not_fall():
    x = np.log(SIZES)
    curve = true_losses([1.0], [SLOPE])
    for gain in (0.8, 0.95, 1.2):
        log_k = log_factors(x, true_losses([gain], [SLOPE]), (x, curve), np.array([E]), np.array([SLOPE]))
        assert log_k[0] == pytest.approx(np.full(5, -np.log(gain) / SLOPE))
    bent = curve.copy()
    bent[0, 2] = bent[0, 1] + 0.01
    log_k = log_factors(x, curve, (x, bent), np.array([E]), np.array([SLOPE]))
    assert np.isfinite(log_k).all() and log_k[0, [0, 4]] == pytest.approx([0.0, 0.0])


def test_intervals_over_seeds_hold_the_truth_as_often_as_they_say():
    """40 ladders, 95 % intervals of factor and exponent: 33 or more of 40 hold it with a probability of 99.9 %."""
    held = np.zeros(2)
    for seed in range(40):
        ladder = made_up(100 + seed, units=2)
        laws = redrawn_laws(ladder, cells_of(ladder), draws=60, seed=seed)[1]["offset"]
        factors = (laws.excess[:, 0] / laws.excess[:, 1]) ** (1 / laws.exponent[:, 0])
        for i, (drawn, truth) in enumerate(((factors, GAINS[1] ** (-1 / SLOPE)), (laws.exponent[:, 0], SLOPE))):
            low, high = np.quantile(drawn, [0.025, 0.975])
            held[i] += low <= truth <= high
    assert (held >= 33).all()


def test_pairs_are_compared_as_the_paired_t_test_does():
    ladder = with_gaps(made_up(0, units=3))
    table = compare_ladder(ladder, variance="pair")
    for row in table[table["parameters"].notna()].itertuples():
        r = int(np.abs(SIZES - row.parameters).argmin())
        pair = [ladder.losses[ladder.units.index(name), r] for name in (row.first, row.second)]
        there = np.isfinite(pair).all(axis=0)
        assert row.p == pytest.approx(ttest_rel(pair[0][there], pair[1][there]).pvalue)
        assert row.difference == pytest.approx((pair[0] - pair[1])[there].mean())
    assert len(table[table["parameters"].isna()]) == 3 and len(table) == 3 + 5 + 4 + 4


def test_pooled_comparisons_decide_more_and_are_corrected_in_families():
    ladder = made_up(1)
    table, alone = compare_ladder(ladder), compare_ladder(ladder, variance="pair")
    assert table["decided"].sum() > 10 > alone["decided"].sum()
    overall = table[table["parameters"].isna()]
    assert len(overall) == 15 and len(table) == 15 + 75
    assert overall["p_holm"].min() == pytest.approx(15 * overall["p"].min())
    assert ((table["low"] > 0) | (table["high"] < 0))[table["decided"]].all()
    # Without gaps the pooled variance is the mean of all pairs' own, half of it a unit's.
    own = [np.var(a - b, ddof=1) for i, a in enumerate(ladder.losses[:, 0]) for b in ladder.losses[:i, 0]]
    assert 2 * seed_noise(ladder).own_variance[0] == pytest.approx(np.mean(own))


# What seeds did at five sizes of a real ladder, more or less: at one they differ ten times as much as at others.
UNEVEN = np.array([0.008, 0.04, 0.012, 0.003, 0.003])[:, None]


@pytest.mark.parametrize("sd", [0.01, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("units", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_no_difference_is_seldom_decided(sd, units):
    """60 ladders of units alike: Holm's correction lets 5 % of them have any; 9 or fewer with 99.9 %."""
    wrong = 0
    for seed in range(60):
        table = compare_ladder(made_up(seed, units=units, gains=[1.0] * units, sd=sd))
        wrong += table.loc[table["parameters"].isna(), "decided"].any()
    assert wrong <= 9


def test_intervals_over_all_sizes_hold_where_seeds_of_sizes_differ():
    """100 ladders with differences of 0.01 at every size: 95 % of intervals hold it, 88 at least with 99.9 %.

    The plain mean over sizes, which "pair" has, is many times as wide.
    """
    held, widths, plain = 0, [], []
    for seed in range(100):
        ladder = made_up(seed, units=3, gains=[1.0] * 3, sd=UNEVEN)
        losses = ladder.losses.copy()
        losses[1] += 0.01
        ladder = replace(ladder, losses=losses)
        row, own = (compare_ladder(ladder, variance=kind).iloc[0] for kind in ("pooled", "pair"))
        held += row.low <= -0.01 <= row.high
        widths.append(row.high - row.low)
        plain.append(own.high - own.low)
    assert held >= 88
    assert np.median(plain) > 5 * np.median(widths)


def test_variances_are_drawn_together_as_far_as_they_are_alike():
    """Where variances differ by factors of e, nearly as near to the truth as own ones, far nearer than a common one.

    400 draws of five groups. Where all are equal, all get the common one in 340 of 400 or more.
    """
    generator = np.random.default_rng(0)
    freedom, errors, equal = np.full(5, 10), {"drawn": 0.0, "own": 0.0, "common": 0.0}, 0
    for _ in range(400):
        truth = np.exp(generator.standard_normal(5))
        squares = truth * generator.chisquare(10, 5)
        guesses = {
            "drawn": shrunk_variances(squares, freedom),
            "own": squares / 10,
            "common": np.full(5, squares.sum() / 50),
        }
        for name, guess in guesses.items():
            errors[name] += np.square(np.log(guess / truth)).mean() / 400
        same = shrunk_variances(generator.chisquare(10, 5), freedom)
        equal += np.ptp(same) == 0
    assert errors["drawn"] < 1.15 * errors["own"] < 0.3 * errors["common"]
    assert equal >= 340
    assert shrunk_variances(np.array([3.0, 0.0, 5.0]), np.array([1, 0, 1])).shape == (3,)


def test_rank_agreement_of_six_units_is_exact():
    losses = dict(zip(UNITS, (6.0, 2.0, 4.0, 3.0, 5.0, 1.0), strict=True))
    drawn = np.tile(list(losses.values()), (3, 1))
    same = rank_agreement(losses, drawn, losses)
    assert same.correlation.value == pytest.approx(1.0) and same.p == pytest.approx(2 / 720)
    scores = (1.0, 2.0, 6.0, 3.0, 5.0, 4.0)
    other = rank_agreement(losses, drawn, dict(zip(UNITS, scores, strict=True)))
    twin = permutation_test(
        (list(losses.values()),),
        lambda x: spearmanr(x, scores).statistic,
        permutation_type="pairings",
        n_resamples=720,
    )
    assert other.correlation.value == pytest.approx(twin.statistic)
    assert other.p == pytest.approx(twin.pvalue, abs=1e-9)
    assert other.over_units.low < other.correlation.value < other.over_units.high
    with pytest.raises(GatelabError, match="cannot be ranked"):
        rank_agreement(losses, drawn, dict.fromkeys(UNITS, 1.0))


def test_rank_agreement_of_many_units_draws_orders():
    losses = {f"u{i}": float(i) for i in range(10)}
    agreement = rank_agreement(losses, np.tile(np.arange(10.0), (3, 1)), {f"u{i}": float(-i) for i in range(10)})
    assert agreement.correlation.value == pytest.approx(-1.0) and agreement.p < 1e-4


def test_a_table_is_read_with_its_sizes_and_rules():
    rows = made_up(0, units=3).table()
    rows["parameters"] *= np.where(rows["unit"] == "swiglu", 1.03, 1.0)
    rows["diverged"] = ((rows["unit"] == "gelu") & (rows["parameters"] > 2e7) & (rows["seed"] > 0)) | (
        (rows["unit"] == "swiglu") & (rows["parameters"] < 5e5) & (rows["seed"] == 1)
    )
    rows.loc[(rows["unit"] == "relu2") & (rows["parameters"] > 2e6), "loss"] = np.nan
    ladder = read_ladder(rows.sample(frac=1, random_state=0).sort_values("unit"))
    assert ladder.units == ("gelu", "swiglu")
    assert ladder.losses.shape == (2, 5, 3) and ladder.present.sum() == 30 - 3 - 1
    assert np.isnan(ladder.losses[0, 4]).all() and ladder.sizes[1] == pytest.approx(1.03 * SIZES)
    text = "; ".join(ladder.left_out)
    assert "gelu at 2.52e+07 parameters: 1 of 3 seeds can be used, so the size is left out" in text
    assert "swiglu at 4.04e+05 parameters: 2 of 3 seeds can be used" in text
    assert "relu2: 2 sizes left, so the unit is left out" in text
    assert fit_ladder(ladder, draws=20).losses is ladder


def test_laws_in_flops_and_seconds():
    rows = (
        made_up(1, units=2, gains=[1.0, 0.9])
        .table()
        .assign(
            flops=lambda t: 6e8 * t["parameters"] * np.where(t["unit"] == "swiglu", 1.2, 1.0),
            seconds=lambda t: 1e-5 * t["parameters"] ** 0.8 * (1 + 0.01 * t["seed"]),
        )
    )
    by_flops, plainly = (fit_ladder(rows, against=column, draws=40) for column in ("flops", "parameters"))
    assert by_flops.worth("swiglu", "gelu").overall.value == pytest.approx(
        plainly.worth("swiglu", "gelu").overall.value / 1.2, rel=1e-3
    )
    assert "more FLOPs" in by_flops.worth("swiglu", "gelu").sentence
    seconds = fit_ladder(rows, against="seconds", draws=40)
    assert seconds.laws["offset"].exponent[0].value == pytest.approx(
        plainly.laws["offset"].exponent[0].value / 0.8, rel=1e-3
    )


def test_plain_values_tables_and_lines(offset):
    for value in (offset, offset.losses, offset.worth("relu2", "gelu"), offset.units_differ, *offset.laws.values()):
        assert json.loads(json.dumps(to_plain(value), allow_nan=False))
        if value is not offset.units_differ:
            assert isinstance(value.table(), pd.DataFrame) and len(value.table())
        assert len(repr(value)) <= 110 and "array(" not in repr(value)
    assert offset.plain()["verdict"] == "offset" and offset.plain()["units_differ"]["decided"]
    assert set(offset.table()["form"]) == {"alike", "offset", "exponent"}
    assert offset.laws["offset"].predict("gelu", SIZES[2]) == pytest.approx(offset.mean("gelu")[1][2].value, abs=0.02)


def test_the_figure_shows_losses_and_worth(offset, tmp_path):
    figure = offset.plot(tmp_path / "ladder.png", reference="relu2")
    assert isinstance(figure, Figure) and (tmp_path / "ladder.png").stat().st_size > 10_000
    left, right = figure.axes
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale()) == ("log", "log", "log")
    low, high = right.get_ylim()
    values = [100 * (k.value - 1) for u in UNITS if u != "relu2" for k in offset.worth(u, "relu2").factor]
    assert low < min(values) and max(values) < high
    own = Figure().subplots(1, 2)
    assert offset.plot(ax=own) is own[0].figure


def test_the_figure_has_no_law_that_is_rejected_and_no_numbers_of_flat_curves():
    ladder = made_up(0, 3, gains=[1.0] * 3)
    shifted = fit_ladder(replace(ladder, losses=ladder.losses + np.array([0.0, -0.03, 0.03])[:, None, None]), draws=40)
    assert shifted.verdict == "undecided" and shifted.exponents_differ.decided
    figure = shifted.plot()
    figure.canvas.draw()
    title = figure._suptitle.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.width
    line = figure.axes[0].lines[0]
    assert line.get_ydata() == pytest.approx(shifted.laws["exponent"].predict("gelu", line.get_xdata()))
    flat = made_up(3, 2, gains=[0.002, 0.001], floor=1.6, sd=0.02)
    figure = fit_ladder(flat, draws=40).plot()
    assert figure.axes[1].get_ylim()[1] < 2000
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert any(word.startswith("the law, E = ") for word in words) and "the law, E = -0" not in words


def test_progress_and_equal_seeds():
    calls = []
    laws = [fit_ladder(made_up(0, 2), draws=40, seed=3, progress=lambda *done: calls.append(done)) for _ in range(2)]
    assert calls[-1] == (200, 200) and all(done <= total for done, total in calls)
    assert laws[0].plain() == laws[1].plain()


def columns(**changes):
    table = made_up(0, units=2).table().to_dict("list")
    return {name: changes.get(name, values) for name, values in table.items()}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"unit": ["gelu"], "loss": [1.0]}, "no column parameters, seed"),
        ({"unit": [], "parameters": [], "seed": [], "loss": []}, "no rows"),
        (columns(parameters=[0.0] * 30), "column parameters holds 0.0; give positive numbers"),
        (columns(seed=[0] * 30), "appears twice"),
        (columns(loss=[np.nan] * 30), "no unit has the required 3 sizes"),
        (columns(loss=[1.5] * 30), "the losses of different seeds are equal"),
        (columns(unit=["gelu"] * 15 + ["gqu"] * 15, loss=[1.5, 1.6, np.nan] * 5 + [np.inf] * 15), "one unit, gelu"),
        (columns(loss=[*np.tile([1.0, 1.01, 0.99], 5) * np.repeat([1, 2, 3, 4, 5], 3)] * 2), "does not fall with size"),
    ],
)
def test_what_cannot_be_a_ladder_is_refused(table, words):
    with pytest.raises(GatelabError, match=words):
        fit_ladder(table, draws=20)


def test_names_that_are_not_there_are_refused(offset):
    with pytest.raises(GatelabError, match="no unit of this ladder is called 'swigl'; did you mean 'swiglu'"):
        offset.worth("swigl", "gelu")
    with pytest.raises(GatelabError, match="no column seconds"):
        fit_ladder(columns(), against="seconds")


def test_values_that_agree_seldom_disagree_by_cochrans_q():
    """Four values of one true mean, variances known by ten degrees of freedom: about 5 of 100 have p of 5 % or less.

    With 2000 draws the share has a standard deviation of 0.5 %; what is beyond 6.5 % happens once in 700 times.
    """
    generator, spread = np.random.default_rng(0), np.array([0.01, 0.05, 0.03, 0.1])
    alarms = 0
    for _ in range(2000):
        values = 0.02 + spread * generator.standard_normal(4)
        halves = 2.23 * spread * np.sqrt(generator.chisquare(10, 4) / 10)
        _, p = combined([Interval(v, v - half, v + half) for v, half in zip(values, halves, strict=True)])
        alarms += p <= 0.05
    assert 0.03 < alarms / 2000 < 0.065
