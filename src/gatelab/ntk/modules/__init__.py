"""Kernels of any module as it is, without per-sample gradients of all parameters ever being held.

Four steps: `survey` sends three samples ahead to learn where the parameters are used, `budget` plans, `collect` keeps
inputs and output gradients of the calls that use them (found by `record`, by the rules in `layers`), `contract` turns
these into the kernel. What has no rule goes through `jacobians`. `operator` multiplies with the kernel instead.
"""

from gatelab.ntk.modules.computation import empirical, operator

__all__ = ["empirical", "operator"]
