"""Duals of gates against an integral of our own making: polar coordinates, numpy's gates, none of gatelab's code."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy import special

from gatelab.errors import GatelabError
from gatelab.feedforward import Activation, activation
from gatelab.ntk.duals import ClosedForm, HermiteSeries, dual, find_breaks, series


def phi(z):
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


# The gate and its derivative.
GATES = {
    "relu": (lambda z: np.maximum(z, 0), lambda z: 1.0 * (z > 0)),
    "relu2": (lambda z: np.maximum(z, 0) ** 2, lambda z: 2 * np.maximum(z, 0)),
    "relu3": (lambda z: np.maximum(z, 0) ** 3, lambda z: 3 * np.maximum(z, 0) ** 2),
    "identity": (lambda z: z, np.ones_like),
    "gelu": (lambda z: z * special.ndtr(z), lambda z: special.ndtr(z) + z * phi(z)),
    "erf": (special.erf, lambda z: 2 / math.sqrt(math.pi) * np.exp(-z * z)),
    "silu": (lambda z: z * special.expit(z), lambda z: special.expit(z) * (1 + z * special.expit(-z))),
    "sigmoid": (special.expit, lambda z: special.expit(z) * special.expit(-z)),
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
}
CLOSED = ("relu", "relu2", "relu3", "identity", "gelu", "erf")
PAIRS = [
    (1.0, 1.0, 0.3),
    (0.7, 1.9, -0.8),
    (3.0, 0.2, 0.95),
    (2.0, 2.5, 0.999),
    (1.0, 1.0, 1.0),
    (0.4, 2.0, 1.0),
    (1.5, 0.5, -1.0),
    (1e-6, 1.0, 0.5),
    (0.0, 1.3, 0.0),
    (4.0, 3.0, -0.97),
]


def gate_of(name):
    return activation(torch.erf if name == "erf" else name)


def expectation(f, s, t, rho):
    """E[f(u) f(v)] = int int f(s r cos a) f(t r cos(a - theta)) r exp(-r^2/2) / (2 pi), split where u or v is zero."""
    theta = math.acos(rho)
    x, w = np.polynomial.legendre.leggauss(24)
    turns = {q * math.pi / 2 + shift for q in range(-2, 5) for shift in (0.0, theta)}
    edges = np.array(sorted(a for a in turns | {math.pi / 4} if 0 <= a <= 2 * math.pi))
    edges = np.unique(np.concatenate([np.linspace(a, b, 4) for a, b in itertools.pairwise(edges)]))
    angle, weight = nodes(edges, x, w)
    radius, thick = nodes(np.linspace(0, 13, 14), x, w)
    u, v = s * np.outer(radius, np.cos(angle)), t * np.outer(radius, np.cos(angle - theta))
    return (thick * radius * phi(radius) / math.sqrt(2 * math.pi)) @ (f(u) * f(v)) @ weight


def length(f, s):
    """The root of E[f(u)^2] for u of standard deviation s, split at zero: what errors are measured against."""
    z, weight = nodes(np.linspace(-13, 13, 53), *np.polynomial.legendre.leggauss(24))
    return math.sqrt((weight * phi(z)) @ f(s * z) ** 2)


def nodes(edges, x, w):
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (x + 1)).ravel(), (half * w).ravel()


def pair(prepared, rho):
    """A and C of the two prepared rows."""
    top = 0.0 if abs(rho) == 1 else abs(rho)
    A, C = prepared.tile(torch.tensor([[rho]], dtype=torch.float64), top, slice(0, 1), slice(1, 2))
    return float(A), float(C), prepared.error(top)


def rows(*s):
    return torch.tensor(s, dtype=torch.float64)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ("sigmoid", "tanh") else name for name in GATES]
)
def test_duals_equal_an_independent_integral(name):
    act, slope = GATES[name]
    for s, t, rho in PAIRS:
        A, C, error = pair(dual(gate_of(name), rows(s, t)), rho)
        scale = [length(f, s) * length(f, t) for f in (act, slope)]
        within = 1e-13 if name in CLOSED else 3e-12
        assert abs(A - expectation(act, s, t, rho)) <= within * scale[0] + 1e-300, (s, t, rho)
        assert abs(C - rho * s * t * expectation(slope, s, t, rho)) <= within * scale[1] * s * t + 1e-300, (s, t, rho)
        assert error == 0 if name in CLOSED else 0 < error <= 3e-12


def test_closed_forms_go_by_the_function_and_not_by_the_name():
    s = rows(1.0, 2.0)
    assert isinstance(dual("gelu", s), ClosedForm)
    assert isinstance(dual(activation(torch.relu), s), ClosedForm)
    impostor = Activation("relu", torch.tanh, growth=0)
    found = dual(impostor, s)
    assert isinstance(found, HermiteSeries)
    assert pair(found, 0.5)[0] == pytest.approx(expectation(np.tanh, 1.0, 2.0, 0.5), rel=1e-10)


@pytest.mark.parametrize("name", ["gelu", "erf"])
def test_the_series_equals_the_closed_form(name):
    """The slow twin of both: gelu and erf computed either way, derivatives by autodiff."""
    s = rows(0.5, 1.7)
    closed = dual(gate_of(name), s)
    summed = series(Activation("user", gate_of(name).function, growth=None), s, slopes=True)
    for rho in (-1.0, -0.6, 0.0, 0.93, 1.0):
        A, C, _ = pair(closed, rho)
        a, c, error = pair(summed, rho)
        assert max(abs(A - a), abs(C - c)) <= max(error, 1e-13)


@pytest.fixture(scope="module")
def kinked():
    """The series of relu as a user's function."""
    return series(Activation("user", lambda z: torch.relu(z), growth=1), rows(0.8, 1.6), slopes=True)


