"""A user's class, for the tests of solvers that take any module."""

from torch import Tensor, nn


class TwoLayers(nn.Module):
    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(d_in, width), nn.Linear(width, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x).tanh())
