"""The transformer's form of a unit: d_model in and out, without biases unless they are wanted."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gatelab.errors import check_seed
from gatelab.feedforward.definition import Unit, check_width
from gatelab.feedforward.network import factor_names
from gatelab.feedforward.registry import product_unit


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
