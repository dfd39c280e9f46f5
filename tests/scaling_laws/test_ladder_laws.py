"""Made-up ladders with known truth: the law, its factors, and comparisons; every fast path beside a slow one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar, nnls
from scipy.stats import permutation_test, spearmanr, ttest_rel

from gatelab.errors import GatelabError
from gatelab.plain import to_plain
from gatelab.scaling_laws import compare_ladder, fit_ladder, read_ladder
from gatelab.scaling_laws.ladder_comparisons import rank_agreement
from gatelab.scaling_laws.ladder_laws import Cells, loosened, own_law
from gatelab.scaling_laws.ladder_losses import LadderLosses, seed_noise, shrunk_variances

SIZES = np.geomspace(0.4e6, 25e6, 5)
UNITS = ("gelu", "swiglu", "relu2", "reglu", "gqu", "geglu")
GAINS = (1.0, 0.93, 0.97, 0.95, 0.98, 0.92)
E, EXCESS, SLOPE = 0.8, 0.8, 0.28  # losses go from 1.6 to about 1.05 nats


def made_up(seed, units=6, *, gains=None, sd=0.01, shared=0.4, seeds=3, floor=E):
    """A ladder whose seeds scatter by `sd`, a share of the variance common to all units of a seed."""
    generator = np.random.default_rng(seed)
    truth = floor + EXCESS * np.array(gains or GAINS[:units])[:, None] * (SIZES / SIZES[0]) ** -SLOPE
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
def law():
    return fit_ladder(made_up(1), draws=300)


def slow_misfit(ladder, alike):
    """Least squares of all rows with their whole covariance matrix, as a function of the exponent; by nnls."""
    noise, rows = seed_noise(ladder), np.argwhere(ladder.present)
    unit, place, seed = rows.T
    paired = (place[:, None] == place) & (seed[:, None] == seed)
    correlation = np.where(unit[:, None] == unit, 1.0, noise.correlation)
    white = np.linalg.cholesky(np.linalg.inv(paired * correlation * noise.variance[place])).T
    losses, sizes = white @ ladder.losses[ladder.present], ladder.sizes[unit, place]
    centre = np.exp(np.log(ladder.sizes[ladder.present.any(axis=2)]).mean())
    # What seeds scatter about the means of their cells is the same for every law.
    cell = np.unique(rows[:, :2], axis=0, return_inverse=True)[1].ravel()
    each = white @ np.eye(cell.max() + 1)[cell]
    within = losses - each @ np.linalg.lstsq(each, losses, rcond=None)[0]
    amplitudes = np.ones((len(rows), 1)) if alike else np.eye(len(ladder.units))[unit]

    def misfit(exponent):
        power = (sizes / centre) ** -exponent
        theta, length = nnls(white @ np.column_stack((amplitudes * power[:, None], np.ones(len(rows)))), losses)
        return length**2 - within @ within, theta

    return misfit


@pytest.mark.parametrize("floor", [E, 0.0])
@pytest.mark.parametrize("alike", [False, True])
def test_variable_projection_is_as_low_as_a_slow_search_over_whole_matrices(alike, floor):
    """With seeds and a size missing; without a floor the noise would have E negative now and then, and may not."""
    ladder = with_gaps(made_up(3, units=3, floor=floor))
    cells = cells_of(ladder)
    ours, slowly = own_law(cells.alike() if alike else cells), slow_misfit(ladder, alike)
    misfit, theta = slowly(ours.exponent[0])
    assert ours.misfit[0] == pytest.approx(misfit, abs=1e-6)
    assert ours.E[0] == pytest.approx(theta[-1], abs=1e-6)
    assert ours.excess[0] == pytest.approx(theta[:-1], rel=1e-6)
    slow = minimize_scalar(lambda q: slowly(np.exp(q))[0], bounds=np.log((0.02, 4.0)), options={"xatol": 1e-9})
    assert ours.misfit[0] <= slow.fun + 1e-6


def test_the_floor_is_never_negative():
    """Curves that fall ever faster ask for E < 0: the law without E takes their place."""
    ladder = made_up(0, units=2)
    falling = (
        2.0 - 0.2 * np.log(SIZES / SIZES[0])[None, :, None] ** 1.1 + 0.001 * (ladder.losses - ladder.losses.mean())
    )
    assert own_law(cells_of(replace(ladder, losses=falling))).E[0] == 0.0


def test_exact_losses_give_the_constants_back():
    cells = cells_of(made_up(0, units=3, sd=1e-7))
    law = own_law(cells)
    assert law.E[0] == pytest.approx(E, abs=1e-5)
    assert law.exponent[0] == pytest.approx(SLOPE, rel=1e-4)
    assert law.excess[0] == pytest.approx(EXCESS * np.array(GAINS[:3]) * (cells.center / SIZES[0]) ** -SLOPE, rel=1e-4)


def test_weights_know_how_seeds_scatter_and_what_they_share():
    """One ladder of 200 seeds: the estimates are then within a few percent."""
    noise = seed_noise(made_up(0, units=4, seeds=200, sd=0.02, shared=0.5))
    assert np.sqrt(noise.variance) == pytest.approx(np.full(5, 0.02), rel=0.08)
    assert noise.correlation == pytest.approx(0.5, abs=0.08)
    assert np.sqrt(noise.own_variance) == pytest.approx(np.full(5, 0.02 * np.sqrt(0.5)), rel=0.08)
    assert noise.freedom.tolist() == [3 * 199] * 5


def test_what_moves_a_whole_size_enters_the_weights():
    """Deviations of 0.03 nats common to all units."""
    ladder = made_up(1, units=3)
    common = 0.03 * np.random.default_rng(2).standard_normal(len(SIZES))
    plain = cells_of(replace(ladder, losses=ladder.losses + common[:, None]))
    cells = loosened(plain)
    assert 0.01 < cells.common < 0.1 and loosened(cells_of(ladder)).common < 0.01
    before, after = (np.linalg.inv(c.root.T @ c.root) for c in (plain, cells))
    assert after - before == pytest.approx(cells.common**2 * (cells.size[:, None] == cells.size), abs=1e-9)


def test_the_law_holds_the_truth(law):
    assert E in law.E and SLOPE in law.exponent
    truth = EXCESS * np.array(GAINS) * (law.center / SIZES[0]) ** -SLOPE
    assert all(value in interval for value, interval in zip(truth, law.excess, strict=True))
    assert law.predict("gelu", SIZES[2]) == pytest.approx(law.losses.losses[0, 2].mean(), abs=0.02)


def test_the_factor_is_the_true_one(law):
    factor, inverse = law.factor("swiglu", "gelu"), law.factor("gelu", "swiglu")
    assert GAINS[1] ** (-1 / SLOPE) in factor and factor.excludes(1.0)
    assert inverse.value == pytest.approx(1 / factor.value)
    assert law.factor("gelu", "gelu").value == 1.0
    assert law.table()["factor"].tolist() == [law.factor(unit, "gelu").value for unit in UNITS]
    with pytest.raises(GatelabError, match="no unit of this ladder is called 'swigl'; did you mean 'swiglu'"):
        law.factor("swigl", "gelu")


def test_intervals_over_seeds_hold_the_truth_as_often_as_they_say():
    """40 ladders, 95 % intervals of factor and exponent: 33 or more of 40 hold it with a probability of 99.9 %."""
    held = np.zeros(2)
    for seed in range(40):
        law = fit_ladder(made_up(100 + seed, units=2), draws=60, seed=seed)
        held += GAINS[1] ** (-1 / SLOPE) in law.factor("swiglu", "gelu"), SLOPE in law.exponent
    assert (held >= 33).all()


def test_two_units_are_compared_as_the_paired_t_test_does():
    ladder = with_gaps(made_up(0, units=2))
    table = compare_ladder(ladder)
    for row in table[table["parameters"].notna()].itertuples():
        r = int(np.abs(SIZES - row.parameters).argmin())
        pair = [ladder.losses[ladder.units.index(name), r] for name in (row.first, row.second)]
        there = np.isfinite(pair).all(axis=0)
        assert row.difference == pytest.approx((pair[0] - pair[1])[there].mean())
        if there.all():
            assert row.p == pytest.approx(ttest_rel(*pair).pvalue)
    assert len(table) == 1 + 4


def test_pooled_comparisons_are_corrected_in_families():
    ladder = made_up(1)
    table = compare_ladder(ladder)
    assert table["decided"].sum() > 10
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
    """100 ladders with differences of 0.01 at every size: 95 % of intervals hold it, 88 at least with 99.9 %."""
    held = 0
    for seed in range(100):
        ladder = made_up(seed, units=3, gains=[1.0] * 3, sd=UNEVEN)
        losses = ladder.losses.copy()
        losses[1] += 0.01
        row = compare_ladder(replace(ladder, losses=losses)).iloc[0]
        held += row.low <= -0.01 <= row.high
    assert held >= 88


def test_equal_variances_are_drawn_together() -> None:
    """Of 400 draws of five equal groups all get the common variance in 340 or more."""
    generator, freedom = np.random.default_rng(0), np.full(5, 10)
    equal = sum(np.ptp(shrunk_variances(generator.chisquare(10, 5), freedom)) == 0 for _ in range(400))
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
        (list(losses.values()),), lambda x: spearmanr(x, scores).statistic, permutation_type="pairings", n_resamples=720
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


def test_progress_and_equal_seeds():
    calls = []
    laws = [fit_ladder(made_up(0, 2), draws=40, seed=3, progress=lambda *done: calls.append(done)) for _ in range(2)]
    assert calls == [(40, 40)] * 2
    assert to_plain(laws[0]) == to_plain(laws[1])


def columns(**changes):
    table = made_up(0, units=2).table().to_dict("list")
    return {name: changes.get(name, values) for name, values in table.items()}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"unit": ["gelu"], "loss": [1.0]}, "no parameters, seed"),
        ({"unit": [], "parameters": [], "seed": [], "loss": []}, "no rows"),
        (columns(parameters=[0.0] * 30), "column parameters holds 0.0; give positive numbers"),
        (columns(seed=[0] * 30), "appears twice"),
        (columns(loss=[np.nan] * 30), "no unit has the required 3 sizes"),
        (columns(loss=[1.5] * 30), "the losses of different seeds are equal"),
        (columns(loss=[*np.tile([1.0, 1.01, 0.99], 5) * np.repeat([1, 2, 3, 4, 5], 3)] * 2), "does not fall with size"),
    ],
)
def test_what_cannot_be_a_ladder_is_refused(table, words):
    with pytest.raises(GatelabError, match=words):
        fit_ladder(table, draws=20)
