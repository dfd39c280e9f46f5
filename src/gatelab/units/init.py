"""Initialisers: where a network's knots and weights begin.

- `spline` and `spline-alternating`: G = 1 or +-1 and knots on linspace(a, b, n) (fig. 3), the rest from N(0, 1).
- `normal`: everything from N(0, 1).
- `lecun`: weights from N(0, 1/fan-in), biases zero, as in the tangent-kernel paper; in 1-D with biases at zero every
  knot would sit at x = 0, so the gate's biases are drawn so that knots cover the interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gatelab.errors import GatelabError, check_seed, unknown_name
from gatelab.units.network import factor_names

if TYPE_CHECKING:
    from gatelab.units.network import Network

INITIALISERS = ("spline", "spline-alternating", "normal", "lecun")


def initialise(net: Network, init: str, *, seed: int, interval: tuple[float, float] = (-1.0, 1.0)) -> None:
    """Fill the parameters of `net` in place; equal seeds give bit-equal parameters."""
    if init not in INITIALISERS:
        raise unknown_name("initialiser", init, INITIALISERS)
    generator = torch.Generator().manual_seed(check_seed(seed))
    with torch.no_grad():
        if init == "lecun":
            _lecun(net, interval, generator)
            return
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
        if init != "normal":
            _spline_gates(net, interval, alternating=init == "spline-alternating")


def _spline_gates(net: Network, interval: tuple[float, float], alternating: bool) -> None:
    if net.d_in != 1:
        raise GatelabError(
            f"the spline initialisers place knots on a line, but the input has {net.d_in} dimensions; "
            "use init='normal' or 'lecun'"
        )
    sign = torch.ones(net.width, dtype=net.G.dtype)
    if alternating:
        sign[1::2] = -1.0
    knots = torch.linspace(*interval, net.width, dtype=net.G.dtype)
    net.G[:, 0] = sign
    net.g.copy_(-sign * knots)


def _lecun(net: Network, interval: tuple[float, float], generator: torch.Generator) -> None:
    def draw(p: torch.Tensor, fan_in: int) -> None:
        p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) / fan_in**0.5)

    for name in ("G", *factor_names(net.unit.factors)):
        draw(getattr(net, name), net.d_in)
        getattr(net, name.lower()).zero_()
    draw(net.D, net.width)
    net.d.zero_()
    if net.d_in == 1:
        a, b = interval
        knots = a + (b - a) * torch.rand(net.width, generator=generator, dtype=net.G.dtype)
        net.g.copy_(-net.G[:, 0] * knots)
        for name in factor_names(net.unit.factors):
            bias = getattr(net, name.lower())
            bias.copy_(torch.randn(bias.shape, generator=generator, dtype=bias.dtype))
