"""The types of arrays: numpy's, by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = np.ndarray  # of numbers, whole numbers or truths
Complex = NDArray[np.complex128]
Bytes = NDArray[np.uint8]
Tokens = NDArray[np.uint16]
