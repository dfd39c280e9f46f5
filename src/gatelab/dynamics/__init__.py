"""Gradient descent in closed form, and batches of two-layer networks: which unit has the lower loss, and when.

    gl.dynamics.expected_loss(K, y, width, lr, steps)        proposition 4.1: bias, variance and standard deviation
    gl.dynamics.crossing(K_a, K_b, y, width, lr)             where two losses cross, and the conditions of corollary 4.2
    gl.dynamics.stable_step(K)                               the largest stable learning rate
    gl.dynamics.train("glu", X, y, width, lr, steps)         real networks, all seeds in one batch
    gl.dynamics.measured_crossing(a, b)                      where their mean losses cross, with an interval
    gl.dynamics.finite_width_loss("glu", X, y, width, lr)    the loss with the random kernels of finite networks
    gl.dynamics.in_span(X)                                   fewer inputs with the same dynamics

K is a kernel of `gl.ntk`. The loss is (1/2)|f - y|^2, or its mean over the samples with loss="mean".
"""

from gatelab.dynamics.crossings import Change, Crossing, MeasuredCrossing, crossing, measured_crossing
from gatelab.dynamics.expected import FiniteWidth, Trajectory, expected_loss, finite_width_loss
from gatelab.dynamics.spectral import StableStep, stable_step
from gatelab.dynamics.training import Training, in_span, train

__all__ = [
    "Change",
    "Crossing",
    "FiniteWidth",
    "MeasuredCrossing",
    "StableStep",
    "Training",
    "Trajectory",
    "crossing",
    "expected_loss",
    "finite_width_loss",
    "in_span",
    "measured_crossing",
    "stable_step",
    "train",
]
