"""Polynomials: bases, series, best approximations, proved bounds, costs, published ones, files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.linearization import Polynomial, bound, calibrate, equioscillation, export, find_published, linearize
from gatelab.linearization.builders.least_error import chebyshev, hermite_series, minimax
from gatelab.linearization.builders.taylor_series import power_series
from gatelab.linearization.polynomials import gate_and_factors

NAMES = ("gelu", "gelu-tanh", "silu", "sigmoid", "tanh", "relu", "relu2")
# theory.md, section 5: minimax on R = 3, 5, 7.
BEST = {
    4: (3.92e-2, 1.34e-1, 2.22e-1),
    8: (1.87e-3, 2.57e-2, 7.09e-2),
    10: (3.27e-4, 1.02e-2, 3.92e-2),
    16: (8.25e-7, 3.71e-4, 5.07e-3),
    24: (7.2e-11, 1.48e-6, 1.58e-4),
}
RESIDUALS = {1: 0.309, 2: 0.0782, 4: 0.0306, 6: 0.0133, 10: 0.0028, 16: 3.0e-4, 24: 1.7e-5}


def gate(name: str):
    return gate_and_factors(name)[0]


@pytest.mark.parametrize("interval", [(-3.0, 3.0), (-2.0, 5.0), (0.5, 0.75)])
def test_the_two_bases_are_one_function(interval: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    given = rng.standard_normal(8)
    p = Polynomial.from_powers(given, interval)
    z = np.linspace(*interval, 101)
    assert np.allclose(p(z), np.polynomial.polynomial.polyval(z, given), rtol=1e-12, atol=1e-10)
    back = Polynomial.from_chebyshev(p.chebyshev, interval)
    assert np.allclose(back(z), p(z), rtol=0, atol=1e-9)
    assert np.allclose(p(torch.from_numpy(z)).numpy(), p(z))


@pytest.mark.parametrize("name", ["gelu", "gelu-tanh", "silu", "sigmoid", "tanh"])
def test_series_agree_with_automatic_derivatives(name: str) -> None:
    """The slow twin: nested autograd."""
    z = torch.zeros((), dtype=torch.float64, requires_grad=True)
    y = gate(name)(z) if name != "gelu" else z * torch.special.ndtr(z)
    found = []
    for k in range(8):
        found.append(float(y.detach()) / math.factorial(k))
        (y,) = torch.autograd.grad(y, z, create_graph=True)
    assert np.allclose(power_series(gate(name), 7), found, atol=1e-12)


def test_series_of_a_users_function_and_of_those_that_have_none() -> None:
    assert np.allclose(power_series(gate_and_factors(torch.sin)[0], 5), [0, 1, 0, -1 / 6, 0, 1 / 120])
    with pytest.raises(GatelabError, match="no Taylor series"):
        power_series(gate_and_factors(torch.abs)[0], 4)
    with pytest.raises(GatelabError, match="kink"):
        power_series(gate("relu"), 4)
    with pytest.raises(GatelabError, match="at most 12"):
        power_series(gate_and_factors(torch.sin)[0], 20)


@pytest.mark.parametrize("degree", BEST)
def test_minimax_errors_of_the_theory(degree: int) -> None:
    gelu = gate("gelu")
    for reach, expected in zip((3.0, 5.0, 7.0), BEST[degree], strict=True):
        p = minimax(gelu, degree, reach)
        assert p.error(gelu) == pytest.approx(expected, rel=0.02)
        found = equioscillation(p, gelu)
        # z/2 + even: the error of degree n is that of n + 1, and has a point more.
        assert len(found.points) >= degree + 2 and found.spread < 2e-4
        assert np.all(np.diff(np.sign(found.errors)) != 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("interval", [(-4.0, 4.0), (-2.0, 5.0)])
def test_minimax_equioscillates_for_every_activation(name: str, interval: tuple[float, float]) -> None:
    for degree in (0, 1, 4, 7):
        p = minimax(gate(name), degree, interval)
        found = equioscillation(p, gate(name))
        assert len(found.points) >= degree + 2 and found.spread < 2e-3, (degree, found)
        assert p.error(gate(name)) <= chebyshev(gate(name), degree, interval).error(gate(name)) * 1.001


def test_the_exchange_stops_at_rounding() -> None:
    assert minimax(gate("gelu"), 40, 3.0).error(gate("gelu")) < 1e-14


@pytest.mark.parametrize("degree", [4, 9])
def test_minimax_sees_kinks_that_nobody_told_it_of(degree: int) -> None:
    p = linearize(lambda z: z.clamp(-0.3, 0.7), "minimax", degree=degree, interval=1.0).polynomial
    z = np.union1d(np.linspace(-1, 1, 200_001), [-0.3, 0.7])
    error = np.abs(p(z) - np.clip(z, -0.3, 0.7)).max()
    # Of the best polynomial by a linear program on 4001 Chebyshev points and both kinks.
    assert error == pytest.approx({4: 0.036182, 9: 0.016630}[degree], rel=5e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_never_below_the_measured_maximum_and_close_to_it(name: str) -> None:
    made = [minimax(gate(name), n, i) for n in (0, 3, 8, 17) for i in (3.0, 7.0, (-2.0, 5.0))]
    made += [chebyshev(gate(name), 6, 5.0)]
    if "relu" not in name:
        made += [linearize(name, "taylor", degree=8, interval=(-4.0, 4.0)).polynomial]
    for p in made:
        assert p is not None
        found, seen = bound(p, gate(name)), p.error(gate(name), 100_001)
        assert seen <= found.value <= 1.005 * seen + 1e-12


def test_no_bound_without_knowledge() -> None:
    p = chebyshev(gate_and_factors(torch.sin)[0], 6, 3.0)
    with pytest.raises(GatelabError, match="no bound can be proved"):
        bound(p, gate_and_factors(torch.sin)[0])
    assert export(p, gate_and_factors(torch.sin)[0]).bound is None


@pytest.mark.parametrize("degree", RESIDUALS)
def test_hermite_residuals_of_the_theory(degree: int) -> None:
    h, square = hermite_series(gate("gelu"), degree)
    assert math.sqrt(square - np.sum(h**2)) == pytest.approx(RESIDUALS[degree], rel=0.02)


def test_hermite_is_the_weighted_least_squares_solution() -> None:
    """The slow twin: least squares on half a million quantiles of N(0, s^2); relu has a kink."""
    from scipy.special import ndtri

    z = 1.5 * ndtri((np.arange(500_000) + 0.5) / 500_000)
    for name in ("relu", "silu"):
        p = linearize(name, "hermite", degree=5, scale=1.5).polynomial
        q = linearize(name, "fit", degree=5, data=z).polynomial
        assert p is not None and q is not None
        at = np.linspace(-3, 3, 50)
        assert np.allclose(p(at), q(at), atol=2e-3)
    h, square = hermite_series(gate("relu"), 3)
    assert np.allclose(
        [h[0], h[1], h[2], h[3], square], [1 / math.sqrt(2 * math.pi), 0.5, 0.5 / math.sqrt(math.pi), 0, 0.5]
    )


def test_fit_and_hermite_from_data() -> None:
    z = np.random.default_rng(0).normal(0.3, 0.7, 400)
    p = linearize("gelu", "fit", degree=4, data=z).polynomial
    q = linearize("gelu", "hermite", degree=4, data=z).polynomial
    assert p is not None and q is not None
    f = gate("gelu")(torch.from_numpy(z)).numpy()
    direct = np.polynomial.polynomial.polyfit(z, f, 4)
    assert np.allclose(p.coefficients, direct, atol=1e-8)
    assert q.interval[1] == pytest.approx(5 * np.sqrt(np.mean(z**2)))
    with pytest.raises(GatelabError, match="do not determine"):
        linearize("gelu", "fit", degree=4, data=[1.0, 2.0])


@pytest.mark.parametrize(
    ("name", "maximum", "inside"), [("puma", 2.0e-2, 2.0e-2), ("bolt", 9.4e-3, 1.6e-3), ("nexus", 8.1e-4, None)]
)
def test_published_ones_have_the_errors_that_are_known(name: str, maximum: float, inside: float | None) -> None:
    p, z = find_published(name), np.linspace(-8, 8, 160_001)
    z = np.union1d(z, [np.nextafter(b, b + side) for b in p.breaks for side in (-1, 1)])
    gap = np.abs(gate("gelu")(torch.from_numpy(z)).numpy() - p(z))
    assert float(f"{gap.max():.1e}") == maximum
    if inside is not None:
        assert float(f"{gap[(z >= p.breaks[0]) & (z < p.breaks[-1])].max():.1e}") == inside


def test_published_quadratic_and_taylor() -> None:
    z = np.array([-2.0, 0.0, 3.0])
    of_tensor = find_published("bolt")(torch.from_numpy(z).float())
    assert of_tensor.dtype == torch.float32
    assert np.allclose(of_tensor.numpy(), find_published("bolt")(z), atol=1e-4)
    assert np.allclose(find_published("mpcformer")(z), 0.125 * z**2 + 0.25 * z + 0.5)
    taylor = linearize("gelu", "taylor", degree=10).polynomial
    assert taylor is not None and np.allclose(find_published("taylor")(z), taylor(z))
    with pytest.raises(GatelabError, match="did you mean 'puma'"):
        find_published("pumas")


def test_export_and_back(tmp_path: Path) -> None:
    z = np.random.default_rng(1).normal(size=1000)
    p = linearize("gelu", "minimax", degree=6, interval=calibrate(z, margin=0.2)).polynomial
    assert p is not None
    made = export(p)
    assert made.bound is not None and made.bound >= made.measured
    assert gl.load(made.save(tmp_path / "p.json")) == p
    growth = [e for _, e in made.outside]
    assert growth == sorted(growth) and growth[-1] > 10
    document = json.loads((tmp_path / "p.json").read_text())
    document["powers"][2] *= 1.001
    longer = {**document, "chebyshev": [*document["chebyshev"], 0.0]}
    short = {key: value for key, value in document.items() if key != "chebyshev"}
    for damage, says in ((document, "disagree"), (longer, "disagree"), (short, "chebyshev is missing")):
        (tmp_path / "q.json").write_text(json.dumps(damage))
        with pytest.raises(GatelabError, match=says):
            gl.load(tmp_path / "q.json")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: linearize("gelu", "minimax", interval=(3.0, -3.0)), "with a < b"),
        (lambda: linearize("gelu", "hermite", data=[1.0, 2.0], scale=2.0), "leave one out"),
        (lambda: linearize("gelu", "tangent", d=3, reference=None), "is None; give a numeric array"),
        (lambda: linearize("gelu", "minimax", d=3).psi(torch.tensor(1.0)), "give a tensor of rows"),
        (lambda: Polynomial.from_powers([1.0, np.inf], (-1, 1)), "give finite numbers"),
        (lambda: Polynomial.from_chebyshev(["a"], (-1, 1)), "give a numeric array"),
        (lambda: equioscillation(minimax(gate("relu"), 3, (1.0, 2.0)), gate("relu")), "no error alternates"),
    ],
)
def test_bad_input_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(GatelabError, match=says):
        make()


def test_calibration() -> None:
    assert calibrate(torch.tensor([-2.0, 2.0]), margin=0.1) == pytest.approx((-2.2, 2.2))
    for bad, says in (([], "empty"), ([1.0, math.nan], "1 NaN"), ([1.0, 1.0], "differ")):
        with pytest.raises(GatelabError, match=says):
            calibrate(bad)
    with pytest.raises(GatelabError, match="margin"):
        calibrate([0.0, 1.0], margin=-1)
