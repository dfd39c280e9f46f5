"""Problems from arrays and from functions: what they hold, what they keep apart and what they refuse."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from gatelab.data import Data, Problem, parse, problem
from gatelab.errors import GatelabError

X = np.linspace(0, 3, 40)
Y = np.sin(X)


def rows(data):
    return {row.tobytes() for row in np.hstack([data.x, data.y])}


def same(p, q):
    pairs = [(p.train.x, q.train.x), (p.train.y, q.train.y), (p.test.x, q.test.x), (p.test.y, q.test.y)]
    return all(np.array_equal(a, b) for a, b in pairs)


# ---- Data


def test_data_are_float64_columns_and_copies():
    x = np.arange(4, dtype=np.float32)
    data = Data(x, x)
    assert data.x.shape == data.y.shape == (4, 1)
    assert data.x.dtype == np.float64
    x[0] = 9
    assert data.x[0, 0] == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.x = x  # type: ignore[misc]


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([1, 2, 3], [1, 2], "x has 3 rows and y has 2"),
        ([1], [1], "1 row; give at least 2"),
        ([1, math.nan, math.nan, math.inf], [1, 2, 3, 4], "x holds 2 NaN and 1 infinite values, the first in row 1"),
        (np.zeros((2, 2, 2)), [1, 2], r"x has the shape \(2, 2, 2\)"),
        (np.zeros((2, 0)), [1, 2], r"x has the shape \(2, 0\)"),
        (["a", "b"], [1, 2], "x cannot be read as real numbers"),
    ],
)
def test_data_refuse(x, y, says):
    with pytest.raises(GatelabError, match=says):
        Data(x, y)


# ---- from arrays


@pytest.mark.parametrize(
    "convert", [list, lambda a: a[:, None], lambda a: torch.as_tensor(a).requires_grad_(), lambda a: a.astype(object)]
)
def test_arrays_tensors_and_lists_give_the_same_problem(convert):
    p = Problem.from_arrays(convert(X), convert(Y))
    assert same(p, Problem.from_arrays(X, Y))
    assert (p.d_in, p.d_out, p.name, p.f) == (1, 1, "arrays", None)
    assert p.interval == (0.0, 3.0)


def test_a_split_is_a_partition():
    p = Problem.from_arrays(X, Y, test_fraction=0.25, seed=3)
    assert (p.train.n, p.test.n) == (30, 10)
    assert not rows(p.train) & rows(p.test)
    assert rows(p.train) | rows(p.test) == rows(Data(X, Y))


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_equal_x_stay_together_whatever_their_targets(seed):
    """A fair coin at ten x. Parted by (x, y) one side would hold the heads of an x and the other side its tails."""
    x, y = np.repeat(np.arange(10.0), 100), np.random.default_rng(seed).integers(0, 2, 1000)
    p = Problem.from_arrays(x, y, seed=seed)
    assert not set(p.train.x[:, 0]) & set(p.test.x[:, 0])
    assert (p.train.n, p.test.n) == (800, 200)
    for v in np.unique(p.train.x):
        assert set(p.train.y[p.train.x == v]) == {0.0, 1.0}


def test_minus_zero_is_zero_to_the_split():
    x = np.array([0.0, -0.0] * 10 + [1.0, 2.0, 3.0])
    for seed in range(10):
        p = Problem.from_arrays(x, x + 0.0, seed=seed)
        assert not {float(v) for v in p.train.x[:, 0]} & {float(v) for v in p.test.x[:, 0]}


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_both_sides_keep_two_rows(fraction):
    """Of four rows, whose targets have a range that overflows; they are not taken for constant."""
    for seed in range(10):
        p = Problem.from_arrays([0, 1, 2, 3], [-1.7e308, 1.7e308, 0, 1], test_fraction=fraction, seed=seed)
        assert (p.train.n, p.test.n) == (2, 2)


def test_given_test_data_are_used():
    x = np.arange(6.0)
    assert Problem.from_arrays(x, x**2, test=(x, x**2 + 0.1)).test.n == 6  # other measurements at trained x are fair
    p = Problem.from_arrays([0, 1], [0, 1], test=([0.5, 4], [0.5, 4]))
    assert p.train.n == p.test.n == 2
    assert p.interval == (0.0, 4.0)
    assert Problem.from_arrays(X, Y, interval=(-1, 5)).interval == (-1.0, 5.0)


@pytest.mark.parametrize(
    ("x", "y", "options", "says"),
    [
        (X, np.full(40, 2.5), {}, "target is constant = 2.5.*output bias.*choose another target"),
        (X, np.sin(X) ** 2 + np.cos(X) ** 2, {}, "target is constant = 1 "),
        (np.ones(40), Y, {}, "with 1 distinct x"),
        ([1, 1], [1, 2], {"test": ([1, 1], [3, 4])}, "every x of the 2 training rows is 1"),
        ([1, 2, 3], [1, 2, 3], {}, "3 rows with 3 distinct x;.* at least 4 are needed"),
        ([1, 2] * 10, [1, 2] * 10, {}, r"20 rows with 2 distinct x;.* as test=\(x, y\)"),
        (X, Y, {"test_fraction": 0}, "test_fraction is 0"),
        (X, Y, {"test": X}, "test is not a pair"),
        (X, Y, {"test": ([7, X[3]], [1, Y[3]])}, "1 of 2 test rows are training rows too"),
        (X, Y, {"test": ([[1, 2], [3, 4]], [1, 2])}, "train maps 1 inputs to 1 outputs and test 2 to 1"),
        (X, Y, {"test": ([1, math.inf], [1, 2])}, "test x holds 0 NaN and 1 infinite"),
        (X, Y, {"interval": (0, 1)}, r"26 of 40 inputs lie outside the interval \[0, 1\]"),
        (np.c_[X, X], Y, {"interval": (0, 3)}, "an interval is given with 2 inputs"),
    ],
)
def test_from_arrays_refuses(x, y, options, says):
    with pytest.raises(GatelabError, match=says):
        Problem.from_arrays(x, y, **options)


@pytest.mark.parametrize("columns", [("a", "b"), ["a", "b"]])
def test_names_of_inputs_are_kept(columns):
    assert Problem.from_arrays(np.c_[X, X**2], Y, columns=columns).columns == ("a", "b")
    with pytest.raises(GatelabError, match=r"2 names \('a', 'b'\) are given for 1 inputs"):
        Problem.from_arrays(X, Y, columns=columns)


# ---- the paper's protocol


def test_the_papers_protocol_tests_on_all_rows_and_says_so():
    p = Problem.from_arrays(X, Y, name="mine", protocol="paper")
    assert (p.name, p.train.n, p.description) == ("mine (paper's protocol)", 40, "40 rows for training and test")
    assert p.test is p.train
    f = Problem.from_function(np.sin, n=30, noise=0.1, protocol="paper")
    assert f.name == "sin (paper's protocol)"
    assert f.test is f.train
    assert np.array_equal(f.train.y, Problem.from_function(np.sin, n=30, noise=0.1).train.y)
    assert Problem.from_arrays(X, Y, name="mine").name == "mine"


@pytest.mark.parametrize("protocol", ["papr", None])
def test_other_protocols_are_refused(protocol):
    for make in (lambda: Problem.from_arrays(X, Y, protocol=protocol), lambda: problem("x2", protocol=protocol)):
        with pytest.raises(GatelabError, match=r"no protocol is called.*Known: paper, split"):
            make()


# ---- from functions of several inputs


def product(x):
    return x[:, 0] * x[:, 1] ** 2


def test_random_points_fill_the_cube():
    p = Problem.from_function(product, d_in=3, interval=(-2, 5), n=4000, n_test=100, seed=1)
    assert (p.train.x.shape, p.train.y.shape, p.test.x.shape) == ((4000, 3), (4000, 1), (100, 3))
    assert (p.interval, p.f, p.name, p.description) == (None, product, "product", "product on [-2, 5]^3")
    assert np.array_equal(p.test.y[:, 0], product(p.test.x))
    assert p.train.x.min() >= -2 and p.train.x.max() <= 5
    # Sides of 7: means within 1.5 +- 0.15 (4.7 standard errors), correlations within 0.08 (5 standard errors).
    np.testing.assert_allclose(p.train.x.mean(axis=0), 1.5, atol=0.15)
    assert np.abs(np.corrcoef(p.train.x.T) - np.eye(3)).max() < 0.08
    assert not rows(p.train) & rows(p.test)


@pytest.mark.parametrize(("n", "d", "side"), [(100, 2, 10), (110, 2, 10), (30, 3, 3), (2, 4, 2)])
def test_a_grid_is_a_product_of_about_n_points(n, d, side):
    p = Problem.from_function(product, d_in=d, interval=(0, 2), n=n, sampling="grid")
    assert p.train.n == side**d == len(np.unique(p.train.x, axis=0))
    for column in p.train.x.T:
        assert np.array_equal(np.unique(column), np.linspace(0, 2, side))
    assert p.description.endswith(f"[0, 2]^{d}, grid of {side}^{d} = {side**d} points")
    assert p.test.n == n


def test_vector_functions_of_several_inputs():
    p = Problem.from_function(lambda x: np.c_[x[:, 0], x[:, 1] ** 2, x.sum(axis=1)], d_in=2, n=50, noise=0.1)
    assert (p.d_in, p.d_out) == (2, 3)
    # Noise of its own on every output.
    clean = p.f(p.train.x)
    assert abs(np.corrcoef((p.train.y - clean).T)[0, 1]) < 0.7
    assert np.array_equal(p.test.y, p.f(p.test.x))


# ---- from functions of one input


@pytest.mark.parametrize("sampling", ["random", "grid"])
@pytest.mark.parametrize("n", [2, 1003])
def test_sampling_gives_n_distinct_points_inside(sampling, n):
    p = Problem.from_function(np.exp, interval=(-2, 5), n=n, n_test=7, sampling=sampling)
    x = p.train.x[:, 0]
    assert (p.train.n, p.test.n) == (n, 7)
    assert len(np.unique(x)) == n and x.min() >= -2 and x.max() <= 5
    assert np.array_equal(p.train.y[:, 0], np.exp(x))
    assert not rows(p.train) & rows(p.test)


def test_the_test_points_do_not_depend_on_sampling_or_noise():
    base = Problem.from_function(np.exp, n=100)
    for options in ({"sampling": "grid"}, {"noise": 0.3}, {"n": 50, "n_test": 100}):
        p = Problem.from_function(np.exp, **{"n": 100, **options})
        assert np.array_equal(p.test.x, base.test.x)
        assert np.array_equal(p.test.y, np.exp(p.test.x))


def test_noise_is_on_the_training_targets_alone_and_is_kept_where_it_is_known():
    clean, noisy = (Problem.from_function(np.sin, n=4000, noise=s) for s in (0.0, 0.1))
    assert np.array_equal(clean.train.x, noisy.train.x)
    assert abs(np.std(noisy.train.y - clean.train.y) - 0.1) < 0.01
    assert np.array_equal(clean.test.y, noisy.test.y)
    assert (Problem.from_arrays(X, Y).noise, noisy.noise) == (None, 0.1)
    scaled = Problem.from_function(np.sin, n=4000, noise=0.1, standardize=True)
    assert scaled.noise == pytest.approx(0.1 / noisy.train.y.std())


def test_a_function_that_works_in_place_does_no_harm():
    p = Problem.from_function(lambda x: np.multiply(x, 2, out=x), n=10)
    assert np.array_equal(p.train.y, 2 * p.train.x)


@pytest.mark.parametrize(
    ("f", "options", "says"),
    [
        (parse("sin(x)"), {"d_in": 2}, r"d_in is 2 and the formula 'sin\(x\)' has 1 inputs"),
        (product, {"d_in": 40, "sampling": "grid"}, r"grid with 40 inputs has 2\^40 points"),
        (lambda x: x[0], {"d_in": 2}, r"shape \(2,\) for an array of shape \(30, 2\); it must map"),
        (lambda x: x[:, 5], {"d_in": 2}, r"failed on an array of 30 points: IndexError.*maps an \(N, 2\) array to"),
        (lambda x: np.log(x[:, 0]), {"d_in": 2}, r"not finite at \d+ of 30 points, .* at x = \(-0\.\d+, "),
        (None, {"d_in": 2}, r"f is None; give a function that maps an \(N, 2\) array"),
        (np.sin, {"interval": (1, -1)}, r"\(1, -1\); give two finite numbers"),
        (np.sin, {"interval": (-1.7e308, 1.7e308)}, "give two finite numbers"),
        (np.sin, {"n": 1}, "n is 1; give a whole number, from 2"),
        (np.sin, {"n": 10**12}, "n is 1000000000000; give a whole number, from 2 to 100000000"),
        (np.sin, {"noise": -1}, "noise is -1"),
        (np.sin, {"sampling": "grd"}, "no sampling is called 'grd'; did you mean 'grid'"),
        (parse("sin(x)**2 + cos(x)**2"), {}, "target is constant = 1"),
        (lambda x: 4.0, {}, r"shape \(\) for an array of shape \(30,\)"),
        (lambda x: x + 1j, {}, "complex128"),
        (np.log, {}, r"not finite at \d+ of 30 points, the first of them at x = -0\.\d+ \(value nan\)"),
        (lambda x: np.where(x > 0.5, np.inf, x), {}, r"x = 0\.\d+ \(value inf\)"),
        ("sin(x)", {}, "f is 'sin\\(x\\)'"),
    ],
)
def test_from_function_refuses(f, options, says):
    with pytest.raises(GatelabError, match=says):
        Problem.from_function(f, **{"n": 30, **options})


def test_a_problem_made_by_hand_is_checked_too():
    data = Data(X, Y)
    with pytest.raises(GatelabError, match="outside the interval"):
        Problem("mine", data, data, (0.0, 1.0))
    with pytest.raises(GatelabError, match="constant"):
        Problem("mine", Data(X, np.ones(40)), data)


def test_masked_values_are_refused_and_a_mask_of_nothing_is_not():
    y = np.ma.masked_array(Y, mask=np.arange(40) < 3)
    with pytest.raises(GatelabError, match="y has 3 masked values"):
        Problem.from_arrays(X, y)
    with pytest.raises(GatelabError, match="test x has 1 masked values"):
        Problem.from_arrays(X, Y, test=(np.ma.masked_array([7.0, 8.0], mask=[True, False]), [1, 2]))
    assert Problem.from_arrays(X, np.ma.masked_array(Y)).train.n == 32
    with pytest.raises(GatelabError, match=r"has \d+ masked values of 50"):
        Problem.from_function(np.ma.log, n=50)


def test_an_index_column_of_a_frame_is_no_input():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"Unnamed: 0": np.arange(40), "width": X})
    with pytest.warns(UserWarning, match="x: the column 'Unnamed: 0' labels the rows and is left out; rename it"):
        p = Problem.from_arrays(frame, Y)
    assert p.d_in == 1
    assert same(p, Problem.from_arrays(X, Y))
    # A column without a name that does not number the rows is measured, and one that was renamed is asked for.
    assert Problem.from_arrays(frame.assign(**{"Unnamed: 0": X**2}), Y).d_in == 2
    assert Problem.from_arrays(frame.rename(columns={"Unnamed: 0": "when"}), Y).d_in == 2


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_tables_of_arrow_and_polars_have_names_and_text_in_them_a_way_out(library):
    module = pytest.importorskip(library)
    table = module.table if library == "pyarrow" else module.DataFrame
    x = np.linspace(0, 1, 30)
    problem = Problem.from_arrays(table({"a": x, "b": x**2}), x + x**2)
    assert problem.columns == ("a", "b") and problem.train.n == 24
    with pytest.raises(GatelabError, match=r"could not convert .*; give a numeric array; gl.Gated"):
        Problem.from_arrays(table({"a": x, "t": ["u", "v"] * 15}), x)
