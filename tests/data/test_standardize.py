"""Standardised problems: the training part sets the scale, the function and the interval follow."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from gatelab.data import Problem, parse, problem
from gatelab.data.rows import Scales, standardized
from gatelab.errors import GatelabError
from gatelab.plain import from_plain, to_plain

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1, 100, 1e-3] + [5, -200, 0]
Y = np.c_[X @ [1, 2, 3], X[:, 0] ** 2]


def test_by_the_training_part_and_not_by_the_test_part():
    raw, p = (Problem.from_arrays(X, Y, standardize=s) for s in (False, True))
    mean, deviation = raw.train.x.mean(axis=0), raw.train.x.std(axis=0)
    np.testing.assert_allclose(p.train.x, (raw.train.x - mean) / deviation, atol=1e-12)
    np.testing.assert_allclose(p.test.x, (raw.test.x - mean) / deviation, atol=1e-12)
    np.testing.assert_allclose(p.train.y.std(axis=0), 1)
    assert np.abs(p.test.y.mean(axis=0)).min() > 1e-3
    paper = Problem.from_arrays(X, Y, standardize=True, protocol="paper")
    assert paper.test is paper.train


@pytest.mark.parametrize("sampling", ["random", "grid"])
def test_the_interval_and_the_function_follow(sampling):
    raw, p = (problem("exp(x)", interval=(0, 3), n=100, sampling=sampling, standardize=s) for s in (False, True))
    np.testing.assert_allclose(p.f(p.test.x[:, 0]), p.test.y[:, 0], rtol=1e-12, atol=1e-12)
    mean, deviation = raw.train.x.mean(), raw.train.x.std()
    np.testing.assert_allclose(p.interval, (-mean / deviation, (3 - mean) / deviation))
    assert pickle.loads(pickle.dumps(p)).f(p.test.x[:, 0]).shape == (100,)


@pytest.mark.parametrize("d_out", [1, 2])
def test_functions_of_several_inputs_follow(d_out):
    p = Problem.from_function(lambda x: (x**3)[:, :d_out], d_in=2, interval=(1, 9), n=50, standardize=True)
    np.testing.assert_allclose(p.f(p.test.x), p.test.y, atol=1e-12)
    q = Problem.from_function(parse("x*y**2"), interval=(1, 9), n=50, standardize=True)
    np.testing.assert_allclose(q.f(q.test.x), q.test.y[:, 0], atol=1e-12)


def test_the_scales_are_kept_and_lead_back():
    raw, p = (Problem.from_arrays(X, Y, standardize=s) for s in (False, True))
    assert raw.scales is None
    for scale, side in ((p.scales.x, "x"), (p.scales.y, "y")):
        found, given = scale.stretch(getattr(p.test, side)), getattr(raw.test, side)
        np.testing.assert_allclose(found, given, rtol=1e-12, atol=1e-12)
    again = from_plain(Scales, json.loads(json.dumps(to_plain(p.scales))))
    np.testing.assert_array_equal(again.x.deviation, p.scales.x.deviation)
    np.testing.assert_array_equal(again.y.mean, p.scales.y.mean)
    with pytest.raises(GatelabError, match="standardized already"):
        standardized(p)
    for name in ("friedman1", "friedman2"):
        assert problem(name, n=20).scales is not None and problem(name, n=20, standardize=False).scales is None


def test_a_column_that_does_not_vary_becomes_zero():
    x, y = X.copy(), Y.copy()
    x[:, 1], y[:, 0] = 0.1, 7.0
    p = Problem.from_arrays(x, y, standardize=True)
    np.testing.assert_allclose(p.train.x[:, 1], 0, atol=1e-14)
    np.testing.assert_allclose(p.test.y[:, 0], 0, atol=1e-14)
    np.testing.assert_allclose(p.train.x[:, 0].std(), 1)


def test_numbers_beyond_double_precision_are_refused():
    with pytest.raises(GatelabError, match="cannot be computed in double precision; rescale"):
        Problem.from_arrays(1e308 * np.linspace(0.1, 1, 40), np.arange(40.0), standardize=True)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_any_size_of_numbers_is_standardized(size):
    options = {"standardize": True, "protocol": "paper"}  # a split goes by the values, and would differ
    p, twin = (Problem.from_arrays(X * s, Y * s, **options) for s in (size, 1.0))
    np.testing.assert_allclose(p.train.x, twin.train.x, rtol=1e-9)
    np.testing.assert_allclose(p.train.y, twin.train.y, rtol=1e-9)


def test_noise_is_in_the_units_of_the_target():
    clean, noisy = (problem("100*x", n=4000, noise=s, standardize=True) for s in (0.0, 10.0))
    # Deviation of 100x is 57.7, with the noise 58.6.
    residual = noisy.train.y[:, 0] - noisy.f(noisy.train.x[:, 0])
    assert abs(residual.std() - 10 / 58.6) < 0.01
    np.testing.assert_allclose(clean.f(clean.train.x[:, 0]), clean.train.y[:, 0], atol=1e-12)
