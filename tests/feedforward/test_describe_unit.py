"""Units as plain values and back."""

import pytest
import torch

import gatelab as gl
from gatelab.feedforward.registry import describe, restore


def soft(z, v):
    return torch.nn.functional.softplus(z) * v


class Linear(torch.nn.Linear):
    def __init__(self, width, d_in, d_out):
        super().__init__(d_in, d_out)


@pytest.mark.parametrize("u", [*gl.units(), gl.Unit("silu", 3, "mine")], ids=lambda u: u.name)
def test_units_come_back_equal(u):
    assert restore(describe(u)) == u


@pytest.mark.parametrize("own", [soft, Linear])
def test_users_own_come_back_by_name(own):
    u = gl.unit(own)
    back = restore(describe(u))
    assert back.name == u.name
    x = torch.ones(2, 1, dtype=torch.float64)
    assert torch.equal(back.network(3, seed=1)(x), u.network(3, seed=1)(x))


def test_what_has_no_name_is_refused():
    def local(z):
        return z

    for own in (lambda z: z, local):
        with pytest.raises(gl.GatelabError, match="move it into a module"):
            describe(gl.unit(own))
    with pytest.raises(gl.GatelabError, match="gate"):
        describe(gl.Unit(activation=torch.sin, factors=1))
