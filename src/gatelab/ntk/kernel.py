"""What every kernel is: a symmetric matrix of the samples, what it belongs to, and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gatelab.display import one_line


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel matrix in float64, n samples by n, on the device where it was made.

    `error` is the largest error of an entry, relative to the geometric mean of the two diagonal entries, where it
    was estimated; 0 for closed forms. `np.asarray(kernel)` is the matrix.
    """

    matrix: Tensor
    label: str
    width: int | None = None
    error: float = 0.0

    def __repr__(self) -> str:
        width = "" if self.width is None else f", width {self.width}"
        return one_line(self, f"{self.label}: {len(self)} samples{width}")

    def __len__(self) -> int:
        return len(self.matrix)

    def numpy(self) -> np.ndarray:
        return self.matrix.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        matrix = self.numpy()
        return np.array(matrix, dtype=dtype, copy=True) if copy else np.asarray(matrix, dtype=dtype)
