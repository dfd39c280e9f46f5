"""Units: the conformance suite over our own, parameter counts, equation 2, names, users' own units."""

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.feedforward import FeedForward, activations


@pytest.mark.parametrize("u", [*gl.units(), *(gl.Unit(gate, 3) for gate in activations())], ids=lambda u: u.name)
def test_units_conform(u):
    gl.check_unit(u)


@pytest.mark.parametrize(("d_in", "d_out", "n"), [(1, 1, 50), (3, 2, 7)])
def test_parameter_counts_are_the_papers(d_in, d_out, n):
    assert gl.unit("mlp").parameter_count(n, d_in, d_out) == (d_in + d_out + 1) * n + d_out
    assert gl.unit("glu").parameter_count(n, d_in, d_out) == (2 * d_in + d_out + 2) * n + d_out
    assert gl.unit("gqu").parameter_count(n, d_in, d_out) == (3 * d_in + d_out + 3) * n + d_out


def test_leaky_relu2_is_relu2_and_a_square_so_that_two_are_a_relu2():
    """Its order is that of relu2 therefore, and its slope is what autodiff finds; relu2 alone has the knot solver."""
    leaky, plain = gl.unit("leaky relu2"), gl.unit("relu2")
    z = torch.linspace(-3, 3, 61, dtype=torch.float64)
    value = leaky.gate(z)
    torch.testing.assert_close(value, torch.nn.functional.leaky_relu(z, 0.5) ** 2)
    torch.testing.assert_close(value, 0.75 * plain.gate(z) + 0.25 * z**2)
    torch.testing.assert_close(plain.gate(z), (value - leaky.gate(-z) / 4) / (1 - 1 / 16))
    point = z.clone().requires_grad_()
    torch.testing.assert_close(leaky.gate.slope(z), torch.autograd.grad(leaky.gate(point).sum(), point)[0])
    assert leaky.order == plain.order == 3 and leaky.gate_power is None and plain.gate_power == 2


def test_forward_is_equation_1_and_17():
    net = gl.unit("gqu").network(5, 3, 2, init="normal", seed=1)
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = dict(net.named_parameters())
    gate = torch.relu(x @ p["G"].T + p["g"])
    expected = p["d"] + (gate * (x @ p["U"].T + p["u"]) * (x @ p["Q"].T + p["q"])) @ p["D"].T
    torch.testing.assert_close(net(x), expected)
    assert list(p) == ["G", "g", "U", "u", "Q", "q", "D", "d"]


def test_initializers_place_knots_as_figure_3():
    for init, signs in (("spline", [1, 1, 1, 1]), ("spline-alternating", [1, -1, 1, -1])):
        net = gl.unit("glu").network(4, init=init, interval=(0.0, 3.0))
        assert net.G[:, 0].tolist() == signs
        np.testing.assert_allclose(net.knots().numpy(), [0, 1, 2, 3], atol=1e-12)


def test_lecun_has_the_stated_variance():
    """Sample variance of 40 000 draws: 4 standard errors is a false alarm once in 16 000 fixed seeds."""
    net = gl.unit("glu").network(400, 100, init="lecun", seed=0)
    for weights, fan_in in ((net.G, 100), (net.U, 100)):
        variance = weights.detach().square().mean().item() * fan_in
        assert abs(variance - 1) < 4 * (2 / weights.numel()) ** 0.5
    assert not net.g.any()


def test_unknown_names_give_the_nearest():
    with pytest.raises(gl.GatelabError, match="'swiglu'"):
        gl.unit("swigl")
    with pytest.raises(gl.GatelabError, match="'gelu'"):
        gl.Unit(activation="gellu")
    with pytest.raises(gl.GatelabError, match="spline"):
        gl.unit("mlp").network(3, init="splin")
    with pytest.raises(gl.GatelabError, match="lecun"):
        gl.unit("glu").network(4, 2, init="spline")
    with pytest.raises(gl.GatelabError, match="whole number"):
        gl.Unit(factors=-1)
    assert gl.unit("relu^2") is gl.unit("relu2")


@pytest.mark.parametrize("width", [0, 2.5, "7", True])
def test_widths_that_are_none(width):
    with pytest.raises(gl.GatelabError, match="1 or more"):
        gl.unit("glu").network(width)


class Sine(nn.Module):
    """A user's class: features of its own, linear read-out."""

    order = 2

    def __init__(self, width, d_in, d_out):
        super().__init__()
        self.inner, self.outer = nn.Linear(d_in, width), nn.Linear(width, d_out)

    def forward(self, x):
        return self.outer(torch.sin(self.inner(x)))


