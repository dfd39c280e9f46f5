"""Optimizers for any module: `LevenbergMarquardt`, for residuals to high precision.

- `levenberg`: the optimizer; its damping and acceptance are those of `solve.marquardt`.
- `module_batches`: `train_modules`, many modules of one architecture in one batch.
- `jacobians`: residuals and their derivatives. `systems`: the damped least-squares problems, and
  cross entropy, Poisson's or Huber's loss as such problems.
"""

from typing import TYPE_CHECKING

from gatelab.lazy import import_on_use

if TYPE_CHECKING:
    from gatelab.optim.levenberg import LevenbergMarquardt
    from gatelab.optim.module_batches import TrainedModules, train_modules

import_on_use(
    __name__,
    {"levenberg": ("LevenbergMarquardt",), "module_batches": ("TrainedModules", "train_modules")},
)

__all__ = ["LevenbergMarquardt", "TrainedModules", "train_modules"]
