"""Optimizers for any module: `LevenbergMarquardt`, for residuals to high precision, and `train_modules` for batches."""

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
