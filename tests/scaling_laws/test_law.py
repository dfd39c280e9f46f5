"""The law in P and D: exact where it can be, never beaten by slower methods, honest about what is not known."""

import pickle
from itertools import product

import numpy as np
import pytest
from scipy.optimize import differential_evolution, minimize, nnls
from scipy.special import huber

import gatelab as gl
from gatelab.scaling_laws import laws
from gatelab.scaling_laws.law_search import EXPONENTS, Logs, derivatives, grid, loss

CHINCHILLA = {"E": 1.69, "A": 406.4, "a": 0.34, "B": 410.7, "b": 0.28}
NAMES = tuple(CHINCHILLA)


def table(P, D):
    return tuple(z.ravel() for z in np.meshgrid(P, D))


def paper_sizes(models=8, tokens=6):
    """44 million to 16 billion parameters, 5 to 500 billion tokens."""
    return table(np.geomspace(44e6, 16e9, models), np.geomspace(5e9, 5e11, tokens))


def noisy(truth, P, D, scatter, seed):
    return truth.predict(P, D) * np.exp(scatter * np.random.default_rng(seed).standard_normal(len(P)))


def total(law, P, D, L, delta=1e-3):
    return huber(delta, np.log(law.predict(P, D)) - np.log(L)).sum()


@pytest.mark.parametrize(
    ("E", "A", "a", "B", "b"),
    [
        tuple(CHINCHILLA.values()),
        (0.0, 406.4, 0.34, 410.7, 0.28),
        (0.0, 5.0, 3.0, 1e-3, 0.5),
        (1e-9, 1e-4, 1.2, 1e-3, 1.0),
        (3e8, 1e12, 0.4, 1e11, 0.2),
        (0.5, 1e25, 3.0, 1e6, 0.8),
        (1.0, 2.0, 0.05, 30.0, 1.0),
    ],
)
@pytest.mark.parametrize("scale", [1.0, pytest.param(1e6, marks=pytest.mark.slow)])
def test_exact_data_give_the_constants_back(E, A, a, B, b, scale):
    """At the sizes where the terms are as large as E, so that all of them can be seen."""
    floor = E or 1.0
    P, D = table(
        scale * (A / floor) ** (1 / a) * np.geomspace(0.1, 30, 6),
        scale * (B / floor) ** (1 / b) * np.geomspace(0.03, 10, 5),
    )
    truth = gl.Law(E, A * scale**a, a, B * scale**b, b)
    found = gl.fit_law(P, D, truth.predict(P, D), bootstrap=0)
    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-5), name
    assert found.rmse < 1e-9


@pytest.mark.parametrize("flat", ["P", "D"])
def test_a_term_that_is_not_there_has_no_exponent(flat):
    P, D = paper_sizes()
    truth = gl.Law(1.0, 0.0, np.nan, 410.7, 0.28) if flat == "P" else gl.Law(1.0, 406.4, 0.34, 0.0, np.nan)
    found = gl.fit_law(P, D, truth.predict(P, D), bootstrap=10)
    names = ("A", "a", "B", "b") if flat == "P" else ("B", "b", "A", "a")
    factor, exponent, other_factor, other_exponent = (getattr(found, name) for name in names)
    assert factor == 0 and np.isnan(exponent)
    assert getattr(found.intervals, names[1]) == (0, np.inf)
    assert other_factor == pytest.approx(getattr(truth, names[2]))
    assert other_exponent == pytest.approx(getattr(truth, names[3]))
    assert np.isclose(found.E, 1)
    assert f"fall with {flat}" in found.notes[0]
    with pytest.raises(gl.GatelabError, match=f"no term in {flat}"):
        found.optimal(1e20)


def test_scatter_alone_is_a_constant_with_open_intervals():
    P, D = paper_sizes()
    found = gl.fit_law(P, D, np.full(len(P), 3.0), bootstrap=20)
    assert np.isclose(found.E, 3) and found.A == found.B == 0
    assert gl.fit_law(P, D, P**0.1, bootstrap=0).A == 0
    noise = gl.fit_law(P, D, np.exp(0.1 * np.random.default_rng(0).standard_normal(len(P))), bootstrap=40)
    assert noise.intervals.a[1] - noise.intervals.a[0] > 1
    assert noise.predict(1e9, 1e10) == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("still", ["P", "D"])
