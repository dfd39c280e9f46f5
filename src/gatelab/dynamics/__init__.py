"""Gradient descent in closed form, and two-layer networks trained many at a time: who is ahead, and when.

    gl.dynamics.expected_loss(K, y, width, lr, steps)        proposition 4.1, its bias, variance and spread
    gl.dynamics.crossing(K_a, K_b, y, width, lr)             where two losses cross, and the conditions of corollary 4.2
    gl.dynamics.stable_step(K)                               how large a step may be
    gl.dynamics.train("glu", X, y, width, lr, steps)         real networks, all seeds and rates in one batch
    gl.dynamics.measured_crossing(a, b)                      where their mean losses cross, with an interval
    gl.dynamics.finite_width_loss("glu", X, y, width, lr)    what the closed form leaves out at finite width
    gl.dynamics.in_span(X)                                   fewer inputs, the same dynamics

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
