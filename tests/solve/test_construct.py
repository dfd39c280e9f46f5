"""Constructions: interpolation, orders and constants, on any interval, from the network's own forward pass."""

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.solve import rmse

CASES = [("mlp", 2), ("glu", 3), ("gqu", 4)]
TARGETS = [("1/(1+cos(pi*x)**2)", (-1.0, 1.0)), ("exp(sin(3*x))", (0.0, 3.0)), ("tanh(2*x)", (-3.0, -0.5))]


@pytest.mark.parametrize(("name", "order"), CASES)
@pytest.mark.parametrize(("text", "interval"), TARGETS)
def test_measured_over_predicted_tends_to_one_with_the_right_order(name, order, text, interval):
    p = gl.problem(text, interval=interval, n=20_001, sampling="grid")
    measured, predicted, cells = [], [], []
    for n in (50, 100, 200):
        made = gl.construct(name, p, n)
        measured.append(rmse(made.network, p.train.x, p.train.y))
        predicted.append(made.predicted_rmse)
        cells.append(n - (name == "gqu"))
        assert made.order == order
        assert made.network.width == n
    gap = np.abs(np.array(measured) / predicted - 1)
    assert gap[-1] < 0.03
    assert gap[0] > gap[1] > gap[2]
    assert np.log(measured[1] / measured[2]) / np.log(cells[2] / cells[1]) == pytest.approx(order, abs=0.05)
    assert np.log2(measured[1] / measured[2]) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize(("name", "steepness"), [("mlp", 300), ("glu", 100), ("gqu", 100)])
def test_a_steep_function_is_predicted_too(name, steepness):
    p = gl.problem(f"tanh({steepness}*x)", n=12_001, sampling="grid")
    made = gl.construct(name, p, 1500)
    assert rmse(made.network, p.train.x, p.train.y) == pytest.approx(made.predicted_rmse, rel=0.05)


@pytest.mark.parametrize(("name", "order"), CASES)
def test_it_interpolates_at_the_knots(name, order):
    made = gl.construct(name, "exp(sin(3*x))", 9, (0.0, 3.0))
    t = np.append(made.network.knots().numpy(), 3.0)
    with torch.no_grad():
        values = made.network(torch.from_numpy(t[:, None])).numpy()[:, 0]
    np.testing.assert_allclose(values, np.exp(np.sin(3 * t)), atol=1e-10)
    assert (made.network.G == 1).all()
    assert made.network.d.item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["mlp", "glu", "gqu"])
def test_an_interval_beside_a_problem_is_where_the_network_is_built(name):
    """It was ignored without a word: the network was that of the problem's own interval."""
    alone = gl.construct(name, "exp(sin(3*x))", 40, (0, 3))
    beside = gl.construct(name, gl.problem("exp(sin(3*x))", interval=(-1, 1), n=50), 40, (0, 3))
    assert beside.predicted_rmse == alone.predicted_rmse
    for key, value in alone.network.state_dict().items():
        assert torch.equal(beside.network.state_dict()[key], value), key
    with pytest.raises(gl.GatelabError, match="give two finite numbers"):
        gl.construct(name, gl.problem("x**2", n=50), 40, (3, 0))


def test_bad_arguments():
    with pytest.raises(gl.GatelabError, match="at least 2"):
        gl.construct("gqu", "x**2", 1)
    with pytest.raises(gl.GatelabError, match="1 or more"):
        gl.construct("mlp", "x**2", 0)
    with pytest.raises(gl.GatelabError, match="mlp, glu, gqu and swiglu"):
        gl.construct("geglu", "x**2", 5)
    with pytest.raises(gl.GatelabError, match="no function"):
        gl.construct("mlp", gl.Problem.from_arrays(np.arange(9.0), np.arange(9.0) ** 2), 3)


@pytest.mark.parametrize("formula", ["abs(x - 0.3)", "1/x"])
def test_nothing_is_predicted_beside_a_kink_or_a_pole(formula: str):
    assert np.isnan(gl.construct("glu", formula, 20, (-1, 1)).predicted_rmse)
    assert gl.construct("glu", "exp(x)", 20, (-1, 1)).predicted_rmse < 1e-4


@pytest.mark.parametrize(
    ("formula", "most"), [("1/(1+25*x**2)", 1e-7), ("1/(1+cos(pi*x)**2)", 2e-7), ("exp(x)", 1e-10)]
)
def test_constructed_smooth_gates_fall_exponentially(formula: str, most: float):
    """Twelve neurons; each four more gain a factor of ten or more, and the prediction has the order of magnitude."""
    target = gl.problem(formula, interval=(-1, 1), n=2000)
    made = {n: gl.construct("swiglu", target, n) for n in (4, 8, 12)}
    errors = {n: rmse(c.network, target.train.x, target.train.y) for n, c in made.items()}
    assert errors[12] < most and errors[8] < errors[4] / 10
    assert errors[8] < 3 * made[8].predicted_rmse


def test_constructed_neurons_have_the_poles_and_residues_of_the_target():
    """The twin integrates around the pole 0.2i of 1 / (1 + 25 x^2), where the residue is 1 / (10 i)."""
    net = gl.construct("swiglu", "1/(1+25*x**2)", 8, (-1, 1)).network
    G, g, U, u, D = (getattr(net, name).detach().numpy().ravel() for name in ("G", "g", "U", "u", "D"))
    first = np.argmin(np.abs((1j * np.pi - g) / G - 0.2j))
    x = 0.2j + 0.05 * np.exp(2j * np.pi * np.arange(64) / 64)
    z = G[first] * x + g[first]
    values = D[first] * z / (1 + np.exp(-z)) * (U[first] * x + u[first])
    assert np.mean(values * (x - 0.2j)) == pytest.approx(1 / 10j, rel=1e-6)
