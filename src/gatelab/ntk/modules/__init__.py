"""Kernels of any module; the full Jacobian is never in memory at once.

`surveys` runs three samples to find where the parameters are used, with `rules` for the functions that use them.
`computation` divides the memory, and collects inputs and output gradients of these calls and Jacobians of parameters
without a rule; `contraction` computes the kernel from both.
"""

from gatelab.ntk.modules.computation import empirical, operator

__all__ = ["empirical", "operator"]