def test_one_size_alone_gives_the_law_without_the_other(still):
    size = np.geomspace(1e6, 1e9, 8)
    L = np.exp(0.01 * np.random.default_rng(0).standard_normal(8)) * (0.3 + 40 / size**0.3)
    found = gl.fit_law(*((np.ones(8), size) if still == "P" else (size, np.ones(8))), L, bootstrap=30)
    lost, seen = (("A", "a"), ("B", "b")) if still == "P" else (("B", "b"), ("A", "a"))
    assert getattr(found, lost[0]) == 0 and np.isnan(getattr(found, lost[1]))
    low, high = getattr(found.intervals, seen[1])
    assert low < 0.3 < high and high < 1
    assert len(found.notes) == 1 and f"{still} is the same in every row" in found.notes[0]
    assert len(found.plot().axes) == 1


@pytest.mark.parametrize("factor", [0.02, 0.5, 3.0, 1000.0])
def test_one_run_that_went_wrong_does_not_bend_the_law(factor):
    """Least squares is the same fit with a delta that no error reaches."""
    P, D = paper_sizes()
    truth = gl.Law(**CHINCHILLA)
    L = noisy(truth, P, D, 0.003, 0)
    L[17] *= factor
    robust = gl.fit_law(P, D, L, bootstrap=0)
    squares = gl.fit_law(P, D, L, bootstrap=0, delta=100.0)
    off = [np.abs(np.log(law.predict(P, D) / truth.predict(P, D))).max() for law in (robust, squares)]
    assert off[0] < 0.01
    assert off[1] > 3 * off[0]
    assert robust.a == pytest.approx(0.34, abs=0.03) and robust.b == pytest.approx(0.28, abs=0.04)


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    """30 fixed tables at level 0.9, for E, a, b and the band far beyond the data. A true coverage of 0.9 gives fewer
    than 21 covered once in 1000 times for each. Errors beyond delta make the intervals err on the wide side, by less
    than a factor of two."""
    P, D = paper_sizes(6, 5)
    truth = gl.Law(**CHINCHILLA)
    covered = np.zeros(4)
    widths, values = [], []
    for seed in range(30):
        law = gl.fit_law(P, D, noisy(truth, P, D, 0.01, seed), bootstrap=50, level=0.9, seed=seed)
        low, high = law.band(70e9, 1.4e12)
        pairs = [(*law.intervals.E, truth.E), (*law.intervals.a, truth.a), (*law.intervals.b, truth.b)]
        pairs.append((low, high, truth.predict(70e9, 1.4e12)))
        covered += [low <= value <= high for low, high, value in pairs]
        widths.append(law.intervals.a[1] - law.intervals.a[0])
        values.append(law.a)
    assert covered.min() >= 21
    assert np.mean(widths) < 2 * 2 * 1.645 * np.std(values)


def test_repeats_are_drawn_together():
    """Each run ten times over tells nothing new: intervals stay as wide. Drawn one by one they would be a third."""
    P, D = paper_sizes(5, 5)
    L = noisy(gl.Law(**CHINCHILLA), P, D, 0.01, 3)
    once = gl.fit_law(P, D, L, bootstrap=40)
    often = gl.fit_law(*(np.tile(z, 10) for z in (P, D, L)), bootstrap=40)
    assert often.a == pytest.approx(once.a, rel=1e-6)
    ratio = np.subtract(*often.intervals.a) / np.subtract(*once.intervals.a)
    assert 0.8 < ratio < 1.25
    assert (once.points, often.points) == (25, 250)


def _slow(P, D, L, delta, seed):
    """The same loss by its formula, minimised without derivatives from everywhere."""
    p, d, y = np.log(P / np.exp(np.log(P).mean())), np.log(D / np.exp(np.log(D).mean())), np.log(L)

    def value(x):
        x = x[..., None]  # differential evolution gives many candidates at once, (5, candidates)
        law = np.exp(x[0]) + np.exp(x[1] - x[3] * p) + np.exp(x[2] - x[4] * d)
        return huber(delta, np.log(law) - y).sum(axis=-1)

    bounds = [(y.min() - 12, y.max() + 1)] * 3 + [(0, 4)] * 2
    found = differential_evolution(
        value, bounds, seed=seed, vectorized=True, updating="deferred", maxiter=400, popsize=20, tol=1e-12, polish=False
    ).x
    for _ in range(4):
        found = minimize(value, found, method="Nelder-Mead", options={"maxfev": 3000, "xatol": 1e-10, "fatol": 1e-16}).x
    return value(found)


