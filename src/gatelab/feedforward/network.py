"""The network of a product unit, with its parameters named as in the paper, its initializers, and the block form.

    y = d + D [ act(Gx + g) * (Ux + u) * (Qx + q) * ... ]          eq. 1 (GLU) and eq. 17 (GQU)

- `spline` and `spline-alternating`: G = 1 or +-1 and knots on linspace(a, b, n) (fig. 3), all others from N(0, 1).
- `normal`: all parameters from N(0, 1).
- `lecun`: weights from N(0, 1/fan-in), biases zero; in 1-D the knots are drawn in the interval.
- `uniform`: weights and biases as in `torch.nn.Linear`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError, check_seed, unknown_name
from gatelab.feedforward.registry import product_unit
from gatelab.feedforward.specification import Unit, check_width

INITIALIZERS = ("spline", "spline-alternating", "normal", "lecun", "uniform")


def factor_names(factors: int) -> tuple[str, ...]:
    """The weight names of the affine factors.

    Args:
        factors: the number of factors.

    Returns:
        A name for each; its bias has the same name in lower case.

    >>> factor_names(3)
    ('U', 'Q', 'U3')
    """
    return tuple(("U", "Q", *(f"U{i}" for i in range(3, factors + 1)))[:factors])


class Network(nn.Module):
    """One hidden layer of a product unit, whose parameters are zero until `initialize` or a solver sets them.

    Attributes:
        unit: the product unit.
        width: the number of neurons.
        d_in: the number of inputs.
        d_out: the number of outputs.
        G: the weights of the gate, (width, d_in); U, Q, U3, ... are those of the factors.
        g: the biases of the gate, (width,); u, q, u3, ... are those of the factors.
        D: the output weights, (d_out, width).
        d: the output biases, (d_out,).
    """

    G: nn.Parameter
    g: nn.Parameter
    D: nn.Parameter
    d: nn.Parameter

    def __init__(self, unit: Unit, width: int, d_in: int = 1, d_out: int = 1, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        dtype = dtype or torch.float64
        self.unit = unit
        self.width, self.d_in, self.d_out = width, d_in, d_out
        for name in ("G", *factor_names(unit.factors)):
            self.register_parameter(name, nn.Parameter(torch.zeros(width, d_in, dtype=dtype)))
            self.register_parameter(name.lower(), nn.Parameter(torch.zeros(width, dtype=dtype)))
        self.D = nn.Parameter(torch.zeros(d_out, width, dtype=dtype))
        self.d = nn.Parameter(torch.zeros(d_out, dtype=dtype))

    @property
    def maps(self) -> list[tuple[Tensor, Tensor]]:
        """The weights and biases (G, g), (U, u), (Q, q), ..."""
        names = ("G", *factor_names(self.unit.factors))
        return [(getattr(self, name), getattr(self, name.lower())) for name in names]

    @torch.no_grad()
    def fill(self, **values: Any) -> Network:
        """This network with arrays as the parameters of these names."""
        for name, value in values.items():
            parameter = self.get_parameter(name)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)).view_as(parameter))
        return self

    def affine(self, x: Tensor) -> list[Tensor]:
        """[Gx + g, Ux + u, Qx + q, ...], each (N, width)."""
        return [nn.functional.linear(x, weight, bias) for weight, bias in self.maps]

    def neurons(self, x: Tensor) -> Tensor:
        """The hidden values before D, (N, width)."""
        return self.unit.neuron(*self.affine(x))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.neurons(x), self.D, self.d)

    def knots(self) -> Tensor:
        """The knots t_i = -g_i / G_i of a 1-D network."""
        if self.d_in != 1:
            raise ValueError(f"knots need one input dimension, this network has {self.d_in}")
        return (-self.g / self.G[:, 0]).detach()

    def space_knots(self, interval: tuple[float, float], *, alternating: bool) -> None:
        """Put equally spaced knots on the interval, with G = 1 or alternating signs."""
        if self.d_in != 1:
            raise GatelabError(
                f"spline initializers need one input, not {self.d_in}; use 'normal', 'lecun' or 'uniform'"
            )
        sign = torch.ones(self.width, dtype=self.G.dtype)
        if alternating:
            sign[1::2] = -1.0
        knots = torch.linspace(*interval, self.width, dtype=self.G.dtype)
        self.G[:, 0] = sign
        self.g.copy_(-sign * knots)

    def draw_lecun(self, interval: tuple[float, float], generator: torch.Generator) -> None:
        """Draw weights from N(0, 1/fan-in) and set biases to zero; in 1-D draw knots and the biases of factors."""

        def draw(p: Tensor, fan_in: int) -> None:
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) / fan_in**0.5)

        for weight, bias in self.maps:
            draw(weight, self.d_in)
            bias.zero_()
        draw(self.D, self.width)
        self.d.zero_()
        if self.d_in == 1:
            a, b = interval
            knots = a + (b - a) * torch.rand(self.width, generator=generator, dtype=self.G.dtype)
            self.g.copy_(-self.G[:, 0] * knots)
            for _, bias in self.maps[1:]:
                bias.copy_(torch.randn(bias.shape, generator=generator, dtype=bias.dtype))

    def draw_uniform(self, generator: torch.Generator) -> None:
        """Draw weights and biases within 1 / sqrt(fan-in) of 0, as `torch.nn.Linear` does."""
        for pair in [*self.maps, (self.D, self.d)]:
            for p in pair:
                p.copy_((2 * torch.rand(p.shape, generator=generator, dtype=p.dtype) - 1) / pair[0].shape[1] ** 0.5)


def initialize(net: Network, init: str, *, seed: int, interval: tuple[float, float] = (-1.0, 1.0)) -> None:
    """Fill the parameters of a network in place.

    Args:
        net: the network.
        init: a name of `INITIALIZERS`.
        seed: the seed of all draws.
        interval: the interval of the knots of a 1-D network.
    """
    if init not in INITIALIZERS:
        raise unknown_name("initializer", init, INITIALIZERS)
    generator = torch.Generator().manual_seed(check_seed(seed))
    with torch.no_grad():
        if init == "lecun":
            net.draw_lecun(interval, generator)
            return
        if init == "uniform":
            net.draw_uniform(generator)
            return
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
        if init != "normal":
            net.space_knots(interval, alternating=init == "spline-alternating")


def two_thirds(width: int, factors: int) -> int:
    """The width at which a gated block has the parameters of an MLP block.

    An MLP block has 2 d_model n weights, one of order q has (q + 2) d_model n: a GLU gets 2/3 of the width.

    Args:
        width: the width of the MLP block.
        factors: the order q of the gated unit.

    Returns:
        The width of the gated block, 1 or more.

    >>> two_thirds(3072, 1)
    2048
    """
    return max(1, round(2 * width / (factors + 2)))


class FeedForward(nn.Module):
    """y = D [ act(Gx) * (Ux) * ... ] on the last dimension, as Llama has it.

    Args:
        d_model: the dimension of inputs and outputs.
        width: the number of neurons of an MLP block.
        unit: the product unit, by name, as a value or as a function.
        match_mlp: reduce the width by the 2/3 rule, so that blocks of different units cost the same.
        bias: add biases, initially zero: d + D [ act(Gx + g) * (Ux + u) * ... ].
        seed: the seed of the weights, which are then the same on every device; None uses torch's global generator.
        device: the device of the parameters, as for `torch.nn.Linear`.
        dtype: the type of the parameters.

    >>> FeedForward(64, 256, "swiglu", match_mlp=True).width
    171
    >>> [name for name, _ in FeedForward(4, 8, "glu", bias=True).named_parameters()]
    ['G', 'g', 'U', 'u', 'D', 'd']
    """

    def __init__(
        self,
        d_model: int,
        width: int,
        unit: str | Unit | Callable[..., Tensor] = "swiglu",
        *,
        match_mlp: bool = False,
        bias: bool = False,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.unit = product_unit(unit)
        self.width = check_width(width)
        if match_mlp:
            self.width = two_thirds(self.width, self.unit.factors)
        self.d_model = d_model
        generator = None if seed is None else torch.Generator().manual_seed(check_seed(seed))
        shapes = dict.fromkeys(("G", *factor_names(self.unit.factors)), (self.width, d_model))
        for name, (rows, columns) in {**shapes, "D": (d_model, self.width)}.items():
            # Drawn on the CPU and moved: generators of different devices draw different numbers.
            weight = torch.randn(rows, columns, generator=generator, dtype=dtype) / columns**0.5
            self.register_parameter(name, nn.Parameter(weight.to(device)))
            zeros = nn.Parameter(torch.zeros(rows, dtype=dtype, device=device)) if bias else None
            self.register_parameter(name.lower(), zeros)

    def affine(self, name: str, x: Tensor) -> Tensor:
        """The affine map of that name, such as Gx + g."""
        return nn.functional.linear(x, getattr(self, name), getattr(self, name.lower()))

    def forward(self, x: Tensor) -> Tensor:
        names = ("G", *factor_names(self.unit.factors))
        return self.affine("D", self.unit.neuron(*(self.affine(name, x) for name in names)))
