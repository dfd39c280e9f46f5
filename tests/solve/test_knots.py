"""The knot solver: exactness of conversion, optimality, orders and limits, against slow and obvious twins."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit, unit, units
from gatelab.scaling_laws import limit
from gatelab.solve import Status, fit, rmse
from gatelab.solve import free_knots as gates
from gatelab.solve.free_knots import density, optimize, project, split_worst, spread
from gatelab.solve.polish import jacobian, polish_networks, random_neurons, residual, take
from gatelab.solve.solvers import knots
from gatelab.solve.solvers.knots import solve as solve_knots

RELU_GATED = [u.name for u in units() if u.gate_power is not None]
EXOTIC = [Unit("relu", 3, "gcu"), Unit("relu2", 1, "relu2-glu")]
ALL = [*map(unit, RELU_GATED), *EXOTIC]


def _sorted(n=2000, target="exp(sin(3*x))", interval=(0.0, 3.0)):
    p = problem(target, interval=interval, n=n)
    order = np.argsort(p.train.x[:, 0])
    return p.train.x[order, 0], p.train.y[order, 0], p


@pytest.mark.parametrize("u", ALL, ids=lambda u: u.name)
@pytest.mark.parametrize("opened", [0, 1, 2])
def test_a_spline_with_its_directions_is_exactly_a_network(u, opened):
    """Any directions: the constrained spline and the network's own forward pass agree."""
    x, y, _ = _sorted()
    generator = np.random.default_rng(opened)
    breaks = np.concatenate(([0.0], np.sort(generator.uniform(0.2, 2.8, 9)), [3.0]))
    way = gates.Directions(u, (0.0, 3.0), generator.random(9) < 0.5, min(opened, gates.always_open(u)))
    spline = project(x, y, breaks, u.degree, min(u.factors, 1) + 1, way.constrain)
    net = gates.to_network(gates.from_spline(spline, way), u)
    assert net.width == way.width
    on_spline = y - spline.data.residual(spline.z)
    with torch.no_grad():
        on_network = net(torch.from_numpy(x[:, None])).numpy()[:, 0]
    np.testing.assert_allclose(on_network, on_spline, atol=1e-8 * np.abs(y).max())


@pytest.mark.parametrize("name", RELU_GATED)
def test_frozen_gates_reach_the_dense_least_squares_of_the_network(name):
    """With the gates where the frozen solver puts them, nothing linear in the network can do better."""
    x, y, p = _sorted()
    solution = solve_knots(unit(name), p, 8, gates="frozen")
    net = solution.network
    features = net.neurons(torch.from_numpy(x[:, None])).detach().numpy()
    columns = [np.ones_like(x), *features.T]
    if unit(name).factors:  # the last factor is linear too: x times each gate and the other factors
        with torch.no_grad():
            parts = net.affine(torch.from_numpy(x[:, None]))
            rest = torch.relu(parts[0])
            for v in parts[1:-1]:
                rest = rest * v
        columns = [np.ones_like(x), *rest.numpy().T, *(rest.numpy() * x[:, None]).T]
    design = np.stack(columns, axis=1)
    coefficients, *_ = np.linalg.lstsq(design / np.linalg.norm(design, axis=0), y, rcond=1e-13)
    dense = np.sqrt(np.mean((y - design / np.linalg.norm(design, axis=0) @ coefficients) ** 2))
    assert rmse(net, p.train.x, p.train.y) == pytest.approx(dense, rel=1e-6)
    if name == "mlp":
        np.testing.assert_allclose(net.knots().numpy(), np.linspace(0, 3, 9)[:-1])


@pytest.mark.parametrize(("degree", "multiplicity"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_a_general_minimiser_finds_nothing_better_nearby(degree, multiplicity):
    """Nelder-Mead on the projected error, started at what the banded method found."""
    x, y, _ = _sorted(400)
    start = project(x, y, np.array([0.0, 0.7, 1.6, 2.2, 3.0]), degree, multiplicity)
    best, history, _ = optimize(start, steps=100, tolerance=1e-10)
    assert list(history) == sorted(history, reverse=True)
    assert best.rmse < 0.8 * start.rmse or multiplicity > 1

    def error(inner):
        if np.any(np.diff([0.0, *inner, 3.0]) < 1e-3):
            return 1e9
        return project(x, y, np.array([0.0, *inner, 3.0]), degree, multiplicity).rmse

    slow = minimize(error, best.knots, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000})
    assert best.rmse <= 1.01 * slow.fun


@pytest.mark.parametrize("u", ALL, ids=lambda u: u.name)
def test_polish_jacobian_is_that_of_autograd(u):
    generator = np.random.default_rng(0)
    batch = random_neurons(u, 4, (0.0, 3.0), 3, generator)
    neurons = take(batch, 1)
    x = np.sort(generator.uniform(0, 3, 50))
    found = jacobian(neurons, u, x)
    np.testing.assert_array_equal(jacobian(batch, u, x)[1], found)

    k, lines = u.gate_power, neurons.lines

    def output(t, c, b, d):
        distance = torch.from_numpy(x) - t[:, None]
        sign = torch.from_numpy(neurons.sign)[:, None]
        value = sign**k * torch.relu(sign * distance) ** k
        for i in range(lines.shape[1]):
            value = value * (c[:, i, None] + b[:, i, None] * distance)
        return d + value.sum(0)

    arguments = (
        torch.from_numpy(neurons.knots),
        torch.from_numpy(lines[..., 0].copy()),
        torch.from_numpy(lines[..., 1].copy()),
        torch.tensor(neurons.offset, dtype=torch.float64),
    )
    jt, jc, jb, jd = torch.autograd.functional.jacobian(output, arguments)
    rows = [jt.T]
    for i in range(lines.shape[1]):
        rows += [jc[:, :, i].T, jb[:, :, i].T] if u.factors else [jc[:, :, i].T]
    expected = torch.cat([*rows, jd[None]]).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())
    with torch.no_grad():
        np.testing.assert_allclose(-residual(neurons, u, x, np.zeros_like(x)), output(*arguments).numpy(), atol=1e-12)