@pytest.mark.parametrize(
    ("seed", "scatter", "delta", "outlier"),
    [
        (0, 0.01, 1e-3, 1.0),
        (4, 0.3, 0.1, 0.05),
        pytest.param(1, 0.05, 1e-3, 1.0, marks=pytest.mark.slow),
        pytest.param(2, 0.01, 1e-2, 5.0, marks=pytest.mark.slow),
        pytest.param(3, 0.3, 1e-3, 1.0, marks=pytest.mark.slow),
    ],
)
def test_no_slower_method_finds_less(seed, scatter, delta, outlier):
    generator = np.random.default_rng(seed)
    P, D = np.exp(generator.uniform(5, 12, 30)), np.exp(generator.uniform(4, 11, 30))
    L = noisy(gl.Law(0.5, 20, 0.5, 9, 0.4), P, D, scatter, seed)
    L[3] *= outlier
    fast = total(gl.fit_law(P, D, L, delta=delta, bootstrap=0), P, D, L, delta)
    assert fast <= _slow(P, D, L, delta, seed) * (1 + 1e-6)


def _logs(P, D, L):
    return Logs(np.log(P) - np.log(P).mean(), np.log(D) - np.log(D).mean(), np.log(L))


def test_the_grid_is_nonnegative_least_squares():
    generator = np.random.default_rng(0)
    for _ in range(3):
        P, D, L = np.exp(generator.uniform(0, 3, (3, 15)))
        weights = generator.integers(0, 3, 15).astype(float)
        logs = _logs(P, D, L)
        found = grid(logs, weights)
        misfits = np.min([misfit for misfit, _ in found], axis=0)
        root = np.sqrt(weights)
        slow = np.empty_like(misfits)
        for (i, a), (j, b) in product(enumerate(EXPONENTS), enumerate(EXPONENTS)):
            columns = np.stack((np.ones(15), np.exp(-a * logs.p), np.exp(-b * logs.d)), axis=1) / L[:, None]
            lengths = np.linalg.norm(columns * root[:, None], axis=0)
            slow[i, j] = nnls(columns * root[:, None] / lengths, root)[1] ** 2
        np.testing.assert_allclose(misfits, slow, rtol=1e-6, atol=1e-9)
        misfit, rows = min(found, key=lambda pair: pair[0].min())
        row = rows.reshape(-1, 5)[misfit.argmin()]
        law = np.exp(row[0]) + np.exp(row[1] - row[3] * logs.p) + np.exp(row[2] - row[4] * logs.d)
        assert weights @ (law / L - 1) ** 2 == pytest.approx(slow.min(), rel=1e-6)


def test_derivatives_against_differences():
    generator = np.random.default_rng(0)
    logs = Logs(*generator.standard_normal((3, 20)))
    x = np.concatenate([generator.normal(-1, 0.5, (6, 3)), generator.uniform(0.1, 2, (6, 2))], axis=1)
    x[5, 0] = x[4, 2] = -np.inf
    weights = generator.integers(0, 3, (6, 20)).astype(float)
    here = derivatives(logs, weights, x, 0.5)
    np.testing.assert_allclose(here.loss, loss(logs, weights, x, 0.5))
    h = 1e-6
    for k in range(5):
        step = h * np.eye(5)[k]
        up, down = (derivatives(logs, weights, x + sign * step, 0.5) for sign in (1, -1))
        np.testing.assert_allclose(here.gradient[:, k], (up.loss - down.loss) / (2 * h), rtol=1e-6, atol=1e-8)
        slope = (up.gradient - down.gradient) / (2 * h)
        np.testing.assert_allclose(here.hessian[:, k], slope, rtol=1e-5, atol=1e-6)


def test_equal_seeds_give_equal_laws_and_leave_the_data_alone():
    P, D = paper_sizes(4, 4)
    L = noisy(gl.Law(**CHINCHILLA), P, D, 0.02, 0)
    before = L.copy()
    one, other, third = (gl.fit_law(P, D, L, bootstrap=10, seed=seed) for seed in (4, 4, 5))
    assert one == other and one != third
    assert (one.E, one.a) == (third.E, third.a)
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(L, before)
    assert pickle.loads(pickle.dumps(one)) == one
    L[:] = 1
    np.testing.assert_array_equal(one.data[2], before)


def test_the_allocation_is_the_minimum_on_its_curve():
    law = gl.Law(**CHINCHILLA)
    C = np.array([1e19, 1e22, 1e25])
    best = law.optimal(C)
    np.testing.assert_allclose(6 * best.P * best.D, C)
    for factor in (0.9, 1.1):
        assert (law.predict(best.P * factor, best.D / factor) > best.L).all()
    assert law.optimal(1e20, flops_per=2).P > law.optimal(1e20).P
    with pytest.raises(gl.GatelabError, match="positive"):
        law.optimal(0)