@pytest.mark.parametrize(
    "rho", [0.3, 1.0, *(pytest.param(r, marks=pytest.mark.slow) for r in (-0.5, 0.9, 0.99, 0.9999))]
)
def test_of_a_gate_with_a_kink_the_error_is_seen_and_stated(rho, kinked):
    """relu as a user's function: what the series says of itself covers what it is off by, and is not absurd."""
    A, C, _ = pair(dual("relu", rows(0.8, 1.6)), rho)
    a, c, error = pair(kinked, rho)
    off = max(abs(A - a) / 0.64, abs(C - c) / 0.64)
    assert off <= error
    if rho in (0.99, 0.9999):
        assert error > 1e-10
        assert error < 0.02
    else:
        assert error < 3e-12


def piecewise(f, breaks, s, t, rho):
    """E[f(u) f(v)], u first and v given u, either integral cut where f breaks."""
    x, w = np.polynomial.legendre.leggauss(40)

    def rule(at):
        return nodes(np.unique(np.clip(np.concatenate([np.linspace(-12, 12, 9), at]), -12, 12)), x, w)

    rest = math.sqrt(1 - rho * rho)
    total = 0.0
    for z, weight in zip(*rule(breaks / s), strict=True):
        y, thick = rule((breaks / t - rho * z) / rest)
        total += weight * phi(z) * f(s * z) * np.sum(f(t * (rho * z + rest * y)) * phi(y) * thick)
    return total


@cache
def hardtanh_of_two(s, t):
    return dual(activation(torch.nn.functional.hardtanh), rows(s, t))


@pytest.mark.parametrize(("s", "t", "rho"), [(1.0, 0.7, 0.5), pytest.param(3.0, 2.0, -0.8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["hardtanh", "step", pytest.param("hardswish", marks=pytest.mark.slow)])
def test_kinks_and_jumps_away_from_zero_cost_no_accuracy(name, s, t, rho):
    act, slope, at, function = {
        "hardtanh": (lambda z: np.clip(z, -1, 1), lambda z: 1.0 * (abs(z) < 1), 1.0, torch.nn.functional.hardtanh),
        "hardswish": (
            lambda z: z * np.clip(z / 6 + 0.5, 0, 1),
            lambda z: np.where(abs(z) < 3, z / 3 + 0.5, 1.0 * (z > 0)),
            3.0,
            torch.nn.functional.hardswish,
        ),
        "step": (lambda z: 1.0 * (abs(z) > 0.7), None, 0.7, lambda z: (z.abs() > 0.7).to(z.dtype)),
    }[name]
    breaks = np.array([-at, at])
    sloped = slope is not None
    found = hardtanh_of_two(s, t) if name == "hardtanh" else dual(activation(function), rows(s, t), slopes=sloped)
    A, C = found.tile(torch.tensor([[rho]], dtype=torch.float64), abs(rho), slice(0, 1), slice(1, 2))
    assert float(A) == pytest.approx(piecewise(act, breaks, s, t, rho), abs=2e-12)
    if sloped:
        assert float(C) == pytest.approx(rho * s * t * piecewise(slope, breaks, s, t, rho), abs=2e-11)
    assert found.error(abs(rho)) < 3e-12


def test_parallel_rows_of_a_gate_with_kinks_are_integrated_and_not_summed():
    """E[hardtanh(s z) hardtanh(-t z)] = -2 int_0^inf min(s z, 1) min(t z, 1) phi."""
    s, t = 1.0, 0.7
    z, thick = nodes(np.array([0, 1 / s, 1 / t, 4, 8, 12]), *np.polynomial.legendre.leggauss(40))
    want = -2 * np.sum(np.minimum(s * z, 1) * np.minimum(t * z, 1) * phi(z) * thick)
    got, _, _ = pair(hardtanh_of_two(s, t), -1.0)
    assert got == pytest.approx(want, rel=1e-13)


def test_breaks_are_found_and_smooth_gates_have_none():
    def found(f, reach=20.0):
        return find_breaks(f, reach, torch.device("cpu")).tolist()

    assert found(activation(torch.nn.functional.relu6).slope) == pytest.approx([6.0], abs=1e-12)
    assert found(activation(torch.nn.functional.hardswish).slope) == pytest.approx([-3.0, 3.0], abs=1e-12)
    for name in ("silu", "tanh", "gelu", "identity", "relu"):
        assert found(activation(name).slope) == []
    assert found(lambda z: torch.sigmoid(100 * z)) == []


def test_scales_far_from_one():
    """Steep and flat gates: the terms grow with s, the stated error holds."""
    act, _ = GATES["silu"]
    for s, within in ((1e-8, 1e-12), (0.05, 1e-12), (6.0, 1e-11)):
        A, _, error = pair(dual("silu", rows(s, 2 * s)), 0.9)
        scale = math.sqrt(expectation(act, s, s, 1.0) * expectation(act, 2 * s, 2 * s, 1.0))
        assert abs(A - expectation(act, s, 2 * s, 0.9)) <= within * scale
        assert error <= within


def test_gates_that_are_no_elementwise_functions_are_refused():
    with pytest.raises(GatelabError, match="must act on each element"):
        dual(activation(lambda z: z.sum()), rows(1.0))
    with pytest.raises(GatelabError, match=r"no derivative.*nngp"):
        dual(activation(lambda z: (z > 0).to(z.dtype)), rows(1.0))
    with pytest.raises(GatelabError, match="nan at"):
        dual(activation(torch.sqrt), rows(1.0))