def test_polish_only_goes_down_and_a_batch_is_polished_like_its_members():
    x, y, _ = _sorted(300)
    batch = random_neurons(unit("gqu"), 3, (0.0, 3.0), 5, np.random.default_rng(1))
    done = polish_networks(batch, unit("gqu"), x, y, steps=30)
    for history, error in zip(done.histories, done.rmse, strict=True):
        assert list(history) == sorted(history, reverse=True) and history[-1] == error
    assert done.rmse[0] < 0.5 * np.std(y) and list(done.rmse) == sorted(done.rmse)
    batch = random_neurons(unit("glu"), 3, (0.0, 3.0), 4, np.random.default_rng(2))
    together = polish_networks(batch, unit("glu"), x, y, steps=15)
    alone = sorted(polish_networks(take(batch, slice(i, i + 1)), unit("glu"), x, y, steps=15).rmse[0] for i in range(4))
    np.testing.assert_allclose(together.rmse, alone, rtol=1e-6)


SLOW = [("exp(sin(3*x))", (0.0, 3.0)), ("tanh(3*x)+x**2", (-2.0, 1.0)), ("1/(1+25*x**2)", (-1.0, 2.0))]


@pytest.mark.parametrize("width", [50, *(pytest.param(width, marks=pytest.mark.slow) for width in (25, 100))])
@pytest.mark.parametrize("name", ["mlp", "glu", "gqu"])
@pytest.mark.parametrize(
    ("text", "interval"),
    [("paper-1d", None), ("exp(2*x)", None), *(pytest.param(*target, marks=pytest.mark.slow) for target in SLOW)],
)
def test_free_knot_limit_is_met(name, text, interval, width):
    """On data that are not seen. Slopes and jumps of exp are all positive, so that one inner gate stays open."""
    p = problem(text, interval=interval)
    assert fit(name, p, width).test_rmse <= 1.10 * limit(name, p, width)


@pytest.mark.parametrize(("name", "text"), [("mlp", "3*x-1"), ("glu", "x**2"), ("gqu", "x**3"), ("relu2", "x**2")])
def test_what_a_unit_contains_it_finds_to_rounding(name, text):
    f = fit(name, problem(text, n=500), 3)
    assert f.status is Status.FLOOR
    assert f.test_rmse < 1e-11


def test_too_few_distinct_points_is_said():
    x = np.repeat([0.0, 0.3, 0.7, 1.0], 50)
    p = Problem.from_arrays(x, x**2, test=([0.1, 0.2], [0.01, 0.04]))
    with pytest.raises(GatelabError, match="4 distinct points"):
        fit("glu", p, 20)


@pytest.mark.parametrize("name", ["geglu", "bilinear"])
def test_other_gates_are_refused_with_the_way_out(name):
    with pytest.raises(GatelabError, match="solver='varpro'"):
        fit(name, "x2", 3, solver="knots")
    with pytest.raises(GatelabError, match="trained"):
        fit("mlp", "x2", 3, solver="knots", gates="frosen")


def test_density_follows_theory():
    """For f = x^(m + 5/2), |f^(m)|^sigma is a known power of x, and so is its cumulative share."""
    x = np.sort(np.random.default_rng(0).uniform(0, 1, 20_000))
    found = density(x, x**4.5, (0.0, 1.0), 1)
    share = np.linspace(0.1, 1, 10)
    expected = share ** (1 + 2.5 * 2 / 5)
    np.testing.assert_allclose(np.interp(share, found.grid, found.cumulative), expected, atol=0.03)
    inner = found.knots(9)
    assert len(inner) == 9
    assert np.all(np.diff(inner) > 0)


def test_the_worst_cell_is_split():
    x = np.linspace(0, 4, 401)
    spline = project(x, np.where(x > 2, np.sin(9 * x), x), np.array([0.0, 1, 2, 3, 4]), 1, 2)
    worst = np.argmax([np.sum(spline.data.residual(spline.z)[(x >= a) & (x < a + 1)] ** 2) for a in range(4)])
    assert split_worst(spline).tolist() == sorted([0, 1, 2, 3, 4, worst + 0.5])


def test_spread_gives_every_cell_its_data_and_moves_only_what_must():
    x = np.linspace(0, 1, 100)
    breaks = np.array([0.0, 0.5, 0.501, 0.502, 0.9, 1.0])
    out = spread(breaks, x, 5)
    counts = np.diff(np.concatenate(([0], np.searchsorted(x, out[1:-1]), [100])))
    assert counts.min() >= 5
    assert out[4] == 0.9
    np.testing.assert_array_equal(spread(out, x, 5), out)


def test_a_network_that_was_kept_changes_no_fit():
    """A glu starts from the relu2 that it contains, which a fit of that power before it has kept."""
    p = problem("paper-1d", n=400)
    knots._power_network.cache_clear()
    alone = fit("glu", p, 3).network.state_dict()
    knots._power_network.cache_clear()
    fit("relu2", p, 3)
    after = fit("glu", p, 3).network.state_dict()
    assert knots._power_network.cache_info().hits == 1
    assert all(torch.equal(alone[name], after[name]) for name in alone)