def test_table_band_and_progress(monkeypatch):
    monkeypatch.setattr(laws, "_POINTS_AT_ONCE", 600)
    P, D = paper_sizes()
    seen = []
    law = gl.fit_law(
        P, D, noisy(gl.Law(**CHINCHILLA), P, D, 0.01, 0), bootstrap=30, progress=lambda *done: seen.append(done)
    )
    assert seen[-1] == (30, 30) and len(seen) > 1
    rows = law.table().set_index("constant")
    assert list(rows.index) == list(NAMES)
    assert (rows.low <= rows.value).all() and (rows.value <= rows.high).all()
    low, high = law.band(P, D)
    assert (low < high).all() and low.shape == P.shape
    wide, narrow = (np.subtract(*law.band(1e9, 1e10, level=level)) for level in (0.99, 0.5))
    assert wide < narrow < 0
    with pytest.raises(gl.GatelabError, match="level is 2"):
        law.band(1e9, 1e9, level=2)
    bare = gl.fit_law(P, D, law.predict(P, D), bootstrap=0)
    assert np.isnan(bare.intervals.a).all()
    with pytest.raises(gl.GatelabError, match="bootstrap=200"):
        bare.band(1e9, 1e10)


def test_the_figure_shows_points_lines_and_floor(tmp_path):
    for count, lines, path in ((3, 3, None), (12, 5, tmp_path / "law.png")):
        P, D = table(np.geomspace(1e6, 1e9, 5), np.geomspace(1e7, 1e10, count))
        left, _ = gl.fit_law(P, D, noisy(gl.Law(**CHINCHILLA), P, D, 0.01, 0), bootstrap=10).plot(path).axes
        labels = [text.get_text() for text in left.get_legend().get_texts()]
        assert len([s for s in labels if s.startswith("D = ")]) == lines
    assert (tmp_path / "law.png").stat().st_size > 10_000


GOOD = [*paper_sizes(4, 3), np.linspace(3, 2, 12)]


def changed(which, value):
    columns = [column.copy() for column in GOOD]
    columns[which] = value(columns[which]) if callable(value) else value
    return columns


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (changed(2, lambda z: z[:-1]), {}, "12, 12, 11"),
        (changed(2, lambda z: np.where(z == 3, np.nan, z)), {}, "L holds 1 NaN"),
        (changed(2, lambda z: np.where(z == 2, 0, z)), {}, "L holds 0; give positive"),
        (changed(0, lambda z: -z), {}, "P holds -"),
        (changed(1, lambda z: np.where(z == z[0], np.inf, z)), {}, "D holds 0 NaN and 4 infinite"),
        (changed(0, lambda z: z.reshape(3, 4)), {}, r"P has the shape \(3, 4\)"),
        (changed(0, ["many"] * 12), {}, "P cannot be read as real numbers"),
        ([z[:5] for z in GOOD], {}, "5 different"),
        ([np.tile(z[:4], 3) for z in GOOD], {}, "4 different"),
        ([[], [], []], {}, "0 different"),
        (changed(0, np.tile([1.0, 2.0], 6)), {}, "P has 2 values"),
        ([GOOD[2], 20 * GOOD[2], GOOD[2]], {}, "not identifiable"),
        (changed(1, np.ones(12)), {}, "4 different"),
        (GOOD, {"delta": 0}, "delta"),
        (changed(2, lambda z: np.ma.masked_array(z, mask=z == 3)), {}, "L has . masked values"),
        (changed(2, lambda z: z + 0j), {}, "L cannot be read as real numbers"),
        (GOOD, {"bootstrap": -1}, "bootstrap"),
        (GOOD, {"level": 1.0}, "level"),
    ],
)
def test_tables_without_a_law_are_refused(columns, options, says):
    with pytest.raises(gl.GatelabError, match=says):
        gl.fit_law(*columns, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda law: law.predict(-1, 1e9), "P is -1"),
        (lambda law: law.plot(), "not fitted"),
        (lambda law: law.predict(1e9, [1e9, 0]), "positive numbers of parameters and data"),
        (lambda law: law.optimal("1e21"), "C is 1e21"),
        (lambda law: law.optimal(np.inf), "C is inf"),
        (lambda law: gl.Law(**CHINCHILLA | {"b": 0.0}).optimal(1e21), "no term in D"),
    ],
)
def test_questions_that_no_law_answers(ask, says):
    with pytest.raises(gl.GatelabError, match=says):
        ask(gl.Law(**CHINCHILLA))
