"""The transformer's form of a unit: no biases, d_model in and out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.units.network import factor_names
from gatelab.units.registry import unit as as_unit
from gatelab.units.unit import Unit, check_width


def two_thirds(width: int, factors: int) -> int:
    """The width that keeps a gated block's parameters at those of an MLP block of `width`.

    An MLP block has 2 d_model n weights, one of order q has (q + 2) d_model n: a GLU gets 2/3 of the width.

    >>> two_thirds(3072, 1)
    2048
    """
    return max(1, round(2 * width / (factors + 2)))


class FeedForward(nn.Module):
    """y = D [ act(Gx) * (Ux) * ... ] on the last dimension.

    `match_mlp=True` shrinks the width by the usual 2/3 rule, so blocks of different units cost the same.

    >>> FeedForward(64, 256, "swiglu", match_mlp=True).width
    171
    """

    def __init__(
        self,
        d_model: int,
        width: int,
        unit: str | Unit | Callable[..., Tensor] = "swiglu",
        *,
        match_mlp: bool = False,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        chosen = as_unit(unit)
        if not isinstance(chosen, Unit):
            raise GatelabError(f"{chosen.name!r} is a module of its own; FeedForward builds product units")
        self.unit = chosen
        self.width = two_thirds(check_width(width), chosen.factors) if match_mlp else check_width(width)
        self.d_model = d_model
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        for name in ("G", *factor_names(chosen.factors)):
            self.register_parameter(name, _lecun(self.width, d_model, generator, dtype))
        self.D = _lecun(d_model, self.width, generator, dtype)

    def forward(self, x: Tensor) -> Tensor:
        names = ("G", *factor_names(self.unit.factors))
        return nn.functional.linear(
            self.unit.neuron(*(nn.functional.linear(x, getattr(self, n)) for n in names)), self.D
        )


def _lecun(rows: int, columns: int, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns, generator=generator, dtype=dtype) / columns**0.5)
