"""The value that every kernel is."""

import numpy as np
import torch

from gatelab.ntk import Kernel


def test_a_kernel_is_an_array_where_one_is_wanted():
    matrix = torch.eye(3, dtype=torch.float64)
    kernel = Kernel(matrix, "mlp", width=7)
    assert len(kernel) == 3
    assert np.array_equal(np.asarray(kernel), np.eye(3))
    copied = np.array(kernel, copy=True)
    copied[0, 0] = 5
    assert matrix[0, 0] == 1
    assert np.asarray(kernel, dtype=np.float32).dtype == np.float32