def test_a_users_class_is_a_unit():
    gl.check_unit(Sine)
    u = gl.unit(Sine)
    assert (u.name, u.order, u.parameter_count(5)) == ("Sine", 2, 16)
    result = gl.fit(Sine, gl.problem("sin4x", n=300), 8, starts=1, rounds=0, steps=60)
    assert result.solver == "varpro"
    assert result.test_rmse < 0.2


@pytest.mark.slow
def test_a_users_function_is_a_unit():
    def softgate(z, v):
        return torch.nn.functional.softplus(z) * v

    gl.check_unit(softgate)
    assert gl.unit(softgate).parameter_count(10) == gl.unit("glu").parameter_count(10)
    assert gl.fit(softgate, gl.problem("sin4x", n=300), 6, starts=1, rounds=0, steps=60).unit == "softgate"


def test_what_is_not_a_unit_is_said():
    with pytest.raises(gl.GatelabError, match="not int"):
        gl.unit(3)
    assert (gl.unit(nn.GELU()).factors, gl.unit(nn.GELU()).name) == (0, "gelu")
    with pytest.raises(gl.GatelabError, match="PReLU has parameters"):
        gl.unit(nn.PReLU())
    with pytest.raises(gl.GatelabError, match="at least one tensor"):
        gl.unit(lambda: 0)


class Broken(nn.Module):
    """Depends on its batch, ignores a parameter, and forgets d_out."""

    def __init__(self, width, d_in, d_out):
        super().__init__()
        self.inner = nn.Linear(d_in, 1)
        self.idle = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.inner(x) - self.inner(x).mean(0)


def test_check_unit_says_what_fails():
    report = {c.name: c for c in gl.check_unit(Broken, raise_on_failure=False)}
    failed = {name for name, c in report.items() if not c.passed}
    assert {"maps rows to rows", "treats rows alone", "every parameter matters"} <= failed
    assert "idle" in report["every parameter matters"].message
    with pytest.raises(AssertionError, match=r"'Broken' fails \d of 8"):
        gl.check_unit(Broken)


class Fixed(Sine):
    """Ignores its seed."""

    def __init__(self, width, d_in, d_out):
        torch.manual_seed(0)
        super().__init__(width, d_in, d_out)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [(lambda z, v: z.relu().detach() * v, "has true gradients"), (Fixed, "equal seeds give equal networks")],
)
def test_check_unit_catches_false_gradients_and_seeds(wrong, check):
    assert not {c.name: c.passed for c in gl.check_unit(wrong, raise_on_failure=False)}[check]


@pytest.mark.parametrize("name", ["mlp", "swiglu", "gqu"])
def test_feedforward_has_no_biases_and_the_two_thirds_rule_matches_cost(name):
    block, mlp = FeedForward(48, 192, name, match_mlp=True, seed=0), FeedForward(48, 192, "mlp", seed=0)
    count, reference = (sum(p.numel() for p in b.parameters()) for b in (block, mlp))
    assert abs(count - reference) <= 48 * (gl.unit(name).factors + 2)
    assert block(torch.zeros(2, 5, 48)).abs().max() == 0
    assert block(torch.randn(2, 5, 48)).shape == (2, 5, 48)
    assert gl.unit(name).parameter_count(block.width, 48, 48, bias=False) == count


@pytest.mark.parametrize("name", ["mlp", "swiglu", "gqu"])
def test_feedforward_with_biases_is_the_network(name):
    block = FeedForward(6, 9, name, bias=True, seed=1, dtype=torch.float64)
    net = gl.unit(name).network(9, 6, 6)
    assert sum(p.numel() for p in block.parameters()) == gl.unit(name).parameter_count(9, 6, 6)
    for p in block.parameters():
        if p.ndim == 1:
            assert not p.any()
            p.data = torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(len(p)))
    net.load_state_dict(block.state_dict())
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(block(x), net(x))


def test_feedforward_takes_a_device_and_keeps_its_seed():
    meta = FeedForward(6, 9, "swiglu", bias=True, device="meta")
    assert {p.device.type for p in meta.parameters()} == {"meta"}
    plain, biased = (FeedForward(6, 9, "swiglu", seed=3, device="cpu", bias=b) for b in (False, True))
    assert torch.equal(plain.D, biased.D) and plain.d is None
    assert plain.state_dict().keys() == {"G", "U", "D"}
