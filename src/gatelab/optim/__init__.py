"""Optimizers for any module: `LevenbergMarquardt`, for residuals to high precision.

- `levenberg`: the optimizer; its damping and acceptance are those of `solve.marquardt`.
- `jacobians`: residuals and their derivatives. `systems`: the damped least-squares problems.
"""

from typing import TYPE_CHECKING

from gatelab.lazy import import_on_use

if TYPE_CHECKING:
    from gatelab.optim.levenberg import LevenbergMarquardt

import_on_use(__name__, {"levenberg": ("LevenbergMarquardt",)})

__all__ = ["LevenbergMarquardt"]
