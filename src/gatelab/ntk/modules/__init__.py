"""Kernels of any module as it is; the gradients of all samples by all parameters are never in memory at once.

`survey` sends three samples ahead to learn where the parameters are used, by `rules` for the calls that use them.
`budgets` plans. `passes` collects inputs and output gradients of these calls, and Jacobians of what has no rule;
`contraction` turns both into the kernel. `computation` puts this together.
"""

from gatelab.ntk.modules.computation import empirical, operator

__all__ = ["empirical", "operator"]
